"""Who reads: a blocked receive, or the I/O thread. The tick is an hour here unless it is the point,
so that what works does not work because of it."""

import itertools
import threading
import time

import pytest

import mqcore as mq

HOUR = 3600.0


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.001)


@pytest.fixture
def ends(request):
    """A DEALER that has just received from an echo, many times: callers watch it. The other one.

    On a busy machine a receive may find that the I/O thread was faster; then it is the thread that
    watches, until a receive has to wait again. So it goes on until callers watch."""
    with mq.Context(lead_tick=getattr(request, "param", HOUR), linger=0) as context:
        near = context.socket("dealer", send_hwm=None, send_hwm_bytes=None)
        far = context.socket("dealer", connect=str(near.bind("tcp://127.0.0.1:*")), recv_hwm=2)
        echo = threading.Thread(target=lambda: [far.send(body) for body in iter(far.recv, b"")])
        echo.start()
        asked = itertools.count()

        def ask():
            near.send(b"%d" % (n := next(asked)))
            assert near.recv(timeout=10) == b"%d" % n
            return n >= 20 and near._watched_by() == "callers"

        until(ask)
        near.send(b"")
        echo.join()
        yield near, far


def test_callers_that_come_and_go_keep_the_watch(ends):
    assert ends[0]._watched_by() == "callers"


def test_poll_does_not_wait_for_a_tick(ends):
    near, far = ends
    far.send(b"now")
    assert mq.poll([far, near], timeout=20) == [(near, mq.Ready.READ)]
    assert near._watched_by() == "io thread"
    assert near.recv(timeout=0) == b"now"


def test_a_poll_of_one_leads(ends):
    near, far = ends
    far.send(b"now")
    assert mq.poll([near], timeout=20) == [(near, mq.Ready.READ)]
    assert near._watched_by() == "callers"
    assert near.recv(timeout=0) == b"now"


def test_a_new_peer_does_not_wait_for_a_tick(ends):
    near, _ = ends
    with mq.Context(linger=0) as other:
        late = other.socket("dealer", connect=near.endpoints[0].url)
        late.wait_peers(1, timeout=20)


def test_unsent_bytes_do_not_wait_for_a_tick(ends):
    near, far = ends
    assert near._watched_by() == "callers"
    body = bytes(1 << 20)
    for _ in range(64):       # more than the kernel takes, to a peer that does not read
        near.send(body)
    until(lambda: near._watched_by() == "io thread")
    for _ in range(64):
        assert len(far.recv(timeout=20)) == len(body)


@pytest.mark.parametrize("ends", [0.005], indirect=True)
def test_the_io_thread_takes_over_when_callers_stay_away(ends):
    near, far = ends
    until(lambda: near._watched_by() == "io thread")
    received = near.stats().received
    far.send(b"meanwhile")
    until(lambda: near.stats().received == received and near._can()[0])
    assert near.recv(timeout=0) == b"meanwhile"


@pytest.mark.parametrize("ends", [0.005], indirect=True)
def test_a_caller_that_sleeps_needs_no_ticks(ends):
    near, far = ends
    got = []
    reader = threading.Thread(target=lambda: got.append(near.recv(timeout=60)))
    reader.start()
    until(lambda: near._watched_by() == "leader")
    far.send(b"at last")
    reader.join()
    assert got == [b"at last"]


def test_closing_does_not_wait_for_a_tick(ends):
    near, _ = ends
    assert near._watched_by() == "callers"
    near.close(0)
    assert near.closed


@pytest.mark.parametrize("tick", [0, -1, 1e9, "soon", None])
def test_a_tick_must_be_a_time(tick):
    with pytest.raises(mq.UsageError, match="lead_tick"):
        mq.Context(lead_tick=tick)
