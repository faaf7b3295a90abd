"""A cluster in one process and without sockets: what the relay calls of a node."""

import asyncio
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

from mqcore.cluster.errors import NoSuchService, RemoteError, RequestTimeout


class Tunnel:
    """One end; the ends of a pair exchange queues."""

    END = object()

    def __init__(self, outgoing, incoming):
        self._out, self._in = outgoing, incoming
        self.closed = False

    async def asend(self, message):
        await self._out.put(bytes(message))

    async def aclose(self):
        if not self.closed:
            self.closed = True
            # what was sent before still arrives; the end must not wait for a reader
            asyncio.get_running_loop().create_task(self._out.put(self.END))

    async def __aiter__(self):
        while (message := await self._in.get()) is not self.END:
            yield message


def tunnels(room=4):
    one, two = asyncio.Queue(room), asyncio.Queue(room)
    return Tunnel(one, two), Tunnel(two, one)


class Net:
    def __init__(self):
        self.services = {}
        self.feeds = []
        self.turn = 0
        self.tasks = set()

    def _one(self, name):
        handlers = self.services.get(name)
        if not handlers:
            raise NoSuchService(f"no member offers {name!r}", service=name)
        self.turn += 1
        return handlers[self.turn % len(handlers)]

    async def arequest(self, name, body, *, timeout):
        handler = self._one(name)
        request = SimpleNamespace(body=body, deadline=time.monotonic() + timeout)
        try:
            async with asyncio.timeout(timeout):
                return await handler.request(request)
        except TimeoutError:
            raise RequestTimeout("too late", service=name) from None
        except Exception as error:
            raise RemoteError(str(error), service=name) from None

    async def abroadcast(self, name, body):
        for handler in self.services.get(name, ()):
            await handler.broadcast(SimpleNamespace(body=body))

    async def apublish(self, topic, body):
        for wanted, queue in self.feeds:
            if wanted in (topic, ">"):
                queue.put_nowait(SimpleNamespace(topic=topic, body=body))

    @asynccontextmanager
    async def asubscribe(self, topic):
        queue = asyncio.Queue()
        self.feeds.append((topic, queue))

        async def feed():
            while True:
                yield await queue.get()
        try:
            yield feed()
        finally:
            self.feeds.remove((topic, queue))

    @asynccontextmanager
    async def atunnel(self, name, *, timeout):
        handler = self._one(name)
        mine, theirs = tunnels()
        task = asyncio.get_running_loop().create_task(self._carry(handler, theirs))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            yield mine
        finally:
            await mine.aclose()

    async def _carry(self, handler, tunnel):
        try:
            await handler.tunnel(tunnel)
        except Exception as error:
            self.failed = error
        finally:
            await tunnel.aclose()

    @asynccontextmanager
    async def aserve(self, name, handler):
        self.services.setdefault(name, []).append(handler)
        try:
            yield
        finally:
            self.services[name].remove(handler)


class Echo:
    """A service on the cluster's side."""

    heard = ()

    async def request(self, request):
        if request.body == b"fail":
            raise ValueError("bad")
        if request.body == b"hang":
            await asyncio.sleep(3600)
        return request.body

    async def broadcast(self, message):
        self.heard += (message.body,)

    async def tunnel(self, tunnel):
        async for message in tunnel:
            await tunnel.asend(message)
