"""The lock-order checker (support/lock_order.py) finds what it is for, and watches this run."""

import threading

import lock_order
import pytest
from lock_order import Cycle, Graph, Watched

import mqcore as mq


@pytest.fixture
def graph():
    return Graph()


def in_thread(*calls):
    """Each on a thread of its own, one after the other: nothing can really deadlock."""
    for call in calls:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()


def nested(*locks):
    def take():
        if locks:
            with locks[0]:
                nested(*locks[1:])()
    return take


def lock(graph, site, make=threading.Lock):
    return Watched(graph, make(), site)


def test_two_locks_in_both_orders_are_a_cycle(graph):
    a, b = lock(graph, "a"), lock(graph, "b")
    in_thread(nested(a, b), nested(b, a))
    with pytest.raises(Cycle, match="b held, a taken"):
        graph.check()
    graph.check()  # told once


def test_a_cycle_of_three_is_found_though_no_two_cross(graph):
    a, b, c = (lock(graph, name) for name in "abc")
    in_thread(nested(a, b), nested(b, c), nested(c, a))
    with pytest.raises(Cycle, match="c held, a taken(.|\n)*a held, b taken(.|\n)*b held, c taken"):
        graph.check()


def test_locks_of_one_line_are_one_class(graph):
    a, b = lock(graph, "a"), lock(graph, "b")
    other_a, other_b = lock(graph, "a"), lock(graph, "b")
    in_thread(nested(a, b), nested(other_b, other_a))
    with pytest.raises(Cycle):
        graph.check()


def test_two_of_one_class_may_nest_in_one_order_only(graph):
    one, two = lock(graph, "a"), lock(graph, "a")
    in_thread(nested(one, two), nested(one, two))
    graph.check()
    in_thread(nested(two, one))
    with pytest.raises(Cycle):
        graph.check()


def test_one_order_is_fine_and_so_is_taking_an_rlock_again(graph):
    a, b = lock(graph, "a", threading.RLock), lock(graph, "b", threading.RLock)
    in_thread(nested(a, b, a, b), nested(a, b), nested(b), nested(a))
    graph.check()


def test_a_lock_that_is_only_tried_is_no_edge(graph):
    a, b = lock(graph, "a"), lock(graph, "b")

    def tries():
        with b:
            assert a.acquire(blocking=False)
            a.release()
    in_thread(nested(a, b), tries)
    graph.check()


def test_a_lock_as_a_signal_is_no_lock(graph):
    a = lock(graph, "a")
    signal = lock(graph, "signal")
    signal.acquire()
    giver = threading.Thread(target=signal.release)
    giver.start()
    signal.acquire()
    giver.join()
    nested(a)()
    signal.release()
    in_thread(nested(a, signal))
    graph.check()


def test_a_lock_that_is_forgotten_is_not_held(graph):
    a = lock(graph, "a")
    lock(graph, "gone").acquire()
    nested(a)()
    in_thread(nested(a, lock(graph, "gone")))
    graph.check()


def test_a_condition_lets_go_of_its_lock_while_it_waits(graph):
    a, b = lock(graph, "a"), lock(graph, "b", threading.RLock)
    changed = threading.Condition(b)

    def waits():
        with changed:
            changed.wait(0.001)
            assert graph.holds(b)
        assert not graph.holds(b)
    in_thread(waits, nested(a, b))
    graph.check()

    def waits_with_another():
        with b, a:
            pass
    in_thread(waits_with_another)
    with pytest.raises(Cycle):
        graph.check()


def test_this_run_is_watched(ctx):
    hub = ctx._hub
    assert isinstance(hub.lock, Watched) and hub.lock.site.startswith("mqcore.control.hub:")
    with ctx.socket("pair") as pair, pair.events() as events:
        assert isinstance(events._changed._lock, Watched)
        assert isinstance(pair.bind("inproc://watched")._changed._lock, Watched)
        with hub.lock:
            assert lock_order.GRAPH.holds(hub.lock)
            hub.lock.acquire()
            hub.lock.release()
            assert lock_order.GRAPH.holds(hub.lock)
        assert not lock_order.GRAPH.holds(hub.lock)
    assert not isinstance(threading.Lock(), Watched)  # those of others are let alone


def test_the_control_thread_counts_as_a_lock(monkeypatch, ctx):
    graph = Graph()
    monkeypatch.setattr(lock_order, "GRAPH", graph)
    own = lock(graph, "own")
    with mq.Context() as context:
        context.socket("pair").close()
        loop = context._hub.loop
        loop.call_wait(nested(own))
        graph.check()

        def with_it_in_hand():
            with own:
                loop.call_wait(loop.clock)
        in_thread(with_it_in_hand)
    with pytest.raises(Cycle, match="own held, control thread taken"):
        graph.check()
