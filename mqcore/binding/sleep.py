"""Which async library runs us, its sleep, and sleeps that another thread can end: asyncio or trio,
neither imported before it is used.
"""

from __future__ import annotations

import sys
from typing import Any

from mqcore.base.virtual import monotonic
from mqcore.errors import UsageError


def running() -> str:
    """"asyncio", "trio", or "" when no loop runs in this thread."""
    if in_trio():
        return "trio"
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and hasattr(asyncio, "_get_running_loop") \
            and asyncio._get_running_loop() is not None:
        return "asyncio"
    return ""


def in_trio() -> bool:
    trio = sys.modules.get("trio")      # without its parts while another thread imports it
    return trio is not None and hasattr(trio, "lowlevel") and trio.lowlevel.in_trio_run()


def running_loop() -> Any:
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        raise UsageError("neither asyncio nor trio runs here",
                         hint="call this from a coroutine that one of them runs")
    return asyncio.get_running_loop()


def running_task() -> Any:
    """The task that calls; None outside of asyncio and trio."""
    name = running()
    if name == "trio":
        return sys.modules["trio"].lowlevel.current_task()
    return sys.modules["asyncio"].current_task() if name else None


async def sleep(seconds: float) -> None:
    await sys.modules[running()].sleep(seconds)


class Nap:
    """The present task's sleep; wake() on the loop's own thread ends it, or lets it not begin."""

    __slots__ = ("_event", "_future", "_loop")

    def __init__(self, loop: Any = None) -> None:
        """loop: asyncio's that runs, if it is known."""
        self._event: Any = None
        self._future: Any = None
        if loop is None and in_trio():
            import trio

            self._event = trio.Event()
            self._loop: Any = trio.lowlevel.current_trio_token()
        else:
            self._loop = loop if loop is not None else running_loop()
            self._future = self._loop.create_future()

    def wake(self) -> None:
        if self._event is not None:
            self._event.set()
        elif not self._future.done():
            try:
                self._future.set_result(True)
            except RuntimeError:  # the loop has ended, and the task with it
                pass

    async def wait(self, limit: float | None = None) -> bool:
        """Until woken; False: time is up first."""
        if self._event is not None:
            return await self._wait_trio(limit)
        if limit is None:
            await self._future
            return True
        timer = self._loop.call_later(max(0.0, limit - monotonic()), self._late)
        try:
            return bool(await self._future)
        finally:
            timer.cancel()

    def _late(self) -> None:
        if not self._future.done():
            self._future.set_result(False)

    async def _wait_trio(self, limit: float | None) -> bool:
        import trio

        if limit is None:
            await self._event.wait()
            return True
        with trio.move_on_after(max(0.0, limit - monotonic())):
            await self._event.wait()
        return bool(self._event.is_set())


class Bell(Nap):
    """A nap that any thread may end, by ring()."""

    __slots__ = ()

    def ring(self) -> None:
        try:
            if self._event is not None:
                self._loop.run_sync_soon(self.wake)
            else:
                self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:  # the loop has ended, and its tasks with it
            pass


async def shielded(bell: Bell) -> bool:
    """Wait for the bell despite cancellation. True: the task was cancelled meanwhile (asyncio only;
    trio raises at the next checkpoint anyway)."""
    if bell._event is not None:
        import trio

        with trio.CancelScope(shield=True):
            await bell._event.wait()
        return False
    asyncio: Any = sys.modules["asyncio"]
    cancelled = False
    while not bell._future.done():
        try:
            await asyncio.shield(bell._future)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
