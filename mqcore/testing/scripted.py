"""A transport that does what a test tells it: attempts that are refused or never end, streams that
stall, break or are half closed after so many bytes, a listener that cannot accept.

A stream transport over TCP on the loopback, so that a reset is a real one. Between the connecting
socket and the listener stands a relay (a thread for each connection) that plays a script for each
direction. Addresses are names; one name is one listener.

    fake = ScriptedTransport()
    fake.attempts(refused(), refused(late=True), Link(back=[Pass(64), Stall()]))
    with installed("transport", fake):
        ...  # "scripted://anything"

What is not in the script goes well: attempts after the last one connect, bytes after the last step
pass.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mqcore.base.threads import Thread
from mqcore.errors import AddressError, AddressInUse
from mqcore.spi.transport import Listening, Options, StreamTransport, start_connect

CHUNK = 65536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 seconds: close() sends RST


# -- what may happen to an attempt -----------------------------------------------------------------


class Fails(NamedTuple):
    """The attempt fails with this errno: in connect() itself, or `late`, when it is finished."""

    number: int
    late: bool = False


class Hangs(NamedTuple):
    """The attempt never ends; connect_timeout must."""


def refused(late: bool = False) -> Fails:
    """The attempt is refused: in connect() itself, or later, once the descriptor is ready."""
    return Fails(errno.ECONNREFUSED, late)


# -- what may happen to a direction of a connection ------------------------------------------------


class Pass(NamedTuple):
    """Let `n` bytes through (None: all that come), `chunk` at a time at most."""

    n: int | None = None
    chunk: int = CHUNK


class Stall(NamedTuple):
    """Take nothing more from the writer until Link.go() says so."""


class Shut(NamedTuple):
    """The reader sees the end of the stream; the other direction goes on."""


class Reset(NamedTuple):
    """Both ends see the connection reset."""


Step = Pass | Stall | Shut | Reset


class _Way:
    """One direction: reads from one socket, writes to the other, as its script says."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = deque(steps)
        self.source: Any = None
        self.sink: Any = None
        self.held = b""  # read and not yet written
        self.passed = 0
        self.left: int | None = None  # of the Pass under way
        self.stalled = self.ended = False

    def step(self) -> Step:
        return self.steps[0] if self.steps else Pass()

    def next(self) -> None:
        self.left = None
        if self.steps:
            self.steps.popleft()


class Link:
    """The script of one connection: `there` is what happens to the bytes of the connecting side,
    `back` to those of the listening side. Afterwards it is the handle on the connection: `wait`,
    `go`, `reset`, `passed`."""

    def __init__(self, there: Iterable[Step] = (), back: Iterable[Step] = ()) -> None:
        self.ways = {"there": _Way(there), "back": _Way(back)}
        self._changed = threading.Condition()
        self._wakeup = -1
        self._reset = self._stop = False
        self.over = False
        self._thread: Thread | None = None

    # -- for the test ------------------------------------------------------------------------------

    def passed(self, way: str) -> int:
        """Bytes that went that way."""
        return self.ways[way].passed

    def wait(self, true: Callable[[Link], Any], limit: float = 10.0) -> None:
        """Until true(link); AssertionError after `limit` seconds."""
        with self._changed:
            assert self._changed.wait_for(lambda: true(self), limit), f"never: {self!r}"

    def wait_stalled(self, way: str) -> None:
        self.wait(lambda link: link.ways[way].stalled)

    def go(self, way: str) -> None:
        """End the Stall of that way."""
        with self._changed:
            self.ways[way].stalled = False
            self.ways[way].next()
        self._wake()

    def reset(self) -> None:
        """Reset both ends, now."""
        self._reset = True
        self._wake()

    def __repr__(self) -> str:
        ways = ", ".join(f"{name}: {way.passed} bytes, {list(way.steps) or 'free'}"
                         + (", ended" if way.ended else "") for name, way in self.ways.items())
        return f"<Link {ways}{', over' if self.over else ''}>"

    # -- for the transport -------------------------------------------------------------------------

    def start(self, near: socket.socket, far: socket.socket) -> None:
        """Relay between our end of the connecting side's stream and the listener's."""
        for name, source, sink in (("there", near, far), ("back", far, near)):
            self.ways[name].source, self.ways[name].sink = source, sink
            source.setblocking(False)
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = Thread(self._run, "mq-scripted")
        self._thread.start()

    def stop(self) -> None:
        self._stop = True
        self._wake()
        if self._thread is not None:
            self._thread.join()

    def _wake(self) -> None:
        with self._changed:
            if self._wakeup >= 0:
                os.eventfd_write(self._wakeup, 1)

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        try:
            while not self._stop and not all(way.ended for way in self.ways.values()):
                if self._reset:
                    self._break()
                    break
                self._turn(selector)
        except OSError:  # an end has reset the stream: so must the other see it
            self._break()
        finally:
            selector.close()
            for way in self.ways.values():
                way.source.close()
            with self._changed:
                os.close(self._wakeup)
                self._wakeup = -1
                self.over = True
                self._changed.notify_all()

    def _break(self) -> None:
        for way in self.ways.values():
            way.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def _turn(self, selector: selectors.BaseSelector) -> None:
        """Play what can be played, then wait until more can."""
        wanted: dict[Any, int] = {self._wakeup: selectors.EVENT_READ}
        with self._changed:
            for way in self.ways.values():
                self._play(way)
                if way.held:
                    wanted[way.sink] = wanted.get(way.sink, 0) | selectors.EVENT_WRITE
                elif not way.ended and not way.stalled:
                    wanted[way.source] = wanted.get(way.source, 0) | selectors.EVENT_READ
            self._changed.notify_all()
        if self._reset:
            return
        for key in list(selector.get_map().values()):
            if key.fileobj not in wanted:
                selector.unregister(key.fileobj)
        for thing, events in wanted.items():
            known = selector.get_map().get(thing)
            if known is None:
                selector.register(thing, events)
            elif known.events != events:
                selector.modify(thing, events)
        for key, _ in selector.select():
            if key.fileobj == self._wakeup:
                os.eventfd_read(self._wakeup)

    def _play(self, way: _Way) -> None:
        while not way.ended:
            if way.held and not self._write(way):
                return
            step = way.step()
            if isinstance(step, Stall):
                way.stalled = True
                return
            if isinstance(step, Reset):
                self._reset = True
                return
            if isinstance(step, Shut):
                self._shut(way)
                return
            if not self._pass(way, step):
                return

    def _pass(self, way: _Way, step: Pass) -> bool:
        """Read as much as the step allows. False: nothing is there now."""
        if way.left is None and step.n is not None:
            way.left = step.n
        if way.left == 0:
            way.next()
            return True
        try:
            way.held = way.source.recv(min(step.chunk, CHUNK if way.left is None else way.left))
        except BlockingIOError:
            return False
        if not way.held:
            self._shut(way)
        return True

    def _write(self, way: _Way) -> bool:
        """False: the reader's buffer is full."""
        try:
            sent = way.sink.send(way.held)
        except BlockingIOError:
            return False
        way.held = way.held[sent:]
        way.passed += sent
        if way.left is not None:
            way.left -= sent
        return not way.held

    def _shut(self, way: _Way) -> None:
        way.ended = True
        try:
            way.sink.shutdown(socket.SHUT_WR)
        except OSError:  # its reader has gone already
            pass


