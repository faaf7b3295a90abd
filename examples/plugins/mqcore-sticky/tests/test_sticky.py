"""Tests particular to sticky: which peer has a key, and that peers keep their keys."""

import pytest

import mqcore as mq
from mqcore.testing import PatternSuite

KEYS = [b"key %d" % i for i in range(200)]


@pytest.fixture
def ctx():
    with mq.Context(linger=0) as context:
        yield context


def pulls(ctx, n):
    return [ctx.socket("pull", bind=f"inproc://{i}", routing_id=b"pull %d" % i) for i in range(n)]


def owners(out, pulls):
    """Which pull gets each key, by sending it."""
    found = {}
    for key in KEYS:
        out.send_parts([key, b"body"], timeout=5)
        [(at, _)] = mq.poll(pulls, timeout=5)
        assert at.recv_parts(timeout=0) == [key, b"body"]
        found[key] = pulls.index(at)
    return found


def test_a_key_keeps_its_peer(ctx):
    some = pulls(ctx, 4)
    out = ctx.socket("sticky", connect=[f"inproc://{i}" for i in range(4)])
    out.wait_peers(4, 5)
    first = owners(out, some)
    assert owners(out, some) == first
    assert set(first.values()) == {0, 1, 2, 3}


def test_only_the_keys_of_who_leaves_or_comes_move(ctx):
    some = pulls(ctx, 4)
    out = ctx.socket("sticky", connect=[f"inproc://{i}" for i in range(3)])
    out.wait_peers(3, 5)
    three = owners(out, some)
    out.connect("inproc://3")
    out.wait_peers(4, 5)
    four = owners(out, some)
    assert all(now in (three[key], 3) for key, now in four.items()) and 3 in four.values()
    out.disconnect("inproc://3")
    assert owners(out, some) == three


def test_part_of_the_key_decides(ctx):
    some = pulls(ctx, 4)
    out = ctx.socket("sticky", connect=[f"inproc://{i}" for i in range(4)], key_size=3)
    out.wait_peers(4, 5)
    assert len(set(owners(out, some).values())) == 1    # all start with "key"


def test_order_before_progress(ctx):
    """A message waits for its own peer although another has space."""
    a = ctx.socket("pull", bind="inproc://a", recv_hwm=1)
    b = ctx.socket("pull", bind="inproc://b", recv_hwm=1)
    out = ctx.socket("sticky", connect=["inproc://a", "inproc://b"], send_hwm=1)
    out.wait_peers(2, 5)
    with pytest.raises(mq.SendTimeout):
        for i in range(100):
            out.send_parts([b"one key", b"%d" % i], timeout=0)
    assert not mq.poll([(out, mq.Ready.WRITE)], timeout=0)
    full, empty = (a, b) if mq.poll([a], timeout=0) else (b, a)
    assert not mq.poll([empty], timeout=0)
    for k in range(i):
        assert full.recv_parts(timeout=5) == [b"one key", b"%d" % k]


class TestSticky(PatternSuite):
    """What every pattern must do."""

    pattern = "sticky"
    partner = "pull"

    def test_peers_get_their_share(self, make, where):
        """Not in turn, on purpose: each gets what is its own, and many keys reach everybody."""
        near, fars = self.star(make, where, 3)
        for key in KEYS:
            self.send(near, [key])
        counts = [0] * len(fars)
        while sum(counts) < len(KEYS):
            for far, _ in mq.poll(fars, timeout=10) or pytest.fail(f"only {counts} arrived"):
                counts[fars.index(far)] += len(far.recv_many(timeout=0))
        assert all(counts)


class TestSettings(TestSticky):
    options = {"key_size": 8}
