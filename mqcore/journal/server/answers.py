"""Answers: what a journal server's questions are answered with."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections import Counter
from typing import Any

from mqcore.errors import Error, UsageError
from mqcore.journal.errors import (
    NO_FILES,
    JournalBusy,
    JournalDenied,
    JournalFenced,
    JournalNotFound,
    OffsetGone,
)
from mqcore.journal.groups.rosters import Rosters
from mqcore.journal.records import Records, runs
from mqcore.journal.replicas import mirror_error
from mqcore.journal.rights import Rights
from mqcore.journal.server import failover, requests
from mqcore.journal.server.codec import encode, pack
from mqcore.journal.server.limits import MESSAGES, SLICE, Limits
from mqcore.journal.server.requests import Request
from mqcore.journal.server.sources import Source, Sources
from mqcore.journal.store.commits import commit
from mqcore.journal.store.epoch import Epochs, EpochsOf, read_epochs
from mqcore.journal.store.place import is_number, topic_folder
from mqcore.journal.store.segment import ANEW
from mqcore.journal.store.snapshot import piece

PATIENCE = 0.02         # seconds that one answer waits for the commits of other processes
SHORT = NO_FILES | {errno.ENOMEM, errno.ENOBUFS}
LOOK = 1.0              # seconds between two looks at whether a topic is a mirror's
_log = logging.getLogger("mqcore.journal")


def read(source: Source, offset: int, size: int, request: Any) -> Records:
    """What one answer, or one piece of a stream, may hold. request: has `durable`, and `compacted`:
    whether the reader knows of compaction."""
    found: Records = source.reader.read(offset, max_bytes=size,
                                        durable=request.durable).slice(0, MESSAGES)
    if request.compacted:
        return found
    if found.first > offset:
        raise OffsetGone(f"message {offset} was removed by compaction", offset=offset,
                         first=found.first, hint=f"the next one that is left is {found.first}")
    return next(runs(found))


def fenced(epochs: Epochs, topic: str, partition: int) -> JournalFenced:
    epoch = epochs.newer[-1].epoch
    return JournalFenced(f"topic {topic!r}, partition {partition}, is continued in epoch {epoch} "
                         "by a mirror that was promoted", epoch=epoch,
                         hint="use the address of the promoted mirror's server")


def passing(error: Exception) -> Exception:
    """What passes by itself is JournalBusy: its reader asks again."""
    short = isinstance(error, OSError) and error.errno in SHORT and not isinstance(error, Error)
    if short or isinstance(error, MemoryError):
        return JournalBusy("the journal server has no descriptor, or no memory, left at the moment",
                           hint="raise its limit of open files (ulimit -n), or give it more memory")
    return error


def check_rights(rights: Rights, request: Any) -> None:
    """JournalDenied: the request goes beyond them."""
    topic = getattr(request, "topic", None)
    if topic is not None and not rights.covers_topic(topic):
        raise JournalDenied(f"you may not read topic {topic!r} of this journal server")
    commits = isinstance(request, (requests.Commit, requests.Beat))
    if commits and not rights.covers_group(request.group):
        raise JournalDenied(f"you may not commit consumer group {request.group!r} on this journal "
                            "server")


def _check(epochs: Epochs, topic: str, partition: int) -> None:
    if epochs.fenced:
        raise fenced(epochs, topic, partition)
    if epochs.mirror:
        raise mirror_error(f"topic {topic!r}, partition {partition},")


class Answers:
    """`counts` are the server's. `patience`: seconds that one look into a partition may take."""

    def __init__(self, sources: Sources, groups: bool, rosters: Rosters, limits: Limits,
                 counts: Counter[str]) -> None:
        self.patience = SLICE
        self._sources = sources
        self._groups = groups
        self._rosters = rosters
        self._limits = limits
        self._counts = counts
        self._topics: dict[str, tuple[float, Error | None]] = {}    # looked at until when, and why

    def to(self, request: Request, allowance: int) -> list[bytes]:
        """allowance: bytes of records at most."""
        number = request.number
        source = self.source(request)
        if isinstance(request, requests.Read):
            size = min(max(1, request.bytes), allowance)
            return self.records({"id": number},
                                read(source, request.offset, size, request), source)
        if isinstance(request, requests.Producers):
            return self._producers(request, source, allowance)
        fact = self._fact(request, source)
        mark = failover.mark_of(source.epochs.look(), source.id)
        return [encode({"id": number, "ok": fact, **mark})]

    def source(self, request: Any) -> Source:
        """The partition that a request names. One that was deleted and made anew in the meantime
        is opened again."""
        source = self._sources.get(request.topic, request.partition)
        if not self._sources.checked(source):
            source = self._sources.get(request.topic, request.partition)
        origin = failover.origin_of(source.epochs.look(), source.id)
        if request.origin is not None and origin not in (None, request.origin):
            raise JournalNotFound(f"{request.topic!r}, partition {request.partition}, is another "
                                  "journal by now", hint=ANEW)
        source.reader._hurry(time.monotonic() + self.patience)
        return source

    def records(self, head: dict[str, Any], found: Records, source: Source) -> list[bytes]:
        head["records"], body = pack(found)
        # behind the records: whatever epoch they are of has begun
        head.update(failover.mark_of(source.epochs.look(), source.id))
        self._counts["messages"] += len(found)
        self._counts["bytes"] += found.nbytes
        return [encode(head), body]

    def _producers(self, request: requests.Producers, source: Source,
                   allowance: int) -> list[bytes]:
        ident = bytes.fromhex(source.id or "")
        version, some = piece(source.path, ident, request.at, min(request.bytes, allowance))
        mark = failover.mark_of(source.epochs.look(), source.id)
        return [encode({"id": request.number, "producers": version._asdict(), **mark}), some]

    def _fact(self, request: Any, source: Source) -> Any:
        reader: Any = source.reader
        if isinstance(request, requests.Ends):
            return [reader.first, reader.end, reader.begin]
        if isinstance(request, requests.Durable):
            return reader.durable
        if isinstance(request, requests.At):
            return reader.at(request.time)
        if isinstance(request, requests.Size):
            return reader.stored_bytes(request.start, request.stop)
        if isinstance(request, requests.Groups):
            return reader.groups()
        if isinstance(request, requests.Epochs):
            return failover.described(source.epochs.look(), source.id)
        if isinstance(request, requests.Committed):
            return reader.committed_offset(request.group)
        self._commit(request, source)
        return None

    def of_group(self, link: int, request: requests.Beat | requests.Members) -> list[bytes]:
        """link: the connection that it came over."""
        answer: Any = None
        if isinstance(request, requests.Members):
            answer = self._rosters.shares(request.topic, request.group)
        else:
            self._allow_groups()
            self._check_topic(request.topic)
            answer = self._rosters.beat(link, request)
        return [encode({"id": request.number, "ok": answer})]

    def _allow_groups(self) -> None:
        if not self._groups:
            raise UsageError("this journal server lets no reader commit consumer groups",
                             hint="start it with groups=True (mq journal serve --groups)")

    def _check_primary(self, source: Source) -> None:
        _check(source.epochs.look(), *source.key)

    def _check_topic(self, topic: str) -> None:
        """The same for all partitions of a topic, whose members beat often."""
        now = time.monotonic()
        due, error = self._topics.get(topic, (now, None))
        if now >= due:
            error = None
            try:
                for path in (self._sources.where / topic_folder(topic)).iterdir():
                    if is_number(path.name):
                        epochs = read_epochs(path)
                        if epochs.fenced or epochs.mirror:      # or is the file another journal's?
                            _check(EpochsOf(path).look(), topic, int(path.name))
            except (FileNotFoundError, NotADirectoryError):
                pass            # the roster says so
            except Error as found:
                error = found
            if len(self._topics) > 1000:
                self._topics.clear()
            self._topics[topic] = now + LOOK, error
        if error is not None:
            raise error.with_traceback(None)

    def _commit(self, request: requests.Commit, source: Source) -> None:
        self._allow_groups()
        self._check_primary(source)
        self._rosters.check(request)
        end = source.reader.end
        if request.offset > end:
            raise UsageError(f"offset {request.offset} is beyond the end, {end}",
                             hint="a group commits the offset of the next message that it reads")
        if request.token is not None:       # a commit may come late, over another connection
            known = source.reader.committed_offset(request.group)
            if request.expected == "any" and known is not None and known >= request.offset:
                return
        with contextlib.suppress(FileNotFoundError):
            n = len(os.listdir(source.path / "groups"))
            if n >= self._limits.groups and source.reader.committed_offset(request.group) is None:
                raise JournalBusy(f"the partition has {n} consumer groups, the limit")
        commit(source.path, request.group, request.offset, request.expected, PATIENCE,
               lambda _: self._check_still(source))

    def _check_still(self, source: Source) -> None:
        """A promotion has copied the groups if the journal is fenced by now."""
        source.check()
        self._check_primary(source)
