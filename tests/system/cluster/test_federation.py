"""Federation: services of one cluster in another, by gateways."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress

import pytest
import trio

from mqcore import cluster
from mqcore.binding.sleep import in_trio, sleep

LIMIT = 50.0


class Named:
    """Answers with its name."""

    def __init__(self, name):
        self.name = name
        self.heard = 0

    async def request(self, req):
        self.heard += 1
        if req.body == b"fail":
            raise LookupError("no such thing")
        if req.body == b"about":
            return repr((sorted(req.headers.items()), req.trace, req.deadline is None)).encode()
        if req.body.startswith(b"sleep "):
            await sleep(float(req.body[6:]))
        return self.name

    async def broadcast(self, msg):
        return self.name

    async def tunnel(self, tun):
        async for message in tun:
            if message == b"close":
                await tun.aclose()
                continue
            await tun.asend(self.name + b" " + message)
        await tun.asend(b"end")


class Clouds:
    """Clusters with a gateway each, in this process. `stack` leaves them in reverse order."""

    def __init__(self, stack):
        self.stack = stack
        self.federation = cluster.Key.generate()
        self.seeds = []
        self.keys = {}

    async def node(self, name, **options):
        key = self.keys.setdefault(name, cluster.Key.generate())
        return await self.stack.enter_async_context(cluster.ajoin(key, **options))

    async def gateway(self, net, name, **options):
        made = net.afederate(name, self.federation, seeds=self.seeds, **options)
        await self.stack.enter_async_context(made)
        self.seeds.append(made.fed.url)
        return made


def clouds(function):
    async def main():
        async with AsyncExitStack() as stack:
            await function(Clouds(stack))

    return main


def test_a_service_of_another_cluster(run):
    @clouds
    async def main(all_):
        west, east = await all_.node("west"), await all_.node("east")
        async with west.aserve("adder", Named(b"west")), west.aserve("secret", Named(b"secret")):
            gate = await all_.gateway(west, "west", exports=["add*"])
            await all_.gateway(east, "east", imports=["adder", "secret", "add*@west"])
            user = await all_.node("east", seeds=[east.url])    # knows of no gateway
            await user.await_members("adder", timeout=LIMIT)
            await user.await_members("adder@west", timeout=LIMIT)
            assert await user.arequest("adder", b"", timeout=LIMIT) == b"west"
            assert await user.arequest("adder@west", b"", timeout=LIMIT) == b"west"
            assert await user.arequest("adder", b"about", timeout=LIMIT, headers={"a": b"b"},
                                       trace="t") == b"([('a', b'b')], 't', False)"
            with pytest.raises(cluster.RemoteError, match="no such thing") as caught:
                await user.arequest("adder", b"fail", timeout=LIMIT)
            assert caught.value.kind == "LookupError"
            assert not user.members("secret") and "secret" not in gate.stats()["exported"]
            assert await user.abroadcast("adder", b"") == 0     # stays in its cluster
            assert gate.stats()["served"]["east"] == {
                "offered": 4, "refused": 0, "in_flight": 0, "answered": 4, "failed": 0}
            assert "exports adder" in west.explain() and "imports adder, adder@west" \
                in east.explain()
        assert await user.until(lambda: not user.members("adder"), LIMIT)
        with pytest.raises(cluster.NoSuchService):
            await user.arequest("adder", b"")

    run(main)


def test_members_of_the_own_cluster_come_first(once):
    """The other cluster takes over when they are gone or full, and gives way when they are back."""
    @clouds
    async def main(all_):
        west, east = await all_.node("west"), await all_.node("east")
        async with west.aserve("adder", Named(b"west")):
            for net, name in ((west, "west"), (east, "east")):
                await all_.gateway(net, name, exports="adder", imports="adder")
            user = await all_.node("east", seeds=[east.url])
            await user.await_members("adder", timeout=LIMIT)

            async def asked():
                return {await user.arequest("adder", b"", timeout=LIMIT, key=str(number))
                        for number in range(20)}

            assert await asked() == {b"west"}
            async with user.aserve("adder", Named(b"east"), concurrency=1, queue_bytes=0):
                assert await asked() == {b"east"}
                slow = asyncio.create_task(user.arequest("adder", b"sleep 1", timeout=LIMIT))
                assert await user.until(lambda: user.services["adder"].busy, LIMIT)
                assert await user.arequest("adder", b"x", timeout=LIMIT) == b"west"
                assert await slow == b"east"
                async with east.aserve("adder", Named(b"gateway itself")):
                    assert await user.until(lambda: not any(
                        offer.hops for member in user.members("adder")
                        for offer in [member.services["adder"]]), LIMIT)
                    assert await asked() == {b"east", b"gateway itself"}
            assert await user.until(lambda: [member.services["adder"].hops for member
                                             in user.members("adder")] == [1], LIMIT)
            assert await asked() == {b"west"}

    once(main)


def test_nothing_goes_round(once):
    """Three clusters import and export one name, and a request of each crosses one border."""
    @clouds
    async def main(all_):
        names = ["one", "two", "three"]
        nets = [await all_.node(name) for name in names]
        gates = [await all_.gateway(net, name, exports="*", imports=["*", "*@one", "*@two"])
                 for net, name in zip(nets, names, strict=True)]
        for net, gate in zip(nets, gates, strict=True):
            assert await net.until(lambda gate=gate: gate.stats()["gateways"] == 2, LIMIT)
        worker = Named(b"one")
        async with nets[0].aserve("adder", worker):
            for net in nets[1:]:
                assert await net.arequest("adder", b"", timeout=LIMIT) == b"one" \
                    if await net.await_members("adder", timeout=LIMIT) else False
            assert gates[1].stats()["exported"] == gates[2].stats()["exported"] == []
            assert gates[0].stats()["imported"] == []
            assert gates[2].stats()["imported"] == ["adder", "adder@one"]
            assert worker.heard == 2
        for net in nets:
            assert await net.until(lambda net=net: not net.members("adder"), LIMIT)
            with pytest.raises(cluster.NoSuchService):
                await net.arequest("adder", b"")
        assert sum(usage["offered"] for gate in gates
                   for usage in gate.stats()["served"].values()) == 2

    once(main)


def test_quotas(once):
    @clouds
    async def main(all_):
        west, east = await all_.node("west"), await all_.node("east")
        async with west.aserve("adder", Named(b"west")):
            gate = await all_.gateway(west, "west", exports="*",
                                      quota=cluster.Quota(requests=0.001, in_flight=1))
            await all_.gateway(east, "east", imports="*")
            await east.await_members("adder", timeout=LIMIT)
            assert await east.arequest("adder", b"", timeout=LIMIT) == b"west"
            with pytest.raises(cluster.Overloaded):
                await east.arequest("adder", b"", timeout=LIMIT)
            assert gate.stats()["served"]["east"] == {
                "offered": 2, "refused": 1, "in_flight": 0, "answered": 1, "failed": 0}
            assert "1 over quota" in west.explain()
            assert await west.arequest("adder", b"", timeout=LIMIT) == b"west"  # its own are free
            async with east.atunnel("adder", timeout=LIMIT) as tunnel:
                with pytest.raises(cluster.TunnelClosed, match="quota of 'east'") as caught:
                    await tunnel.arecv(timeout=LIMIT)
                assert caught.value.reason == "refused"

    once(main)


def test_deadlines_pass_through(once):
    @clouds
    async def main(all_):
        west, east = await all_.node("west"), await all_.node("east")
        worker = Named(b"west")
        async with west.aserve("adder", worker):
            gate = await all_.gateway(west, "west", exports="*")
            await all_.gateway(east, "east", imports="*")
            await east.await_members("adder", timeout=LIMIT)
            with pytest.raises(cluster.RequestTimeout):
                await east.arequest("adder", b"sleep 30", timeout=0.3)
            assert await east.until(lambda: gate.stats()["served"]["east"]["failed"] == 1, LIMIT)
            assert worker.heard == 1

    once(main)


def test_tunnels(run):
    @clouds
    async def main(all_):
        west, east = await all_.node("west"), await all_.node("east")
        async with west.aserve("adder", Named(b"west")):
            await all_.gateway(west, "west", exports="*")
            await all_.gateway(east, "east", imports="*")
            await east.await_members("adder", timeout=LIMIT)
            async with east.atunnel("adder", timeout=LIMIT) as tunnel:
                for number in range(100):
                    await tunnel.asend(b"%d" % number)
                await tunnel.asend_eof()
                found = [message async for message in tunnel]
            assert found == [b"west %d" % number for number in range(100)] + [b"end"]
            async with east.atunnel("adder", timeout=LIMIT) as tunnel:      # the far end closes
                await tunnel.asend(b"close")
                with pytest.raises(cluster.TunnelClosed):
                    await tunnel.arecv(timeout=LIMIT)
            tunnel = await east.atunnel("adder", timeout=LIMIT)             # the near end closes
            await tunnel.asend(b"x")
            assert await tunnel.arecv(timeout=LIMIT) == b"west x"
            tunnel.reset("mine", "enough")
            for net in (west, east):
                assert await net.until(lambda net=net: not net.tunnels.open, LIMIT)
        for gate in (*west.gateways, *east.gateways):
            assert not gate.fed.tunnels.open and not gate.asked.in_flight

    run(main)


def test_arguments(once, key):
    async def main():
        async with cluster.ajoin(key) as net:
            for how, says in (({"name": 5}, "name has"), ({"name": ""}, "name has"),
                              ({"name": "a@b"}, "name has"), ({"name": "a" * 64}, "name has"),
                              ({"exports": 5}, "exports="), ({"exports": [""]}, "exports="),
                              ({"exports": "a@b"}, "no @"), ({"imports": [5]}, "imports="),
                              ({"imports": ["a"] * 300}, "imports="), ({"quota": 5}, "Quota"),
                              ({"seeds": 5}, "seeds="), ({"listen": 5}, "listen="),
                              ({"zone": 5}, "zone="), ({"identity": 5}, "identity=")):
                options = {"name": "east", **how}
                with pytest.raises(TypeError, match=says):
                    net.afederate(options.pop("name"), key, **options)
            with pytest.raises(TypeError, match="joined with a Key"):
                net.afederate("east", "key")
        for wrong in ({"requests": 0}, {"requests": "x"}, {"bytes": -1}, {"in_flight": 0},
                      {"in_flight": 1.5}, {"bytes": float("nan")}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                cluster.Quota(**wrong)

    once(main)


def test_a_gateway_that_cannot_start(once, key):
    """It has the error of the join, and the node goes on without it."""
    @clouds
    async def main(all_):
        east = await all_.node("east")
        gate = await all_.gateway(east, "east", imports="*")
        with pytest.raises(cluster.KeyRejected):
            async with east.afederate("east", key, seeds=[gate.fed.url]):
                raise AssertionError("it has joined with another key")
        assert east.gateways == {gate}
        await gate.aclose()
        await gate.aclose()
        assert not east.gateways and gate.fed.closed
        with pytest.raises(Exception, match="started already"):
            await gate.astart()

    once(main)


@pytest.mark.parametrize("what", ["node", "gateway"])
def test_a_gateway_that_is_closed_while_it_begins(run, what):
    """astart() does not return what has ended already."""
    async def main():
        async with cluster.ajoin(cluster.Key.generate()) as other:
            async with cluster.ajoin(cluster.Key.generate()) as net:
                gate, found = net.afederate("east", cluster.Key.generate(),
                                            seeds=["tcp://127.0.0.1:1"]), []

                async def start():
                    try:
                        found.append(await gate.astart())
                    except cluster.ClusterError as error:
                        found.append(error)

                other.loop.spawn(start)
                while not gate.fed.begun:
                    await sleep(0)
                await (net if what == "node" else gate).aclose()
                assert await other.until(lambda: found, LIMIT)
                assert isinstance(found[0], cluster.NodeClosed)
                assert gate.fed.closed and not net.gateways

    run(main)


def test_blocking_twins():
    federation = cluster.Key.generate()
    with cluster.join(cluster.Key.generate()) as west, \
            cluster.join(cluster.Key.generate()) as east, west.serve("adder", Named(b"west")), \
            west.federate("west", federation, exports="*") as gate, \
            east.federate("east", federation, imports="*", seeds=[gate.fed.url]):
        east.wait_members("adder", timeout=LIMIT)
        assert east.request("adder", b"", timeout=LIMIT) == b"west"


def test_buckets():
    from mqcore.cluster.quota import Bucket

    bucket = Bucket(10.0)
    now = 0.0
    taken = 0
    while now < 10:
        if not bucket.wait(now):
            bucket.take(1)
            taken += 1
        now += 0.001
    assert 105 <= taken <= 110          # a second's burst, then ten a second
    bucket.take(100)
    assert 9 < bucket.wait(now) < 11
    assert Bucket(None).wait(time.monotonic()) == 0


def test_a_gateway_whose_node_in_the_federation_has_left(run):
    """Ctrl-C has ended a task of that one's on trio, say. Nothing is offered that it would pass."""
    @clouds
    async def main(all_):
        west, east = await all_.node("west"), await all_.node("east")
        gate = await all_.gateway(west, "west", exports=["it"])
        await all_.gateway(east, "east", imports=["it"])
        async with west.aserve("it", Named(b"west")):
            await east.await_members("it", timeout=LIMIT)
            await gate.fed.aclose()
            assert await west.until(lambda: gate not in west.gateways, LIMIT)
            assert await east.until(lambda: not east.members("it"), LIMIT)
            await gate.aclose()

    run(main)


