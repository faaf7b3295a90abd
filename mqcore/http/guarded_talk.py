"""One WebSocket of the gateway: uvicorn's protocol over wsproto, with the limits that it leaves
open."""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.wsproto_impl import FrameTooLargeError, WSProtocol
from wsproto import events
from wsproto.connection import ConnectionState

from mqcore.http.bounds import Limits, Stats, count_problem
from mqcore.http.guarded import CLOSING, Corked
from mqcore.http.unread import progress

UNREAD = 256 << 10          # bytes of pongs that a client leaves unread, or sends after the close
TURN = 1e-3                 # seconds of a turn of the loop for frames, all talks together
LEAST = 50e-6               # of these for one connection, at least
LOOK = 16                   # frames between two looks at the clock
WAITING = 512               # whole messages of a client that wait for the backend
OVERHEAD = 500              # bytes of a waiting message's objects, about
WRONG, TOO_BIG, LATER = 1008, 1009, 1013    # WebSocket's codes of the end, by IANA's registry
GONE: Final = "websocket.disconnect"
TAKES = (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING)      # messages, until it is answered
HANDLERS = {events.Request: "handle_connect", events.TextMessage: "handle_message",
            events.BytesMessage: "handle_message", events.CloseConnection: "handle_close",
            events.Ping: "handle_ping", events.Pong: "handle_pong"}


def frame(data: bytes | str) -> bytes:
    """A message in one frame. wsproto writes none once the client has closed."""
    first = 0x82
    if isinstance(data, str):
        first, data = 0x81, data.encode()
    length = len(data)
    if length < 126:
        return b"%c%c%b" % (first, length, data)
    if length < 1 << 16:
        return struct.pack("!BBH", first, 126, length) + data
    return struct.pack("!BBQ", first, 127, length) + data


class Once:
    """A WebSocket's transport, which is closed once (asyncio's over TLS lets go of its connection
    when it is closed twice, and cannot be aborted then), and gently: it ends its sending direction
    and reads on. A pong that came after the close would have the kernel throw away what the client
    has not got yet. `closing()` is called then, and ends it."""

    def __init__(self, transport: Any, closing: Callable[[], None]) -> None:
        self.abort, self.get_extra_info = transport.abort, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size
        self._transport, self._closing, self._closed = transport, closing, False

    @property
    def closed(self) -> bool:
        """Whether the gateway has closed it. The client may have."""
        return self._closed

    def is_closing(self) -> bool:
        return self._closed or bool(self._transport.is_closing())

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self.is_closing():
            return
        self._closed = True
        if self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:     # the client has reset the connection
                self._transport.abort()
            self._transport.resume_reading()    # until the client ends its side
        else:
            self._transport.close()
        self._closing()


def size(message: Any) -> int:
    """The memory of a client's message, 0 for another event."""
    if message["type"] != "websocket.receive":
        return 0
    return sys.getsizeof(message.get("bytes") or message.get("text") or b"") + OVERHEAD


