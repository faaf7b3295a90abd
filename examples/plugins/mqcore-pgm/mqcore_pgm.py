"""epgm://interface;group:port and pgm://interface;group:port: reliable multicast (PGM, RFC 3208) by
libpgm, as libzmq speaks it. For PUB, XPUB, SUB and XSUB.

epgm carries PGM in UDP datagrams, which every program may send. pgm is IP protocol 113 itself,
which takes the right to open raw sockets. bind() and connect() do the same: no connection exists,
and all sources of a group are one peer.

The interface is a name (eth0), an address of this machine, or a network that has one
(10.9.0.0/24). Without one, the routing table decides. This half looks the interface up, because
libpgm takes names for those of hosts. mqcore_pgm_engine.pyx moves the messages.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Generator
from typing import NamedTuple

import mqcore_pgm_engine as engine
import mqcore_pgm_filter

from mqcore import AddressError, AddressNotAvailable, BindError
from mqcore.spi.inet import Place, SockAddr, host_port, interface_index, look_up, parse
from mqcore.spi.message_engine import NativeEngine
from mqcore.spi.transport import Listening, MessageTransport, Options

PROTOCOL = 113  # IPPROTO_PGM
PATTERNS = ("pub", "xpub", "sub", "xsub")
SENDERS = ("pub", "xpub")
RECV_BUFFER = 4 << 20  # bytes: a receiver that pauses for a moment shall not need repairs
KBIT = 1000 // 8
INSTALL = "install libpgm 5.3: apt-get install libpgm-5.3-0"


class Interface(NamedTuple):
    family: int
    sockaddr: SockAddr  # one of its addresses
    index: int


class PgmSocket(socket.socket):
    """A descriptor of libpgm's socket, with the engine that owns the others."""

    engine: NativeEngine | None = None
    where = ""


# -- addresses -------------------------------------------------------------------------------------


def _check(address: str) -> tuple[str, Place]:
    """(interface, group). AddressError."""
    front, semicolon, rest = address.rpartition(";")
    at = len(front) + len(semicolon)
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
        socket.if_nametoindex(front)  # OSError; a host's name is not what is meant
    for of, sockaddr in look_up(Place(bare, 0, literal)):
        if of == family:
            return Interface(family, sockaddr, interface_index(Place(bare, 0, literal)))
    raise OSError(errno.EADDRNOTAVAIL, f"{front} has no address of the group's family")


def pack(family: int, sockaddr: SockAddr) -> bytes:
    """As the C library has it."""
    host = socket.inet_pton(family, sockaddr[0].partition("%")[0])
    if family == socket.AF_INET:
        return struct.pack("=HH4s8x", family, 0, host)
    scope = sockaddr[3] if len(sockaddr) > 3 else 0
    return struct.pack("=HHI16sI", family, 0, 0, host, scope)


# -- the transport ---------------------------------------------------------------------------------


