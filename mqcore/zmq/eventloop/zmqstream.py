"""ZMQStream: a socket in tornado's loop, which calls back for each message.

What is sent waits in a queue of the stream's, and leaves in turns of the loop. A turn takes one
message in and one out, then the loop's others have theirs. Only the loop's thread may use a stream.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tornado.ioloop import IOLoop
from tornado.log import gen_log

from mqcore.zmq.asyncio.socket import Socket as AsyncSocket
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Errno, Flag, PollEvent
from mqcore.zmq.error import Again, ContextTerminated, ZMQError
from mqcore.zmq.fd import Edge
from mqcore.zmq.socket import Socket
from mqcore.zmq.utils import jsonapi

POLLIN, POLLOUT = int(PollEvent.POLLIN), int(PollEvent.POLLOUT)
DONTWAIT = int(Flag.DONTWAIT)
Callback = Callable[..., Any]
#: calls of the socket's that a stream has, too
CALLS = ("bind", "bind_to_random_port", "connect", "getsockopt", "getsockopt_string",
         "getsockopt_unicode", "setsockopt", "setsockopt_string", "setsockopt_unicode")


class ZMQStream:
    """Callbacks for a socket. What a callback raises goes to the loop, and what it awaits runs
    beside the next messages.

    socket: a zmq.Socket; of an asynchronous one its synchronous shadow is taken.
    io_loop: tornado's; left out: the current one.
    """

    socket: Any  # None: the stream is closed
    io_loop: IOLoop

    def __init__(self, socket: Any, io_loop: IOLoop | None = None) -> None:
        if isinstance(socket, AsyncSocket):
            warnings.warn("a ZMQStream takes a synchronous socket: "
                          "context.socket(type, socket_class=zmq.Socket), "
                          "or zmq.Socket.shadow(socket)", RuntimeWarning, stacklevel=2)
            socket = Socket.shadow(socket)
        self.socket = socket
        self.io_loop = io_loop or IOLoop.current()
        self._on_recv: Callback | None = None
        self._on_send: Callback | None = None
        self._on_close: Callback | None = None
        self._copy = True
        self._queue: deque[tuple[Any, int, dict[str, Any]]] = deque()
        self._due = False  # a turn is on the loop's list
        self._stuck = False  # POLLOUT holds, yet this message cannot go: until something changes
        for name in CALLS:
            setattr(self, name, getattr(self.socket, name))
        self._edge: Edge = self.socket._shared.watch()
        self.io_loop.add_handler(self, self._rung, IOLoop.READ)

    # -- what to call back -------------------------------------------------------------------------

    def on_recv(self, callback: Callback | None, copy: bool = True) -> None:
        """callback(parts) for each message; with copy=False they are Frames. None: no more are
        received."""
        self._check_open()
        self._on_recv = _callable(callback)
        self._copy = copy
        self._look()

    def on_recv_stream(self, callback: Callback | None, copy: bool = True) -> None:
        """callback(stream, parts) for each message. None: no more are received."""
        self.on_recv(self._with_stream(callback), copy)

    def on_send(self, callback: Callback | None) -> None:
        """callback(parts, status) for each message that was sent. status: a MessageTracker, None,
        or the ZMQError of a message that could not be."""
        self._check_open()
        self._on_send = _callable(callback)

    def on_send_stream(self, callback: Callback | None) -> None:
        """callback(stream, parts, status) for each message that was sent."""
        self.on_send(self._with_stream(callback))

    def on_err(self, callback: Callback | None) -> None:
        """Does nothing, as in pyzmq."""
        gen_log.warning("on_err does nothing")

    def stop_on_recv(self) -> None:
        """Messages stay in the socket."""
        self.on_recv(None)

    def stop_on_send(self) -> None:
        """Stop calling back for sent messages."""
        self.on_send(None)

    def stop_on_err(self) -> None:
        """Does nothing, as in pyzmq."""
        gen_log.warning("stop_on_err does nothing")

    def set_close_callback(self, callback: Callback | None) -> None:
        """callback() when the stream is closed, or its socket behind its back."""
        self._on_close = _callable(callback)

    def _with_stream(self, callback: Callback | None) -> Callback | None:
        if _callable(callback) is None:
            return None
        return lambda *args: callback(self, *args)  # type: ignore[misc]

    # -- sending -----------------------------------------------------------------------------------

    def send(self, msg: Any, flags: int = 0, copy: bool = True, track: bool = False,
             callback: Callback | None = None, **kwargs: Any) -> None:
        """send_multipart() of one part."""
        self.send_multipart([msg], flags, copy, track, callback, **kwargs)

    def send_multipart(self, msg: Sequence[Any], flags: int = 0, copy: bool = True,
                       track: bool = False, callback: Callback | None = None, **kwargs: Any
                       ) -> None:
        """Put a message into the queue. callback: as on_send() of it."""
        self._check_open()
        if callback is not None:
            self.on_send(callback)
        self._queue.append((msg, flags, {"copy": copy, "track": track, **kwargs}))
        self._look()

    def send_string(self, u: str, flags: int = 0, encoding: str = "utf-8",
                    callback: Callback | None = None, **kwargs: Any) -> None:
        """send() of text."""
        if not isinstance(u, str):
            raise TypeError("str objects only")
        self.send(u.encode(encoding), flags, callback=callback, **kwargs)

    send_unicode = send_string

    def send_json(self, obj: Any, flags: int = 0, callback: Callback | None = None, **kwargs: Any
                  ) -> None:
        """send() of an object as JSON."""
        self.send(jsonapi.dumps(obj), flags, callback=callback, **kwargs)

    def send_pyobj(self, obj: Any, flags: int = 0, protocol: int = -1,
                   callback: Callback | None = None, **kwargs: Any) -> None:
        """send() of a pickled object."""
        self.send(pickle.dumps(obj, protocol), flags, callback=callback, **kwargs)

    # -- state -------------------------------------------------------------------------------------

    def receiving(self) -> bool:
        """There is a callback for messages."""
        return self._on_recv is not None

    def sending(self) -> bool:
        """Messages wait in the queue."""
        return bool(self._queue)

    def closed(self) -> bool:
        """close() was called, or the socket is closed."""
        if self.socket is not None and self.socket.closed:
            self.close()
        return self.socket is None

    def fileno(self) -> int:
        """What the loop watches, and may close(): IOLoop.close(all_fds=True) closes the stream."""
        return self._edge.fd

    def close(self, linger: int | None = None) -> None:
        """Close the socket, too. What is in the queue is not sent: flush() before."""
        socket, self.socket = self.socket, None
        if socket is None:
            return
        self._unwatch()
        socket._shared.unwatch(self._edge)
        socket.close(linger)
        self._queue.clear()
        self._on_recv = self._on_send = None
        callback, self._on_close = self._on_close, None
        if callback is not None:
            self._call(callback)

    def _check_open(self) -> None:
        if self.socket is None:
            raise OSError("Stream is closed")
        if self.socket.closed:
            raise ZMQError(Errno.ENOTSOCK)

    # -- turns -------------------------------------------------------------------------------------

    def flush(self, flag: int = POLLIN | POLLOUT, limit: int | None = None) -> int:
        """Send what waits, and hand over what has come, at once. flag: POLLIN or POLLOUT, one
        direction alone; limit: so many messages at most. How many there were."""
        self._check_open()
        count = 0
        try:
            while limit is None or count < limit:
                moved = self._move(flag, 1 if limit is None else limit - count)
                count += moved
                if not moved or self.closed():
                    break
        finally:
            if not self.closed():
                self._look()
        return count

    def _rung(self, stream: Any, events: int) -> None:
        self._stuck = False
        if self._due:
            self._edge.calm()  # that turn looks for more itself
        else:
            self._turn()

    def _turn(self) -> None:
        self._due = False
        if self.closed():
            return
        try:
            self._move(POLLIN | POLLOUT, 2)
        except ContextTerminated:
            self._unwatch()  # the socket stays ready to say so until it is closed
            raise
        finally:
            if not self.closed() and not self.socket._shared.home.terminating:
                self._look()

    def _unwatch(self) -> None:
        try:
            self.io_loop.remove_handler(self)
        except RuntimeError:
            pass  # the loop is closed

    def _look(self) -> None:
        """A turn follows if there is something to do; else the descriptor will tell."""
        self._edge.calm()
        if not self._due and self._ready():
            self._due = True
            self.io_loop.add_callback(self._turn)

    def _ready(self) -> int:
        """What can be done now: POLLIN, POLLOUT."""
        wanted = POLLIN if self._on_recv is not None else 0
        if self._queue and not self._stuck:
            wanted |= POLLOUT
        return wanted and wanted & int(self.socket._ready())

    def _move(self, flag: int, limit: int) -> int:
        """One message in and one out, if there are any, but no more than `limit`."""
        moved = 0
        ready = self._ready() & flag
        if ready & POLLIN:
            moved += self._receive()
        if ready & POLLOUT and moved < limit and not self.closed():
            moved += self._send()
        return moved

    def _receive(self) -> int:
        callback = self._on_recv
        try:
            parts = self.socket.recv_multipart(DONTWAIT, copy=self._copy)
        except Again:
            return 0  # another receiver has taken it
        if callback is not None:
            self._call(callback, parts)
        return 1

    def _send(self) -> int:
        if not self._queue:
            return 0  # a callback has flushed
        parts, flags, options = self._queue.popleft()
        status: Any
        try:
            status = self.socket.send_multipart(parts, flags | DONTWAIT, **options)
        except Again:
            self._queue.appendleft((parts, flags, options))
            self._stuck = True
            return 0
        except ZMQError as error:
            if error.errno == Errno.ETERM:
                raise
            gen_log.error("SEND Error: %s", error)
            status = error
        if self._on_send is not None:
            self._call(self._on_send, parts, status)
        return 1

    def _call(self, callback: Callback, *args: Any) -> None:
        try:
            result = callback(*args)
        except Exception:
            gen_log.exception("Uncaught exception in ZMQStream callback")
            raise
        if inspect.isawaitable(result):
            asyncio.ensure_future(result).add_done_callback(_log_failure)


def _log_failure(done: asyncio.Future[Any]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        gen_log.error("Uncaught exception in ZMQStream callback", exc_info=error)


def _callable(callback: Callback | None) -> Callback | None:
    if callback is not None and not callable(callback):
        raise AssertionError(f"a callback is a function or None, not {callback!r}")  # as pyzmq's
    return callback


__getattr__ = lend(__name__)
