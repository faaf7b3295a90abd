"""What is peculiar to lanes: the order in which messages come."""

import pytest

import mqcore as mq
from mqcore.testing import PatternSuite


@pytest.fixture
def ctx():
    with mq.Context(linger=0) as context:
        yield context


def filled(ctx, lanes, prios, n=3):
    """A push for each priority, with n messages under way to lanes."""
    pushes = [ctx.socket("push", bind=f"inproc://{i}") for i in range(len(prios))]
    for i, prio in enumerate(prios):
        lanes.connect(f"inproc://{i}", prio=prio)
    lanes.wait_peers(len(prios), 5)
    for i, push in enumerate(pushes):
        push.wait_peers(1, 5)
        for k in range(n):
            push.send(b"%d.%d" % (prios[i], k), timeout=5)


def take(lanes, n):
    return [lanes.recv(timeout=5) for _ in range(n)]


def test_best_first(ctx):
    lanes = ctx.socket("lanes")
    filled(ctx, lanes, [9, 1, 16])
    assert take(lanes, 9) == [b"1.0", b"1.1", b"1.2", b"9.0", b"9.1", b"9.2", b"16.0", b"16.1",
                              b"16.2"]
    assert not mq.poll([lanes], timeout=0)


def test_in_turn_among_equals(ctx):
    lanes = ctx.socket("lanes")
    filled(ctx, lanes, [4, 4, 4])
    assert take(lanes, 9) == [b"4.0"] * 3 + [b"4.1"] * 3 + [b"4.2"] * 3


def test_patience_ends(ctx):
    lanes = ctx.socket("lanes", patience=2)
    filled(ctx, lanes, [1, 9], n=4)
    assert take(lanes, 8) == [b"1.0", b"1.1", b"9.0", b"1.2", b"1.3", b"9.1", b"9.2", b"9.3"]
    with pytest.raises(mq.OptionError):
        lanes.patience = -1


def test_a_push_is_its_peer_and_a_pull_is_not(ctx):
    lanes = ctx.socket("lanes", bind="tcp://127.0.0.1:0")
    push = ctx.socket("push", connect=lanes.endpoints[0])
    push.send_parts([b"a", b"b" * 1000])
    assert lanes.recv_parts(timeout=5) == [b"a", b"b" * 1000]
    pull = ctx.socket("pull", reconnect_stop=["handshake"])
    with pytest.raises(mq.HandshakeFailed):
        pull.connect(lanes.endpoints[0], wait=5)
    with pytest.raises(mq.UsageError, match="a lanes socket cannot send"):
        lanes.send(b"x")


class TestLanes(PatternSuite):
    """What every pattern must do."""

    pattern = "lanes"
    partner = "push"


class TestPatience(TestLanes):
    options = {"patience": 3}
