"""A slow, stalling or breaking link between two programs of a test: `SlowLink`.

    with SlowLink(server.endpoints[0], delay=0.05, rate=100_000) as link:
        client.connect(link.url)
        ...
        link.stall()          # the peer is there and says nothing

A relay, not a filter: a filter (`mqcore/spi/filter.py`) is called when bytes come and has no clock
to let go of them later, and it would sit in one of the two programs, whereas a relay stands between
any two, in whatever language they are written. It passes bytes and knows no protocol, so everything
above tcp goes through it; each connection to it is one connection to the target.

One thread per link, started by the constructor and ended by `close`. Every other call may come from
any thread.
"""

from __future__ import annotations

import queue
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.base.threads import Thread

PIECE = 1 << 16
HELD = 4 << 20  # bytes of one direction in the relay; above that it stops reading
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the connection is reset when it is closed


class Way:
    """One direction of one connection: what was read and is not yet due."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.held = 0
        self.free = 0.0  # when the line has carried all that was read
        self.full = False  # the target has no space
        self.ended = False  # the source says no more
        self.shut = False  # and the target knows

    def read(self, now: float, delay: float, rate: float | None) -> None:
        try:
            data = self.source.recv(PIECE)
        except BlockingIOError:
            return
        self.ended = not data
        self.free = max(self.free, now) + (len(data) / rate if rate else 0.0)
        due = max(self.free + delay, self.pieces[-1][0] if self.pieces else 0.0)  # in order
        self.pieces.append((due, data))  # an empty one is the end
        self.held += len(data)

    def give(self, now: float) -> None:
        """Writes what is due."""
        self.full = False
        while self.pieces and self.pieces[0][0] <= now:
            due, data = self.pieces.popleft()
            if not data:
                self.shut = True
                self.target.shutdown(socket.SHUT_WR)
                return
            try:
                n = self.target.send(data)
            except BlockingIOError:
                n = 0
            self.held -= n
            if n < len(data):
                self.pieces.appendleft((due, data[n:]))
                self.full = True
                return


class Connection:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        for end in self.ends:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ways = (Way(client, server), Way(server, client))

    @property
    def over(self) -> bool:
        return all(way.shut for way in self.ways)

    def close(self, reset: bool) -> None:
        for end in self.ends:
            if reset:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.close()


class SlowLink:
    """Listens at `url` and connects each client to `target`, an endpoint or "tcp://host:port". If
    nothing listens there, the client is reset.

    `delay`: seconds that each byte takes, in each direction. `rate`: bytes per second and direction
    of each connection, None: no limit. Both may be assigned while it runs."""

    def __init__(self, target: Any, *, delay: float = 0.0, rate: float | None = None) -> None:
        url = str(getattr(target, "url", target))
        if not url.startswith("tcp://"):
            raise ValueError(f"a slow link leads to tcp://host:port, not to {url!r}")
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self.target = (host.strip("[]"), int(port))
        self.delay, self.rate = delay, rate
        self._port = 0
        self._listener: socket.socket | None = None
        self._connections: list[Connection] = []  # the thread's own, like the listener
        self._stalled = self._closing = False
        self._orders: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]]
        self._orders = queue.SimpleQueue()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._open()
        self._thread = Thread(self._run, "slow link")
        self._thread.start()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    @property
    def connections(self) -> int:
        """How many go through it now."""
        return len(self._connections)

    # -- what a test does with it: done when the call returns --------------------------------------

    def stall(self) -> None:
        """Nothing passes any more, connections stay and new ones are accepted: a peer that is
        there and silent. What is under way waits."""
        self._do(lambda: setattr(self, "_stalled", True))

    def go(self) -> None:
        """After stall()."""
        self._do(lambda: setattr(self, "_stalled", False))

    def cut(self) -> None:
        """Reset every connection; what is under way is lost. New ones are welcome."""
        self._do(self._cut)

    def shut(self) -> None:
        """cut(), and new connections are refused until open()."""
        self._do(self._shut)

    def open(self) -> None:
        """Listen again, at the same port, after shut()."""
        self._do(self._open)

    def close(self) -> None:
        """The end of the link and of its thread. Idempotent."""
        if not self._closing:
            self._do(lambda: setattr(self, "_closing", True))
            self._thread.join()
            self._bell.close()
            self._rope.close()

    def __enter__(self) -> SlowLink:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _do(self, order: Callable[[], None]) -> None:
        done = threading.Event()
        self._orders.put((order, done))
        self._rope.send(b"!")
        done.wait()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            found = self._sleep()
            if self._bell.fileno() in found:
                self._bell.recv(1)
                order, done = self._orders.get()
                order()
                done.set()
            elif not self._stalled:
                self._accept()
                self._move(found)
        self._shut()

    def _sleep(self) -> set[int]:
        """Until something can be read, written or is due: the descriptors that are ready."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        due: float | None = None
        if self._listener is not None and not self._stalled:
            poll.register(self._listener, select.POLLIN)
        for connection in () if self._stalled else self._connections:
            wanted = dict.fromkeys(connection.ends, 0)
            for way in connection.ways:
                if not way.ended and way.held < HELD:
                    wanted[way.source] |= select.POLLIN
                if way.full:
                    wanted[way.target] |= select.POLLOUT
                elif way.pieces:
                    due = way.pieces[0][0] if due is None else min(due, way.pieces[0][0])
            for end, what in wanted.items():
                if what:  # a mere hang-up would wake it again and again
                    poll.register(end, what)
        wait = None if due is None else max(0.0, due - time.monotonic()) * 1e3
        return {descriptor for descriptor, _ in poll.poll(wait)}

    def _accept(self) -> None:
        while self._listener is not None:
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            try:
                server = socket.create_connection(self.target, timeout=5)
            except OSError:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
                continue
            self._connections.append(Connection(client, server))

    def _move(self, found: set[int]) -> None:
        for connection in list(self._connections):
            try:
                for way in connection.ways:
                    if way.source.fileno() in found and not way.ended and way.held < HELD:
                        way.read(time.monotonic(), self.delay, self.rate)
                    way.give(time.monotonic())
            except OSError:  # one end was reset: so is the other
                self._end(connection, True)
                continue
            if connection.over:
                self._end(connection, False)

    def _end(self, connection: Connection, reset: bool) -> None:
        connection.close(reset)
        self._connections.remove(connection)

    def _cut(self) -> None:
        for connection in list(self._connections):
            self._end(connection, True)

    def _shut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._cut()

    def _open(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            self._listener.setblocking(False)
            self._port = self._listener.getsockname()[1]
