"""The order of publications: behind a large one, and over two links of their publisher."""

import threading
import weakref

import pytest

from mqcore import cluster
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames, session, turns
from mqcore.cluster.directory import Member
from mqcore.testing import until

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0
MESSAGES = 10_000       # more than the receiver's socket holds
LARGE = 3_000_000       # bytes: takes several messages


def record(number):
    return frames.Record(bytes([number]) * 16, f"tcp://10.0.0.{number}:1", 1)



def test_a_node_that_leaves_has_sent_its_large_publications(run, key):
    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("t") as feed:
            async with cluster.ajoin(key, seeds=[net.url]) as other:
                assert await other.until(lambda: other.topics.remote.takers("t"), LIMIT)
                for size in (LARGE, 5, LARGE):
                    await other.apublish("t", bytes(size))
            got = [len((await feed.arecv(timeout=LIMIT)).body) for _ in range(3)]
            assert got == [LARGE, 5, LARGE]
            assert other.links.dropped == {}

    run(main)


# -- two links -------------------------------------------------------------------------------------


class Link:
    def __init__(self, member, epoch=1):
        self.member, self.epoch = member, epoch


@pytest.fixture
def there():
    """What has been delivered, the links, and the Turns between. tick(): the clock's next tick."""
    class There:
        got, links, timers = [], [], []
        turns = turns.Turns(lambda member, frame: There.got.append(frame.seq), lambda: There.links,
                            lambda seconds, function: There.timers.append(function))

        def tick(self):
            if self.timers:
                self.timers.pop()()
            assert len(self.timers) <= 1

        def link(self, **how):
            self.links.append(Link(how.pop("member", Member(record(1))), **how))
            return self.links[-1]

        def take(self, link, *numbers, after=0, size=1):
            for number in numbers:
                self.turns.received(link, frames.Publish(number, "t", bytes(size), after=after))
                after = 0

        def over(self, link):
            self.turns.over(link)
            self.links.remove(link)

    There.got, There.links, There.timers = [], [], []
    return There()


def test_what_is_unread_of_the_former_link_comes_first(there):
    old, new = there.link(), there.link()
    there.take(old, 1, 2)
    there.take(new, 6, 7, after=5)
    there.take(old, 3)
    there.take(new, 8)
    assert there.got == [1, 2, 3]
    there.take(old, 5)
    assert there.got == [1, 2, 3, 5, 6, 7, 8] and not there.turns._held
    there.take(new, 9)
    assert there.got[-1] == 9 and there.turns.rising.dropped == 0


def test_what_the_former_link_did_not_carry_is_not_waited_for(there):
    old, new = there.link(), there.link()
    there.take(old, 1)
    there.take(new, 6, 7, after=5)
    there.over(old)
    assert there.got == [1, 6, 7]
    third = there.link()
    there.take(third, 8, after=7)
    assert there.got[-1] == 8


def test_a_link_that_ends_while_its_messages_wait(there):
    """They are not lost, and a third link waits for them, too."""
    old, new, third = there.link(), there.link(), there.link()
    there.take(new, 6, 7, after=5)
    there.over(new)
    there.take(third, 9, after=8)
    there.take(old, 4)
    assert there.got == [4]
    there.over(old)
    assert there.got == [4, 6, 7, 9] and not there.turns._held


def test_other_publishers_and_processes_are_not_waited_for(there):
    other, before = there.link(member=Member(record(2))), there.link(epoch=2)
    new = there.link()
    there.take(new, 6, after=5)
    there.take(other, 1)
    there.take(before, 100)
    assert there.got == [6, 1, 100]


def test_what_waits_is_bounded(there):
    old, new = there.link(), there.link()
    there.take(new, 6, after=5)
    there.take(new, *range(7, 700), size=30_000)
    assert there.got == list(range(6, 700)) and not there.turns._held
    there.take(old, 5)
    assert there.turns.rising.dropped == 1


@pytest.mark.parametrize("first", ["second", "third"])
def test_three_links(there, first):
    """1 to 5 over the first link, 6 and 7 over the second one, 8 and 9 over the third one."""
    one, two, three = there.link(), there.link(), there.link()
    there.take(one, 1)
    parts = [(two, (6, 7), 5), (three, (8, 9), 7)]
    for link, numbers, after in parts if first == "second" else parts[::-1]:
        there.take(link, *numbers, after=after)
    assert there.got == [1]
    there.take(one, 2, 3, 4, 5)
    assert there.got == list(range(1, 10)) and not there.turns._held
    there.take(three, 10)
    assert there.got[-1] == 10 and there.turns.rising.dropped == 0


def test_the_lowest_number_goes_first_when_the_former_link_ends(there):
    one, two, three = there.link(), there.link(), there.link()
    there.take(one, 1)
    there.take(three, 8, 9, after=7)
    there.take(two, 6, 7, after=5)
    there.over(one)
    assert there.got == [1, 6, 7, 8, 9] and there.turns.rising.dropped == 0


