"""The poller's table, whoever is behind it: edges, arming, time, signals, changes in a wait."""

import os
import resource
import signal
import threading
import time

import pytest
from mqcore.testing.native import reactor_bench as bench
from mqcore.testing.native.reactor_bench import HUP, IN, OUT, signal_eventfd
from pollers import LONG, Later, asleep, empty, fill, what_of

# -- edges ---------------------------------------------------------------------------------------

def test_an_empty_set_has_nothing(poller):
    assert poller.wait(0) == []


def test_what_is_ready_when_added_gives_an_edge(poller, pairs):
    a, b = pairs()
    b.send(b"x")
    poller.add(a.fileno(), 7)
    assert poller.wait(LONG) == [(7, IN | OUT)]


def test_an_edge_is_reported_once(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    assert poller.wait(LONG) == [(1, OUT)]
    assert poller.wait(0) == []
    b.send(b"x")
    assert what_of(poller.wait(LONG))[1] & IN
    assert poller.wait(0) == [] and poller.wait(0.01) == [], "still readable, but no edge"


def test_after_eagain_the_next_byte_is_an_edge(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    poller.wait(0)
    for _ in range(20):
        b.send(b"x")
        assert what_of(poller.wait(LONG))[1] & IN
        assert poller.wait(0) == []
        empty(a)
        assert poller.wait(0) == []


def test_bytes_that_come_after_eagain_are_not_lost(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    poller.wait(0)
    b.send(b"x")
    poller.wait(LONG)
    empty(a)
    b.send(b"y")
    assert what_of(poller.wait(LONG))[1] & IN


def test_room_is_an_edge_after_eagain(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    assert poller.wait(0) == [(1, OUT)]
    fill(a)
    assert poller.wait(0) == []
    empty(b)
    assert what_of(poller.wait(LONG)) == {1: OUT}
    assert poller.wait(0) == []


def test_directions_are_armed_apart(poller, pairs):
    """Waiting for room does not bring back bytes that nobody has read."""
    a, b = pairs()
    poller.add(a.fileno(), 1)
    b.send(b"x")
    assert what_of(poller.wait(LONG))[1] & IN
    poller.wait(0)
    fill(a)
    assert poller.wait(0.01) == []


def test_half_close_is_told(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    poller.wait(0)
    b.shutdown(1)
    found = poller.wait(LONG)
    assert what_of(found)[1] & (IN | HUP) == IN | HUP
    assert poller.wait(0) == []


def test_hang_up_does_not_spin(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    poller.wait(0)
    b.close()
    assert what_of(poller.wait(LONG))[1] & HUP
    assert poller.wait(0) == [] and poller.wait(0.01) == []


def test_an_eventfd_without_arg_needs_no_reading(poller, events):
    fd = events()
    poller.add(fd, 0)
    poller.wait(0)
    for _ in range(20):
        signal_eventfd(fd)
        assert what_of(poller.wait(LONG))[0] & IN
        assert poller.wait(0) == []
    signal_eventfd(fd)
    signal_eventfd(fd)
    assert len(poller.wait(LONG)) == 1
    assert poller.wait(0) == []


def test_a_removed_descriptor_is_silent(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    b.send(b"x")
    poller.remove(a.fileno())
    poller.remove(a.fileno())
    assert poller.wait(0) == []
    poller.add(a.fileno(), 2)
    assert poller.wait(0) == [(2, IN | OUT)]


def test_a_descriptor_is_in_a_set_once(poller, pairs):
    a, _ = pairs()
    poller.add(a.fileno(), 1)
    with pytest.raises(OSError):
        poller.add(a.fileno(), 2)
    assert poller.wait(0) == [(1, OUT)]


def test_no_more_events_than_asked_for_and_none_lost(poller, events):
    fds = {tag: events() for tag in range(1, 51)}
    for tag, fd in fds.items():
        poller.add(fd, tag)
        signal_eventfd(fd)
    seen = []
    while found := poller.wait(0, cap=8):
        assert len(found) <= 8
        seen += found
    assert sorted(tag for tag, what in seen if what & IN) == sorted(fds)
    assert len(seen) == 50


def test_a_busy_few_do_not_starve_the_rest(poller, pairs):
    """With a small cap and descriptors that are always ready again, everybody has a turn."""
    near = {}
    for tag in range(1, 9):
        a, b = pairs()
        near[tag] = (a, b)
        poller.add(a.fileno(), tag)
    seen = set()
    for _ in range(64):
        for _, b in near.values():
            b.send(b"x")
        for tag, _ in poller.wait(0, cap=2):
            seen.add(tag)
            empty(near[tag][0])
    assert seen == set(near)


def test_many_descriptors(poller, rng):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1000, soft - 100)
    fds = [bench.eventfd() for _ in range(count)]
    try:
        for tag, fd in enumerate(fds, 1):
            poller.add(fd, tag)
        while poller.wait(0):
            pass
        gone = set(rng.sample(range(1, count + 1), count // 3))
        for tag in gone:
            poller.remove(fds[tag - 1])
        chosen = rng.sample(range(1, count + 1), 50)
        for tag in chosen:
            signal_eventfd(fds[tag - 1])
        seen = []
        while found := poller.wait(0):
            seen += found
        assert sorted(tag for tag, what in seen if what & IN) == sorted(set(chosen) - gone)
    finally:
        for fd in fds:
            os.close(fd)


# -- time and signals ----------------------------------------------------------------------------

@pytest.mark.parametrize("timeout", [0.001, 0.02, 0.1])
def test_a_wait_ends_in_time_and_not_before(poller, pairs, timeout):
    a, _ = pairs()
    poller.add(a.fileno(), 1)
    poller.wait(0)
    start = time.monotonic()
    assert poller.wait(timeout) == []
    took = time.monotonic() - start
    assert timeout <= took + 1e-4 and took < timeout + 2


def test_a_wait_for_ever_ends_with_an_edge(poller, events):
    fd = events()
    poller.add(fd, 1)
    poller.wait(0)
    waiting = Later(poller.wait, None)
    signal_eventfd(fd)
    assert waiting.result()[0][0] == 1


def test_a_huge_timeout_is_not_a_short_one(poller, events):
    fd = events()
    poller.add(fd, 1)
    poller.wait(0)
    waiting = Later(poller.wait, 9e9)
    waiting.join(0.02)
    assert waiting.is_alive()
    signal_eventfd(fd)
    assert waiting.result()


def test_a_signal_interrupts(poller):
    """Blocked outside, let through by the mask: as ppoll, it cannot come too early."""
    old = signal.signal(signal.SIGUSR2, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
        assert poller.wait(0.01) == []
        with pytest.raises(InterruptedError):
            poller.wait(LONG, open_mask=True)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.signal(signal.SIGUSR2, old)


# -- changes while somebody sleeps ---------------------------------------------------------------

def test_adding_wakes_the_sleeper(poller, pairs):
    a, _ = pairs()
    waiting = Later(poller.wait, LONG)
    assert asleep(waiting)
    poller.add(a.fileno(), 5)
    assert waiting.result() == [(5, OUT)]


def test_removing_under_a_sleeper(poller, pairs, events):
    """Its edges come no more, and the peer sees the end at once although somebody sleeps here."""
    a, b = pairs()
    fd = events()
    poller.add(a.fileno(), 1)
    poller.add(fd, 2)
    poller.wait(0)
    waiting = Later(poller.wait, LONG)
    assert asleep(waiting)
    poller.remove(a.fileno())
    a.close()
    b.settimeout(LONG)
    assert b.recv(1) == b"", "a sleeper held the connection open"
    assert waiting.is_alive()
    signal_eventfd(fd)
    assert what_of(waiting.result()).keys() == {2}


def test_a_number_used_again_is_another_descriptor(poller, pairs):
    """Removed, closed and opened anew under a sleeper: the new one's events have the new tag."""
    a, _ = pairs()
    number = a.fileno()
    poller.add(number, 1)
    poller.wait(0)
    waiting = Later(poller.wait, LONG)
    assert asleep(waiting)
    poller.remove(number)
    a.close()
    c, d = pairs()
    if c.fileno() != number:
        c, d = d, c
    assert c.fileno() == number
    d.send(b"x")
    poller.add(c.fileno(), 2)
    assert what_of(waiting.result()) == {2: IN | OUT}
