"""What device() gives has these calls: a loop in a thread of its own, until stop() or an error."""

from __future__ import annotations

from typing import Any, Self

from mqcore.base.native import threading
from mqcore.control.records import CloseReport
from mqcore.errors import WaitTimeout
from mqcore.sock.sleep import sleep

LOOK = 0.01     # seconds between two looks of await_()


class Running:
    """`with` stops it. A subclass has _loop(), which moves until _stop() or an error ends it,
    pause(), resume() and _stop(linger); it calls _begin() when it is ready for its thread."""

    def _begin(self, name: str) -> None:
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._reports: tuple[CloseReport, ...] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _loop(self) -> None:
        raise NotImplementedError

    def _stop(self, linger: Any) -> tuple[CloseReport, ...]:
        raise NotImplementedError

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """What ended it; None: nothing has."""
        return self._error

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended: by stop() from elsewhere, or by an error, which is raised here
        (JournalFull if the disk of a journal device is full). WaitTimeout."""
        if not self._ended.wait(timeout):
            raise WaitTimeout(f"{self!r} still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    async def await_(self, timeout: float | None = None) -> None:
        """wait(), awaitable."""
        left = timeout
        while not self._ended.is_set():
            if left is not None and left <= 0:
                raise WaitTimeout(f"{self!r} still runs after {timeout:g} s")
            await sleep(LOOK)
            left = None if left is None else left - LOOK
        self.wait(0)

    def stop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """End it as its class says, each socket closed within `linger` seconds; their reports.
        Idempotent."""
        with self._lock:
            if self._reports is None:
                self._reports = self._stop(linger)
            return self._reports

    async def astop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """stop(), awaitable."""
        from mqcore.api.aio import in_thread

        return await in_thread(lambda: self.stop(linger))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.astop()
