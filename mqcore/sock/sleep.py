"""Which async library runs us, and its sleep: asyncio or trio, neither imported before it is used."""

from __future__ import annotations

import sys
from typing import Any


def running() -> str:
    """"asyncio", "trio", or "" when no loop runs in this thread."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return "trio"
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return "asyncio"
    return ""


async def sleep(seconds: float) -> None:
    await sys.modules[running()].sleep(seconds)


async def in_thread(fn: Any, *args: Any) -> Any:
    """fn(*args) on a thread, awaited; not abandoned when the waiting task is cancelled."""
    library = running()
    if library == "trio":
        return await sys.modules["trio"].to_thread.run_sync(fn, *args)
    asyncio = sys.modules["asyncio"]
    return await asyncio.get_running_loop().run_in_executor(None, fn, *args)
