"""Walking: from offset to offset through a partition, to its end or as messages come, and past what
is gone."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING, Any

from mqcore.api.turns import fair
from mqcore.errors import OptionError, RecvTimeout, UsageError
from mqcore.journal.errors import JournalClosed, JournalCorrupt, OffsetGone
from mqcore.journal.records import MOST, nothing, until
from mqcore.journal.store.scan import LOST
from mqcore.journal.store.segment import Unfinished
from mqcore.journal.waiting import Deadline, Watch

if TYPE_CHECKING:
    from mqcore.journal.reader import Reader
    from mqcore.journal.records import Records


def skips(gaps: str) -> bool:
    """Whether `gaps` says so. OptionError: it is neither."""
    if gaps not in ("raise", "skip"):
        raise OptionError(f"gaps={gaps!r}", hint="it is raise or skip")
    return gaps == "skip"


def past(walk: Callable[[int], Iterator[Records]], at: int, gaps: str) -> Iterator[Records]:
    """walk(at), and again behind each gap."""
    while True:
        try:
            for records in walk(at):
                at = records.next
                yield records
            return
        except OffsetGone as gone:
            if gaps != "skip" or gone.first <= at:
                raise
            at = gone.first


async def apast(walk: Callable[[int], AsyncIterator[Records]], at: int,
                gaps: str) -> AsyncGenerator[Records]:
    """past(), awaitable."""
    while True:
        try:
            async with aclosing(walk(at)) as records_of:   # type: ignore[type-var]
                async for records in records_of:
                    at = records.next
                    yield records
            return
        except OffsetGone as gone:
            if gaps != "skip" or gone.first <= at:
                raise
            at = gone.first


class Walking:
    """The half of Reader that goes on from one read to the next."""

    def batches(self: Any, start: int | None = None, stop: int | None = None, *,
                max_bytes: int = 8 << 20, durable: bool | None = None,
                gaps: str = "raise") -> Iterator[Records]:
        """Everything from start (None: first) to stop (None: the end as it is then).

        gaps: at messages that retention has removed, or that were lost before a repair, "raise"
        OffsetGone, or "skip" them: `first` of the next records tells how many there were. What
        compaction has removed is always passed over, and `since` of the next records tells from
        where on.
        """
        skips(gaps)
        walk: Iterator[Records] = self._batches(start, stop, max_bytes, durable, gaps)
        return walk

    def _batches(self: Any, start: int | None, stop: int | None, max_bytes: int,
                 durable: bool | None, gaps: str) -> Iterator[Records]:
        at = self.first if start is None else start
        end = self.end if stop is None else stop
        yield from past(lambda at: self._between(at, end, max_bytes, durable), at, gaps)

    def _between(self: Any, at: int, stop: int, max_bytes: int,
                 durable: bool | None) -> Iterator[Records]:
        while at < stop:
            records = self.read(at, max_bytes=max_bytes, durable=durable)
            if not len(records) or records.first >= stop:
                return
            if records.next > stop:
                records = until(records, stop)
            at = records.next
            yield records

    def follow(self: Any, offset: int, *, max_bytes: int = 8 << 20, timeout: float | None = None,
               durable: bool | None = None, gaps: str = "raise") -> Iterator[Records]:
        """Everything from `offset` on, then what comes, until close(). RecvTimeout if nothing comes
        for `timeout` seconds. The writer's policy says how soon a message is seen: at its sync;
        with durable=False, at its flush. gaps: as for batches()."""
        skips(gaps)
        return past(lambda at: self._follow(at, max_bytes, timeout, durable), offset, gaps)

    def _follow(self: Any, offset: int, max_bytes: int, timeout: float | None,
                durable: bool | None) -> Iterator[Records]:
        watch = self._watch()
        try:
            quiet = Deadline(timeout)
            while not self.closed:
                try:
                    records = self.read(offset, max_bytes=max_bytes, durable=durable)
                except JournalClosed:
                    return
                if len(records):
                    offset = records.next
                    yield records
                    quiet = Deadline(timeout)
                elif quiet.over:
                    raise _nothing(self, offset, timeout)
                else:
                    watch.wait_change(quiet.left)
        finally:
            self._unwatch(watch)

    def afollow(self: Any, offset: int, *, max_bytes: int = 8 << 20, timeout: float | None = None,
                durable: bool | None = None, gaps: str = "raise") -> AsyncIterator[Records]:
        """follow() for asyncio and trio."""
        skips(gaps)
        return apast(lambda at: self._afollow(at, max_bytes, timeout, durable), offset, gaps)

    async def _afollow(self: Any, offset: int, max_bytes: int, timeout: float | None,
                       durable: bool | None) -> AsyncIterator[Records]:
        watch = self._watch()
        try:
            quiet = Deadline(timeout)
            while not self.closed:
                await fair()
                try:
                    records = self.read(offset, max_bytes=max_bytes, durable=durable)
                except JournalClosed:
                    return
                if len(records):
                    offset = records.next
                    yield records
                    quiet = Deadline(timeout)
                elif quiet.over:
                    raise _nothing(self, offset, timeout)
                else:
                    await watch.await_change(quiet.left)
        finally:
            self._unwatch(watch)

    def _lowest(self: Any, firsts: list[int]) -> int:
        """Behind what was lost at the beginning."""
        at = firsts[0]
        for first, following in zip(firsts, [*firsts[1:], MOST], strict=True):
            try:
                segment = self._open(first, firsts)
            except (FileNotFoundError, JournalCorrupt):     # which reading tells
                return at
            while at < following:
                walk = segment.find(at, segment.size())
                if walk.why != LOST:
                    return at
                at = int(walk.next)
        return at

    def _behind_gap(self: Any, wanted: int, firsts: list[int]) -> int:
        """Compaction has left nothing from `wanted` to the first of these segments: which of them
        has something, or is the last one. A later look goes on there. Unfinished."""
        for first, following in pairwise(firsts):
            self._gap = wanted, first
            if monotonic() > self._until:
                raise Unfinished(f"what compaction has left of {self.path} was not found in time")
            try:
                segment = self._open(first, firsts)
            except (FileNotFoundError, JournalCorrupt):     # which the caller meets
                return first
            walk = segment.find(first, size := segment.size())
            if walk.pos < size or walk.next != following:
                return first
        return firsts[-1]

    def _at_end(self: Any, offset: int, end: int, beyond: bool) -> Records | None:
        """What is read there: nothing, behind a gap of compaction."""
        if offset > end and beyond:
            raise UsageError(f"message {offset} is beyond the end, {end}",
                             hint="`end` is the furthest offset that can be read from")
        return nothing(end, offset, self.topic, self.partition) if offset < end else None

    def _hurry(self: Any, until: float) -> None:
        """From then on, by the monotonic clock, looks end with Unfinished."""
        self._until = until
        here = self._segment
        if here is not None:
            here.until = until

    def _watch(self: Any) -> Watch:
        """For one follow(); all of them share the descriptor by which close() ends them."""
        with self._reading():
            if self.closed:
                raise JournalClosed(f"the reader of {self.path} is closed")
            if self._closing < 0:
                self._closing = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._followers += 1
            closing = self._closing
            if self.closed:     # meanwhile, by a signal handler
                os.eventfd_write(closing, 1)
        try:
            return Watch(self.path, closing)
        except BaseException:
            self._unfollow()
            raise

    def _unwatch(self: Any, watch: Watch) -> None:
        watch.close()
        self._unfollow()

    def _unfollow(self: Any) -> None:
        with self._reading():
            self._followers -= 1
            if self._followers == 0:
                closing, self._closing = self._closing, -1
                if closing >= 0:        # else a signal handler's follow() has ended meanwhile
                    os.close(closing)


def lost(path: object, offset: int, first: int) -> OffsetGone:
    return OffsetGone(f"message {offset} of {path} was lost to damage", offset=offset, first=first,
                      hint=f"the next one that is left is {first}")


def _nothing(reader: Reader, offset: int, timeout: float | None) -> RecvTimeout:
    return RecvTimeout(f"no message {offset} in {reader.path} within {timeout} s",
                       hint="does the writer run, and flush? give more time with timeout=")
