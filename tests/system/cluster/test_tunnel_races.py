"""Tunnels where two things meet: a turn and a cancellation, a link that is full, a peer that lies
about what it has taken; and what is on its way while nodes wait for answers."""

import asyncio

import pytest
from cluster_sessions import linked
from echoing import Echo

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames
from mqcore.cluster.errors import MalformedFrame
from mqcore.cluster.key import Key
from mqcore.cluster.session import COST
from mqcore.cluster.window import LEAST
from mqcore.errors import SendTimeout

LIMIT = 50.0


class Slow:
    """Takes a message each 2 ms, once it may begin."""

    def __init__(self):
        self.got, self.going, self.over = [], asyncio.Event(), 0

    async def request(self, req):
        if req.body == b"hold":
            await self.going.wait()
        return req.body

    async def tunnel(self, tun):
        await self.going.wait()
        async for message in tun:
            self.got.append(bytes(message))
            await sleep(0.002)
        self.over += 1


def pair(test):
    """test(server, client, service), in one loop of asyncio."""
    async def main():
        key, service = Key.generate(), Slow()
        async with cluster.ajoin(key) as server, server.aserve("it", service), \
                cluster.ajoin(key, seeds=[server.url]) as client:
            await client.await_members("it", 1, timeout=LIMIT)
            await test(server, client, service)

    asyncio.run(main())


def test_a_send_that_is_cancelled_when_its_turn_comes_has_sent_nothing():
    async def cancelled(server, client, service):
        async with client.atunnel("it", timeout=LIMIT) as tunnel:
            while tunnel._flow.credit > 0:
                await tunnel.asend(bytes(60_000))
            task = asyncio.ensure_future(tunnel.asend(b"last"))
            await sleep(0.01)
            took = tunnel._took

            def taking(frame):
                took(frame)
                if tunnel._granted is not None:     # and the task does not know yet
                    task.cancel()

            tunnel._took = taking
            service.going.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            await tunnel.asend(b"last")
        assert await server.until(lambda: service.over, LIMIT)
        assert service.got.count(b"last") == 1

    pair(cancelled)


@pytest.mark.parametrize("how", ["timeout", "wait_for"])
def test_messages_that_are_sent_again_arrive_once(how):
    """Many senders that give up after a millisecond or two and try again."""
    async def again(server, client, service):
        service.going.set()
        async with client.atunnel("it", timeout=LIMIT) as tunnel:
            repeated = 0
            for number in range(400):
                message = b"%08d" % number + bytes(20_000)
                while True:
                    try:
                        if how == "timeout":
                            await tunnel.asend(message, timeout=0.001)
                        else:
                            await asyncio.wait_for(tunnel.asend(message), 0.001)
                        break
                    except (SendTimeout, TimeoutError):
                        repeated += 1
        assert await server.until(lambda: service.over, LIMIT)
        assert [int(message[:8]) for message in service.got] == list(range(400)) and repeated

    pair(again)


@pytest.mark.parametrize("size", [0, 1, 100, 30_000])
def test_small_messages_on_their_way_have_a_bound(size):
    """They take time, too, so each counts some bytes more."""
    (one, _), wires = linked()
    sent = 0

    def source():
        nonlocal sent
        one.send_reserved(one.reserve(frames.Data(1, True, bytes(size), True)))
        sent += 1
        return True

    one.sources.enter(source)
    assert sent == len(wires[0] or wires[1]) <= LEAST // (COST + size) + 1


def test_a_turn_that_is_given_back_opens_the_window():
    (one, two), wires = linked()
    data = one.reserve(frames.Data(1, True, bytes(LEAST), True))
    sent = []
    one.sources.enter(lambda: bool(sent.append(1)))
    assert not sent and not one.sources.open
    one.release(data)
    assert sent and one.sources.open and one.window.unacked == 0


def test_a_peer_that_has_taken_more_than_was_sent():
    (one, two), wires = linked()
    one.send_reserved(one.reserve(frames.Data(1, True, b"x", True)))
    two.send(frames.Taken(one.window.unacked, 0))
    one.receive((wires[0] if two._send_raw == wires[0].append else wires[1]).pop())
    assert one.window.unacked == 0
    two.send(frames.Taken(1, 0))
    with pytest.raises(MalformedFrame, match="more than was sent"):
        one.receive((wires[0] if two._send_raw == wires[0].append else wires[1]).pop())


