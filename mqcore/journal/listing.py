"""What is there: topics, partitions and ids, of a folder or of a journal server."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mqcore.errors import Error
from mqcore.journal.errors import JournalNotFound
from mqcore.journal.store.place import is_number, may_be_topic
from mqcore.journal.store.segment import journal_id
from mqcore.journal.store.topic_names import check_named, topic_of

SETTLED = 1.0           # seconds after which a folder's times tell whether it has changed
ROUNDS = 100            # of topics that are renamed all the time

_log = logging.getLogger("mqcore.journal")


class PartitionInfo(NamedTuple):
    """One partition. id: tells it from one that was deleted and made anew in its place; None:
    nothing has been written to it yet."""

    topic: str
    partition: int
    id: str | None


Known = dict[Path, tuple[tuple[int, int, int], PartitionInfo]]


class Listing:
    """What a folder holds, looked at again and again. It remembers ids, so that a look costs no
    more than asking the system about each partition's folder."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self.where = Path(where)
        self.rows: list[PartitionInfo] = []
        self._known: dict[str, Known] = {}      # by the topic's folder

    def look(self, bad: Callable[[Path, Exception], Any]) -> Iterator[None]:
        """Step by step; at the end `rows` is new, in order. What cannot be read is left out, and
        reported by bad(its path, why)."""
        found: dict[str, int] = {}
        known: dict[str, Known] = {}
        for _ in range(ROUNDS):         # again what was renamed meanwhile, under its new name
            now = self._topics()
            new = sorted(name for name, inode in now.items() if found.get(name) != inode)
            known = {name: rows for name, rows in known.items() if name in now}
            if not new:
                break
            found = now
            for name in new:
                yield
                known[name] = {}
                for path in self._partitions(name, bad):
                    yield
                    self._look_at(path, known[name], self._known.get(name, {}), bad)
        self._known = dict(sorted(known.items()))
        self.rows = [row for rows in self._known.values() for _, row in rows.values()]

    def _look_at(self, path: Path, known: Known, before: Known,
                 bad: Callable[[Path, Exception], Any]) -> None:
        try:
            found = os.stat(path)
            seen = found.st_dev, found.st_ino, found.st_ctime_ns
            if path in before and before[path][0] == seen:
                known[path] = before[path]
                return
            topic = topic_of(path)
            if topic is None:
                check_named(path)
                return
            row = PartitionInfo(topic, int(path.name), journal_id(path))
            settled = time.time() - found.st_ctime > SETTLED
            known[path] = seen if settled else (0, 0, 0), row
        except FileNotFoundError:
            pass                        # deleted just now
        except (OSError, Error) as error:
            bad(path, error)

    def _topics(self) -> dict[str, int]:
        """What is in the folder, with inodes."""
        with os.scandir(self.where) as entries:
            return {entry.name: entry.inode() for entry in entries}

    def _partitions(self, name: str, bad: Callable[[Path, Exception], Any]) -> list[Path]:
        folder = self.where / name
        try:
            with os.scandir(folder) as entries:
                numbers = [int(entry.name) for entry in entries
                           if is_number(entry.name) and entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if may_be_topic(name):      # not lost+found, which only root can read
                bad(folder, error)
            return []
        return [folder / str(number) for number in sorted(numbers)]


def in_folder(where: str | os.PathLike[str],
              bad: Callable[[Path, Exception], Any] | None = None) -> list[PartitionInfo]:
    """At once. bad: see Listing.look(); without it, a warning says what is left out."""
    listing = Listing(where)
    for _ in listing.look(bad or (
            lambda path, error: _log.warning("%s is left out of the list: %s", path, error))):
        pass
    return listing.rows


def list_partitions(where: str | os.PathLike[str], **remote: Any) -> list[PartitionInfo]:
    """All partitions of a folder, or of the journal server at an address; remote: as for `open`.

    Raises FileNotFoundError, NotSupported if the server is too old for this, or RecvTimeout if no
    server answers.
    """
    where = os.fsdecode(where)
    if "://" not in where:
        return in_folder(where)
    from mqcore.journal.server.remote import Directory

    with Directory(where, **remote) as directory:
        return directory.partitions()


def not_found(where: str | os.PathLike[str], topic: str | None,
              partition: int | None) -> JournalNotFound:
    return JournalNotFound(nothing_there(os.fsdecode(where), topic, partition),
                           hint="`mq journal ls` lists what a folder holds")


def nothing_there(where: str, topic: str | None, partition: int | None) -> str:
    """The words for a journal, a topic or a partition that `where` does not have; None: any."""
    what = "no journal" if topic is None else f"no topic {topic!r}"
    return f"{where} has {what}" + ("" if partition is None else f" with a partition {partition}")
