"""One connection of the gateway: uvicorn's protocol over httptools, with the limits that it leaves
open: the number of connections, the size of headers and how long they take, pipelined requests.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from mqcore.base.rarely import Rarely
from mqcore.http.bounds import Limits, Stats, count_problem
from mqcore.http.problem import TYPE, Problem
from mqcore.http.unread import progress

PIPELINED = 16              # requests of one connection that wait for their turn
DISCARD = 2.0               # seconds that a refused body is read for
CLOSING = 0.5               # seconds between two looks at a connection that is being closed
_log = logging.getLogger("mqcore.http.server")
_log.addFilter(Rarely())


def reply(problem: Problem) -> bytes:
    """A whole answer, for a connection that ends with it."""
    body = problem.body()
    return (b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % (problem.status, b"Refused", TYPE, len(body))) + body


class Corked:
    """What answers are written to. `hold` keeps the head of an answer until its body comes.
    `cycle` is uvicorn's request in progress, if there is one."""

    def __init__(self, transport: Any) -> None:
        self.abort = transport.abort
        self.is_closing = transport.is_closing
        self.cycle: RequestResponseCycle | None = None
        self._transport = transport
        self._holds = False
        self._head = b""

    def answer(self, status: int, kind: bytes, body: bytes) -> bool:
        """Write an answer to POST or GET that has no headers of its own, as uvicorn would, in one
        call. False where it needs to wait, or has more to say: nothing is written then."""
        cycle = self.cycle
        if cycle is None or cycle.response_started or cycle.disconnected or not cycle.keep_alive \
                or cycle.waiting_for_100_continue or cycle.flow.write_paused or self.is_closing():
            return False
        parts = [STATUS_LINE[status]]
        for name, value in cycle.default_headers:
            parts += (name, b": ", value, b"\r\n")
        if kind:
            parts += (b"content-type: ", kind, b"\r\n")
        parts += (b"content-length: %d\r\n\r\n" % len(body), body)
        self._transport.writelines(parts)
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    def gone(self) -> bool:
        """Whether no client reads the answer any more. uvicorn then expects none."""
        if not self.is_closing():
            return False
        self.left()
        return True

    def left(self) -> None:
        """The client has gone, and the request in progress hears of it."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def cut(self) -> None:
        """End the connection in the middle of a request."""
        self.abort()
        self.gone()

    def hold(self) -> None:
        self._holds = True

    def write(self, data: bytes) -> None:
        if self._holds:
            self._holds = False
            self._head = data
        elif self.is_closing():     # refused in the middle, or gone: no client reads it
            self._head = b""
            self.gone()
        elif self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._holds = False
        if self._head:
            self.write(b"")
        if not self.is_closing():
            self._transport.close()


class Guarded(HttpToolsProtocol):
    """One connection. `limits` and `stats` are the gateway's; `ending` says whether it ends."""

    limits: Limits
    stats: Stats
    ending: Callable[[], bool]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = _log      # it writes a line for each request that is no HTTP

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.most = self.limits.header_bytes
        self.unparsed = 0       # bytes since the last event, at least
        self.chunk = 0          # bytes of this call
        self.size = 0           # bytes of the message, at most
        self.refused: Problem | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.due = self.idle = math.inf
        self.taken = 0          # bytes that the client had acknowledged at the last look
        self.moved = 0.0        # when these were more than before
        self.corked = Corked(transport)
        if self.ending():       # asyncio accepts some turns before it calls this
            transport.abort()
            return
        if len(self.connections) > self.limits.clients:
            self.stats.turned_away += 1
            transport.write(reply(Problem(503, "clients", f"{self.limits.clients} clients are "
                                          "connected", "connect again later")))
            transport.close()
            self._arm(1.0)
            return
        self._arm(self.limits.header_time)

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn tells only the last request, and others may wait behind the one in progress."""
        self._sleep()
        self.corked.left()
        self.corked.cycle = None
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The transport closes itself, once the client has read what is written. It gets no more
        answers."""
        self.corked.left()
        self._rest(closing=True)

    def shutdown(self) -> None:
        """uvicorn's. A client over TLS that does not answer the close is not waited for."""
        if not self.transport.is_closing():     # a second close() is one too many: see Once
            super().shutdown()
        if self.transport.is_closing():
            now = self.loop.time()
            self.idle = min(self.idle, now)
            self._wake(now + CLOSING)

    def handle_websocket_upgrade(self) -> None:
        """The connection is a WebSocket's from now on."""
        super().handle_websocket_upgrade()
        self._sleep()
        self.parser = None      # type: ignore[assignment]

    def _sleep(self) -> None:
        """Watch no times any more."""
        self.due = self.idle = math.inf
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _arm(self, delay: float) -> None:
        """Cut the connection so many seconds from now, unless `due` is moved."""
        self.due = self.loop.time() + delay
        self._wake(self.due)

    def _wake(self, at: float) -> None:
        """Look at `due` and `idle` no later than then. The timer itself is moved seldom: when it
        fires too early, or would fire too late."""
        if self.timer is not None:
            if self.timer.when() <= at:
                return
            self.timer.cancel()
        self.timer = self.loop.call_at(at, self._look)

    def _rest(self, closing: bool = False) -> None:
        """Nothing is in progress: close the connection once the client has read its answers, unless
        it sends something. It may be closing already."""
        now = self.loop.time()
        self.idle = now + self.limits.idle_time
        self._wake(now + (CLOSING if closing else self.limits.idle_time / 3))

    def _look(self) -> None:
        """No headers in time: cut the connection. No request for a while: close it."""
        self.timer = None
        now = self.loop.time()
        if self.due <= now:
            self.stats.late += 1
            self.transport.abort()
        elif self.idle < math.inf:
            self._look_idle(now)
        elif self.due < math.inf:
            self._wake(self.due)

    def _look_idle(self, now: float) -> None:
        """A client that has not read its answers is cut off if it reads nothing on. One that has
        read them all is idle; over TLS it may leave the close without an answer."""
        limits, transport = self.limits, self.transport
        left, taken = progress(transport)
        if taken != self.taken:
            self.taken, self.moved = taken, now
        elif left:
            since = max(self.moved, self.idle - limits.idle_time)
            if now - since >= limits.idle_time + limits.header_time:
                self.stats.slow += 1
                transport.abort()
                return
        elif transport.is_closing():
            transport.abort()
            return
        elif self.idle <= now:
            transport.close()
        at = now + (CLOSING if transport.is_closing() else limits.idle_time / 3)
        self._wake(min(at, self.due, self.idle if self.idle > now else at))

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self.idle = math.inf
        self.chunk = chunk = len(data)
        self.unparsed += chunk
        self.size += chunk
        super().data_received(data)
        if self.parser is None:
            return
        if self.unparsed > self.most or self.size > self.most and self._large():
            self._oversized()
            self.send_400_response("")
        elif self.unparsed and self.due == math.inf and (
                self.cycle is None or self.cycle.response_complete):
            self._arm(self.limits.idle_time + self.limits.header_time)

    def _oversized(self) -> None:
        self.stats.oversized += self.refused is None
        self.refused = Problem(431, "header_size", "the headers are larger than "
                               f"{self.limits.header_bytes} bytes", "send fewer")

    def send_400_response(self, msg: str) -> None:
        problem = self.refused or Problem(400, "http", "the request is no HTTP", "send HTTP/1.1")
        count_problem(self.stats, problem.name)
        if not self.transport.is_closing():
            self.transport.write(reply(problem))
            self.transport.close()
            self._arm(1.0)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.idle = math.inf
        self.size = self.chunk
        self.scope["mqcore.connection"] = self.corked       # type: ignore[typeddict-unknown-key]

    def _large(self) -> bool:
        """Whether the headers, with the trailers of a chunked body, are too large. They are added
        up only in a message that is larger."""
        return self.most < len(self.url) + sum(
            len(name) + len(value) + 4 for name, value in self.headers)

    def _bound(self) -> None:
        """ValueError for headers that are too large. uvicorn then calls send_400_response."""
        if self._large():
            self._oversized()
            raise ValueError("headers too large")

    def on_headers_complete(self) -> None:
        if self.size > self.most:
            self._bound()
        self.unparsed = 0
        self.due = math.inf
        if self.corked.cycle is not None and self.parser.should_upgrade() \
                and self._should_upgrade():
            self.refused = Problem(400, "upgrade", "a WebSocket is asked for while a request is in "
                                   "progress", "wait for the answer, or use another connection")
            raise ValueError("upgrade in a pipeline")
        super().on_headers_complete()
        if self.cycle is not None:      # it is None where the connection becomes a WebSocket
            self.cycle.transport = self.corked      # type: ignore[assignment]
            if not self.pipeline:
                self.corked.cycle = self.cycle
        if len(self.pipeline) > PIPELINED:
            self.stats.oversized += 1
            self.transport.abort()
            raise ValueError("too many pipelined requests")

    def on_body(self, body: bytes) -> None:
        self.unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.size > self.most:
            self._bound()
        self.unparsed = 0
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self.due = math.inf
            self._rest()

    def on_response_complete(self) -> None:
        """uvicorn's, but the time of an idle connection needs no timer of its own. A body that
        comes after its answer is discarded for a while, so that the client reads the answer; a
        connection that is closed at once may lose it."""
        self.server_state.total_requests += 1
        self.corked.cycle = None
        closing = self.transport.is_closing()
        if not closing:
            self.flow.resume_reading()
            if self.pipeline:
                self.corked.cycle, app = self.pipeline.pop()
                self._start_asgi_task(self.corked.cycle, app)
                return
        if self.cycle.more_body and (not closing or self.transport.get_write_buffer_size()):
            self._arm(DISCARD)
        else:
            self._rest(closing)
