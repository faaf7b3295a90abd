"""What is behind the routes: sockets and journal topics, opened when the gateway starts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import mqcore as mq
from mqcore import journal
from mqcore.http.envelope import Envelope
from mqcore.http.feed import Feed, Ring, Topic
from mqcore.http.problem import Problem, retry_after
from mqcore.http.route import Route

log = logging.getLogger("mqcore.http")
PARTS = 1           # a message as recv_parts() returns it
TAKE = 64           # replies that are taken before other tasks run
HARM = "the request may have been handled; send it again only if that does no harm"
AGAIN = 1.0         # seconds until what all clients of a route depend on begins again


class Anew(Exception):
    """The route goes on with another source."""


class Backend:
    """One route's end. `feed` is there if clients can read at a position. `kind` is the
    Content-Type of its messages."""

    feed: Feed | None = None

    def __init__(self, route: Route) -> None:
        self.route = route
        self.kind: bytes = route.settings["type"].encode()
        self.task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    def keep_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work() until close(). All clients of the route depend on it: an error (descriptors or
        memory are short, retention was faster) is logged, and a second later it begins anew."""
        async def run() -> None:
            while True:
                try:
                    return await work()
                except mq.SocketClosed:
                    return
                except Anew:
                    continue
                except Exception:
                    log.exception("the route %s lost its source, and begins again",
                                  self.route.path)
                    await asyncio.sleep(AGAIN)

        self.task = asyncio.create_task(run())

    async def send(self, message: Envelope, wait: float) -> bytes | None:
        """Pass a message on. The answer for the client, if there is one. Problem."""
        raise NotImplementedError

    async def take(self, wait: float) -> bytes:
        """The next message, which no other client gets. mq.Timeout."""
        raise NotImplementedError


class SocketBackend(Backend):
    socket: Any = None
    pattern = ""        #: if it is not the route's kind

    async def open(self) -> None:
        route = self.route
        options: dict[str, Any] = {}
        if route.kind == "sub":
            options["topics"] = route.settings["topic"] or ("",)
        elif route.kind != "pull":
            options = {name: route.settings[name] for name in ("linger", "send_hwm")}
        self.socket = mq.socket(self.pattern or route.kind, **options)
        if route.mode == "bind":
            await self.socket.abind(route.url)
        else:
            await self.socket.aconnect(route.url)

    async def close(self) -> None:
        await super().close()
        if self.socket is not None:
            await self.socket.aclose()


class Sender(SocketBackend):
    """push, pub, pull and pair."""

    async def send(self, message: Envelope, wait: float) -> bytes | None:
        topic = message.topic or self.route.topic
        if topic and self.route.kind != "pub":
            raise Problem(400, "topic", f"{self.route.path} has no topics",
                          "leave topic out")
        try:
            if topic:
                await self.socket.asend_parts([topic.encode(), message.body], timeout=wait)
            elif wait:
                await self.socket.asend(message.body, timeout=wait)
            else:
                self.socket.send(message.body, timeout=0)
        except mq.SendTimeout as error:
            why = "no peer is connected" if error.why == "no_peer" else "all its peers are full"
            raise Problem(503, "full", f"{self.route.path} takes no message now: {why}",
                          "send it again later", retry_after(1)) from None
        return None

    async def take(self, wait: float) -> bytes:
        found: bytes = await self.socket.arecv(timeout=wait)
        return found