class Pgm(MessageTransport):
    capabilities = frozenset({"multipart", "large", "ordered", "many", "rebind", "limit",
                              "processes", "network"})
    gaps = {
        "duplex": "publishers send, subscribers receive",
        "reliable": "what no repair brings in time is lost, counted and reported (events.Lost)",
        "backpressure": "a publisher sends at its rate, whatever its subscribers read",
        "connection": "there is no connection: all sources of a group are one peer",
        "reconnect": "there is no connection",
        "refused": "nothing listens to a group",
        "busy": "any number of programs may use a group and port",
        "handshake": "sources do not say what pattern they are",
        "raw": "libpgm owns the descriptors",
    }
    accepts = False
    patterns = {"connect": PATTERNS, "bind": PATTERNS}
    options = (
        ("multicast_hops", "int", 1, "routers that a multicast datagram may pass, plus 1; 0: it "
                                     "stays on this machine"),
        ("multicast_loop", "bool", True, "this machine also receives its own multicast"),
        ("pgm_rate", "int", 100_000, "kbit/s that a publisher sends at most, repairs included",
         (1, 16_000_000)),
        ("pgm_window", "size", 16 << 20,
         "bytes of packets that a publisher keeps for repairs, and a subscriber holds back for "
         "a missing one", (64 << 10, 1 << 30)),
        ("pgm_mtu", "int", 1500, "bytes of a packet, with its IP header", (256, 9216)),
        ("pgm_retries", "int", 50, "how often a subscriber asks for a missing packet, 50 ms apart",
         (1, 1000)),
        ("pgm_settle", "seconds", 0.3,
         "seconds that close() waits for requests after the last packet, within linger"),
    )

    def __init__(self, scheme: str, doc: str, udp: bool) -> None:
        self.scheme = scheme
        self.doc = doc
        self._udp = udp

    def unavailable(self) -> str:
        try:
            engine.load()
        except engine.LibraryError as error:
            return f"libpgm cannot be used ({error}); {INSTALL}"
        if self._udp:
            return ""
        try:
            socket.socket(socket.AF_INET, socket.SOCK_RAW, PROTOCOL).close()
        except OSError as error:
            return f"raw sockets cannot be opened ({error.strerror}); use epgm://, or run with " \
                   "CAP_NET_RAW"
        return ""

    def check(self, address: str, role: str) -> None:
        _check(address)

    def listen(self, address: str, options: Options) -> Listening:
        return Listening((self._open(address, options),), address)

    def adopt(self, address: str, options: Options) -> socket.socket:
        return self._open(address, options)

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        made, sock.engine = sock.engine, None
        return made
        yield ""  # no peer will ever connect

    def names(self, sock: socket.socket) -> tuple[str, str]:
        where = getattr(sock, "where", "")
        return where, where

    # -- opening -----------------------------------------------------------------------------------

    def _open(self, address: str, options: Options) -> PgmSocket:
        where = f"cannot open {self.scheme}://{address}"
        reason = self.unavailable()
        if reason:
            raise BindError.of(errno.EPERM if "raw sockets" in reason else errno.ENOSYS,
                               f"{where}: {reason}")
        front, place = _check(address)
        try:
            [(family, group), *_] = look_up(place)
            found = find_interface(front, family, group)
        except OSError as error:
            raise self._no_interface(where, front, error) from None
        try:
            made, fd = engine.open_engine(self._settings(place, found, group, options))
        except engine.LibraryError as error:
            raise BindError(f"{where}: {error}", errno=errno.EIO,
                            hint="`ip link` shows whether the interface is up") from None
        sock = PgmSocket(fileno=fd)
        sock.setblocking(False)
        sock.engine = made
        sock.where = f"{self.scheme}://{socket.if_indextoname(found.index)};{host_port(group)}"
        return sock

    def _no_interface(self, where: str, front: str, error: OSError) -> BindError:
        if not front:
            return AddressNotAvailable(
                f"{where}: no route leads to the group ({error.strerror})", errno=error.errno,
                hint="name the interface in front of a semicolon, as in eth0;239.192.1.1:5555")
        return AddressNotAvailable(
            f"{where}: {front} is no interface of this machine ({error.strerror or error})",
            errno=error.errno or errno.ENODEV,
            hint="`ip address` lists interfaces and their addresses")

    def _settings(self, place: Place, at: Interface, group: SockAddr, options: Options) -> dict:
        mtu = options["pgm_mtu"]
        return {
            "sends": options["pattern.name"] in SENDERS, "udp": self._udp, "family": at.family,
            "port": place.port, "group": pack(at.family, group),
            "address": pack(at.family, at.sockaddr), "index": at.index,
            "scope": at.sockaddr[3] if len(at.sockaddr) > 3 else 0, "id": os.urandom(6),
            "rate": options["pgm_rate"] * KBIT, "mtu": mtu,
            "packets": options["pgm_window"] // mtu, "retries": options["pgm_retries"],
            "settle": options["pgm_settle"], "hops": options["multicast_hops"],
            "loop": int(options["multicast_loop"]),
            "recv_buffer": options.get("recv_buffer") or RECV_BUFFER,
            "filter": mqcore_pgm_filter.program(at.family, self._udp),
            "send_buffer": options.get("send_buffer") or 0,
        }


epgm = Pgm("epgm", "reliable multicast in UDP datagrams (PGM, as libzmq's)", True)
pgm = Pgm("pgm", "reliable multicast as an IP protocol of its own (PGM, as libzmq's)", False)
