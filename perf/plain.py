"""The standard library as a candidate: `raw`, what the kernel costs, and `pipe`. Both ends of `raw`
know the size, so there is no framing."""

from __future__ import annotations

import functools
import itertools
import multiprocessing.connection
import queue
import socket
import sys

import secured
from timing import bodies

CHUNK = 256 << 10  # raw, one way: bytes a system call
RECORD = 16 << 10  # the same over TLS: bytes of its largest record


@functools.cache
def pieces(size: int, chunk: int) -> list[memoryview]:
    """The bodies that the libraries send, one after the other, cut into pieces of `chunk` bytes.
    One piece sent again and again would stay in the core's own cache, where no program's messages
    are."""
    text = b"".join(bodies(size))
    text = memoryview(text * -(-chunk // max(len(text), 1)))
    return [text[at : at + chunk] for at in range(0, len(text) - chunk + 1, chunk)]


def is_secured(url: str) -> bool:
    return url.startswith(("tls", "wss"))


def trip(self, s):
    """A round trip by the two calls."""
    send, recv = s.send, s.recv

    def trip(body):
        send(body)
        return recv()

    return trip


class Stream:
    """A connected stream socket that carries messages of one size."""

    def __init__(self, s: socket.socket, size: int):
        if s.family != socket.AF_UNIX:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # BBR would pace it
        self.s = s
        self.size = size
        self.buffer = memoryview(bytearray(size))
        self.send = s.sendall

    def recv(self) -> memoryview:
        """Into the same memory each time, in one call: what is measured is the kernel."""
        n = self.s.recv_into(self.buffer, self.size, socket.MSG_WAITALL)
        while n < self.size:  # a signal came in between
            more = self.s.recv_into(self.buffer[n:], self.size - n, socket.MSG_WAITALL)
            if not more:
                sys.exit("the other end left")
            n += more
        return self.buffer


class Secured(Stream):
    """The same through `ssl`, which gives at most a record of 16 KiB a call."""

    def recv(self) -> memoryview:
        n = 0
        while n < self.size:
            more = self.s.recv_into(self.buffer[n:])
            if not more:
                sys.exit("the other end left")
            n += more
        return self.buffer


class Raw:
    module = "socket"
    calls = ("plain", "asyncio", "uvloop")
    transports = ("tcp", "ipc", "inproc", "tls", "ws", "wss")  # ws: as tcp, wss: as tls
    variants = ()
    holds = 0
    trip = trip

    def __init__(self, size: int = 0, variant: str = ""):
        self.size = size
        self.ways = queue.SimpleQueue(), queue.SimpleQueue()

    def listen(self, url: str) -> tuple[socket.socket, str]:
        scheme, _, place = url.partition("://")
        if scheme == "ipc":
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(place)
            listener.listen()
            return listener, url
        host, _, port = place.rpartition(":")
        listener = socket.create_server((host, int(port)))
        return listener, f"{scheme}://{host}:{listener.getsockname()[1]}"

    def dial(self, url: str) -> socket.socket:
        scheme, _, place = url.partition("://")
        if scheme == "ipc":
            s = socket.socket(socket.AF_UNIX)
            s.connect(place)
            return s
        host, _, port = place.rpartition(":")
        return socket.create_connection((host, int(port)))

    def bind(self, kind: str, url: str):
        if url.startswith("inproc"):
            return Queues(*self.ways), url
        listener, real = self.listen(url)
        if is_secured(url):
            context = secured.serving()
            return Waiting(lambda: Secured(context.wrap_socket(listener.accept()[0], True),
                                           self.size)), real  # fmt: skip
        return Waiting(lambda: Stream(listener.accept()[0], self.size)), real

    def connect(self, kind: str, url: str):
        if url.startswith("inproc"):
            return Queues(*self.ways[::-1])
        if is_secured(url):
            return Secured(secured.asking().wrap_socket(self.dial(url)), self.size)
        return Stream(self.dial(url), self.size)

    def close(self, s) -> None:
        pass

    def read_all(self, s: Stream, left: int) -> None:
        """One way: the bytes the kernel moves, whatever the size of a message. Over TLS: a record
        of 16 KiB or a message at a time, since `ssl` makes no more of larger pieces."""
        chunk = self.chunk(s)
        buffer = bytearray(chunk)
        while left > 0:
            n = s.s.recv_into(buffer, min(left, chunk))
            if not n:
                sys.exit("the other end left")
            left -= n

    def write_all(self, s: Stream, left: int) -> None:
        some = itertools.cycle(pieces(self.size, self.chunk(s)))
        while left > 0:
            piece = next(some)
            s.send(piece[:left])
            left -= len(piece)

    def chunk(self, s: Stream) -> int:
        return max(self.size, RECORD) if isinstance(s, Secured) else CHUNK


class Waiting:
    """A listener that is a connection from its first use on."""

    def __init__(self, accept):
        self._accept = accept

    def __getattr__(self, name):
        inside = self.__dict__.get("_inside") or self.__dict__.setdefault("_inside", self._accept())
        value = getattr(inside, name)
        self.__dict__[name] = value
        return value


class Queues:
    """Two threads of one process: the standard library's fastest queue each way."""

    def __init__(self, out: queue.SimpleQueue, back: queue.SimpleQueue):
        self.send, self.recv = out.put, back.get


class Connection:
    def __init__(self, connection):
        self.send, self.recv = connection.send_bytes, connection.recv_bytes
        self.connection = connection


class Pipe:
    """`multiprocessing.Pipe` is two such connections over a pair of unix sockets."""

    module = "multiprocessing"
    calls = ("plain",)
    transports = ("ipc",)
    variants = ()
    holds = 0
    trip = trip

    def __init__(self, size: int = 0, variant: str = ""):
        pass

    def bind(self, kind: str, url: str):
        listener = multiprocessing.connection.Listener(url.partition("://")[2], "AF_UNIX")
        return Waiting(lambda: Connection(listener.accept())), url

    def connect(self, kind: str, url: str):
        return Connection(multiprocessing.connection.Client(url.partition("://")[2], "AF_UNIX"))

    def close(self, s) -> None:
        pass
