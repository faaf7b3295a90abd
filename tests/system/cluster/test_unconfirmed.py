"""Messages that nobody answers, when a link ends or a node leaves: they have arrived, or count."""

import asyncio

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import drain, frames, session
from mqcore.testing import SlowLink

LIMIT = 50.0
NOWHERE = "tcp://127.0.0.1:1"     # where nothing listens


def publishing(function):
    """function(net, link, feed, slow): `net` has 500 messages under way to the feed over a link
    on which nothing moves."""
    async def main(key):
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as taker, \
                taker.asubscribe("t") as feed:
            with SlowLink(taker.links.urls[0]) as slow:
                async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=[slow.url]) as net:
                    assert await net.until(lambda: net.topics.remote.takers("t"), LIMIT)
                    [member] = net.directory.members.values()
                    slow.stall()
                    for number in range(500):
                        assert await net.apublish("t", bytes(300 if number % 10 else 70_000)) == 1
                    await function(net, member.link, feed, slow)

    return main


@pytest.mark.parametrize("drains", [False, True])
def test_what_a_node_has_published_and_nobody_has_read_is_counted(once, key, monkeypatch, drains):
    """The other side takes nothing for longer than a node that leaves waits."""
    monkeypatch.setattr(drain, "STALLED", 0.2)

    async def use(net, link, feed, slow):
        if drains:
            assert await net.adrain(1.5) is False
        else:
            await net.aclose()
        counted = net.stats()["dropped"]
        assert counted["unconfirmed"] > 0 and feed.received == 0
        assert 500 <= counted["unconfirmed"] + counted.get("unsent", 0)

    once(lambda: publishing(use)(key))


@pytest.mark.parametrize("arrives", [False, True])
def test_what_a_broken_link_has_not_carried_is_counted(once, key, arrives):
    async def use(net, link, feed, slow):
        if arrives:
            slow.go()
            assert await net.until(lambda: not link.session.waiting, LIMIT)
            assert await net.until(lambda: not link.session.window.news, LIMIT)
            assert feed.received == 500
        slow.cut()
        assert await net.until(lambda: link.member is None, LIMIT)
        dropped = net.links.dropped
        assert dropped == {} if arrives else dropped["unconfirmed"] + dropped["unsent"] == 500

    once(lambda: publishing(use)(key))


@pytest.mark.parametrize("size", [70_000, 3_000_000])
def test_a_large_publication_that_a_broken_link_has_carried_in_part(once, key, size):
    async def main():
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as taker, \
                taker.asubscribe("t") as feed:
            with SlowLink(taker.links.urls[0]) as slow:
                async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=[slow.url]) as net:
                    assert await net.until(lambda: net.topics.remote.takers("t"), LIMIT)
                    slow.stall()
                    assert await net.apublish("t", bytes(size)) == 1
                    draining = asyncio.ensure_future(net.adrain(LIMIT))
                    assert await taker.until(lambda: net.draining, LIMIT)
                    slow.shut()
                    assert await draining is False
                    assert feed.received == 0 and sum(net.links.dropped.values()) == 1

    once(main)


def test_a_drain_takes_no_longer_than_it_may(once, key, monkeypatch):
    monkeypatch.setattr(drain, "STALLED", 1e9)
    monkeypatch.setattr(drain, "LONGEST", 0.1)

    async def main():
        async with cluster.ajoin(key, udp=False) as taker, taker.asubscribe("t"):
            async with cluster.ajoin(key, udp=False, seeds=[taker.url]) as net:
                assert await net.until(lambda: net.topics.remote.takers("t"), LIMIT)
                taker.handlers[frames.Ping] = lambda link, frame: None
                assert await net.apublish("t", b"1") == 1
                assert await net.adrain(0.1) is False

    once(main)


def test_a_drain_waits_for_a_busy_member_as_long_as_it_may(once, key, monkeypatch):
    """Which takes nothing for longer than a node that leaves waits."""
    monkeypatch.setattr(drain, "STALLED", 0.1)

    async def main():
        async with cluster.ajoin(key, udp=False) as taker, taker.asubscribe("t") as feed:
            async with cluster.ajoin(key, udp=False, seeds=[taker.url]) as net:
                assert await net.until(lambda: net.topics.remote.takers("t"), LIMIT)
                answer, pings = taker.handlers[frames.Ping], []
                taker.handlers[frames.Ping] = lambda link, frame: pings.append((link, frame))
                assert await net.apublish("t", b"1") == 1
                [link] = [link for link in net.links.by_rid.values() if link.member]
                draining = asyncio.ensure_future(net.adrain(LIMIT))
                assert await taker.until(lambda: link.stalled >= 0, LIMIT)
                await asyncio.sleep(0)
                assert not net.closed and pings
                taker.handlers[frames.Ping] = answer
                for link, frame in pings:
                    answer(link, frame)
                assert await draining is True and feed.received == 1

    once(main)


