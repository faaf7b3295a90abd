"""Threads of mqcore's own: a join() that an exception interrupts is made again, and waits."""

import os
import signal
import threading
import time

import pytest

from mqcore.base import threads
from mqcore.base.threads import Thread

LIMIT = 60


class Interrupt(Exception):
    pass


@pytest.fixture
def armed():
    """A list: what the main thread does, once something is in it, is interrupted soon, once."""
    armed, over = [], threading.Event()

    def handler(*_):
        if armed:
            armed.clear()
            raise Interrupt

    def strike():
        while not over.wait(0.05):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    former = signal.signal(signal.SIGUSR1, handler)
    striker = threading.Thread(target=strike, daemon=True)
    striker.start()
    yield armed
    over.set()
    striker.join()
    signal.signal(signal.SIGUSR1, former)


def test_it_runs_and_ends():
    got = []
    thread = Thread(lambda *args: got.append((args, thread.is_current())), "one", (1, 2))
    assert thread.ident is None and not thread.is_alive()
    thread.join()       # it does not run yet
    thread.start()
    thread.join()
    assert got == [((1, 2), True)]
    assert not thread.is_alive() and not thread.is_current()


@pytest.mark.parametrize("times", [1, 3])
def test_an_interrupted_join_is_made_again(armed, times):
    go, over = threading.Event(), []

    def work():
        go.wait(LIMIT)
        over.append(True)

    thread = Thread(work, "busy")
    thread.start()
    for _ in range(times):
        with pytest.raises(Interrupt):
            armed.append("now")
            thread.join()
        assert thread.is_alive() and not over
    go.set()
    thread.join()
    assert over and not thread.is_alive()


def test_an_error_of_the_work_ends_it(monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def work():
        raise ValueError("wrong")

    thread = Thread(work, "failing")
    thread.start()
    thread.join()
    assert not thread.is_alive()
    assert [type(one.exc_value) for one in seen] == [ValueError]


def test_one_that_cannot_be_started(monkeypatch):
    def none(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start", none)
    thread = Thread(time.time, "none")
    with pytest.raises(RuntimeError, match="can't start"):
        thread.start()
    assert not thread.is_alive()
    thread.join()


def test_masked_it_gets_no_signals():
    got = []
    thread = Thread(lambda: got.append(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "masked")
    thread.start(masked=True)
    thread.join()
    assert signal.SIGINT in got[0] and signal.SIGSEGV not in got[0]


def test_a_forked_child_waits_for_nothing():
    go = threading.Event()
    thread = Thread(go.wait, "of the parent", (LIMIT,))
    thread.start()
    child = os.fork()
    if child == 0:
        try:
            told = 7 if thread.is_alive() else 0
            thread.join()
        except BaseException:
            told = 8
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go.set()
    thread.join()
