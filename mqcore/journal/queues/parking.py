"""Parking: requests that wait, gets for jobs and puts for space, in the order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mqcore.journal.errors import JournalBusy
from mqcore.journal.queues.entry import Timer
from mqcore.journal.queues.options import QueueLimits
from mqcore.journal.queues.requests import Get, Put, replace

BODY = 40               # bytes that a body takes beside its own
SLACK = 16              # requests in a line that are over, beside as many as wait


@dataclass(eq=False)
class Guest:
    """A connection that has asked for something. `peer` is the socket's record of it."""

    peer: Any
    parked: dict[int, Parked] = field(default_factory=dict)     # by the request's number


@dataclass(eq=False)
class Parked:
    guest: Guest
    request: Get | Put
    deadline: float
    size: int = 0
    over: bool = False


class Parking:
    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._lines: dict[tuple[type, str], deque[Parked]] = {}
        self._over: dict[tuple[type, str], int] = {}    # how many in each line are over
        self._ends = Timer(lambda when, parked: not parked.over)
        self._bytes = 0
        self.count = 0

    def park(self, guest: Guest, request: Get | Put, deadline: float) -> None:
        """JournalBusy at the limits. The same request, come again, keeps its place."""
        if request.number in guest.parked:
            raise JournalBusy("a request with this number waits already")
        size = _held(request) if isinstance(request, Put) else 0
        if len(guest.parked) >= self._limits.waiting:
            raise JournalBusy(f"{len(guest.parked)} requests of this connection wait already")
        if self._bytes + size > self._limits.waiting_bytes:
            raise JournalBusy(f"{self._bytes} bytes wait for room in queues already")
        parked = guest.parked[request.number] = Parked(guest, request, deadline, size)
        self._bytes += size
        self.count += 1
        self._lines.setdefault((type(request), request.queue), deque()).append(parked)
        self._ends.add(deadline, parked)

    def end(self, parked: Parked) -> None:
        """It waits no longer. Idempotent."""
        if not parked.over:
            parked.over = True
            parked.guest.parked.pop(parked.request.number, None)
            self._bytes -= parked.size
            self.count -= 1
            self._tidy((type(parked.request), parked.request.queue))
            if isinstance(parked.request, Put):     # a line or timer may keep it for a while
                parked.request = replace(parked.request, bodies=[])

    def _tidy(self, key: tuple[type, str]) -> None:
        """Behind one that waits for ever, others come and go: those that are over are useless, and
        hold their requests."""
        line = self._lines.get(key)
        if line is None:
            return
        over = self._over[key] = self._over.get(key, 0) + 1
        if 2 * over > len(line) + SLACK:
            live = [parked for parked in line if not parked.over]
            line.clear()
            line.extend(live)
            del self._over[key]

    def leave(self, guest: Guest) -> int:
        """Nothing of this connection waits any longer; how many did."""
        parked = list(guest.parked.values())
        for each in parked:
            self.end(each)
        return len(parked)

    def line(self, kind: type, queue: str) -> Iterable[Parked]:
        """Those that wait at this queue, the first one first. The caller ends each or stops."""
        key = kind, queue
        while key in self._lines:
            line = self._lines[key]
            while line and line[0].over:
                line.popleft()
                self._over[key] -= 1
            if not line:
                del self._lines[key]
                self._over.pop(key, None)
                return
            yield line[0]

    def rotate(self, parked: Parked) -> None:
        """It goes behind the others."""
        line = self._lines[type(parked.request), parked.request.queue]
        if line and line[0] is parked:
            line.rotate(-1)

    def waits(self, queue: str) -> int:
        return sum(not parked.over for kind in (Get, Put)
                   for parked in self._lines.get((kind, queue), ()))

    def due(self, now: float) -> list[Parked]:
        found: list[Parked] = self._ends.due(now, 1000)
        return found

    @property
    def next(self) -> float | None:
        return self._ends.next


def _held(put: Put) -> int:
    """About the bytes of memory that it takes while it waits."""
    return sum(map(len, put.bodies)) + BODY * len(put.bodies) + len(put.headers or b"")
