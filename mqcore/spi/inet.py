"""host:port, for transports over IP.

host: an IPv4 address, an IPv6 address in brackets with an optional zone ([fe80::1%eth0]), a name,
or the name of a network interface of this machine (its addresses, IPv4 first). For bind() also `*`
and `[::]`: all addresses of both families; `0.0.0.0` is all of IPv4. Port: 0 to 65535 in plain
digits. For bind() 0 or `*` takes a free one. For connect() a prefix "source;" sets the address to
connect from: a host, and a port if it matters.

parse checks text without a look-up. look_up may block.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from mqcore.base.native import socket
from mqcore.errors import AddressError
from mqcore.spi.hosts import known

SockAddr: TypeAlias = tuple[Any, ...]  # (host, port), or (host, port, flow, scope) of IPv6

PORT = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
NAME = re.compile(r"[\w]([\w.-]*[\w.])?")
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
TRIES = 20  # free ports that are tried, because one must be free in both families
# of documents (RFC 5737, RFC 3849): can be bound only where all can (net.ipv4.ip_nonlocal_bind)
NOWHERE = {socket.AF_INET: "203.0.113.254", socket.AF_INET6: "2001:db8:ffff::1"}
SIOCGIFADDR = 0x8915  # linux/sockios.h: an interface's first IPv4 address
#: of transports over multicast
GROUP_OPTIONS = (
    ("multicast_hops", "int", 1, "routers that a multicast datagram may pass, plus 1; 0: it stays "
                                 "on this machine", (0, 255)),
    ("multicast_loop", "bool", True, "this machine also receives its own multicast"),
)


class Place(NamedTuple):
    host: str  # without brackets; "*" for all
    port: int
    literal: bool  # an IP address, nothing to look up

    @property
    def may_block(self) -> bool:
        """Whether look_up() may have to ask a name server."""
        return not self.literal and not known(self.host)


# -- text ------------------------------------------------------------------------------------------


def parse(address: str, role: str, *, front: bool = False) -> tuple[Place | None, Place]:
    """(source, place), or AddressError. `front`: a place in front of the ; means something to bind
    too (an interface)."""
    head, semicolon, tail = address.partition(";")
    if not semicolon:
        return None, _place(address, 0, role)
    if role == "bind" and not front:
        raise AddressError("a source address makes sense only for connect()", position=len(head))
    return _place(head, 0, "source"), _place(tail, len(head) + 1, role)


def _place(text: str, at: int, role: str) -> Place:
    """One host:port. `at` is its position in the address."""
    bracketed = text.startswith("[")
    if bracketed:
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise AddressError("the closing ] is missing", position=at)
        if rest and not rest.startswith(":"):
            raise AddressError("a colon and the port must follow the ]",
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
        raise AddressError(f"{text!r} is not a port (0 to 65535)", position=at)
    if text == "0" and role == "connect":
        raise AddressError("port 0 is only for bind()", position=at,
                           hint="use the URL that bind() returned")
    return int(text)


def _check_host(host: str, at: int, role: str, bracketed: bool) -> bool:
    """True for an IP address, False for a name. AddressError otherwise."""
    if bracketed:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise AddressError(f"{host!r} is not an IPv6 address", position=at) from None
        return True
    if host == "*":
        if role == "connect":
            raise AddressError("* is only for bind()",
                               position=at, hint="connect to one host")
        return True
    if not host:
        raise AddressError("a host is missing", position=at)
    if ":" in host:
        raise AddressError("an IPv6 address needs brackets", position=at,
                           hint="write it like [::1]:5555")
    if re.fullmatch(r"[0-9.]+", host):  # getaddrinfo would interpret 127.1 and 256 as addresses
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise AddressError(f"{host!r} is not an IPv4 address", position=at) from None
        return True
    if len(host) > 253 or not NAME.fullmatch(host):
        raise AddressError(f"{host!r} is not a host or interface name", position=at)
    return False


# -- look-up ---------------------------------------------------------------------------------------


def _is_interface(name: str) -> bool:
    try:
        return bool(socket.if_nametoindex(name))
    except OSError:
        return False


def _interface(name: str, port: int) -> list[tuple[int, SockAddr]]:
    """(family, sockaddr) of an interface's addresses, IPv4 first."""
    found: list[tuple[int, SockAddr]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            reply = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            found.append((socket.AF_INET, (socket.inet_ntoa(reply[20:24]), port)))
        except OSError:
            pass  # an interface without IPv4
    for line in _addresses6():
        raw, index, _, scope, _, device = line.split()
        if device == name:
            host = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw))
            zone = int(index, 16) if scope == "20" else 0  # link-local needs its zone
            found.append((socket.AF_INET6, (host, port, 0, zone)))
    return found


def _addresses6() -> list[str]:
    """Of this machine, a line each. None in a kernel without IPv6, and where it is switched off
    (net.ipv6.conf.all.disable_ipv6): there a socket binds to "::", and no address leads to it."""
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as lines:
            return list(lines)
    except OSError:
        return []


