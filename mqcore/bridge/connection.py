"""Connection: one side of a bridge, opened again with growing pauses whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from mqcore.base.described import described, printable, report
from mqcore.bridge.errors import BridgeLost

if TYPE_CHECKING:
    from mqcore.bridge.spi import Side

S = TypeVar("S", bound="Side")

FIRST, LONGEST = 0.1, 30.0      # seconds of pause
OPENING = 30.0                  # until an open() counts as failed
CLOSING = 5.0
QUIET = 60.0                    # between two warnings of one side
LONGEST_TEXT = 500              # characters of a warning

_log = logging.getLogger("mqcore.bridge.connection")


class Connection(Generic[S]):
    """state: "closed", "connecting", "connected" or "waiting". generation: counts connections.
    error: what ended the last one. The tasks of one event loop share it."""

    def __init__(self, side: S, first: float = FIRST, longest: float = LONGEST) -> None:
        self.side = side
        self.state = "closed"
        self.generation = 0
        self.error: BaseException | None = None
        self.reconnects = 0         # connections lost, and attempts that failed
        self.transient: tuple[type[BaseException], ...] = (
            *side.transient, TimeoutError, BridgeLost)
        self._first = first
        self._longest = longest
        self._pause = 0.0
        self._told = False          # a warning of this outage has been logged
        self._quiet = -QUIET        # the last one
        self._lock = asyncio.Lock()

    async def opened(self) -> int:
        """Wait until it is connected. Returns the generation. Raises errors that do not pass: bad
        arguments, a package that is missing."""
        if self.state == "connected":
            return self.generation
        async with self._lock:
            while self.state != "connected":
                await self._wait()
                self.state = "connecting"
                try:
                    async with asyncio.timeout(OPENING):
                        await self.side.open()
                except self.transient as error:
                    await self._failed(error)
                    continue
                self.generation += 1
                self.state = "connected"
                self._told = False
        return self.generation

    async def _wait(self) -> None:
        if self._pause:
            self.state = "waiting"
            await asyncio.sleep(self._pause * random.uniform(0.75, 1.25))

    async def _failed(self, error: BaseException) -> None:
        self.error = error
        self.reconnects += 1
        self._pause = min(max(2 * self._pause, self._first), self._longest)
        self.state = "waiting"
        await self.close()
        self._warn(error)

    def _warn(self, error: BaseException) -> None:
        """Once for each outage, and at most once in `QUIET` seconds: the peer chooses the text, and
        how often."""
        now = time.monotonic()
        if self._told or now - self._quiet < QUIET:
            return
        self._told, self._quiet = True, now
        try:
            text = f"a bridge tries again to connect {self.side.explain()}: {described(error)}"
            _log.warning("%s", printable(text[:LONGEST_TEXT])[:LONGEST_TEXT])
        except Exception:       # of a plug-in, or of a program's handler
            report()

    async def lost(self, generation: int, error: BaseException) -> None:
        """An operation of that connection failed."""
        async with self._lock:
            if generation == self.generation and self.state == "connected":
                await self._failed(error)

    def worked(self) -> None:
        """An operation succeeded: the next pause is a short one again."""
        self._pause = 0.0

    async def close(self) -> None:
        """Close the side; errors of closing do not matter any more."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSING):
                await self.side.close()

    def explain(self) -> str:
        text = f"{self.side.explain()}: {self.state}"
        if self.reconnects:
            text += f", lost or failed {self.reconnects} times"
        if self.error is not None:
            text += f", last by {type(self.error).__name__}: {self.error}"
        return text
