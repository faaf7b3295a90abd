"""One WebSocket of the gateway: uvicorn's protocol over wsproto, with the limits that it leaves
open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import events

from mqcore.http.bounds import Limits, Stats
from mqcore.http.guarded import CLOSING, Corked
from mqcore.http.unread import progress

UNREAD = 256 << 10          # bytes of pongs that a client leaves unread, or sends after the close
TURN = 1e-3                 # seconds of a turn of the loop for frames, all connections together
LEAST = 50e-6               # of these for one connection, at least
WAITING = 512               # whole messages of a client that wait for the backend
GONE: Final = "websocket.disconnect"
HANDLERS = {events.Request: "handle_connect", events.TextMessage: "handle_message",
            events.BytesMessage: "handle_message", events.CloseConnection: "handle_close",
            events.Ping: "handle_ping", events.Pong: "handle_pong"}


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
            self._transport.write_eof()
            self._transport.resume_reading()    # until the client ends its side
        else:
            self._transport.close()
        self._closing()


class GuardedTalk(WSProtocol):
    """One WebSocket.

    A client may send a great many small frames at once. Each turn of the loop handles some of them.
    The rest waits in wsproto, at most what one read has brought: nothing more is read until no
    frame and no message waits. `behind` says that frames wait. What ends the talk waits for them,
    too: the client had sent them before.
    """

    limits: Limits
    stats: Stats

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.moved = 0.0        # when the client had acknowledged more than at the look before
        self.taken = 0          # bytes that it had acknowledged at the ping
        self.discarded = 0      # bytes that came after the close
        self.behind = False
        self.turn: asyncio.Handle | None = None     # it handles more frames
        self.over: Any = None   # the end of the talk, which the application has not been told yet
        self.once = Once(transport, self._closing)
        self.transport = self.once      # type: ignore[assignment]
        self.done = False       # the application takes no messages any more

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: Any = self.scope
        scope["mqcore.connection"] = Corked(self.transport)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
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
        self.behind = False
        end = time.monotonic() + max(TURN / max(1, len(self.connections)), LEAST)
        for event in () if self._dropped() else self.conn.events():
            if not self.close_sent or isinstance(event, events.CloseConnection):
                getattr(self, HANDLERS[type(event)])(event)
            if self._full() or time.monotonic() >= end:
                self.behind = not self._dropped()
                break
        if self.behind and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()
        if self.over is not None and not self.behind:
            self.queue.put_nowait(self.over)        # wakes receive()
        self._go_on()

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
        elif self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """uvicorn's. The end comes after all messages, and again for who asks again."""
        while self.over is None or self.behind or not self.queue.empty():
            message = await self.queue.get()
            self._go_on()
            if message["type"] != GONE:
                return message
            self.over = self.over or message
        return self.over

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent:
            self._go_on()       # the client's close may be behind messages, which wait no more

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.done = True
        self.queue = asyncio.Queue()
        self.buffer.clear()
        self._go_on()

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

    def send_keepalive_ping(self) -> None:
        super().send_keepalive_ping()
        self.taken = progress(self.transport)[1]

    def keepalive_timeout(self) -> None:
        """uvicorn's. A client that reads on has not come to the ping yet, and the gateway may not
        have read what the client has sent."""
        left, taken = progress(self.transport)
        if self.read_paused or left and taken != self.taken:
            self.taken = taken
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
