"""Links whose connection is over while something that came over them is still unread, and members
that have two links."""

import threading

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import drain, frames, links, node
from mqcore.cluster.identity import Identity
from mqcore.cluster.key import node_id
from mqcore.testing import until

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0
MESSAGES = 3000         # more than one turn of a loop takes


class Talker:
    """Publishes before it answers."""

    def __init__(self):
        self.net = None
        self.asked, self.go, self.left, self.over = (threading.Event() for _ in range(4))

    def request(self, req):
        self.asked.set()
        if req.body == b"answer":       # the other loop stands still soon
            assert self.go.wait(LIMIT)
        for n in range(MESSAGES):
            self.net.publish("news", b"%d" % n)
        return req.body

    def live(self, key, **who):
        """Join, publish or answer, leave."""
        with cluster.join(key, **who) as self.net, self.net.subscribe("answers"), \
                self.net.serve("work", self):
            assert self.go.wait(LIMIT)
            self.net.drain(None)    # with a time-out it would wait all of it for the other loop
        self.left.set()

    def live_twice(self, key, **who):
        self.live(key, **who)
        with cluster.join(key, **who):
            assert self.over.wait(LIMIT)


@pytest.fixture
def talk(monkeypatch):
    """talk(how, *args): a Talker that lives in a thread. The other loop often stands still while it
    leaves: it waits for that less long than until it takes the other node for dead."""
    monkeypatch.setattr(drain, "STALLED", 0.2)
    begun = []

    def start(method, *args, **options):
        talker = Talker()
        thread = threading.Thread(target=getattr(talker, method), args=args, kwargs=options)
        thread.start()
        begun.append((talker, thread))
        return talker

    yield start
    for talker, thread in begun:
        talker.go.set()
        talker.over.set()
        thread.join(LIMIT)


async def heard_it(net, talker):
    """Have it publish and leave while this loop stands still."""
    await net.await_members("work", timeout=LIMIT)
    assert await net.until(lambda: net.topics.remote.takers("answers"), LIMIT)
    threading.Thread(target=lambda: talker.request(Body) and talker.go.set()).start()
    assert talker.left.wait(LIMIT)


class Body:
    body = b"1"


async def take(feed):
    for n in range(MESSAGES):
        assert (await feed.arecv(timeout=LIMIT)).body == b"%d" % n


def test_a_broken_link_is_not_asked_about_for_each_message(run, key, talk, monkeypatch):
    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news") as feed:
            asked = []
            tables = net.links.socket._links
            is_unread = tables.is_unread
            talker = talk("live", key, seeds=[net.url])
            await heard_it(net, talker)
            until(lambda: net.topics.publish("answers", b"") and net.topics.unsent)
            monkeypatch.setattr(tables, "is_unread",
                                lambda peer: asked.append(peer) or is_unread(peer))
            await take(feed)
            assert await net.until(lambda: not net.links.by_rid, LIMIT)
            assert 0 < len(asked) < MESSAGES / 10
            assert net.links.dropped == {}

    run(main)


def test_a_member_that_counts_as_failed_gets_what_waits_for_it(run, key):
    """It takes nothing meanwhile, and may only be busy."""
    waited = []

    async def publish(other):
        for n in range(MESSAGES):
            assert other.topics.publish("news", b"%d" % n) == 1
        [link] = other.links.by_rid.values()
        waited.append(link.session.waiting)
        other.buried(link.member.record.id, "failed")

    def live(seed):
        with cluster.join(key, seeds=[seed]) as other:
            until(lambda: other.topics.remote.takers("news"))
            other.loop.call(publish, other)

    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news") as feed:
            thread = threading.Thread(target=live, args=(net.url,))
            thread.start()
            assert await net.until(lambda: len(net.members()) > 1, LIMIT)
            while not any(link.member for link in net.links.by_rid.values()):
                await sleep(0.01)
            await net.barrier()         # it knows of the subscription
            thread.join(LIMIT)          # this loop stands still
            await take(feed)
            assert waited[0] > 0

    run(main)


