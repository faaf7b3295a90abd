"""The relay of old Iris bindings, against a net in memory: each row of the byte table, and the
traps of the original bindings. The last test uses a real cluster.

There is no Java binding to run against: neither PyPI nor Debian has one.
"""

import asyncio
import os
import random

import pytest
from fake_net import Echo, Net
from relay_client import SOON, Client, client_allows, ended, message_of, opened, pieces, run

import mqcore as mq
from mqcore import cluster
from mqcore.cluster import relay_binding, relay_tunnel
from mqcore.cluster.relay import Relay
from mqcore.cluster.relay_frames import (
    CHUNK,
    VERSION,
    Broadcast,
    Broadcasted,
    Close,
    Closed,
    Deny,
    Hello,
    Publish,
    Replied,
    Reply,
    Request,
    Requested,
    Subscribe,
    TunnelAllow,
    TunnelClose,
    TunnelClosed,
    TunnelConfirm,
    TunnelInit,
    TunnelOffer,
    TunnelResult,
    TunnelTransfer,
    Unsubscribe,
    Welcome,
    encode,
)
from mqcore.errors import OptionError

SEED = int(os.environ.get("MQCORE_SEED", "1"))


# -- greeting and closing ------------------------------------------------------------------------

def test_the_bytes_on_the_network():
    """A whole conversation in hex, apart from our own codec."""
    async def test(net, relay, connect):
        async with connect(greet=False) as client:
            client.writer.write(bytes.fromhex(
                "00 11 697269732d636c69656e742d6d61676963 0b 76312e302d647261667432 00"
                "04 00 04 6563686f 02 6869 e807"        # request 0, echo, hi, 1 s
                "04 01 04 6563686f 04 6661696c e807"))  # request 1: fail
            want = bytes.fromhex("00 10 697269732d72656c61792d6d61676963 0b 76312e302d647261667432")
            assert await client.reader.readexactly(len(want)) == want
            first, second = bytes.fromhex("05 00 00 01 02 6869"), b"\5\1\0\0\3bad"
            assert await client.reader.readexactly(15) in (first + second, second + first)
            client.writer.write(b"\2")
            assert await client.reader.read() == b"\2\0"
    run(test)


@pytest.mark.parametrize(("hello", "why"), [
    (Hello("iris-client-magic", "v1.0-draft1", "x"), "v1.0-draft1"),
    (Hello("iris-client-magic", "", ""), "v1.0-draft2 is"),
])
def test_other_versions_are_denied(hello, why):
    async def test(net, relay, connect):
        async with connect(greet=False) as client:
            client.send(hello)
            deny = await client.get()
            assert isinstance(deny, Deny) and deny.magic == "iris-relay-magic"
            assert why in deny.reason
            assert await client.get() is None
        assert relay.counters["denied"] == 1 and "x" not in net.services
    run(test)


@pytest.mark.parametrize("start", [
    encode(Hello("iris", VERSION, "")), encode(Request(0, "echo", b"x", 1)), b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\x02\x00\x01", b"\xff" * 100,
])
def test_strangers(start):
    async def test(net, relay, connect):
        async with connect(greet=False) as client:
            client.writer.write(start)
            assert all(isinstance(frame, Closed) for frame in await client.rest())
        assert relay.counters["malformed"] == 1
    run(test)


def test_no_greeting(monkeypatch):
    monkeypatch.setattr(relay_binding, "GREETING", 0.05)

    async def test(net, relay, connect):
        async with connect(greet=False) as client:
            assert await client.get() is None
        assert relay.counters["no_greeting"] == 1
    run(test)


def test_close_finishes_what_is_pending():
    """Trap: after CLOSE, answer what is pending, then 02 00."""
    async def test(net, relay, connect):
        gate = asyncio.Event()

        class Slow(Echo):
            async def request(self, request):
                await gate.wait()
                return b"done"
        net.services["slow"] = [Slow()]
        async with connect() as client:
            client.send(Request(1, "slow", b"x", 5000), Close(), Request(2, "slow", b"x", 5000))
            assert await client.get() == Replied(2, "the binding is closing")
            gate.set()
            assert await client.rest() == [Replied(1, b"done"), Closed("")]
    run(test)


def test_a_service_goes_with_its_binding():
    async def test(net, relay, connect):
        async with connect("mine") as client:
            assert relay.clusters == ["mine"] and len(net.services["mine"]) == 1
            asking = asyncio.ensure_future(net.arequest("mine", b"x", timeout=SOON))
            assert isinstance(await client.get(), Requested)
        with pytest.raises(cluster.RemoteError, match="is gone"):
            await asking
        while net.services["mine"]:
            await asyncio.sleep(0.001)
    run(test)


