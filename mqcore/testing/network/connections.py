"""The connections of a simulated network: what was written on one side waits here until it is due
on the other.

Each connection is two kernel socket pairs, one for each side, and the network has the other end of
both. So the library reads and writes real descriptors, and no byte reaches the peer before the
network moves it. A connection is a stream, as over TCP: bytes are never missing and never out of
order. Loss makes them late, and too much of it breaks the connection.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqcore.testing.network.world import Host, Network

PIECE = 65536  # bytes that share one fate
WINDOW = 1 << 20  # bytes under way in one direction; then the writer has to wait
RETRY = 200_000_000  # ns until a lost piece is sent again, doubled each time
RETRIES = 6  # lost so often in a row, a piece breaks its connection
SMALL = 2304  # of a socket that is to be full
USUAL = 106496
END = b""


class Way:
    """One direction of a connection: from `source`, the network's end at the writer, to `sink`, the
    one at the reader."""

    def __init__(self, link: Link, name: str, source: socket.socket, sink: socket.socket,
                 writer: Host | None, reader: Host | None) -> None:
        self.link, self.name, self.source, self.sink = link, name, source, sink
        self.writer, self.reader = writer, reader
        self.pieces: deque[tuple[int, bytes]] = deque()  # due when, what; END: the end
        self.ready: deque[bytes] = deque()  # due, and not yet taken by the reader
        self.bytes = 0  # under way or due
        self.last = 0  # when the latest piece is due
        self.free = 0  # when the line has sent what it has
        self.reading = True
        self.ended = False

    def collect(self) -> int:
        """Take what the library wrote, unless its host is paused. How many pieces."""
        found = 0
        if self.writer is not None and self.writer.paused:
            return found
        while self.reading and self.bytes < WINDOW:
            try:
                data = self.source.recv(PIECE)
            except BlockingIOError:
                break
            except OSError:  # it closed its end with unread bytes
                data = END
            found += 1
            self.bytes += len(data)
            self.reading = bool(data)
            self.link.net._dispatch(self, data)
            if self.link.over:
                break
        return found

    def arrive(self) -> None:
        """The first piece is due."""
        if self.link.over:
            return
        if self.link.cut():
            self.link.hold(self)
            return
        while self.pieces and self.pieces[0][0] <= self.link.net._now:
            data = self.pieces.popleft()[1]
            self.link.net._log("arrive" if data else "end", self.name, len(data))
            self.ready.append(data)
        self.flush()

    def flush(self) -> int:
        """Hand over what is due, unless the reader's host is paused. How many bytes it took."""
        taken = 0
        if self.reader is not None and self.reader.paused:
            return taken
        while self.ready and not self.link.over:
            data = self.ready[0]
            try:
                if data:
                    sent = self.sink.send(data)
                else:
                    sent = 0
                    self.sink.shutdown(socket.SHUT_WR)
            except BlockingIOError:
                break
            except OSError:  # the reader has closed its end
                self.link.reset("gone")
                break
            self.bytes -= sent
            taken += sent
            if sent < len(data):
                self.ready[0] = data[sent:]
                break
            self.ready.popleft()
            if not data:
                self.ended = True
                self.link.settle()
                break
        return taken


