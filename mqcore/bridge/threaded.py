"""Sides over clients whose calls block: these run in daemon threads. A call that never returns
keeps neither the bridge nor the program from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mqcore.base.threads import Thread
from mqcore.bridge.spi import Side


class BlockingSide(Side):
    _threads: set[asyncio.Future[Any]]

    async def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """A blocking call of the client. It goes on if the caller is cancelled; see finished()."""
        loop = asyncio.get_running_loop()
        running = loop.create_future()

        def settle(done: Callable[[Any], None], result: Any) -> None:
            if not running.done():
                done(result)

        def body() -> None:
            found: tuple[Callable[[Any], None], Any]
            try:
                found = running.set_result, work(*arguments)
            except BaseException as error:
                found = running.set_exception, error
            with suppress(RuntimeError):        # the loop has been closed
                loop.call_soon_threadsafe(settle, *found)

        Thread(body, "mqcore-bridge").start()
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
