"""Writer: opening a partition to append, its thread, retention, and the end."""

from __future__ import annotations

import atexit
import errno
import functools
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqcore.errors import OptionError
from mqcore.journal.core import WriterCore
from mqcore.journal.errors import write_error
from mqcore.journal.place import group_offset, lock, segment_name, segments, sync_folder, unlock
from mqcore.journal.producers import ProducerTable
from mqcore.journal.recovery import Dropped, recover
from mqcore.journal.snapshot import NAME, recall, save

_log = logging.getLogger("mqcore.journal")
POLICIES = ("always", "interval", "never")
QUIET = 1.0             # seconds between two looks of a writer that syncs at every call
MIN_SEGMENT = 4 << 10
MIN_BLOCK, MAX_BLOCK = 1 << 10, 256 << 20


class Writer(WriterCore):
    """The one writer of a partition; any thread may use it. Made by `mqcore.journal.open`.

    `recovered`: what opening dropped, a tuple of `Dropped`. `error`: why nothing can be written at
    the moment, or None.
    """

    def __init__(self, folder: Path, topic: str, partition: int, *, fsync: str = "interval",
                 fsync_interval: float = 0.1, segment_bytes: int = 256 << 20,
                 segment_age: float | None = None, block_bytes: int = 1 << 20,
                 retain_bytes: int | None = None, retain_age: float | None = None,
                 retain_for: tuple[str, ...] = (), stamps: bool = False,
                 deduplicate: bool = False, max_producers: int = 100_000,
                 begin: int = 0) -> None:
        check_options(begin=begin, fsync=fsync, fsync_interval=fsync_interval, stamps=stamps,
                      segment_bytes=segment_bytes, segment_age=segment_age, block_bytes=block_bytes,
                      retain_bytes=retain_bytes, retain_age=retain_age, deduplicate=deduplicate,
                      max_producers=max_producers)
        folder.mkdir(parents=True, exist_ok=True)
        for made in (folder.parent.parent, folder.parent):
            sync_folder(made)
        self._folder = folder
        self._retain = (retain_bytes, retain_age, (retain_for,) if isinstance(retain_for, str)
                        else tuple(retain_for))
        self._lock = lock(folder)
        try:
            found = recover(folder)
            self.recovered: tuple[Dropped, ...] = tuple(found.dropped)
            for dropped in found.dropped:
                _log.warning("%s", dropped)
            if found.last == 0:         # there is nothing yet
                found.last = begin
            self._journal = found.journal
            self._producers = ProducerTable(max_producers) if deduplicate else None
            self._begin(found, topic, partition, fsync, block_bytes, segment_bytes, segment_age,
                        stamps)
        except BaseException:
            unlock(self._lock)
            raise
        self._stop = threading.Event()
        self._ending = threading.Lock()
        self._retaining = threading.Lock()
        self._rotations = -1
        ref = weakref.ref(self)
        self._leave = functools.partial(_at_exit, ref)
        atexit.register(self._leave)
        pause = min(fsync_interval, QUIET) if fsync != "always" else QUIET
        self._thread = threading.Thread(
            target=_run, args=(ref, self._stop, pause, fsync == "interval"),
            name="mqcore-journal", daemon=True)
        self._thread.start()

    def _begin(self, found: Any, topic: str, partition: int, fsync: str, block_bytes: int,
               segment_bytes: int, segment_age: float | None, stamps: bool) -> None:
        last = found.last
        try:
            if self._producers is not None and found.segment is not None:
                self._saved = recall(self._folder, found.journal, last[3], self._producers)
            self._attach(self._folder, os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC), last,
                         topic=topic.encode(), partition=partition, journal=found.journal,
                         fsync=fsync, block_bytes=block_bytes, segment_bytes=segment_bytes,
                         segment_age=0 if segment_age is None else round(segment_age * 1e6),
                         stamps=stamps, producers=self._producers)
        finally:
            if found.segment is not None:
                found.segment.close()
                os.close(last[0])

    # -- the end --

    def close(self) -> int:
        """Make everything durable and end; the offset behind the last message. A second call does
        nothing. Raises JournalWriteError if messages could not be made durable (`next - durable` of
        them); the writer is closed all the same. In a forked child: only lets go."""
        with self._ending:
            if self.closed:
                return self.next
            number = self._close()
            self._stop.set()
            atexit.unregister(self._leave)
            if self._thread is not threading.current_thread() and os.getpid() == self._pid:
                self._thread.join()
            if os.getpid() == self._pid:
                if number == 0:
                    self._save_at_end()
                unlock(self._lock)
            else:
                os.close(self._lock)
            self._detach()
        if number:
            lost = self.next - self.durable
            raise write_error(number, f"{self.path}: {lost} messages are not durable", broken=True)
        return self.next

    async def acommit(self) -> int:
        """commit(), awaited in a worker thread."""
        from mqcore.journal.waiting import in_thread

        return await in_thread(self.commit)

    async def aclose(self) -> int:
        from mqcore.journal.waiting import in_thread

        return await in_thread(self.close)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Writer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"the writer of {self.path} was not closed", ResourceWarning,
                          stacklevel=2, source=self)
            self.close()

    def __repr__(self) -> str:
        return (f"<Writer of {self.path}, next {self.next}, durable {self.durable}"
                f"{', closed' if self.closed else ''}>")

    # -- retention --

    def retain(self) -> list[int]:
        """Remove the segments that retention gives up; their first offsets. The writer does so by
        itself after each rotation and once a minute."""
        with self._retaining:
            if self._counters()["segment"] > self._saved:
                self._save_producers()      # before the stamps that tell of them go
            return self._remove_old()

    def _save_at_end(self) -> None:
        try:
            with self._retaining:
                self._save_producers()
        except OSError as error:    # the messages are safe; the next opening takes longer
            _log.warning("%s: %s", self._folder / NAME, error)

    def _save_producers(self) -> None:
        """What is not durable must not be in the file: after a power cut its senders send it
        again."""
        if self._producers is None:
            return
        offset, rows = self._remembered()
        if offset > self.durable:
            self.commit()
        if offset > self._saved:
            save(self._folder, self._journal, offset, rows)
            self._saved = offset

    def _remove_old(self) -> list[int]:
        most, age, groups = self._retain
        if most is None and age is None and not groups:
            return []
        firsts = segments(self._folder)
        floor = min((group_offset(self._folder, group) or 0 for group in groups), default=None)
        sizes = {first: (self._folder / segment_name(first)).stat() for first in firsts}
        total = sum(stat.st_size for stat in sizes.values())
        removed: list[int] = []
        for first, end in zip(firsts, firsts[1:], strict=False):
            stat = sizes[first]
            old = age is not None and time.time() - stat.st_mtime > age
            much = most is not None and total > most
            read = floor is None or end <= floor
            if not (read and (old or much or most is None and age is None)):
                break
            os.unlink(self._folder / segment_name(first))
            total -= stat.st_size
            removed.append(first)
        if removed:
            sync_folder(self._folder)
        return removed

    def _look_around(self) -> None:
        """On our thread, after each tick."""
        rotations = self._counters()["rotations"]
        due = time.monotonic()
        if rotations != self._rotations or due - self._looked > 60:
            self._rotations, self._looked = rotations, due
            try:
                self.retain()
            except OSError as error:
                _log.warning("after a rotation of %s: %s", self.path, error)

    _looked = 0.0
    _saved = 0              # the offset up to which the file `producers` tells


