"""sctp://[source;]host:port: a stream over a one-to-one SCTP socket.

RFC 9260 is the protocol, RFC 6458 (section 4) the API. SCTP has no half-closed state: the side that
ends the association ends both directions. Its message boundaries have no meaning for the messaging
protocol and are ignored. Addresses are those of tcp.
"""

from __future__ import annotations

import errno
import socket
from typing import NamedTuple

from mqcore import AddressNotAvailable, BindError
from mqcore.spi.inet import host_port, look_up, parse
from mqcore.spi.transport import Listening, Options, StreamTransport, set_buffers, start_connect

SCTP_NODELAY = 3  # RFC 6458, section 8.1.5; the number is Linux's
HINT = "try `modprobe sctp`"


class Target(NamedTuple):
    family: int
    sockaddr: tuple
    source: tuple | None


class Sctp(StreamTransport):
    scheme = "sctp"
    doc = "one-to-one SCTP over IPv4 and IPv6"
    capabilities = frozenset({"wildcard", "names", "network"})

    def unavailable(self) -> str:
        try:
            _new(socket.AF_INET, {}).close()
        except OSError as error:
            return f"this kernel has no SCTP ({error.strerror}); {HINT}"
        return ""

    # -- addresses ---------------------------------------------------------------------------------

    def check(self, address: str, role: str) -> None:
        parse(address, role)

    def may_block(self, address: str) -> bool:
        source, place = parse(address, "connect")
        return place.may_block or source is not None and source.may_block

    def resolve(self, address: str, options: Options) -> list[Target]:
        source, place = parse(address, "connect")
        sources = {} if source is None else dict(look_up(source))
        found = [Target(family, sockaddr, sources.get(family))
                 for family, sockaddr in look_up(place) if source is None or family in sources]
        if not found:
            raise OSError(errno.EAFNOSUPPORT, "source and destination have no address family in "
                                              "common")
        return found

    # -- descriptors -------------------------------------------------------------------------------

    def listen(self, address: str, options: Options) -> Listening:
        _, place = parse(address, "bind")
        where = f"cannot listen on sctp://{address}"
        try:
            family, sockaddr = look_up(place, socket.AI_PASSIVE)[0]
            sock = _new(family, options)
        except socket.gaierror as error:
            raise AddressNotAvailable(f"{where}: no such host or interface ({error.strerror})",
                                      errno=errno.EADDRNOTAVAIL) from None
        except OSError as error:
            hint = HINT if error.errno == errno.EPROTONOSUPPORT else None
            raise BindError.of(error.errno or errno.EADDRNOTAVAIL, where, hint) from None
        try:
            sock.bind(sockaddr)
            sock.listen(options["backlog"])
        except OSError as error:
            sock.close()
            raise BindError.of(error.errno or errno.EINVAL, where) from None
        return Listening((sock,), host_port(sock.getsockname()))

    def connect(self, target: Target, options: Options) -> socket.socket:
        sock = _new(target.family, options)
        try:
            if target.source is not None:
                sock.bind(target.source)
            start_connect(sock, target.sockaddr)
        except OSError:
            sock.close()
            raise
        return sock

    def tune(self, sock: socket.socket, options: Options) -> None:
        sock.setsockopt(socket.IPPROTO_SCTP, SCTP_NODELAY, 1)
        set_buffers(sock, options)

    # -- names -------------------------------------------------------------------------------------

    def names(self, sock: socket.socket) -> tuple[str, str]:
        return _name(sock.getsockname), _name(sock.getpeername)


def _name(ask) -> str:
    try:
        return f"sctp://{host_port(ask())}"
    except OSError:
        return ""


def _new(family: int, options: Options) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
                         socket.IPPROTO_SCTP)
    try:
        transport.tune(sock, options)
    except OSError:
        sock.close()
        raise
    return sock


transport = Sctp()
