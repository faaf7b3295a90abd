"""A tunnel whose user fails half-way: the other side does not take what it has got for all."""

import asyncio
from types import SimpleNamespace

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster.tunnels import SHARED, WINDOW, WINDOW_LEAST, Tunnels

LIMIT = 50.0


class Disk(Exception):
    pass


async def read(tunnel, found):
    """What it brings, and how it ends."""
    try:
        async for message in tunnel:
            found.append(message)
        found.append("all")
    except cluster.TunnelClosed as closed:
        found.append(closed.reason)


class Store:
    def __init__(self):
        self.got = []

    async def tunnel(self, tun):
        self.got.append([])
        await read(tun, self.got[-1])


@pytest.mark.parametrize(("how", "seen"), [
    ("error", "fault"), ("cancelled", "cancelled"), ("reset", "closed"), ("reason", "full"),
    ("returns", "all"), ("closes", "all"),
])
def test_what_the_handler_sees(once, key, how, seen):
    async def upload(net):
        async with net.atunnel("store", timeout=LIMIT) as tunnel:
            await tunnel.asend(b"1 of 2")
            if how == "error":
                raise Disk
            if how == "cancelled":
                asyncio.current_task().cancel()
                await sleep(LIMIT)
            if how == "closes":
                await tunnel.aclose()
            if how.startswith("re") and how != "returns":
                tunnel.reset(*["full"][:how == "reason"])

    async def main():
        store = Store()
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                one.aserve("store", store):
            await net.await_members("store", timeout=LIMIT)
            [ended] = await asyncio.gather(asyncio.ensure_future(upload(net)),
                                           return_exceptions=True)
            assert type(ended) is {"error": Disk, "cancelled": asyncio.CancelledError}.get(
                how, type(None))
            assert await net.until(lambda: store.got and store.got[0][-1:] == [seen], LIMIT)
            assert store.got == [[b"1 of 2", seen]]

    once(main)


@pytest.mark.parametrize(("how", "seen"), [("error", "fault"), ("leaves", "all")])
def test_what_the_handler_of_a_blocking_opener_sees(once, key, how, seen):
    def upload(net):
        with net.tunnel("store", timeout=LIMIT) as tunnel:
            tunnel.send(b"1 of 2")
            if how == "error":
                raise Disk

    async def main():
        store = Store()
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                one.aserve("store", store):
            await net.await_members("store", timeout=LIMIT)
            try:
                await asyncio.to_thread(upload, net)
            except Disk:
                assert how == "error"
            assert await net.until(lambda: store.got and store.got[0][-1:] == [seen], LIMIT)
            assert store.got == [[b"1 of 2", seen]]

    once(main)


@pytest.mark.parametrize(("how", "seen"), [("error", "fault"), ("reset", "closed"), ("", "all")])
def test_what_the_opener_sees(run, key, how, seen):
    class Source:
        async def tunnel(self, tun):
            await tun.asend(b"1 of 2")
            if how == "error":
                raise Disk
            if how == "reset":
                tun.reset()

    async def main():
        found = []
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                one.aserve("source", Source()):
            await net.await_members("source", timeout=LIMIT)
            async with net.atunnel("source", timeout=LIMIT) as tunnel:
                await read(tunnel, found)
        assert found == [b"1 of 2", seen]

    run(main)


def test_a_side_that_has_closed_the_tunnel_itself_misses_nothing(once, key):
    async def main():
        store, found = Store(), []
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as one, \
                one.aserve("store", store):
            await net.await_members("store", timeout=LIMIT)
            async with net.atunnel("store", timeout=LIMIT) as tunnel:
                reader = asyncio.create_task(read(tunnel, found))
                await sleep(0)
                tunnel.reset()
                await asyncio.wait_for(reader, LIMIT)
        assert found == ["all"]

    once(main)


def test_the_windows_of_many_tunnels_share_what_a_node_holds():
    tunnels = SimpleNamespace(open={})
    for number in range(5000):
        window = Tunnels.window(tunnels)
        assert WINDOW_LEAST <= window <= WINDOW
        tunnels.open[number] = SimpleNamespace(_flow=SimpleNamespace(window=window))
    sizes = [tunnel._flow.window for tunnel in tunnels.open.values()]
    assert sizes[:120] == [WINDOW] * 120 and sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == WINDOW_LEAST and sum(sizes) < 1.5 * (1 << 30)
    assert sum(size for size in sizes if size > WINDOW_LEAST) <= SHARED
