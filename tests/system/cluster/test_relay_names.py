"""Several bindings of one relay under one name, as the workers of one machine, and bindings that
read nothing."""

import asyncio
import socket

import pytest
from relay_client import SOON, Client, run

from mqcore import cluster
from mqcore.cluster import relay_binding, relay_names
from mqcore.cluster.relay import Relay
from mqcore.cluster.relay_frames import (
    VERSION,
    Broadcasted,
    Close,
    Closed,
    Hello,
    Replied,
    Reply,
    Request,
    Requested,
    TunnelConfirm,
    TunnelOffer,
    Welcome,
    encode,
)
from mqcore.errors import OptionError


async def joined(relay, name):
    client = Client(*await asyncio.open_connection("127.0.0.1", relay.port))
    client.send(Hello("iris-client-magic", VERSION, name))
    assert await client.get() == Welcome("iris-relay-magic", VERSION)
    return client


def test_bindings_that_share_a_name(once, key):
    async def main():
        async with cluster.ajoin(key) as net, Relay(net, port=0, hosts=("127.0.0.1",)) as relay:
            one, two = [await joined(relay, "it") for _ in range(2)]
            assert relay.clusters == ["it", "it"] and list(net.services) == ["it"]
            asked = [asyncio.ensure_future(net.arequest("it", b"%d" % number, timeout=SOON))
                     for number in range(2)]
            for client in (one, two):       # one each, since neither has answered
                request = await client.get()
                assert isinstance(request, Requested)
                client.send(Reply(request.id, request.body + b"!"))
            assert [await answer for answer in asked] == [b"0!", b"1!"]
            assert await net.abroadcast("it", b"to all") == 1
            assert [await one.get(), await two.get()] == [Broadcasted(b"to all")] * 2

            asking = asyncio.ensure_future(net.arequest("it", b"last", timeout=SOON))
            while not one.frames and not two.frames:
                for client in (one, two):
                    if client.reader._buffer:
                        client.frames.append(await client.get())
                await asyncio.sleep(0)
            busy, other = (one, two) if one.frames else (two, one)
            busy.send(Close())              # it answers what it has, and gets nothing else
            assert await net.until(
                lambda: sum(map(len, relay._names._shared["it"]._bindings.values())) == 0, SOON)
            for _ in range(2):
                further = asyncio.ensure_future(net.arequest("it", b"x", timeout=SOON))
                request = await other.get()
                other.send(Reply(request.id, b"other"))
                assert await further == b"other"
            busy.send(Reply((await busy.get()).id, b"finished"))
            assert await asking == b"finished" and await busy.rest() == [Closed("")]
            other.writer.close()
            assert await net.until(lambda: not net.services, SOON)
            assert not relay._names._shared and not relay.counters["errors"]
            busy.writer.close()

    once(main)


def test_a_binding_whose_connection_has_ended_gets_nothing_more(once, key):
    """What it still does ends first, and a request would wait for its answer until it expires."""
    async def main():
        async with cluster.ajoin(key) as net, Relay(net, port=0, hosts=("127.0.0.1",)) as relay:
            one = await joined(relay, "it")
            binding = next(iter(relay._bindings.values()))
            go = asyncio.Event()

            async def stubborn():
                while not go.is_set():
                    try:
                        await go.wait()
                    except asyncio.CancelledError:
                        cancelled.append(1)

            cancelled = []
            binding._spawn(stubborn())
            await asyncio.sleep(0)
            one.writer.transport.abort()
            assert await net.until(lambda: cancelled, SOON)
            with pytest.raises(cluster.Overloaded):     # it has not run, and no other is there
                await net.arequest("it", b"x", timeout=SOON)
            two = await joined(relay, "it")
            asking = asyncio.ensure_future(net.arequest("it", b"x", timeout=SOON))
            request = await two.get()
            two.send(Reply(request.id, b"two"))
            assert await asking == b"two"
            go.set()
            two.writer.close()
            assert await net.until(lambda: not net.services, SOON)

    once(main)


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("breaks", ["abort", "write_eof"])
def test_a_binding_that_ends_with_something_to_do(once, key, monkeypatch, closes, breaks):
    """It may have said that it closes. It cannot answer any more, so nothing waits for that."""
    monkeypatch.setattr(relay_binding, "FINISH", 1000.0)
    monkeypatch.setattr(relay_names, "PATIENCE", 1000.0)

    async def main():
        async with cluster.ajoin(key) as net, Relay(net, port=0, hosts=("127.0.0.1",)) as relay:
            one = await joined(relay, "it")
            asking = asyncio.ensure_future(net.arequest("it", b"x", timeout=SOON))
            assert isinstance(await one.get(), Requested)
            opening = asyncio.ensure_future(net.atunnel("it", timeout=SOON)._open())
            offer = await one.get()
            one.send(TunnelConfirm(offer.build, 7))
            tunnel = await opening
            if closes:
                binding = next(iter(relay._bindings.values()))
                one.send(Close())
                assert await net.until(lambda: binding._finishing, SOON)
            getattr(one.writer.transport, breaks)()
            with pytest.raises(cluster.RemoteError, match="gone"):
                await asking
            with pytest.raises(cluster.TunnelClosed):
                await tunnel.arecv(timeout=SOON)
            await tunnel.aclose()
            two = await joined(relay, "it")
            assert await net.until(lambda: len(relay._bindings) == 1, SOON)
            two.writer.close()
            assert await net.until(lambda: not net.services, SOON)
            assert not relay._names._shared and not relay.counters["errors"]
            one.writer.close()

    once(main)


