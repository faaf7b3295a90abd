"""The poller's table, whoever is behind it: edges, arming, nesting, changes under a sleeper."""

import os
import resource
import signal
import threading
import time

import pytest
from mqcore.testing import reactor_bench as bench
from mqcore.testing.reactor_bench import HUP, IN, OUT, Poller, signal_eventfd

LONG = 20.0  # only a lost wake-up takes so long


class Later(threading.Thread):
    """Runs fn and keeps what it returned."""

    def __init__(self, fn, *args):
        super().__init__(daemon=True)
        self.fn, self.args, self.error = fn, args, None
        self.start()

    def run(self):
        try:
            self.answer = self.fn(*self.args)
        except BaseException as error:
            self.error = error

    def result(self):
        self.join(LONG * 2)
        assert not self.is_alive(), "still waiting"
        if self.error is not None:
            raise self.error
        return self.answer


def fill(sock):
    """Write until the kernel takes no more."""
    while True:
        try:
            sock.send(b"x" * 65536)
        except BlockingIOError:
            return


def empty(sock):
    while True:
        try:
            if not sock.recv(1 << 20):
                return
        except BlockingIOError:
            return


def drained(poller, sock):
    """As the engine does it: read to the end, then want more."""
    empty(sock)
    poller.rearm(sock.fileno(), IN)


def what_of(found):
    """{tag: every bit that was reported of it}"""
    out = {}
    for tag, what in found:
        out[tag] = out.get(tag, 0) | what
    return out


# -- edges -----------------------------------------------------------------------------------------

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
        drained(poller, a)
        assert poller.wait(0) == []


def test_bytes_that_come_between_eagain_and_rearm_are_not_lost(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    poller.wait(0)
    b.send(b"x")
    poller.wait(LONG)
    empty(a)
    b.send(b"y")
    poller.rearm(a.fileno(), IN)
    assert what_of(poller.wait(LONG))[1] & IN


def test_room_is_an_edge_after_eagain(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 1)
    assert poller.wait(0) == [(1, OUT)]
    fill(a)
    poller.rearm(a.fileno(), OUT)
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
    poller.rearm(a.fileno(), OUT)
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


def test_hang_up_wakes_who_reads_on(name, pairs):
    """Rearmed after a hang-up: the end is readable, so it is reported, once per rearming."""
    if name == "epoll":
        pytest.skip("epoll is never rearmed")
    with Poller(name) as poller:
        a, b = pairs()
        poller.add(a.fileno(), 1)
        b.close()
        poller.wait(LONG)
        for what in (IN, OUT, IN | OUT):
            poller.rearm(a.fileno(), what)
            assert poller.wait(LONG) == [(1, what)]
            assert poller.wait(0) == []


def test_rearming_what_is_not_there_is_ignored(poller, pairs):
    a, _ = pairs()
    poller.rearm(a.fileno(), IN)
    poller.rearm(-1, IN)
    assert poller.wait(0) == []


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
        for a, b in near.values():
            b.send(b"x")
        for tag, _ in poller.wait(0, cap=2):
            seen.add(tag)
            drained(poller, near[tag][0])
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


# -- time and signals ------------------------------------------------------------------------------

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

def asleep(thread):
    """True once the thread sleeps in the kernel: then what follows comes to a sleeper. A thread that
    has not got there yet would only make the test easier."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        with open(f"/proc/self/task/{thread.native_id}/stat") as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "S":
                return True
    return False


def test_adding_wakes_the_sleeper(poller, pairs):
    a, _ = pairs()
    waiting = Later(poller.wait, LONG)
    assert asleep(waiting)
    poller.add(a.fileno(), 5)
    assert waiting.result() == [(5, OUT)]


def test_rearming_wakes_the_sleeper(poller, pairs):
    a, b = pairs()
    poller.add(a.fileno(), 5)
    b.send(b"x")
    poller.wait(LONG)
    waiting = Later(poller.wait, LONG)
    assert asleep(waiting)
    empty(a)
    b.send(b"y")
    poller.rearm(a.fileno(), IN)
    assert what_of(waiting.result())[5] & IN


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


# -- nesting ---------------------------------------------------------------------------------------

@pytest.fixture
def nest(name):
    with Poller(name) as child, Poller(name) as parent:
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
    child.rearm(a.fileno(), IN)
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


def test_a_child_in_two_parents(name, events):
    with Poller(name) as child, Poller(name) as one, Poller(name) as two:
        one.add_set(child, 1)
        two.add_set(child, 2)
        fd = events()
        child.add(fd, 3)
        child.wait(0)
        waiting = [Later(one.wait, LONG), Later(two.wait, LONG)]
        assert all(asleep(thread) for thread in waiting)
        signal_eventfd(fd)
        assert [thread.result() for thread in waiting] == [[(1, IN)], [(2, IN)]]


def test_sets_nest_twice(name, pairs):
    with Poller(name) as low, Poller(name) as middle, Poller(name) as top:
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


def test_a_closed_child_is_forgotten(name, events):
    with Poller(name) as parent:
        child = Poller(name)
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


def test_a_child_closed_under_the_parents_sleeper(name, events, pairs):
    with Poller(name) as parent:
        child = Poller(name)
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


def test_closing_a_parent_leaves_the_child(name, events):
    with Poller(name) as child:
        parent = Poller(name)
        parent.add_set(child, 9)
        parent.close()
        fd = events()
        child.add(fd, 1)
        assert child.wait(LONG)[0][0] == 1


# -- several threads on one set ---------------------------------------------------------------------

@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_each_edge_goes_to_one_thread(name, threads, nested):
    edges = 3000
    written, taken = bench.share(name, threads, edges, nested)
    assert written == edges, f"an edge was lost after {written}"
    assert taken == edges, "an edge was reported more than once"


def test_two_threads_share_readable_sockets(poller, pairs):
    """Every byte is reported once, to one of them; whoever takes the edge reads and rearms."""
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
                    poller.rearm(near[tag - 1].fileno(), IN)
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
