"""device() into storage: a socket's messages go to a journal's writer.

A writer is any object with `_mq_sink()` (`mqcore/spi/sink.pxd`), commit() and error. For rights= it
has `_mq_may(rights)`, too: a function that says whether a Peer may write a topic. This package does
not depend on journals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mqcore.api.running import Running, socket_name
from mqcore.base.waits import Released
from mqcore.binding.core import SocketCore
from mqcore.control.stats import CloseReport
from mqcore.devices.recorder import RecorderCore
from mqcore.errors import UsageError

TOLD = 1000             # users of whom the log says once what they may not
_log = logging.getLogger("mqcore.journal")


@dataclass(frozen=True)
class RecorderStats:
    """Counters of a journal device. `refused`: messages that cannot be stored (an impossible topic,
    more than 2 GiB). `denied`: messages whose sender may not write their topic.
    `duplicates`: discarded because the writer had stored them before. `acknowledged`: acknowledged
    to the sender as durable. `unwritten`, after its end: taken from the socket but not stored."""

    messages: int = 0
    bytes: int = 0
    refused: int = 0
    duplicates: int = 0
    acknowledged: int = 0
    denied: int = 0
    unwritten: int = 0


def _asking(front: Any, writer: Any, rights: Any) -> Callable[[int, bytes], bool]:
    """Whether the peer of this number may write a topic. OptionError: these are no rights."""
    if not hasattr(writer, "_mq_may"):
        raise UsageError(f"{type(writer).__name__} knows no rights",
                         hint="rights= is for what mqcore.journal.open(where, 'a') returns")
    may = writer._mq_may(rights)
    told: set[Any] = set()

    def ask(number: int, topic: bytes) -> bool:
        peer = front._peer(number)
        allowed = peer is not None and may(peer, topic)
        who = getattr(peer, "user", None)
        if not allowed and who not in told and len(told) < TOLD:
            told.add(who)
            _log.info("%s, user %r, may not write the topic %r: its messages are refused",
                      peer, who, topic.decode(errors="replace"))
        return allowed

    return ask


class Recorder(Running):
    """A running journal device. stop() stops reading, makes everything read durable and closes the
    socket. The writer stays open; it belongs to the caller. If the writer fails, stop() raises its
    error. stats().unwritten messages are then lost. Data that the writer still buffers is written
    once its commit() succeeds."""

    _kind = "recorder"

    def __init__(self, front: Any, writer: Any, rights: Any = None) -> None:
        if not isinstance(front, SocketCore):
            raise UsageError(f"the front of a device must be a socket, not {type(front).__name__}")
        self.front: Any = front
        self._its_sockets = front,
        self.writer = writer
        self._core = RecorderCore(front, writer,
                                  None if rights is None else _asking(front, writer, rights))
        self._unwritten = 0
        self._begin("mqcore-record")

    def _release(self) -> None:
        self._core.stop()
        self._core.release()

    def _loop(self) -> None:
        number = self._core.run()
        if number:
            raise self.writer.error or OSError(number, "the journal cannot be written")

    @property
    def acknowledges(self) -> bool:
        """Whether senders receive an acknowledgement of durability (with rep and respondent)."""
        return bool(self._core.answers)

    def stats(self) -> RecorderStats:
        """What has been stored so far."""
        return RecorderStats(*self._core.counters(), self._unwritten)

    def _which(self) -> str:
        return f"{socket_name(self.front)} into {self.writer!r}"

    def pause(self) -> None:
        """Stop reading. Messages stay in the queues until resume()."""
        self._core.set_paused(True)

    def resume(self) -> None:
        """Read again."""
        self._core.set_paused(False)

    def _stop(self, linger: Any) -> tuple[CloseReport, ...]:
        self._core.stop()
        with Released():
            self._thread.join()
        self._unwritten = self._core.finish()
        self._core.release()
        try:
            self.writer.commit()
        finally:        # the result of a second stop() if commit() raises
            self._reports = (self.front.close(linger),)
        return self._reports

    def __repr__(self) -> str:
        state = "running" if self.running else "ended"
        return f"<Recorder {self.front.pattern} -> {self.writer!r} {state}>"
