"""The candidates, each behind the same few calls: open a socket, send, receive, ask.

A candidate's socket has its own `send` and `recv` if the library has calls of these names, so
nothing stands between the measured loop and the library. Options are the defaults, except for the
variants: `tuned`, the library's own manual's advice for speed; `roomy`, queues that hold everything
a row puts into them; `sp`, nanomsg's protocol instead of ZMTP.

`raw` is the cost of the kernel: blocking sockets between processes (no framing: both ends know the
size), `queue.SimpleQueue` between two threads. `pipe` is `multiprocessing`'s connection.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import socket
import sys
import tempfile
import time

import secured
from plain import Pipe, Raw, is_secured, trip

TUNED_MARK, TUNED_BYTES, TUNED_BUFFER = 1_000_000, 256 << 20, 1 << 20
NO_COPY = 64 << 10  # tuned: from this size on by reference, where a library can
NO_END = 1 << 30  # messages that fit into a queue without a limit


def tuned_mark(size: int) -> int:
    """Messages: many, but no more bytes than a machine has for it."""
    return max(1000, min(TUNED_MARK, TUNED_BYTES // max(size, 1)))


def free_port() -> int:
    """For a library that cannot say which port it was given."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Calls:
    """A socket by the calls that its library has for the purpose."""

    def __init__(self, inside, send, recv):
        self.inside, self.send, self.recv = inside, send, recv

    def request(self, body):
        self.send(body)
        return self.recv()

    def close(self, *args, **named) -> None:
        self.inside.close(*args, **named)


class Recorded:
    """A PULL socket that a device reads, into a journal in a temporary folder."""

    def __init__(self, mq, socket):
        from mqcore import journal

        self.place = tempfile.TemporaryDirectory(prefix="mqperf")
        self.socket, self.wanted = socket, 0
        self.log = journal.open(self.place.name, "a", topic="perf", fsync="interval")
        self.device = mq.device(socket, self.log)

    def take(self, count: int) -> None:
        """Until so many more messages are durable."""
        self.wanted += count
        while self.log.next < self.wanted:
            if not self.device.running:
                self.device.wait_stopped()  # raises what ended it
            time.sleep(0.0005)
        self.log.commit()

    def close(self, linger: float) -> None:
        self.device.stop()
        self.log.close()
        self.socket.close(linger=linger)
        self.place.cleanup()


class Mqcore:
    """Kinds are `req`, `rep`, `push`, `pull`; `bind` returns a socket and its real URL."""

    module = "mqcore"
    calls = ("plain", "parts", "many", "batch", "journal", "asyncio", "uvloop", "trio")
    transports = ("tcp", "ipc", "shm", "inproc", "tls", "ws", "wss")
    variants = ("tuned", "roomy", "sp", "marks", "upgrade")
    holds = NO_END  # messages, when roomy

    def __init__(self, size: int = 0, variant: str = ""):
        import mqcore

        self.mq = mqcore
        self.size = size
        self.by_view = variant == "tuned" and size >= NO_COPY
        self.context = mqcore.Context(**self.defaults(variant)) if variant else None

    def defaults(self, variant: str) -> dict:
        if variant == "sp":
            return {"wire": "sp"}
        if variant == "upgrade":
            return {"upgrade": True}
        if variant == "marks":  # libzmq's
            return {"send_hwm": 1000, "recv_hwm": 1000}
        if variant == "roomy":
            names = ("send_hwm", "recv_hwm", "send_hwm_bytes", "recv_hwm_bytes")
            return dict.fromkeys(names)
        mark = tuned_mark(self.size)
        return {"send_hwm": mark, "recv_hwm": mark,
                "send_hwm_bytes": TUNED_BYTES, "recv_hwm_bytes": TUNED_BYTES,
                "send_buffer": TUNED_BUFFER, "recv_buffer": TUNED_BUFFER}  # fmt: skip

    def bind(self, kind: str, url: str):
        s = self.mq.socket(kind, context=self.context)
        s.bind(url, **({"tls_context": secured.serving()} if is_secured(url) else {}))
        real = s.endpoints[0].url
        return (Calls(s, s.send, s.recv_msg) if self.by_view and kind == "pull" else s), real

    def connect(self, kind: str, url: str):
        s = self.mq.socket(kind, context=self.context)
        s.connect(url, **({"tls_context": secured.asking()} if is_secured(url) else {}))
        s.wait_peers()
        return s

    def subscribed(self, url: str):
        s = self.mq.Sub(connect=url, topics=[b""], context=self.context)
        s.wait_peers()
        return s

    def poller(self, sockets: list):
        poller = getattr(self.mq, "Poller", None)
        if poller is None:  # builds before there was one
            return functools.partial(self.mq.poll, sockets)
        poller = poller()
        for s in sockets:
            poller.register(s)
        return poller.poll

    def recorded(self, s) -> Recorded:
        return Recorded(self.mq, s)

    def parts(self, s) -> Calls:
        return Calls(s, s.send_parts, s.recv_parts)

    def trip(self, s):
        return s.request if hasattr(s, "request") else Pyzmq.trip(self, s)

    def close(self, s) -> None:
        s.close(linger=0)