def test_a_link_that_moves_is_waited_for_although_another_one_does_not(once, key, monkeypatch):
    monkeypatch.setattr(drain, "STALLED", 0.3)

    async def main():
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as well, well.asubscribe("t"), \
                cluster.ajoin(key, udp=False, url=NOWHERE) as stuck, stuck.asubscribe("t"):
            with SlowLink(stuck.links.urls[0]) as slow:
                seeds = [well.links.urls[0], slow.url]
                async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=seeds) as net:
                    assert await net.until(lambda: len(net.topics.remote.takers("t")) == 2, LIMIT)
                    links = {member.id: member.link for member in net.members()}
                    links = [links[well.id], links[stuck.id]]
                    slow.stall()
                    assert await net.apublish("t", b"1") == 2
                    assert not await drain._heard(net, links, LIMIT)
                    monkeypatch.setattr(drain, "STALLED", LIMIT)
                    assert await net.apublish("t", b"2") == 2
                    assert not await drain._heard(net, links, LIMIT)    # not for the stuck one
                    news = [link.session.window.news for link in links]
                    assert news == [0, 2] and await drain._heard(net, links[:1], LIMIT)
                    monkeypatch.setattr(drain, "LONGEST", 0.1)

    once(main)


def test_what_has_arrived_is_asked_before_a_spare_link_ends(once, key):
    async def main():
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as net:
            seeds = [net.links.urls[0]]
            async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=seeds) as taker, \
                    taker.asubscribe("t"):
                assert await net.until(lambda: net.topics.remote.takers("t"), LIMIT)
                [member] = net.directory.members.values()
                link = member.link
                assert await net.apublish("t", b"1") == 1 and not net.links.pings
                member.link = None      # another one is used
                net.links.spare(link, frames.Spare())
                member.link = link
                assert net.links.pings
                assert await net.until(lambda: not link.session.window.news, LIMIT)

    once(main)


@pytest.mark.parametrize("size", [20_000, 100_000])
def test_tasks_of_the_node_go_on_publishing(once, key, monkeypatch, size):
    """There is always something that waits for the link."""
    monkeypatch.setattr(session, "BACKLOG", 1 << 20)

    async def main():
        async with cluster.ajoin(key, udp=False, url=NOWHERE) as taker, taker.asubscribe("t"):
            with SlowLink(taker.links.urls[0], rate=3e6) as slow:
                async with cluster.ajoin(key, udp=False, url=NOWHERE, seeds=[slow.url]) as net:
                    assert await net.until(lambda: net.topics.remote.takers("t"), LIMIT)

                    async def publish():
                        with pytest.raises(cluster.NodeClosed):
                            while True:
                                await net.apublish("t", bytes(size))
                                await asyncio.sleep(0.001)

                    publishing = asyncio.ensure_future(publish())
                    assert await net.until(lambda: net.topics.unsent, LIMIT)
                    await net.adrain(None)
                    await publishing

    once(main)


class Taking:
    """A link: what waits for the other side, and what that has taken."""

    def __init__(self):
        self.session = self.window = self
        self.waiting, self.taken, self.hurried = 100, 0, 0

    def hurry(self):
        self.hurried += 1


def test_only_a_link_whose_other_side_takes_nothing_is_hurried():
    moves, stuck = Taking(), Taking()
    patience = drain.Patience([moves, stuck])
    for tenth in range(11):
        moves.taken += 1
        moves.waiting += 100    # more is given to it than it takes
        assert not stuck.hurried
        patience.look(tenth * drain.FLUSH / 10)
    assert (moves.hurried, stuck.hurried) == (0, 1)


def test_patience_begins_anew_when_something_waits_again():
    link = Taking()
    patience = drain.Patience([link])
    for now, waiting, hurried in ((0, 1, 0), (0.9, 1, 0), (1.8, 0, 0), (5, 0, 0), (6, 1, 0),
                                  (6.9, 1, 0), (7, 1, 1)):
        link.waiting = waiting
        if now == 1.8:
            link.taken += 1
        patience.look(now * drain.FLUSH)
        assert link.hurried == hurried


class Slow:
    async def broadcast(self, msg):
        await sleep(LIMIT)


def balanced(net, service, waiting):
    """All broadcasts are accounted for, and the survey among those that waited."""
    accounts = service.broadcasts.accounts()
    assert accounts == {"offered": waiting + 2, "running": 0, "waiting": 0, "done": 1, "refused": 0,
                        "expired": 0, "cancelled": waiting + 1}
    assert net.stats()["dropped"]["unheard"] == waiting and not service.busy


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("how", ["aclose", "adrain"])
def test_broadcasts_that_wait_when_their_node_leaves_are_counted(run, key, how, stopped):
    async def main():
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=net.url) as other:
            service = await net.aserve("it", Slow(), concurrency=1).astart()
            await other.await_members("it", timeout=LIMIT)
            for _ in range(5):
                assert await other.abroadcast("it", b"x") == 1
            survey = other.asurvey("it", b"x", deadline=LIMIT)
            other.loop.spawn(survey.anext)
            assert await net.until(lambda: service.busy == 6, LIMIT)
            if stopped:
                assert not await service.astop(0)
            await (net.aclose() if how == "aclose" else net.adrain(0.1))
            balanced(net, service, 4)
            assert await other.until(lambda: survey.silent == 1, LIMIT)

    run(main)


def test_broadcasts_that_wait_when_a_blocking_node_leaves_are_counted(key):
    with cluster.join(key) as net:
        service = net.serve("it", Slow(), concurrency=1).start()
        for _ in range(5):
            assert net.broadcast("it", b"x") == 1
        net.loop.call(lambda: net.asurvey("it", b"x", deadline=0).anext())
        net.loop.call(lambda: net.until(lambda: service.busy == 6, LIMIT))
    balanced(net, service, 4)
