"""How a call that did not wait lets other tasks run, on asyncio and trio (pace.pyx says when)."""

from __future__ import annotations

import sys

from mqcore.binding.pace import counted, due, slept
from mqcore.binding.sleep import in_trio


async def turn() -> None:
    """Yield to other tasks if it is their turn. On trio this is always a cancellation
    checkpoint."""
    if not in_trio():
        slept()
        await sys.modules["asyncio"].sleep(0)
        return
    import trio

    if counted():
        slept()
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.checkpoint_if_cancelled()


async def fair() -> None:
    """Count a call, and yield if it is time. The calls that send and receive ask due() themselves,
    which saves a coroutine."""
    if due():
        await turn()