def test_a_publisher_returns_to_a_former_link(there):
    """1 to 3 over the first link, 4 to 6 over the second one, 7 over the first one."""
    one, two = there.link(), there.link()
    there.take(two, 4, after=3)
    there.take(one, 1, 2, 3)
    there.take(one, 7, after=6)
    there.take(one, 8)
    assert there.got == [1, 2, 3, 4]
    there.take(two, 5)
    there.take(two, 6)
    assert there.got == list(range(1, 9)) and not there.turns._held


def test_a_change_in_the_middle_of_what_waits(there):
    """The second link has 4 and 8, the first one 1 to 3 and 5 to 7."""
    one, two = there.link(), there.link()
    there.take(two, 4, after=3)
    there.take(two, 8, after=7)
    there.take(one, 1, 2, 3)
    assert there.got == [1, 2, 3, 4]
    there.take(one, 5, 6, 7, after=4)
    assert there.got == list(range(1, 9)) and not there.turns._held
    assert not there.turns._bytes


def test_links_that_are_over_share_one_bound(there):
    """And the links themselves are not kept."""
    there.link()
    links = []
    for number in range(12):
        link = there.link()
        there.take(link, *range(100 * number + 1, 100 * number + 100), after=1 << 50, size=100_000)
        there.over(link)
        links.append(weakref.ref(link))
        assert sum(there.turns._bytes.values()) <= turns.HELD
    del link
    assert not any(link() for link in links)
    assert there.got == [n for number in range(11) for n in range(100 * number + 1,
                                                                  100 * number + 100)]


def test_the_processes_of_a_member_share_one_bound(there):
    member = Member(record(1))
    for epoch in range(1, 6):
        there.link(member=member, epoch=epoch)
        there.take(there.link(member=member, epoch=epoch), *range(2, 80), after=1, size=100_000)
        assert sum(there.turns._bytes.values()) <= turns.HELD
    assert there.got[:78] == list(range(2, 80))


def test_every_part_of_a_message_is_counted(there):
    there.link()
    new = there.link()
    groups = tuple(f"{i}" * 120 for i in range(10, 70))
    there.turns.received(new, frames.Publish(6, "t", b"", groups=groups, after=5))
    assert sum(there.turns._bytes.values()) > sum(map(len, groups))


def test_links_that_wait_are_bounded(there):
    there.link()
    for number in range(1000):
        link = there.link()
        there.take(link, number + 6, after=1 << 50)
        there.over(link)
    assert len(there.turns._held[bytes([1]) * 16, 1].queues) <= turns.HELD // turns.QUEUE
    assert there.got[:700] == list(range(6, 706)) and there.turns.rising.dropped == 0


def test_what_never_comes_is_not_waited_for_as_long_as_a_link_lives(there):
    old, new = there.link(), there.link()
    there.take(old, 1)
    there.take(new, 6, 7, after=5)
    for _ in range(turns.CALM - 1):
        there.tick()
    there.take(old, 2)      # the former link is being read: wait on
    for _ in range(turns.CALM):
        there.tick()
    assert there.got == [1, 2]
    for _ in range(turns.CALM + 2):
        there.tick()
    assert there.got == [1, 2, 6, 7] and not there.turns._held and not there.timers
    there.take(old, 3)      # too late
    assert there.turns.rising.dropped == 1
    there.take(old, 9, after=8)
    assert there.timers


async def publish_all(net, numbers):
    for n in numbers:
        net.topics.publish("t", b"%d" % n)


@pytest.mark.parametrize("how", ["broken", "buried"])
def test_a_publisher_that_comes_back_over_another_link_keeps_its_order(run, key, how, monkeypatch):
    """While much of what it had sent over the first one is unread."""
    monkeypatch.setattr(session, "AHEAD", 1 << 30)      # all goes to the socket

    async def main():
        async with cluster.ajoin(key) as net, net.asubscribe("t", queue_bytes=1 << 30) as feed:
            told, ends = threading.Event(), threading.Event()

            def publish():
                with cluster.join(key, seeds=[net.url]) as other:
                    until(lambda: other.topics.remote.takers("t"))
                    other.loop.call(publish_all, other, range(MESSAGES))
                    until(lambda: not any(link.unsent for link in other.links.by_rid.values())
                          and not other.links.socket._outstanding())
                    first = other.links.by_peer.copy()
                    told.set()
                    until(lambda: any(link.member and link.member.link is link
                                      for peer, link in other.links.by_peer.copy().items()
                                      if peer not in first))
                    other.loop.call(publish_all, other, range(MESSAGES, MESSAGES + 100))
                    assert ends.wait(LIMIT)

            publisher = threading.Thread(target=publish)
            publisher.start()
            while not net.links.by_peer:
                await sleep(0.01)
            assert await net.until(lambda: feed.received, LIMIT)
            assert told.wait(LIMIT)         # the loop stands still
            link, = net.links.by_rid.values()
            if how == "buried":
                net.buried(link.member.record.id, "failed")
            else:
                net.links.socket._links.end_peer(link.peer, leave=True)
            try:
                got = [int((await feed.arecv(timeout=LIMIT)).body)
                       for _ in range(MESSAGES + 100)]
            finally:
                ends.set()
            assert got == list(range(MESSAGES + 100))
            assert net.stats()["topics"]["repeated"] == 0 and net.links.dropped == {}
            publisher.join(LIMIT)

    run(main)
