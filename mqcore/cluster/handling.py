"""The handlers that run, and which of them a leave waits for.

A leave cancels the handlers of its node and waits for their end. A handler may itself close a node,
its own or another one, in its task or in one that it starts, and then waits for the leave. So a
leave that begins within a handler waits neither for that one, nor for any handler that another
leave has begun within. All leaves that wait for each other have begun within handlers, so none of
them waits. A leave that has begun elsewhere waits for all handlers.

Where a leave has begun is known by its context (contextvars), which tasks, callbacks and the worker
threads of asyncio and trio inherit from the handler that starts them, but a `threading.Thread` does
not. A handler may also wait for a leave that has begun elsewhere, or ignore that it is cancelled:
no leave waits longer than PATIENCE.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqcore.cluster.loops import Loop

PATIENCE = 5.0      # seconds, while the loop runs, that a leave waits for cancelled handlers
GLANCE = 0.02       # seconds until it looks again whether leaves have begun within them


class Handler:
    """One call of a service's method. `task`: it runs in, `thread`: that of a plain method, 0 if it
    has none. `leaves`: those that have begun within it, and are not over. `stops`: for how many
    stops of services it waits."""

    __slots__ = ("leaves", "over", "service", "stops", "task", "thread")

    def __init__(self, task: Any, service: Any) -> None:
        self.task = task
        self.service = service
        self.thread = 0
        self.leaves: set[object] = set()        # of any thread's nodes
        self.over = False
        self.stops = 0


_AROUND: ContextVar[tuple[Handler, ...]] = ContextVar("mqcore_cluster_handlers", default=())


def around() -> tuple[Handler, ...]:
    """The handlers that the caller's work belongs to, and that run."""
    handlers = _AROUND.get()
    return tuple([one for one in handlers if not one.over]) if handlers else ()


async def handle(loop: Loop, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
    """Await it as a handler of this loop."""
    handler = Handler(loop.this_task(), getattr(function, "__self__", None))
    _AROUND.set((*around(), handler))
    loop.handlers.add(handler)
    try:
        await function(*args)
    finally:
        handler.over, handler.task = True, None     # contexts that live longer hold it
        loop.handlers.discard(handler)


def in_its_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a handler's plain method, in the thread that it has got."""
    handler = _AROUND.get()[-1]
    handler.thread = threading.get_ident()
    try:
        return function(*args)
    finally:
        handler.thread = 0      # the thread serves others next


def itself(task: Any = None) -> Handler | None:
    """The handler that makes this call, in its own thread or in this task. What it waits for must
    not wait for its end. A plain method may run a loop with other nodes, and theirs, in its thread:
    the innermost counts."""
    here = threading.get_ident()
    return next((one for one in reversed(around())
                 if one.thread == here or task is not None and one.task is task), None)


@contextmanager
def stopping(caller: Handler | None) -> Iterator[None]:
    """This handler waits for the stop of a service."""
    if caller is None:
        yield
        return
    caller.stops += 1
    try:
        yield
    finally:
        caller.stops -= 1


@contextmanager
def under_way() -> Iterator[None]:
    """The caller's leave has begun, and ends with this."""
    leave, handlers = object(), around()
    for handler in handlers:
        handler.leaves.add(leave)
    try:
        yield
    finally:
        for handler in handlers:
            handler.leaves.discard(leave)


def awaited(handlers: set[Handler]) -> set[Handler]:
    """Those that the caller's leave waits for."""
    own = around()
    return {one for one in handlers if one not in own and not one.leaves} if own else handlers
