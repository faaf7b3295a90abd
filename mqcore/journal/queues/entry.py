"""What a queue server knows of a queue, and (bulk.pyx) of a job and a delivery. No I/O, no
clock."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from mqcore.journal.errors import JobTooLarge
from mqcore.journal.queues.bulk import DELAYED, GONE, HELD, READY, Entry, Lease
from mqcore.journal.queues.options import QueueOptions, QueueStats

__all__ = ["DELAYED", "GONE", "HELD", "READY", "Entry", "Lease", "QueueState", "Timer", "earliest",
           "numbers", "runs"]

SLACK = 1000            # useless entries of a lane or heap, beside as many as are useful


class QueueState:
    """One queue: its lanes, a deque for each priority, and what it counts."""

    def __init__(self, name: str, options: QueueOptions) -> None:
        self.name = name
        self.options = options
        self.lanes: dict[int, deque[Entry]] = {}    # in the order of priorities
        self.stale = 0                              # entries in lanes that are gone
        self.jobs = self.bytes = self.ready = self.held = 0
        self.counts = Counter[str]()

    def lane(self, priority: int) -> deque[Entry]:
        lane = self.lanes.get(priority)
        if lane is None:
            lane = self.lanes[priority] = deque()
            self.lanes = dict(sorted(self.lanes.items()))
        return lane

    def push(self, entry: Entry, front: bool = False) -> None:
        """Make it ready. front: it has been here before, so it goes before all others."""
        lane = self.lane(entry.priority)
        if front:
            lane.appendleft(entry)
        else:
            lane.append(entry)
        entry.state = READY
        self.ready += 1

    def full(self, jobs: int, size: int) -> bool:
        """Whether so much more would be too much."""
        return self.jobs + jobs > self.options.max_jobs or \
            self.bytes + size > self.options.max_bytes

    def check_size(self, size: int, most: int) -> None:
        """JobTooLarge: neither this queue nor its server, which holds `most` bytes, ever has space
        for a job of that size."""
        limit = min(self.options.max_bytes, most)
        if size > limit:
            self.counts["refused"] += 1
            raise JobTooLarge(f"a job of {size} bytes with its headers; the queue {self.name!r} "
                              f"holds {limit} bytes at most")

    def stats(self) -> QueueStats:
        known = {name: n for name, n in self.counts.items() if name in QueueStats.__annotations__}
        return QueueStats(ready=self.ready, held=self.held, bytes=self.bytes,
                          delayed=self.jobs - self.ready - self.held, **known)

    def waiting(self) -> Iterable[Entry]:
        """Those that are ready, best first."""
        return (entry for lane in self.lanes.values() for entry in lane if entry.state == READY)

    def left_behind(self) -> None:
        """An entry in a lane is gone."""
        self.stale += 1
        if self.stale > self.ready + SLACK:
            for priority, lane in self.lanes.items():
                self.lanes[priority] = deque(entry for entry in lane if entry.state == READY)
            self.stale = 0


class Timer:
    """Things by the time when they are due. Those that lose their sense stay until then, unless
    they become many."""

    def __init__(self, alive: Callable[[float, Any], bool]) -> None:
        self._alive = alive
        self._heap: list[tuple[float, int, Any]] = []
        self._count = itertools.count()
        self._bound = SLACK

    def add(self, when: float, thing: Any) -> None:
        heapq.heappush(self._heap, (when, next(self._count), thing))
        if len(self._heap) > self._bound:
            self._heap = [row for row in self._heap if self._alive(row[0], row[2])]
            heapq.heapify(self._heap)
            self._bound = 2 * len(self._heap) + SLACK

    def due(self, now: float, most: int) -> list[Any]:
        """Up to `most` of those that are due and alive."""
        found: list[Any] = []
        while self._heap and self._heap[0][0] <= now and len(found) < most:
            when, _, thing = heapq.heappop(self._heap)
            if self._alive(when, thing):
                found.append(thing)
        return found

    @property
    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None


def earliest(timers: Iterable[Timer]) -> float | None:
    """When the first of all their things is due."""
    found = None
    for timer in timers:
        heap = timer._heap
        if heap and (found is None or heap[0][0] < found):
            found = heap[0][0]
    return found


def runs(ids: Iterable[int]) -> list[int]:
    """Numbers as [first, count, first, count, ...]: jobs come and go in runs."""
    found: list[int] = []
    last = -2
    for number in ids:
        if number == last + 1:
            found[-1] += 1
        else:
            found += (number, 1)
        last = number
    return found


def numbers(packed: list[int]) -> Iterable[int]:
    """The numbers of runs()."""
    for first, count in zip(packed[::2], packed[1::2], strict=True):
        yield from range(first, first + count)
