"""Answers that wait for a full link, and what a node that drains has still to send."""

import asyncio

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster.link import UNSENT
from mqcore.cluster.links import DIALS
from mqcore.cluster.replies import MOST, SMALL, Replies
from mqcore.cluster.session import SHORT
from mqcore.testing import SlowLink

LIMIT = 50.0


class Wire:
    """Takes what it has room for."""

    def __init__(self):
        self.sent, self.asked, self.small, self.large = [], [], 0, 0

    def send(self, data):
        self.asked.append(data)
        large = len(data) > SHORT
        room = self.large if large else self.small
        if room <= 0:
            return False
        if large:
            self.large -= 1
        else:
            self.small -= 1
        self.sent.append(data)
        return True


def test_small_answers_do_not_wait_for_large_ones():
    wire = Wire()
    replies = Replies(wire.send)
    large = [bytes([n]) * (SHORT + 1) for n in range(3)]
    wire.small = 2
    for data in (large[0], b"a", large[1], b"b", b"c", large[2]):
        replies.add(data)
    assert wire.sent == [b"a", b"b"] and len(replies) == 4
    assert replies.bytes == 3 * (SHORT + 1) + 1 + 4 * SMALL
    wire.large = 2
    wire.small = 1
    replies.go_on()
    assert wire.sent == [b"a", b"b", b"c", *large[:2]]
    assert len(replies) == 1 and replies.bytes == SHORT + 1 + SMALL
    assert replies.give_up() == 1 and not replies and replies.bytes == 0


def test_what_waits_is_encoded_once():
    wire = Wire()
    replies = Replies(wire.send)
    replies.add(b"x" * (SHORT + 1))
    for _ in range(5):
        replies.go_on()
    assert len(wire.asked) == 6 and len({id(data) for data in wire.asked}) == 1


def test_the_first_large_one_does_not_count():
    wire = Wire()
    replies = Replies(wire.send)
    replies.add(bytes(MOST + 1))
    assert not replies.many
    replies.add(bytes(MOST - 1000))
    assert not replies.many
    replies.add(bytes(2000))
    assert replies.many


class Slow:
    """One request at a time, held back until it is let go."""

    def __init__(self):
        self.runs = 0
        self.go = asyncio.Event()

    async def request(self, req):
        self.runs += 1
        await self.go.wait()
        return bytes(int(req.body))

    async def broadcast(self, message):
        self.runs += 1
        await self.go.wait()
        return b"heard"


def test_what_waits_at_the_gate_does_not_run_for_who_takes_nothing(once, key):
    async def main():
        handler = Slow()
        async with cluster.ajoin(key) as server, \
                cluster.ajoin(key, seeds=[server.url]) as client:
            async with server.aserve("it", handler, concurrency=1):
                await client.await_members("it", timeout=LIMIT)
                link = next(iter(server.directory.members.values())).link
                asked = [asyncio.ensure_future(client.arequest(
                    "it", b"1", timeout=LIMIT, idempotent=False)) for _ in range(5)]
                assert await server.until(lambda: server.services["it"].requests.load == 5, LIMIT)
                surveyed = [asyncio.ensure_future(survey(client)) for _ in range(3)]
                assert await server.until(lambda: server.services["it"].broadcasts.load == 3, LIMIT)
                link.answers.bytes += 2 * MOST       # as if so many waited
                handler.go.set()
                found = await asyncio.gather(*asked, return_exceptions=True)
                assert found[0] == b"\0"
                assert all(isinstance(one, cluster.Overloaded) for one in found[1:])
                assert sorted(await asyncio.gather(*surveyed)) == [[], [], [b"heard"]]
                assert handler.runs == 2
                counts = server.services["it"].requests.accounts()
                assert counts["refused"] >= 4 and counts["offered"] == sum(
                    counts[name] for name in counts if name != "offered")
                link.answers.bytes -= 2 * MOST
                assert await client.arequest("it", b"2", timeout=LIMIT) == bytes(2)

    async def survey(client):
        return [reply.body async for reply in client.asurvey("it", b"", deadline=LIMIT)]

    once(main)


@pytest.mark.parametrize("frees", [True, False])
def test_a_node_that_drains_waits_until_answers_have_arrived(once, key, frees):
    async def main():
        async with cluster.ajoin(key) as client:
            server = await cluster.ajoin(key, seeds=[client.url]).__aenter__()
            handler = Slow()
            handler.go.set()
            async with server.aserve("it", handler):
                await client.await_members("it", timeout=LIMIT)
                link = next(iter(server.directory.members.values())).link
                link.unsent_bytes += UNSENT + 1      # as if the socket were full
                asked = asyncio.ensure_future(client.arequest("it", b"300000", timeout=LIMIT))
                assert await server.until(lambda: link.answers, LIMIT)
                draining = asyncio.ensure_future(server.adrain(LIMIT if frees else 0.3))
                if frees:
                    await sleep(0.05)
                    assert not draining.done()
                    link.unsent_bytes -= UNSENT + 1
                    link.answers.go_on()
                    assert await draining is True
                    assert await asked == bytes(300_000)
                else:
                    assert await draining is False
                    with pytest.raises(cluster.MemberLost):
                        await asked

    once(main)