def check_options(**given: Any) -> None:
    """Those of a Writer, or some of them. OptionError."""
    if given.get("fsync", POLICIES[0]) not in POLICIES:
        raise OptionError(f"fsync={given['fsync']!r}", hint=f"it is one of {', '.join(POLICIES)}")
    if given.get("deduplicate") and not given.get("stamps"):
        raise OptionError("deduplicate=True without stamps=True",
                          hint="it is by the stamps of their senders that duplicates are known")
    limits: dict[str, tuple[float, float]] = {
        "fsync_interval": (0.001, 3600), "segment_bytes": (MIN_SEGMENT, 1 << 40),
        "begin": (0, 1 << 62), "segment_age": (0.001, 1e9), "block_bytes": (MIN_BLOCK, MAX_BLOCK),
        "retain_bytes": (0, 1 << 62), "retain_age": (0, 1e9), "max_producers": (1, 1 << 24)}
    for name, (low, high) in limits.items():
        if given.get(name) is not None and not low <= given[name] <= high:
            raise OptionError(f"{name}={given[name]!r}", hint=f"it is {low:g} to {high:g}")


def _run(ref: Callable[[], Writer | None], stop: threading.Event, pause: float, sync: bool) -> None:
    failed = 0
    while not stop.wait(pause):
        writer = ref()
        if writer is None:
            return
        number = writer._tick(sync)
        if number and number != failed:     # callers get it too; here for who only looks at logs
            _log.error("%s: %s", writer.path, errno.errorcode.get(number, number))
        failed = number
        writer._look_around()
        del writer


def _at_exit(ref: Callable[[], Writer | None]) -> None:
    writer = ref()
    if writer is not None:
        writer.close()
