"""Store: the records of a Book in a journal topic, and what keeps that topic short.

The topic is a log of changes. Its oldest segments go as soon as no job lies in them. If what is
left is much more than the jobs need, because a few old ones pin it, those are written anew at the
end. So the files are at most about twice as large as the jobs, and some segments.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import msgspec

from mqcore.journal.errors import BROKEN, JournalWriteError
from mqcore.journal.queues.book import CLOCK, PUT, Book
from mqcore.journal.queues.entry import Entry
from mqcore.journal.queues.options import QueueLimits, QueueOptions
from mqcore.journal.queues.replay import Replay
from mqcore.journal.queues.server_clock import ServerClock
from mqcore.journal.reader import Reader
from mqcore.journal.store.place import partition_folder, segment_name, segments
from mqcore.journal.writer import Writer
from mqcore.journal.writer_options import check_options

TOPIC = "queues"
GROUP = "queues"            # its offset is what the Book needs no more
CACHE = 8                   # records that were read for their bodies
MOVED = 1000                # jobs that are written anew at a time
MOVED_BYTES = 1 << 20       # and their bytes
COST = 100                  # bytes that a job takes beside its body and headers

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class Store:
    """Opens the topic, and the Book that is in it: `book`. `clock` has the time of its jobs. Raises
    what opening a journal does."""

    def __init__(self, where: str, fsync: str, options: QueueOptions, limits: QueueLimits,
                 *, segment_bytes: int = 64 << 20,
                 fsync_interval: float = 0.1, compression: str | None = None) -> None:
        self._folder = folder = partition_folder(where, TOPIC, 0)
        self._segment_bytes = segment_bytes
        check_options(fsync=fsync)
        # with "always", settle() syncs once for many records
        self.writer = Writer(folder, TOPIC, 0, fsync="never" if fsync == "always" else fsync,
                             fsync_interval=fsync_interval, segment_bytes=segment_bytes,
                             retain_for=(GROUP,), compression=compression)
        self._late: deque[bytes] = deque()      # records that the writer had no space for
        self._cache: OrderedDict[int, list[bytes]] = OrderedDict()
        self._begun = 0             # the offset behind the first snapshot of this server
        self.moved = 0
        self.clock = ServerClock()
        self.size = 0               # bytes of the files, at the last look
        try:
            self._reader = Reader(folder, TOPIC, 0, durable=False)
            try:
                self.book = Book(self.append, self.load, options, limits)
                self._recover()
            except BaseException:
                self._reader.close()
                raise
        except BaseException:
            self.writer.close()
            raise

    def _recover(self) -> None:
        # What the last server had no time to remove goes now, not while it is read.
        self.writer.retain()
        replay = Replay(self.book)
        for found in self._reader.batches():
            for i, raw in enumerate(found):
                replay.record(_unpack(raw or b""), found.offset(i))
        if replay.clock is not None and any(entry.ready or entry.expires
                                            for entry in self.book.jobs.values()):
            self.clock.go_on(*replay.clock)     # else it may as well begin anew
        replay.end(self.clock.now())
        self.book.snapshot()
        self._note_clock()
        self._begun = self.writer.next + len(self._late)
        try:
            self.settle(always=True)
        except JournalWriteError:       # settle() goes on with it, and nothing is served before
            if self.broken:
                raise

    def _note_clock(self) -> None:
        self.append([CLOCK, *self.clock.row()])

    def append(self, record: list[Any]) -> int:
        """The offset of the record. One that cannot be written now counts: settle() reports the
        error. But a put that the writer has no space for is refused: JournalWriteError. What else
        there is follows from a clock or from earlier requests, and must not be forgotten."""
        raw = _pack(record)
        if not self._late:
            try:
                return self.writer.append(raw)
            except JournalWriteError as error:
                if error.taken:
                    return self.writer.next - 1
                if self.broken or record[0] == PUT:
                    raise
        elif record[0] == PUT:
            self._write_late()
            return self.append(record)
        self._late.append(raw)
        return self.writer.next + len(self._late) - 1

    def _write_late(self) -> None:
        while self._late:
            try:
                self.writer.append(self._late[0])
            except JournalWriteError as error:
                if not error.taken:
                    raise
            self._late.popleft()

    @property
    def broken(self) -> bool:
        """After a failed fsync only another server can go on, from what is on the disk."""
        return getattr(self.writer.error, "hint", None) == BROKEN

    def settle(self, always: bool) -> None:
        """What was appended survives kill -9 of this process; with `always`, a power cut, too, as
        what this server begins with always does. JournalWriteError: it does not, yet."""
        self._write_late()
        if always or self.writer.durable < self._begun:
            if self.writer.durable < self.writer.next:
                self.writer.commit()
        elif self.writer.written < self.writer.next:
            self.writer.flush()

    def load(self, entry: Entry) -> bytes:
        """The body of a job that is not in memory."""
        bodies = self._cache.get(entry.place)
        if bodies is None:
            bodies = self._cache[entry.place] = self._bodies(entry.place)
            if len(self._cache) > CACHE:
                self._cache.popitem(last=False)
        return bodies[entry.index]

    def _bodies(self, place: int) -> list[bytes]:
        if place >= self.writer.next:
            raw = self._late[place - self.writer.next]
        else:
            if self.writer.written <= place:
                self.writer.flush()
            raw = self._reader.read(place, max_bytes=1)[0] or b""
        record = _unpack(raw)
        last = record[-1]
        if isinstance(last, bytes):         # a dead letter
            return [last]
        if record[0] == PUT:
            found: list[bytes] = last
            return found
        return [row[-1] for row in last]

    # -- keeping it short --

    def tidy(self) -> bool:
        """Let go of segments that are of no use, or work towards that. True: there is more to do
        at once."""
        if self.clock.due():
            self._note_clock()
            self.settle(always=True)
        firsts = segments(self._folder)
        if len(firsts) < 2:
            self.size = self._size(firsts)
            return False
        first = next(iter(self.book.jobs.values()), None)
        needed = self.writer.next if first is None else first.place
        if needed < firsts[1]:
            self.size = self._size(firsts)
            live = sum(queue.bytes + COST * queue.jobs for queue in self.book.queues.values())
            if self.size <= 2 * live + 2 * self._segment_bytes:
                return False
            self._move(firsts[1])
            return True
        self._retain(needed)
        return False

    def _size(self, firsts: list[int]) -> int:
        return sum((self._folder / segment_name(first)).stat().st_size for first in firsts)

    def _move(self, end: int) -> None:
        """The oldest jobs, as long as they lie before the offset `end`."""
        entries: list[Entry] = []
        size = 0
        for entry in self.book.jobs.values():
            if entry.place >= end or len(entries) >= MOVED or size >= MOVED_BYTES:
                break
            entries.append(entry)
            size += entry.size
        self.book.move(entries)
        self.moved += len(entries)

    def _retain(self, needed: int) -> None:
        """Nothing before `needed` is used. What replaces it is durable before it goes."""
        snapshot = self.book.snapshot()
        self._note_clock()
        self.settle(always=True)
        self._reader.commit_offset(GROUP, min(needed, snapshot))
        self.writer.retain()
        self._cache.clear()
        self.size = self._size(segments(self._folder))

    def close(self) -> None:
        """A last snapshot says that nothing is missing. Idempotent."""
        if self.writer.closed:
            return
        try:
            self._note_clock()
            self.book.snapshot(closed=True)
            self._write_late()
        finally:
            self.book.close()
            self._reader.close()
            self.writer.close()
