"""RemoteReader: the same calls as a Reader, answered by a journal server elsewhere; Directory: what
there is at such a server."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

from mqcore.errors import AddressError, NotSupported, OptionError, RecvTimeout, UsageError
from mqcore.journal.errors import JournalClosed
from mqcore.journal.listing import PartitionInfo
from mqcore.journal.reader import Reader
from mqcore.journal.records import Records, until
from mqcore.journal.server.codec import is_offset
from mqcore.journal.server.connection import Connection, split
from mqcore.journal.server.failover import Known, scouting, understood
from mqcore.journal.server.limits import WINDOW
from mqcore.journal.server.remote_stream import RemoteStream
from mqcore.journal.store.commits import Expected, check_expected
from mqcore.journal.store.epoch import Epochs
from mqcore.journal.store.snapshot import Version
from mqcore.journal.waiting import Deadline
from mqcore.journal.walking import apast, past, skips


class Directory(Connection):
    """What a journal server has. Options as for a RemoteReader."""

    def __init__(self, url: str, *, timeout: float = 10.0, **options: Any) -> None:
        super().__init__(url, url, {}, timeout, options)

    def partitions(self) -> list[PartitionInfo]:
        try:
            return self._rows(self._ask("list"))
        except UsageError as error:
            raise self._too_old(error) from None

    async def apartitions(self) -> list[PartitionInfo]:
        """partitions() for asyncio and trio."""
        try:
            return self._rows(await self._aask("list"))
        except UsageError as error:
            raise self._too_old(error) from None

    def _rows(self, answer: Any) -> list[PartitionInfo]:
        self._expected(answer, lambda rows: isinstance(rows, list) and all(map(_is_row, rows)))
        return [PartitionInfo(*row) for row in answer]

    def _too_old(self, error: UsageError) -> NotSupported:
        """It does not know the question, and finds that it lacks a topic."""
        return NotSupported(f"the journal server at {self.url} cannot list what it has: "
                            f"{error}", hint="its mqcore is too old; install a newer one there, "
                                             "or name topic and partition")

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteReader(Connection, Reader):
    """Made by `mqcore.journal.open` with an address. The server checks blocks when it reads them.
    `timeout`: seconds until a question that has no answer raises RecvTimeout; `window`: bytes that
    are under way at most; `durable` as for a Reader. Other options are those of a socket (TLS,
    say). Threads and tasks may share it."""

    path: Any       # the address, where a Reader has a folder
    _durable: bool

    def __init__(self, url: str, topic: str | None = None, partition: int = 0, *,
                 verify: bool = True, durable: bool = True, timeout: float = 10.0,
                 window: int = WINDOW, **options: Any) -> None:
        self._durable = durable
        self._begin(url, topic, partition, verify, timeout, window, options)
        try:
            if self._choice.several:
                with self._link() as socket:
                    self._drive(socket, scouting(self, socket))
            self._ends()        # raises what opening a path would
        except BaseException:
            self.close()
            raise

    def _begin(self, url: str, topic: str | None, partition: int, verify: bool, timeout: float,
               window: int, options: dict[str, Any]) -> None:
        if not verify:
            raise OptionError("verify=False", hint="a journal server verifies what it sends")
        where, self.topic = split(url, topic)
        self.partition = partition
        self.path = url
        self._window = window
        self._left: RemoteStream | None = None
        self._known = Known()
        Connection.__init__(self, url, where, {"topic": self.topic, "partition": partition},
                            timeout, options)

    @classmethod
    async def aopen(cls, url: str, topic: str | None = None, partition: int = 0, *,
                    verify: bool = True, durable: bool = True, timeout: float = 10.0,
                    window: int = WINDOW, **options: Any) -> RemoteReader:
        """The same for asyncio and trio."""
        reader = cls.__new__(cls)
        reader._durable = durable
        reader._begin(url, topic, partition, verify, timeout, window, options)
        try:
            if reader._choice.several:
                with reader._link() as socket:
                    await reader._adrive(socket, scouting(reader, socket))
            await reader._aends()
        except BaseException:
            reader.close()
            raise
        return reader

    def close(self) -> None:
        self._left = None
        Connection.close(self)

    def release(self) -> None:
        """Nothing: it has no file open."""

    def __del__(self) -> None:
        """The sockets report themselves that they were not closed."""

    def __repr__(self) -> str:
        return f"<Reader of {self.url}, {self.topic}/{self.partition}" \
               f"{', closed' if self.closed else ''}>"

    # -- questions --

    def _answer(self, head: dict[str, Any], body: bytes) -> Any:
        """Offsets are those of one journal: the first answer tells which, all further questions
        are about that."""
        found = super()._answer(head, body)
        if "producers" in head:
            found = head["producers"], body
        origin = head.get("origin")
        if isinstance(origin, str) and "origin" not in self._about:
            self._about = {**self._about, "origin": origin}
        return found

    def _pair(self, answer: Any) -> tuple[int, int]:
        first, end, _ = self._three(answer)
        return first, end

    def _three(self, answer: Any) -> list[int]:
        found: list[int] = self._expected(
            answer, lambda ends: len(ends) == 3 and all(map(is_offset, ends))
            and ends[2] <= ends[0] <= ends[1])
        return found

    def _number(self, answer: Any) -> int:
        number: int = self._expected(answer, is_offset)
        return number

    def _size(self, answer: Any) -> int:
        size: int = self._expected(answer, lambda n: type(n) is int and n >= 0)
        return size

    def _place(self, answer: Any) -> int | None:
        place: int | None = self._expected(answer, lambda n: n is None or is_offset(n))
        return place

    def _table(self, answer: Any) -> dict[str, int]:
        return dict(self._expected(
            answer, lambda table: all(map(is_offset, table.values()))))

    def _done(self, answer: Any) -> None:
        self._expected(answer, lambda nothing: nothing is None)

    def _block(self, answer: Any) -> Records:
        records: Records = self._expected(answer, lambda found: isinstance(found, Records))
        return records

    def _ends(self) -> tuple[int, int]:
        return self._pair(self._ask("ends"))

    async def _aends(self) -> tuple[int, int]:
        return self._pair(await self._aask("ends"))

    def _limits(self, durable: bool | None) -> tuple[int, int]:
        """What a call with this `durable` can read."""
        first, end = self._ends()
        return first, self.durable if self._only(durable) else end

    async def _alimits(self, durable: bool | None) -> tuple[int, int]:
        first, end = await self._aends()
        return first, await self.adurable() if self._only(durable) else end

    @property
    def first(self) -> int:
        return self._ends()[0]

    @property
    def begin(self) -> int:
        return self._three(self._ask("ends"))[2]

    @property
    def end(self) -> int:
        return self._ends()[1]

    async def afirst(self) -> int:
        return (await self._aends())[0]

    async def aend(self) -> int:
        return (await self._aends())[1]

    @property
    def durable(self) -> int:
        return self._number(self._ask("durable"))

    async def adurable(self) -> int:
        return self._number(await self._aask("durable"))

    def at(self, time: float) -> int:
        return self._number(self._ask("at", time=_seconds(time)))

    async def aat(self, time: float) -> int:
        return self._number(await self._aask("at", time=_seconds(time)))

    def stored_bytes(self, start: int, stop: int) -> int:
        return self._size(self._ask("size", start=start, stop=stop))

    async def astored_bytes(self, start: int, stop: int) -> int:
        return self._size(await self._aask("size", start=start, stop=stop))

    def read(self, offset: int, *, max_bytes: int = WINDOW,
             durable: bool | None = None) -> Records:
        return self._block(self._ask("read", offset=offset, bytes=max_bytes, compacted=True,
                                     **self._only(durable)))

    async def aread(self, offset: int, *, max_bytes: int = WINDOW,
                    durable: bool | None = None) -> Records:
        return self._block(await self._aask("read", offset=offset, bytes=max_bytes,
                                            compacted=True, **self._only(durable)))

    def _only(self, durable: bool | None) -> dict[str, bool]:
        """What a request says of it: nothing, if it does not matter."""
        return {"durable": True} if (self._durable if durable is None else durable) else {}

    def committed_offset(self, group: str) -> int | None:
        return self._place(self._ask("committed", group=group))

    async def acommitted_offset(self, group: str) -> int | None:
        return self._place(await self._aask("committed", group=group))

    def commit_offset(self, group: str, offset: int, *, expected: Expected = "any") -> None:
        self._done(self._ask("commit", group=group, offset=offset, **self._if_at(expected)))

    async def acommit_offset(self, group: str, offset: int, *,
                             expected: Expected = "any") -> None:
        self._done(await self._aask("commit", group=group, offset=offset,
                                    **self._if_at(expected)))

    @staticmethod
    def _if_at(expected: Expected) -> dict[str, Expected]:
        """What a request says of it: nothing, if it does not matter."""
        return {} if check_expected(expected) == "any" else {"expected": expected}

    def epochs(self) -> Epochs:
        try:
            return understood(self._ask("epochs"))
        except UsageError:          # a server of before there were epochs
            return Epochs()

    def _producers_piece(self, at: int, most: int) -> tuple[Version, bytes]:
        def good(answer: Any) -> bool:
            told, some = answer
            return all(map(is_offset, told.values())) and len(some) <= min(
                most, max(0, Version(**told).size - at))

        told, some = self._expected(self._ask("producers", at=at, bytes=most), good)
        return Version(**told), some

    def groups(self) -> dict[str, int]:
        return self._table(self._ask("groups"))

    async def agroups(self) -> dict[str, int]:
        return self._table(await self._aask("groups"))

    def group_members(self, group: str) -> dict[str, list[int]]:
        """The members of a consumer group, and which partitions each of them has."""
        return self._shares(self._ask("members", group=group))

    async def agroup_members(self, group: str) -> dict[str, list[int]]:
        """group_members(), awaitable."""
        return self._shares(await self._aask("members", group=group))

    def _shares(self, answer: Any) -> dict[str, list[int]]:
        return dict(self._expected(answer, lambda table: all(
            is_offset(partition) for found in table.values() for partition in found)))

    def _linked(self) -> bool:
        """Whether a server is connected."""
        with self._lock:
            every = list(self._all)
        return any(self._links(socket) for socket in every)

    # -- streams --

    def _taken_up(self, offset: int, max_bytes: int, bounds: dict[str, Any]) -> RemoteStream:
        """The stream that a time-out has left, if it goes on from here. Were each call to ask anew,
        one with less patience than the way there and back takes would never get anything."""
        with self._lock:
            stream, self._left = self._left, None
        if stream is not None:
            wanted = offset, min(self._window, max_bytes), bounds
            if (stream.at, stream.window, stream.bounds) == wanted:
                return stream
            stream.stop()
        return RemoteStream(self, offset, max_bytes, bounds)

    def _put_aside(self, stream: RemoteStream) -> None:
        """A stream whose call has had enough, for now or for good."""
        with self._lock:
            if stream.paused and self._left is None and not self.closed:
                self._left = stream
                return
        stream.stop()

    def batches(self, start: int | None = None, stop: int | None = None, *,
                max_bytes: int = WINDOW, durable: bool | None = None,
                gaps: str = "raise") -> Iterator[Records]:
        skips(gaps)
        return self._batches(start, stop, max_bytes, durable, gaps)

    def _batches(self, start: int | None, stop: int | None, max_bytes: int, durable: bool | None,
                 gaps: str) -> Iterator[Records]:
        at, end = _span(self._limits(durable), start, stop)
        yield from past(lambda at: self._between(at, end, max_bytes, durable), at, gaps)

    def _between(self, at: int, stop: int, max_bytes: int,
                 durable: bool | None) -> Iterator[Records]:
        if at >= stop:
            return
        try:
            for records in self._streamed(at, max_bytes, self._timeout, durable, stop):
                if len(records) and records.first < stop:
                    yield until(records, stop)      # a server of before `stop` sends on
                if records.next >= stop:
                    return
        except RecvTimeout:     # they are there, so it is the server that is not
            raise self._away(self._timeout) from None

    def abatches(self, start: int | None = None, stop: int | None = None, *,
                 max_bytes: int = WINDOW, durable: bool | None = None,
                 gaps: str = "raise") -> AsyncIterator[Records]:
        skips(gaps)
        return self._abatches(start, stop, max_bytes, durable, gaps)

    async def _abatches(self, start: int | None, stop: int | None, max_bytes: int,
                        durable: bool | None, gaps: str) -> AsyncIterator[Records]:
        at, end = _span(await self._alimits(durable), start, stop)
        async with aclosing(apast(lambda at: self._abetween(at, end, max_bytes, durable), at,
                                  gaps)) as found:
            async for records in found:
                yield records

    async def _abetween(self, at: int, stop: int, max_bytes: int,
                        durable: bool | None) -> AsyncIterator[Records]:
        if at >= stop:
            return
        stream = self._astreamed(at, max_bytes, self._timeout, durable, stop)
        try:
            async for records in stream:
                if len(records) and records.first < stop:
                    yield until(records, stop)      # a server of before `stop` sends on
                if records.next >= stop:
                    return
        except RecvTimeout:
            raise self._away(self._timeout) from None
        finally:
            await stream.aclose()

    def follow(self, offset: int, *, max_bytes: int = WINDOW, timeout: float | None = None,
               durable: bool | None = None, gaps: str = "raise") -> Iterator[Records]:
        skips(gaps)
        return past(lambda at: self._streamed(at, max_bytes, timeout, durable), offset, gaps)

    def afollow(self, offset: int, *, max_bytes: int = WINDOW, timeout: float | None = None,
                durable: bool | None = None, gaps: str = "raise") -> AsyncIterator[Records]:
        """follow() for asyncio and trio."""
        skips(gaps)
        return apast(lambda at: self._astreamed(at, max_bytes, timeout, durable), offset, gaps)

    def _bounds(self, durable: bool | None, stop: int | None) -> dict[str, Any]:
        return {**self._only(durable), **({} if stop is None else {"stop": stop})}

    def _streamed(self, offset: int, max_bytes: int, timeout: float | None, durable: bool | None,
                  stop: int | None = None) -> Iterator[Records]:
        stream = self._taken_up(offset, max_bytes, self._bounds(durable, stop))
        try:
            quiet = Deadline(timeout)
            while True:
                records = stream.taken(self._get(stream.socket, stream.patience(quiet.left)))
                if records is not None:
                    yield records
                    quiet = Deadline(timeout)
                elif quiet.over:
                    raise stream.nothing(timeout)
        except JournalClosed:
            return
        finally:
            self._put_aside(stream)

    async def _astreamed(self, offset: int, max_bytes: int, timeout: float | None,
                         durable: bool | None, stop: int | None = None) -> Any:
        stream = self._taken_up(offset, max_bytes, self._bounds(durable, stop))
        try:
            quiet = Deadline(timeout)
            while True:
                got = await self._aget(stream.socket, stream.patience(quiet.left))
                records = stream.taken(got)
                if records is not None:
                    yield records
                    quiet = Deadline(timeout)
                elif quiet.over:
                    raise stream.nothing(timeout)
        except JournalClosed:
            return
        finally:
            self._put_aside(stream)


def _seconds(time: float) -> float:
    if not math.isfinite(time):
        raise UsageError(f"the time {time!r} is not a number of seconds")
    return time


def _span(ends: tuple[int, int], start: int | None, stop: int | None) -> tuple[int, int]:
    first, end = ends
    return first if start is None else start, end if stop is None else min(stop, end)


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) \
        and is_offset(row[1]) and (row[2] is None or isinstance(row[2], str))


def open_remote(url: str, mode: str, topic: str | None, partition: int | None,
                options: dict[str, Any]) -> RemoteReader:
    return RemoteReader(url, topic, _reading(url, mode, partition), **options)


async def aopen_remote(url: str, mode: str, topic: str | None, partition: int | None,
                       options: dict[str, Any]) -> RemoteReader:
    return await RemoteReader.aopen(url, topic, _reading(url, mode, partition), **options)


def _reading(url: str, mode: str, partition: int | None) -> int:
    if mode != "r":
        raise AddressError(f"{url!r} is not a folder", position=url.index("://"),
                           hint="a journal elsewhere is read; to write to it, send to the socket "
                                "of a journal device there")
    return 0 if partition is None else partition
