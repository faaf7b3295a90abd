"""A second Python thread in the process of an end, while it is timed.

`busy` computes in pure Python, as a program has that does more than messaging. Whenever a call lets
the GIL go, this thread has it for a switch interval (5 ms).

`watch` finds out for how long a call holds the GIL at longest. It sleeps for 50 us, which lets the
GIL go, wants it back (with a switch interval of 20 us), and reads the clock. A call that keeps the
GIL for longer makes the step longer, so the longest step is an upper bound: the longest such call,
plus the sleep, the interval, handing over and waking up. What it finds beside a loop without any
calls is the floor: `python perf/beside.py` prints that. It sleeps because a watcher that is always
awake takes a core, and then measures how it waits for one. Still it costs the thread it watches a
little, so these are short runs of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import sys
import threading
import time

SWITCH, STEP = 20e-6, 50e-6
PR_SET_TIMERSLACK = 29
FLOOR_SECONDS, FLOOR_TIMES = 0.1, 3  # the median of these is not a chance hit


def sharp_sleep() -> None:
    """Let the kernel end this thread's sleeps when they end, not up to 50 us later (Linux)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def first_in_line() -> None:
    """If permitted, this thread runs as soon as it can, and its results exclude the scheduler's
    slices of some milliseconds. It sleeps nearly always, so it starves no other thread."""
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(1))


class Busy(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.over = False

    def run(self) -> None:
        while not self.over:
            sum(i * i for i in range(100))

    def stop(self) -> dict:
        self.over = True
        return {}


class Watch(Busy):
    longest = 0  # ns

    def run(self) -> None:
        sys.setswitchinterval(SWITCH)
        sharp_sleep()
        first_in_line()
        clock, sleep, last = time.perf_counter_ns, time.sleep, time.perf_counter_ns()
        while not self.over:
            sleep(STEP)
            now = clock()
            self.longest = max(self.longest, now - last)
            last = now

    def stop(self) -> dict:
        self.over = True
        return {"held": self.longest / 1e9}


THREADS = {"busy": Busy, "watch": Watch}


def start(name: str) -> Busy | None:
    if not name:
        return None
    thread = THREADS[name]()
    thread.start()
    return thread


def floor() -> float:
    """Seconds: the watcher's result while no thread holds the GIL."""
    found = []
    for _ in range(FLOOR_TIMES):
        watch, end = start("watch"), time.perf_counter() + FLOOR_SECONDS
        while time.perf_counter() < end:
            pass
        found.append(watch.stop()["held"])
    return statistics.median(found)


if __name__ == "__main__":
    print(floor())
