"""Sources: the partitions that a server has open. It opens one when a reader asks for it, and
closes it when no stream has used it and no question has named it for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mqcore.errors import Error
from mqcore.journal.errors import NO_FILES, JournalBusy, JournalNotFound
from mqcore.journal.reader import Reader
from mqcore.journal.store.epoch import EpochsOf
from mqcore.journal.store.place import partition_folder
from mqcore.journal.store.segment import ANEW, journal_id
from mqcore.journal.waiting import Watch

Key = tuple[str, int]
SPARE = 8               # sources that are closed for one that finds no descriptor


class Source:
    """One open partition. `version` grows when there may be something new to read."""

    def __init__(self, key: Key, path: Path) -> None:
        self.key = key
        self.path = path
        self.reader = Reader(path, *key)
        self.epochs = EpochsOf(path)
        self.streams = 0
        self.version = 0
        self.used = self.looked = time.monotonic()
        try:
            self._stamp = self._seen()
            self.id = journal_id(path)
        except BaseException:
            self.reader.close()
            raise
        self.watch: Watch | None = None

    def _seen(self) -> tuple[int, int, int]:
        found = os.stat(self.path)
        return found.st_dev, found.st_ino, found.st_ctime_ns

    def follow(self) -> None:
        """A stream begins. Only streams need to be told when the files grow."""
        if self.watch is None:
            self.watch = Watch(self.path, -1)
        self.streams += 1

    def unfollow(self) -> None:
        self.streams -= 1
        self.used = time.monotonic()
        if self.streams == 0 and self.watch is not None:
            self.watch.close()
            self.watch = None

    def look(self, now: float) -> None:
        """Before it is read for streams: what comes from here on is noticed the next time."""
        if self.watch is not None and (self.watch.drain() or now - self.looked >= (
                self.watch.longest)):
            self.looked = now
            self.version += 1

    def check(self) -> None:
        """Raises JournalNotFound if the journal was deleted, or made anew in its place."""
        try:
            seen = self._seen()
        except (FileNotFoundError, NotADirectoryError):
            seen = (-1, -1, -1)
        if seen == self._stamp:
            return
        if seen[:2] == self._stamp[:2]:
            ident = journal_id(self.path)
            if self.id is None or ident in (None, self.id):     # None: nothing is there just now
                self.id, self._stamp = ident or self.id, seen
                return
        raise JournalNotFound(f"the journal {self.id} of topic {self.key[0]!r}, partition "
                              f"{self.key[1]}, was deleted",
                              hint=ANEW)

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        self.reader.close()


class Sources:
    """All open ones: at most `most`, and none unused for longer than `idle` seconds."""

    def __init__(self, where: str | os.PathLike[str], most: int, idle: float,
                 gone: Callable[[Source, Exception], None], crowded: Callable[[], None]) -> None:
        """gone: called with one whose journal was deleted, before it is closed. crowded: called if
        all have streams and another one is wanted; it may end some."""
        self.where = Path(where)
        self._gone = gone
        self._crowded = crowded
        self._most = most
        self._idle = idle
        self._open: dict[Key, Source] = {}      # the least recently used first

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Source]:
        return iter(list(self._open.values()))

    def get(self, topic: str, partition: int) -> Source:
        key = topic, partition
        source = self._open.pop(key, None)
        if source is None:
            path = partition_folder(self.where, topic, partition)
            if len(self._open) >= self._most and not self._room():
                raise JournalBusy(f"{len(self._open)} partitions have streams, and the journal "
                                  f"server opens no more")
            source = self._opened(key, path)
        source.used = time.monotonic()
        self._open[key] = source
        return source

    def _opened(self, key: Key, path: Path) -> Source:
        """If the process has no descriptor left, those without streams make way."""
        for _ in range(2):
            try:
                return Source(key, path)
            except OSError as error:
                if error.errno not in NO_FILES:
                    raise
                found = error
            if not self.release(SPARE):
                break
        raise JournalBusy(f"the journal server opens no more partitions: {found.strerror}",
                          hint="raise its limit of open files (ulimit -n)") from found

    def forget(self, source: Source) -> None:
        if self._open.get(source.key) is source:
            del self._open[source.key]
        source.close()

    def checked(self, source: Source) -> bool:
        """False: its journal is gone, and it is closed."""
        try:
            source.check()
        except JournalNotFound as error:
            self._gone(source, error)
            self.forget(source)
            return False
        except (Error, OSError):        # whatever is wrong with it, the next read meets it
            pass
        return True

    def _room(self) -> bool:
        if not self.release(1):
            self._crowded()
        return len(self._open) < self._most or self.release(1) > 0

    def release(self, most: int) -> int:
        """Close up to `most` of those without streams, the least recently used first."""
        found = [source for source in self._open.values() if source.streams == 0][:most]
        for source in found:
            self.forget(source)
        return len(found)

    def release_idle(self, now: float) -> None:
        for source in self:
            if source.streams == 0 and now - source.used >= self._idle:
                self.forget(source)

    def close(self) -> None:
        for source in self:
            self.forget(source)
