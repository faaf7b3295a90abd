"""Socket whose calls give futures.

A call tries at once, so that a message is sent even if nobody awaits the future, and then the
future is done. What must wait stands in line: receives in one, sends in another, each served in
order by one task that waits for the socket while the line is not empty. A message is taken from
the socket only for a future that still wants it, so a cancelled one loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import mqcore as mq
from mqcore.api.aio import later
from mqcore.zmq.asyncio.poller import apoll, begun
from mqcore.zmq.constants import Flag, PollEvent, SocketOption
from mqcore.zmq.error import Again, ZMQError
from mqcore.zmq.shared import NAMING
from mqcore.zmq.socket import Socket as SyncSocket

DONTWAIT = int(Flag.DONTWAIT)
LIMITS = (SocketOption.RCVTIMEO, SocketOption.SNDTIMEO)
READY = (mq.Ready.READ, mq.Ready.WRITE)


class Line:
    """Futures that wait for the socket, and the task that serves them. side 0: to receive."""

    def __init__(self, socket: Socket, side: int) -> None:
        self.socket = socket
        self.side = side
        self.waiting: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self.task: asyncio.Task[None] | None = None

    def call(self, attempt: Callable[[], Any], wait: bool) -> asyncio.Future[Any]:
        """A future of what attempt() returns once it raises Again no more."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.forget_the_done()
        try:
            if not self.waiting or not wait:
                future.set_result(attempt())
                return future
        except Again as error:
            if not wait:
                future.set_exception(error)
                return future
        except Exception as error:
            future.set_exception(error)
            return future
        limit = self.socket.get(LIMITS[self.side])
        if limit == 0:
            future.set_exception(Again())
            return future
        if limit > 0:
            timer = loop.call_later(limit / 1000, _expire, future)
            future.add_done_callback(lambda _: timer.cancel())
        self.waiting.append((future, attempt))
        if self.task is None or self.task.done() or self.task.get_loop() is not loop:
            self.task = loop.create_task(self.serve())
        future.add_done_callback(self.left)
        return future

    def forget_the_done(self) -> None:
        while self.waiting and self.waiting[0][0].done():
            self.waiting.popleft()

    def left(self, future: asyncio.Future[Any]) -> None:
        """One is done: the task ends with the last."""
        self.forget_the_done()
        if not self.waiting and self.task is not None:
            self.task.cancel()
            self.task = None

    async def serve(self) -> None:
        try:
            while True:
                self.forget_the_done()
                if not self.waiting:
                    return
                future, attempt = self.waiting[0]
                seen = self.socket._core._change()
                try:
                    result = attempt()
                except Again:
                    await self.ready(seen)
                    continue
                except Exception as error:
                    future.set_exception(error)
                    continue
                future.set_result(result)
        except mq.Error as error:
            self.fail(self.socket._failed(error))

    async def ready(self, seen: int) -> None:
        """Until an attempt may do better than the one at `seen`."""
        core = self.socket._core
        if self.side and core.pattern in NAMING:  # writable, whether or not the one named has room
            await later(core, lambda: True, None, seen)
        else:
            await mq.apoll([(core, READY[self.side])])

    def fail(self, error: ZMQError) -> None:
        while self.waiting:
            future, _ = self.waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def drop(self) -> None:
        """The socket is closed."""
        while self.waiting:
            self.waiting.popleft()[0].cancel()


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(Again())


class Socket(SyncSocket):
    """zmq.Socket for asyncio: what may wait gives a future."""

    def __init__(self, context: Any = None, socket_type: int = -1, io_loop: Any = None,
                 _from_socket: Any = None, **kwargs: Any) -> None:
        if _from_socket is not None:
            kwargs["shadow"] = _from_socket
        super().__init__(context, socket_type, **kwargs)
        self._lines = (Line(self, 0), Line(self, 1))
        self._polls: set[asyncio.Future[Any]] = set()

    @classmethod
    def from_socket(cls, socket: Any, io_loop: Any = None) -> Any:
        """The same socket as an asynchronous one."""
        return cls(_from_socket=socket)

    def close(self, linger: int | None = None) -> None:
        """zmq.Socket.close(); futures that wait are cancelled."""
        if not self.closed:
            for line in self._lines:
                line.drop()
            for future in tuple(self._polls):
                future.cancel()
        super().close(linger)

    # -- sending and receiving ---------------------------------------------------------------------

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """A future of zmq.Socket.recv()."""
        take = super().recv
        return self._lines[0].call(lambda: take(flags | DONTWAIT, copy, track),
                                   not flags & DONTWAIT)

    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """A future of zmq.Socket.recv_multipart()."""
        take = super().recv_multipart
        return self._lines[0].call(lambda: take(flags | DONTWAIT, copy, track),
                                   not flags & DONTWAIT)

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> Any:
        """A future of zmq.Socket.recv_into()."""
        return self._lines[0].call(
            lambda: SyncSocket._recv_into(self, buffer, nbytes, flags | DONTWAIT),
            not flags & DONTWAIT)

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False,
             routing_id: int | None = None, group: str | None = None) -> Any:
        """A future of zmq.Socket.send()."""
        give = super().send
        return self._lines[1].call(
            lambda: give(data, flags | DONTWAIT, copy, track, routing_id, group),
            not flags & DONTWAIT)

    def send_multipart(self, msg_parts: Any, flags: int = 0, copy: bool = True, track: bool = False,
                       routing_id: int | None = None, group: str | None = None) -> Any:
        """A future of zmq.Socket.send_multipart()."""
        give = super().send_multipart
        return self._lines[1].call(
            lambda: give(msg_parts, flags | DONTWAIT, copy, track, routing_id, group),
            not flags & DONTWAIT)

    def poll(self, timeout: int | None = None, flags: int = int(PollEvent.POLLIN)) -> Any:
        """A future of zmq.Socket.poll()."""
        look = super().poll
        future = begun(lambda: look(0, flags), timeout, lambda: self._apoll(timeout, flags))
        self._polls.add(future)
        future.add_done_callback(self._polls.discard)
        return future

    async def _apoll(self, timeout: int | None, flags: int) -> int:
        found = await apoll([(self, flags)], timeout)
        return found[0][1] if found else 0

    def _deserialize(self, recvd: Any, load: Callable[[Any], Any]) -> Any:
        """A future of load() of what `recvd` gives."""
        loop = asyncio.get_running_loop()
        loaded = loop.create_future()

        def done(future: asyncio.Future[Any]) -> None:
            if loaded.done():
                return
            if future.cancelled():
                loaded.cancel()
                return
            try:
                loaded.set_result(load(future.result()))
            except Exception as error:
                loaded.set_exception(error)

        recvd.add_done_callback(done)
        loaded.add_done_callback(lambda _: recvd.cancel())
        if recvd.done():  # at once, so that a done future stays one
            recvd.remove_done_callback(done)
            done(recvd)
        return loaded
