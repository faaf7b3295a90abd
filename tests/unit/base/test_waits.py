"""Event, Condition, Released and start(). tests/support/interrupts.py breaks into them."""

import os
import signal
import threading
import time

import pytest

from mqcore.base.waits import Condition, Event, Released, YieldingLock, start
from mqcore.control.loop import ControlLoop


def test_an_event_wakes_all_that_wait():
    event, woken = Event(), []
    threads = [threading.Thread(target=lambda: woken.append(event.wait(60))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert not event.is_set() and not event.wait(0) and not event.wait(0.001)
    event.set()
    for thread in threads:
        thread.join(60)
    assert woken == [True] * 5 and event.wait() and event.is_set()
    event.clear()
    assert not event.is_set() and not event.wait(-1)


def test_a_condition_sleeps_without_its_lock_until_it_holds():
    condition, things = Condition(), []

    def give():
        for n in range(3):
            with condition:         # the sleeper has let go of the lock, however often it took it
                things.append(n)
                condition.notify_all()

    giver = threading.Thread(target=give)
    with condition, condition:
        giver.start()
        assert condition.wait_for(lambda: len(things) == 3, 60)
        assert condition.lock._is_owned()
    giver.join(60)
    assert not condition.lock._is_owned()
    with condition:
        assert not condition.wait_for(lambda: False, 0.001)
        assert condition.wait_for(lambda: True, 0)


def test_a_handler_may_make_it_true_after_the_question():
    condition, done = Condition(), []

    def handler(*_):
        with condition:
            done.append(1)
            condition.notify_all()

    def asked():
        found = bool(done)
        if not found:
            signal.raise_signal(signal.SIGUSR1)
        return found

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with condition:
            assert condition.wait_for(asked)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_exception_of_a_handler_leaves_the_lock_as_it_was():
    condition = Condition()
    sleeping, struck = threading.Event(), threading.Event()
    main = threading.get_ident()

    def handler(*_):
        if not struck.is_set():
            struck.set()
            raise KeyboardInterrupt

    def strike():
        sleeping.wait(60)
        with condition:     # free: it is about to sleep
            pass
        while not struck.wait(0.01):    # a signal just before the sleep does not end it
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    striker = threading.Thread(target=strike)
    striker.start()
    try:
        with pytest.raises(KeyboardInterrupt), condition:
            condition.wait_for(sleeping.set)
        assert not condition.lock._is_owned()
    finally:
        striker.join(60)
        signal.signal(signal.SIGUSR1, before)


def test_a_wakeup_of_a_forked_child_is_closed_though_a_thread_of_the_parent_used_it():
    loop = ControlLoop()
    used = loop._wakeup         # as in the frame of a thread that is not in the child
    fd = used.fd
    loop.abandon()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    other = os.eventfd(0)       # it may get the same number
    used.abandon()
    del used
    os.fstat(other)
    os.close(other)


def test_released_gives_back_what_it_took():
    lock = threading.RLock()
    with Released(lock), Released(None):
        assert not lock._is_owned()
    with lock, lock:
        with Released(lock):
            assert not lock._is_owned()
        assert lock._is_owned()
    assert not lock._is_owned()


def test_start_reports_what_happened(monkeypatch):
    def broken():
        raise RuntimeError("can't start new thread")

    def interrupted():
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    thread = threading.Thread(target=time.time)
    monkeypatch.setattr(thread, "start", broken)
    with pytest.raises(RuntimeError, match="can't start"):
        start(thread)
    try:
        raise ValueError("what the caller handles")
    except ValueError:
        with pytest.raises(RuntimeError, match="can't start"):
            start(thread)
    monkeypatch.setattr(thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(thread)


# -- locks that a sleeping handler does not keep ---------------------------------------------------

def taken_elsewhere(lock):
    """Whether another thread gets the lock."""
    box = []

    def take():
        box.append(lock.acquire(False))
        if box[0]:
            lock.release()
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return box[0]


def test_a_yielding_lock_is_reentrant_and_excludes_other_threads():
    lock = YieldingLock()
    with lock, lock:
        assert lock._is_owned() and not taken_elsewhere(lock)
    assert not lock._is_owned() and taken_elsewhere(lock)
    with pytest.raises(RuntimeError):
        lock.release()


def test_the_main_thread_sleeps_without_its_yielding_locks():
    """Not without those of other kinds; and it has the former again afterwards, as deep as
    before."""
    first, second, plain = YieldingLock(), YieldingLock(), threading.RLock()
    event, seen = Event(), []

    def look():
        with first, second:     # waits until the main thread sleeps
            seen.append(plain.acquire(False))
        event.set()
    with first, second, first, plain:
        threading.Thread(target=look).start()
        event.wait()
        assert seen == [False]
        assert not taken_elsewhere(first) and not taken_elsewhere(second)
        with Released(plain):
            assert all(map(taken_elsewhere, (first, second, plain)))
        with pytest.raises(ZeroDivisionError), Released():
            1 / 0
        assert not taken_elsewhere(first)
    assert taken_elsewhere(first) and taken_elsewhere(second)


def test_another_thread_keeps_its_yielding_lock_while_it_sleeps():
    lock, event, inside = YieldingLock(), Event(), threading.Event()

    def sleep():
        with lock:
            inside.set()
            event.wait()
    thread = threading.Thread(target=sleep)
    thread.start()
    inside.wait()
    assert not lock.acquire(False)
    event.set()
    thread.join()
    assert taken_elsewhere(lock)
