"""tcp://[source;]host:port over IPv4 and IPv6.

host: an IPv4 address, an IPv6 address in brackets with an optional zone ([fe80::1%eth0]), a name,
or the name of a network interface of this machine (its first address, IPv4 before IPv6). To bind,
also `*`: all IPv4 addresses; `[::]` is all of both families. port: 0 to 65535; 0 or `*` binds a
free one, and the URL that comes back has it. A source ("tcp://eth0;10.0.0.7:5555",
"tcp://10.0.0.2:4000;10.0.0.7:5555") is bound before connecting; its port may be left out.

Binding to a name takes the first of its addresses that works, IPv4 first, because ZeroMQ peers
look for IPv4 unless told otherwise. Connecting tries them all, in the system's order.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import re
import socket
import struct
from typing import NamedTuple

from mqcore.errors import AddressError, AddressNotAvailable, BindError
from mqcore.spi.transport import Listening, Options, StreamTransport, set_buffers, start_connect

PORT = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
NAME = re.compile(r"[\w]([\w.-]*[\w.])?")
SIOCGIFADDR = 0x8915  # linux/sockios.h: an interface's first IPv4 address


class Place(NamedTuple):
    host: str  # without brackets; "*" for all
    port: int
    literal: bool  # an IP address, nothing to look up


class Target(NamedTuple):
    family: int
    sockaddr: tuple
    source: tuple | None


# -- text ------------------------------------------------------------------------------------------


def parse(address: str, role: str) -> tuple[Place | None, Place]:
    """(source, place), or AddressError."""
    head, semicolon, tail = address.partition(";")
    if not semicolon:
        return None, _place(address, 0, role)
    if role == "bind":
        raise AddressError("a source address makes sense only for connect()", position=len(head))
    return _place(head, 0, "source"), _place(tail, len(head) + 1, role)


def _place(text: str, at: int, role: str) -> Place:
    """One host:port. `at` is where it starts in the address."""
    bracketed = text.startswith("[")
    if bracketed:
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise AddressError("the closing ] is missing", position=at)
        if rest and not rest.startswith(":"):
            raise AddressError("after the ] comes a colon and the port",
                               position=at + len(host) + 2)
        port = rest[1:]
        bare = not rest
    else:
        host, colon, port = text.rpartition(":")
        bare = not colon
        host = host or (text if bare else "")
    if bare and role != "source" or not bare and not port:
        raise AddressError("a port is missing", position=at + len(text),
                           hint="write host:port" + ", port 0 for any free one" * (role == "bind"))
    literal = _check_host(host, at + bracketed, role, bracketed)
    return Place(host, 0 if bare else _port(port, at + len(text) - len(port), role), literal)


def _port(text: str, at: int, role: str) -> int:
    if text == "*" and role != "connect":
        return 0
    if not PORT.fullmatch(text) or int(text) > 65535:
        raise AddressError(f"{text!r} is no port (0 to 65535)", position=at)
    if text == "0" and role == "connect":
        raise AddressError("port 0 cannot be connected to", position=at,
                           hint="use the URL that bind() returned")
    return int(text)


def _check_host(host: str, at: int, role: str, bracketed: bool) -> bool:
    """True for an IP address, False for a name, AddressError for neither."""
    if bracketed:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise AddressError(f"{host!r} is no IPv6 address", position=at) from None
        return True
    if host == "*":
        if role == "connect":
            raise AddressError("* is every address of this machine, none to connect to",
                               position=at, hint="name one host")
        return True
    if not host:
        raise AddressError("a host is missing", position=at)
    if ":" in host:
        raise AddressError("an IPv6 address is written in brackets", position=at,
                           hint="like [::1]:5555")
    if re.fullmatch(r"[0-9.]+", host):  # getaddrinfo would read 127.1 and 256 in its own way
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise AddressError(f"{host!r} is no IPv4 address", position=at) from None
        return True
    if len(host) > 253 or not NAME.fullmatch(host):
        raise AddressError(f"{host!r} is no host or interface name", position=at)
    return False


# -- look-up ---------------------------------------------------------------------------------------


def _is_interface(name: str) -> bool:
    try:
        return bool(socket.if_nametoindex(name))
    except OSError:
        return False


def _interface(name: str, port: int) -> list[tuple[int, tuple]]:
    """(family, sockaddr) of an interface's addresses, IPv4 first."""
    found: list[tuple[int, tuple]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            reply = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            found.append((socket.AF_INET, (socket.inet_ntoa(reply[20:24]), port)))
        except OSError:
            pass  # an interface without IPv4
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as lines:
            for line in lines:
                raw, index, _, scope, _, device = line.split()
                if device == name:
                    host = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))
                    zone = int(index, 16) if scope == "20" else 0  # link-local needs its zone
                    found.append((socket.AF_INET6, (host, port, 0, zone)))
    except OSError:
        pass  # a kernel without IPv6
    return found


