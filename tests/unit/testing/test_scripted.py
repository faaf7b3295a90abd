"""The scripted transport and the manual clock, at the work they are made for: what connecting and
listening do when the world does not."""

import errno
import itertools

import pytest

import mqcore as mq
from mqcore.testing import Fails, Hangs, Link, Pass, Reset, Shut, Stall, refused, until

LIMIT = 60
URL = "scripted://here"


def kinds(events, wanted):
    """Events until the last of `wanted` has come, of these kinds only."""
    seen = []
    while seen != wanted:
        event = events.get(LIMIT)
        if event.kind in wanted:
            seen.append(event.kind)
            assert seen == wanted[:len(seen)]
    return event


@pytest.fixture
def pull(mq_context, mq_scripted):
    return mq_context.socket("pull", bind=URL)


# -- attempts --------------------------------------------------------------------------------------

def test_pauses_between_attempts(mq_context, mq_clock, mq_scripted):
    """Each is half to all of a step that doubles up to the maximum; nothing happens before its time
    and the attempt is made at it; a link that lasts longer than the last pause starts the steps
    over."""
    mq_clock.govern(mq_context)
    r = mq_context.socket("pull", bind=URL)
    mq_scripted.attempts(*[refused(late=n % 2 == 1) for n in range(7)])
    s = mq_context.socket("push", reconnect=0.1, reconnect_max=1.0)
    events = s.events()
    s.connect(URL)
    for n, step in enumerate([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], 1):
        kinds(events, ["Connecting", "Retrying"])
        pause = mq_clock.until_next()
        assert step / 2 <= pause <= step and mq_scripted.tried == n
        mq_clock.advance(pause - 1e-6)
        assert mq_scripted.tried == n
        mq_clock.advance(2e-6)
        assert mq_scripted.tried == n + 1
    s.wait_peers(1, LIMIT)
    mq_context._hub.loop.call_wait(lambda: None)    # the connector knows of the handshake now
    mq_clock.advance(1.1)
    mq_scripted.links[-1].reset()
    kinds(events, ["Disconnected", "Retrying"])
    assert 0.05 <= mq_clock.until_next() <= 0.1
    assert r.stats().received == 0


def test_what_ends_the_attempts(mq_context, mq_scripted):
    mq_scripted.attempts(Fails(errno.EHOSTUNREACH), refused())
    s = mq_context.socket("push", reconnect=0.001, reconnect_max=0.001)
    with pytest.raises(mq.RemoteRefused):
        s.connect(URL, wait=LIMIT, reconnect_stop=("refused",))
    assert mq_scripted.tried == 2


def test_an_attempt_that_never_ends(mq_context, mq_clock, mq_scripted):
    """connect_timeout ends it, at its time and not before."""
    mq_clock.govern(mq_context)
    mq_scripted.attempts(Hangs())
    s = mq_context.socket("push", connect_timeout=5.0, reconnect=1.0)
    at = s.connect(URL)
    until(lambda: mq_scripted.tried == 1)
    mq_context._hub.loop.call_wait(lambda: None)    # the attempt has its timer now
    mq_clock.advance(4.999)
    assert at.state == "connecting"
    mq_clock.advance(0.002)
    assert at.state == "waiting" and isinstance(at.error, mq.ConnectTimeout)


def test_a_listener_without_descriptors(mq_context, mq_clock, mq_scripted):
    """It pauses for a tenth of a second and says so; who waits in the kernel's queue comes in
    then."""
    mq_clock.govern(mq_context)
    r = mq_context.socket("pull")
    events = r.events()
    mq_scripted.faults(errno.EMFILE, errno.ENFILE)
    r.bind(URL)
    s = mq_context.socket("push", connect=URL)
    for _ in range(2):
        assert "files" in kinds(events, ["AcceptPaused"]).reason
        assert abs(mq_clock.until_next() - 0.1) < 1e-6 and r.peers() == []
        mq_clock.advance(0.1)
    s.send(b"in", timeout=LIMIT)
    assert r.recv(timeout=LIMIT) == b"in"


def test_a_connection_that_is_gone_before_it_is_accepted(mq_context, mq_scripted):
    r = mq_context.socket("pull")
    mq_scripted.faults(errno.ECONNABORTED, errno.EPROTO)
    r.bind(URL)
    s = mq_context.socket("push", connect=URL)
    s.send(b"next", timeout=LIMIT)
    assert r.recv(timeout=LIMIT) == b"next"


