"""Turnstile: a first-come lock or semaphore that threads and tasks of any number of loops share.

A threading.Lock would block an event loop, and an asyncio.Lock works with one loop only. A place
that is given back goes to the first in line, so no caller overtakes one that waits.
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

NONE, FIRST, BESIDE = range(3)  # places


class Ticket:
    __slots__ = ("place", "wake")

    def __init__(self, wake: Callable[[], Any]) -> None:
        self.wake = wake
        self.place = NONE


class Turnstile:
    """The first place, and `beside` more. acquire() and aacquire() return a place, NONE on
    time-out; release() takes it back. A cancelled or interrupted wait has no effect.

    The first place is a lock, so that a caller who meets nobody pays for nothing else: while `line`
    is empty, `first.acquire(False)` takes that place. release(FIRST) takes it back."""

    def __init__(self, beside: int = 0) -> None:
        # Reentrant: a finalizer or a signal handler may run while its thread holds it.
        self._guard = threading.RLock()
        self.first = threading.Lock()
        self.line: deque[Ticket] = deque()
        self.beside = beside
        self._taken = 0  # of those beside

    def _free(self) -> int:
        """Take a free place. Under the guard."""
        if self.first.acquire(False):
            return FIRST
        if self._taken < self.beside:
            self._taken += 1
            return BESIDE
        return NONE

    def _put(self, place: int) -> None:
        """Give back a place. Under the guard."""
        if place == FIRST:
            self.first.release()
        else:
            self._taken -= 1

    def _try(self) -> int:
        with self._guard:
            return NONE if self.line else self._free()

    def _join_line(self, wake: Callable[[], Any]) -> Ticket:
        ticket = Ticket(wake)
        with self._guard:
            self.line.append(ticket)
        self._admit()  # a place that was given back meanwhile met an empty line
        return ticket

    def _leave_line(self, ticket: Ticket) -> int:
        """The ticket's place, if it has one by now."""
        with self._guard:
            if ticket.place == NONE:
                self.line.remove(ticket)
            return ticket.place

    def _admit(self) -> None:
        """Free places go to those first in line."""
        while self.line:
            with self._guard:
                place = self._free()
                if place == NONE:
                    return
                if not self.line:
                    self._put(place)
                    continue
                ticket = self.line.popleft()
                ticket.place = place
            ticket.wake()

    def acquire(self, limit: float | None) -> int:
        """limit: a time on the monotonic clock. None waits for ever, 0 does not wait."""
        place = self._try()
        if place != NONE or limit == 0:
            return place
        bell = threading.Lock()
        bell.acquire()
        ticket = self._join_line(bell.release)
        here = world()
        if here is not None:
            here.wait_for(lambda: ticket.place != NONE, left_of(limit))
            return ticket.place or self._leave_line(ticket)
        try:
            with Released():
                bell.acquire(timeout=-1 if limit is None else max(0.0, limit - monotonic()))
        except BaseException:
            self.release(self._leave_line(ticket))
            raise
        return ticket.place or self._leave_line(ticket)

    async def aacquire(self, limit: float | None) -> int:
        place = self._try()
        if place != NONE or limit == 0:
            return place
        bell = Bell()
        ticket = self._join_line(bell.ring)
        try:
            await bell.wait(limit)
        except BaseException:
            self.release(self._leave_line(ticket))
            raise
        return ticket.place or self._leave_line(ticket)

    def release(self, place: int) -> None:
        """Give back what acquire() returned, and let the first in line have it."""
        if place == FIRST:
            self.first.release()
        elif place == BESIDE:
            with self._guard:
                self._taken -= 1
        if self.line:
            self._admit()