class Pyzmq:
    module = "zmq"
    calls = ("plain", "parts", "asyncio", "uvloop")
    transports = ("tcp", "ipc", "inproc")
    variants = ("tuned", "roomy")
    holds = NO_END

    def __init__(self, size: int = 0, variant: str = ""):
        self.zmq = importlib.import_module(self.module)
        self.context = self.zmq.Context()
        self.size, self.variant = size, variant

    def socket(self, kind: str):
        zmq = self.zmq
        s = self.context.socket(getattr(zmq, kind.upper()))
        s.setsockopt(zmq.LINGER, 0)
        if self.variant:
            mark = 0 if self.variant == "roomy" else tuned_mark(self.size)
            s.setsockopt(zmq.SNDHWM, mark)
            s.setsockopt(zmq.RCVHWM, mark)
        if self.variant == "tuned":
            s.setsockopt(zmq.SNDBUF, TUNED_BUFFER)
            s.setsockopt(zmq.RCVBUF, TUNED_BUFFER)
        return s

    def shown(self, s):
        """The socket, or, tuned and large, the same by reference."""
        if self.variant != "tuned" or self.size < NO_COPY:
            return s
        return Calls(
            s, functools.partial(s.send, copy=False), functools.partial(s.recv, copy=False)
        )

    def bind(self, kind: str, url: str):
        s = self.socket(kind)
        s.bind(url)
        real = s.getsockopt(self.zmq.LAST_ENDPOINT)
        return self.shown(s), real.rstrip(b"\0").decode() if isinstance(real, bytes) else real

    def connect(self, kind: str, url: str):
        s = self.socket(kind)
        s.connect(url)
        return self.shown(s)

    def subscribed(self, url: str):
        s = self.connect("sub", url)
        s.setsockopt(self.zmq.SUBSCRIBE, b"")
        return s

    def poller(self, sockets: list):
        poller = self.zmq.Poller()
        for s in sockets:
            poller.register(s, self.zmq.POLLIN)
        return poller.poll

    def parts(self, s) -> Calls:
        return Calls(s, s.send_multipart, s.recv_multipart)

    trip = trip

    def close(self, s) -> None:
        s.close()


class Alias(Pyzmq):
    """pyzmq's interface over mqcore (zmq_alias.py)."""

    module = "mqcore.zmq"


class Pyomq(Pyzmq):
    """Its own Poller looks every 10 ms. Its blocking receive sleeps on now and then although
    messages wait, so the rows of offered loads leave it out (0.21.0)."""

    module = "pyomq"


