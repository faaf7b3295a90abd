"""Turnstile: a first-come lock or semaphore that threads and tasks of any number of loops share.

A threading.Lock would block an event loop, and an asyncio.Lock works with one loop only. A release
hands the lock to the first waiter, so no caller can overtake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.base.native import threading
from mqcore.base.virtual import monotonic, world
from mqcore.base.waits import Released
from mqcore.binding.sleep import Bell
from mqcore.binding.timing import left_of


class Ticket:
    __slots__ = ("mine", "wake")

    def __init__(self, wake: Callable[[], Any]) -> None:
        self.wake = wake
        self.mine = False


class Turnstile:
    """acquire and aacquire return False on time-out. A cancelled or interrupted wait has no
    effect."""

    def __init__(self, places: int = 1) -> None:
        # Reentrant: a finalizer or a signal handler may run while its thread holds it.
        self._guard = threading.RLock()
        self.places = places  # how many callers may hold it at once
        self._taken = 0
        self._line: deque[Ticket] = deque()

    def _take(self, wake: Callable[[], Any] | None) -> Ticket | None:
        """Take a place if one is free and return None; else join the queue and return a ticket."""
        with self._guard:
            if self._taken < self.places:
                self._taken += 1
                return None
            ticket = Ticket(wake or (lambda: None))
            if wake is not None:
                self._line.append(ticket)
            return ticket

    def _leave_line(self, ticket: Ticket) -> bool:
        """Leave the queue. True if the lock was handed over meanwhile."""
        with self._guard:
            if not ticket.mine:
                self._line.remove(ticket)
            return ticket.mine

    def acquire(self, limit: float | None) -> bool:
        """limit: a time on the monotonic clock. None waits for ever, 0 does not wait."""
        if limit == 0:
            return self._take(None) is None
        bell = threading.Lock()
        bell.acquire()
        ticket = self._take(bell.release)
        if ticket is None:
            return True
        here = world()
        if here is not None:
            here.wait_for(lambda: ticket.mine, left_of(limit))
            return ticket.mine or self._leave_line(ticket)
        try:
            with Released():
                bell.acquire(timeout=-1 if limit is None else max(0.0, limit - monotonic()))
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
