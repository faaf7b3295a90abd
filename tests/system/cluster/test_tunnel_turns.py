"""Tunnels of one link take turns under one window, and what is small goes ahead of them."""

import asyncio
import contextlib

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames
from mqcore.cluster.flow import PIECE
from mqcore.cluster.window import LEAST, WINDOW
from mqcore.errors import SendTimeout
from mqcore.testing import SlowLink

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


class Sink:
    """Counts what each of its tunnels brings."""

    def __init__(self):
        self.got = {}
        self.ends = 0

    async def request(self, req):
        return req.body

    async def tunnel(self, tun):
        self.got[tun._stream] = []
        with contextlib.suppress(cluster.TunnelClosed):
            async for message in tun:
                self.got[tun._stream].append(len(message))
        self.ends += 1


def behind(rate, function):
    """function(server, client, sink, slow): the client reaches the server over a slow link."""
    async def main(key):
        sink = Sink()
        async with cluster.ajoin(key, udp=False) as server, server.aserve("it", sink):
            with SlowLink(server.url, rate=rate) as slow:
                async with cluster.ajoin(key, udp=False, seeds=[slow.url]) as client:
                    await client.await_members("it", timeout=LIMIT)
                    await function(server, client, sink, slow)
                    slow.rate = None
                    assert await server.until(lambda: sink.ends == len(sink.got), LIMIT)

    return main


async def stream(net, size, over):
    """Fill a tunnel until then."""
    message = bytes(size)
    with contextlib.suppress(SendTimeout, cluster.TunnelClosed):
        async with net.atunnel("it", timeout=LIMIT) as tunnel:
            while not over:
                await tunnel.asend(message, timeout=LIMIT)


def window_of(client):
    [member] = client.directory.members.values()
    return member.link.session.window


def test_tunnels_that_stream_over_a_slow_link_starve_no_gossip(run, key):
    """Eight of them, and all of the membership protocol goes over the same link. Unbounded, each
    would have 2 MiB on the way: 8 s of this link in front of every probe and every request."""
    async def eight(server, client, sink, slow):
        events, over = [server.events(), client.events()], []
        for _ in range(8):
            client.loop.spawn(stream, client, 3 * PIECE + 5, over)
        window, sent = window_of(client), []
        while sum(map(sum, sink.got.values())) < 4_000_000:
            begun = window.sent
            assert await client.arequest("it", b"1", timeout=LIMIT) == b"1"
            sent.append(window.sent - begun)
            await sleep(0.02)
        over.append(True)
        assert max(sent) < 5_000_000
        assert not [event.kind for stream in events for event in stream._queue
                    if event.kind in ("failed", "link lost")]
        amounts = sorted(map(sum, sink.got.values()))
        assert len(amounts) == 8
        assert amounts[-2] - amounts[0] <= 400_000      # the first one had the link for itself

    run(lambda: behind(2e6, eight)(key))


@pytest.mark.parametrize("size", [100, PIECE])
def test_what_is_on_its_way_has_a_bound_for_all_tunnels_together(once, key, size):
    """While the link stands still, senders wait. One that gives up has sent nothing, and its
    tunnel goes on."""
    async def bound(server, client, sink, slow):
        tunnels = [await client.atunnel("it", timeout=LIMIT) for _ in range(4)]
        slow.stall()
        sent = dict.fromkeys(tunnels, 0)

        async def fill(tunnel):
            with pytest.raises(SendTimeout):
                while True:
                    await tunnel.asend(bytes(size), timeout=0.3)
                    sent[tunnel] += 1

        await asyncio.gather(*map(fill, tunnels))
        [member] = client.directory.members.values()
        session = member.link.session
        assert LEAST <= session.window.unacked <= WINDOW + 2 * PIECE
        assert len(session.sources) <= 4 and not any(tunnel.closed for tunnel in tunnels)
        slow.go()
        for tunnel in tunnels:
            await tunnel.asend(bytes(size + 1), timeout=LIMIT)
            await tunnel.aclose()
        for tunnel in tunnels:
            assert sink.got[tunnel._stream] == [size] * sent[tunnel] + [size + 1]

    once(lambda: behind(None, bound)(key))


def fairness(amounts):
    """Jain's index: 1 if all have the same (Jain, Chiu and Hawe, 1984)."""
    return sum(amounts) ** 2 / (len(amounts) * sum(amount ** 2 for amount in amounts))


def test_tunnels_with_small_messages_share_the_link(once, key):
    """Also with one that never lets the loop go by itself."""
    async def small(server, client, sink, slow):
        over, before = [], {}
        for _ in range(8):
            client.loop.spawn(stream, client, 1000, over)

        def amounts():
            return [len(sizes) - before.get(stream, 0) for stream, sizes in sink.got.items()]

        # what was ahead of the last one to begin is through
        assert await server.until(lambda: len(amounts()) == 8 and min(amounts()) > 300, LIMIT)
        before.update(zip(sink.got, amounts(), strict=True))
        assert await server.until(lambda: min(amounts()) > 1000, LIMIT)
        over.append(True)
        assert fairness(amounts()) > 0.95       # 0.875: one of them gets nothing

    once(lambda: behind(4e6, small)(key))


def test_a_large_request_takes_turns_with_many_tunnels(once, key):
    async def both(server, client, sink, slow):
        over, window = [], window_of(client)
        for _ in range(40):
            client.loop.spawn(stream, client, 1_000_000, over)
        assert await client.until(lambda: window.sent > 1_500_000, LIMIT)
        begun = window.sent
        assert await client.arequest("it", bytes(500_000), timeout=LIMIT)
        over.append(True)
        assert window.sent - begun < 8_000_000      # 20 MB if each had the same

    once(lambda: behind(4e6, both)(key))


def test_a_tunnel_to_this_node_itself(run, key):
    async def main():
        sink = Sink()
        async with cluster.ajoin(key) as net, net.aserve("it", sink):
            async with net.atunnel("it", timeout=LIMIT) as tunnel:
                for size in (0, 5_000_000, 1):
                    await tunnel.asend(bytes(size), timeout=LIMIT)
            assert await net.until(lambda: sink.ends, LIMIT)
            assert list(sink.got.values()) == [[0, 5_000_000, 1]]

    run(main)


def test_a_tunnel_that_is_closed_leaves_its_place(once, key):
    async def leave(server, client, sink, slow):
        tunnels = [await client.atunnel("it", timeout=LIMIT) for _ in range(3)]
        slow.stall()
        for tunnel in tunnels:
            client.loop.spawn(stream_into, tunnel)
        [member] = client.directory.members.values()
        session = member.link.session
        assert await client.until(lambda: len(session.sources) == 3, LIMIT)
        tunnels[1].reset("enough")
        assert len(session.sources) == 2
        sealed = session.frames_out
        member.link.control(frames.Ping(1 << 60))
        assert session.frames_out == sealed + 1     # ahead of what waits
        slow.go()
        for tunnel in tunnels[::2]:
            tunnel.reset("enough")
        assert await client.until(lambda: not session.sources, LIMIT)

    async def stream_into(tunnel):
        with contextlib.suppress(cluster.TunnelClosed):
            while True:
                await tunnel.asend(bytes(100_000))

    once(lambda: behind(None, leave)(key))