def test_the_relay_closes_under_its_bindings():
    async def test(net, relay, connect):
        async with connect("mine") as client:
            client.send(Request(1, "echo", b"hang", 60_000), Subscribe("t"),
                        TunnelInit(1, "echo", 0))
            assert await client.get() == TunnelResult(1, CHUNK)
            await relay.aclose()
            frames = await client.rest()
            assert Closed("the relay is closing") in frames and not net.services["mine"]
    run(test)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])
def test_it_stays_on_loopback(host):
    with pytest.raises(OptionError, match="no passwords"):
        Relay(None, hosts=("127.0.0.1", host))


def test_a_port_that_is_taken():
    async def body():
        async with Relay(Net(), port=0, hosts=("127.0.0.1",)) as first:
            with pytest.raises(OptionError, match=f"port {first.port}"):
                async with Relay(Net(), port=first.port, hosts=("127.0.0.1",)):
                    pass
    asyncio.run(body())


# -- requests ------------------------------------------------------------------------------------

def test_requests_of_a_binding():
    async def test(net, relay, connect):
        async with connect() as client:
            for number, body in enumerate([b"hi", bytes(100_000), b""]):
                client.send(Request(number, "echo", body, 5000))
                assert await client.get() == Replied(number, body)
            client.send(Request(9, "echo", b"fail", 5000))
            assert await client.get() == Replied(9, "bad")
            client.send(Request(9, "echo", b"hang", 20))        # an id may come again
            assert await client.get() == Replied(9, None)
            client.send(Request(9, "nobody", b"x", 20), Request(10, "echo", b"x", 0))
            assert sorted([await client.get(), await client.get()]) == [
                Replied(9, None), Replied(10, None)]
            client.send(Request(11, "echo", b"x", 2**64 - 1))
            assert await client.get() == Replied(11, b"x")
    run(test)


def test_a_service_that_comes_later_answers():
    async def test(net, relay, connect):
        async with connect() as client:
            client.send(Request(1, "later", b"x", 5000))
            await client.silent(2)
            net.services["later"] = [Echo()]
            assert await client.get() == Replied(1, b"x")
    run(test)


def test_requests_to_a_binding():
    async def test(net, relay, connect):
        async with connect("mine") as client:
            answers = [asyncio.ensure_future(net.arequest("mine", b"%d" % n, timeout=5))
                       for n in range(3)]
            asked = [await client.get() for _ in range(3)]
            assert [one.body for one in asked] == [b"0", b"1", b"2"]
            assert len({one.id for one in asked}) == 3
            assert all(0 < one.timeout <= 5000 for one in asked)
            client.send(Reply(asked[2].id, b"two"), Reply(asked[0].id, b""),
                        Reply(asked[1].id, "no luck"))
            assert await answers[2] == b"two" and await answers[0] == b""
            with pytest.raises(cluster.RemoteError, match="^no luck$"):
                await answers[1]
    run(test)


def test_late_and_unknown_replies_are_counted():
    """Trap: nothing is ever sent for an id that the binding does not know."""
    async def test(net, relay, connect):
        async with connect("mine") as client:
            with pytest.raises(cluster.RequestTimeout):
                await net.arequest("mine", b"x", timeout=0.05)
            late = await client.get()
            client.send(Reply(late.id, b"late"), Reply(77, b"x"), TunnelClose(5),
                        TunnelAllow(5, 1), TunnelTransfer(5, 1, b"x"), Unsubscribe("never"))
            await client.silent(1)
        assert relay.counters["late_replies"] == 2 and relay.counters["no_tunnel"] == 3
    run(test)


def test_too_many_requests(monkeypatch):
    monkeypatch.setattr(relay_binding, "MAX_PENDING", 3)

    async def test(net, relay, connect):
        async with connect() as client:
            client.send(*(Request(n, "echo", b"hang", 60_000) for n in range(5)))
            for number in (3, 4):
                reply = await client.get()
                assert reply.id == number and "pending" in reply.outcome
    run(test)


# -- broadcasts and topics -----------------------------------------------------------------------

def test_broadcasts():
    async def test(net, relay, connect):
        async with connect("mine") as one, connect("mine") as two:
            one.send(Broadcast("mine", b"hello"), Broadcast("echo", b"e"), Broadcast("none", b"n"))
            assert await one.get() == await two.get() == Broadcasted(b"hello")
            await one.silent(1)
            assert net.services["echo"][0].heard == (b"e",)
    run(test)


