"""Members that hold the key and lie, over federation and tunnels: what they can cost is bounded."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import federation, flow, frames, tunnels
from mqcore.cluster.errors import MalformedFrame

LIMIT = 50.0
RESUME = int(LIMIT * 1e6)


class Named:
    """Answers with its name. A tunnel gets data for as long as it takes any."""

    def __init__(self, name=b"it"):
        self.name = name
        self.running = 0
        self.reasons = []

    async def request(self, req):
        if req.body == b"hang":
            self.running += 1
            while not req.cancelled:
                await sleep(0.01)
            self.running -= 1
        return self.name

    async def tunnel(self, tun):
        try:
            while True:
                await tun.asend(bytes(flow.PIECE))
        except cluster.TunnelClosed as closed:
            self.reasons.append(closed.reason)


def pair(function):
    """function(one, two, link, handler): `one` serves "it"; `link` is that of the liar, `two`."""
    async def main(key):
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            handler = Named()
            async with one.aserve("it", handler):
                await two.await_members("it", timeout=LIMIT)
                [member] = two.directory.members.values()
                await function(one, two, member.link, handler)
                for tunnel in list(one.tunnels.open.values()):
                    tunnel.reset("done")

    return main


def open_by_hand(link, stream=999, window=flow.WINDOW):
    """A tunnel of which the liar keeps no account: it never returns credit."""
    link.send(frames.Open(stream, True, "it", 0, window, RESUME))


def ring(net):
    return sum(len(piece.body) + flow.PIECE_COST for tunnel in net.tunnels.open.values()
               for _, piece in tunnel._flow.ring)


async def still(net, measure):
    """Wait until this has not changed for many turns of the loop, then its value."""
    before, same = None, 0
    while same < 20:
        await sleep(0.01)
        now = measure()
        same = same + 1 if now == before and now else 0
        before = now
    return before


# -- tunnels ---------------------------------------------------------------------------------------


def test_a_huge_window_does_not_make_the_sender_hold_more(once, key):
    async def main(one, two, link, handler):
        open_by_hand(link, window=1 << 40)
        held = await still(one, lambda: ring(one))
        assert flow.WINDOW <= held + flow.PIECE_COST < flow.WINDOW + 2 * flow.PIECE

    once(lambda: pair(main)(key))


def test_credit_that_was_never_spent_ends_the_link(once, key):
    async def main(one, two, link, handler):
        open_by_hand(link)
        await still(one, lambda: ring(one))
        for _ in range(3):
            link.send(frames.Credit(999, True, 1 << 40))
        assert await one.until(lambda: one.links.dropped.get("unreadable"), LIMIT)
        assert ring(one) <= flow.WINDOW + flow.PIECE + flow.PIECE_COST

    once(lambda: pair(main)(key))
    used = flow.Flow()
    used.granted(1 << 40)
    assert used.credit == flow.WINDOW and used.spend(100)
    used.credited(100 + flow.PIECE_COST)
    with pytest.raises(MalformedFrame, match="more credit than"):
        used.credited(1)


def test_a_resume_is_answered_once(once, key):
    """Each costs the liar 30 bytes, and the answer is what waits: up to 2 MiB."""
    async def main(one, two, link, handler):
        open_by_hand(link)
        await still(one, lambda: ring(one))
        before = one.stats()["links"]["bytes_out"]
        for attempt in range(1, 201):
            link.send(frames.Resume(999, True, attempt, 0, 0))
        assert await one.until(lambda: one.tunnels.stray >= 199, LIMIT)
        await still(one, lambda: one.stats()["links"]["bytes_out"])
        assert one.stats()["links"]["bytes_out"] - before < 2 * flow.WINDOW
        assert one.stats()["tunnels"]["open"] == 1

    once(lambda: pair(main)(key))


def test_an_answer_to_a_resume_that_was_not_asked_for(once, key):
    """The acceptor sends Resume for a tunnel that has never lost its link."""
    async def main(one, two, link, handler):
        async with two.aserve("sink", Named()):
            await one.await_members("sink", timeout=LIMIT)
            tunnel = await one.atunnel("sink", timeout=LIMIT)
            await tunnel.asend(b"x")
            before = one.tunnels.stray
            for attempt in range(100):
                link.send(frames.Resume(tunnel._stream, False, 0, 0, 0))
            assert await one.until(lambda: one.tunnels.stray == before + 100, LIMIT)
            assert one.tunnels.resumed == 0
            tunnel.reset()

    once(lambda: pair(main)(key))


@pytest.mark.parametrize("forged", [
    frames.Resume(999, True, 1, 1 << 50, 0), frames.Resume(999, True, 1, 0, 1 << 50)])
def test_a_resume_with_forged_numbers_costs_its_link_alone(once, key, forged):
    """The tunnel waits for another link, with a limit, and other members are not concerned."""
    async def main(one, two, link, handler):
        async with cluster.ajoin(key, seeds=[one.url]) as three:
            await three.await_members("it", timeout=LIMIT)
            open_by_hand(link)
            await still(one, lambda: ring(one))
            [tunnel] = one.tunnels.open.values()
            tunnel._detach()            # as if the link had been another one
            one.tunnels.away.setdefault(tunnel.peer.record.id, set()).add(tunnel)
            link.send(forged)
            assert await one.until(lambda: one.links.dropped.get("unreadable"), LIMIT)
            assert await three.arequest("it", b"", timeout=LIMIT) == b"it"
            await two.await_members("it", timeout=LIMIT)
            assert not handler.reasons
            tunnel.reset("done")
            assert not one.tunnels.open and not one.tunnels.away

    once(lambda: pair(main)(key))


def test_a_tunnel_that_has_carried_more_than_a_tebibyte_can_be_resumed():
    resume = frames.Resume(1, True, 1, 1 << 41, 1 << 46)
    assert frames.decode(frames.encode(resume)) == resume


def test_unfinished_messages_of_one_member_have_a_bound(once, key, monkeypatch):
    monkeypatch.setattr(tunnels, "UNFINISHED", 10 * flow.PIECE)

    class Reader:
        reasons = []

        async def tunnel(self, tun):
            try:
                await tun.arecv()
            except cluster.TunnelClosed as closed:
                self.reasons.append(closed.text)
                raise

    async def main(one, two, link, handler):
        async with one.aserve("reader", Reader()):
            for stream in range(1, 13):
                link.send(frames.Open(stream, True, "reader", 0, flow.WINDOW, 0))
                link.send(frames.Data(stream, True, bytes(flow.PIECE), False))
            assert await one.until(lambda: Reader.reasons, LIMIT)
            assert "unfinished messages of one member" in Reader.reasons[0]
            assert sum(one.tunnels.held.values()) <= 10 * flow.PIECE
            for stream in range(1, 13):
                link.send(frames.Reset(stream, True, "done"))
            assert await one.until(lambda: not one.tunnels.open, LIMIT)
            assert not one.tunnels.held

    once(lambda: pair(main)(key))


# -- federation ------------------------------------------------------------------------------------


class Clouds:
    def __init__(self, stack):
        self.stack = stack
        self.federation = cluster.Key.generate()
        self.seeds = []

    async def gateway(self, name, **options):
        net = await self.stack.enter_async_context(cluster.ajoin(cluster.Key.generate()))
        made = net.afederate(name, self.federation, seeds=self.seeds, **options)
        await self.stack.enter_async_context(made)
        self.seeds.append(made.fed.url)
        return net, made

    async def liar(self, version):
        """A node among the gateways that is none."""
        return await self.stack.enter_async_context(
            cluster.ajoin(self.federation, seeds=self.seeds, version=version))


def clouds(function):
    async def main():
        async with AsyncExitStack() as stack:
            await function(Clouds(stack))

    return main


def test_no_cluster_passes_for_a_third_one(once):
    """A name with @ would be taken for a service of the cluster behind the @."""
    @clouds
    async def main(all_):
        net, gate = await all_.gateway("east", imports=["*", "*@bank", "adder@bank"])
        evil = await all_.liar("evil")
        for name in ("adder@bank", "plain"):
            await all_.stack.enter_async_context(evil.aserve(name, Named()))
        for version in ("", "x@bank", "bank\n", "b" * 64):
            other = await all_.liar(version)
            await all_.stack.enter_async_context(other.aserve("stray", Named()))
        await net.await_members("plain", timeout=LIMIT)
        assert await net.until(lambda: gate.stats()["gateways"] == 5, LIMIT)
        await gate.fed.barrier()
        assert await net.until(lambda: not gate._changed(), LIMIT)
        assert gate.stats()["imported"] == ["plain"]

    once(main)


def test_a_cluster_does_not_export_names_with_at(once):
    @clouds
    async def main(all_):
        net, gate = await all_.gateway("east", exports=["*"])
        async with net.aserve("adder@west", Named()), net.aserve("adder", Named()):
            assert await net.until(lambda: gate.stats()["exported"], LIMIT)
            assert gate.stats()["exported"] == ["adder"]

    once(main)


def test_a_cancelled_request_stops_beyond_the_border(once):
    """It has no deadline, so nothing else would end it."""
    @clouds
    async def main(all_):
        west, out = await all_.gateway("west", exports=["it"])
        worker = Named()
        async with west.aserve("it", worker):
            east, door = await all_.gateway("east", imports=["it"])
            await east.await_members("it", timeout=LIMIT)
            asked = asyncio.create_task(east.arequest("it", b"hang", timeout=None))
            assert await west.until(lambda: worker.running, LIMIT)
            asked.cancel()
            await asyncio.wait([asked])
            assert await west.until(lambda: not worker.running, LIMIT)
            assert await east.until(lambda: not door.asked.in_flight, LIMIT)
            assert await west.until(lambda: not out.usage["east"].in_flight, LIMIT)
            assert out.usage["east"].failed == 1

    once(main)


def test_accounts_of_clusters_that_are_gone_make_room(once, monkeypatch):
    monkeypatch.setattr(federation, "CLUSTERS", 3)

    @clouds
    async def main(all_):
        west, gate = await all_.gateway("west", exports=["it"])
        async with west.aserve("it", Named()):
            for number in range(6):
                async with cluster.ajoin(all_.federation, seeds=all_.seeds,
                                         version=f"c{number}") as other:
                    await other.await_members("it", timeout=LIMIT)
                    assert await other.arequest("it", b"", timeout=LIMIT) == b"it"
                assert await west.until(
                    lambda: not gate.fed.directory.members, LIMIT)
            assert sorted(gate.usage) == ["c3", "c4", "c5"]
            assert gate.stats()["forgotten"] == 3

    once(main)


def test_names_that_match_no_pattern_cost_little():
    wanted = federation.matcher(["adder", "store.*"])
    assert all(map(wanted, ("adder", "store.", "store.a.b")))
    assert not any(map(wanted, ("adders", "my-adder", "store", "adder\n")))
    assert not federation.matcher([])("x")
