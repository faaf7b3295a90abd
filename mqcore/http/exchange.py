"""One request as ASGI brings it: its headers, its body within the limits, its answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from mqcore.http.bounds import Limits, Stats, count_problem
from mqcore.http.problem import TYPE, Header, Problem
from mqcore.http.within import within

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gone(Exception):
    """The client has disconnected, or has been disconnected."""


class Exchange:
    """`extra` are headers of every answer; `who` is the token's name or the client's address;
    `answered` says that the request is counted as answered."""

    __slots__ = ("scope", "receive", "_send", "limits", "stats", "method", "path", "headers",
                 "extra", "who", "started", "answered")

    def __init__(self, scope: Message, receive: Receive, send: Send, limits: Limits,
                 stats: Stats) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.limits, self.stats = limits, stats
        self.method: str = scope.get("method", "GET")
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in self.headers and name in (b"host", b"origin", b"authorization"):
                raise Problem(400, "header", f"the header {name.decode()} is there twice",
                              "send it once")
            self.headers[name] = value
        self.extra: list[Header] = []
        self.who = ""
        self.started = self.answered = False

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def query(self) -> dict[str, str]:
        text = self.scope.get("query_string", b"").decode("latin-1")
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=20)
        except ValueError:
            raise Problem(400, "query", "the query has more than 20 fields", "leave some") from None
        return dict(pairs)

    # -- the body --

    async def body(self) -> bytes:
        """The whole body. Problem 413, 408 or 503; Gone."""
        most = self.limits.body_bytes
        length = self.headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:19]) > most:
            raise self._too_large()
        try:
            return await within(self.limits.body_time, self._parts(most))
        except TimeoutError:
            raise Problem(408, "slow_body", "the body was not complete within "
                          f"{self.limits.body_time:g} s", "send it faster") from None

    async def _parts(self, most: int) -> bytes:
        held = 0
        parts: list[bytes] = []
        try:
            while True:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                data: bytes = message.get("body", b"")
                self.stats.held_bytes += len(data)
                held += len(data)
                if held > most:
                    raise self._too_large()
                if self.stats.held_bytes > self.limits.bodies_bytes:
                    raise Problem(503, "bodies", "the gateway holds too many bodies now",
                                  "send it again later", [(b"retry-after", b"1")])
                parts.append(data)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self.stats.held_bytes -= held

    def _too_large(self) -> Problem:
        return Problem(413, "body_size", "the body is larger than "
                       f"{self.limits.body_bytes} bytes", "send less, or raise body_bytes")

    async def gone(self) -> None:
        """Return when the client has disconnected."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    # -- the answer --

    async def send(self, message: Message) -> None:
        """Raises Gone, after it has cut the connection, if the client does not read."""
        try:
            await within(self.limits.send_time, self._send(message))
        except OSError as error:        # TimeoutError is one
            self._cut(error)

    def _cut(self, error: OSError) -> NoReturn:
        if isinstance(error, TimeoutError):
            self.stats.slow += 1
            self.cut()
        raise Gone from None

    def cut(self) -> None:
        """End the connection, where the server lets it be ended."""
        connection = self.scope.get("mqcore.connection")
        if connection is not None:
            connection.cut()

    def _head(self, status: int, kind: bytes, more: Iterable[Header],
              length: int | None) -> Message:
        self.started = True
        headers = [(b"content-type", kind), *more, *self.extra] if kind else [*more, *self.extra]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        return {"type": "http.response.start", "status": status, "headers": headers}

    def count(self) -> None:
        """The request is answered."""
        self.answered = True
        self.stats.answered += 1

    async def start(self, status: int, kind: bytes, more: list[Header]) -> None:
        """The head of an answer whose body comes piece by piece."""
        await self.send(self._head(status, kind, more, None))

    async def answer(self, status: int, body: bytes = b"", kind: bytes = b"",
                     more: list[Header] | None = None) -> None:
        """The whole answer, in one write where the server can hold its head back. Gone, if the
        client has disconnected before it was written."""
        connection = self.scope.get("mqcore.connection")
        if connection is not None and connection.gone():
            raise Gone
        if status < 400:
            self.count()
        plain = self.method != "HEAD" and not more and not self.extra and status != 204
        if plain and connection is not None and connection.answer(status, kind, body):
            self.started = True
            return
        head = self._head(status, kind, more or (), None if status == 204 else len(body))
        if self.method == "HEAD":
            body = b""
        elif connection is not None:
            connection.hold()
        cycle = None if connection is None else connection.cycle
        try:
            await within(self.limits.send_time, self._whole(head, body))
        except OSError as error:
            self._cut(error)
        if cycle is not None and (cycle.disconnected or not cycle.response_complete):
            raise Gone      # uvicorn drops what it is given for a client that has gone

    async def _whole(self, head: Message, body: bytes) -> None:
        await self._send(head)
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, problem: Problem) -> None:
        count_problem(self.stats, problem.name)
        body = problem.body()
        more = [*problem.headers, (b"cache-control", b"no-store")]
        if problem.status == 408:
            more.append((b"connection", b"close"))      # the rest of the body is not read
        if self.scope["type"] == "websocket":
            headers = [(b"content-type", TYPE), (b"content-length", b"%d" % len(body)),
                       *more, *self.extra]
            await self.send({"type": "websocket.http.response.start", "status": problem.status,
                             "headers": headers})
            await self.send({"type": "websocket.http.response.body", "body": body})
        else:
            await self.answer(problem.status, body, TYPE, more)


def seconds(text: str, most: float, name: str) -> float:
    """A number of seconds from the query, at most `most`."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise Problem(400, "query", f"{name}={text[:40]!r} is no number of seconds",
                      f"write {name}=10")
    return min(value, most)


def count(text: str, most: int, name: str) -> int:
    """A whole number from 1 to `most` from the query."""
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
        raise Problem(400, "query", f"{name}={text[:40]!r} is no number from 1 on",
                      f"write {name}=100")
    return min(int(text), most)
