"""The lock-order checker (support/lock_order.py) finds what it is for, and watches this run."""

import subprocess
import threading

import lock_order
import pytest
from lock_order import Cycle, Graph, Watched
from nested import PYTEST
from sources import ROOT

import mqcore as mq

PLANTED = """
import types

planted = types.ModuleType("mqcore.planted")
exec(compile('''
import threading
first = threading.Lock()
second = threading.Lock()

def crossed():
    with first, second:
        pass
    with second, first:
        pass
''', "planted.py", "exec"), vars(planted))


def test_before():
    with planted.first, planted.second:
        pass


def test_crossed():
    planted.crossed()


def test_after():
    planted.crossed()
"""


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


def test_one_thread_runs_all_handlers(graph):
    a, b = lock(graph, "a"), lock(graph, "b")

    def handled(held, taken):
        def call():
            with held, graph.handler(), taken:
                pass
        return call
    in_thread(handled(a, b), handled(b, a))
    graph.check()
    in_thread(nested(a, b))     # another thread takes them in this order
    with pytest.raises(Cycle, match="a held, b taken"):
        graph.check()


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

    def held():     # the lock inside the hub's YieldingLock
        return [lock.site for lock in lock_order.GRAPH._mine()
                if lock.site.startswith("mqcore.control.hub:")]

    with ctx.socket("pair"):
        with hub.lock:
            [site] = held()
            hub.lock.acquire()
            hub.lock.release()
            assert held() == [site]
        assert held() == []
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


@pytest.fixture
def run(tmp_path):
    """Run pytest over files of these texts, with the conftest.py of these tests."""
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests' / 'support')!r})\n"
        + (ROOT / "tests" / "conftest.py").read_text())

    def run(texts, *args):
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        return subprocess.run([*PYTEST, "-q", "--rootdir", tmp_path, *args, tmp_path],
                              cwd=tmp_path, capture_output=True, text=True, check=False)
    return run


def test_a_cycle_in_a_module_of_mqcore_fails_the_test_that_shows_it(run):
    """Each cycle is reported once, although no thread waited for another."""
    done = run({"test_planted.py": PLANTED})
    assert done.returncode == 1 and "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "ERROR test_planted.py::test_crossed" in done.stdout
    assert "mqcore.planted:4 held, mqcore.planted:3 taken" in done.stdout


@pytest.mark.slow
def test_a_cycle_whose_halves_are_seen_by_two_workers_fails_the_run(run):
    halves = {f"test_half_{n}.py": PLANTED.partition("def test_crossed")[0].replace(
        "planted.first, planted.second", order)
        for n, order in enumerate(["planted.first, planted.second",
                                   "planted.second, planted.first"])}
    done = run(halves, "-n", "2", "--dist", "loadfile")
    assert done.returncode == 1 and "2 passed" in done.stdout, done.stdout + done.stderr
    assert "the workers' tests together take locks in a cycle" in done.stdout
    assert "mqcore.planted:3 held, mqcore.planted:4 taken" in done.stdout
    assert run({}, "-n", "2", "--dist", "loadfile", "-k", "half_0").returncode == 0
