"""udp://host:port, and multicast: udp://239.1.2.3:5555, udp://eth0;239.1.2.3:5555. For RADIO, DISH
and DGRAM, and for PUB, XPUB, SUB and XSUB of mqcore.

As with libzmq, a RADIO connects and a DISH binds. A datagram is `size group body` (RFC 48,
udp_engine.pyx). PUB connects and SUB binds likewise. Their datagrams are numbered, so that a
subscriber counts what is missing (udp_numbered.pxd); libzmq has no such thing. A DGRAM binds like a
DISH; a connecting DGRAM takes a free port and receives from that address only. There are no
connections: a socket is ready at once, and all programs at the other end together count as one
peer. Lost datagrams stay lost.

For host see mqcore/spi/inet.py. A DGRAM binds the first of its addresses only, IPv4 first. If host
is a multicast group, a DISH joins it, and every DISH that did receives a datagram. Several sockets
of one machine may bind the same group and port. Before the `;` stands the interface, by name or
address, on which to join or send (default: the kernel's choice), or for a single host the source
address. A DISH that binds a group receives only this group's datagrams.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import struct
from collections.abc import Generator
from typing import NamedTuple

from mqcore.transports.udp_engine import udp_engine

from mqcore.base.native import socket
from mqcore.errors import AddressError, AddressNotAvailable, BindError
from mqcore.spi.inet import (
    GROUP_OPTIONS,
    Place,
    SockAddr,
    bind_all,
    both_names,
    host_port,
    interface_index,
    look_up,
    parse,
)
from mqcore.spi.message_engine import NativeEngine
from mqcore.spi.transport import (
    Listening,
    MessageTransport,
    Options,
    set_buffers,
    set_device,
    set_tos,
)

NUMBERED = ("pub", "xpub", "sub", "xsub")
IP_MULTICAST_ALL, IPV6_MULTICAST_ALL = 49, 29  # linux/in.h, linux/in6.h


class Target(NamedTuple):
    family: int
    sockaddr: SockAddr
    source: SockAddr | None  # source address; for a multicast group an address of the interface
    interface: int  # the number of the interface for a multicast group; 0: the kernel's choice


# -- addresses -------------------------------------------------------------------------------------


def _is_group(sockaddr: SockAddr) -> bool:
    return ipaddress.ip_address(sockaddr[0].partition("%")[0]).is_multicast


def _interface(place: Place | None, sockaddr: SockAddr) -> int:
    """The number of the interface given before the `;`. 0 if there is none."""
    if place is not None and place.host != "*":
        return interface_index(place)
    return sockaddr[3] if len(sockaddr) > 3 else 0  # the zone of an IPv6 group


def _check(address: str, role: str) -> tuple[Place | None, Place]:
    source, place = parse(address, role, front=True)
    if source is not None and source.port and (role == "bind" or _literal_group(place)):
        raise AddressError("an interface has no port", position=0,
                           hint="write it like eth0;239.1.2.3:5555")
    if role == "bind" and source is not None and place.literal and not _literal_group(place):
        raise AddressError("only a multicast group is bound on an interface", position=0,
                           hint="leave out the part before the ;")
    return source, place


def _literal_group(place: Place) -> bool:
    return place.literal and place.host != "*" and _is_group((place.host,))


# -- descriptors -----------------------------------------------------------------------------------


def _new(family: int, options: Options) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        transport.tune(sock, options)
        set_device(sock, options)
    except OSError:
        sock.close()
        raise
    return sock


def _join(sock: socket.socket, sockaddr: SockAddr, index: int) -> None:
    group = socket.inet_pton(sock.family, sockaddr[0].partition("%")[0])
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                        group + struct.pack("@i", index))
    else:
        sock.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                        struct.pack("@4s4si", group, b"", index))


def _bound(target: Target, options: Options) -> socket.socket:
    sock = _new(target.family, options)
    sockaddr = target.sockaddr
    try:
        group = _is_group(sockaddr)
        if group:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if target.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(sockaddr[0] != "::"))
            sockaddr = (*sockaddr[:3], target.interface or sockaddr[3])
        sock.bind(sockaddr)
        if group:
            _join(sock, sockaddr, target.interface)
    except OSError:
        sock.close()
        raise
    return sock


def _send_through(sock: socket.socket, index: int, options: Options) -> None:
    """Set a RADIO's multicast options."""
    hops, loop = options["multicast_hops"], options["multicast_loop"]
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, loop)
        if index:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        return
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, loop)
    if index:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                        struct.pack("@4s4si", b"", b"", index))


