"""Server: answers for the journals of a folder over a ROUTER socket. PROTOCOL.md has the messages.

One thread. A stream is sent only as far as its reader has given credit, so a slow reader costs a
window of memory here and nothing else; it is forgotten with its peer, or if nothing is heard of it
for FORGET seconds.
"""

from __future__ import annotations

import collections
import os
import select
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from mqcore import Router
from mqcore.errors import Error, PeerError, RecvTimeout, SendTimeout, UsageError, WaitTimeout
from mqcore.journal.errors import JournalError, JournalNotFound
from mqcore.journal.listing import PartitionInfo, in_folder
from mqcore.journal.place import partition_folder, partitions
from mqcore.journal.reader import Reader
from mqcore.journal.segment import journal_id
from mqcore.journal.waiting import Watch
from mqcore.journal.wire import VERSION, decode, encode, error_head, pack

PIECE = 1 << 20         # bytes of messages read at a time for a stream
WINDOW = 8 << 20        # of credit at most
REQUEST = 64 << 10      # bytes that a request has at most
FORGET = 30.0
PAUSE = 0.5


@dataclass
class Stream:
    source: Source
    at: int                             # the next message to send
    window: int
    heard: float
    stop: int | None = None             # where the reader's interest ends
    sent: collections.deque[tuple[int, int]] = field(default_factory=collections.deque)
    out: int = 0                        # bytes in `sent`, which the reader has not dealt with
    durable: bool = False

    @property
    def ended(self) -> bool:
        return self.stop is not None and self.at >= self.stop

    def dealt_with(self, offset: int) -> None:
        while self.sent and self.sent[0][0] <= offset:
            self.out -= self.sent.popleft()[1]


