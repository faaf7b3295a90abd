"""Writer: opening a partition to append, retention, and the end. The thread that flushes and
commits is in flusher.py."""

from __future__ import annotations

import atexit
import collections
import functools
import logging
import os
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqcore.base.components import COMPONENTS, State
from mqcore.base.native import threading, time
from mqcore.base.waits import Released
from mqcore.errors import Error, UsageError
from mqcore.journal.at_exit import AT_REST, close_at_exit, closed_error
from mqcore.journal.errors import (
    NO_ROOM,
    JournalFull,
    JournalWriteError,
    write_error,
)
from mqcore.journal.flusher import FLUSHER, NEVER
from mqcore.journal.records import whole
from mqcore.journal.replicas import WATCH, fenced_error, replicas_of
from mqcore.journal.rights import writing
from mqcore.journal.stamp import producer_of
from mqcore.journal.store.clock import SteadyClock
from mqcore.journal.store.core import WriterCore
from mqcore.journal.store.epoch import Epochs, History, read_epochs, write_epochs
from mqcore.journal.store.exclusive import locked
from mqcore.journal.store.indexing import index_ended, remove_ended
from mqcore.journal.store.place import (
    floor_of,
    groups_folder,
    segment_name,
    segments,
    sync_folder,
)
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.recovery import Dropped, recover
from mqcore.journal.store.snapshot import NAME, kept, merged, recall, save, sweep_halves
from mqcore.journal.waiting import in_thread
from mqcore.journal.writer_options import check_options, groups_of
from mqcore.journal.writer_stats import WriterStats, stats_of

_log = logging.getLogger("mqcore.journal")
LONGEST = 1.0           # seconds for which messages wait in memory at most
LOOK = 60.0             # seconds between two looks at what retention gives up


