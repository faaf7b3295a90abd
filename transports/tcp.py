"""tcp://[source;]host:port over IPv4 and IPv6. mqcore/spi/inet.py describes host and port.

Binding to a name or interface binds all of its addresses, on one port. The returned URL has the
first of them, IPv4 first, because ZeroMQ peers use IPv4 unless configured otherwise, and the port.
Connecting tries all addresses in the system's order. A source ("tcp://eth0;10.0.0.7:5555",
"tcp://10.0.0.2:4000;10.0.0.7:5555") is bound before connecting.
"""

from __future__ import annotations

import contextlib
import errno
import os
from functools import partial
from typing import NamedTuple

from mqcore.base.native import socket
from mqcore.errors import AddressNotAvailable, BindError
from mqcore.spi.inet import (
    SockAddr,
    bind_all,
    both_names,
    host_port,
    is_ours,
    look_up,
    parse,
)
from mqcore.spi.transport import (
    Listening,
    Options,
    StreamTransport,
    beside,
    kernel_name,
    set_buffers,
    set_device,
    set_keepalive,
    set_tos,
    start_connect,
)

LOOPBACK: dict[int, str] = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
NAME_MAX = 16  # bytes of a congestion control's name including the zero byte (TCP_CA_NAME_MAX)
PACES = b"bbr"  # what the names of BBR's versions begin with
UNPACED = b"reno"  # every kernel has it, and every process may choose it
REFUSED = {
    errno.ENOENT: ("the kernel has no such algorithm", "available"),
    errno.EPERM: ("this process may not choose it", "allowed"),
}


class Target(NamedTuple):
    family: int
    sockaddr: SockAddr
    source: SockAddr | None


# -- descriptors -----------------------------------------------------------------------------------


def _new(family: int, options: Options) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        _tune(sock, options)
        set_device(sock, options)
    except OSError:
        sock.close()
        raise
    return sock


def _tune(sock: socket.socket, options: Options) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    set_buffers(sock, options)
    set_keepalive(sock, options)
    _set_congestion_control(sock, options)
    set_tos(sock, options)


def _set_congestion_control(sock: socket.socket, options: Options) -> None:
    """BindError, which is an OSError: the kernel refuses this algorithm."""
    name = options.get("congestion_control")
    if not name:
        return
    raw = kernel_name(name, NAME_MAX)
    try:
        if raw is None:
            raise OSError(errno.ENOENT, "")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, raw)
    except OSError as error:
        number = error.errno or errno.ENOENT
        why, which = REFUSED.get(number, (os.strerror(number), "allowed"))
        raise BindError(f"cannot use congestion_control={name!r}: {why}", errno=number,
                        hint=f"`sysctl net.ipv4.tcp_{which}_congestion_control` lists what can "
                             "be used") from None


def _settle(sock: socket.socket, peer: SockAddr | None, options: Options) -> None:
    """Set what depends on where the peer is. `peer`: None once the socket is connected.

    BBR sends by the clock, so that no queue forms on the way. Within one machine there is no such
    queue, but each pause is a timer and a wake-up, and what the clock delays is taken for loss.
    """
    if options.get("congestion_control"):
        return
    with contextlib.suppress(OSError):  # the peer has gone, or a sandbox forbids it
        used = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_MAX)
        if used.startswith(PACES) and is_ours(peer or sock.getpeername()):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)


def _bound(family: int, sockaddr: SockAddr, options: Options) -> socket.socket:
    sock = _new(family, options)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            both = sockaddr[0] == "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.bind(sockaddr)
        beside(sock, options)
        sock.listen(options.get("backlog", 1024))
    except OSError:
        sock.close()
        raise
    return sock


def _local(sockaddr: SockAddr) -> str:
    """An address and port as a name. A device by its number, which outlives its name."""
    host, port, *rest = sockaddr
    return f"tcp/{host.partition('%')[0]}%{rest[1] if rest else 0}:{port}"


class Tcp(StreamTransport):
    scheme = "tcp"
    doc = "TCP over IPv4 and IPv6"
    capabilities = frozenset({"wildcard", "names", "network", "unacked"})
    gaps = {"pid": "the peer may be on another machine"}

    def check(self, address: str, role: str) -> None:
        parse(address, role)

    def may_block(self, address: str) -> bool:
        source, place = parse(address, "connect")
        return place.may_block or source is not None and source.may_block

    def resolve(self, address: str, options: Options) -> list[Target]:
        source, place = parse(address, "connect")
        found = look_up(place)
        if source is None:
            return [Target(family, sockaddr, None) for family, sockaddr in found]
        sources: dict[int, SockAddr] = {}
        for family, sockaddr in look_up(source):
            sources.setdefault(family, sockaddr)
        if source.host == "*":
            sources[socket.AF_INET6] = ("::", source.port)
        targets = [Target(f, sockaddr, sources[f]) for f, sockaddr in found if f in sources]
        if not targets:
            raise OSError(errno.EAFNOSUPPORT, "source and destination have no address family "
                                              "in common")
        return targets

    def listen(self, address: str, options: Options) -> Listening:
        _, place = parse(address, "bind")
        where = f"cannot listen on tcp://{address}"
        try:
            found = look_up(place, socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise AddressNotAvailable(f"{where}: no such host or interface ({error.strerror})",
                                      errno=errno.EADDRNOTAVAIL) from None
        except OSError as error:
            raise BindError.of(error.errno or errno.EADDRNOTAVAIL, where) from None
        try:
            sockets = bind_all(found, partial(_bound, options=options))
        except BindError:  # raised by bind_device
            raise
        except OSError as failure:
            raise BindError.of(failure.errno or errno.EADDRNOTAVAIL, where) from failure
        return Listening(tuple(sockets), host_port(sockets[0].getsockname()))

    def connect(self, target: Target, options: Options) -> socket.socket:
        sock = _new(target.family, options)
        try:
            if target.source is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(target.source)
            _settle(sock, target.sockaddr, options)
            start_connect(sock, target.sockaddr)
        except OSError:
            sock.close()
            raise
        return sock

    def finish(self, sock: socket.socket) -> int:
        failed = super().finish(sock)
        if failed:
            return failed
        try:
            # The kernel may give the connecting side the very port that it connects to, if no
            # process listens there. TCP's simultaneous open then connects the socket to itself.
            own = sock.getsockname() == sock.getpeername()
        except OSError as error:
            return error.errno or errno.ENOTCONN
        return errno.ECONNREFUSED if own else 0

    def tune(self, sock: socket.socket, options: Options) -> None:
        _tune(sock, options)
        _settle(sock, None, options)

    def local_name(self, sock: socket.socket, options: Options) -> str:
        return "" if options.get("bind_device") else _local(sock.getsockname())

    def local_names(self, target: Target, options: Options) -> list[str]:
        """A connection to an address is accepted by a socket bound to it, to all of IPv4, or to all
        of both families. No two of these can listen on one port."""
        if target.source is not None or options.get("bind_device") or not is_ours(target.sockaddr):
            return []
        everywhere = ("0.0.0.0", "::") if target.family == socket.AF_INET else ("::",)
        host, port = target.sockaddr[:2]
        if host in everywhere:      # the kernel takes the loopback address then
            return [_local((name, port)) for name in (LOOPBACK[target.family], *everywhere)]
        return [_local(target.sockaddr), *(_local((name, port)) for name in everywhere)]

    def names(self, sock: socket.socket) -> tuple[str, str]:
        return both_names("tcp", sock)


transport = Tcp()