class Source:
    """A partition that somebody has asked for."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.id = journal_id(reader.path)
        self.watch = Watch(reader.path, -1)

    def close(self) -> None:
        self.watch.close()
        self.reader.close()


@dataclass(frozen=True)
class ServerStats:
    """requests: all that came; errors: those answered with one; messages, bytes: sent as records;
    streams: those there are now."""

    requests: int = 0
    errors: int = 0
    messages: int = 0
    bytes: int = 0
    streams: int = 0


class Server:
    """A running journal server. `with` stops it. bind: one URL or several; options are the
    socket's (TLS, say). groups: readers may commit consumer groups, which retention may wait for.
    """

    def __init__(self, where: str | os.PathLike[str], bind: Any, *, groups: bool = True,
                 **options: Any) -> None:
        next(partitions(where), None)       # FileNotFoundError now rather than to every reader
        self.where = where
        self._groups = groups
        options.setdefault("max_message_size", REQUEST)
        options.setdefault("linger", 0)
        self._socket = Router(bind=bind, **options)
        self._sources: dict[tuple[str, int], Source] = {}
        self._streams: dict[tuple[bytes, int], Stream] = {}
        self._counts = collections.Counter[str]()
        self._error: BaseException | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mqcore-journal-server", daemon=True)
        self._thread.start()

    @property
    def urls(self) -> list[str]:
        """Where it listens: the real ones, where port 0 was asked for."""
        return [endpoint.url for endpoint in self._socket.endpoints]

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        return self._error

    def stats(self) -> ServerStats:
        return ServerStats(**self._counts, streams=len(self._streams))

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended; then raises what ended it, if something did. WaitTimeout."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise WaitTimeout(f"the journal server still runs after {timeout:g} s")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Idempotent. Streams end in the middle; readers go on when there is a server again."""
        with self._ending:
            self._stopping.set()
            if self._wake < 0:
                return
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            self._socket.close()
            for source in self._sources.values():
                source.close()
            self._sources.clear()
            self._streams.clear()
            os.close(self._wake)
            self._wake = -1

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<journal Server of {self.where}, {'running' if self.running else 'ended'}>"

    # -- its thread --

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                moved = self._requests()
                moved = self._pump() or moved
                if not moved:
                    self._sleep()
        except BaseException as error:
            self._error = error

    def _sleep(self) -> None:
        poller = select.poll()
        poller.register(self._socket.fileno(), select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        pause = PAUSE
        for source in {stream.source for stream in self._streams.values()}:
            pause = min(pause, source.watch.longest)
            if source.watch.fd >= 0:
                poller.register(source.watch.fd, select.POLLIN)
        poller.poll(1000 * pause)

    def _requests(self, most: int = 100) -> bool:
        for i in range(most):
            try:
                peer, *parts = self._socket.recv_parts(timeout=0)
            except RecvTimeout:
                return i > 0
            self._counts["requests"] += 1
            number: Any = None
            try:
                head = _head(parts)
                number = head.get("id")
                answer = self._answer(peer, head)
            except (Error, OSError) as error:
                self._counts["errors"] += 1
                answer = [encode(error_head(number, error))]
            if answer is not None:
                self._send(peer, answer)
        return True

    def _send(self, peer: bytes, parts: list[bytes]) -> bool:
        """False: not now. A peer that has left gets nothing any more."""
        try:
            self._socket.send_parts([peer, *parts], timeout=0)
        except PeerError:
            for key in [key for key in self._streams if key[0] == peer]:
                del self._streams[key]
        except SendTimeout:
            return False                    # an answer is asked for again, a stream tried again
        return True

    # -- requests --

    def _answer(self, peer: bytes, head: dict[str, Any]) -> list[bytes] | None:
        if head.get("v") != VERSION:
            raise JournalError(f"version {head.get('v')!r} of the journal's protocol",
                               hint=f"this server speaks {VERSION}")
        op, number = head.get("op"), _integer(head, "id")
        if op == "stop":
            self._streams.pop((peer, _integer(head, "stream")), None)
            return None
        if op == "list":
            return [encode({"id": number, "ok": self._list()})]
        source = self._source(head)
        if op == "want":
            self._want(peer, head, source)
            return None
        if op == "read":
            records = source.reader.read(
                _integer(head, "offset"), max_bytes=min(max(1, _integer(head, "bytes")), WINDOW),
                durable=bool(head.get("durable")))
            return self._records({"id": number}, records)
        return [encode({"id": number, "ok": self._fact(op, head, source.reader)})]

    def _fact(self, op: Any, head: dict[str, Any], reader: Reader) -> Any:
        if op == "ends":
            return [reader.first, reader.durable if head.get("durable") else reader.end]
        if op == "at":
            when = head.get("time")
            if not isinstance(when, (int, float)):
                raise UsageError(f"time {when!r} is no number of seconds")
            return reader.at(when)
        if op == "size":
            return reader.stored_bytes(_integer(head, "start"), _integer(head, "stop"))
        if op == "groups":
            return reader.groups()
        if op in ("committed", "commit"):
            group = head.get("group")
            if not isinstance(group, str):
                raise UsageError(f"group {group!r} is no name")
            if op == "committed":
                return reader.committed(group)
            if not self._groups:
                raise UsageError("this journal server lets nobody commit",
                                 hint="start it with groups=True")
            reader.commit(group, _integer(head, "offset"))
            return None
        raise UsageError(f"op {op!r} is none of this server's")

    def _list(self) -> list[PartitionInfo]:
        """Also lets go of journals that were deleted, or made anew, in the meantime."""
        found = in_folder(self.where)
        there = {(topic, number): ident for topic, number, ident in found}
        for key, source in list(self._sources.items()):
            source.id = source.id or there.get(key)
            if source.id != there.get(key):
                self._forget(key, source)
        return found

    def _forget(self, key: tuple[str, int], source: Source) -> None:
        gone = JournalNotFound(f"the journal {source.id} at {source.reader.path} was deleted")
        for place, stream in list(self._streams.items()):
            if stream.source is source:
                del self._streams[place]
                peer, number = place
                self._send(peer, [encode({**error_head(None, gone), "stream": number})])
        del self._sources[key]
        source.close()

    def _source(self, head: dict[str, Any]) -> Source:
        topic, number = head.get("topic"), _integer(head, "partition")
        if not isinstance(topic, str):
            raise UsageError(f"topic {topic!r} is no text")
        source = self._sources.get((topic, number))
        if source is None:
            folder = partition_folder(self.where, topic, number)
            source = self._sources[topic, number] = Source(Reader(folder, topic, number))
        return source

    def _records(self, head: dict[str, Any], records: Any) -> list[bytes]:
        head["records"], body = pack(records)
        self._counts["messages"] += len(records)
        self._counts["bytes"] += records.nbytes
        return [encode(head), body]

    # -- streams --

    def _want(self, peer: bytes, head: dict[str, Any], source: Source) -> None:
        key = peer, _integer(head, "stream")
        offset = _integer(head, "offset")
        window = min(max(1, _integer(head, "window")), WINDOW)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(source, offset, window, 0)
        stream.window = window
        stream.durable = bool(head.get("durable"))
        stream.stop = _integer(head, "stop") if "stop" in head else None
        stream.heard = time.monotonic()
        stream.dealt_with(offset)

    def _pump(self) -> bool:
        """A piece for every stream that may have one."""
        moved = False
        now = time.monotonic()
        for source in {stream.source for stream in self._streams.values()}:
            source.watch._drain()           # before they are read: what comes now wakes us again
        for (peer, number), stream in list(self._streams.items()):
            if now - stream.heard > FORGET:
                self._streams.pop((peer, number), None)
            elif not stream.ended and (not stream.sent or stream.out < stream.window):
                moved = self._piece(peer, number, stream) or moved
        return moved

    def _piece(self, peer: bytes, number: int, stream: Stream) -> bool:
        try:
            records = stream.source.reader.read(
                stream.at, max_bytes=max(1, min(PIECE, stream.window - stream.out)),
                durable=stream.durable)
        except (Error, OSError) as error:
            self._counts["errors"] += 1
            self._streams.pop((peer, number), None)
            return self._send(peer, [encode({**error_head(None, error), "stream": number})])
        if stream.stop is not None:
            records = records.slice(0, stream.stop - stream.at)
        if not len(records):
            return False
        before = self._counts.copy()
        if not self._send(peer, self._records({"stream": number}, records)):
            self._counts = before
            return False
        stream.at = records.next
        stream.sent.append((records.next, records.nbytes))
        stream.out += records.nbytes
        return True


def _head(parts: list[bytes]) -> dict[str, Any]:
    try:
        [raw] = parts
        return decode(raw)
    except ValueError:
        raise UsageError("a request is one part, an object in JSON") from None


def _integer(head: dict[str, Any], name: str) -> int:
    value = head.get(name)
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise UsageError(f"{name} {value!r} is no number from 0 on")
    return value