def _look_up(place: Place, flags: int = 0) -> list[tuple[int, tuple]]:
    """(family, sockaddr) of a place; OSError (socket.gaierror among them) if there is none."""
    if place.host == "*":
        return [(socket.AF_INET, ("0.0.0.0", place.port))]
    if not place.literal and _is_interface(place.host):
        found = _interface(place.host, place.port)
        if not found:
            raise OSError(errno.EADDRNOTAVAIL, f"interface {place.host} has no address")
        return found
    flags |= socket.AI_NUMERICHOST if place.literal else 0
    infos = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, sockaddr) for family, _, _, _, sockaddr in infos
            if family in (socket.AF_INET, socket.AF_INET6)]


def _name(sockaddr: tuple) -> str:
    host, port = sockaddr[:2]
    if ":" not in host:
        return f"{host}:{port}"
    if host.lower().startswith("::ffff:") and "." in host:  # an IPv4 peer of a socket for both
        return f"{host[7:]}:{port}"
    if len(sockaddr) > 3 and sockaddr[3] and "%" not in host:
        host += "%" + socket.if_indextoname(sockaddr[3])
    return f"[{host}]:{port}"


# -- descriptors -----------------------------------------------------------------------------------


def _new(family: int, options: Options) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        transport.tune(sock, options)
    except OSError:
        sock.close()
        raise
    return sock


def _bound(family: int, sockaddr: tuple, options: Options) -> socket.socket:
    sock = _new(family, options)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            both = sockaddr[0] == "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.bind(sockaddr)
        sock.listen(options.get("backlog", 1024))
    except OSError:
        sock.close()
        raise
    return sock


class Tcp(StreamTransport):
    scheme = "tcp"
    doc = "TCP over IPv4 and IPv6"
    capabilities = frozenset({"wildcard", "names", "network", "unacked"})

    def check(self, address: str, role: str) -> None:
        parse(address, role)

    def may_block(self, address: str) -> bool:
        source, place = parse(address, "connect")
        return not (place.literal and (source is None or source.literal))

    def resolve(self, address: str, options: Options) -> list[Target]:
        source, place = parse(address, "connect")
        found = _look_up(place)
        if source is None:
            return [Target(family, sockaddr, None) for family, sockaddr in found]
        sources: dict[int, tuple] = {}
        for family, sockaddr in _look_up(source):
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
            found = _look_up(place, socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise AddressNotAvailable(f"{where}: no such host or interface ({error.strerror})",
                                      errno=errno.EADDRNOTAVAIL) from None
        except OSError as error:
            raise BindError.of(error.errno or errno.EADDRNOTAVAIL, where) from None
        found.sort(key=lambda item: item[0] != socket.AF_INET)
        failure: OSError = OSError(errno.EADDRNOTAVAIL, "")
        for family, sockaddr in found:
            try:
                sock = _bound(family, sockaddr, options)
            except OSError as error:
                failure = error
                continue
            return Listening((sock,), _name(sock.getsockname()))
        raise BindError.of(failure.errno or errno.EADDRNOTAVAIL, where) from failure

    def connect(self, target: Target, options: Options) -> socket.socket:
        sock = _new(target.family, options)
        try:
            if target.source is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(target.source)
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
            # A free port of this machine that nobody listens on can be given to the connecting
            # side itself, and TCP's simultaneous open then connects the socket to itself.
            own = sock.getsockname() == sock.getpeername()
        except OSError as error:
            return error.errno or errno.ENOTCONN
        return errno.ECONNREFUSED if own else 0

    def tune(self, sock: socket.socket, options: Options) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        set_buffers(sock, options)
        if options.get("keepalive"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if options.get("tos"):
            if sock.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, options["tos"])
            if sock.family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, options["tos"])

    def names(self, sock: socket.socket) -> tuple[str, str]:
        result = []
        for ask in (sock.getsockname, sock.getpeername):
            try:
                result.append(f"tcp://{_name(ask())}")
            except OSError:
                result.append("")
        return result[0], result[1]


transport = Tcp()
