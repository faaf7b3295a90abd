"""Mirror: what one journal holds and gets, into another, offset by offset."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mqcore.api.running import Running
from mqcore.errors import RecvTimeout, UsageError
from mqcore.journal.errors import JournalClosed, OffsetGone
from mqcore.journal.writer import Writer

if TYPE_CHECKING:
    from mqcore.journal.reader import Reader

LOOK = 0.2              # seconds between two looks at whether to end


@dataclass(frozen=True)
class MirrorStats:
    messages: int = 0
    bytes: int = 0


class Mirror(Running):
    """A running mirror, made by `mqcore.device(reader, writer)`. Every message keeps its offset,
    time, key, headers and stamp. It goes on at `writer.next`, so after a crash nothing is there
    twice. It copies what is durable in the source, unless the reader was opened with durable=False:
    an offset that a power cut takes back may be given to another message. `with` stops it and makes
    everything durable. Reader and writer stay open; use them for nothing else meanwhile."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        if not isinstance(writer, Writer):
            raise UsageError(f"a mirror writes one partition, not {type(writer).__name__}",
                             hint="open the writer without partitions= and topic_from=")
        if writer.deduplicates:
            raise UsageError("a mirror keeps every message of its source, duplicates too",
                             hint="open its writer without deduplicate=")
        if reader.closed or writer.closed:
            raise JournalClosed(f"the {'reader' if reader.closed else 'writer'} of the mirror is "
                                "closed", hint="open it again, and keep it open while it is used")
        first, end = reader.first, reader.end
        if first > writer.next:
            raise OffsetGone(
                f"the mirror's next message, {writer.next}, is gone from {reader.path}",
                offset=writer.next, first=first,
                hint=f"begin a new mirror: open its writer with begin={first}")
        if end < writer.next:
            raise UsageError(f"{writer.path} has messages up to {writer.next} and {reader.path} "
                             f"only up to {end}: it is no mirror of it",
                             hint="begin a new mirror in an empty folder, or find the journal that "
                                  "this one was copied from")
        self.reader, self.writer = reader, writer
        self._durable = reader._durable
        if self._durable is None:
            reader._durable = True
        self._messages = self._bytes = 0
        self._stopping = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._begin("mqcore-mirror")

    def _loop(self) -> None:
        while not self._stopping.is_set() and not self.reader.closed:
            if not self._going.wait(LOOK):
                continue
            try:
                self._move()
            except RecvTimeout:
                continue

    def _move(self) -> None:
        for records in self.reader.follow(self.writer.next, timeout=LOOK):
            if records.first != self.writer.next:
                raise UsageError(f"something else has appended to {self.writer.path}",
                                 hint="a mirror is its writer's only user")
            self.writer.append_records(records)
            self._messages += len(records)
            self._bytes += records.nbytes
            if self._stopping.is_set() or not self._going.is_set():
                return

    def stats(self) -> MirrorStats:
        return MirrorStats(self._messages, self._bytes)

    def pause(self) -> None:
        """Stop copying. resume() goes on."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def _stop(self, linger: Any) -> tuple[()]:
        """`linger` is for sockets; there are none."""
        self._stopping.set()
        self._thread.join()
        self.reader._durable = self._durable
        if not self.writer.closed:
            self.writer.commit()
        return ()

    def __repr__(self) -> str:
        return (f"<Mirror {self.reader.path} -> {self.writer.path} "
                f"{'running' if self.running else 'ended'}>")