class Inbox(asyncio.Queue[Any]):
    """What waits for the application, the memory of that, and of the message `taken` last."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self.bytes = self.taken = 0

    def _put(self, item: Any) -> None:
        super()._put(item)
        self.bytes += size(item)

    def _get(self) -> Any:
        item = super()._get()
        self.taken = size(item)
        self.bytes -= self.taken
        return item


class GuardedTalk(WSProtocol):
    """One WebSocket.

    A client may send a great many small frames at once. Each turn of the loop handles some of them.
    The rest waits in wsproto, at most what one read has brought: nothing more is read until no
    frame and no message waits. `behind` says that frames wait. What ends the talk waits for them,
    too: the client had sent them before.

    `held` counts what the gateway holds of the client's messages among all bodies (`bodies_bytes`):
    one that is unfinished, those that wait, the one that the backend has not taken yet, and frames
    that wait. Where there is no more room, the talk ends with the code 1013. `clock` runs while the
    gateway reads for the rest of a message, which is to be complete within `body_time`.
    """

    limits: Limits
    stats: Stats
    busy: set[GuardedTalk]      # all talks of the gateway that have more frames for the next turn

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.moved = 0.0        # when the client had acknowledged more than at the look before
        self.taken = 0          # bytes that it had acknowledged at the ping
        self.heard = False      # something has come since the ping, or since the look at it
        self.discarded = 0      # bytes that came after the close
        self.queue: Inbox = Inbox()
        self.unparsed = 0       # bytes of which some may wait in wsproto
        self.given = 0          # bytes of the message that the application has now
        self.held = 0
        self.clock: asyncio.TimerHandle | None = None
        self.late = False       # the time of the unfinished message is over
        self.behind = False
        self.turn: asyncio.Handle | None = None     # it handles more frames
        self.over: Any = None   # the end of the talk, which the application has not been told yet
        self.goodbye: events.CloseConnection | None = None  # the client's, unanswered
        self.once = Once(transport, self._closing)
        self.transport = self.once      # type: ignore[assignment]
        self.done = False       # the application gets no more messages than have been queued

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: Any = self.scope
        scope["mqcore.connection"] = Corked(self.transport)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if not (self.transport.is_closing() or self._dropped()):
            self.unparsed += len(data)
            super().data_received(data)
            return
        self.discarded += len(data)
        if self.discarded > UNREAD:
            self.transport.pause_reading()

    def handle_events(self) -> None:
        """uvicorn's, for as many frames as one turn may take."""
        if self.turn is not None:
            self.turn.cancel()
            self.turn = None
            self.busy.discard(self)
        self.behind = False
        end = time.monotonic() + max(TURN / (1 + len(self.busy)), LEAST)
        for n, event in enumerate(() if self._dropped() else self.conn.events(), 1):
            if not self.close_sent or isinstance(event, events.CloseConnection):
                getattr(self, HANDLERS[type(event)])(event)
            if (self.done or self.close_sent) and self._dropped():
                break
            if n % LOOK == 0 and (self._full() or time.monotonic() >= end):
                self.behind = True
                break
        if self.behind and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
        if not self.behind:
            self.unparsed = 0
            if self.over is not None:
                self.queue.put_nowait(self.over)        # wakes receive()
        self._count()
        if self.held and self.stats.held_bytes > self.limits.bodies_bytes \
                and self.conn.state is ConnectionState.OPEN and not self.transport.is_closing():
            self._refuse()
        self._go_on()

    def _count(self) -> None:
        held = self.buffer.length + self.queue.bytes + self.given + self.unparsed
        self.stats.held_bytes += held - self.held
        self.held = held

    def _refuse(self) -> None:
        """All bodies together have no room for what this client sends."""
        count_problem(self.stats, "bodies")
        self.unparsed, self.behind = 0, False
        self._end(LATER, "the gateway holds too many bodies now; send it again later")

    def _clear(self) -> None:
        """No message is unfinished."""
        self.buffer.clear()
        self.late = False
        if self.clock is not None:
            self.clock.cancel()
            self.clock = None

    def _expire(self) -> None:
        self.late = True
        self._go_on()       # the rest may wait in wsproto

    def _end(self, code: int, reason: str) -> None:
        """The gateway ends the talk. What the client has sent before this is handled."""
        self.done = True
        self._clear()
        self.queue.put_nowait({"type": GONE, "code": code, "reason": reason})
        self.transport.write(self.conn.send(events.CloseConnection(code=code, reason=reason)))
        self.transport.close()
        self._count()

    def _dropped(self) -> bool:
        """Whether what the client has sent beyond this is of no use."""
        return self.once.closed or (self.disconnected if self.close_sent else self.done)

    def _full(self) -> bool:
        return not self.close_sent and self.queue.qsize() >= WAITING

    def _go_on(self) -> None:
        """Handle more frames, or else read on, where there is room."""
        if self.behind:
            if self.turn is None and (self.close_sent or self.queue.qsize() <= WAITING // 2):
                self.turn = self.loop.call_soon(self.handle_events)
                self.busy.add(self)
            return
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()
        if self.buffer.value is not None and not self.read_paused:
            self._wait_for_rest()

    def _wait_for_rest(self) -> None:
        """A message is unfinished, and what has come of it is handled."""
        seconds = self.limits.body_time
        if self.clock is None:
            self.clock = self.loop.call_later(seconds, self._expire)
        elif self.late and self.conn.state is ConnectionState.OPEN \
                and not self.transport.is_closing():
            count_problem(self.stats, "slow_body")
            self._end(WRONG, f"the message was not complete within {seconds:g} s; send it faster")

    async def receive(self) -> Any:
        """uvicorn's. The end comes after all messages, and again for who asks again."""
        while self.over is None or self.behind or not self.queue.empty():
            queue = self.queue
            if queue.empty():       # it may wait for long
                self.given = 0
                self._count()
                message = await queue.get()
                self.given = queue.taken        # the sum is the same
            else:
                message = queue.get_nowait()
                self.given = queue.taken
                self._count()
            self._go_on()
            if message["type"] != GONE:
                return message
            self.over = self.over or message
            self._answer_close()
        return self.over

    async def send(self, message: Any) -> None:
        """uvicorn's. It would take a message after the close for a mistake."""
        kind = message["type"]
        if kind == "websocket.send":
            if not self.writable.is_set():
                await self.writable.wait()
            if self.disconnected or self.conn.state not in TAKES:
                raise ClientDisconnected
            text = message.get("text")
            self.transport.write(frame(message["bytes"] if text is None else text))
        elif kind == "websocket.close" and self.goodbye is not None:
            self.goodbye = events.CloseConnection(message["code"], message.get("reason"))
            self._answer_close()
        else:
            await super().send(message)
            if self.close_sent:
                self._go_on()   # the client's close may be behind messages, which wait no more

    def _answer_close(self) -> None:
        """The messages before the client's close are handled, or it has waited long enough."""
        event, self.goodbye = self.goodbye, None
        if event is None:
            return
        if self.close_timer is not None:
            self.close_timer.cancel()
            self.close_timer = None
        self.transport.write(self.conn.send(event.response()))
        self.transport.close()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        self._answer_close()
        super().on_task_complete(task)
        self.done = True
        self.queue, self.given = Inbox(), 0
        self._clear()
        if self._dropped():
            self.behind, self.unparsed = False, 0
        self._count()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._dropped() or not self.behind:
            self.behind, self.unparsed = False, 0
        self._count()

    def eof_received(self) -> None:
        """The transport closes itself, once the client has read what is written. Without a close
        frame the talk is over, too."""
        if not self.transport.is_closing():
            self.queue.put_nowait({"type": GONE, "code": 1006})
            self._closing()

    def shutdown(self) -> None:
        """uvicorn's, which would close with 1012. The talk hears of the end, and says why."""
        self.stop_keepalive()
        if self.handshake_complete and not self.close_sent:
            self._closing()
        else:
            super().shutdown()

    def _closing(self) -> None:
        looks, self.moved = self.moved > 0, self.loop.time()
        if not looks:
            self.loop.call_later(CLOSING, self._look, -1)

    def _look(self, before: int) -> None:
        """The connection is being closed. Cut it once the client has read everything, since it may
        leave the close unanswered, and if it reads nothing. `before` are the bytes that it had
        acknowledged at the last look."""
        if self.disconnected:
            return
        left, taken = progress(self.transport)
        now = self.loop.time()
        if taken != before:
            self.moved = now
        elif not left or now - self.moved >= self.limits.send_time:
            self.stats.slow += left > 0
            self.transport.abort()
            return
        self.loop.call_later(CLOSING, self._look, taken)

    def handle_message(self, event: Any) -> None:
        """uvicorn's. It would take an answer that is written after this close for a mistake."""
        try:
            self.buffer.extend(event)
        except FrameTooLargeError:
            self._end(TOO_BIG, f"Message exceeds the maximum size ({self.limits.body_bytes} bytes)")
            return
        if event.message_finished:
            self.queue.put_nowait(self.buffer.to_message())
            self._clear()
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()

    def handle_close(self, event: Any) -> None:
        """uvicorn's. For a broken frame, the close frame comes from here: 1002 or 1007, and why.
        The client's is answered once the application has handled what came before it."""
        if self.conn.state is ConnectionState.OPEN:
            self._end(event.code, event.reason)
        elif self.close_sent:
            super().handle_close(event)
        else:
            self.done = True
            self._clear()
            self.stop_keepalive()
            self.goodbye = event
            self.queue.put_nowait({"type": GONE, "code": event.code, "reason": event.reason})
            self.close_timer = self.loop.call_later(self.close_timeout, self._answer_close)

    def send_keepalive_ping(self) -> None:
        super().send_keepalive_ping()
        self.heard = False
        self.taken = progress(self.transport)[1]

    def keepalive_timeout(self) -> None:
        """uvicorn's. A client that reads on has not come to the ping yet. The pong of one that has
        got the ping may wait behind what it sends, and a pong cannot interrupt a frame."""
        left, taken = progress(self.transport)
        if taken != self.taken if left else self.read_paused or self.heard:
            self.taken, self.heard = taken, False
            self.pong_timer = self.loop.call_later(self.limits.send_time, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.queue.put_nowait({"type": GONE, "code": 1011})

    def handle_ping(self, event: Any) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() > UNREAD:
            self.stats.slow += 1
            self.transport.abort()
            return
        super().handle_ping(event)
