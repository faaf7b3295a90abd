"""RemoteReader: the same calls as a Reader, answered by a journal server elsewhere; Directory: what
there is at such a server."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mqcore import Dealer
from mqcore.errors import (
    AddressError,
    NotSupported,
    OptionError,
    RecvTimeout,
    SendTimeout,
    UsageError,
)
from mqcore.journal.errors import JournalClosed, JournalError
from mqcore.journal.listing import PartitionInfo
from mqcore.journal.reader import Reader, _nothing
from mqcore.journal.records import Records
from mqcore.journal.waiting import Deadline, in_thread
from mqcore.journal.wire import VERSION, decode, encode, error_from, unpack

STEP = 0.2              # seconds that a call waits before it looks at close()
AGAIN = 1.0             # and until it asks again: the server may have been started anew


def split(url: str, topic: str | None) -> tuple[str, str]:
    """(where to connect, topic): over TCP, with whatever filters, the path names the topic."""
    scheme, _, rest = url.partition("://")
    if scheme.rpartition("+")[2] == "tcp":
        address, mark, query = rest.partition("?")
        address, _, path = address.partition("/")
        if path and topic not in (None, unquote(path)):
            raise OptionError(f"topic {topic!r} and {unquote(path)!r}", hint="say it once")
        return f"{scheme}://{address}{mark}{query}", topic or unquote(path) or "default"
    return url, topic or "default"


class Connection:
    """To a journal server, with questions and answers."""

    topic = ""
    partition = 0
    _durable: bool | None = None

    def __init__(self, url: str, where: str, about: dict[str, Any], timeout: float,
                 options: dict[str, Any]) -> None:
        """about: what all questions have in common."""
        self.url = url
        self.closed = False
        self._about = about
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._use = threading.RLock()
        options.setdefault("linger", 0)
        options.setdefault("reconnect_max", AGAIN)      # so a server that is back is soon found
        self._socket = Dealer(connect=where, **options)

    def _put(self, op: str, number: int, facts: dict[str, Any]) -> None:
        head = {"v": VERSION, "id": number, "op": op, **self._about, **facts}
        if self._durable and op in ("ends", "read"):
            head["durable"] = True
        try:
            self._socket.send(encode(head), timeout=0)
        except SendTimeout:
            pass                # nobody is there; it is asked again

    def _get(self, seconds: float) -> tuple[dict[str, Any], bytes] | None:
        """The next that comes: its head, and the columns."""
        try:
            raw, *body = self._socket.recv_parts(timeout=max(0.0, seconds))
            return decode(raw), body[0] if body else b""
        except RecvTimeout:
            return None
        except ValueError:
            raise JournalError(f"what answers at {self.url} is no journal server",
                               hint="`mq journal serve` starts one") from None

    def _ask(self, op: str, **facts: Any) -> Any:
        with self._use:
            number = next(self._numbers)
            deadline = Deadline(self._timeout)
            again = 0.0
            while not deadline.over:
                self._check()
                if time.monotonic() >= again:
                    self._put(op, number, facts)
                    again = time.monotonic() + AGAIN
                got = self._get(STEP)
                if got is not None and got[0].get("id") in (number, None) \
                        and "stream" not in got[0]:
                    return self._answer(*got)
        raise self._away()

    def _away(self) -> RecvTimeout:
        why = "".join(f": {endpoint.error.text}" for endpoint in self._socket.endpoints
                      if endpoint.error is not None)
        return RecvTimeout(f"no answer from the journal server at {self.url} within "
                           f"{self._timeout:g} s{why}", hint="does it run? `mq doctor URL` looks; "
                                                        "give more time with timeout=")

    def _answer(self, head: dict[str, Any], body: bytes) -> Any:
        if "error" in head:
            raise error_from(head["error"])
        if "records" in head:
            return unpack(head["records"], body, self.topic, self.partition)
        return head.get("ok")

    def _check(self) -> None:
        if self.closed:
            raise JournalClosed(f"the reader of {self.url} is closed")

    def close(self) -> None:
        """Ends follow() in whatever thread it waits. Records handed out stay valid."""
        if self.closed:
            return
        self.closed = True
        with self._use:
            self._socket.close()


class Directory(Connection):
    """What a journal server has. Options as for a RemoteReader."""

    def __init__(self, url: str, *, timeout: float = 10.0, **options: Any) -> None:
        super().__init__(url, url, {}, timeout, options)

    def partitions(self) -> list[PartitionInfo]:
        try:
            return [PartitionInfo(*row) for row in self._ask("list")]
        except UsageError as error:     # it knows no such question, and finds that it lacks a topic
            raise NotSupported(f"the journal server at {self.url} cannot tell what it has: "
                               f"{error}", hint="its mqcore is too old; install a newer one there, "
                                                "or name topic and partition") from None

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteReader(Connection, Reader):
    """Made by `mqcore.journal.open` with an address. Blocks were checked by the server when it read
    them. `timeout`: seconds until a question that nobody answers raises RecvTimeout; `window`:
    bytes that are under way at most. Other options are those of a socket (TLS, say)."""

    def __init__(self, url: str, topic: str | None = None, partition: int = 0, *,
                 verify: bool = True, durable: bool | None = None, timeout: float = 10.0,
                 window: int = 8 << 20, **options: Any) -> None:
        if not verify:
            raise OptionError("verify=False", hint="a journal server verifies what it sends")
        where, self.topic = split(url, topic)
        self.partition = partition
        self.path = Path(url)
        self._window = window
        self._durable = durable
        super().__init__(url, where, {"topic": self.topic, "partition": partition}, timeout,
                         options)
        try:
            self._ends()        # raises what opening a path would
        except BaseException:
            self.close()
            raise

    # -- questions --

    def _ends(self) -> tuple[int, int]:
        first, end = self._ask("ends")
        return int(first), int(end)

    @property
    def first(self) -> int:
        return self._ends()[0]

    @property
    def end(self) -> int:
        return self._ends()[1]

    @property
    def durable(self) -> int:
        return int(self._ask("ends", durable=True)[1])

    def at(self, time: float) -> int:
        return int(self._ask("at", time=time))

    def stored_bytes(self, start: int, stop: int) -> int:
        return int(self._ask("size", start=start, stop=stop))

    def _read(self, offset: int, max_bytes: int) -> Records:
        records: Records = self._ask("read", offset=offset, bytes=max_bytes)
        return records

    def _read_durable(self, offset: int, max_bytes: int) -> Records:
        records: Records = self._ask("read", offset=offset, bytes=max_bytes, durable=True)
        return records

    def committed(self, group: str) -> int | None:
        found: int | None = self._ask("committed", group=group)
        return found

    def commit(self, group: str, offset: int) -> None:
        self._ask("commit", group=group, offset=offset)

    def groups(self) -> dict[str, int]:
        return dict(self._ask("groups"))

    # -- streams --

    _left: _Stream | None = None

    def _taken_up(self, offset: int, max_bytes: int, durable: bool | None,
                  stop: int | None = None) -> _Stream:
        """The stream that a time-out has left, if it goes on from here. Were each call to ask anew,
        one with less patience than the way there and back takes would never get anything."""
        careful = bool(self._durable if durable is None else durable)
        stream, self._left = self._left, None
        if stream is not None:
            wanted = offset, min(self._window, max_bytes), stop, careful
            if (stream.at, stream.window, stream.until, stream.durable) == wanted:
                return stream
            stream.stop()
        return _Stream(self, offset, max_bytes, stop, careful)

    def batches(self, start: int | None = None, stop: int | None = None, *,
                max_bytes: int = 8 << 20, durable: bool | None = None) -> Iterator[Records]:
        first, end = self._ends()
        at = first if start is None else start
        stop = end if stop is None else min(stop, end)
        if at >= stop:
            return
        try:
            for records in self._streamed(at, max_bytes, self._timeout, durable,
                                          stop):
                # a server of before `stop` sends on
                yield records if records.next <= stop else records.slice(0, stop - records.first)
                if records.next >= stop:
                    return
        except RecvTimeout:     # they are there, so it is the server that is not
            raise self._away() from None

    def follow(self, offset: int, *, max_bytes: int = 8 << 20, timeout: float | None = None,
               durable: bool | None = None) -> Iterator[Records]:
        return self._streamed(offset, max_bytes, timeout, durable)

    def _streamed(self, offset: int, max_bytes: int, timeout: float | None, durable: bool | None,
                  stop: int | None = None) -> Iterator[Records]:
        stream = self._taken_up(offset, max_bytes, durable, stop)
        try:
            quiet = Deadline(timeout)
            while not self.closed:
                records = stream.step(STEP if quiet.left is None else min(STEP, quiet.left))
                if records is not None:
                    yield records
                    quiet = Deadline(timeout)
                elif quiet.over:
                    self._left = stream
                    raise _nothing(self, stream.at, timeout)
        finally:
            if stream is not self._left:
                stream.stop()

    async def afollow(self, offset: int, *, max_bytes: int = 8 << 20, timeout: float | None = None,
                      durable: bool | None = None) -> AsyncIterator[Records]:
        """follow() for asyncio and trio; it waits in a worker thread."""
        stream = self._taken_up(offset, max_bytes, durable)
        try:
            quiet = Deadline(timeout)
            while not self.closed:
                records = await in_thread(lambda: stream.step(STEP))
                if records is not None:
                    yield records
                    quiet = Deadline(timeout)
                elif quiet.over:
                    self._left = stream
                    raise _nothing(self, stream.at, timeout)
        finally:
            if stream is not self._left:
                stream.stop()

    def __del__(self) -> None:
        """The socket says itself that it was not closed."""

    def __repr__(self) -> str:
        return f"<Reader of {self.url}, {self.topic}/{self.partition}" \
               f"{', closed' if self.closed else ''}>"


class _Stream:
    """What a server sends unasked. `want` says how far we are and how much may be under way; it
    holds for a server that knows nothing of us, too, so it is simply said again."""

    def __init__(self, reader: RemoteReader, offset: int, max_bytes: int,
                 stop: int | None = None, durable: bool = False) -> None:
        self.durable = durable
        self.reader = reader
        self.at = offset
        self.until = stop
        self.window = min(reader._window, max_bytes)
        self._begin()

    def _begin(self) -> None:
        self.number = next(self.reader._numbers)
        self.unsaid = 0                 # bytes taken since the last `want`
        self.said = -AGAIN

    def step(self, seconds: float) -> Records | None:
        """The next records, or None if there are none within so many seconds."""
        reader = self.reader
        with reader._use:
            if reader.closed:
                return None
            now = time.monotonic()
            if now - self.said >= AGAIN or 2 * self.unsaid >= self.window:
                bound = {} if self.until is None else {"stop": self.until}
                if self.durable:
                    bound["durable"] = True
                reader._put("want", 0, {"stream": self.number, "offset": self.at,
                                        "window": self.window, **bound})
                self.said, self.unsaid = now, 0
            got = reader._get(seconds)
            if got is None or got[0].get("stream") != self.number:
                return None             # nothing, or for a stream that has ended
            records: Records = reader._answer(*got)
            if records.first != self.at:
                if records.next > self.at:      # some were taken for another call's: anew
                    self.stop()
                    self._begin()
                return None
            self.at = records.next
            self.unsaid += records.nbytes + 1
            return records

    def stop(self) -> None:
        with self.reader._use:
            if not self.reader.closed:
                self.reader._put("stop", 0, {"stream": self.number})


def open_remote(url: str, mode: str, topic: str | None, partition: int | None,
                options: dict[str, Any]) -> RemoteReader:
    if mode != "r":
        raise AddressError(f"{url!r} is not a folder", position=url.index("://"),
                           hint="a journal elsewhere is read; to write to it, send to the socket "
                                "of a journal device there")
    return RemoteReader(url, topic, 0 if partition is None else partition, **options)
