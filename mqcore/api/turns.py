"""How a call lets other tasks run: turns (binding/yielding.py), and threads for work that blocks.

After a number of calls that did not wait, or after a time of such calls, a call yields to other
tasks before it takes or sends anything (binding/pace.pyx).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mqcore.base.threads import Thread
from mqcore.base.virtual import world
from mqcore.binding.pace import due, slept
from mqcore.binding.sleep import Bell, shielded
from mqcore.binding.yielding import fair, turn

__all__ = ["due", "fair", "in_thread", "slept", "turn"]
T = TypeVar("T")


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