class Requester(SocketBackend):
    """req, as a DEALER: a number in the envelope, which repliers return, tells the requests apart,
    and one task receives all replies. It costs about half as much as REQ. Requests of one turn of
    the event loop go in one call, and one timer serves them all, because their limit is the same.
    """

    pattern = "dealer"

    def __init__(self, route: Route) -> None:
        super().__init__(route)
        self.limit: float = route.settings["timeout"]
        self.waiting: dict[bytes, tuple[asyncio.Future[bytes], float]] = {}     # oldest first
        self.outgoing: list[tuple[asyncio.Future[bytes], tuple[bytes, bytes, bytes]]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.last = 0

    async def open(self) -> None:
        await super().open()
        self.loop = asyncio.get_running_loop()
        self.keep_up(self._receive)

    async def close(self) -> None:
        self._end()
        try:
            await super().close()
        finally:
            self._end()     # those that have come while it lingered

    def _end(self) -> None:
        """No reply comes any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for waiting, _ in self.waiting.values():
            if not waiting.done():
                waiting.set_exception(mq.SocketClosed(
                    f"the socket of {self.route.path} is closed", hint=HARM))

    async def _receive(self) -> None:
        take = self.socket._try_recv
        try:
            while True:
                self._answer(*await self.socket.arecv_parts())
                for _ in range(TAKE):       # and what has come with it
                    if (reply := take(PARTS)) is None:
                        break
                    self._answer(*reply)
        except mq.SocketClosed:
            self._end()
            raise

    def _answer(self, number: bytes, *rest: bytes) -> None:
        if number in self.waiting and len(rest) > 1 and not rest[0]:
            waiting, _ = self.waiting[number]
            if not waiting.done():
                waiting.set_result(rest[1] if len(rest) == 2 else b"".join(rest[1:]))

    async def send(self, message: Envelope, wait: float) -> bytes | None:
        self.last += 1
        number = self.last.to_bytes(8, "big")
        waiting: asyncio.Future[bytes] = self.loop.create_future()
        body, begun = message.body, self.loop.time()
        self.waiting[number] = waiting, begun
        try:
            if self.timer is None:
                self.timer = self.loop.call_at(begun + self.limit, self._expire)
            self.outgoing.append((waiting, (number, b"", body)))
            if len(self.waiting) == 1:
                self._flush()
            elif len(self.outgoing) == 1:
                self.loop.call_soon(self._flush)
            return await waiting
        finally:
            self.waiting.pop(number, None)

    def _flush(self) -> None:
        """Send what has been requested since the last time, without those who gave up."""
        going = [one for one in self.outgoing if not one[0].done()]
        self.outgoing.clear()
        try:
            self.socket.send_many([request for _, request in going], timeout=0)
        except mq.SendTimeout as error:
            for waiting, _ in going[error.sent:]:
                waiting.set_exception(Problem(
                    503, "full", f"{self.route.path} takes no request now: no replier is "
                    "connected, or all are full", "send it again later", retry_after(1)))
        except Exception as error:
            for waiting, _ in going:
                waiting.set_exception(error)

    def _expire(self) -> None:
        """The time of the oldest request is over, if it still waits."""
        self.timer = None
        late = self.loop.time() - self.limit
        for waiting, begun in self.waiting.values():
            if begun > late:
                self.timer = self.loop.call_at(begun + self.limit, self._expire)
                break
            if not waiting.done():
                waiting.set_exception(Problem(
                    504, "no_reply", f"no reply came within {self.limit:g} s", HARM))


class Subscriber(SocketBackend):
    """sub: one task receives for all clients."""

    def __init__(self, route: Route) -> None:
        super().__init__(route)
        self.feed = self.ring = Ring(route.settings["hold"], route.settings["hold_bytes"])

    async def open(self) -> None:
        await super().open()
        self.keep_up(self._receive)

    async def _receive(self) -> None:
        while True:
            first, *rest = await self.socket.arecv_parts()
            if rest:
                self.ring.put(b"".join(rest), first.decode(errors="backslashreplace"))
            else:
                self.ring.put(first)


class Log(Backend):
    """A topic of a journal: appended to and read."""

    def __init__(self, route: Route) -> None:
        super().__init__(route)
        self.writer: Any = None
        self.reader: Any = None

    async def open(self) -> None:
        where = {"topic": self.route.topic or "default",
                 "partition": self.route.settings["partition"]}
        if self.route.settings["append"]:
            self.writer = await journal.aopen(self.route.url, "a", fsync="never", **where)
        self.reader = await journal.aopen(self.route.url, **where)
        self.feed = topic = Topic(self.reader)
        self.keep_up(lambda: self._watch(topic, where))

    async def _watch(self, topic: Topic, where: dict[str, Any]) -> None:
        """The topic may be renamed or deleted. What has its name then is read from then on."""
        try:
            await topic.watch()
        except journal.JournalNotFound as error:
            log.warning("the route %s has no topic: %s", self.route.path, error)
        while True:
            with contextlib.suppress(journal.JournalNotFound):
                reader = await journal.aopen(self.route.url, **where)
                break
            await asyncio.sleep(AGAIN)
        topic.reader, self.reader, former = reader, reader, self.reader
        await former.aclose()
        raise Anew

    async def close(self) -> None:
        await super().close()
        if self.reader is not None:
            await self.reader.aclose()
        if self.writer is not None:
            await self.writer.aclose()

    async def send(self, message: Envelope, wait: float) -> bytes | None:
        key = message.key.encode() if message.key is not None else None
        headers = [(name, value.encode()) for name, value in message.headers.items()]
        value = message.value
        if value is None and key is None:
            raise Problem(400, "envelope", "a message without a value deletes a key, and this one "
                          "has no key", 'send {"text": null, "key": ...}')
        writer, before = self.writer, self.writer.next
        try:
            offset = writer.append(value, key=key, headers=headers)
            await writer.acommit()
        except journal.JournalWriteError as error:
            said, hint = f"the journal did not take the message: {error.text}", error.hint
            if writer.next > before:
                said = f"the journal has not stored the message yet: {error.text}"
                hint = "it is stored once there is room; if it is sent again, perhaps twice"
            raise Problem(503, "journal", said, hint, retry_after(5)) from None
        return b'{"offset":%d}' % offset


def backend(route: Route) -> Backend:
    """The backend of a route; it is not open yet."""
    kinds = {"req": Requester, "sub": Subscriber, "journal": Log}
    return kinds.get(route.kind, Sender)(route)
