"""Reader: messages of a partition by offset and by time, and as they come."""

from __future__ import annotations

import bisect
import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from mqcore.base.living import Living
from mqcore.base.native import threading
from mqcore.base.renamed import renamed
from mqcore.journal.awaitable import Awaitable
from mqcore.journal.errors import (
    JournalClosed,
    JournalCorrupt,
    JournalError,
    OffsetGone,
)
from mqcore.journal.later import np
from mqcore.journal.records import (
    MOST,
    Records,
    at_most,
    from_offset,
    gather,
    micros,
    nothing,
    of_block,
    until,
    whole,
)
from mqcore.journal.replicas import check_primary
from mqcore.journal.store.commits import Expected, check_expected, commit
from mqcore.journal.store.durable import missing_end, read_durable, told
from mqcore.journal.store.epoch import Epochs, read_epochs
from mqcore.journal.store.notify import make_own
from mqcore.journal.store.place import (
    check_commit,
    group_offset,
    groups,
    segment_name,
    segments,
    settled_segments,
)
from mqcore.journal.store.recovery import SHORT, judge
from mqcore.journal.store.scan import FOUND, LOST, Block, Walk
from mqcore.journal.store.segment import (
    EVERYTHING,
    Index,
    Segment,
    check_removed,
    home_of,
    plain_bytes,
    refuse_other,
    settled_home,
    torn_header,
)
from mqcore.journal.walking import Walking, lost

if TYPE_CHECKING:
    from mqcore.journal.mirror import Mirror
    from mqcore.journal.writer import Writer
T = TypeVar("T")
SMALL = 256 << 10       # blocks are put together (copied) up to so many bytes
FILES = 16              # and from so many segments: the way to the next one lists the folder