def test_an_answer_reaches_its_caller_though_the_member_is_back(run, key, talk, tmp_path):
    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news"):
            talker = talk("live_twice", key, seeds=[net.url], identity=tmp_path / "identity")
            await net.await_members("work", timeout=LIMIT)
            answers = []

            async def ask():
                answers.append(await net.arequest("work", b"answer", timeout=LIMIT))

            net.loop.spawn(ask)
            # a request that has not come when a node drains is not answered
            assert await net.until(talker.asked.is_set, LIMIT)
            talker.go.set()
            assert talker.left.wait(LIMIT)      # this loop stands still
            assert await net.until(lambda: answers, LIMIT)
            assert answers == [b"answer"]

    run(main)


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_member_behind_a_broken_link_is_not_there(run, key, talk, idempotent):
    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news") as feed:
            talker = talk("live", key, seeds=[net.url])
            await heard_it(net, talker)
            events = net.events()
            until(lambda: net.topics.publish("answers", b"") and net.topics.unsent)
            with pytest.raises(cluster.NoSuchService):
                await net.arequest("work", b"", idempotent=idempotent, timeout=LIMIT)
            with pytest.raises(cluster.NoSuchService):
                await net.atunnel("work", timeout=LIMIT)
            await take(feed)
            assert await net.until(lambda: len(net.members()) == 1, LIMIT)
            assert not any(event.kind == "failed" for event in events._queue)
            counts = net.stats()["requests"]
            assert counts["unserved"] == 1 and not counts["overloaded"] and not counts["pending"]

    run(main)


def test_a_request_whose_only_member_was_lost_says_so(run, key):
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key, seeds=[one.url]) as two:
            talker = Talker()
            talker.request = lambda req: talker.go.wait(LIMIT)
            async with one.aserve("work", talker):
                await two.await_members("work", timeout=LIMIT)
                two.loop.spawn(two.until, lambda: cut(two), LIMIT)
                with pytest.raises(cluster.MemberLost):
                    await two.arequest("work", b"", idempotent=True, timeout=LIMIT)
                talker.go.set()

    run(main)


def cut(net):
    """End the links that carry requests."""
    found = [link for link in net.links.by_rid.values() if link.attempts]
    for link in found:
        net.links.socket._links.end_peer(link.peer)
    return found


@pytest.mark.parametrize("dialed", [False, True])       # by the node that hears
def test_gossip_that_a_member_has_left_loses_nothing_of_what_it_sent(
        run, key, talk, monkeypatch, dialed):
    monkeypatch.setattr(node, "TOLD", 0.0)

    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("news") as feed:
            talker = talk("live", key, seeds=[] if dialed else [net.url])
            while dialed and not net.links.dials:
                if talker.net is not None:
                    net.links.dial(talker.net.url)
                await sleep(0.01)
            await heard_it(net, talker)
            await take(feed)
            assert await net.until(lambda: len(net.members()) == 1, LIMIT)
            assert "dead_link" not in net.links.dropped

    run(main)


