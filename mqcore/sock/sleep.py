"""Which async library runs us, and its sleep: asyncio or trio, neither imported before it is used."""

from __future__ import annotations

import sys


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
