"""Waiting for a journal to grow: inotify, or looking again and again where there is none.

Every wait ends after POLL seconds at the latest, and then the journal is looked at: network file
systems do not tell of what other machines write.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mqcore.api import turns
from mqcore.errors import UsageError
from mqcore.journal.store.notify import unwatch_folder, watch_folder

T = TypeVar("T")
POLL = 0.5              # seconds between two looks with inotify
POLL_WITHOUT = 0.01     # and without


class Watch:
    """Ends waits when a file in the folder grows or appears, or when the reader closes."""

    def __init__(self, folder: Path, closing: int) -> None:
        self.fd = watch_folder(folder)
        self.closing = closing
        self.longest = POLL if self.fd >= 0 else POLL_WITHOUT

    def wait_change(self, seconds: float | None) -> None:
        fds = [fd for fd in (self.fd, self.closing) if fd >= 0]
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        poller.poll(1000 * self._bound(seconds))
        self.drain()

    async def await_change(self, seconds: float | None) -> None:
        library = running()
        if library == "trio":
            await self._trio(self._bound(seconds))
        else:
            await self._asyncio(self._bound(seconds))
        self.drain()

    async def _asyncio(self, seconds: float) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        done = loop.create_future()
        fds = [fd for fd in (self.fd, self.closing) if fd >= 0]

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        for fd in fds:
            loop.add_reader(fd, wake)
        try:
            await asyncio.wait([done], timeout=seconds)
        finally:
            for fd in fds:
                loop.remove_reader(fd)

    async def _trio(self, seconds: float) -> None:
        import trio

        with trio.move_on_after(seconds):
            if self.fd >= 0:
                await trio.lowlevel.wait_readable(self.fd)
            else:
                await trio.sleep(seconds)

    def _bound(self, seconds: float | None) -> float:
        return self.longest if seconds is None else max(0.0, min(seconds, self.longest))

    def drain(self) -> bool:
        """Whether the folder has changed since the last time; True where it cannot be told."""
        if self.fd < 0:
            return True
        changed = False
        try:
            while os.read(self.fd, 65536):
                changed = True
        except BlockingIOError:
            pass
        return changed

    def close(self) -> None:
        if self.fd >= 0:
            unwatch_folder(self.fd)
            self.fd = -1


def seconds_of(timeout: Any, name: str = "timeout") -> float:
    """A time that a caller gives. NaN is none: no time is ever later."""
    if isinstance(timeout, (str, bytes, bool)):
        raise UsageError(f"{name} must be seconds or None, not {timeout!r}")
    try:
        seconds = float(timeout)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} must be seconds or None, not {timeout!r}") from None
    if not seconds >= 0:
        raise UsageError(f"{name} must not be negative, got {timeout!r}",
                         hint="0 does not wait, None waits for ever")
    return seconds


class Deadline:
    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.end = None if timeout is None else time.monotonic() + seconds_of(timeout, "timeout")

    @property
    def left(self) -> float | None:
        return None if self.end is None else self.end - time.monotonic()

    @property
    def over(self) -> bool:
        return self.end is not None and time.monotonic() >= self.end

    def __str__(self) -> str:
        """" within 2 s", for the text of an error."""
        if self.timeout is None:
            return ""
        return f" within {self.timeout:g} s" if self.timeout else " at once"


def running() -> str:
    trio: Any = sys.modules.get("trio")     # without its parts while another thread imports it
    if trio is not None and hasattr(trio, "lowlevel") and trio.lowlevel.in_trio_run():
        return "trio"
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is not None and hasattr(asyncio, "_get_running_loop") \
            and asyncio._get_running_loop() is not None:
        return "asyncio"
    raise UsageError("neither asyncio nor trio runs here",
                     hint="call this from a coroutine that one of them runs")


async def pause(seconds: float) -> None:
    if running() == "trio":
        import trio

        await trio.sleep(seconds)
    else:
        import asyncio

        await asyncio.sleep(seconds)


async def in_thread(call: Callable[[], T]) -> T:
    """call() in a thread of its own, to its end, even if the task is cancelled meanwhile."""
    found: T = await turns.in_thread(call)
    return found