@pytest.mark.parametrize("dialed", [False, True])       # by the node that hears
def test_gossip_that_a_member_has_failed_loses_nothing_of_what_had_arrived(run, key, dialed):
    """It was too busy to answer probes."""
    async def main():
        async with cluster.ajoin(key) as one, cluster.ajoin(key) as two:
            net, busy = (two, one) if dialed else (one, two)
            two.links.dial(one.url)
            async with net.asubscribe("news") as feed:
                assert await busy.until(lambda: busy.topics.remote.takers("news"), LIMIT)
                old, = busy.links.by_rid.values()
                for n in range(MESSAGES // 10):
                    await busy.apublish("news", b"%d" % n)
                until(lambda: not busy.links.socket._outstanding())
                member, = (m for m in net.directory.members if m != net.directory.me.record.id)
                net.buried(member, "failed")
                for n in range(MESSAGES // 10):
                    assert (await feed.arecv(timeout=LIMIT)).body == b"%d" % n
                assert net.links.dropped == {}
                # it is alive, and says so
                assert await net.until(lambda: len(net.members()) == 2, LIMIT)
                assert await busy.until(lambda: any(
                    link.member and link is not old for link in busy.links.by_rid.values()), LIMIT)
                await busy.apublish("news", b"again")
                assert (await feed.arecv(timeout=LIMIT)).body == b"again"

    run(main)


# -- two links -------------------------------------------------------------------------------------


def identities(folder):
    """Two files; the first one has the smaller id."""
    found = []
    for name in ("one", "two"):
        identity = Identity.take(folder / name)
        found.append((node_id(identity.static.public_key().public_bytes_raw()), folder / name))
        identity.release()
    return [path for _, path in sorted(found)]


async def it_left(net, events):
    """The only other member is gone, and not as one that failed."""
    assert await net.until(lambda: len(net.members()) == 1, LIMIT)
    seen = []
    while events._queue:
        seen.append((await events.anext()).kind)
    assert "left" in seen and "failed" not in seen


def test_who_leaves_after_having_had_two_links_is_not_taken_for_dead(run, key, talk, tmp_path):
    smaller, larger = identities(tmp_path)

    async def main():
        async with cluster.ajoin(key, identity=larger, udp=False) as net:
            talker = talk("live", key, seeds=[net.url], identity=smaller, udp=False)
            [member] = [one for one in await net.await_members("work", timeout=LIMIT)
                        if not one.me]
            assert await net.until(lambda: net.topics.remote.takers("answers"), LIMIT)
            net.links.dial(member.url)
            assert await net.until(lambda: len(net.links.by_rid) == 2, LIMIT)
            assert await net.until(lambda: len(net.links.by_rid) == 1, LIMIT)
            events = net.events()
            talker.go.set()
            assert talker.left.wait(LIMIT)      # this loop stands still
            until(lambda: net.topics.publish("answers", b"") and net.topics.unsent)
            await it_left(net, events)

    run(main)


def test_who_leaves_as_the_better_of_two_links_breaks_says_so_over_the_other(
        run, key, monkeypatch):
    monkeypatch.setattr(links, "SPARE", LIMIT)

    async def main():
        async with cluster.ajoin(key, udp=False) as net:
            events = net.events()
            leaver = await cluster.ajoin(key, seeds=[net.url], udp=False).__aenter__()
            net.links.dial(leaver.url)
            for one in (net, leaver):
                assert await one.until(lambda one=one: sum(
                    link.greeted for link in one.links.by_rid.values()) == 2, LIMIT)
            [member] = leaver.directory.members.values()
            leaver.links.socket._links.end_peer(member.link.peer)
            await leaver.aclose()
            await it_left(net, events)

    run(main)


def test_a_subscription_that_is_lost_with_one_of_two_links_is_told_over_the_other(
        run, key, tmp_path, monkeypatch):
    monkeypatch.setattr(links, "SPARE", LIMIT)
    smaller, larger = identities(tmp_path)

    async def main():
        async with cluster.ajoin(key, identity=larger) as one, \
                cluster.ajoin(key, identity=smaller, seeds=[one.url]) as two:
            [first] = one.links.by_rid.values()
            one.links.dial(two.url)
            for net in (one, two):
                assert await net.until(lambda net=net: sum(
                    link.greeted for link in net.links.by_rid.values()) == 2, LIMIT)
            two.links.hang_up(two.links.dials[one.url])         # it is not made again
            until(lambda: first.peer not in one.links.socket._links.peers)
            async with two.asubscribe("news"):
                assert await one.until(lambda: one.topics.remote.takers("news"), LIMIT)
                assert one.topics.publish("news", b"") == 1

    run(main)


@pytest.mark.parametrize("late", ["reset", "change"])
def test_subscriptions_told_over_two_links_count_in_the_order_they_were_made(
        run, key, tmp_path, monkeypatch, late):
    """The messages of two links arrive in any order: here what one of them brings is held back."""
    monkeypatch.setattr(links, "SPARE", LIMIT)
    smaller, larger = identities(tmp_path)
    # the first link is used on; or the second one, once both have greeted over it
    mine, other = (larger, smaller) if late == "reset" else (smaller, larger)

    async def main():
        async with cluster.ajoin(key, identity=mine) as one, \
                cluster.ajoin(key, identity=other, seeds=[one.url]) as two:
            assert await one.until(lambda: one.links.by_rid and two.links.by_rid, LIMIT)
            [first] = one.links.by_rid.values()
            assert await one.until(lambda: first.member and first.member.heard, LIMIT)
            held, interest = [], one.handlers[frames.Interest]

            def hold(link, frame):
                if (link is first) is (late == "change"):
                    held.append((link, frame))
                else:
                    interest(link, frame)

            one.handlers[frames.Interest] = hold
            feed = await two.asubscribe("news").__aenter__()
            two.topics.unsubscribe(feed)
            one.links.dial(two.url)
            assert await two.until(lambda: len(two.links.by_rid) == 2 and all(
                link.greeted for link in two.links.by_rid.values()), LIMIT)
            async with two.asubscribe("news"):
                assert await one.until(lambda: one.topics.remote.takers("news"), LIMIT)
                await one.barrier()
                for link, frame in held:
                    if not one.links._is_old(link, frame):
                        interest(link, frame)
                assert one.topics.remote.takers("news")

    run(main)


def test_all_subscriptions_of_a_link_that_is_used_no_more_are_told_late(
        run, key, tmp_path, monkeypatch):
    """Two nodes that connect to each other at once: what was said first comes last."""
    monkeypatch.setattr(links, "SPARE", LIMIT)
    smaller, larger = identities(tmp_path)

    async def main():
        async with cluster.ajoin(key, identity=smaller) as one:
            held, interest = [], one.handlers[frames.Interest]

            def hold(link, frame):
                if held:
                    interest(link, frame)
                else:
                    held.append((link, frame))

            one.handlers[frames.Interest] = hold
            async with cluster.ajoin(key, identity=larger, seeds=[one.url]) as two:
                assert await one.until(lambda: held, LIMIT)
                one.links.dial(two.url)
                [member] = one.directory.members.values()
                assert await one.until(lambda: member.heard, LIMIT)
                interest(*held[0])
                async with two.asubscribe("news"):
                    assert await one.until(lambda: one.topics.remote.takers("news"), LIMIT)
                assert await one.until(lambda: not one.topics.remote.takers("news"), LIMIT)

    run(main)


@pytest.mark.parametrize("last", [False, True])
def test_an_old_process_greets_after_the_new_one(run, key, tmp_path, last):
    """Its link is not used, and what it says again counts for nothing, also if it is the last one
    that is left: that link ends, and a new one is made."""
    smaller, larger = identities(tmp_path)      # so the other node uses its own link

    async def main():
        async with cluster.ajoin(key, identity=larger) as one, \
                cluster.ajoin(key, identity=smaller, seeds=[one.url]) as two:
            assert await one.until(lambda: one.links.by_rid, LIMIT)
            [new] = one.links.by_rid.values()
            assert await one.until(lambda: new.member and new.member.heard, LIMIT)
            member = new.member
            one.links.dial(two.url)
            hello, done = one.links._hello, []

            def late(link, record):
                link.epoch += 1
                hello(link, frames.replace(record, incarnation=record.incarnation - 1))
                done.append(link)

            one.links._hello = late
            assert await one.until(lambda: done, LIMIT)
            one.links._hello = hello
            assert member.link is new and member.epoch == new.epoch
            assert one.links._is_old(done[0], frames.Interest([], [], 1, 0, True))
            if last:
                one.links.lost(new, "the test")
                assert not done[0].alive
                assert await one.until(lambda: member.link and member.link.usable, LIMIT)
            async with two.asubscribe("news"):
                assert await one.until(lambda: one.topics.remote.takers("news"), LIMIT)
                assert await one.apublish("news", b"") == 1

    run(main)
