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
    try:
        here = world()
        if not _join(ticket, bell.release):
            pass
        elif here is not None:
            here.wait_for(lambda: ticket.place != NONE, left_of(limit))
        else:
            with Released():
                bell.acquire(timeout=-1 if limit is None else max(0.0, limit - monotonic()))
    except Elsewhere:
        raise
    except BaseException:
        ticket.leave()
        raise
    return ticket.place != NONE or _leave(ticket)


async def await_(ticket: Ticket, limit: float | None) -> bool:
    """wait(), awaitable."""
    if limit == 0:
        return ticket.take()
    bell = Bell()
    try:
        if _join(ticket, bell.ring):
            await bell.wait(limit)
    except Elsewhere:
        raise
    except BaseException:
        ticket.leave()
        raise
    return ticket.place != NONE or _leave(ticket)


def _join(ticket: Ticket, wake: Callable[[], Any]) -> bool:
    """Whether it is in line now; else it has a place."""
    if ticket.join(wake):
        return True
    if ticket.place == NONE:
        raise Elsewhere("another thread or task waits for the beginning of this survey already",
                        hint="iterate over it in one of them, or begin a survey for each")
    return False


def _leave(ticket: Ticket) -> bool:
    ticket.leave()
    return False