Attempt = Fails | Hangs | Link


class _Door(socket.socket):
    """A listening socket whose accept() fails on demand."""

    faults: deque[int]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.faults:
            number = self.faults.popleft()
            raise OSError(number, os.strerror(number))
        return super().accept()


class ScriptedTransport(StreamTransport):
    """`attempts(...)` says what becomes of the next ones, `faults(...)` which errnos the next calls
    of accept() raise, before any connection is taken; `tried` counts the attempts, `links` has the
    connections. The fixture `mq_scripted` closes it."""

    scheme = "scripted"
    doc = "does what a test tells it"

    def __init__(self, scheme: str = "scripted") -> None:
        self.scheme = scheme  # type: ignore[misc]
        self.tried = 0
        self.links: list[Link] = []
        self._attempts: deque[Attempt] = deque()
        self._faults: deque[int] = deque()
        self._bound: dict[str, Any] = {}
        self._late: dict[socket.socket, int] = {}
        self._hung: list[socket.socket] = []
        self._lock = threading.RLock()  # no new connection while they are ended
        self._closed = False

    # -- for the test ------------------------------------------------------------------------------

    def attempts(self, *attempts: Attempt) -> None:
        self._attempts.extend(attempts)

    def faults(self, *numbers: int) -> None:
        self._faults.extend(numbers)

    def close(self) -> None:
        """End all connections; from now on every attempt is refused."""
        with self._lock:
            self._closed = True
        for link in self.links:
            link.stop()
        for sock in self._hung:
            sock.close()
        self._hung.clear()
        self._late.clear()

    # -- the transport -----------------------------------------------------------------------------

    def check(self, address: str, role: str) -> None:
        if not address:
            raise AddressError("a name is missing")

    def listen(self, address: str, options: Options) -> Listening:
        self.check(address, "bind")
        if address in self._bound:
            raise AddressInUse(f"scripted://{address} is bound already", errno=errno.EADDRINUSE)
        door = _Door(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        door.faults = self._faults
        door.bind(("127.0.0.1", 0))
        door.listen(options["backlog"])
        self._bound[address] = door.getsockname()
        return Listening((door,), address, lambda: self._bound.pop(address))

    def connect(self, target: Any, options: Options) -> socket.socket:
        with self._lock:
            return self._connect(target)

    def _connect(self, target: Any) -> socket.socket:
        self.tried += 1
        attempt: Attempt = self._attempts.popleft() if self._attempts else Link()
        if isinstance(attempt, Fails) and not attempt.late:
            raise OSError(attempt.number, os.strerror(attempt.number))
        if isinstance(attempt, Hangs) and not self._closed:
            return self._never()
        if target not in self._bound or self._closed or isinstance(attempt, Hangs):
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        near, ours = _pair()
        if isinstance(attempt, Fails):
            self._late[near] = attempt.number
            ours.close()
            return near
        far = socket.create_connection(self._bound[target])
        self.links.append(attempt)
        attempt.start(ours, far)
        return near

    def _never(self) -> socket.socket:
        """A socket that never becomes writable: its peer does not read."""
        near, far = socket.socketpair()
        near.setblocking(False)
        try:
            while True:
                near.send(bytes(CHUNK))
        except BlockingIOError:
            pass
        self._hung.append(far)
        return near

    def finish(self, sock: socket.socket) -> int:
        return self._late.pop(sock, 0) or super().finish(sock)

    def names(self, sock: socket.socket) -> tuple[str, str]:
        return f"{self.scheme}://", f"{self.scheme}://"


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two connected TCP sockets; the first is non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        start_connect(near, server.getsockname())
        ours, _ = server.accept()
    for sock in (near, ours):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, ours
