"""Bindings of Iris, played frame by frame, and a relay over a net in memory."""

import asyncio
from contextlib import asynccontextmanager, suppress

from fake_net import Echo, Net

from mqcore.cluster import relay_tunnel
from mqcore.cluster.relay import Relay
from mqcore.cluster.relay_frames import (
    CHUNK,
    FROM_RELAY,
    VERSION,
    Decoder,
    Hello,
    Replied,
    Request,
    TunnelAllow,
    TunnelClosed,
    TunnelInit,
    TunnelResult,
    TunnelTransfer,
    Welcome,
    encode,
)

SOON = 10       # seconds: tells an answer from a hang


class Client:
    """A binding, frame by frame."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.decoder = Decoder(FROM_RELAY)
        self.frames = []

    def send(self, *all_frames):
        self.writer.write(b"".join(map(encode, all_frames)))

    async def get(self):
        """The next frame, None at the end."""
        async with asyncio.timeout(SOON):
            while not self.frames:
                data = await self.reader.read(1 << 16)
                if not data:
                    return None
                self.frames += self.decoder.feed(data)
        return self.frames.pop(0)

    async def rest(self):
        found = []
        while (frame := await self.get()) is not None:
            found.append(frame)
        return found

    async def silent(self, after):
        """Nothing comes before the answer to a request that follows."""
        self.send(Request(after, "echo", b"sync", 5000))
        assert await self.get() == Replied(after, b"sync")


def run(test):
    """Run a coroutine function with a net that has an echo service, and a relay."""
    async def body():
        net = Net()
        net.services["echo"] = [Echo()]
        async with Relay(net, port=0) as relay:
            clients = []

            @asynccontextmanager
            async def connect(cluster="", greet=True):
                client = Client(*await asyncio.open_connection("127.0.0.1", relay.port))
                clients.append(client)
                if greet:
                    client.send(Hello("iris-client-magic", VERSION, cluster))
                    assert await client.get() == Welcome("iris-relay-magic", VERSION)
                try:
                    yield client
                finally:
                    client.writer.close()
            await test(net, relay, connect)
        assert not relay._bindings
        for client in clients:
            client.writer.close()
            with suppress(ConnectionError):     # what it sent last was not read
                await client.writer.wait_closed()
        for task in list(net.tasks):
            task.cancel()
        await asyncio.sleep(0)
    asyncio.run(body())


async def opened(client, number=3, name="echo"):
    client.send(TunnelInit(number, name, 5000))
    # the result first, then the relay's allowance
    assert await client.get() == TunnelResult(number, CHUNK)
    assert await client.get() == TunnelAllow(number, relay_tunnel.WINDOW)


def pieces(number, message):
    for at in range(0, len(message), CHUNK):
        yield TunnelTransfer(number, 0 if at else len(message), message[at:at + CHUNK])


async def message_of(client, number, credits=None):
    """The next message of a tunnel."""
    size, data = None, b""
    while size is None or len(data) < size:
        frame = await client.get()
        if isinstance(frame, TunnelAllow):
            if credits is not None:
                credits.append(frame.size)
            continue
        assert isinstance(frame, TunnelTransfer) and frame.id == number
        assert len(frame.chunk) <= CHUNK and (frame.size > 0) == (size is None)
        size = frame.size or size
        data += frame.chunk
    return data


async def client_allows(client, size):
    """The relay gives so many bytes back."""
    while size:
        frame = await client.get()
        assert isinstance(frame, TunnelAllow)
        size -= frame.size


async def ended(client):
    while not isinstance(frame := await client.get(), TunnelClosed):
        assert isinstance(frame, TunnelAllow)
    return frame
