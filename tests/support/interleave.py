"""Calls of several threads in a random order, against the end of what they use.

`rounds(make, calls, end, allowed, seed)` makes the objects, starts threads that pick calls from the
table at random, and lets the main thread call `end` in the middle. A call may fail with `allowed`
errors only, and every thread must be back in time. The seed is in each failure's text.

`forked(run)` calls run in a child, `attempted(calls, allowed)` makes each call once, and
`held_elsewhere(*locks)` has other threads hold locks, as a fork may find them.
"""

import contextlib
import os
import random
import sys
import threading
import traceback

PATIENCE = 30  # seconds until a thread that is not back counts as hanging


def one_round(make, calls, end, allowed, seed, threads=4, most=40):
    choose = random.Random(seed)
    things = make()
    wrong, over = [], threading.Event()
    begin = threading.Barrier(threads + 1)

    def work(pick):
        begin.wait()
        for _ in range(most):
            name = pick.choice(list(calls))
            try:
                calls[name](things)
            except allowed:
                pass
            except BaseException as error:
                wrong.append(f"seed {seed}: {name}: {error!r}")
                return
            if over.is_set():
                return

    gang = [threading.Thread(target=work, args=(random.Random(choose.random()),), daemon=True)
            for _ in range(threads)]
    for thread in gang:
        thread.start()
    begin.wait()
    for _ in range(choose.randrange(2000)):  # bytecodes, so that the end comes anywhere
        pass
    end(things)
    over.set()
    for thread in gang:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"seed {seed}: a call hangs after {end.__name__}"
    assert not wrong, "\n".join(wrong)


def rounds(make, calls, end, allowed, seeds):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for seed in seeds:
            one_round(make, calls, end, allowed, seed)
    finally:
        sys.setswitchinterval(before)


def attempted(calls, allowed):
    """Each call once; it may fail with `allowed`."""
    for call in calls:
        with contextlib.suppress(allowed):
            call()


def forked(run):
    """run() in a forked child, which must return and not raise."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@contextlib.contextmanager
def held_elsewhere(*locks):
    """Other threads hold these locks, each another one: no order is shown that no code takes."""
    go = threading.Event()
    with contextlib.ExitStack() as stack:
        for lock in locks:
            stack.enter_context(_held(lock, go))
        stack.callback(go.set)
        yield


@contextlib.contextmanager
def _held(lock, go):
    held = threading.Event()

    def hold():
        with lock:
            held.set()
            go.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(PATIENCE)
        yield
    finally:
        thread.join()
