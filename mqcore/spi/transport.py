"""The first door for a transport: a stream by descriptor. And the Python half of the third.

A transport of this kind knows addresses and makes descriptors; everything that happens on a
descriptor afterwards is native and the same for all. `transports/tcp.py` and `transports/ipc.py`
are the models, `transports/README.md` walks through one.

An entry point of the group `mqcore.transports` names an object with the attributes below; deriving
from `StreamTransport` is the easy way, and gives the defaults. The object is shared by all
contexts and threads: it keeps no state of its own.

Who calls what, on which thread, may it block:

    check      the caller of bind() and connect(); never blocks, touches no network
    listen     the caller of bind(); may block for a name look-up, no longer
    adopt      the caller of connect(); never blocks
    may_block  the control thread; never blocks
    resolve    a short-lived worker if may_block() said so, else the control thread
    connect    the control thread, once per target and attempt; must never block
    finish     the control thread, when the connecting descriptor became writable; never blocks
    tune       the control thread, for each accepted descriptor; never blocks
    names, pid the control thread or an application's; never blocks

`address` is the decoded text between "://" and "?"; `options` maps every option's name to its clean
value (endpoint over socket over default). `socket.socket` objects are always non-blocking and
close-on-exec, and belong to the caller once they are returned; on an exception the transport has
closed what it opened. Errors: AddressError (position within `address`) from check, listen and
resolve; BindError and its kinds (errno kept) from listen; OSError from resolve, connect and tune.
No other exception is expected; one is reported and treated as a failed attempt.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mqcore.base.native import socket

if TYPE_CHECKING:
    from mqcore.spi.message_engine import NativeEngine

TRANSPORT_ABI = 1

KINDS = {
    "stream": "makes descriptors that carry a byte stream; this file",
    "engine": "carries whole messages itself: MessageTransport below, and message_engine.pxd",
    "stack": "a name for filters over a transport (wss = ws+tls+tcp): Stack below",
    "inproc": "two pipes within a context; the core does it, nothing to call but check()",
}

Options = Mapping[str, Any]


class Listening(NamedTuple):
    """What listen() gives. `sockets` are bound and listening. `address` is the real one: with the
    port that was chosen, fit for connect(). `release`, if any, is called once, before the sockets
    are closed, and takes away what is not a descriptor (a socket file); it may not raise."""

    sockets: tuple[socket.socket, ...]
    address: str
    release: Callable[[], None] | None = None


class StreamTransport:
    abi: ClassVar[int] = TRANSPORT_ABI
    kind: ClassVar[str] = "stream"
    scheme: ClassVar[str] = ""  # must be the entry point's name
    doc: ClassVar[str] = ""  # one line for `mq info`
    #: what it can do beyond what every stream can, and what it cannot though others can, with the
    #: reason: names of spi/capability.py, where the conformance suite takes its tests from
    capabilities: ClassVar[frozenset[str]] = frozenset()
    gaps: ClassVar[Mapping[str, str]] = {}
    #: how SP frames messages on it: "" as over tcp, "-ipc" with a byte in front
    framing: ClassVar[str] = ""
    #: rows of its own options: (name, type, default, doc); types: options.PLUGIN_TYPES
    options: ClassVar[tuple[tuple[str, str, Any, str], ...]] = ()

    # -- addresses ---------------------------------------------------------------------------------

    def check(self, address: str, role: str) -> None:
        """Is the address well formed for this role, "bind" or "connect"? AddressError if not."""

    def may_block(self, address: str) -> bool:
        """Must resolve() leave the control thread, because it may wait for a name server?"""
        return False

    def resolve(self, address: str, options: Options) -> list[Any]:
        """All targets that the address stands for now, best first; each is given to connect().
        Called again for every attempt. An empty list or OSError: the attempt failed."""
        return [address]

    # -- descriptors -------------------------------------------------------------------------------

    def adopt(self, address: str, options: Options) -> socket.socket | None:
        """For an address that names a connection which is there already, and can be used only once:
        take it, as connect() would make it. There is then one attempt, with it, and resolve() and
        connect() are not called. AddressError if it is not to be had. None: connect as usual."""
        return None

    def listen(self, address: str, options: Options) -> Listening:
        """Bind and listen. When it returns, peers can connect."""
        raise NotImplementedError

    def connect(self, target: Any, options: Options) -> socket.socket:
        """A socket whose connect is in progress or done; OSError if it failed at once."""
        raise NotImplementedError

    def finish(self, sock: socket.socket) -> int:
        """The connecting socket is writable: 0 if it is connected, else the errno."""
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def tune(self, sock: socket.socket, options: Options) -> None:
        """Set the options on an accepted socket (connect() sets them on its own)."""

    # -- names -------------------------------------------------------------------------------------

    def names(self, sock: socket.socket) -> tuple[str, str]:
        """(ours, the peer's) as URLs, for people and for Peer.address. "" if unknown; no raise."""
        return "", ""

    def pid(self, sock: socket.socket) -> int | None:
        """The peer's process, where the kernel vouches for it."""
        return None


class MessageTransport(StreamTransport):
    """The Python half of the third door: addresses and descriptors as above, and `open`.

    If `accepts` is true, listen() gives listening sockets, and each connection that comes in, or
    that connect() made, is given to open(). If not (datagrams), each socket of listen() and of
    connect() is itself the one connection, as soon as it is made.
    """

    kind: ClassVar[str] = "engine"
    accepts: ClassVar[bool] = True
    #: which patterns may "bind" and which may "connect"; empty: all, both
    patterns: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        """Comes to terms with the peer before messages can flow. On the control thread, under
        handshake_timeout: a generator that yields "read" or "write" when it must wait for the
        socket to be readable or writable, and returns the engine. Never blocks. Raises Refused
        (filter.py) with a reason for a peer that does not fit, OSError if the connection broke. The
        descriptor stays the host's; what else it made, it closes on an exception, GeneratorExit
        (we gave up) among them."""
        raise NotImplementedError


class Stack:
    """A scheme that stands for others: "wss" for "ws+tls+tcp". The address is passed on as it is,
    and URLs that come back have the short name."""

    abi = TRANSPORT_ABI
    kind = "stack"
    capabilities: frozenset[str] = frozenset()
    options: tuple[tuple[str, str, Any, str], ...] = ()

    def __init__(self, scheme: str, below: str, doc: str) -> None:
        self.scheme = scheme
        self.below = below
        self.doc = doc

    def check(self, address: str, role: str) -> None:
        """Whatever is below checks it."""


def set_buffers(sock: socket.socket, options: Options) -> None:
    """send_buffer and recv_buffer. Before listen() or connect(), or TCP's window cannot follow."""
    for name, number in (("send_buffer", socket.SO_SNDBUF), ("recv_buffer", socket.SO_RCVBUF)):
        if options.get(name):
            sock.setsockopt(socket.SOL_SOCKET, number, options[name])


KEEPALIVE = (("keepalive_idle", socket.TCP_KEEPIDLE), ("keepalive_interval", socket.TCP_KEEPINTVL),
             ("keepalive_count", socket.TCP_KEEPCNT))


def set_keepalive(sock: socket.socket, options: Options) -> None:
    """keepalive and its three times, of a TCP socket."""
    on = bool(options.get("keepalive"))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, on)
    for name, number in KEEPALIVE if on else ():
        if options.get(name):
            sock.setsockopt(socket.IPPROTO_TCP, number, options[name])


def set_device(sock: socket.socket, options: Options) -> None:
    """bind_device. Before bind() or connect(). OSError: there is no such device, or this process
    may not choose one."""
    if options.get("bind_device"):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE,
                        options["bind_device"].encode("utf-8", "surrogateescape"))


def start_connect(sock: socket.socket, sockaddr: Any) -> None:
    """connect() that does not wait; OSError if it failed at once."""
    try:
        sock.connect(sockaddr)
    except BlockingIOError as error:
        if error.errno != errno.EINPROGRESS:  # EAGAIN: a unix listener's backlog is full
            raise
