"""Context and Socket whose calls let other greenlets run while they wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Flag, PollEvent, SocketOption
from mqcore.zmq.context import Context as SyncContext
from mqcore.zmq.error import Again
from mqcore.zmq.green.hub import Wakers, in_thread, sleep
from mqcore.zmq.green.poll import Poller, zmq_poll
from mqcore.zmq.socket import Socket as SyncSocket

DONTWAIT = int(Flag.DONTWAIT)
RCVTIMEO, SNDTIMEO = TIMEOS = SocketOption.RCVTIMEO, SocketOption.SNDTIMEO


class Socket(SyncSocket):
    """zmq.Socket for gevent."""

    _poller_class: ClassVar[Any] = Poller

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._wakers = Wakers()
        super().__init__(*args, **kwargs)

    def close(self, linger: int | None = None) -> None:
        """zmq.Socket.close(); greenlets that wait get ENOTSOCK."""
        super().close(linger)
        self._wakers.end()

    def _until(self, attempt: Callable[[], Any], flags: int, timeout: SocketOption) -> Any:
        """attempt() once it raises Again no more, or the option's time is up."""
        if flags & DONTWAIT:
            return attempt()
        limit: float | None = None
        begun = False
        while True:
            core = self._core
            seen = 0 if core is None else core._change()
            try:
                return attempt()
            except Again:
                if not begun:
                    begun = True
                    ms = self.get(timeout)
                    limit = None if ms < 0 else time.monotonic() + ms / 1000
                if limit is not None and time.monotonic() >= limit:
                    raise
            core = self._open()
            sleep([(self._wakers.here(core), seen)], (), limit)

    # -- sending and receiving ---------------------------------------------------------------------

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """zmq.Socket.recv()."""
        take = super().recv
        return self._until(lambda: take(flags | DONTWAIT, copy, track), flags, RCVTIMEO)

    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """zmq.Socket.recv_multipart()."""
        take = super().recv_multipart
        return self._until(lambda: take(flags | DONTWAIT, copy, track), flags, RCVTIMEO)

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> Any:
        """zmq.Socket.recv_into()."""
        return self._until(lambda: self._recv_into(buffer, nbytes, flags | DONTWAIT), flags,
                           RCVTIMEO)

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False,
             routing_id: int | None = None, group: str | None = None) -> Any:
        """zmq.Socket.send()."""
        give = super().send
        return self._until(lambda: give(data, flags | DONTWAIT, copy, track, routing_id, group),
                           flags, SNDTIMEO)

    def send_multipart(self, msg_parts: Any, flags: int = 0, copy: bool = True, track: bool = False,
                       routing_id: int | None = None, group: str | None = None) -> Any:
        """zmq.Socket.send_multipart()."""
        give, parts = super().send_multipart, list(msg_parts)
        return self._until(lambda: give(parts, flags | DONTWAIT, copy, track, routing_id, group),
                           flags, SNDTIMEO)

    def poll(self, timeout: int | None = None, flags: int = int(PollEvent.POLLIN)) -> int:
        """zmq.Socket.poll()."""
        self._shared.refuse()
        found = zmq_poll([(self, flags)], -1 if timeout is None else timeout)
        return found[0][1] if found else 0


class Context(SyncContext):
    """zmq.Context for gevent."""

    _socket_class: ClassVar[Any] = Socket
    _instance: ClassVar[Any] = None

    def term(self) -> None:
        """zmq.Context.term(): other greenlets may close their sockets meanwhile."""
        in_thread(super().term)


__getattr__ = lend(__name__)
