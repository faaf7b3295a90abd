"""Tunnels over links that break: nothing is lost or repeated, what is kept has a bound, and waiting
has a limit."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore import cluster
from mqcore.cluster import frames
from mqcore.cluster.checks import said_by
from mqcore.cluster.errors import MalformedFrame
from mqcore.cluster.flow import PIECE, PIECE_COST, WINDOW, Flow

LIMIT = 50.0
BREAKS = 8


class Echo:
    """Tunnels give back what they get. "hold" makes one wait until `go` is set."""

    def __init__(self):
        self.go = False
        self.reasons = []
        self.net = None

    async def tunnel(self, tun):
        try:
            while True:
                message = await tun.arecv()
                if message == b"hold":
                    await self.net.until(lambda: self.go, LIMIT)
                await tun.asend(message)
        except cluster.TunnelClosed as closed:
            self.reasons.append(closed.reason)
            if closed.reason == "eof":
                await tun.asend(b"end")


def break_links(net):
    """As a network does: both connections end without a word of the session."""
    for link in list(net.links.by_rid.values()):
        net.links.socket._links.end_peer(link.peer)


def pair(function, **serving):
    """function(one, two, echo): `one` serves "echo", `two` is linked to it."""
    async def main(key):
        echo = Echo()
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two, \
                one.aserve("echo", echo):
            echo.net = one
            await two.await_members("echo", timeout=LIMIT)
            await function(one, two, echo)

    return main


@pytest.mark.slow
def test_messages_over_links_that_break(run, key):
    """Both ways, of many sizes, on several tunnels, while links break again and again."""
    rng = random.Random(1)

    async def transfer(one, two, echo):
        results, done = {}, []

        async def exchange(number):
            sizes = [rng.choice((0, 1, 100, PIECE, 3 * PIECE + 5)) for _ in range(150)]
            messages = [bytes([number]) + at.to_bytes(2, "big") + bytes(size)
                        for at, size in enumerate(sizes)]

            async def send():
                for message in messages:
                    await tunnel.asend(message, timeout=LIMIT)
                await tunnel.asend_eof()

            async with two.atunnel("echo", timeout=LIMIT, resume=LIMIT) as tunnel:
                two.loop.spawn(send)
                got = [await tunnel.arecv(timeout=LIMIT) for _ in range(len(messages) + 1)]
                results[number] = got == [*messages, b"end"]
            done.append(number)

        for number in range(4):
            two.loop.spawn(exchange, number)
        def had():
            return sum(tunnel._flow.pieces_in for net in (one, two)
                       for tunnel in net.tunnels.open.values())

        broken = 0
        while broken < BREAKS and not done:     # while each tunnel has something to lose
            before = had()
            assert await two.until(lambda before=before: done or had() >= before + 60, LIMIT)
            if not done:
                break_links(rng.choice((one, two)))
                broken += 1
        assert await two.until(lambda: len(done) == 4, LIMIT)
        assert results == dict.fromkeys(range(4), True)
        assert min(net.stats()["tunnels"]["resumed"] for net in (one, two)) >= broken > 0
        for net in (one, two):
            assert await net.until(lambda net=net: not net.tunnels.open, LIMIT)
            assert not net.tunnels.away
        assert echo.reasons == ["eof"] * 4

    run(lambda: pair(transfer)(key))


def test_what_waits_has_a_bound(once, key):
    async def transfer(one, two, echo):
        async with two.atunnel("echo", timeout=LIMIT, resume=LIMIT) as tunnel:
            await tunnel.asend(b"hold")
            with pytest.raises(Exception, match="takes nothing"):
                for _ in range(100):
                    await tunnel.asend(bytes(PIECE), timeout=0.3)
            break_links(two)
            ring = tunnel._flow.ring
            assert 10 < len(ring) and sum(len(frame.body) + PIECE_COST for _, frame in ring) \
                < WINDOW + PIECE + PIECE_COST
            echo.go = True
            assert await tunnel.arecv(timeout=LIMIT) == b"hold"
            assert await tunnel.arecv(timeout=LIMIT) == bytes(PIECE)

    once(lambda: pair(transfer)(key))


def test_waiting_has_a_limit(run, key):
    """The member stays, and no link comes: both ends learn that the tunnel is lost."""
    async def transfer(one, two, echo):
        tunnel = await two.atunnel("echo", timeout=LIMIT, resume=0.3)
        await tunnel.asend(b"x")
        assert await tunnel.arecv(timeout=LIMIT) == b"x"
        for net in (one, two):
            net.tunnels.linked = lambda member: None        # as if there were no link
        break_links(two)
        with pytest.raises(cluster.TunnelClosed, match="no other came within 0.3 s") as caught:
            await tunnel.arecv(timeout=LIMIT)
        assert caught.value.reason == "lost"
        with pytest.raises(cluster.TunnelClosed):
            await tunnel.asend(b"x")
        assert await one.until(lambda: echo.reasons == ["lost"], LIMIT)
        assert not two.tunnels.open and not two.tunnels.away
        assert await one.until(lambda: not one.tunnels.open and not one.tunnels.away, LIMIT)

    run(lambda: pair(transfer)(key))


def test_without_resume(once, key):
    async def transfer(one, two, echo):
        tunnel = await two.atunnel("echo", timeout=LIMIT, resume=0)
        await tunnel.asend(b"x")
        assert await tunnel.arecv(timeout=LIMIT) == b"x" and not tunnel._flow.ring
        break_links(two)
        with pytest.raises(cluster.TunnelClosed) as caught:
            await tunnel.arecv(timeout=LIMIT)
        assert caught.value.reason == "lost"

    once(lambda: pair(transfer)(key))


def test_a_member_that_is_restarted_does_not_know_it(once, key, nodes, tmp_path):
    """It has the same identity, and another process: the tunnel is lost, long before the limit."""
    async def main():
        async with cluster.ajoin(key) as net:
            nodes.urls = [net.url]
            program = await net.loop.in_pool(nodes, "--identity", tmp_path / "identity")
            await net.await_members("work", timeout=LIMIT)
            tunnel = await net.atunnel("work", timeout=LIMIT, resume=300)
            await tunnel.asend(b"x")
            assert await tunnel.arecv(timeout=LIMIT) == b"x"
            program.process.kill()
            await net.loop.in_pool(program.process.wait)
            await net.loop.in_pool(nodes, "--identity", tmp_path / "identity")
            with pytest.raises(cluster.TunnelClosed) as caught:
                await tunnel.arecv(timeout=LIMIT)
            assert caught.value.reason == "lost"

    once(main)


def test_close_waits_until_all_has_arrived(once, key):
    """A link that breaks right after the last message costs nothing."""
    async def transfer(one, two, echo):
        for _ in range(5):
            heard = len(echo.reasons)
            async with two.atunnel("echo", timeout=LIMIT, resume=LIMIT) as tunnel:
                for _ in range(20):
                    await tunnel.asend(bytes(PIECE))
                break_links(one)
            assert tunnel._flow.end_seen
            assert await one.until(lambda heard=heard: len(echo.reasons) > heard, LIMIT)
            await two.await_members("echo", timeout=LIMIT)
        assert set(echo.reasons) <= {"eof", "closed"}

    once(lambda: pair(transfer)(key))


@pytest.mark.parametrize("wrong", [-1, 301, "x", True, None])
def test_limits_that_cannot_be(once, key, wrong):
    async def main():
        async with cluster.ajoin(key) as net:
            with pytest.raises(TypeError, match="resume=|time-out"):
                net.atunnel("echo", resume=wrong)

    once(main)


# -- without I/O -----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 900), max_size=60), st.randoms())
def test_any_break_loses_and_repeats_nothing(sizes, rng):
    """Pieces and credit are lost from any point on, each way, any number of times."""
    out, back = Flow(3000), Flow(3000)
    out.credit = back.window
    todo = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    there, here, got = [], [], []       # on their way: pieces, credit
    idle = 0
    while idle < 3:
        idle += 1
        if todo and out.spend(len(todo[0])):
            out.keep(todo[0])
            there.append(todo.pop(0))
            idle = 0
        for _ in range(rng.randrange(4)):
            if there:
                back.data(there.pop(0), True)
                idle = 0
            if back.messages:
                got.append(back.take())
                idle = 0
            if granted := back.grant():
                here.append(granted)
            if here:
                out.credited(here.pop(0))
                idle = 0
        assert sum(len(piece) + PIECE_COST for _, piece in out.ring) <= 3000 + 900 + PIECE_COST
        if rng.random() < 0.2:
            out.resumed(back.pieces_in, back.returned)
            there, here = [piece for _, piece in out.ring], []
        if there or here or back.messages:
            idle = 0
    assert got == [bytes([at % 256]) * size for at, size in enumerate(sizes)]


@pytest.mark.parametrize(("pieces", "returned"), [(4, 0), (-1, 0), (3, 10_000), (0, 300), (2, -1)])
def test_numbers_that_cannot_be(pieces, returned):
    flow = Flow(1000)
    flow.credit = 1000
    for _ in range(3):
        assert flow.spend(100)
        flow.keep(frames.Data(1, True, bytes(100), True))
    with pytest.raises(MalformedFrame):
        flow.resumed(pieces, returned)


@pytest.mark.parametrize("how", ["eof", "closed", "\udcff" + 1000 * "r"],
                         ids=["eof", "closed", "long"])
def test_a_link_that_breaks_as_a_tunnel_ends(run, key, how):
    """The opener knows that it is over, and the other side has not heard of it: that side asks as
    soon as there is another link, and does not wait for `resume`."""
    async def transfer(one, two, echo):
        tunnel = await two.atunnel("echo", timeout=LIMIT, resume=300)
        await tunnel.asend(b"x")
        assert await tunnel.arecv(timeout=LIMIT) == b"x"
        link = one.links.of(next(iter(one.directory.members.values())))[0]
        there = next(iter(one.tunnels.open.values()))
        lost = []

        def receive(data):      # the last word of the opener is lost with the link
            frame = type(link.session).receive(link.session, data)
            word = frames.Seen if how == "eof" else frames.Reset
            return lost.append(frame) if isinstance(frame, word) else frame

        link.session.receive = receive
        if how == "eof":
            await tunnel.asend_eof()
            assert await tunnel.arecv(timeout=LIMIT) == b"end"
            assert await two.until(lambda: tunnel.closed, LIMIT)
        else:
            tunnel.reset(how, "enough")
        assert await one.until(lambda: lost, LIMIT)
        assert not there.closed
        break_links(two)
        assert await one.until(lambda: there.closed, LIMIT)
        assert await one.until(lambda: echo.reasons, LIMIT)
        assert echo.reasons == [said_by(how)[:frames.NAME]]
        assert not one.tunnels.open and not one.tunnels.away and not two.tunnels.open
        assert await one.adrain(LIMIT)

    run(lambda: pair(transfer)(key))
