"""A gateway that drains finishes what it passes on, both ways."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep

LIMIT = 50.0


class Work:
    """Each method waits for `go`."""

    def __init__(self):
        self.go = False
        self.runs = 0

    async def request(self, req):
        self.runs += 1
        while not self.go:
            await sleep(0.01)
        return req.body

    async def tunnel(self, tun):
        self.runs += 1
        while not self.go:
            await sleep(0.01)
        async for message in tun:
            await tun.asend(message)


class Scene:
    """A server in the west, a client in the east, and two gateways each."""

    def __init__(self):
        self.work = Work()

    async def begin(self, stack):
        enter = stack.enter_async_context
        west, east, fed = (cluster.Key.generate() for _ in range(3))
        self.server = await enter(cluster.ajoin(west, udp=False))
        self.client = await enter(cluster.ajoin(east, udp=False))
        await enter(self.server.aserve("it", self.work))
        self.nodes, self.gateways, seeds = {"west": [], "east": []}, {}, []
        for name, key, net, what in (("west", west, self.server, "exports"),
                                     ("east", east, self.client, "imports")):
            self.gateways[name] = []
            for _ in range(2):
                node = await enter(cluster.ajoin(key, udp=False, seeds=[net.url]))
                gateway = await enter(node.afederate(name, fed, udp=False, seeds=seeds,
                                                     **{what: "it"}))
                seeds.append(gateway.fed.url)
                self.nodes[name].append(node)
                self.gateways[name].append(gateway)
        await self.client.await_members("it", 2, timeout=LIMIT)
        for gateway in self.gateways["east"]:
            assert await gateway.fed.until(
                lambda gateway=gateway: len(gateway.fed.directory.offering("it")) == 2, LIMIT)


@pytest.fixture
def scene(run):
    """scene(main): runs main(scene)."""
    def begin(main):
        async def within():
            async with AsyncExitStack() as stack:
                made = Scene()
                await made.begin(stack)
                await main(made)

        run(within)

    return begin


@pytest.mark.parametrize("side", ["west", "east"])
def test_requests(scene, side):
    async def main(s):
        found = []

        async def ask(number):
            found.append(await s.client.arequest("it", b"%d" % number, timeout=LIMIT))

        for number in range(20):
            s.client.loop.spawn(ask, number)
        assert await s.client.until(lambda: s.work.runs == 20, LIMIT)
        node, drained = s.nodes[side][0], []

        async def drain():
            drained.append(await node.adrain(LIMIT))

        node.loop.spawn(drain)
        assert await node.until(lambda: node.draining, LIMIT)
        for number in range(20, 40):        # these go by way of the other one
            s.client.loop.spawn(ask, number)
        assert await s.client.until(lambda: s.work.runs == 40, LIMIT)
        assert not drained
        s.work.go = True
        assert await s.client.until(lambda: drained and len(found) == 40, LIMIT)
        assert drained == [True] and sorted(map(int, found)) == list(range(40))
        assert s.work.runs == 40

    scene(main)


@pytest.mark.parametrize("side", ["west", "east"])
def test_tunnels(scene, side):
    async def main(s):
        ended, drained = [], []

        async def stream():
            async with s.client.atunnel("it", timeout=LIMIT) as tunnel:
                for _ in range(5):
                    await tunnel.asend(bytes(5000))
                await tunnel.asend_eof()
                for _ in range(5):
                    assert await tunnel.arecv(timeout=LIMIT) == bytes(5000)
                ended.append("all")

        for _ in range(6):
            s.client.loop.spawn(stream)
        assert await s.client.until(lambda: s.work.runs == 6, LIMIT)

        async def drain(node):
            drained.append(await node.adrain(LIMIT))

        for node in s.nodes[side]:
            node.loop.spawn(drain, node)
        assert await s.client.until(lambda: all(node.draining for node in s.nodes[side]), LIMIT)
        s.work.go = True
        assert await s.client.until(lambda: len(drained) == 2, LIMIT)
        assert await s.client.until(lambda: len(ended) == 6, LIMIT)
        assert drained == [True] * 2

    scene(main)


def test_a_service_of_the_gateway_itself(once):
    """It is exported until what runs is over, though it takes nothing new."""
    async def main():
        async with AsyncExitStack() as stack:
            s, work = Scene(), Work()
            await s.begin(stack)
            node, [gateway, _] = s.nodes["west"][0], s.gateways["west"]
            async with node.aserve("it", work):
                asking = [asyncio.ensure_future(s.client.arequest("it", b"1", timeout=LIMIT))
                          for _ in range(20)]
                assert await node.until(lambda: work.runs, LIMIT)
                assert await node.until(lambda: work.runs + s.work.runs == 20, LIMIT)
                draining = asyncio.ensure_future(node.adrain(LIMIT))
                assert await node.until(lambda: node.draining, LIMIT)
                work.go = True
                s.work.go = True
                assert await asyncio.gather(*asking) == [b"1"] * 20
                assert await draining is True
                assert gateway.fed.closed

    once(main)


@pytest.mark.parametrize("how", ["close", "time-out", "second call"])
def test_something_else_ends_the_gateway(once, how):
    async def main():
        async with AsyncExitStack() as stack:
            s = Scene()
            await s.begin(stack)
            node, gateway = s.nodes["west"][0], s.gateways["west"][0]
            await s.nodes["west"][1].aclose()
            asking = asyncio.ensure_future(s.client.arequest("it", b"1", timeout=LIMIT))
            assert await s.client.until(lambda: s.work.runs, LIMIT)
            draining = asyncio.ensure_future(node.adrain(0.3 if how == "time-out" else LIMIT))
            assert await node.until(lambda: node.draining, LIMIT)
            if how == "close":
                await gateway.aclose()
                s.work.go = True
            if how == "second call":
                assert await node.adrain(0.1) is False
            assert await draining is False
            with pytest.raises(cluster.ClusterError):
                await asking

    once(main)
