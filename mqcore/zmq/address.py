"""Addresses as libzmq writes them, and as mqcore does: percent signs mean nothing there."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote, unquote

from mqcore.base.native import socket
from mqcore.zmq.constants import Errno
from mqcore.zmq.error import make

PLAIN = "/:@!$&'()*+,;=~[] "  # beside letters, digits, "_.-": left as they are
VERBATIM = ("ipc", "inproc")
OVER_IP = ("tcp", "tls+tcp", "udp", "ws", "wss")
#: a port as libzmq reads it: what follows the number does not matter
PORTS = {"bind": re.compile(r"\s*([+-]?[0-9]+)"), "connect": re.compile("([0-9]+)")}


def text_of(address: str | bytes) -> str:
    if isinstance(address, bytes):
        return address.decode("utf-8", "surrogateescape")
    if not isinstance(address, str):
        raise TypeError(f"expected str, got: {address!r}")
    return address


def to_mqcore(address: str, kind: str = "connect", ipv6: bool = True) -> str:
    """The URL for bind() and connect(). `ipv6`: IPV6 is set. A port that no peer can have, in
    connect(), becomes 0."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        raise make(Errno.EINVAL, f"{address!r} is no address (addr={address!r})")
    if scheme in OVER_IP:
        source, semicolon, place = rest.rpartition(";")
        source = _host(source) if ":" not in source.replace("]:", "") else source
        return f"{scheme}://{source}{semicolon}{_host_port(place, kind, ipv6)}"
    if scheme not in VERBATIM:
        return address
    if (scheme, kind, rest) == ("ipc", "connect", "*"):
        rest = "./*"    # a file of this name
    return f"{scheme}://{quote(rest, safe=PLAIN)}"


def _host_port(place: str, kind: str, ipv6: bool) -> str:
    """host:port[/path]. libzmq takes what is behind the last colon for the port."""
    place, slash, path = place.partition("/")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return f"{place}{slash}{path}"      # without a port
    host = _host(host)
    if host == "*" and kind == "bind" and not ipv6:
        host = "0.0.0.0"
    number = PORTS[kind].match(port)
    if number is not None:
        value = int(number[1]) % 65536
        if value or kind == "connect" or int(number[1]) == 0:
            port = str(value)
    return f"{host}:{port}{slash}{path}"


def _host(host: str) -> str:
    """IPv6 in brackets, IPv4 in four numbers, nothing else in brackets."""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if ":" in host:
        return f"[{host}]"
    if host[:1].isdigit():
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            try:
                return socket.inet_ntoa(socket.inet_aton(host))
            except OSError:     # a name that begins with a digit
                pass
    return host


def never(url: str) -> bool:
    """Whether this URL of to_mqcore() is one that connect() never reaches."""
    scheme, _, rest = url.partition("://")
    return scheme == "tcp" and rest.partition("/")[0].endswith(":0")


def from_mqcore(url: str) -> str:
    """What LAST_ENDPOINT says."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{unquote(rest)}" if scheme in VERBATIM else url
