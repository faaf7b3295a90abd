"""Waiting for a place in a turnstile (mqcore/binding/tickets.pyx).

A threading.Lock would block an event loop, and an asyncio.Lock works with one loop only.
"""

from __future__ import annotations

from mqcore.base.native import threading
from mqcore.base.virtual import monotonic, world
from mqcore.base.waits import Released
from mqcore.binding.sleep import Bell
from mqcore.binding.tickets import NONE, Ticket
from mqcore.binding.timing import left_of


def wait(ticket: Ticket, limit: float | None) -> bool:
    """Whether the ticket has a place by then: a time on the monotonic clock. None waits for ever, 0
    does not wait. A wait that ends without a place has no effect."""
    if limit == 0:
        return ticket.take()
    bell = threading.Lock()
    bell.acquire()
    try:
        ticket.join(bell.release)
        here = world()
        if here is not None:
            here.wait_for(lambda: ticket.place != NONE, left_of(limit))
        else:
            with Released():
                bell.acquire(timeout=-1 if limit is None else max(0.0, limit - monotonic()))
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
        ticket.join(bell.ring)
        await bell.wait(limit)
    except BaseException:
        ticket.leave()
        raise
    return ticket.place != NONE or _leave(ticket)


def _leave(ticket: Ticket) -> bool:
    ticket.leave()
    return False
