"""Sets in sets, and several threads on one set."""

import os
import threading
import time

import pytest
from mqcore.testing.native import reactor_bench as bench
from mqcore.testing.native.reactor_bench import IN, OUT, Poller, signal_eventfd
from pollers import LONG, Later, asleep, empty, what_of

# -- nesting -------------------------------------------------------------------------------------

@pytest.fixture
def nest():
    with Poller() as child, Poller() as parent:
        parent.add_set(child, 9)
        yield parent, child


def test_a_child_is_ready_until_it_is_harvested(nest, pairs):
    parent, child = nest
    a, b = pairs()
    assert parent.wait(0) == []
    child.add(a.fileno(), 1)
    for _ in range(3):
        assert parent.wait(LONG) == [(9, IN)]
    assert child.wait(0) == [(1, OUT)]
    assert parent.wait(0) == [] and child.wait(0) == []
    b.send(b"x")
    assert parent.wait(LONG) == [(9, IN)]
    assert what_of(child.wait(0))[1] & IN
    assert parent.wait(0) == []


def test_a_child_is_reported_once_however_much_it_has(nest, events):
    parent, child = nest
    for tag in range(1, 30):
        fd = events()
        child.add(fd, tag)
        signal_eventfd(fd)
    assert parent.wait(LONG) == [(9, IN)]


def test_an_eventfd_without_arg_in_a_child(nest, events):
    parent, child = nest
    fd = events()
    child.add(fd, 0)
    child.wait(0)
    for _ in range(5):
        signal_eventfd(fd)
        assert parent.wait(LONG) == [(9, IN)]
        assert what_of(child.wait(0))[0] & IN
        assert parent.wait(0) == []


def test_a_disarmed_child_is_silent_and_armed_it_is_ready_at_once(nest, events):
    parent, child = nest
    fd = events()
    child.add(fd, 1)
    child.wait(0)
    parent.arm_set(child, 9, False)
    signal_eventfd(fd)
    assert parent.wait(0) == [] and parent.wait(0.01) == []
    parent.arm_set(child, 9, True)
    assert parent.wait(LONG) == [(9, IN)]
    assert len(child.wait(0)) == 1


def test_arming_wakes_the_parents_sleeper(nest, events):
    parent, child = nest
    fd = events()
    child.add(fd, 1)
    child.wait(0)
    parent.arm_set(child, 9, False)
    signal_eventfd(fd)
    waiting = Later(parent.wait, LONG)
    assert asleep(waiting)
    parent.arm_set(child, 9, True)
    assert waiting.result() == [(9, IN)]


def test_disarming_under_a_sleeper(nest, events):
    parent, child = nest
    fd, other = events(), events()
    child.add(fd, 1)
    child.wait(0)
    parent.add(other, 2)
    parent.wait(0)
    waiting = Later(parent.wait, LONG)
    assert asleep(waiting)
    parent.arm_set(child, 9, False)
    signal_eventfd(fd)
    assert what_of(child.wait(LONG))[1] & IN
    signal_eventfd(other)
    assert what_of(waiting.result()).keys() == {2}


def test_what_changes_in_a_child_wakes_the_parents_sleeper(nest, pairs):
    parent, child = nest
    a, b = pairs()
    waiting = Later(parent.wait, LONG)
    assert asleep(waiting)
    child.add(a.fileno(), 1)
    assert waiting.result() == [(9, IN)]
    child.wait(0)
    b.send(b"x")
    child.wait(LONG)
    waiting = Later(parent.wait, LONG)
    assert asleep(waiting)
    empty(a)
    b.send(b"y")
    assert waiting.result() == [(9, IN)]


def test_a_connection_of_a_child_ends_under_the_parents_sleeper(nest, pairs):
    """Even of a child that the parent no longer watches when the descriptor is closed."""
    parent, child = nest
    a, b = pairs()
    child.add(a.fileno(), 1)
    child.wait(0)
    waiting = Later(parent.wait, LONG)
    assert asleep(waiting)
    parent.arm_set(child, 9, False)
    child.remove(a.fileno())
    a.close()
    b.settimeout(LONG)
    assert b.recv(1) == b""
    c, _ = pairs()
    parent.add(c.fileno(), 3)
    assert waiting.result() == [(3, OUT)]


