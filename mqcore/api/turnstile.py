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


def wait(ticket: Ticket, limit: float | None, usable: Callable[[], Any] | None = None) -> bool:
    """Whether the ticket has a place by then: a time on the monotonic clock. None waits for ever, 0
    does not wait. A wait that ends without a place has no effect. usable() raises if the socket was
    closed before the ticket was in line; later, close() sends the ticket away."""
    if limit == 0:
        return ticket.take()
    bell = threading.Lock()
    bell.acquire()
    try:
        if ticket.join(bell.release):
            if usable is not None:
                usable()
            here = world()
            if here is not None:
                here.wait_for(lambda: not ticket.waits, left_of(limit))
            else:
                with Released():
                    bell.acquire(timeout=-1 if limit is None else max(0.0, limit - monotonic()))
    finally:
        ticket.quit()
    return ticket.place != NONE


async def await_(ticket: Ticket, limit: float | None,
                 usable: Callable[[], Any] | None = None) -> bool:
    """wait(), awaitable."""
    if limit == 0:
        return ticket.take()
    bell = Bell()
    try:
        if ticket.join(bell.ring):
            if usable is not None:
                usable()
            await bell.wait(limit)
    finally:
        ticket.quit()
    return ticket.place != NONE
