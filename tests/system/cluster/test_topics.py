"""What nodes send of topics: the changes of links in publications, and subscriptions."""

import asyncio

import pytest

from mqcore import cluster
from mqcore.cluster import frames
from mqcore.cluster.directory import Member
from mqcore.cluster.session import WHOLE
from mqcore.cluster.topics import Topics

LIMIT = 20.0
LARGE = 8_000_000       # bytes: travels in many pieces


class Link:
    """Of a member: notes what is sent."""

    epoch = 1

    def __init__(self, member, epoch=1):
        self.member, self.epoch, self.published, self.sent = member, epoch, 0, []

    def send(self, frame):
        self.sent.append(frame)
        return True

    control = send

    def publish(self, topics):
        """What the next publication says of the one before."""
        topics.seq += 1
        topics._send(self, "t", b"", True, [])
        return self.sent[-1].after


@pytest.fixture
def member():
    return Member(frames.Record(b"1" * 16, "tcp://10.0.0.1:1", 1))


def test_each_change_of_links_names_the_publication_before(member):
    topics, one, two = Topics(None), Link(member), Link(member)
    assert [link.publish(topics) for link in (one, one, two, two, one, one, two)] \
        == [0, 0, 2, 0, 4, 0, 6]


def test_a_new_process_is_told_of_no_publication_to_the_former_one(member):
    topics, old, new = Topics(None), Link(member), Link(member, epoch=2)
    assert [link.publish(topics) for link in (old, old, new, new, Link(member, 2))] \
        == [0, 0, 0, 0, 4]


@pytest.mark.parametrize("character", ["a", "\U0001f600"])
def test_subscriptions_travel_whole(member, character):
    """Whatever their names are: a frame that is cut could be overtaken by the next one."""
    topics, link = Topics(None), Link(member)
    names = [(character * 250 + f"{n:05}", character * 255) for n in range(200)]
    topics._tell_over(link, names, [], reset=True)
    topics._tell_over(link, [], names)
    topics._tell_over(link, names[:64], names[64:128])
    assert all(len(frames.encode(frame)) < WHOLE for frame in link.sent)
    assert [frame.number for frame in link.sent] == list(range(1, len(link.sent) + 1))
    assert [frame.after for frame in link.sent] == list(range(len(link.sent)))
    assert [frame.reset for frame in link.sent] == [True] + [False] * (len(link.sent) - 1)
    assert [one for frame in link.sent for one in frame.add] == names + names[:64]
    assert [one for frame in link.sent for one in frame.drop] == names + names[64:128]


def test_a_reset_without_subscriptions_is_told(member):
    topics, link = Topics(None), Link(member)
    topics._tell_over(link, [], [], reset=True)
    assert [(frame.add, frame.reset) for frame in link.sent] == [([], True)]


def test_long_subscriptions_count_although_others_follow(once, key):
    """While a large body is on its way."""
    class Takes:
        async def request(self, request):
            return b""

    async def main():
        async with cluster.ajoin(key) as net, net.aserve("takes", Takes()), \
                cluster.ajoin(key, seeds=[net.url]) as other:
            await other.await_members("takes", timeout=LIMIT)
            patterns = ["\U0001f600" * 251 + f"{n:03}" for n in range(64)]
            large = asyncio.create_task(other.arequest("takes", bytes(LARGE), timeout=LIMIT))
            await asyncio.sleep(0)
            feeds = other.asubscribe(*patterns), other.asubscribe("plain")
            await asyncio.gather(*(feed.astart() for feed in feeds))
            assert [await net.apublish(topic, b"") for topic in (patterns[0], "plain")] == [1, 1]
            await large
            async with other.asubscribe("later"):
                assert await net.apublish("later", b"") == 1

    once(main)
