"""Waiting for a place in a turnstile (mqcore/binding/tickets.pyx).

A threading.Lock would block an event loop, and an asyncio.Lock works with one loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.base.native import threading
from mqcore.base.virtual import world
from mqcore.base.waits import Released
from mqcore.binding.sleep import Bell
from mqcore.binding.tickets import NONE, Ticket
from mqcore.binding.timing import left_of, passed


def wait(ticket: Ticket, limit: float | None, usable: Callable[[], Any] | None = None) -> bool:
    """Whether the ticket has a place by then: a time on the monotonic clock. None waits for ever, 0
    does not wait. A wait that ends without a place has no effect. usable() raises if the socket was
    closed before the ticket was in line; later, close() sends the ticket away."""
    if limit == 0:
        return ticket.take()
    here = world()
    try:
        while ticket.join((bell := _locked()).release):
            if usable is not None:
                usable()
            if passed(limit):
                break
            left = left_of(_until(ticket, limit))
            if here is not None:
                here.wait_for(lambda bell=bell: not bell.locked(), left)  # type: ignore[misc]
            else:
                with Released():
                    bell.acquire(timeout=-1 if left is None else left)
    finally:
        ticket.quit()
    return ticket.place != NONE


def _locked() -> Any:
    bell = threading.Lock()
    bell.acquire()
    return bell


def _until(ticket: Ticket, limit: float | None) -> float | None:
    """The limit, or when the ticket must look again."""
    ends = ticket.turn_ends
    return limit if ends is None else ends if limit is None else min(ends, limit)


async def await_(ticket: Ticket, limit: float | None,
                 usable: Callable[[], Any] | None = None) -> bool:
    """wait(), awaitable."""
    if limit == 0:
        return ticket.take()
    try:
        while ticket.join((bell := Bell()).ring):
            if usable is not None:
                usable()
            if passed(limit):
                break
            await bell.wait(_until(ticket, limit))
    finally:
        ticket.quit()
    return ticket.place != NONE