def test_a_binding_that_has_closed_and_reads_on_gets_what_it_asked_for(once, key):
    class Slow:
        async def request(self, req):
            await go.wait()
            return b"late"

    go = asyncio.Event()

    async def main():
        async with cluster.ajoin(key) as net, Relay(net, port=0, hosts=("127.0.0.1",)) as relay, \
                net.aserve("slow", Slow()):
            one = await joined(relay, "it")
            binding = next(iter(relay._bindings.values()))
            one.send(Request(1, "slow", b"x", int(SOON * 1000)), Close())
            one.writer.write_eof()
            assert await net.until(lambda: binding.gone, SOON)
            two = await joined(relay, "it")     # the name is free at once
            go.set()
            assert await one.rest() == [Replied(1, b"late"), Closed("")]
            for client in (one, two):
                client.writer.close()
            assert await net.until(lambda: not relay._bindings, SOON)

    once(main)


def test_a_tunnel_to_one_of_several_bindings(once, key):
    async def main():
        async with cluster.ajoin(key) as net, Relay(net, port=0, hosts=("127.0.0.1",)) as relay:
            clients = [await joined(relay, "it") for _ in range(2)]
            opening = [asyncio.ensure_future(net.atunnel("it", timeout=SOON)._open())
                       for _ in range(2)]
            for client in clients:
                offer = await client.get()
                assert isinstance(offer, TunnelOffer)
                client.send(TunnelConfirm(offer.build, 7))
            for tunnel in opening:
                await (await tunnel).aclose()
            for client in clients:
                client.writer.close()

    once(main)


def test_a_name_that_no_member_may_have_is_left_to_nobody(once, key):
    async def main():
        async with cluster.ajoin(key) as net, Relay(net, port=0, hosts=("127.0.0.1",)) as relay:
            client = Client(*await asyncio.open_connection("127.0.0.1", relay.port))
            client.send(Hello("iris-client-magic", VERSION, "n" * 300))
            assert "name" in (await client.get()).reason
            assert not relay._names._shared
            client.writer.close()

    once(main)


def test_a_binding_that_asks_and_never_reads(monkeypatch):
    """Its answers take bounded memory, and it holds nothing up when it ends."""
    monkeypatch.setattr(relay_binding, "UNREAD", 1 << 16)
    monkeypatch.setattr("mqcore.cluster.relay.UNREAD", 1 << 16)
    monkeypatch.setattr(relay_binding, "FINISH", 0.5)

    async def test(net, relay, connect):
        async with connect() as client:
            client.writer.transport.pause_reading()
            binding, = relay._bindings.values()
            late = encode(TunnelConfirm(1 << 40, 1)) * 1000
            peer = binding._writer.transport
            before = -1
            while not binding.full or relay.counters["late_confirms"] > before:
                before = relay.counters["late_confirms"]
                if client.writer.transport.get_write_buffer_size() < 1 << 20:
                    client.writer.write(late)
                await asyncio.sleep(0.01)
            assert peer.get_write_buffer_size() < 1 << 18
            async with asyncio.timeout(SOON):
                await relay.aclose()
            assert not relay.counters["stuck"]
            client.writer.transport.abort()
    run(test)


def test_a_port_that_another_program_has_at_one_of_the_addresses(once, key):
    """Bindings that take that address would talk to it."""
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            async with cluster.ajoin(key) as net:
                with pytest.raises(OptionError, match=f"port {port}"):
                    async with Relay(net, port=port, hosts=("::1", "127.0.0.1")):
                        pass
                with pytest.raises(OptionError, match=f"port {port}"):
                    async with Relay(net, port=port, hosts=("127.0.0.1", "::1")):
                        pass

    once(main)
