"""What transports over multicast share: addresses of the form interface;group:port, and that no
connection exists, so that all sources of a group are one peer.

The interface is a name (eth0), an address of this machine, or a network in which it has one
(10.9.0.0/24). Without one, the routing table decides. udp:// knows its own, narrower form.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
from typing import ClassVar, NamedTuple

from mqcore.base.native import socket
from mqcore.errors import AddressError, AddressNotAvailable, BindError
from mqcore.spi.inet import GROUP_OPTIONS, Place, SockAddr, interface_index, look_up, parse
from mqcore.spi.transport import Listening, MessageTransport, Options

PATTERNS = ("pub", "xpub", "sub", "xsub")
SENDERS = ("pub", "xpub")


# of this process or the machine, not of an address
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class Interface(NamedTuple):
    family: int
    sockaddr: SockAddr  # one of its addresses
    number: int


def parse_group(address: str) -> tuple[str, Place]:
    """(interface, group). AddressError."""
    front, semicolon, rest = address.rpartition(";")
    at = len(front) + len(semicolon)
    if rest.endswith(":0"):
        raise AddressError("port 0 is no group's", position=len(address) - 1,
                           hint="choose one from 1 to 65535, the same in all programs")
    try:
        _, place = parse(rest, "connect")
    except AddressError as error:
        raise AddressError(error.text, position=at + (error.position or 0),
                           hint=error.hint) from None
    if not place.literal or not ipaddress.ip_address(place.host.partition("%")[0]).is_multicast:
        raise AddressError(f"{place.host!r} is not a multicast group", position=at,
                           hint="IPv4 groups are 224.0.0.0 to 239.255.255.255")
    if semicolon and not front:
        raise AddressError("an interface is missing", position=0,
                           hint="write it like eth0;239.192.1.1:5555, or leave out the ;")
    return front, place


def open_group(where: str, address: str) -> tuple[Interface, Place, SockAddr]:
    """(interface, group, its address). Errors begin with `where`. AddressNotAvailable."""
    front, place = parse_group(address)
    try:
        [(family, group), *_] = look_up(place)
        found = find_interface(front, family, group)
        _check_route(where, found, group)
        return found, place, group
    except AddressNotAvailable:
        raise
    except OSError as error:
        number, text = error.errno or errno.ENODEV, error.strerror or str(error)
    if number in SHORT:
        raise BindError(f"{where}: {text}", errno=number)
    if not front:
        raise AddressNotAvailable(
            f"{where}: no route leads to the group ({text})", errno=number,
            hint="name the interface in front of a semicolon, as in eth0;239.192.1.1:5555")
    raise AddressNotAvailable(f"{where}: {front} is no interface of this machine ({text})",
                              errno=number,
                              hint="`ip address` lists interfaces and their addresses")


def _check_route(where: str, found: Interface, group: SockAddr) -> None:
    """IPv6 takes a route at the interface, which loopback lacks; packets would vanish without an
    error. AddressNotAvailable."""
    if found.family != socket.AF_INET6:
        return
    with socket.socket(found.family, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, found.number)
        try:
            probe.connect(group)
        except OSError as error:
            raise AddressNotAvailable(
                f"{where}: {socket.if_indextoname(found.number)} has no route to the group "
                f"({error.strerror})", errno=error.errno,
                hint="name another interface, or an IPv4 group: loopback carries those only"
            ) from None


def find_interface(front: str, family: int, group: SockAddr) -> Interface:
    """OSError if there is none."""
    if not front:
        return _by_route(family, group)
    if "/" in front:
        return _in_network(family, front)
    bare = front.strip("[]")
    try:
        ipaddress.ip_address(bare.partition("%")[0])
        literal = True
    except ValueError:
        literal = False
        socket.socket(family, socket.SOCK_DGRAM).close()  # it says why if no descriptor is free
        socket.if_nametoindex(front)  # OSError; a host's name is not what is meant
    for of, sockaddr in look_up(Place(bare, 0, literal)):
        if of == family:
            return Interface(family, sockaddr, interface_index(Place(bare, 0, literal)))
    raise OSError(errno.EADDRNOTAVAIL, f"{front} has no address of the group's family")


def _by_route(family: int, group: SockAddr) -> Interface:
    """Where the routing table sends a group's packets."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(group)
        own = probe.getsockname()
    return Interface(family, own, interface_index(Place(own[0].partition("%")[0], 0, True)))


def _in_network(family: int, text: str) -> Interface:
    network = ipaddress.ip_network(text, strict=False)
    for index, name in socket.if_nameindex():
        with contextlib.suppress(OSError):
            for of, sockaddr in look_up(Place(name, 0, False)):
                own = ipaddress.ip_address(sockaddr[0].partition("%")[0])
                if of == family and own in network:
                    return Interface(family, sockaddr, index)
    raise OSError(errno.ENODEV, f"no interface has an address in {network}")


class MulticastTransport(MessageTransport):
    """For PUB, XPUB, SUB and XSUB. bind() and connect() do the same. A transport adds `scheme`,
    `doc`, options, the gap "raw", open(), and:"""

    capabilities = frozenset({"multipart", "large", "ordered", "many", "rebind", "limit",
                              "processes", "network"})
    gaps: ClassVar[dict[str, str]] = {
        "duplex": "publishers send, subscribers receive",
        "reliable": "what no repair brings in time is lost, counted and reported (events.Lost)",
        "backpressure": "a publisher sends at its rate, whatever its subscribers read",
        "connection": "there is no connection: all sources of a group are one peer",
        "reconnect": "there is no connection",
        "refused": "nothing listens to a group",
        "busy": "any number of programs may use a group and port",
        "handshake": "sources do not say what pattern they are",
    }
    accepts = False
    patterns: ClassVar[dict[str, tuple[str, ...]]] = {"connect": PATTERNS, "bind": PATTERNS}
    options = GROUP_OPTIONS

    def open_socket(self, address: str, options: Options) -> socket.socket:
        """In the thread that calls bind() or connect(). The socket's attribute `where` is its URL.
        BindError."""
        raise NotImplementedError

    def check(self, address: str, role: str) -> None:
        parse_group(address)

    def listen(self, address: str, options: Options) -> Listening:
        return Listening((self.open_socket(address, options),), address)

    def adopt(self, address: str, options: Options) -> socket.socket:
        return self.open_socket(address, options)

    def names(self, sock: socket.socket) -> tuple[str, str]:
        where = getattr(sock, "where", "")
        return where, where
