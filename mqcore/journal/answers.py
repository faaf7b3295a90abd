"""Answers: what a journal server's questions are answered with."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from typing import Any

from mqcore.errors import UsageError
from mqcore.journal import requests
from mqcore.journal.complaints import Complaints
from mqcore.journal.errors import JournalBusy
from mqcore.journal.limits import MESSAGES, Limits
from mqcore.journal.listing import Listing, PartitionInfo
from mqcore.journal.records import Records
from mqcore.journal.requests import Request
from mqcore.journal.sources import Source, Sources
from mqcore.journal.wire import encode, pack

_log = logging.getLogger("mqcore.journal")


def read(source: Source, offset: int, size: int, durable: bool) -> Records:
    """What one answer, or one piece of a stream, may hold."""
    how: dict[str, Any] = {"durable": True} if durable else {}
    return source.reader.read(offset, max_bytes=size, **how).slice(0, MESSAGES)


class Answers:
    """`counts` are the server's."""

    def __init__(self, sources: Sources, groups: bool, limits: Limits, counts: Counter[str],
                 complaints: Complaints) -> None:
        self._sources = sources
        self._groups = groups
        self._limits = limits
        self._counts = counts
        self._complaints = complaints
        self._listing = Listing(sources.where)

    def to(self, request: Request, allowance: int) -> list[bytes]:
        """allowance: bytes of records at most."""
        number = request.number
        if isinstance(request, requests.List):
            return [encode({"id": number, "ok": self._list()})]
        source = self.source(request)
        if isinstance(request, requests.Read):
            size = min(max(1, request.bytes), allowance)
            return self.records({"id": number},
                                read(source, request.offset, size, request.durable))
        return [encode({"id": number, "ok": self._fact(request, source)})]

    def source(self, request: Any) -> Source:
        """The partition that a request names. One that was deleted and made anew in the meantime
        is opened again."""
        source = self._sources.get(request.topic, request.partition)
        if not self._sources.checked(source):
            source = self._sources.get(request.topic, request.partition)
        return source

    def records(self, head: dict[str, Any], found: Records) -> list[bytes]:
        head["records"], body = pack(found)
        self._counts["messages"] += len(found)
        self._counts["bytes"] += found.nbytes
        return [encode(head), body]

    def _fact(self, request: Any, source: Source) -> Any:
        reader: Any = source.reader
        if isinstance(request, requests.Ends):
            return [reader.first, reader.end]
        if isinstance(request, requests.Durable):
            return reader.durable
        if isinstance(request, requests.At):
            return reader.at(request.time)
        if isinstance(request, requests.Size):
            return reader.stored_bytes(request.start, request.stop)
        if isinstance(request, requests.Groups):
            return reader.groups()
        if isinstance(request, requests.Committed):
            return reader.committed(request.group)
        self._commit(request, source)
        return None

    def _commit(self, request: requests.Commit, source: Source) -> None:
        if not self._groups:
            raise UsageError("this journal server lets no reader commit consumer groups",
                             hint="start it with groups=True (mq journal serve --groups)")
        end = source.reader.end
        if request.offset > end:
            raise UsageError(f"offset {request.offset} is beyond the end, {end}",
                             hint="a group commits the offset of the next message that it reads")
        with contextlib.suppress(FileNotFoundError):
            n = len(os.listdir(source.path / "groups"))
            if n >= self._limits.groups and source.reader.committed(request.group) is None:
                raise JournalBusy(f"the partition has {n} consumer groups, the limit")
        source.reader.commit(request.group, request.offset)

    def _list(self) -> list[PartitionInfo]:
        """Also ends streams of journals that were deleted, or made anew, in the meantime."""
        for source in self._sources:
            self._sources.checked(source)
        return self._listing.look(self._bad_topic)

    def _bad_topic(self, path: Any, error: Exception) -> None:
        if self._complaints.due("damaged partitions"):
            _log.warning("%s is left out of the list: %s", path, error)