class Writer(WriterCore):
    """The one writer of a partition; any thread may use it. Made by `mqcore.journal.open`.

    `recovered`: what opening dropped, a tuple of `Dropped`. `error`: why nothing can be written at
    the moment, or why retention failed last, or None.
    """

    def __init__(self, folder: Path, topic: str, partition: int, *, fsync: str = "interval",
                 fsync_interval: float = 0.1, segment_bytes: int = 256 << 20,
                 segment_age: float | None = None, block_bytes: int = 1 << 20,
                 retain_bytes: int | None = None, retain_age: float | None = None,
                 retain_for: tuple[str, ...] = (), stamps: bool = False,
                 deduplicate: bool = False, max_producers: int = 100_000,
                 max_producer_bytes: int = 64 << 20, begin: int = 0, mirror: bool = False,
                 replicas: Any = (), replica_timeout: float = 5.0,
                 replica_options: dict[str, Any] | None = None,
                 compression: str | None = None) -> None:
        check_options(begin=begin, fsync=fsync, fsync_interval=fsync_interval, stamps=stamps,
                      segment_bytes=segment_bytes, segment_age=segment_age, block_bytes=block_bytes,
                      retain_bytes=retain_bytes, retain_age=retain_age, deduplicate=deduplicate,
                      max_producers=max_producers, max_producer_bytes=max_producer_bytes,
                      replica_timeout=replica_timeout, compression=compression)
        retain_for = groups_of(retain_for)
        self._replicas = replicas_of(replicas, topic, partition, replica_timeout,
                                     replica_options)
        pause = min(fsync_interval, LONGEST) if fsync != "always" else LONGEST
        # ns between two syncs where the looks, every `pause` seconds, come more often
        self._sync_every = round(fsync_interval * 1e9) if fsync_interval > LONGEST else 0
        self._sync_at = time.monotonic_ns() + self._sync_every
        self._lock = locked(folder)
        try:
            self._prepare(folder, (retain_bytes, retain_age, retain_for), pause, deduplicate)
            sweep_halves(folder)
            found = recover(folder)
            self.recovered: tuple[Dropped, ...] = tuple(found.dropped)
            for dropped in found.dropped:
                _log.warning("%s", dropped)
            if found.last == 0:         # there is nothing yet
                found.last = begin
            self._journal = found.journal
            self._most = max_producers, max_producer_bytes
            self._producers = ProducerTable(max_producers, max_producer_bytes) if deduplicate \
                else None
            self._begin(found, topic, partition, fsync, block_bytes, segment_bytes, segment_age,
                        pause, stamps, mirror, compression)
        except BaseException:
            if self._replicas is not None:
                self._replicas.close()
            self._lock.release()
            raise
        self._start()

    def _prepare(self, folder: Path, retain: Any, pause: float, deduplicate: bool) -> None:
        for made in (folder.parent.parent, folder.parent):  # another process may have made them
            sync_folder(made)
        self._folder = folder
        self._device = os.stat(folder).st_dev
        self._retain = retain
        self._clock = SteadyClock()
        # reentrant: a signal handler may close the writer inside close() or retain()
        self._ending = threading.RLock()
        self._retaining = threading.RLock()
        self._failures: dict[str, BaseException] = {}   # by what failed last
        self._ends = collections.deque(["once"])
        self._looks = retain[0] is not None or retain[1] is not None or bool(retain[2])
        self._rotations = self._removed = 0
        self._look_at = time.monotonic_ns() + round(pause * 1e9) if self._looks or deduplicate \
            else NEVER

    def _start(self) -> None:
        self._bar(self._epochs.fenced)
        self._leave = functools.partial(close_at_exit, weakref.ref(self))
        atexit.register(self._leave)
        try:
            FLUSHER.add(self)
            if self._replicas is not None:
                WATCH.add(self)
        except BaseException:
            self._end(join=False)
            raise
        COMPONENTS.add(self)

    def _mq_may(self, rights: Any) -> Callable[[Any, bytes], bool]:
        return writing(rights, self.topic)

    def _mq_components(self) -> list[State]:
        if self.closed:
            return []
        error, stats = self.error, self.stats()
        counts = {"next": self.next, "durable": self.durable, "duplicates": self.duplicates,
                  "bytes": stats.bytes, "syncs": stats.syncs, "removed": stats.removed}
        return [State("journal writer", str(self.path), error=str(error or ""), counts=counts)]

    def _begin(self, found: Any, topic: str, partition: int, fsync: str, block_bytes: int,
               segment_bytes: int, segment_age: float | None, pause: float,
               stamps: bool, mirror: bool, compression: str | None) -> None:
        last = found.last
        self._unindexed = last if isinstance(last, int) else found.segment.first
        try:
            self._epochs = read_epochs(self._folder, found.journal)
            if not mirror:
                self._check_epochs(last if isinstance(last, int) else last[3])
            if self._producers is not None and found.segment is not None:
                self._saved = recall(self._folder, found.journal, last[3], self._producers)
            self._attach(self._folder, self._lock.give_folder(), last,
                         topic=topic.encode(), partition=partition, journal=found.journal,
                         fsync=fsync, block_bytes=block_bytes, segment_bytes=segment_bytes,
                         segment_age=0 if segment_age is None else round(segment_age * 1e6),
                         pause=pause, stamps=stamps, producers=self._producers,
                         compression=compression)
        finally:
            if found.segment is not None:
                found.segment.close()
                os.close(last[0])

    def stats(self) -> WriterStats:
        """What it has done. Also after close()."""
        return stats_of(self._counters(), self._removed)

    def life_of(self, producer: int) -> int:
        """The newest life that the writer knows of a producer; 0: none. UsageError: it does not
        deduplicate."""
        if self._producers is None:
            raise UsageError(f"the writer of {self.path} knows no lives",
                             hint="open it with stamps=True, deduplicate=True")
        return self._life_of(producer_of(producer))

    def skip(self, offset: int, *, compacted: bool = False) -> None:
        """Give the next message this offset. For a copy of a journal that has lost messages: who
        reads one of those between gets OffsetGone, which says where to go on. Durable on return.
        compacted: compaction has removed them. Readers pass over them; durable with what follows.

        UsageError: the offset is below `next`. JournalWriteError, and nothing was skipped, unless
        it was the sync that failed: then the writer takes nothing more.
        """
        to = whole(offset)
        if to < (after := self._skip(to, compacted)):
            raise UsageError(f"offset {to} of {self.path} was given out: the next message gets "
                             f"{after}", hint="skip forwards only")

    # -- epochs --

    def _check_epochs(self, end: int) -> None:
        """JournalFenced, JournalUnconfirmed."""
        if not self._epochs.fenced and self._replicas is not None:
            newer = self._replicas.ask(self._epochs, self._journal)
            if newer is not None:
                self._epochs = self._epochs.fenced_by(newer)
                write_epochs(self._folder, self._journal, self._epochs)
        if self._epochs.fenced:
            raise fenced_error(self._folder, self._epochs, end)

    def _set_epochs(self, epochs: Epochs) -> None:
        """Durable on return. A writer that is fenced takes and promises nothing more."""
        if epochs.fenced:       # at once, even if the file cannot be written
            self._bar(True)
            self._epochs, self._told = epochs, False
        self._lock.check()
        write_epochs(self._folder, self._journal, epochs)
        self._epochs, self._told = epochs, True
        self._bar(epochs.fenced)

    def _fence(self, newer: History) -> None:
        """Another copy was promoted."""
        with self._ending:
            if not self.closed and not (self._epochs.fenced and self._told):
                self._set_epochs(self._epochs.fenced_by(newer))
                _log.error("%s", self._fenced_error())

    def _fenced_error(self) -> BaseException:
        return fenced_error(self._folder, self._epochs, self.next)

    # -- the end --

    def close(self) -> int:
        """Make everything durable and end; the offset behind the last message. Idempotent. Raises
        JournalWriteError if `next - durable` messages could not be made durable; the writer is
        closed all the same. In a forked child it only gives back what the child has inherited."""
        return self._end(join=True)

    def _end(self, join: bool) -> int:
        if self._forked:
            self._abandon()
            self._let_go()
            return self.next
        with Released(self._retaining), self._ending:
            try:
                try:
                    self._ends.pop()
                except IndexError:      # it has ended, or a signal handler interrupts its end
                    return self.next
                number = self._finish()
            except BaseException:   # of a signal handler: the next call does the rest
                self._ends.append("again")
                raise
        try:
            with Released(self._retaining):     # its threads may wait for that, too
                FLUSHER.remove(self, join)
            if self._replicas is not None:
                WATCH.remove(self)
        except BaseException:
            self._ends.append("again")
            raise
        lost = self.next - self.durable
        if number and (lost or number not in NO_ROOM):     # else only a checkpoint is missing
            raise write_error(number, f"{self.path}: {lost} messages are not durable", broken=True)
        return self.next

    def _finish(self) -> int:
        """An errno. An interrupted call may be repeated."""
        try:
            number = self._close()
            with self._retaining:       # a retention under way ends first
                if number == 0 and self._lock.file >= 0:
                    self._save_at_end()
            return number
        finally:
            if self.closed:
                self._lock.release()
                self._detach()
                if self._leave is not None:
                    atexit.unregister(self._leave)

    def _let_go(self) -> None:
        """In a forked child."""
        self._lock.let_go()

    async def acommit(self) -> int:
        """commit(), awaited in a worker thread."""
        return await in_thread(self.commit)

    async def aclose(self) -> int:
        return await in_thread(self.close)

    def __enter__(self) -> Writer:
        return self

    async def __aenter__(self) -> Writer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self.closed and not self._forked:
            warnings.warn(f"the writer of {self.path} was not closed", ResourceWarning,
                          stacklevel=2, source=self)
            self._end(join=False)

    def __repr__(self) -> str:
        return (f"<Writer of {self.path}, next {self.next}, durable {self.durable}"
                f"{', closed' if self.closed else ''}>")

    # -- retention --

    def retain(self) -> list[int]:
        """Remove the segments that retention gives up; their first offsets. The writer does so by
        itself after each rotation and once a minute."""
        self._same_process()
        with AT_REST, self._retaining:
            self._prepare_removal()
            removed = self._remove_old()
            self._save_producers()
            return removed

    def truncate_before(self, offset: int) -> int:
        """Remove the messages below this offset, as far as whole segments hold them, and whatever
        retain_for= says. The offset of the first message that is still there, or of the next one.
        With the offset `next` all of them go. Readers that are behind get OffsetGone.

        Raises UsageError (the offset is above `next`), JournalClosed, JournalWriteError.
        """
        to = whole(offset)
        self._same_process()
        with AT_REST, self._retaining:
            if to > self.next:
                raise UsageError(f"the next message of {self.path} gets the offset {self.next}, "
                                 f"and {to} is above it", hint="give `next` to remove all messages")
            if to == self.next:
                self._end_segment()
            return self._truncate(to)

    def _end_segment(self) -> None:
        """On a full disk, what can go already makes room for the new file."""
        try:
            self.rotate()
        except JournalFull:
            self._truncate(segments(self._folder)[-1])
            self.rotate()

    def _truncate(self, to: int) -> int:
        self._prepare_removal()
        firsts = segments(self._folder)
        whole_ones = [pair for pair in zip(firsts, firsts[1:], strict=False) if pair[1] <= to]
        self._remove(whole_ones)
        return firsts[len(whole_ones)]

    def _prepare_removal(self) -> None:
        """What is known is saved before the stamps that tell of it go. On a full disk only when the
        first segment has gone."""
        self._check_open()
        try:
            self._save_producers()
        except (OSError, JournalFull) as error:
            if error.errno not in NO_ROOM:
                raise
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:             # by a signal handler; the folder may be another writer's now
            raise closed_error(self)
        self._lock.check()

    def _remove(self, doomed: list[tuple[int, int]]) -> None:
        """Segments, the oldest ones: (first, end) of each."""
        end = doomed[-1][1] if doomed else 0
        tell: Callable[[], None] | None = self._save_producers if end > self._saved else None
        if tell and self._producers is None:
            rows = kept(self._folder, self._journal, end, self.next, *self._most)
            self._check_open()
            tell = None if rows is None else functools.partial(self._save, end, rows)
        for i, (first, _) in enumerate(doomed):
            if tell is not None:
                try:
                    tell()
                    tell = None
                except (OSError, JournalFull) as error:     # the first one makes room for them
                    if i or error.errno not in NO_ROOM:
                        raise
            with self._lock.changing():     # compaction would bring it back
                remove_ended(self._folder, first)
            sync_folder(self._folder)       # each: else a power cut may leave a gap between them
            self._removed += 1

    def _save_at_end(self) -> None:
        try:
            self._save_producers(closing=True)
        except OSError as error:    # the messages are safe; the next opening takes longer
            _log.warning("%s: %s", self._folder / NAME, error)

    def _save_producers(self, closing: bool = False) -> None:
        """If it deduplicates, and since a rotation, or closing. What is not durable must not be in
        the file: after a power cut its senders send it again."""
        if self._producers is None or not closing and self._counters()["segment"] <= self._saved:
            return
        offset, rows = self._remembered()
        if offset > self.durable:
            self.commit()
        if offset > self._saved:
            self._save(offset, rows)

    def _save(self, offset: int, rows: bytes) -> None:
        self._lock.check()
        save(self._folder, self._journal, offset, rows)
        self._saved = offset

    def _adopt_producers(self, offset: int, rows: bytes) -> None:
        """Of the journal that this one copies: what it remembers of messages below an offset, which
        are durable here."""
        with AT_REST, self._retaining:      # retention may save more meanwhile
            self._check_open()
            self._save(*merged(self._folder, self._journal, offset, rows, *self._most))

    def _remove_old(self) -> list[int]:
        most, age, groups = self._retain
        if most is None and age is None and not groups:
            return []
        firsts, now = segments(self._folder), self._clock.now()
        floor = floor_of(self._folder, groups)
        sizes = {first: (self._folder / segment_name(first)).stat() for first in firsts}
        total = sum(stat.st_size for stat in sizes.values())
        doomed: list[tuple[int, int]] = []
        for first, end in zip(firsts, firsts[1:], strict=False):
            stat = sizes[first]
            old = age is not None and now - stat.st_mtime > age
            much = most is not None and total > most
            read = floor is None or end <= floor
            if not (read and (old or much or most is None and age is None)):
                break
            total -= stat.st_size
            doomed.append((first, end))
        if groups and doomed:       # a commit that was seen may not be durable yet
            sync_folder(groups_folder(self._folder))
        self._remove(doomed)
        return [first for first, _ in doomed]

    # -- on the flusher's thread, and on a syncer's --

    def _is_work(self, now: int) -> bool:
        """Something that a disk may take long for."""
        facts = self._counters()
        return facts["rotations"] != self._rotations or now >= self._look_at or (
            self.fsync == "interval" and now >= self._sync_at and self.durable < self.written)

    def _tick_sync(self) -> int:
        now = time.monotonic_ns()
        if now < self._sync_at:
            return 0
        number = super()._tick_sync()
        self._sync_at = now + self._sync_every
        return number

    def _look_around(self) -> int:
        """Apply retention and make indexes after a rotation, and now and then."""
        rotations, now = self._counters()["rotations"], time.monotonic_ns()
        if rotations == self._rotations and now < self._look_at:
            return 0
        self._rotations = rotations
        self._look_at = now + round(LOOK * 1e9)     # if it fails, too
        with self._retaining:           # a close() waits for both
            self.retain()
            self._unindexed = index_ended(self._folder, self._unindexed)
        self._look_at = self._look_at if self._looks else NEVER
        return 0

    def _report(self, name: str, error: BaseException | None) -> None:
        """What the flusher did succeeded, or failed and will be tried again. Callers get most
        errors, too; this is for those who only read the log, or look at `error`."""
        if error is None:
            self._failures.pop(name, None)
        if error is None or self.closed:
            return
        if repr(error) != repr(self._failures.get(name)):
            known = isinstance(error, Error | OSError)
            _log.error("the flusher of %s: %s", self.path, error, exc_info=None if known else error)
        self._failures[name] = error

    @property
    def error(self) -> BaseException | None:
        """What keeps the writer from writing; None: nothing. One that the next attempt may cure
        (disk full), one for good (after a failed fsync, and JournalClosed), or else what retention
        failed with last."""
        return super().error or next((error for error in [*self._failures.values()]
                                      if not isinstance(error, JournalWriteError)), None)

    _leave: Callable[[], None] | None = None
    _told = True            # the file `epoch` says what is known
    _saved = 0              # the offset up to which the file `producers` tells what is to be kept