class Udp(MessageTransport):
    scheme = "udp"
    doc = "datagrams and multicast over IPv4 and IPv6, for RADIO, DISH, DGRAM, PUB and SUB"
    capabilities = frozenset({"busy", "rebind", "processes", "wildcard", "names", "network"})
    gaps = {
        "duplex": "RADIO and PUB send, DISH and SUB receive",
        "multipart": "a message of a RADIO has one part",
        "large": "a datagram has 65,507 bytes at most",
        "reliable": "datagrams may be lost",
        "ordered": "datagrams may overtake each other",
        "backpressure": "a receiver that does not read loses datagrams",
        "connection": "udp has no connections: all senders to a socket are one peer",
    }
    accepts = False
    patterns = {"connect": ("radio", "dgram", "pub", "xpub"),
                "bind": ("dish", "dgram", "sub", "xsub")}
    options = GROUP_OPTIONS

    def check(self, address: str, role: str) -> None:
        _check(address, role)

    def may_block(self, address: str) -> bool:
        source, place = parse(address, "connect", front=True)
        return place.may_block or source is not None and source.may_block

    def resolve(self, address: str, options: Options) -> list[Target]:
        source, place = _check(address, "connect")
        sources: dict[int, SockAddr] = {}
        targets = []
        for family, sockaddr in look_up(place):
            if _is_group(sockaddr):
                targets.append(Target(family, sockaddr, None, _interface(source, sockaddr)))
                continue
            if source is not None and not sources:
                for known, address_of in look_up(source):
                    sources.setdefault(known, address_of)
            if source is None or family in sources:
                targets.append(Target(family, sockaddr, sources.get(family), 0))
        if not targets:
            raise OSError(errno.EAFNOSUPPORT, "source and destination have no address family "
                                              "in common")
        return targets

    def listen(self, address: str, options: Options) -> Listening:
        source, place = _check(address, "bind")
        where = f"cannot listen on udp://{address}"
        interfaces: dict[SockAddr, int] = {}
        try:
            found = look_up(place, socket.AI_PASSIVE)
            for _, sockaddr in found:
                interfaces[sockaddr[:1]] = _interface(source, sockaddr)
        except socket.gaierror as error:
            raise AddressNotAvailable(f"{where}: no such host or interface ({error.strerror})",
                                      errno=errno.EADDRNOTAVAIL) from None
        except OSError as error:
            raise BindError.of(error.errno or errno.EADDRNOTAVAIL, where) from None
        if options.get("pattern.name") == "dgram":  # it sends through its only socket
            found = sorted(found, key=lambda item: item[0] != socket.AF_INET)[:1]

        def bound(family: int, sockaddr: SockAddr) -> socket.socket:
            return _bound(Target(family, sockaddr, None, interfaces[sockaddr[:1]]), options)

        try:
            sockets = bind_all(found, bound)
        except BindError:  # raised by bind_device
            raise
        except OSError as failure:
            raise BindError.of(failure.errno or errno.EADDRNOTAVAIL, where) from failure
        front = address.partition(";")[0] + ";" if source is not None else ""
        return Listening(tuple(sockets), front + host_port(sockets[0].getsockname()))

    def connect(self, target: Target, options: Options) -> socket.socket:
        sock = _new(target.family, options)
        try:
            if _is_group(target.sockaddr):
                _send_through(sock, target.interface, options)
            elif target.source is not None:
                sock.bind(target.source)
            sock.connect(target.sockaddr)
        except OSError:
            sock.close()
            raise
        return sock

    def tune(self, sock: socket.socket, options: Options) -> None:
        set_buffers(sock, options)
        set_tos(sock, options)

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        numbered = options["pattern.name"] in NUMBERED
        return udp_engine(bare=options["pattern.name"] == "dgram",
                          source=int.from_bytes(os.urandom(8), "big") | 1 if numbered else 0)
        yield ""  # no peer will ever connect

    def names(self, sock: socket.socket) -> tuple[str, str]:
        return both_names("udp", sock)


transport = Udp()
