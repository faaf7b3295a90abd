"""The plug-in interface of transports that carry byte streams. And the Python half of message
engines.

A transport of this kind parses addresses and creates descriptors. Everything that happens on a
descriptor afterwards is native and common to all transports. `transports/tcp.py` and
`transports/ipc.py` are examples, and `transports/README.md` explains how to write one.

An entry point of the group `mqcore.transports` names an object with the attributes below. Derive
from `StreamTransport` to get the defaults. All contexts and threads share the object, so it keeps
no state.

Callers and threads:

    check        the caller of bind() and connect(); never blocks, does not use the network
    listen       the caller of bind(); may block for a name look-up, but not longer
    adopt        the caller of connect(); never blocks
    may_block    the control thread; never blocks
    resolve      a short-lived worker if may_block() is true, else the control thread
    connect      the control thread, once per target and attempt; must never block
    finish       the control thread, when the connecting descriptor became writable; never blocks
    tune         the control thread, for each accepted descriptor; never blocks
    local_name   the caller of bind(); never blocks
    local_names  the control thread, before each attempt; never blocks
    names, pid   the control thread or an application's; never blocks

`address` is the decoded text between "://" and "?". `options` maps every option's name to its
checked value (endpoint over socket over default). `socket.socket` objects are always non-blocking
and close-on-exec, and belong to the caller once they are returned. Before it raises, the transport
closes what it opened. Errors: AddressError (position within `address`) from check, listen and
resolve; BindError and its subclasses (with errno) from listen, OSError from resolve, connect and
tune. Any other exception is reported and treated as a failed attempt.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mqcore.base.native import socket
from mqcore.errors import BindError

if TYPE_CHECKING:
    from mqcore.spi.message_engine import NativeEngine

TRANSPORT_ABI = 1

KINDS = {
    "stream": "creates descriptors that carry a byte stream; this file",
    "engine": "carries whole messages itself: MessageTransport below, and message_engine.pxd",
    "stack": "an alias for filters over a transport (wss = ws+tls+tcp): Stack below",
    "inproc": "two pipes within a context; the core does it and only calls check()",
}

Options = Mapping[str, Any]


class Listening(NamedTuple):
    """The result of listen(). `sockets` are bound and listening. `address` is the actual one, with
    the chosen port, usable for connect(). `release`, if any, is called once, before the sockets are
    closed, and removes things other than descriptors (a socket file). It must not raise."""

    sockets: tuple[socket.socket, ...]
    address: str
    release: Callable[[], None] | None = None


class StreamTransport:
    abi: ClassVar[int] = TRANSPORT_ABI
    kind: ClassVar[str] = "stream"
    scheme: ClassVar[str] = ""  # must be the entry point's name
    doc: ClassVar[str] = ""  # one line for `mq info`
    #: capabilities beyond those of every stream, and missing ones with the reason: names of
    #: spi/capability.py, which select the tests of the conformance suite
    capabilities: ClassVar[frozenset[str]] = frozenset()
    gaps: ClassVar[Mapping[str, str]] = {}
    #: how SP frames messages on it: "" as over tcp, "-ipc" with a leading byte
    framing: ClassVar[str] = ""
    #: rows of its own options: (name, type, default, doc); types: options.PLUGIN_TYPES
    options: ClassVar[tuple[tuple[Any, ...], ...]] = ()

    # -- addresses ---------------------------------------------------------------------------------

    def check(self, address: str, role: str) -> None:
        """Check that the address is well formed for the role, "bind" or "connect". AddressError."""

    def may_block(self, address: str) -> bool:
        """Whether resolve() may wait for a name server and must leave the control thread."""
        return False

    def resolve(self, address: str, options: Options) -> list[Any]:
        """All targets that the address currently stands for, best first; each is passed to
        connect(). Called for every attempt. An empty list or OSError: the attempt has failed."""
        return [address]

    # -- descriptors -------------------------------------------------------------------------------

    def adopt(self, address: str, options: Options) -> socket.socket | None:
        """For an address of an existing connection that can be used only once: take it over, as if
        connect() had created it. There is then one attempt, without resolve() and connect().
        AddressError if it is not available. None: connect as usual. Also for a socket that needs no
        peer to be a connection: its errors (BindError) are those of the caller's connect()."""
        return None

    def listen(self, address: str, options: Options) -> Listening:
        """Bind and listen. When it returns, peers can connect."""
        raise NotImplementedError

    def connect(self, target: Any, options: Options) -> socket.socket:
        """Return a socket whose connect is in progress or done. OSError if it failed at once."""
        raise NotImplementedError

    def finish(self, sock: socket.socket) -> int:
        """The connecting socket is writable: return 0 if it is connected, else the errno."""
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def tune(self, sock: socket.socket, options: Options) -> None:
        """Set the options on an accepted socket. (connect() sets them itself.)"""

    # -- names -------------------------------------------------------------------------------------

    def local_name(self, sock: socket.socket, options: Options) -> str:
        """For `upgrade`: what a bound socket is bound to, as a name that no other socket of this
        machine's network namespace can have at the same time. At most 80 bytes, without a zero
        byte. "": it has none. A transport with such names calls beside() below between bind() and
        listen()."""
        return ""

    def local_names(self, target: Any, options: Options) -> list[str]:
        """For `upgrade`: the local_name() of every socket that would accept a connection to this
        target. Empty for a target on another machine."""
        return []

    def names(self, sock: socket.socket) -> tuple[str, str]:
        """(ours, the peer's) as URLs, for display and Peer.address. "" if unknown; must not
        raise."""
        return "", ""

    def pid(self, sock: socket.socket) -> int | None:
        """The peer's process id, if the kernel reports it."""
        return None


