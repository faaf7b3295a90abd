"""The places that a read comes from, folders and journal servers, as the driver sees them.

A partition is named `id|topic|partition` in what Spark stores, where id is the one in its segments'
headers. So two places may hold the same topic and partition, and a journal that was deleted and
made anew is another one, whose offsets are not compared.
"""

from __future__ import annotations

import os
import resource
from typing import Any, NamedTuple

from mqcore import journal
from mqcore.errors import OptionError, RecvTimeout
from mqcore.journal.server.remote import Directory
from mqcore.journal.store.segment import journal_id
from mqcore.spark.options import RECORD, SOCKETS, Options

KEPT = 128      # readers with an open file at most, or a quarter of the descriptors


class Part(NamedTuple):
    """A partition of a journal: in a folder, or at a server's address."""

    where: str
    id: str
    topic: str
    partition: int

    @property
    def key(self) -> str:
        return f"{self.id}|{self.topic}|{self.partition}"

    @property
    def name(self) -> str:
        return f"{self.topic}|{self.partition}"

    def __str__(self) -> str:
        return f"{self.name} at {self.where}"

    def open(self, options: Options, origin: str | None = None) -> journal.Reader:
        """origin: what a journal server has said of it before. JournalNotFound: another journal is
        there by now."""
        remote = {"timeout": options.timeoutMs / 1000} if "://" in self.where else {}
        reader = journal.open(self.where, topic=self.topic, partition=self.partition,
                            durable=options.durable, **remote)
        try:
            if not self._is_that_of(reader, origin):
                raise journal.JournalNotFound(f"{self} was made anew")
        except BaseException:
            reader.close()
            raise
        return reader

    def _is_that_of(self, reader: journal.Reader, origin: str | None) -> bool:
        """The reader stays with the journal that it has opened."""
        if "://" in self.where:
            return origin in (None, origin_of(reader))
        return journal_id(reader.path) == self.id


class Nodes:
    """Readers and connections stay open from one look to the next: what they know makes `end`
    cheap. Only the first KEPT readers keep their file open."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._readers: dict[str, journal.Reader] = {}
        self._directories: dict[str, Directory] = {}
        self._kept: set[str] = set()
        self._lent: journal.Reader | None = None

    def find(self, must_exist: bool) -> list[Part]:
        """The partitions that the options choose. must_exist: those named must be there."""
        options = self._options
        there = [(where, *info) for where in options.nodes for info in self._list(where)]
        if must_exist:
            _all_there(options, [(topic, number) for _, topic, number, _ in there])
        found: dict[str, Part] = {}
        for where, topic, number, ident in there:
            if ident is None or not _chosen(options, topic, number):
                continue        # without an id it is empty
            part = Part(where, ident, topic, number)
            other = found.setdefault(part.key, part)
            if other is not part:
                raise OptionError(f"{part} is also at {other.where}: a copy, or the same journal "
                                  f"named twice", hint="its messages would come twice; leave one "
                                                       "out")
        self._forget(found)
        return list(found.values())

    def _forget(self, found: dict[str, Part]) -> None:
        """Readers of partitions that have gone, which would keep the space of deleted files."""
        for key in self._readers.keys() - found.keys():
            reader = self._readers.pop(key)
            self._kept.discard(key)
            self._lent = None if self._lent is reader else self._lent
            reader.close()

    def _list(self, where: str) -> list[journal.PartitionInfo]:
        if "://" not in where:
            if not os.path.isdir(where):
                hint = ("commas separate folders; for a name with a comma in it: "
                        'option("path", \'["/a,b"]\')') if len(self._options.nodes) > 1 else None
                raise journal.JournalNotFound(f"there is no journal at {where}", hint=hint)
            return journal.list_partitions(where)
        try:
            if where not in self._directories:
                self._directories[where] = Directory(where,
                                                     timeout=self._options.timeoutMs / 1000)
            return self._directories[where].partitions()
        except RecvTimeout as error:
            raise RecvTimeout(
                error.text, hint="does `mq journal serve` run there? If that is a live socket: a "
                                 f"stream cannot read it, since {SOCKETS}; {RECORD}") from None

    def reader(self, part: Part) -> journal.Reader:
        """For a look: with many partitions its file is closed before the next reader's."""
        if self._lent is not None:
            self._lent.release()
            self._lent = None
        if part.key not in self._readers:
            self._readers[part.key] = part.open(self._options)
        reader = self._readers[part.key]
        if part.key not in self._kept:
            if len(self._kept) < _kept_most():
                self._kept.add(part.key)
            else:
                self._lent = reader
        return reader

    def origin(self, part: Part) -> str | None:
        """For Part.open() in an executor."""
        return origin_of(self.reader(part)) if "://" in part.where else None

    def end(self, part: Part) -> int:
        """Up to where it is read: what is durable, unless the option says otherwise."""
        reader = self.reader(part)
        return reader.durable if self._options.durable else reader.end

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        for directory in self._directories.values():
            directory.close()
        self._readers.clear()
        self._kept.clear()
        self._lent = None
        self._directories.clear()

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_readers": {}, "_directories": {}, "_kept": set(),
                "_lent": None}


def origin_of(reader: Any) -> str | None:
    """The journal that a server says it is reading."""
    found: str | None = reader._about.get("origin")
    return found


def _kept_most() -> int:
    return min(KEPT, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


def _all_there(options: Options, there: list[tuple[str, int]]) -> None:
    missing = {f"topic {topic}" for topic in options.subscribe or ()} \
        - {f"topic {topic}" for topic, _ in there}
    missing |= {f"partition {topic}|{n}" for topic, n in options.assign or ()
                if (topic, n) not in there}
    if missing:
        topics = ", ".join(sorted({topic for topic, _ in there})) or "nothing"
        raise journal.JournalNotFound(
            f"{', '.join(options.nodes)} has no {', no '.join(sorted(missing))}",
            hint=f"it has {topics}")


def _chosen(options: Options, topic: str, partition: int) -> bool:
    if options.subscribe is not None:
        return topic in options.subscribe
    if options.assign is not None:
        return (topic, partition) in options.assign
    return options.subscribePattern.fullmatch(topic) is not None
