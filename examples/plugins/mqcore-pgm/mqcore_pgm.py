"""epgm://interface;group:port and pgm://interface;group:port: reliable multicast (PGM, RFC 3208) by
libpgm, as libzmq speaks it. For PUB, XPUB, SUB and XSUB.

epgm carries PGM in UDP datagrams, which every program may send. pgm is IP protocol 113 itself,
which takes the right to open raw sockets. bind() and connect() do the same: no connection exists,
and all sources of a group are one peer.

mqcore/spi/multicast.py says what the interface may be. This half looks it up, because libpgm takes
names for those of hosts. mqcore_pgm_engine.pyx moves the messages.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Generator

import mqcore_pgm_engine as engine
import mqcore_pgm_filter

from mqcore import BindError
from mqcore.spi.inet import Place, SockAddr, host_port
from mqcore.spi.message_engine import NativeEngine
from mqcore.spi.multicast import SENDERS, Interface, MulticastTransport, open_group
from mqcore.spi.transport import Options

PROTOCOL = 113  # IPPROTO_PGM
RECV_BUFFER = 4 << 20  # bytes: a receiver that pauses for a moment shall not need repairs
KBIT = 1000 // 8
INSTALL = "install libpgm 5.3: apt-get install libpgm-5.3-0"


class PgmSocket(socket.socket):
    """A descriptor of libpgm's socket, with the engine that owns the others."""

    engine: NativeEngine | None = None
    where = ""


def pack(family: int, sockaddr: SockAddr) -> bytes:
    """As the C library has it."""
    host = socket.inet_pton(family, sockaddr[0].partition("%")[0])
    if family == socket.AF_INET:
        return struct.pack("=HH4s8x", family, 0, host)
    scope = sockaddr[3] if len(sockaddr) > 3 else 0
    return struct.pack("=HHI16sI", family, 0, 0, host, scope)


# -- the transport ---------------------------------------------------------------------------------


class Pgm(MulticastTransport):
    gaps = {**MulticastTransport.gaps, "raw": "libpgm owns the descriptors"}
    options = (
        *MulticastTransport.options,
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

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        made, sock.engine = sock.engine, None
        return made
        yield ""  # no peer will ever connect

    # -- opening -----------------------------------------------------------------------------------

    def open_socket(self, address: str, options: Options) -> PgmSocket:
        where = f"cannot open {self.scheme}://{address}"
        reason = self.unavailable()
        if reason:
            raise BindError.of(errno.EPERM if "raw sockets" in reason else errno.ENOSYS,
                               f"{where}: {reason}")
        found, place, group = open_group(where, address)
        interface = socket.if_indextoname(found.number)
        try:
            made, fd = engine.open_engine(self._settings(place, found, group, options))
        except engine.LibraryError as error:
            raise BindError(f"{where}: {error}", errno=errno.EIO,
                            hint="`ip link` shows whether the interface is up") from None
        except OSError as error:
            raise BindError(f"{where}: {error.strerror}", errno=error.errno) from None
        sock = PgmSocket(fileno=fd)
        sock.setblocking(False)
        sock.engine = made
        sock.where = f"{self.scheme}://{interface};{host_port(group)}"
        return sock

    def _settings(self, place: Place, at: Interface, group: SockAddr, options: Options) -> dict:
        mtu = options["pgm_mtu"]
        return {
            "sends": options["pattern.name"] in SENDERS, "udp": self._udp, "family": at.family,
            "port": place.port, "group": pack(at.family, group),
            "address": pack(at.family, at.sockaddr), "index": at.number,
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
