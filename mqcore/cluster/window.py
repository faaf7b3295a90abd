"""The bytes of messages, parts and tunnels' data that a link has on their way, and how many there
may be.

What is on its way stands in front of each small frame that follows, gossip included. On a slow link
a fixed window would hold that up until members take each other for dead. So the window begins with
`LEAST` bytes, grows while what it carries arrives at once, up to `WINDOW`, and shrinks when it
arrives more than `TARGET` seconds later than the fastest has. What is beyond the fastest is time in
queues. That a sender keeps them short by its own measure is the idea of LEDBAT (RFC 6817, 2.4).

The receiver reports what it has taken each `REPORT` bytes, see session.py, and when by its own
clock. Only differences of these delays count, so the clocks need not agree, and what a report waits
for on its way back counts for nothing. A route may become longer, so the fastest is that of this
period and the one before. Each period begins with a window of `LEAST` bytes, so that the queue of
the window itself does not become the fastest.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from mqcore.cluster.errors import MalformedFrame

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 1 << 20        # bytes
LEAST = 192 << 10       # more than a report: what is on its way always gets reported
REPORT = 128 << 10
TARGET = 0.25           # seconds in queues
GAIN = 0.25             # bytes that the window grows by for each that arrives at once
PERIOD = 60.0           # seconds


class Window:
    """`clock()`: seconds, like those of the peer's reports."""

    __slots__ = ("_before", "_begun", "_clock", "_confirmed", "_ends", "_fastest", "_mark_at",
                 "_marks", "_noted", "_reserved", "_runs", "arrived", "limit", "taken", "unacked")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.limit = LEAST
        self.unacked = 0        # bytes on their way
        self._reserved = 0      # bytes that a tunnel may send, or not
        self.taken = 0          # bytes ever that have been reported
        self.arrived = 0        # bytes ever that have been taken, whether or not that was reported
        # messages that nobody answers ("news"): how many there have ever been, and have arrived
        self._noted = self._confirmed = 0
        # what these counts become: bytes ever without the reserved ones, and news up to there
        self._runs: deque[tuple[int, int]] = deque()
        # bytes ever without the reserved ones, at each report to expect, and when it was
        self._marks: deque[tuple[int, float]] = deque()
        self._mark_at = REPORT  # `unacked` at the next mark
        self._fastest = self._before = float("inf")     # delay of this period, and of the last one
        self._ends = 0.0        # when this period is over
        self._begun = 0         # bytes ever without the reserved ones, when it began

    @property
    def open(self) -> bool:
        return self.unacked + self._reserved < self.limit

    @property
    def sent(self) -> int:
        """Bytes ever, the reserved ones included."""
        return self.taken + self.unacked + self._reserved

    def takes(self, size: int, news: bool = False, more: int = 0) -> bool:
        """send(), if it would be open with `more` bytes more."""
        unacked = self.unacked
        if unacked + self._reserved >= self.limit + more:
            return False
        # as in send(): this is called for each small message
        if news:
            self._noted += 1
        self.unacked = unacked = unacked + size
        if unacked >= self._mark_at:
            self._mark()
        return True

    def send(self, size: int, news: bool = False) -> None:
        """A message is sent. The receiver counts the same ones in the same order. news: nobody
        answers it, so it is counted until the peer has taken it."""
        if news:
            self._noted += 1
        self.unacked += size
        if self.unacked >= self._mark_at:
            self._mark()

    def unsend(self) -> None:
        """The connection was over before the last one of the news was sent."""
        self._noted -= 1

    def _mark(self) -> None:
        self._mark_at = self.unacked + REPORT
        self._marks.append((self.position(), self._clock()))

    def position(self) -> int:
        """Bytes ever without the reserved ones. The peer will say when it has taken as many: news
        are counted up to here."""
        end = self.taken + self.unacked
        if self._noted > (self._runs[-1][1] if self._runs else self._confirmed):
            self._runs.append((end, self._noted))
        return end

    def confirm(self, end: int) -> None:
        """So many bytes ever have been taken, whether or not that has been reported."""
        self.arrived = max(self.arrived, end)
        runs = self._runs
        while runs and runs[0][0] <= end:
            self._confirmed = runs.popleft()[1]

    @property
    def news(self) -> int:
        """Those of which the peer has not said that it has taken them."""
        return self._noted - self._confirmed

    def forget(self) -> int:
        """How many of the news have perhaps not been taken, now that the link is over."""
        count, self._confirmed = max(0, self.news), self._noted
        self._runs.clear()
        return count

    def reserve(self, size: int) -> None:
        """Of a message whose turn it is: spend() or give_back() follows."""
        self._reserved += size

    def spend(self, size: int) -> None:
        """It is sent."""
        self._reserved -= size
        self.send(size)

    def give_back(self, size: int) -> None:
        """It will not be sent."""
        self._reserved -= size

    def took(self, size: int, at: float) -> None:
        """The peer has taken so much: when, by its clock. Raises MalformedFrame."""
        if size > self.unacked:
            raise MalformedFrame("a peer says that it has taken more than was sent")
        limited = not self.open
        self.unacked -= size
        self._mark_at -= size
        self.taken += size
        marks = self._marks
        mark = None
        while marks and marks[0][0] <= self.taken:
            mark = marks.popleft()
        if mark is not None:
            self._measured(size, at - mark[1], limited and mark[0] > self._begun)
        if self.taken > self.arrived:
            self.confirm(self.taken)

    def _measured(self, size: int, delay: float, limited: bool) -> None:
        now = self._clock()
        if now >= self._ends:
            recent = now < self._ends + PERIOD      # else nothing was reported for one period
            self._before, self._fastest = self._fastest if recent else delay, delay
            self._ends = now + PERIOD
            self.limit = LEAST
            self._begun = self.taken + self.unacked
        self._fastest = min(self._fastest, delay)
        # 1 with no queue, below 0 with a long one
        off = 1 - (delay - min(self._fastest, self._before)) / TARGET
        if off < 0 or limited:
            change = max(-self.limit // 4, int(size * off * (1 if off < 0 else GAIN)))
            self.limit = max(LEAST, min(WINDOW, self.limit + change))
