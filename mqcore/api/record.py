"""device() into something that stores: what a socket receives goes into a journal's writer.

Here a writer is any object with `_mq_sink()` (`mqcore/spi/sink.pxd`), commit() and error; this room
knows nothing of journals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mqcore.api.running import Running
from mqcore.control.records import CloseReport
from mqcore.errors import UsageError
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


class Recorder(Running):
    """A running journal device. stop() stops reading, makes durable what was read, and closes the
    socket; the writer stays open, for it is the caller's. stop() raises what keeps the writer from
    it: then stats().unwritten messages are gone, and what the writer still holds is written once
    its commit() succeeds."""

    def __init__(self, front: Any, writer: Any) -> None:
        if not isinstance(front, SocketCore):
            raise UsageError(f"the front of a device is a socket, not {type(front).__name__}")
        self.front, self.writer = front, writer
        self._core = RecordCore(front, writer)
        self._unwritten = 0
        self._begin("mqcore-record")

    def _loop(self) -> None:
        number = self._core.run()
        if number:
            raise self.writer.error or OSError(number, "the journal cannot be written")

    @property
    def acknowledges(self) -> bool:
        """Whether senders learn that a message is durable (rep and respondent do)."""
        return bool(self._core.answers)

    def stats(self) -> RecordStats:
        return RecordStats(*self._core.counters(), self._unwritten)

    def pause(self) -> None:
        """Stop reading; messages wait where they are. resume() goes on."""
        self._core.set_paused(True)

    def resume(self) -> None:
        self._core.set_paused(False)

    def _stop(self, linger: Any) -> tuple[CloseReport, ...]:
        self._core.stop()
        self._thread.join()
        self._unwritten = self._core.finish()
        self._core.release()
        try:
            self.writer.commit()
        finally:        # what a second stop() gives, if commit() raises
            self._reports = (self.front.close(linger),)
        return self._reports

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return f"<Recorder {self.front.pattern} -> {self.writer!r} {state}>"
