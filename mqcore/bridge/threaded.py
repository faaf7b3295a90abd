"""Sides over clients whose calls block: these run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mqcore.bridge.spi import Side


class BlockingSide(Side):
    _threads: set[asyncio.Future[Any]]

    async def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """A blocking call of the client. It goes on if the caller is cancelled; see finished()."""
        running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
        if not hasattr(self, "_threads"):
            self._threads = set()
        self._threads.add(running)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._threads.discard(running)
        running.cancelled() or running.exception()      # perhaps no call reads it

    @property
    def busy(self) -> bool:
        return bool(getattr(self, "_threads", ()))

    async def finished(self) -> None:
        """Until no thread uses the client. Before, it must not be freed."""
        while self.busy:
            await asyncio.wait(self._threads.copy())
