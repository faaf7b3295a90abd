"""How a call lets other tasks run: turns, and threads for work that blocks.

After TURNS calls that did not wait, or after SLICE seconds of such calls, a call yields to other
tasks before it takes or sends anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from mqcore.base.native import threading
from mqcore.base.threads import Thread
from mqcore.base.virtual import monotonic, world
from mqcore.binding.sleep import Bell, in_trio, shielded

T = TypeVar("T")

TURNS = 64
SLICE = 0.0005


class _Turns(threading.local):
    count = 0
    since = 0.0


_turns = _Turns()


def due() -> bool:
    """Whether the caller must await turn() before it continues."""
    if in_trio():
        return True
    _turns.count += 1
    if _turns.count == 1:
        _turns.since = monotonic()
        return False
    return _turns.count > TURNS or monotonic() - _turns.since > SLICE


def slept() -> None:
    """The task waits: other tasks have their turn."""
    _turns.count = 0


async def turn() -> None:
    """Yield to other tasks if it is their turn. On trio this is always a cancellation
    checkpoint."""
    if not in_trio():
        _turns.count = 0
        await sys.modules["asyncio"].sleep(0)
        return
    import trio

    _turns.count += 1
    if _turns.count == 1:
        _turns.since = monotonic()
    if _turns.count > TURNS or monotonic() - _turns.since > SLICE:
        _turns.count = 0
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.checkpoint_if_cancelled()


# -- work that blocks ------------------------------------------------------------------------------


async def in_thread(fn: Callable[[], T], hurry: Callable[[], Any] | None = None) -> T:
    """Run fn() in a new thread. If cancelled, call hurry(), wait for the thread and re-raise;
    nothing keeps running in the background. In a simulated world it runs at once, in this thread,
    the only one that may."""
    if world() is not None:
        return fn()
    bell = Bell()
    out: list[T] = []
    failed: list[BaseException] = []

    def body() -> None:
        try:
            out.append(fn())
        except BaseException as error:
            failed.append(error)
        finally:
            bell.ring()

    thread = Thread(body, "mqcore-call")
    thread.start()
    again = Bell()
    try:
        await bell.wait()
    except BaseException:
        if hurry is not None:
            hurry()

        def joined() -> None:
            thread.join()
            again.ring()

        Thread(joined, "mqcore-call").start()
        await shielded(again)
        raise
    thread.join()
    if failed:
        raise failed[0]
    return out[0]