def test_topics():
    async def test(net, relay, connect):
        async with connect() as one, connect() as two:
            one.send(Subscribe("t"), Subscribe("t"), Subscribe(">"))
            await one.silent(1)
            two.send(*(Publish("t", b"%d" % number) for number in range(10)))
            two.send(Publish("u", b"x"), Publish(">", b"star"))
            got = [await one.get() for _ in range(11)]
            assert [frame for frame in got if frame.topic == "t"] == [
                Publish("t", b"%d" % number) for number in range(10)]
            assert Publish(">", b"star") in got
            one.send(Unsubscribe("t"))
            await one.silent(2)
            two.send(Publish("t", b"gone"))
            await two.silent(1)
            await one.silent(3)
            assert relay.counters["refused_topics"] == 1
    run(test)


def test_too_many_topics(monkeypatch):
    monkeypatch.setattr(relay_binding, "MAX_TOPICS", 5)

    async def test(net, relay, connect):
        async with connect() as client:
            client.send(*(Subscribe(f"t{number}") for number in range(8)))
            await client.silent(1)
            assert len(net.feeds) == 5 and relay.counters["refused_topics"] == 3
    run(test)


def test_a_binding_that_does_not_read(monkeypatch):
    monkeypatch.setattr(relay_binding, "UNREAD", 1 << 20)

    async def test(net, relay, connect):
        async with connect("mine") as client:
            client.send(Subscribe("t"))
            await client.silent(1)
            for _ in range(200):
                await net.apublish("t", bytes(200_000))
                await net.abroadcast("mine", bytes(200_000))
                await asyncio.sleep(0)
            assert relay.counters["dropped"] > 100
            [binding] = relay._bindings.values()
            assert binding._writer.transport.get_write_buffer_size() < 2 << 20
            with pytest.raises(cluster.RemoteError, match="keep up"):
                await net.arequest("mine", b"x", timeout=SOON)
    run(test)


# -- tunnels -------------------------------------------------------------------------------------

def test_a_tunnel_echoes():
    async def test(net, relay, connect):
        async with connect() as client:
            await opened(client)
            client.send(TunnelAllow(3, 64 << 20))
            credits = []
            chance = random.Random(SEED)
            messages = [chance.randbytes(size) for size in (1, CHUNK, CHUNK + 1, 1 << 20, 5)]
            client.send(*(piece for one in messages for piece in pieces(3, one)))
            for one in messages:
                assert await message_of(client, 3, credits) == one
            client.send(TunnelClose(3))
            while not isinstance(frame := await client.get(), TunnelClosed):
                credits.append(frame.size)
            assert frame == TunnelClosed(3, "")
            assert sum(credits) == sum(map(len, messages))      # every byte was given back
            await opened(client)                                # the id may come again
    run(test)


def test_many_ordered_messages():
    async def test(net, relay, connect):
        async with connect() as client:
            await opened(client)
            client.send(TunnelAllow(3, 64 << 20))
            client.send(*(TunnelTransfer(3, 4, number.to_bytes(4, "big"))
                          for number in range(2000)))
            for number in range(2000):
                assert await message_of(client, 3) == number.to_bytes(4, "big")
    run(test)


def test_credit_of_the_binding():
    """A message begins when credit covers its first chunk; the rest of it follows at once."""
    async def test(net, relay, connect):
        async with connect() as client:
            await opened(client)
            client.send(*pieces(3, bytes(3 * CHUNK)))
            await client_allows(client, 3 * CHUNK)
            client.send(TunnelAllow(3, CHUNK - 1))
            await client.silent(1)
            client.send(TunnelAllow(3, 1))
            assert await message_of(client, 3) == bytes(3 * CHUNK)
            client.send(TunnelTransfer(3, 1, b"x"), TunnelAllow(3, 2 * CHUNK))
            await client_allows(client, 1)
            await client.silent(2)          # the credit is 0 again, not more
            client.send(TunnelAllow(3, 1))
            assert await message_of(client, 3) == b"x"
    run(test)


def test_an_unfinished_message_is_discarded():
    async def test(net, relay, connect):
        async with connect() as client:
            await opened(client)
            client.send(TunnelAllow(3, 1 << 20), TunnelTransfer(3, 10, b"half"),
                        TunnelTransfer(3, 3, b"new"), TunnelTransfer(3, 0, b"stray"))
            credits = []
            assert await message_of(client, 3, credits) == b"new"
            client.send(TunnelClose(3))
            while isinstance(frame := await client.get(), TunnelAllow):
                credits.append(frame.size)
            assert frame == TunnelClosed(3, "") and sum(credits) == 4 + 3 + 5
            assert relay.counters["stray_chunks"] == 1
    run(test)