async def stray_cancelled():
    """A trio.Cancelled whose scope is over."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep_forever()
        except trio.Cancelled as error:
            found = error
            raise
    return found


@pytest.mark.parametrize("steps", range(4))
def test_a_gateway_that_begins_as_its_node_has_no_tasks_any_more(key, steps):
    """A stray Cancelled ends the node's tasks on trio: the gateway's own one may not begin."""
    async def main():
        called = trio.Event()

        class Strange:
            async def request(self, req):
                stray = await stray_cancelled()
                called.set()
                raise stray

        net = await cluster.ajoin(key, udp=False).__aenter__()
        await net.aserve("it", Strange()).astart()
        gateway = net.afederate("a", cluster.Key.generate(), exports=["it"], udp=False)
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asks, net)
                await called.wait()
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                with suppress(cluster.NodeClosed):      # it may begin, and end at once
                    await gateway.astart()
            await gateway.aclose()
            await net.aclose()
        assert net.ended and not net.gateways and gateway._state in ("", "over")

    async def asks(net):
        with pytest.raises(cluster.ClusterError):
            await net.arequest("it", b"", timeout=None)

    trio.run(main)


def in_a_task(function):
    """Begin it, in a task that is not the node's. The result keeps the task."""
    return trio.lowlevel.spawn_system_task(function) if in_trio() else \
        asyncio.get_running_loop().create_task(function())


@pytest.mark.parametrize("ended", ["gateway", "node"])
@pytest.mark.parametrize("steps", range(4))
def test_a_gateway_that_is_closed_as_it_begins(run, key, ended, steps):
    async def main():
        net = await cluster.ajoin(key, udp=False).__aenter__()
        gateway = net.afederate("a", cluster.Key.generate(), udp=False)
        over = []

        async def start():
            try:
                over.append(await gateway.astart())
            except cluster.NodeClosed as error:
                over.append(error)

        task = in_a_task(start)
        for _ in range(steps):
            await sleep(0)
        await (gateway if ended == "gateway" else net).aclose()
        await net.until(lambda: over, None)
        assert task and not net.gateways or over == [gateway]
        await net.aclose()
        assert net.ended and not net.gateways and gateway.fed.closed == gateway.fed.begun

    run(main)