class MessageTransport(StreamTransport):
    """The Python half of a message engine: addresses and descriptors as above, and `open`.

    If `accepts` is true, listen() returns listening sockets, and open() gets each connection that
    is accepted or that connect() made. If not (datagrams), each socket of listen() and of connect()
    is itself the one connection, as soon as it exists.
    """

    kind: ClassVar[str] = "engine"
    accepts: ClassVar[bool] = True
    #: which patterns may "bind" and which may "connect"; empty: all, both
    patterns: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        """Negotiate with the peer before messages can flow. A generator on the control thread,
        limited by handshake_timeout. It yields "read" or "write" to wait until the socket is
        readable or writable, and returns the engine. Must not block. Raises Refused (filter.py)
        with a reason for a peer that does not fit, OSError if the connection broke. The host keeps
        the descriptor. On an exception, including GeneratorExit (canceled), the generator closes
        everything else that it created."""
        raise NotImplementedError


class Stack:
    """A scheme that is an alias: "wss" for "ws+tls+tcp". The address is passed on unchanged, and
    returned URLs have the short name."""

    abi = TRANSPORT_ABI
    kind = "stack"
    capabilities: frozenset[str] = frozenset()
    options: tuple[tuple[Any, ...], ...] = ()

    def __init__(self, scheme: str, below: str, doc: str) -> None:
        self.scheme = scheme
        self.below = below
        self.doc = doc

    def check(self, address: str, role: str) -> None:
        """The layers below check the address."""


def beside(sock: socket.socket, options: Options) -> None:
    """Open what `upgrade` opens beside a socket that is bound and does not listen yet: a peer that
    finds the one must find the other."""
    opener = options.get("listen.beside")
    if opener is not None:
        opener(sock)


def set_buffers(sock: socket.socket, options: Options) -> None:
    """Set send_buffer and recv_buffer. Call before listen() or connect(): TCP negotiates its window
    then."""
    for name, number in (("send_buffer", socket.SO_SNDBUF), ("recv_buffer", socket.SO_RCVBUF)):
        if options.get(name):
            sock.setsockopt(socket.SOL_SOCKET, number, options[name])


KEEPALIVE = (("keepalive_idle", socket.TCP_KEEPIDLE), ("keepalive_interval", socket.TCP_KEEPINTVL),
             ("keepalive_count", socket.TCP_KEEPCNT))


def set_keepalive(sock: socket.socket, options: Options) -> None:
    """Set keepalive and its three parameters on a TCP socket."""
    on = bool(options.get("keepalive"))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, on)
    for name, number in KEEPALIVE if on else ():
        if options.get(name):
            sock.setsockopt(socket.IPPROTO_TCP, number, options[name])


def set_tos(sock: socket.socket, options: Options) -> None:
    """Set tos on a socket over IPv4 or IPv6."""
    if options.get("tos"):
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, options["tos"])
        if sock.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options["tos"])


DEVICE_MAX = 16  # bytes of a network device's name including the zero byte (IFNAMSIZ)


def kernel_name(name: str, most: int) -> bytes | None:
    """A device's or an algorithm's name in the kernel's form, of fewer than `most` bytes. None: the
    kernel has nothing of this name. It would truncate a longer one."""
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return None if len(raw) >= most or b"\0" in raw else raw


def set_device(sock: socket.socket, options: Options) -> None:
    """Set bind_device. Call before bind() or connect(). BindError, which is an OSError: there is no
    such device, or this process may not choose one."""
    name = options.get("bind_device")
    if not name:
        return
    raw = kernel_name(name, DEVICE_MAX)
    try:
        if raw is None:
            raise OSError(errno.ENODEV, "")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, raw)
    except OSError as error:
        raise BindError.of(error.errno or errno.ENODEV, f"cannot use bind_device={name!r}",
                           "`ip link` lists the network devices" if error.errno == errno.ENODEV
                           else None) from None


def start_connect(sock: socket.socket, sockaddr: Any) -> None:
    """Start connect() without waiting. OSError if it failed at once."""
    try:
        sock.connect(sockaddr)
    except BlockingIOError as error:
        if error.errno != errno.EINPROGRESS:  # EAGAIN: a unix listener's backlog is full
            raise