# -- streams ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", [0, 1, 10, 11, 63, 64, 70])
def test_a_peer_that_stalls_in_its_handshake(mq_context, mq_scripted, pull, n):
    """handshake_timeout ends it at both sides with a reason; the next attempt succeeds."""
    mq_scripted.attempts(Link(there=[Pass(n), Stall()], back=[Pass(n), Stall()]))
    s = mq_context.socket("push", handshake_timeout=0.05, reconnect=0.001, reconnect_max=0.001)
    events = s.events()
    s.connect(URL)
    assert "was not complete after" in kinds(events, ["HandshakeFailed"]).reason
    s.send(b"at last", timeout=LIMIT)
    assert pull.recv(timeout=LIMIT) == b"at last" and mq_scripted.tried >= 2


@pytest.mark.parametrize("way", ["there", "back"])
@pytest.mark.parametrize("step", [Reset(), Shut()], ids=["reset", "shut"])
@pytest.mark.parametrize("n", [0, 5, 30, 64, 75])
def test_a_stream_that_breaks_in_the_handshake(mq_context, mq_scripted, pull, way, step, n):
    """At whatever byte, in whichever direction: it is tried again, and the next one is good."""
    mq_scripted.attempts(Link(**{way: [Pass(n), step]}))
    s = mq_context.socket("push", connect=URL, reconnect=0.001, reconnect_max=0.001)
    until(lambda: mq_scripted.tried == 2)
    s.wait_peers(1, LIMIT)
    s.send(b"good", timeout=LIMIT)
    assert pull.recv(timeout=LIMIT) == b"good" and mq_scripted.tried == 2


HANDSHAKE = 64 + 2 + 6 + 12 + 4 + 4  # greeting; frame, READY, Socket-Type and its value


@pytest.mark.parametrize("n", range(HANDSHAKE, HANDSHAKE + 30, 7))
def test_a_stream_that_breaks_in_a_message(mq_context, mq_scripted, pull, n):
    """What is whole is delivered, half a message never; the connection is made anew."""
    mq_scripted.attempts(Link(there=[Pass(n), Shut()]))
    s = mq_context.socket("push", connect=URL, reconnect=0.001, reconnect_max=0.001)
    for k in range(20):
        s.send(b"message %02d" % k, timeout=LIMIT)
    until(lambda: mq_scripted.tried == 2)
    s.wait_peers(1, LIMIT)
    s.send(b"the last", timeout=LIMIT)
    got = list(itertools.takewhile(lambda m: m != b"the last",
                                   iter(lambda: pull.recv(timeout=LIMIT), None)))
    assert got == sorted(got) and set(got) <= {b"message %02d" % k for k in range(20)}


def test_a_stalled_reader_and_its_return(mq_context, mq_scripted, pull):
    link = Link(there=[Pass(20_000), Stall()])
    mq_scripted.attempts(link)
    s = mq_context.socket("push", connect=URL, send_hwm=4, heartbeat=None)
    s.wait_peers(1, LIMIT)
    sent = 0
    with pytest.raises(mq.SendTimeout):
        while True:
            s.send(b"%d " % sent + bytes(50_000), timeout=0.1)
            sent += 1
    link.wait_stalled("there")
    assert link.passed("there") == 20_000
    link.go("there")
    assert [int(pull.recv(timeout=LIMIT).split()[0]) for _ in range(sent)] == list(range(sent))


def test_closes_in_either_order(mq_context, mq_scripted, pull):
    """One direction ends while the other goes on for a while: each side ends once, and neither
    waits for the other."""
    for way in ("there", "back"):
        link = Link(**{way: [Pass(HANDSHAKE), Stall(), Shut()]})
        mq_scripted.attempts(link)
        s = mq_context.socket("push", connect=URL, reconnect=None)
        pull.wait_peers(1, LIMIT)
        s.wait_peers(1, LIMIT)
        link.wait_stalled(way)
        s.send(bytes(500), timeout=LIMIT)
        link.go(way)
        until(lambda s=s: s.endpoints[0].state == "stopped")
        until(lambda: not pull.peers())
        s.close(0)


def test_bytes_one_by_one(mq_context, mq_scripted, pull):
    mq_scripted.attempts(Link(there=[Pass(None, chunk=1)], back=[Pass(None, chunk=1)]))
    s = mq_context.socket("push", connect=URL)
    s.send_parts([b"drop", b"", b"by drop" * 100], timeout=LIMIT)
    assert pull.recv_parts(timeout=LIMIT) == [b"drop", b"", b"by drop" * 100]