def interface_index(place: Place) -> int:
    """The number of the interface with this name or address. OSError if there is none."""
    if not place.literal and _is_interface(place.host):
        return socket.if_nametoindex(place.host)
    wanted = {sockaddr[0].partition("%")[0] for _, sockaddr in look_up(place._replace(port=0))}
    for index, name in socket.if_nameindex():
        if wanted & {sockaddr[0] for _, sockaddr in _interface(name, 0)}:
            return index
    raise OSError(errno.EADDRNOTAVAIL, f"no interface has the address {place.host}")


def look_up(place: Place, flags: int = 0) -> list[tuple[int, SockAddr]]:
    """(family, sockaddr) of a place, in the system's order. May block. OSError (including
    socket.gaierror) if there is none, AddressError if it cannot be a name. "*": of each family."""
    if place.host == "*":
        return [(socket.AF_INET, ("0.0.0.0", place.port)),
                (socket.AF_INET6, ("::", place.port, 0, 0))]
    if not place.literal and _is_interface(place.host):
        found = _interface(place.host, place.port)
        if not found:
            raise OSError(errno.EADDRNOTAVAIL, f"interface {place.host} has no address")
        return found
    flags |= socket.AI_NUMERICHOST if place.literal else 0
    # of text Python makes IDNA, for which it imports modules, and the control thread looks up
    # literals: no call may wait for it inside a lock of the import system
    host = place.host.encode() if place.literal else place.host
    try:
        infos = socket.getaddrinfo(host, place.port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:  # Python's IDNA: an empty or overlong label
        raise AddressError(f"{place.host!r} is not a host name ({error})") from None
    return [(family, sockaddr) for family, _, _, _, sockaddr in infos
            if family in (socket.AF_INET, socket.AF_INET6)]


def bind_all(found: list[tuple[int, SockAddr]],
             bind: Callable[[int, SockAddr], socket.socket]) -> list[socket.socket]:
    """Sockets of bind(family, sockaddr) at all these addresses that this machine has, IPv4 first,
    on one port. All addresses of both families are one socket. OSError if an address is in use, or
    there is none."""
    found = sorted(dict.fromkeys(found), key=lambda item: item[0] != socket.AF_INET)
    wanted = found[0][1][1] if found else 0
    if [sockaddr[0] for _, sockaddr in found] == ["0.0.0.0", "::"]:
        if _addresses6():
            try:
                return [bind(*found[1])]
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
        return [bind(*found[0])]
    for left in reversed(range(TRIES)):
        sockets: list[socket.socket] = []
        try:
            _bind_each(found, bind, sockets, wanted)
            return sockets
        except BaseException as error:
            for sock in sockets:
                sock.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if not (taken and sockets and left) or wanted:
                raise
    raise AssertionError("the last try has raised")


def _bind_each(found: list[tuple[int, SockAddr]],
               bind: Callable[[int, SockAddr], socket.socket], sockets: list[socket.socket],
               port: int) -> None:
    failure = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for family, sockaddr in found:
        try:
            sockets.append(bind(family, (sockaddr[0], port, *sockaddr[2:])))
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            failure = error
        else:
            port = sockets[0].getsockname()[1]
    if not sockets:
        raise failure


def is_ours(sockaddr: SockAddr) -> bool:
    """Whether a connection to this address stays on this machine (in this network namespace). Sends
    nothing: it is a loopback address, the unspecified one, or one that can be bound. Where any can
    be, the kernel must reach it from itself."""
    family = socket.AF_INET6 if ":" in sockaddr[0] else socket.AF_INET
    address = ipaddress.ip_address(sockaddr[0].partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return True
    if not _may_bind(family, sockaddr):
        return False
    return not _may_bind(family, (NOWHERE[family], 0)) or _from_itself(family, sockaddr)


def _may_bind(family: int, sockaddr: SockAddr) -> bool:
    host, _, *rest = sockaddr
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind((host, 0, *rest))
    except OSError:
        return False
    return True


def _from_itself(family: int, sockaddr: SockAddr) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.connect(sockaddr)
            ours, theirs = probe.getsockname(), sockaddr
    except OSError:
        return False
    return (ours[0].partition("%")[0], *ours[3:]) == (theirs[0].partition("%")[0], *theirs[3:])


def host_port(sockaddr: SockAddr) -> str:
    """A socket's address as text, usable for connecting."""
    host, port = sockaddr[:2]
    if ":" not in host:
        return f"{host}:{port}"
    if host.lower().startswith("::ffff:") and "." in host:  # an IPv4 peer of a socket for both
        return f"{host[7:]}:{port}"
    if len(sockaddr) > 3 and sockaddr[3] and "%" not in host:
        host += "%" + socket.if_indextoname(sockaddr[3])
    return f"[{host}]:{port}"


def both_names(scheme: str, sock: socket.socket) -> tuple[str, str]:
    """(ours, the peer's) as URLs, for StreamTransport.names(); "" if unknown."""
    result = []
    for ask in (sock.getsockname, sock.getpeername):
        try:
            result.append(f"{scheme}://{host_port(ask())}")
        except OSError:
            result.append("")
    return result[0], result[1]
