"""The candidates, each behind the same few calls: open a socket, send, receive, ask.

A candidate's socket has `send` and `recv` of its own wherever the library calls them so: nothing
stands between the loop that is measured and the library. Default options, whatever they are.
`raw` is what the kernel costs: blocking sockets between processes (no framing: both ends know the
size), `queue.SimpleQueue` between two threads. `pipe` is `multiprocessing`'s connection.
"""

from __future__ import annotations

import importlib
import multiprocessing.connection
import os
import queue
import random
import socket
import sys

CHUNK = 256 << 10  # raw, one way: bytes a system call


def free_port() -> int:
    """For a library that cannot say which port it was given."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Mqcore:
    """Kinds are `req`, `rep`, `push`, `pull`; `bind` returns a socket and its real URL."""

    module = "mqcore"
    calls = ("plain", "many", "batch", "asyncio", "uvloop")
    transports = ("tcp", "ipc", "inproc")

    def __init__(self, size: int = 0):
        import mqcore

        self.mq = mqcore
        self.size = size

    def bind(self, kind: str, url: str):
        s = self.mq.socket(kind, bind=url)
        return s, s.endpoints[0].url

    def connect(self, kind: str, url: str):
        s = self.mq.socket(kind, connect=url)
        s.wait_peers()
        return s

    def trip(self, s):
        return s.request

    def close(self, s) -> None:
        s.close(linger=0)


class Pyzmq:
    module = "zmq"
    calls = ("plain", "asyncio", "uvloop")
    transports = ("tcp", "ipc", "inproc")

    def __init__(self, size: int = 0):
        self.zmq = importlib.import_module(self.module)
        self.context = self.zmq.Context()

    def socket(self, kind: str):
        s = self.context.socket(getattr(self.zmq, kind.upper()))
        s.setsockopt(self.zmq.LINGER, 0)
        return s

    def bind(self, kind: str, url: str):
        s = self.socket(kind)
        s.bind(url)
        real = s.getsockopt(self.zmq.LAST_ENDPOINT)
        return s, real.rstrip(b"\0").decode() if isinstance(real, bytes) else real

    def connect(self, kind: str, url: str):
        s = self.socket(kind)
        s.connect(url)
        return s

    def trip(self, s):
        send, recv = s.send, s.recv

        def trip(body):
            send(body)
            return recv()

        return trip

    def close(self, s) -> None:
        s.close()


class Pyomq(Pyzmq):
    module = "pyomq"


class Pynng:
    module = "pynng"
    calls = ("plain", "asyncio")
    transports = ("tcp", "ipc", "inproc")
    trip = Pyzmq.trip

    def __init__(self, size: int = 0):
        import pynng

        self.nng = pynng

    def bind(self, kind: str, url: str):
        if url.endswith(":0"):
            url = f"{url[:-1]}{free_port()}"
        return getattr(self.nng, f"{kind.capitalize()}0")(listen=url), url

    def connect(self, kind: str, url: str):
        s = getattr(self.nng, f"{kind.capitalize()}0")()
        s.dial(url, block=True)
        return s

    def close(self, s) -> None:
        s.close()


class Stream:
    """A connected stream socket that carries messages of one size."""

    def __init__(self, s: socket.socket, size: int):
        if s.family != socket.AF_UNIX:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


class Raw:
    module = "socket"
    calls = ("plain", "asyncio", "uvloop")
    transports = ("tcp", "ipc", "inproc")
    trip = Pyzmq.trip

    def __init__(self, size: int = 0):
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
        return listener, f"tcp://{host}:{listener.getsockname()[1]}"

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
        return Waiting(lambda: Stream(listener.accept()[0], self.size)), real

    def connect(self, kind: str, url: str):
        if url.startswith("inproc"):
            return Queues(*self.ways[::-1])
        return Stream(self.dial(url), self.size)

    def close(self, s) -> None:
        pass

    def read_all(self, s: Stream, left: int) -> None:
        """One way: the bytes the kernel moves, whatever the size of a message."""
        buffer = bytearray(CHUNK)
        while left > 0:
            n = s.s.recv_into(buffer, min(left, CHUNK))
            if not n:
                sys.exit("the other end left")
            left -= n

    def write_all(self, s: Stream, left: int) -> None:
        chunk = memoryview(random.Random(1).randbytes(CHUNK))
        while left > 0:
            s.send(chunk[:left])
            left -= CHUNK


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
    trip = Pyzmq.trip

    def __init__(self, size: int = 0):
        pass

    def bind(self, kind: str, url: str):
        listener = multiprocessing.connection.Listener(url.partition("://")[2], "AF_UNIX")
        return Waiting(lambda: Connection(listener.accept())), url

    def connect(self, kind: str, url: str):
        return Connection(multiprocessing.connection.Client(url.partition("://")[2], "AF_UNIX"))

    def close(self, s) -> None:
        pass


LIBRARIES = {
    "mqcore": Mqcore,
    "pyzmq": Pyzmq,
    "pyomq": Pyomq,
    "pynng": Pynng,
    "pipe": Pipe,
    "raw": Raw,
}
NOT_PEERS = ("mqcore", "raw")  # the rest is what we are compared with


def die_with_parent() -> None:
    """Linux: an end is killed with the runner, however that ends."""
    import ctypes
    import signal

    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the runner is gone")
