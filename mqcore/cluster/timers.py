"""Timers of a node, most of which are cancelled before they are due. No I/O.

A request has a time-out of seconds and is answered after microseconds. asyncio keeps the handles of
cancelled timers in a heap that compares them in Python, which costs more than sealing the request.
Here a cancelled timer is a row that is left where it is, and one timer of the event loop stands for
all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

VOID = 256      # cancelled timers that are kept before their places are used again

Row = list[Any]     # [when, number, function]; None for the function: cancelled


class Timers:
    """`arm(when)` hears of each timer that is due before all others. Then run() must be called at
    that time or later. Times are of time.monotonic(), in seconds."""

    def __init__(self, arm: Callable[[float], None],
                 trouble: Callable[[BaseException], None]) -> None:
        self._arm = arm
        self._trouble = trouble
        self._heap: list[Row] = []
        self._number = 0
        self._void = 0          # rows of cancelled timers

    def __len__(self) -> int:
        """Those that are not cancelled."""
        return len(self._heap) - self._void

    def at(self, when: float, function: Callable[[], Any]) -> Row:
        """Call the function then; cancel() takes what this returns."""
        self._number += 1       # no two rows compare their functions
        row = [when, self._number, function]
        heapq.heappush(self._heap, row)
        if self._heap[0] is row:
            self._arm(when)
        return row

    def cancel(self, row: Row) -> None:
        """Idempotent, and possible when it has been called, too."""
        if row[2] is None:
            return
        row[2] = None
        self._void += 1
        if self._void > VOID and 2 * self._void > len(self._heap):
            self._heap = [row for row in self._heap if row[2] is not None]
            heapq.heapify(self._heap)
            self._void = 0

    def run(self, now: float) -> float | None:
        """Call what is due. Returns when the next one is, None if there is none."""
        while self._heap:
            when, _, function = self._heap[0]
            if function is not None and when > now:
                return float(when)
            row = heapq.heappop(self._heap)
            if function is None:
                self._void -= 1
                continue
            row[2] = None
            try:
                function()
            except Exception as error:      # the others go on
                self._trouble(error)
        return None