class Pynng:
    module = "pynng"
    calls = ("plain", "asyncio")
    transports = ("tcp", "ipc", "inproc")
    variants = ("tuned", "roomy")
    holds = 8000  # its buffers take 8192 at most
    trip = Pyzmq.trip

    def __init__(self, size: int = 0, variant: str = ""):
        import pynng

        self.nng = pynng
        room = min(8192, tuned_mark(size))
        self.options = {"send_buffer_size": room, "recv_buffer_size": room} if variant else {}

    def bind(self, kind: str, url: str):
        if url.endswith(":0"):
            url = f"{url[:-1]}{free_port()}"
        return getattr(self.nng, f"{kind.capitalize()}0")(listen=url, **self.options), url

    def connect(self, kind: str, url: str):
        s = getattr(self.nng, f"{kind.capitalize()}0")(**self.options)
        s.dial(url, block=True)
        return s

    def close(self, s) -> None:
        s.close()


class Zenoh:
    """Key expressions instead of sockets. One way it is a publisher that blocks when there is no
    room (by default it drops, and a row counts what arrives), a round trip is a query. Two peers,
    linked by the one address given to them, that look for nobody else. Where rows say tcp, the
    bodies go through tcp: by default larger ones would go through shared memory. Where rows say
    shm they do, and the link is tcp."""

    module = "zenoh"
    calls = ("plain",)
    transports = ("tcp", "shm")
    variants = ("tuned", "roomy")
    holds = NO_END
    key = "perf"

    def __init__(self, size: int = 0, variant: str = ""):
        import zenoh

        self.zenoh, self.variant = zenoh, variant
        self.room = {"": None, "tuned": tuned_mark(size), "roomy": 2_000_000}[variant]

    def session(self, **ends: str):
        settings = {
            "mode": "peer",
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "listen/endpoints": [],
            "transport/shared_memory/enabled": any(url.startswith("shm") for url in ends.values()),
            **{f"{role}/endpoints": [f"tcp/{url.partition('://')[2]}"]
               for role, url in ends.items()},
        }
        if self.variant == "tuned":
            settings["transport/unicast/qos/enabled"] = False
            settings["transport/link/tx/queue/size/data"] = 16
        config = self.zenoh.Config()
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
        return self.zenoh.open(config)

    def bind(self, kind: str, url: str):
        if url.startswith("shm:"):
            url = f"shm://127.0.0.1:{free_port()}"
        elif url.endswith(":0"):
            url = f"{url[:-1]}{free_port()}"
        s = self.session(listen=url)
        if kind == "rep":
            return Answers(s, s.declare_queryable(self.key)), url
        handler = self.zenoh.handlers.FifoChannel(self.room) if self.room else None
        recv = s.declare_subscriber(self.key, handler).recv
        return Calls(s, None, lambda: recv().payload.to_bytes()), url

    def connect(self, kind: str, url: str):
        s = self.session(connect=url)
        if kind == "req":
            far = s.declare_querier(self.key, express=self.variant == "tuned")
        else:
            block = self.zenoh.CongestionControl.BLOCK
            far = s.declare_publisher(self.key, congestion_control=block)
        while not far.matching_status.matching:
            time.sleep(0.001)
        return Calls(s, far.put if kind == "push" else far.get, None)

    def trip(self, s):
        get = s.send

        def trip(body):
            return get(payload=body).recv().ok.payload.to_bytes()

        return trip

    def close(self, s) -> None:
        s.close()


class Answers:
    """A queryable, to be used as receive and send in turn."""

    def __init__(self, session, queryable):
        self.close, self.queryable, self.query = session.close, queryable, None

    def recv(self) -> bytes:
        self.query = self.queryable.recv()
        return self.query.payload.to_bytes()

    def send(self, body: bytes) -> None:
        with self.query as query:
            query.reply(Zenoh.key, body)


LIBRARIES = {
    "mqcore": Mqcore,
    "alias": Alias,
    "pyzmq": Pyzmq,
    "pyomq": Pyomq,
    "pynng": Pynng,
    "zenoh": Zenoh,
    "pipe": Pipe,
    "raw": Raw,
}
NOT_PEERS = ("mqcore", "alias", "raw")  # the rest is what we are compared with
USUAL = tuple(name for name in LIBRARIES if name != "alias")  # where none is named


def die_with_parent() -> None:
    """Linux: an end is killed with the runner, however that ends."""
    import ctypes
    import signal

    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the runner is gone")
