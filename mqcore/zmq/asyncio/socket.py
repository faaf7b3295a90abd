"""Socket whose calls return futures.

A call tries at once, so a message is sent even if no task awaits the future, which is then already
done. Calls that must wait queue in two lines, one for receives and one for sends. A line sleeps on
the socket's waker (mqcore/api/wakers.py), which wakes it in a callback of the loop. The line then
serves its futures in order. It takes a message from the socket only for a future that still wants
it, so a cancelled future loses nothing.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import mqcore as mq
from mqcore.api.wakers import Waker, waker_of
from mqcore.zmq.asyncio.poller import apoll, begun
from mqcore.zmq.constants import Flag, PollEvent, SocketOption
from mqcore.zmq.error import Again, ZMQError
from mqcore.zmq.socket import Socket as SyncSocket

DONTWAIT = int(Flag.DONTWAIT)
LIMITS = (SocketOption.RCVTIMEO, SocketOption.SNDTIMEO)


class Line:
    """Futures that wait for the socket. side 0: to receive. It is a nap of the waker's."""

    def __init__(self, socket: Socket, side: int) -> None:
        self.socket = socket
        self.side = side
        self.waiting: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self.waker: Waker | None = None  # of the serving loop, while a future waits

    def call(self, attempt: Callable[..., Any], args: tuple[Any, ...], wait: bool
             ) -> asyncio.Future[Any]:
        """A future of what attempt(socket, *args) returns once it raises Again no more."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        core = self.socket._core
        seen = None if core is None else core._change()
        if self.waiting:
            self.forget_the_done()
        try:
            if not self.waiting or not wait:
                future.set_result(attempt(self.socket, *args))
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
        self.waiting.append((future, functools.partial(attempt, self.socket, *args)))
        future.add_done_callback(self.left)
        if self.waker is None or self.waker.loop is not loop:
            self.leave()
            self.join(seen)
        return future

    def forget_the_done(self) -> None:
        """Also forget futures of a closed loop, which cannot be notified."""
        while self.waiting and (self.waiting[0][0].done()
                                or self.waiting[0][0].get_loop().is_closed()):
            self.waiting.popleft()

    def left(self, future: asyncio.Future[Any]) -> None:
        """One is done: the last one ends the wait."""
        self.forget_the_done()
        if not self.waiting:
            self.leave()

    def join(self, seen: int | None) -> None:
        """Begin to wait in the running loop. seen: what the socket's change was before the first
        one tried; None: it was not open then."""
        try:
            self.waker = waker_of(self.socket._core)
        except mq.Error as error:
            self.fail(self.socket._failed(error))
            return
        self.waker.users += 1
        if seen is None or not self.doze(self.waker, seen):
            self.wake()

    def doze(self, waker: Waker, seen: int) -> bool:
        """Be told of the next change. False: it came."""
        waker.naps[self] = None
        return waker.doze(seen)

    def leave(self) -> None:
        """Wait no more. Idempotent."""
        waker, self.waker = self.waker, None
        if waker is not None:
            waker.users -= 1
            waker.drop(self)

    def wake(self) -> None:
        """Something changed at the socket: do what can be done now."""
        waker = self.waker
        while waker is not None and self.waker is waker:
            self.forget_the_done()
            if not self.waiting:
                self.leave()
                return
            if waker.core is not self.socket._core:  # opened anew, for an option
                self.leave()
                self.join(None)
                return
            future, attempt = self.waiting[0]
            seen = waker.core._change()
            try:
                result = attempt()
            except Again:
                if self.doze(waker, seen):
                    return
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def fail(self, error: ZMQError) -> None:
        while self.waiting:
            future, _ = self.waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def drop(self) -> None:
        """The socket is closed."""
        self.leave()
        while self.waiting:
            _cancel(self.waiting.popleft()[0])


def _cancel(future: asyncio.Future[Any]) -> None:
    try:
        future.cancel()
    except RuntimeError:    # its loop has been closed, so nothing can wait for it
        pass


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
                _cancel(future)
        super().close(linger)

    @property
    def _recv_futures(self) -> list[asyncio.Future[Any]]:
        """What waits to receive, or for poll(), by pyzmq's name."""
        return [*(future for future, _ in self._lines[0].waiting), *self._polls]

    @property
    def _send_futures(self) -> list[asyncio.Future[Any]]:
        """What waits to send, by pyzmq's name."""
        return [future for future, _ in self._lines[1].waiting]

    # -- sending and receiving ---------------------------------------------------------------------

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """A future of zmq.Socket.recv()."""
        return self._lines[0].call(SyncSocket.recv, (flags | DONTWAIT, copy, track),
                                   not flags & DONTWAIT)

    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """A future of zmq.Socket.recv_multipart()."""
        return self._lines[0].call(SyncSocket.recv_multipart, (flags | DONTWAIT, copy, track),
                                   not flags & DONTWAIT)

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> Any:
        """A future of zmq.Socket.recv_into()."""
        return self._lines[0].call(SyncSocket._recv_into, (buffer, nbytes, flags | DONTWAIT),
                                   not flags & DONTWAIT)

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False,
             routing_id: int | None = None, group: str | None = None) -> Any:
        """A future of zmq.Socket.send()."""
        return self._lines[1].call(
            SyncSocket.send, (data, flags | DONTWAIT, copy, track, routing_id, group),
            not flags & DONTWAIT)

    def send_multipart(self, msg_parts: Any, flags: int = 0, copy: bool = True, track: bool = False,
                       routing_id: int | None = None, group: str | None = None) -> Any:
        """A future of zmq.Socket.send_multipart()."""
        return self._lines[1].call(
            SyncSocket.send_multipart,
            (msg_parts, flags | DONTWAIT, copy, track, routing_id, group), not flags & DONTWAIT)

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
