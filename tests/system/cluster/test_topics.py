"""What nodes send of topics: the changes of links in publications, and subscriptions."""

import pytest

from mqcore.cluster import frames
from mqcore.cluster.directory import Member
from mqcore.cluster.topics import Topics


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