def test_a_tunnel_to_nobody():
    """Trap: exactly one result for each TUN_INIT."""
    async def test(net, relay, connect):
        async with connect() as client:
            client.send(TunnelInit(1, "nobody", 30), TunnelInit(2, "nobody", 30))
            assert sorted([(await client.get()).id, (await client.get()).id]) == [1, 2]
            await client.silent(1)
    run(test)


def test_tunnels_to_a_binding():
    async def test(net, relay, connect):
        async with connect("mine") as server, connect() as client:
            client.send(TunnelInit(0, "mine", 5000))
            offer = await server.get()
            assert isinstance(offer, TunnelOffer) and offer.chunk == CHUNK
            server.send(TunnelConfirm(offer.build, 8), TunnelAllow(8, 1 << 20),
                        TunnelTransfer(8, 5, b"hello"))
            assert await server.get() == TunnelAllow(8, relay_tunnel.WINDOW)
            assert await client.get() == TunnelResult(0, CHUNK)
            assert await client.get() == TunnelAllow(0, relay_tunnel.WINDOW)
            client.send(TunnelAllow(0, 1 << 20), TunnelTransfer(0, 2, b"hi"))
            assert await message_of(client, 0) == b"hello"
            assert await message_of(server, 8) == b"hi"
            server.send(TunnelClose(8))
            assert await ended(server) == TunnelClosed(8, "")
            assert await ended(client) == TunnelClosed(0, "")
    run(test)


def test_a_tunnel_that_is_not_confirmed(monkeypatch):
    """The original cuts the whole connection; here the tunnel alone fails."""
    monkeypatch.setattr(relay_binding, "CONFIRM", 0.05)

    async def test(net, relay, connect):
        async with connect("mine") as client:
            async with net.atunnel("mine", timeout=1) as tunnel:
                offer = await client.get()
                assert [one async for one in tunnel] == []
            assert "has not taken the tunnel" in str(net.failed)
            client.send(TunnelConfirm(offer.build, 4))
            assert await client.get() == TunnelClosed(4, "the tunnel was confirmed too late")
            await client.silent(1)
    run(test)


def test_too_many_tunnels(monkeypatch):
    monkeypatch.setattr(relay_binding, "MAX_TUNNELS", 2)

    async def test(net, relay, connect):
        async with connect() as client:
            for number in range(2):
                await opened(client, number)
            client.send(TunnelInit(7, "echo", 5000))
            assert await client.get() == TunnelResult(7, None)
    run(test)


# -- a real cluster ------------------------------------------------------------------------------

def test_two_bindings_across_a_cluster():
    """A service behind the relay of one node, a client behind the relay of another."""
    async def body():
        key = cluster.Key.generate()
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                Relay(one, port=0) as left, Relay(two, port=0) as right:
            server = Client(*await asyncio.open_connection("127.0.0.1", left.port))
            client = Client(*await asyncio.open_connection("127.0.0.1", right.port))
            server.send(Hello("iris-client-magic", VERSION, "adder"))
            client.send(Hello("iris-client-magic", VERSION, ""))
            assert isinstance(await server.get(), Welcome) and \
                isinstance(await client.get(), Welcome)

            client.send(Request(1, "adder", b"1 2", 9000))
            asked = await server.get()
            server.send(Reply(asked.id, b"3"))
            assert (asked.body, await client.get()) == (b"1 2", Replied(1, b"3"))
            client.send(Request(2, "adder", b"1 x", 9000))
            server.send(Reply((await server.get()).id, "not a number"))
            assert await client.get() == Replied(2, "not a number")

            client.send(Broadcast("adder", b"reload"))
            assert await server.get() == Broadcasted(b"reload")

            client.send(TunnelInit(5, "adder", 9000))
            offer = await server.get()
            server.send(TunnelConfirm(offer.build, 0), TunnelAllow(0, 4 << 20))
            assert isinstance(await server.get(), TunnelAllow)
            assert await client.get() == TunnelResult(5, CHUNK)
            message = random.Random(SEED).randbytes(1_000_000)
            client.send(*pieces(5, message))
            assert await message_of(server, 0) == message
            client.send(TunnelClose(5))
            assert await ended(client) == TunnelClosed(5, "")
            assert await ended(server) == TunnelClosed(0, "")
            for end in (client, server):
                end.send(Close())
                assert await end.rest() == [Closed("")]
                end.writer.close()
                await end.writer.wait_closed()
    try:
        asyncio.run(body())
    finally:
        mq.Context.default().close(0)
