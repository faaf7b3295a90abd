"""One WebSocket of the gateway: uvicorn's protocol over wsproto, with the limits that it leaves
open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from mqcore.http.bounds import Limits, Stats
from mqcore.http.guarded import CLOSING, Corked
from mqcore.http.unread import progress

UNREAD = 256 << 10          # bytes of pongs that a client leaves unread, or sends after the close


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
    """One WebSocket."""

    limits: Limits
    stats: Stats

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.moved = 0.0        # when the client had acknowledged more than at the look before
        self.taken = 0          # bytes that it had acknowledged at the ping
        self.discarded = 0      # bytes that came after the close
        self.transport = Once(transport, self._closing)     # type: ignore[assignment]

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

    def eof_received(self) -> None:
        """The transport closes itself, once the client has read what is written. Without a close
        frame the talk is over, too."""
        if not self.transport.is_closing():
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})
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
        """uvicorn's. A client that reads on has not come to the ping yet."""
        left, taken = progress(self.transport)
        if left and taken != self.taken:
            self.taken = taken
            self.pong_timer = self.loop.call_later(self.limits.send_time, self.keepalive_timeout)
            return
        super().keepalive_timeout()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1011})

    def handle_ping(self, event: Any) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() > UNREAD:
            self.stats.slow += 1
            self.transport.abort()
            return
        super().handle_ping(event)
