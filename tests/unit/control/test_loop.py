import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque

import pytest

from mqcore.control import loop as loop_module
from mqcore.control.loop import ControlLoop


def test_calls_keep_their_order(loop):
    seen = []
    for i in range(1000):
        loop.call(seen.append, i)
    loop.call_wait(lambda: None)
    assert seen == list(range(1000))


def test_calls_of_many_threads_all_arrive(loop):
    seen = []
    threads = [threading.Thread(target=lambda k=k: [loop.call(seen.append, (k, i))
                                                    for i in range(2000)]) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    loop.call_wait(lambda: None)
    assert sorted(seen) == [(k, i) for k in range(4) for i in range(2000)]


def test_call_wait_gives_result_and_exception(loop):
    assert loop.call_wait(threading.current_thread).name == "mqcore-control"
    assert loop.call_wait(lambda: loop.call_wait(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        loop.call_wait(lambda: 1 / 0)


def test_an_exception_is_reported_and_the_loop_goes_on(loop, errors):
    loop.call(lambda: 1 / 0)
    loop.call(sys.exit)
    loop.call_at(0, lambda: [][1])
    loop.call_wait(lambda: None)
    loop.call_wait(lambda: None)
    assert [type(e) for e in errors] == [ZeroDivisionError, SystemExit, IndexError]
    errors.clear()


def test_a_hook_that_raises_does_not_end_the_thread():
    loop = ControlLoop(on_error=lambda *_: 1 / 0)
    loop.start()
    loop.call(lambda: [][1])
    assert loop.call_wait(lambda: 5) == 5
    loop.stop()


def test_timers_run_in_order_and_never_early(loop):
    seen, done = [], threading.Event()
    now = time.monotonic()

    def add():                  # on its thread, where none runs meanwhile
        for delay in random.Random(1).sample([0.03, 0.01, 0.02, 0.0, 0.005], 5):
            loop.call_at(now + delay, lambda d=delay: seen.append((d, time.monotonic())))
        loop.call_at(now + 0.04, done.set)
    loop.call_wait(add)
    assert done.wait(10)
    assert [d for d, _ in seen] == [0.0, 0.005, 0.01, 0.02, 0.03]
    assert all(at >= now + d for d, at in seen)


def test_a_cancelled_timer_does_not_run(loop):
    seen = []
    timer = loop.call_at(time.monotonic() + 0.02, seen.append, 1)
    timer.cancel()
    timer.cancel()
    done = threading.Event()
    loop.call_at(time.monotonic() + 0.03, done.set)
    assert done.wait(10) and seen == []


def test_cancelled_timers_are_swept(loop):
    far = time.monotonic() + 1000
    for _ in range(5000):
        loop.call_at(far, print).cancel()
    timers = [loop.call_at(far, print) for _ in range(500)]
    loop.call_wait(lambda: None)
    for timer in timers[1:]:
        loop.call_wait(timer.cancel)
    loop.call_wait(lambda: None)
    loop.call_wait(lambda: None)
    assert len(loop._timers) < 200


def test_a_manual_clock_and_wake():
    now = [100.0]
    loop = ControlLoop(clock=lambda: now[0])
    loop.start()
    done = threading.Event()
    loop.call_at(130.0, done.set)
    loop.call_wait(lambda: None)
    assert not done.is_set()
    now[0] = 129.9
    loop.wake()
    loop.call_wait(lambda: None)
    assert not done.is_set()
    now[0] = 130.0
    loop.wake()
    assert done.wait(10)
    loop.stop()


def test_it_sleeps_until_the_next_timer(loop):
    """No busy loop: a second of waiting with a timer ahead costs next to no processor time."""
    loop.call_at(time.monotonic() + 100, print)
    turns = [0]
    real = loop._turn

    def counted():
        turns[0] += 1
        real()

    loop.call_wait(setattr, loop, "_turn", counted)
    done = threading.Event()
    loop.call_at(time.monotonic() + 0.3, done.set)
    assert done.wait(10)
    assert turns[0] < 10


def test_reader_and_writer_on_one_descriptor(loop):
    a, b = socket.socketpair()
    a.setblocking(False)
    got, wrote = threading.Event(), threading.Event()
    loop.add_reader(a.fileno(), lambda: (a.recv(1), got.set()))

    def writable():
        wrote.set()
        loop.remove(a.fileno())
        loop.add_reader(a.fileno(), lambda: (a.recv(9), got.set()))

    loop.add_writer(a.fileno(), writable)
    assert wrote.wait(10)
    b.send(b"x")
    assert got.wait(10)
    loop.remove(a.fileno())
    loop.remove(a.fileno())
    got.clear()
    b.send(b"y")
    loop.call_wait(lambda: None)
    assert not got.is_set()
    a.close()
    b.close()


def test_a_handler_may_remove_another_that_is_ready_too(loop):
    pairs = [socket.socketpair() for _ in range(2)]
    seen = []

    def handler(me, other):
        seen.append(me)
        loop.remove(pairs[other][0].fileno())
        loop.remove(pairs[me][0].fileno())

    def both():
        for i in (0, 1):
            loop.add_reader(pairs[i][0].fileno(), lambda i=i: handler(i, 1 - i))
            pairs[i][1].send(b"x")

    loop.call_wait(both)
    loop.call_wait(lambda: None)
    loop.call_wait(lambda: None)
    assert len(seen) == 1
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_resolve_does_not_stall_the_loop(loop):
    gate, done, results = threading.Event(), threading.Event(), []

    def collect(value, error):
        results.append((value, type(error), threading.current_thread().name))
        if len(results) == 2:
            done.set()

    loop.resolve("late", lambda: gate.wait(10) and "late", collect)
    loop.resolve("wrong", lambda: 1 / 0, collect)
    assert loop.call_wait(lambda: 3) == 3
    gate.set()
    assert done.wait(10)
    assert sorted(results, key=str) == [("late", type(None), "mqcore-control"),
                                        (None, ZeroDivisionError, "mqcore-control")]


@pytest.mark.parametrize("kind", ["resolve", "authenticate"])
def test_workers_are_few_and_end(loop, kind):
    for workers in (*loop._look_ups._pools, loop._authenticators):
        workers._free = deque(range(3))
    lock, state, done = threading.Lock(), {"now": 0, "most": 0, "left": 50}, threading.Event()

    def job():
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
        time.sleep(0.001)
        with lock:
            state["now"] -= 1

    def answer(value, error):
        state["left"] -= 1
        if state["left"] == 0:
            done.set()

    for number in range(50):
        if kind == "resolve":
            loop.resolve(number, job, answer)
        else:
            loop.authenticate(job, answer)
    assert done.wait(10)
    assert state["most"] <= 3


def test_slow_callbacks_hold_up_no_look_up(loop):
    go, found = threading.Event(), threading.Event()
    for _ in range(3 * loop_module.MAX_WORKERS):
        loop.authenticate(go.wait, lambda *_: None)
    loop.resolve("name", lambda: None, lambda *_: found.set())
    assert found.wait(10)
    go.set()


def test_stop_runs_what_was_called_before_and_is_idempotent():
    loop = ControlLoop()
    loop.start()
    loop.start()
    seen = []
    for i in range(100):
        loop.call(seen.append, i)
    loop.stop()
    assert seen == list(range(100))
    loop.stop()
    loop.call(seen.append, "dropped")
    assert loop.call_wait(lambda: "direct") == "direct"
    assert seen == list(range(100))


def test_stop_of_a_loop_that_never_started():
    loop = ControlLoop()
    loop.stop()
    loop.start()
    assert not loop.running


def test_stop_from_the_thread_itself():
    loop = ControlLoop()
    loop.start()
    thread = loop._thread
    loop.call(loop.stop)
    thread.join()


def test_stop_against_callers():
    """call and call_wait from other threads at any moment of a stop: none hangs, none raises."""
    for _ in range(20):
        loop = ControlLoop()
        loop.start()
        failures, going = [], threading.Barrier(3)

        def caller(loop=loop, failures=failures, going=going):
            going.wait()
            try:
                for _ in range(50):
                    loop.call(lambda: None)
                    assert loop.call_wait(lambda: 1) == 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=caller) for _ in range(2)]
        [t.start() for t in threads]
        going.wait()
        loop.stop()
        [t.join(20) for t in threads]
        assert failures == [] and not any(t.is_alive() for t in threads)


def test_its_thread_takes_no_signals(loop):
    masks = loop.call_wait(signal.pthread_sigmask, signal.SIG_BLOCK, [])
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM} <= masks
    assert signal.SIGSEGV not in masks
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12: threads are there
def test_a_forked_child_leaves_the_parents_loop_alone(loop):
    a, b = socket.socketpair()
    got = threading.Event()
    loop.add_reader(a.fileno(), lambda: (a.recv(1), got.set()))
    idle = ControlLoop()  # without a thread, so that a wake-up would stay to be seen
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            loop.call(os._exit, 3)
            idle.call(os._exit, 3)
            loop.remove(a.fileno())
            loop.abandon()
            loop.stop()
            fresh = ControlLoop()
            fresh.start()
            status = fresh.call_wait(lambda: 0)
            fresh.stop()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with pytest.raises(BlockingIOError):
        os.eventfd_read(idle._wakeup_fd)
    idle.stop()
    b.send(b"x")
    assert got.wait(10)
    loop.remove(a.fileno())
    a.close()
    b.close()


def test_leaving_the_interpreter_with_a_running_loop():
    script = textwrap.dedent("""
        from mqcore.control.loop import ControlLoop
        loop = ControlLoop()
        loop.start()
        loop.resolve("name", lambda: __import__("time").sleep(60), print)
        class Late:
            def __del__(self):
                loop.call_wait(int)
        late = Late()
        print(loop.call_wait(lambda: "ok"))
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_an_error_that_nobody_asked_for_is_printed():
    script = ("from mqcore.control.loop import ControlLoop\nloop = ControlLoop()\nloop.start()\n"
              "loop.call(lambda: 1 / 0)\nloop.call_wait(lambda: None)\nloop.stop()")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60)
    assert "mqcore-control" in done.stderr and "ZeroDivisionError" in done.stderr