class Link:
    """A connection of `client` to what `server` listens at, or an attempt to make one."""

    def __init__(self, net: Network, number: int, client: Host, address: str) -> None:
        self.net, self.number, self.client, self.address = net, number, client, address
        self.name = f"{client.name}>{address}#{number}"
        self.over = self.connected = False
        self.held_since: int | None = None
        self.error = 0
        self.ways: tuple[Way, ...] = ()
        self.near, self._left = _full_pair()
        self._right: socket.socket | None = None

    @property
    def server(self) -> Host | None:
        """It may be made after the attempt to connect to it."""
        return self.net._hosts.get(self.address.partition("/")[0])

    # -- the handshake, as of TCP ------------------------------------------------------------------

    def knock(self, tries: int = 0) -> None:
        """The client's request to connect is at the server, unless it was lost."""
        net = self.net
        if self.over or self._abandoned():
            return
        if self.cut():
            net._count("held", "hold", self.name)
            self._again(self.knock, tries)
            return
        if net.loss and net._chance.random() < net.loss:
            net._count("lost", "lose", self.name)
            self._again(self.knock, tries)
            return
        door = net._doors.get(self.address)
        if door is None:
            self.error = errno.ECONNREFUSED
        else:
            try:
                self._right = door.accept_from()
            except OSError:  # its backlog is full
                self._again(self.knock, tries)
                return
        net._after(net._journey(self), self.answer)

    def answer(self, tries: int = 0) -> None:
        """The server's answer is at the client, unless a partition holds it."""
        if self.over or self._abandoned():
            return
        if self.cut():
            self.net._count("held", "hold", self.name)
            self._again(self.answer, tries)
            return
        self.net._log("refuse" if self.error else "connect", self.name, 0)
        with contextlib.suppress(BlockingIOError):
            while self._left.recv(PIECE):  # the client's socket becomes writable
                pass
        if self._right is None:
            self.reset("")
            return
        self.connected = True
        there = Way(self, f"{self.name} there", self._left, self._right, self.client, self.server)
        back = Way(self, f"{self.name} back", self._right, self._left, self.server, self.client)
        self.ways = (there, back)

    def _again(self, step: Callable[[int], None], tries: int) -> None:
        self.net._after(5 * RETRY << min(tries, RETRIES), step, tries + 1)

    def _abandoned(self) -> bool:
        """Whether the client gave up: its end of the socket is closed."""
        poll = select.poll()
        poll.register(self._left, select.POLLRDHUP)
        gone = bool(poll.poll(0))
        if gone:
            self.reset("")
        return gone

    # -- what befalls it ---------------------------------------------------------------------------

    def cut(self) -> bool:
        return self.net._parted(self.client, self.server)

    def hold(self, way: Way) -> None:
        """Between two partitions nothing passes. TCP tries again until it gives up."""
        self.net._count("held", "hold", way.name)
        if self.held_since is None:
            self.held_since = self.net._now
            self.net._after(self.net._give_up, self._give_up, self.held_since)

    def _give_up(self, since: int) -> None:
        if self.held_since == since and not self.over:
            self.reset("timeout")

    def heal(self) -> None:
        """The sides of a partition see each other again."""
        if self.held_since is None or self.over or self.cut():
            return
        self.held_since = None
        wait = int(RETRY * self.net._chance.random())
        for way in self.ways:
            if way.pieces:
                way.last = max(way.last, self.net._now + wait)
                way.pieces = deque((max(when, way.last), data) for when, data in way.pieces)
                self.net._after(way.last - self.net._now, way.arrive)

    def reset(self, why: str) -> None:
        """The connection ends at once, on both sides. Bytes that are under way are lost with it,
        and counted."""
        if self.over:
            return
        self.over = True
        if why:
            self.net._count("broken", f"break {why}", self.name,
                            sum(way.bytes for way in self.ways))
        self.close()

    def settle(self) -> None:
        if all(way.ended for way in self.ways):
            self.over = True
            self.close()

    def close(self) -> None:
        self.over = True
        self._left.close()
        if self._right is not None:
            self._right.close()
        self.net._links.pop(self.number, None)

    def __repr__(self) -> str:
        state = "over" if self.over else "connected" if self.connected else "connecting"
        under_way = sum(way.bytes for way in self.ways)
        return f"<Link {self.name} {state}, {under_way} bytes under way>"


class Partition:
    """Two groups of hosts that do not reach each other. Each partition has an end of its own, also
    if two of them have the same groups."""

    def __init__(self, one: frozenset[str], other: frozenset[str]) -> None:
        self.sides = one, other

    def parts(self, one: str, other: str) -> bool:
        here, there = self.sides
        return (one in here and other in there) or (one in there and other in here)

    def __str__(self) -> str:
        return " | ".join(",".join(sorted(side)) for side in self.sides)


class Door:
    """Where a host listens."""

    def __init__(self, host: Host, backlog: int) -> None:
        self.host = host
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self.sock.bind(b"")  # Linux chooses an abstract name
        self.sock.listen(backlog)
        self._name: Any = self.sock.getsockname()

    def accept_from(self) -> socket.socket:
        """A connection that the listener will accept; this is the network's end."""
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            ours.connect(self._name)
        except OSError:
            ours.close()
            raise
        return ours


def _full_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets. The first is full, so that it is not writable before the other one is
    read: a connect that is in progress."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(bytes(256))
    return near, far
