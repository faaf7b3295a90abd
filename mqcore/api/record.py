"""device() into something that stores: what a socket receives goes into a journal's writer.

Here a writer is any object with `_mq_sink()` (`mqcore/spi/sink.pxd`), commit() and error; this room
knows nothing of journals.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from mqcore.control.records import CloseReport
from mqcore.errors import UsageError, WaitTimeout
from mqcore.sock.core import SocketCore
from mqcore.sock.record import RecordCore


@dataclass(frozen=True)
class RecordStats:
    """What a journal device has taken from its socket. `refused`: could never be stored (a topic
    that cannot be, more than 2 GiB); `duplicates`: left out, for the writer had stored them before;
    `acknowledged`: answered as durable; `unwritten`, after its end: taken from the socket and not
    stored."""

    messages: int = 0
    bytes: int = 0
    refused: int = 0
    duplicates: int = 0
    acknowledged: int = 0
    unwritten: int = 0


class Recorder:
    """A running journal device. `with` stops it, makes everything durable and closes the socket;
    the writer stays open, for it is the caller's."""

    def __init__(self, front: Any, writer: Any) -> None:
        if not isinstance(front, SocketCore):
            raise UsageError(f"the front of a device is a socket, not {type(front).__name__}")
        self.front, self.writer = front, writer
        self._core = RecordCore(front, writer)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._reports: tuple[CloseReport, ...] | None = None
        self._unwritten = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mqcore-record", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            number = self._core.run()
            if number:
                self._error = self.writer.error or OSError(number, "the journal cannot be written")
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    @property
    def acknowledges(self) -> bool:
        """Whether senders learn that a message is durable (rep and respondent do)."""
        return bool(self._core.answers)

    @property
    def error(self) -> BaseException | None:
        """What ended it; None: nothing has."""
        return self._error

    def stats(self) -> RecordStats:
        return RecordStats(*self._core.counters(), self._unwritten)

    def pause(self) -> None:
        """Stop reading; messages wait where they are. resume() goes on."""
        self._core.set_paused(True)

    def resume(self) -> None:
        self._core.set_paused(False)

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def wait(self, timeout: float | None = None) -> None:
        """Until the device has ended: by stop() from elsewhere, or with what the writer raised,
        which is raised here (JournalFull if the disk is full). WaitTimeout."""
        limit = timeout
        while not self._ended.wait(0.2 if limit is None else min(0.2, limit)):
            if limit is not None:
                limit -= 0.2
                if limit <= 0:
                    raise WaitTimeout(f"the device still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    async def await_(self, timeout: float | None = None) -> None:
        """wait(), awaitable."""
        from mqcore.sock.sleep import sleep

        left = timeout
        while not self._ended.is_set():
            if left is not None and left <= 0:
                raise WaitTimeout(f"the device still runs after {timeout:g} s")
            await sleep(0.01)
            left = None if left is None else left - 0.01
        self.wait(0)

    def stop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """Stop reading, make durable what was read, close the socket within `linger` seconds. Its
        report. Idempotent. Raises what keeps the writer from it: then stats().unwritten messages
        are gone, and what the writer still holds is written once its commit() succeeds."""
        with self._lock:
            if self._reports is not None:
                return self._reports
            self._core.stop()
            self._thread.join()
            self._unwritten = self._core.finish()
            self._core.release()
            try:
                self.writer.commit()
            finally:
                self._reports = (self.front.close(linger),)
            return self._reports

    async def astop(self, linger: Any = ...) -> tuple[CloseReport, ...]:
        """stop(), awaitable."""
        from mqcore.api.aio import in_thread

        return await in_thread(lambda: self.stop(linger))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    async def __aenter__(self) -> Recorder:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.astop()

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return f"<Recorder {self.front.pattern} -> {self.writer!r} {state}>"
