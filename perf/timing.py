"""What every end measures with: different bodies, a timer, percentiles."""

from __future__ import annotations

import itertools
import random
import time

import beside

WARM_TRIPS = 200
WARM_BYTES = 64 << 20  # each way, in round trips
MOST_BODIES = 256  # different ones, sent in turn: nothing gains by seeing the same bytes again
BODY_BYTES = 16 << 20


def warm_trips(size: int) -> int:
    return max(5, min(WARM_TRIPS, WARM_BYTES // max(size, 1)))


def warm_messages(count: int) -> int:
    """One way, before the clock starts: so that both ends have seen every branch of theirs."""
    return max(4, min(2000, count // 8))


def bodies(size: int) -> list[bytes]:
    dice = random.Random(size)
    return [
        dice.randbytes(size) for _ in range(max(8, min(MOST_BODIES, BODY_BYTES // max(size, 1))))
    ]


def endless(size: int):
    return itertools.cycle(bodies(size))


class Timer:
    """Wall clock and CPU of this process, all its threads; and a thread beside it (beside.py)."""

    def __init__(self, thread: str = ""):
        self.name, self.found = thread, {}

    def start(self) -> None:
        self.thread = beside.start(self.name)
        self.cpu = time.process_time()
        self.at = time.perf_counter()
        self.seconds = 0.0

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self.at
        if self.thread:
            self.found = self.thread.stop()

    def result(self, messages: int, **more) -> dict:
        """CPU up to now: what a library does after the last call counts too."""
        if not self.seconds:
            self.stop()
        cpu = time.process_time() - self.cpu
        return {"seconds": self.seconds, "cpu": cpu, "messages": messages, **self.found, **more}


def percentiles(trips: list[float]) -> dict:
    trips.sort()
    at = {
        name: trips[min(len(trips) - 1, int(len(trips) * part))]
        for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
    }
    return {"min": trips[0], **at}
