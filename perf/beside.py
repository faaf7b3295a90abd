"""A second Python thread in the process of an end, while it is timed.

`busy` computes in pure Python, as a program has that does more than messaging. Whenever a call lets
the GIL go, this thread has it for a switch interval (5 ms).

`watch` finds out for how long a call holds the GIL at longest. It does nothing but read the clock,
step after step, with a switch interval of 20 us; a step that took longer is time in which no other
Python thread could run. So it sees the longest call that keeps the GIL, plus the interval, plus
what it takes to hand the GIL over and to wake a thread, plus whatever took the core away meanwhile.
What it finds beside a loop without any calls is the floor: `python perf/beside.py` prints that.
A watcher costs the other thread dearly, so these are short runs of their own.
"""

from __future__ import annotations

import sys
import threading
import time

SWITCH = 20e-6
FLOOR_SECONDS = 0.3


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
    longest = 0

    def run(self) -> None:
        sys.setswitchinterval(SWITCH)
        clock = time.perf_counter_ns
        longest, last = 0, clock()
        while not self.over:
            now = clock()
            if now - last > longest:
                self.longest = longest = now - last
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
    """Seconds: what the watcher finds where nobody holds the GIL."""
    watch, end = start("watch"), time.perf_counter() + FLOOR_SECONDS
    while time.perf_counter() < end:
        pass
    return watch.stop()["held"]


if __name__ == "__main__":
    print(floor())