def test_tunnels_wait_for_a_link_that_is_full():
    """Whatever the other side says that it has taken."""
    async def full(server, client, service):
        service.going.set()
        async with client.atunnel("it", timeout=LIMIT) as tunnel:
            await tunnel.asend(b"1")
            link = tunnel._link
            link.unsent_bytes += 1 << 25
            with pytest.raises(SendTimeout):
                await tunnel.asend(b"never", timeout=0.05)
            link.unsent_bytes -= 1 << 25
            link._feed_later()
            await tunnel.asend(b"2", timeout=LIMIT)
        assert await server.until(lambda: service.got == [b"1", b"2"], LIMIT)

    pair(full)


@pytest.mark.parametrize("call", ["barrier", "drain"])
def test_the_answer_to_a_wait_comes_over_a_link_that_is_full(call):
    async def full(server, client, service):
        assert await client.arequest("it", b"x", timeout=LIMIT) == b"x"
        link = next(iter(client.directory.members.values())).link
        link.unsent_bytes += 17 << 20
        if call == "barrier":
            assert await server.barrier()
        else:
            assert await server.adrain(LIMIT)
        link.unsent_bytes -= 17 << 20

    pair(full)


def test_a_client_that_dies_when_it_has_its_answer_fails_no_drain():
    """Its answer is confirmed while others are waited for."""
    async def drains(server, client, service):
        async with cluster.ajoin(client.key, seeds=[server.url]) as other:
            await other.await_members("it", 1, timeout=LIMIT)
            held = asyncio.ensure_future(client.arequest("it", b"hold", timeout=LIMIT))
            await server.until(lambda: server.services["it"].busy, LIMIT)
            assert await other.arequest("it", b"x", timeout=LIMIT) == b"x"
            draining = asyncio.ensure_future(server.adrain(LIMIT))
            assert await server.until(lambda: all(
                link.confirmed == link.answered for link in server.links.by_rid.values()), LIMIT)
            [link] = [link for link in server.links.by_rid.values()
                      if link.member is not None and link.member.id == other.directory.me.id]
            assert link.answered
            server.links.lost(link, "it was killed", False)
            service.going.set()
            assert await held == b"hold" and await draining

    pair(drains)


def test_a_peer_that_confirms_nothing_is_asked_once():
    """Not for each answer that it gets meanwhile."""
    async def silent(server, client, service):
        client.handlers[frames.Ping] = lambda link, frame: None
        assert await client.arequest("it", b"x", timeout=LIMIT) == b"x"
        for _ in range(50):
            for link in server.links.by_rid.values():
                link.answered += 1
            server.links.confirm()
        assert len(server.links.pings) == len(server.links.by_rid)

    pair(silent)


def test_a_tunnel_is_closed_when_its_block_is_cancelled(run, key):
    """On trio, too, where aclose() cannot wait then."""
    async def main():
        async with cluster.ajoin(key) as server, server.aserve("it", Held()), \
                cluster.ajoin(key, seeds=[server.url]) as client:
            await client.await_members("it", 1, timeout=LIMIT)

            async def opens():
                async with client.atunnel("it", timeout=LIMIT) as tunnel:
                    await tunnel.asend(b"x")
                    await sleep(LIMIT)

            cancel = client.loop.spawn(opens)
            assert await client.until(lambda: client.tunnels.open, LIMIT)
            cancel()
            assert await client.until(lambda: not client.tunnels.open, LIMIT)

    run(main)


class Held:
    async def tunnel(self, tun):
        async for _ in tun:
            pass
        await sleep(LIMIT)


@pytest.mark.parametrize("how", ["close", "drain", "block"])
def test_a_node_leaves_with_a_tunnel_to_itself(run, key, how):
    async def main():
        async with cluster.ajoin(key, udp=False) as net, net.aserve("it", Echo()):
            feed = await net.asubscribe("a.>").astart()
            tunnel = await net.atunnel("it", timeout=LIMIT)
            await tunnel.asend(b"1")
            assert await tunnel.arecv(timeout=LIMIT) == b"1"
            if how == "close":
                await net.aclose()
            elif how == "drain":
                assert await net.adrain(0.1) is False
        assert net.ended and tunnel.closed and feed.closed
        assert not net.tunnels.open and not net.topics.feeds

    run(main)


def test_a_part_that_fails_as_a_node_leaves(run, key, monkeypatch):
    """The others end."""
    async def main():
        async with cluster.ajoin(key, udp=False) as other, other.aserve("it", Echo()):
            net = await cluster.ajoin(key, udp=False, seeds=[other.url]).__aenter__()
            await net.await_members("it", timeout=LIMIT)
            feed = await net.asubscribe("a.>").astart()
            tunnel = await net.atunnel("it", timeout=LIMIT)
            monkeypatch.setattr(net, "unlinked", None)
            with pytest.raises(TypeError):
                await net.aclose()
            assert net.ended and tunnel.closed and feed.closed
            assert await other.until(lambda: not other.directory.members, LIMIT)

    run(main)
