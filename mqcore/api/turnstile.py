"""Turnstile: a first-come lock or semaphore that threads and tasks of any number of loops share.

A threading.Lock would block a loop, an asyncio.Lock knows one loop. Whoever leaves hands the lock
to the first in line, so that nobody can overtake.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.base.native import threading
from mqcore.sock.sleep import Bell


class Ticket:
    __slots__ = ("mine", "wake")

    def __init__(self, wake: Callable[[], Any]) -> None:
        self.wake = wake
        self.mine = False


class Turnstile:
    """acquire / aacquire give False when time is up; a cancelled or interrupted wait leaves no
    trace."""

    def __init__(self, places: int = 1) -> None:
        self._guard = threading.Lock()
        self.places = places  # how many may be through at once
        self._taken = 0
        self._line: deque[Ticket] = deque()

    def _take(self, wake: Callable[[], Any] | None) -> Ticket | None:
        """None: it is ours. Else a place in the line."""
        with self._guard:
            if self._taken < self.places:
                self._taken += 1
                return None
            ticket = Ticket(wake or (lambda: None))
            if wake is not None:
                self._line.append(ticket)
            return ticket

    def _leave_line(self, ticket: Ticket) -> bool:
        """True: it became ours meanwhile."""
        with self._guard:
            if not ticket.mine:
                self._line.remove(ticket)
            return ticket.mine

    def acquire(self, limit: float | None) -> bool:
        """limit: on the monotonic clock; None for ever, 0 not at all."""
        if limit == 0:
            return self._take(None) is None
        bell = threading.Lock()
        bell.acquire()
        ticket = self._take(bell.release)
        if ticket is None:
            return True
        try:
            bell.acquire(timeout=-1 if limit is None else max(0.0, limit - time.monotonic()))
        except BaseException:
            if self._leave_line(ticket):
                self.release()
            raise
        return ticket.mine or self._leave_line(ticket)

    async def aacquire(self, limit: float | None) -> bool:
        if limit == 0:
            return self._take(None) is None
        bell = Bell()
        ticket = self._take(bell.ring)
        if ticket is None:
            return True
        try:
            await bell.wait(limit)
        except BaseException:
            if self._leave_line(ticket):
                self.release()
            raise
        return ticket.mine or self._leave_line(ticket)

    def release(self) -> None:
        with self._guard:
            if not self._line or self._taken > self.places:
                self._taken -= 1
                return
            ticket = self._line.popleft()
            ticket.mine = True
        ticket.wake()
