"""Answers that wait because their link is full. Small ones do not wait for large ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mqcore.cluster.session import SHORT

SMALL = 200             # bytes of memory that a frame takes besides what it carries
MOST = 64 << 20         # bytes that wait, besides the first large one


class Replies:
    """Encoded frames. `send(data)` says whether the link has taken one: it is asked for each once,
    and again when there may be room."""

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        self._send = send
        self._small: deque[bytes] = deque()
        self._large: deque[bytes] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._small) + len(self._large)

    @property
    def many(self) -> bool:
        first = len(self._large[0]) if self._large else 0
        return self.bytes - first > MOST

    def add(self, data: bytes) -> None:
        """Send it, behind those of its kind."""
        waiting = self._small if len(data) <= SHORT else self._large
        if waiting or not self._send(data):
            waiting.append(data)
            self.bytes += len(data) + SMALL

    def go_on(self) -> None:
        """Some may fit now."""
        for waiting in (self._small, self._large):
            while waiting and self._send(waiting[0]):
                self.bytes -= len(waiting.popleft()) + SMALL

    def give_up(self) -> int:
        """How many will not be sent."""
        count = len(self)
        self._small.clear()
        self._large.clear()
        self.bytes = 0
        return count