class Reader(Walking, Awaitable):
    """Reads one partition, while it is written or not. Made by `mqcore.journal.open`. One thread at
    a time; threads and processes that each have their own do not disturb each other or the writer.

    verify: check the CRC of every block before it is handed out. durable: hand out only what
    survives a power cut, unless a call says otherwise. False: whatever is written.
    """

    _durable: bool

    def __init__(self, folder: Path, topic: str, partition: int, *, verify: bool = True,
                 durable: bool = True) -> None:
        self.path = folder
        self._home = home_of(folder)
        self.topic = topic
        self.partition = partition
        self._verify = verify
        self._durable = durable
        self._synced = 0                    # all below is known to be durable
        self._begins: tuple[Any, int] = None, 0     # the first file, and what is left of it
        self._segment: Segment | None = None
        self._indexes: dict[int, Index] = {}
        self._until = math.inf              # when a look ends unfinished
        self._gap = 0, 0    # compaction has left nothing from the first one to below the second
        self._journal: bytes | None = None  # its id
        self._unwanted = False
        self._closing = -1                  # an eventfd while something follows
        self._followers = 0
        self._new_locks()
        self.closed = False
        _readers.add(self)

    # -- where it begins and ends --

    @property
    def first(self) -> int:
        """The offset of the oldest message that is there; `end` if there is none."""
        with self._reading():
            firsts = self._segments()
            if not firsts:
                return 0
            try:
                known = firsts[0], os.lstat(self.path / segment_name(firsts[0])).st_ino
            except FileNotFoundError:       # retention was faster
                return self.first
            if self._begins[0] != known:    # a repair may have lost what a file begins with
                self._begins = known, self._lowest(firsts)
            return max(firsts[0], self._begins[1])

    @property
    def begin(self) -> int:
        """The offset of the journal's first message of all: 0, unless its writer was opened with
        begin=. Retention removes messages from there on, up to `first`."""
        with self._reading():
            for first in reversed(firsts := self._segments()):      # `end` opens the last one, too
                try:
                    return int(self._open(first, firsts).header.begin)
                except (FileNotFoundError, JournalCorrupt):     # torn, or retention was faster
                    continue
            return 0

    @property
    def end(self) -> int:
        """The offset that the next message will get."""
        with self._reading():
            while True:
                known = told(self.path)
                firsts = self._segments()
                if not firsts:
                    return 0
                try:
                    segment = self._open(firsts[-1], firsts)
                except FileNotFoundError as error:
                    check_removed(error)
                    continue
                except JournalCorrupt as error:
                    if torn_header(error, firsts[-1]):
                        missing_end(Path(error.path), None, 0, firsts[-1], known)
                        return firsts[-1]
                    raise
                size = segment.size()
                walk = segment.find(EVERYTHING, size)
                if walk.pos < size:
                    judge(segment, walk.pos, walk.next, walk.why, size, last=True)
                segment.check_end(walk, size, known)
                if self._segments()[-1:] == firsts[-1:]:
                    return walk.next

    @property
    def durable(self) -> int:
        """Every message below this offset survives a power cut, as far as the writer has said."""
        with self._reading():
            end = self.end
            here = self._segment
            if here is None:
                return end
            shown = read_durable(self.path, here.header.journal)
            self._synced = min(end, max(here.durable, shown))
            return self._synced

    @property
    def last(self) -> int:
        """The newest message's offset; `first - 1` if there is none."""
        return self.end - 1

    def at(self, time: float) -> int:
        """The offset of the first message with a time stamp not before `time` (seconds since the
        epoch); `end` if there is none."""
        us = micros(time)
        with self._reading():
            return self._at(us)

    def _at(self, us: int) -> int:
        known = told(self.path)
        firsts = self._segments(settled_segments)
        for i, first in enumerate(firsts):
            try:
                segment = self._open(first, firsts)
            except FileNotFoundError as error:
                check_removed(error)
                continue
            except JournalCorrupt as error:
                if i + 1 == len(firsts) and torn_header(error, first):
                    break
                raise
            size = segment.size()
            mark = segment.checkpoint(size) if i + 1 < len(firsts) else None
            if mark is not None and mark.high < us:
                continue
            walk = segment.find_time(us, size)
            if walk.why == FOUND:
                block = self._whole(segment, walk, size, known if i + 1 == len(firsts) else None)
                if block is not None:
                    found = of_block(block, "", 0)
                    return found.offset(int(np.argmax(found._microseconds >= us)))
            elif walk.pos < size:
                judge(segment, walk.pos, walk.next, walk.why, size, last=i + 1 == len(firsts))
        return self.end

    def stored_bytes(self, start: int, stop: int) -> int:
        """About how many bytes messages start to stop - 1 have in the files, or would have without
        compression, by the average over the segments that they lie in."""
        return plain_bytes(self.path, self._segments(), start, stop)

    # -- reading --

    def read(self, offset: int, *, max_bytes: int = 8 << 20,
             durable: bool | None = None) -> Records:
        """The messages from `offset` on: a view of one block or of the rest of it, of at most
        max_bytes with keys and headers (but at least one message); small blocks are put together.
        Empty at the end. `first` of the records is above `offset` if compaction has removed what
        was there.
        durable: only messages that survive a power cut (None: as the reader was opened).

        Raises OffsetGone below `first`, UsageError beyond `end`, JournalCorrupt.
        """
        if type(offset) is not int or offset >= MOST:
            offset = whole(offset)
        max_bytes = max(1, max_bytes)
        with self._reading():
            if not (self._durable if durable is None else durable):
                return self._read(offset, max_bytes)
            return self._read_durable(offset, max_bytes)

    def _read_durable(self, offset: int, max_bytes: int) -> Records:
        records = self._read(offset, max_bytes)
        if records.next <= self._synced or records.next == offset:
            return records
        here = self._segment            # None: the one behind the records could not be opened
        if here is not None:
            self._synced = max(self._synced, read_durable(self.path, here.header.journal))
        if records.next > self._synced:
            self._look_for_durable(here)
            records = until(records, self._synced)
        if not len(records):
            return nothing(max(offset, self._synced), offset, self.topic, self.partition)
        return records

    def _look_for_durable(self, here: Segment | None) -> None:
        """The file `durable` does not say it, but blocks may. Damage further on does not count."""
        try:
            self._synced = max(self._synced, self.durable)
        except JournalCorrupt:
            known = max([*self._segments()[-1:], 0 if here is None else here.durable])
            if known <= self._synced:
                raise
            self._synced = known

    def _read(self, offset: int, max_bytes: int) -> Records:
        self._check_usable()
        parts: list[Records] = []
        room = max_bytes
        together = files = 0
        at = offset
        while room > 0 and files < FILES and not (parts and monotonic() > self._until):
            before = self._segment
            try:
                records = self._next(at, room, beyond=not parts)
            except JournalError:
                if not parts:
                    raise
                break       # what is before it first; the next call meets it again
            if records is None or parts and not len(records):
                break
            files += self._segment is not before
            count = len(records)
            records = at_most(records, room)
            size = records.size
            if parts and (size > room or parts[0].size + size > SMALL):
                break
            parts.append(records)
            at = records.next
            room -= size
            together += size
            if len(records) < count or together >= SMALL // 2:
                break
        return gather(parts) if parts else nothing(offset, offset, self.topic, self.partition)

    def release(self) -> None:
        """Let go of the file that was read last. The next read opens it again."""
        self._unwanted = True
        self._let_go()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with self._use:
                yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """In a signal handler inside a read: not yet. That read does it at its end."""
        while ((self._unwanted or self.closed and self._segment is not None)
               and not self._use._is_owned()):
            with self._use:
                self._unwanted = False
                segment, self._segment = self._segment, None
                if segment is not None:
                    segment.close()

    def _next(self, offset: int, room: int, beyond: bool) -> Records | None:
        """The block of the message, or the next one that is left, and small ones behind it; None:
        it is not there yet. Empty: a gap of compaction reaches so far."""
        wanted, here = offset, self._segment
        offset = self._gap[1] if self._gap[0] <= offset < self._gap[1] else offset
        if here is not None and here.first <= offset:      # no look at the folder while it goes on
            walk = here.find(offset, size := here.size())
            if walk.why == FOUND:
                block = here.together(walk.pos, size, room, self._verify)
                if isinstance(block, Block):
                    return from_offset(block, wanted, self.topic, self.partition)
        while True:
            known = told(self.path)
            firsts = self._segments()
            if not firsts or offset < firsts[0]:
                if firsts or offset:
                    raise OffsetGone(f"message {wanted} of {self.path} is gone", offset=wanted,
                                     first=firsts[0] if firsts else 0,
                                     hint="read from `first` on, and retain for longer")
                return None
            at = bisect.bisect_right(firsts, offset)
            first, following = firsts[at - 1], firsts[at:at + 1]
            last = not following
            try:
                segment = self._open(first, firsts)
            except FileNotFoundError as error:
                check_removed(error)
                continue
            except JournalCorrupt as error:
                if last and torn_header(error, first):
                    missing_end(Path(error.path), None, 0, first, known)
                    return None
                raise
            size = segment.size()
            walk = segment.find(offset, size)
            if walk.why == FOUND:
                found = self._whole(segment, walk, size, known if last else None)
                return None if found is None else from_offset(
                    found, wanted, self.topic, self.partition)
            if walk.why == LOST:
                raise lost(self.path, wanted, walk.next)
            if following == [walk.next] and walk.pos == size:
                offset = self._behind_gap(wanted, firsts[at:])
                continue
            if self._behind(first) != following:
                continue                # rotated meanwhile, or the first list lacked one
            if walk.pos < size or not last:
                judge(segment, walk.pos, walk.next, walk.why, size, last)
            segment.check_end(walk, size, known)
            return self._at_end(wanted, walk.next, beyond)

    def _behind(self, first: int) -> list[int]:
        """The segment that follows, if there is one."""
        firsts = self._segments()
        at = bisect.bisect_right(firsts, first)
        return firsts[at:at + 1]

    def _whole(self, segment: Segment, walk: Walk, size: int,
               known: tuple[bytes, int] | None) -> Block | None:
        """known: what is durable, if it is the last segment."""
        block = segment.readable(walk.pos, size, self._verify)
        if isinstance(block, Block):
            return block
        if known is not None:
            segment.check_end(walk._replace(why=block), size, known)
        if block != SHORT or known is None:
            judge(segment, walk.pos, walk.next, block, size, last=known is not None)
        return None

    def _mq_mirror(self, writer: Writer) -> Mirror:
        """For mqcore.device(reader, writer)."""
        from mqcore.journal.mirror import Mirror

        return Mirror(self, writer)

    # -- segments --

    def _check_usable(self) -> None:
        if self.closed:
            raise JournalClosed(f"the reader of {self.path} is closed")

    def _segments(self, listed: Callable[[Path], list[int]] = segments) -> list[int]:
        self._check_usable()
        found: list[int] = []
        with contextlib.suppress(FileNotFoundError):
            found = listed(self.path)
        return self._ours(found)

    def _ours(self, found: T) -> T:
        """What was found at the path. Raises JournalNotFound: another journal is there by now."""
        self._home = settled_home(self.path, self._home, self._journal)
        return found

    def _open(self, first: int, firsts: list[int]) -> Segment:
        here = self._segment
        if here is not None and (here.first != first or here.is_replaced()):
            here.close()
            self._segment = here = None
        if here is None:
            here = Segment(self.path, first, None, self._indexes, self._until)
            if self._journal is None:
                self._journal = here.header.journal     # whose offsets these are
            elif here.header.journal != self._journal:
                refuse_other(here, self._journal)
            self._segment = here
        return here

    # -- consumer groups --

    def committed_offset(self, group: str) -> int | None:
        """The next offset that the group will read; None: it has never committed."""
        return self._ours(group_offset(self.path, group))

    def commit_offset(self, group: str, offset: int, *, expected: Expected = "any") -> None:
        """The group has dealt with every message below offset. Durable on return.

        expected: where the group must be, so that a consumer that comes late does not set back
            one that has taken over. An offset, or None if the group must never have
            committed. "any" by default.

        UsageError: the journal has not come so far. GroupMoved: the group is neither where it is
        expected nor at `offset` already; it stays there. JournalFenced: a mirror of this
        journal was promoted, and the groups are there. JournalBusy: this is a mirror."""
        commit(self.path, group, check_commit(group, offset, self), check_expected(expected),
               check=lambda _: check_primary(self._ours(self)))

    def groups(self) -> dict[str, int]:
        return self._ours(groups(self.path))

    __getattr__ = renamed(commit="commit_offset", committed="committed_offset",
                          acommit="acommit_offset", acommitted="acommitted_offset")

    def epochs(self) -> Epochs:
        """The promotions that this journal has been through."""
        return self._ours(read_epochs(self.path, self._journal))

    # -- the end --

    def _new_locks(self) -> None:
        # over the file read last, the followers and their end; close() waits for another's read
        self._use: Any = threading.RLock()

    def _forked(self) -> None:
        """In a forked child. A thread of the parent may hold the locks, and what it has left half
        done stays so."""
        if not self._use.acquire(blocking=False):
            self._segment = None
        self._new_locks()
        if self._closing >= 0:
            make_own(self._closing)

    def close(self) -> None:
        """Ends follow() in whatever thread it waits. Records handed out stay valid."""
        with self._use:
            if self.closed:
                return
            self.closed = True
            if self._closing >= 0:
                os.eventfd_write(self._closing, 1)
        self.release()

    def __del__(self) -> None:
        if hasattr(self, "_use"):
            self.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Reader of {self.path}{', closed' if self.closed else ''}>"


_readers: Living[Reader] = Living()      # those of this process


def _after_fork() -> None:
    for reader in _readers:
        reader._forked()


os.register_at_fork(after_in_child=_after_fork)