def test_a_child_in_two_parents(events):
    with Poller() as child, Poller() as one, Poller() as two:
        one.add_set(child, 1)
        two.add_set(child, 2)
        fd = events()
        child.add(fd, 3)
        child.wait(0)
        waiting = [Later(one.wait, LONG), Later(two.wait, LONG)]
        assert all(asleep(thread) for thread in waiting)
        signal_eventfd(fd)
        assert [thread.result() for thread in waiting] == [[(1, IN)], [(2, IN)]]


def test_sets_nest_twice(pairs):
    with Poller() as low, Poller() as middle, Poller() as top:
        top.add_set(middle, 1)
        middle.add_set(low, 2)
        waiting = Later(top.wait, LONG)
        assert asleep(waiting)
        a, _ = pairs()
        low.add(a.fileno(), 3)
        assert waiting.result() == [(1, IN)]
        assert middle.wait(0) == [(2, IN)]
        assert low.wait(0) == [(3, OUT)]
        assert top.wait(0) == [] and middle.wait(0) == []


def test_a_closed_child_is_forgotten(events):
    with Poller() as parent:
        child = Poller()
        fd = events()
        child.add(fd, 1)
        parent.add_set(child, 9)
        waiting = Later(parent.wait, LONG)
        waiting.result()
        child.close()
        assert parent.wait(0) == []
        other = events()
        parent.add(other, 2)
        assert parent.wait(LONG)[0][0] == 2


def test_a_child_closed_under_the_parents_sleeper(events, pairs):
    with Poller() as parent:
        child = Poller()
        a, b = pairs()
        child.add(a.fileno(), 1)
        child.wait(0)
        parent.add_set(child, 9)
        waiting = Later(parent.wait, LONG)
        assert asleep(waiting)
        child.close()
        b.send(b"x")
        fd = events()
        signal_eventfd(fd)
        parent.add(fd, 2)
        assert what_of(waiting.result()).keys() == {2}


def test_closing_a_parent_leaves_the_child(events):
    with Poller() as child:
        parent = Poller()
        parent.add_set(child, 9)
        parent.close()
        fd = events()
        child.add(fd, 1)
        assert child.wait(LONG)[0][0] == 1


# -- several threads on one set ------------------------------------------------------------------

@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_each_edge_goes_to_one_thread(threads, nested):
    edges = 3000
    written, taken = bench.share(threads, edges, nested)
    assert written == edges, f"an edge was lost after {written}"
    assert taken == edges, "an edge was reported more than once"


def test_two_threads_share_readable_sockets(poller, pairs):
    """Every byte is reported once, to one of them; whoever takes the edge reads."""
    count = 20
    near, far = zip(*(pairs() for _ in range(count)), strict=True)
    for tag, sock in enumerate(near, 1):
        poller.add(sock.fileno(), tag)
    poller.wait(0)
    got = []
    done = threading.Event()

    def take():
        while not done.is_set():
            for tag, what in poller.wait(0.05):
                if what & IN:
                    try:
                        got.append((tag, near[tag - 1].recv(100)))
                    except BlockingIOError:
                        pass  # epoll: an edge that came with the byte somebody has read
    takers = [Later(take), Later(take)]
    for _ in range(30):
        before = sum(len(data) for _, data in got)
        for sock in far:
            sock.send(b"x")
        end = time.monotonic() + LONG
        while sum(len(data) for _, data in got) < before + count:
            assert time.monotonic() < end, "a byte was never reported"
            time.sleep(0)
    done.set()
    for taker in takers:
        taker.result()
    assert sum(len(data) for _, data in got) == 30 * count


def test_changes_and_waits_at_once(poller, seed):
    """Two threads wait, two add and remove: nothing is reported of what is not there for good."""
    keep = bench.eventfd()
    done = threading.Event()
    seen = []
    poller.add(keep, 1000)

    def take():
        while not done.is_set():
            seen.extend(tag for tag, _ in poller.wait(0.02))

    def change(base):
        for i in range(300):
            fd = bench.eventfd()
            poller.add(fd, base + i % 50)
            signal_eventfd(fd)
            poller.remove(fd)
            os.close(fd)
    takers = [Later(take), Later(take)]
    changers = [Later(change, 1), Later(change, 100)]
    for changer in changers:
        changer.result()
    while seen.count(1000) < 1:
        signal_eventfd(keep)
    done.set()
    for taker in takers:
        taker.result()
    os.close(keep)
    assert set(seen) <= {*range(1, 51), *range(100, 150), 1000}
    assert poller.wait(0) == []