def test_a_cancel_before_any_part_has_come_is_remembered(once, key):
    async def main():
        handler = Slow()
        handler.go.set()
        async with cluster.ajoin(key) as server, \
                cluster.ajoin(key, seeds=[server.url]) as client:
            async with server.aserve("it", handler):
                await client.await_members("it", timeout=LIMIT)
                link = next(iter(client.directory.members.values())).link
                link.session.window.unacked += 1 << 30     # as if its window were closed
                with pytest.raises(cluster.RequestTimeout):
                    await client.arequest("it", b"1".rjust(500_000), timeout=0.05)
                link.session.window.unacked -= 1 << 30
                link.session.sources.feed()
                assert await client.arequest("it", b"2", timeout=LIMIT) == bytes(2)
                assert await server.until(lambda: not next(iter(
                    server.directory.members.values())).link.session.assembles, LIMIT)
                assert await client.arequest("it", b"3", timeout=LIMIT) == bytes(3)
                assert handler.runs == 2

    once(main)


def test_a_record_with_any_interface(once, key):
    async def main():
        async with cluster.ajoin(key, url="tcp://*:7400", udp=False) as net:
            assert net.url.endswith(":7400") and "*" not in net.url

    once(main)


def test_addresses_that_nobody_has_are_tried_a_few_at_a_time(once, key):
    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            net.links._dialing = DIALS
            async with cluster.ajoin(key, seeds=[net.url], udp=False):
                assert await net.until(lambda: len(net.directory.members) == 1, LIMIT)
                member = next(iter(net.directory.members.values()))
                net.links._dialing = DIALS
                before = dict(net.links.dials)
                net.links.reach(member)
                assert net.links.dials == before
                net.links._tick_dials()
                net.links.reach(member)
                assert member.url in net.links.dials

    once(main)


# -- links that break while a node drains ----------------------------------------------------------


def draining(function):
    """function(server, client, slow, handler, ask): the client reaches the server over a link that
    can be cut. Returns what adrain() should."""
    async def main(key):
        handler = Slow()
        server = await cluster.ajoin(key, udp=False).__aenter__()
        async with server.aserve("it", handler), cluster.ajoin(key, udp=False) as witness:
            with SlowLink(server.url) as slow:
                client = await cluster.ajoin(key, udp=False, seeds=[slow.url]).__aenter__()
                await client.await_members("it", timeout=LIMIT)

                def ask(size, net=client):
                    return asyncio.ensure_future(net.arequest("it", b"%d" % size, timeout=LIMIT,
                                                              idempotent=False))

                await function(server, client, slow, handler, ask)
                await client.aclose()
            assert witness.url

    return main


@pytest.mark.parametrize("size", [1, 5_000_000])
def test_an_answer_under_way_on_a_link_that_breaks_has_not_arrived(once, key, size):
    """The socket has taken it, or its first parts."""
    @draining
    async def main(server, client, slow, handler, ask):
        asked = ask(size)
        assert await server.until(lambda: handler.runs == 1, LIMIT)
        draining = asyncio.ensure_future(server.adrain(LIMIT))
        await sleep(0.05)
        slow.stall()
        handler.go.set()
        assert await server.until(lambda: not server.services["it"].busy, LIMIT)
        await sleep(0.1)
        assert not draining.done()
        slow.cut()
        assert await draining is False
        slow.shut()
        with pytest.raises(cluster.ClusterError):
            await asked

    once(lambda: main(key))


def test_a_request_whose_link_breaks_is_not_finished(once, key):
    @draining
    async def main(server, client, slow, handler, ask):
        asked = ask(1)
        assert await server.until(lambda: handler.runs == 1, LIMIT)
        draining = asyncio.ensure_future(server.adrain(LIMIT))
        await sleep(0.05)
        slow.shut()
        slow.cut()
        assert await server.until(lambda: server.links.broke_off, LIMIT)
        handler.go.set()
        assert await draining is False
        with pytest.raises(cluster.ClusterError):
            await asked

    once(lambda: main(key))


@pytest.mark.parametrize("how", ["leaves", "breaks"])
def test_answers_that_have_arrived_are_not_under_way(once, key, how):
    """A requester that has its answer, or wants none, is free to go."""
    @draining
    async def main(server, client, slow, handler, ask):
        handler.go.set()
        for size in (1, 300_000):
            assert await ask(size) == bytes(size)
        handler.go.clear()
        async with cluster.ajoin(key, udp=False, seeds=[server.url]) as other:
            await other.await_members("it", timeout=LIMIT)
            asked = ask(2, other)
            assert await server.until(lambda: handler.runs == 3, LIMIT)
            unwanted = ask(1) if how == "leaves" else None
            draining = asyncio.ensure_future(server.adrain(LIMIT))
            await sleep(0.2)
            if how == "leaves":
                await client.aclose()
                with pytest.raises(cluster.ClusterError):
                    await unwanted
            else:
                slow.shut()
                slow.cut()
            await sleep(0.2)
            handler.go.set()
            assert await asked == bytes(2)
            assert await draining is True

    once(lambda: main(key))
