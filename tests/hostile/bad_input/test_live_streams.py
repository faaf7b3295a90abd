"""Live sockets and peers that send too much, read too slowly or leave in the middle."""

import resource
import socket
import struct
import threading
import time

import pytest
from rawzmtp import (
    GREETING,
    LONG,
    MORE,
    command,
    frame,
    frame1,
    message,
    ready,
)
from victim import LIMIT, every
from waiting import until

import mqcore as mq

# -- memory ----------------------------------------------------------------------------------------

def memory():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def test_memory_grows_by_what_arrives_not_by_what_is_declared(victim):
    v = victim("pull")
    before = memory()
    peers = [v.raw(shaken=True) for _ in range(20)]
    for peer in peers:              # 20 x 1 GiB are declared, 20 x 1000 bytes come
        peer.say(bytes((LONG,)) + struct.pack(">Q", 1 << 30) + b"x" * 1000)
        peer.say(b"y")
    until(lambda: sum(p.bytes_in for p in v.s.stats().peers.values()) >= 20 * 1010)
    assert memory() - before < 64 << 20
    for peer in peers:
        peer.close()
    v.serves()


def test_a_flood_is_bounded_by_the_marks(victim):
    """Nobody receives: the peer is stopped by its kernel once our marks are reached."""
    v = victim("pull", recv_hwm=100, recv_hwm_bytes=1 << 20)
    with v.raw(shaken=True) as peer:
        before = memory()
        peer.sock.setblocking(False)
        data, sent, since = message(b"x" * 10_000) * 100, 0, time.monotonic()
        while time.monotonic() - since < 0.2:   # until nothing was taken for so long
            try:
                sent += peer.sock.send(data[sent % len(data):])
                since = time.monotonic()
            except BlockingIOError:
                pass
        assert memory() - before < 32 << 20
        [stats] = v.s.stats().peers.values()
        assert stats.queued_in <= 101
        peer.sock.settimeout(LIMIT)
        for _ in range(sent // len(message(b"x" * 10_000))):
            assert len(v.s.recv()) == 10_000
    v.serves()


def test_an_endless_multipart_message_is_bounded(victim):
    v = victim("pull", max_message_size=1 << 20)
    with v.raw(shaken=True) as peer:
        part = frame(b"x" * 1000, MORE)
        with pytest.raises(ConnectionError):
            for _ in range(1_000_000):
                peer.say(part * 50)
        assert "max_message_size" in v.why("Disconnected")
    v.serves()


def test_an_endless_message_of_empty_parts_is_bounded(victim):
    """Parts cost memory even when they are empty."""
    v = victim("pull", max_message_size=1 << 16)
    before = memory()
    with v.raw(shaken=True) as peer:
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                peer.say(frame(b"", MORE) * 10_000)
        assert "max_message_size" in v.why("Disconnected")
    assert memory() - before < 32 << 20
    v.serves()


def test_many_subscriptions_are_survived(victim):
    v = victim("pub")
    with v.raw(shaken=True) as peer:
        for n in range(200):
            peer.say(b"".join(command(b"SUBSCRIBE", b"%d" % (n * 100 + k)) for k in range(100)))
        v.s.wait_subscribers(b"19999", 1, LIMIT)
    until(lambda: not v.s.peers())
    v.serves()


# -- the stream itself -----------------------------------------------------------------------------

@every
@pytest.mark.parametrize("half", ["in a length", "in a body", "in a multipart message"])
def test_a_peer_that_leaves_in_the_middle(victim, pattern, half):
    """What it had begun is as if it never was."""
    v = victim(pattern)
    data = {"in a length": bytes((LONG, 0, 0)), "in a body": frame(b"x" * 1000)[:500],
            "in a multipart message": frame(b"", MORE) + frame(b"half", MORE)}[half]
    with v.raw(shaken=True) as peer:
        peer.say(data)
    assert v.why("Disconnected")
    if pattern in ("pull", "pair", "dealer", "router", "sub", "xsub", "rep"):
        with pytest.raises(mq.RecvTimeout):
            v.s.recv_parts(timeout=0.01)
    v.serves()


@every
def test_reset(victim, pattern):
    v = victim(pattern)
    peer = v.raw(shaken=True)
    peer.say(frame(b"x" * 1000)[:500])
    peer.reset()
    assert v.why("Disconnected")
    v.serves()


@every
def test_a_peer_that_has_closed_one_half(victim, pattern):
    """It speaks no more: it is dropped, and reads what it was sent before that."""
    v = victim(pattern)
    with v.raw(shaken=True) as peer:
        peer.sock.shutdown(socket.SHUT_WR)
        assert v.why("Disconnected")
        assert peer.ended()
    v.serves()


def test_a_slow_reader_delays_nobody(victim):
    """One peer of a PUB, ROUTER, PUSH reads nothing; the other gets all that is due to it."""
    v = victim("pub", send_hwm=10, send_hwm_bytes=None)
    with v.raw(shaken=True) as slow, v.raw(shaken=True) as good:
        for peer in (slow, good):
            peer.say(message(b"\1"))
        v.s.wait_subscribers(b"", 2, LIMIT)
        for n in range(300):
            v.s.send(b"%d" % n + b"x" * 60_000)
            assert good.parts()[0].startswith(b"%d" % n)
        by = {p.offered - p.written - p.queued_out for p in v.s.stats().peers.values()}
        assert 0 in by and max(by) > 0
        slow.close()


def test_a_slow_reader_of_a_push(victim):
    """Once it is full everything goes to the other one."""
    v = victim("push", send_hwm=5)
    with v.raw(shaken=True) as slow, v.raw(shaken=True) as good:
        got = []

        def read():
            while got[-1:] != [b"end"]:
                got.extend(good.parts())
        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(300):
            v.s.send(b"x" * 60_000)
        slow.close()                # what it had not been sent comes to the other
        until(lambda: len(v.s.peers()) == 1)
        v.s.send(b"end")
        reader.join()
        stats = v.s.stats()
        kernel = stats.total.written + sum(stats.total.dropped_out.values())
        assert kernel + len(got) == 301 and len(got) > 200 and kernel < 100


@every
def test_what_a_bad_peer_said_is_not_taken_for_the_next_ones_words(victim, pattern, rng):
    """Peers that are dropped in the middle of their input leave nothing behind for the connections
    that come after them."""
    v = victim(pattern, handshake_timeout=5.0)
    for data in (GREETING + ready("NONSENSE") + rng.randbytes(500), b"\0" * 70,
                 frame1(b"") + b"\0" + rng.randbytes(500)):
        for _ in range(5):
            with v.raw() as peer:
                peer.say(data)
                assert peer.ended()
    for _ in range(8):
        v.serves()
