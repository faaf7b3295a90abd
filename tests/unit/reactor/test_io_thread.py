"""The I/O thread: posts, sleep and wake-up, timers, ticks, harvesting, the end."""

import pytest
from mqcore.testing.native.io_bench import Io


@pytest.fixture
def io():
    io = Io()
    yield io
    io.close()


# -- posts ---------------------------------------------------------------------------------------

def test_a_post_wakes_a_thread_that_sleeps(io):
    """A lost wake-up would be a round trip that never ends."""
    assert io.round_trips(3000) == 3000


def test_it_does_not_spin(io):
    """A few loops for each wake-up; its eventfd does not keep it awake."""
    io.round_trips(10)
    before = io.loops
    assert io.round_trips(200) == 200
    assert io.loops - before <= 2 * 200 + 2


@pytest.mark.parametrize(("posters", "tasks"), [(1, 1), (4, 1), (4, 7), (8, 32)])
def test_posts_of_many_threads_are_not_lost(io, posters, tasks):
    """A task posted again while it is queued runs once, and sees every fact left before."""
    facts = io.posts(posters, tasks, 40_000 // posters)
    assert sum(wanted for wanted, _ in facts) == 40_000 // posters * posters
    for wanted, seen in facts:
        assert seen == wanted


# -- timers --------------------------------------------------------------------------------------

def check_timers(fired):
    assert fired is not None, "some timer never fired"
    by_place = sorted(fired, key=lambda row: row[2])
    whens = [when for when, _, _ in by_place]
    assert whens == sorted(whens), "out of order"
    assert all(at >= when for when, at, _ in fired), "too early"
    assert sorted(place for _, _, place in fired) == list(range(len(fired)))


def test_timers_fire_in_the_order_of_their_time(io):
    check_timers(io.timers([0.02, 0.001, 0.01, 0.015, 0.005]))


def test_many_timers(io, rng):
    check_timers(io.timers([rng.uniform(0, 0.05) for _ in range(2000)]))


def test_timers_of_one_moment_and_of_the_past(io):
    check_timers(io.timers([0.005] * 50 + [0.0] * 50 + [-1.0] * 50))


def test_a_timer_wakes_a_thread_that_sleeps(io):
    for _ in range(5):
        (when, at, _), = io.timers([0.01])
        assert 0 <= at - when < 5


def test_waiting_for_a_timer_does_not_spin(io):
    io.sync()
    before = io.loops
    check_timers(io.timers([0.2]))
    assert io.loops - before < 20


# -- ticks ---------------------------------------------------------------------------------------

def test_a_tick_comes_until_it_wants_no_more(io):
    runs, seconds = io.ticks(20)
    assert runs == 20
    assert seconds >= 19 * 0.00009, "ticks came faster than every tenth of a millisecond"
    before = io.loops
    io.sync()
    assert io.ticks(1)[0] == 1
    assert io.loops - before < 20, "nobody ticks, and it does not sleep"


# -- harvesting ----------------------------------------------------------------------------------

def test_it_harvests_the_sets_it_watches(io):
    io.watch()
    for n in range(1, 201):
        io.edge()
        assert io.edges(n), f"edge {n} was never harvested"
    edges, calls = io.harvested
    assert edges == 200
    assert calls <= 2 * 200 + 2, "an eventfd that nobody reads kept it awake"


def test_a_disarmed_set_is_not_harvested(io):
    io.watch()
    io.edge()
    assert io.edges(1)
    for n in range(2, 100):
        io.arm(False)
        io.sync()
        calls = io.harvested[1]
        io.edge()
        io.round_trips(1)
        io.round_trips(1)
        assert io.harvested == (n - 1, calls)
        io.arm(True)
        assert io.edges(n)


def test_a_set_is_closed_while_the_thread_looks_at_it(io):
    for _ in range(200):
        io.watch()
        io.edge()
        io.unwatch()
    assert io.round_trips(1) == 1


# -- the end -------------------------------------------------------------------------------------

def test_stop_wakes_it_and_can_be_said_twice():
    for _ in range(20):
        io = Io()
        io.stop()
        io.stop()
        io.sync()


def test_stop_after_work():
    io = Io()
    io.watch()
    assert io.round_trips(100) == 100
    io.stop()
