"""Waiting for a place in a turnstile (mqcore/binding/tickets.pyx).

A threading.Lock would block an event loop, and an asyncio.Lock works with one loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.base.native import threading
from mqcore.base.virtual import monotonic, world
from mqcore.base.waits import Released
from mqcore.binding.sleep import Bell
from mqcore.binding.tickets import NONE, Ticket
from mqcore.binding.timing import left_of
from mqcore.errors import StateError


class Elsewhere(StateError):
    """This ticket is in line already, for another thread or task."""


def wait(ticket: Ticket, limit: float | None) -> bool:
    """Whether the ticket has a place by then: a time on the monotonic clock. None waits for ever, 0
    does not wait. A wait that ends without a place has no effect."""
    if limit == 0:
        return ticket.take()
    bell = threading.Lock()
    bell.acquire()
    joined = False
    try:
        joined = _join(ticket, bell.release)
        here = world()
        if not joined:
            pass
        elif here is not None:
            here.wait_for(lambda: not ticket.waits, left_of(limit))
        else:
            with Released():
                bell.acquire(timeout=-1 if limit is None else max(0.0, limit - monotonic()))
    finally:
        if joined:
            ticket.quit()
    return ticket.place != NONE


async def await_(ticket: Ticket, limit: float | None) -> bool:
    """wait(), awaitable."""
    if limit == 0:
        return ticket.take()
    bell = Bell()
    joined = False
    try:
        joined = _join(ticket, bell.ring)
        if joined:
            await bell.wait(limit)
    finally:
        if joined:
            ticket.quit()
    return ticket.place != NONE


def _join(ticket: Ticket, wake: Callable[[], Any]) -> bool:
    """Whether it is in line now; else it has a place."""
    if ticket.join(wake):
        return True
    if ticket.place == NONE:
        raise Elsewhere("another thread or task waits for the beginning of this survey already",
                        hint="iterate over it in one of them, or begin a survey for each")
    return False
