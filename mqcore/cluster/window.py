"""The bytes of parts and of tunnels' data that a link has on their way, and how many there may be.

What is on its way stands in front of each small frame that follows, gossip included. On a slow link
a fixed window would hold that up until members take each other for dead. So the window begins with
`LEAST` bytes, grows while what it carries arrives at once, up to `WINDOW`, and shrinks when it
arrives more than `TARGET` seconds later than the fastest has. What is beyond the fastest is time in
queues. That a sender keeps them short by its own measure is the idea of LEDBAT (RFC 6817, 2.4).

The receiver reports what it has taken each `REPORT` bytes, see session.py.
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


class Window:
    """`clock()`: seconds."""

    __slots__ = ("_clock", "_fastest", "_marked", "_marks", "_reserved", "_taken", "limit", "sent",
                 "unacked")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.limit = LEAST
        self.unacked = 0        # bytes on their way
        self._reserved = 0      # bytes that a tunnel may send, or not
        self.sent = 0           # bytes ever, these included
        self._taken = 0         # of them
        # bytes ever without the reserved ones, at each report to expect, and when it was
        self._marks: deque[tuple[int, float]] = deque()
        self._marked = 0        # those at the last mark
        self._fastest = float("inf")

    @property
    def open(self) -> bool:
        return self.unacked + self._reserved < self.limit

    def has_room(self, more: int) -> bool:
        """Whether it would be open if it were so much larger."""
        return self.unacked + self._reserved < self.limit + more

    def send(self, size: int) -> None:
        """A message is sent."""
        self.sent += size
        self.unacked += size
        self._mark()

    def reserve(self, size: int) -> None:
        """Of a message whose turn it is: spend() or give_back() follows."""
        self._reserved += size
        self.sent += size

    def spend(self, size: int) -> None:
        """It is sent."""
        self._reserved -= size
        self.unacked += size
        self._mark()

    def _mark(self) -> None:
        """The receiver counts the same messages in the same order."""
        sent = self._taken + self.unacked
        if sent - self._marked >= REPORT:
            self._marked = sent
            self._marks.append((sent, self._clock()))

    def give_back(self, size: int) -> None:
        """It will not be sent."""
        self._reserved -= size
        self.sent -= size

    def took(self, size: int) -> None:
        """The peer has taken so much. Raises MalformedFrame."""
        if size > self.unacked:
            raise MalformedFrame("a peer says that it has taken more than was sent")
        limited = not self.open
        self.unacked -= size
        self._taken += size
        marks = self._marks
        mark = None
        while marks and marks[0][0] <= self._taken:
            mark = marks.popleft()
        if mark is not None:
            self._measured(size, mark[1], limited)

    def _measured(self, size: int, at: float, limited: bool) -> None:
        delay = self._clock() - at
        self._fastest = min(self._fastest, delay)
        off = 1 - (delay - self._fastest) / TARGET      # 1 with no queue, below 0 with a long one
        if off < 0 or limited:
            change = max(-self.limit // 4, int(size * off * (1 if off < 0 else GAIN)))
            self.limit = max(LEAST, min(WINDOW, self.limit + change))
