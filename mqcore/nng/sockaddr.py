"""Addresses of listeners and pipes as objects. Numbers are in network byte order, as in nng's
structures."""

from __future__ import annotations

import socket
import struct
from typing import ClassVar
from urllib.parse import quote, unquote_to_bytes

from mqcore.nng.address import HOST_PORT


class SockAddr:
    """Base of all; itself where the address is not known."""

    type_to_str: ClassVar[dict[int, str]] = {
        0: "Unspecified", 1: "inproc", 2: "ipc", 3: "inet", 4: "inetv6", 5: "zerotier",
        6: "abstract"}
    _family: ClassVar[int] = 0

    @property
    def family(self) -> int:
        return self._family

    @property
    def family_as_str(self) -> str:
        return self.type_to_str[self._family]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self if self._family else self.family_as_str}>"


class _Named(SockAddr):
    name_bytes: bytes = b""

    def __init__(self, name: bytes) -> None:
        self.name_bytes = name

    @property
    def name(self) -> str:
        return self.name_bytes.decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return self.name


class InprocAddr(_Named):
    """inproc://name, as a whole."""

    _family = 1


class AbstractAddr(_Named):
    """A name in Linux's abstract namespace."""

    _family = 6

    def __str__(self) -> str:
        return f"abstract://{quote(self.name_bytes)}"


class IPCAddr(SockAddr):
    """The path of a Unix socket."""

    _family = 2
    path_bytes: bytes = b""

    def __init__(self, path: bytes) -> None:
        self.path_bytes = path

    @property
    def path(self) -> str:
        return self.path_bytes.decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return self.path


class InAddr(SockAddr):
    """IPv4: `addr` and `port` are the four and two bytes as they lie in memory."""

    _family = 3
    addr: int = 0
    port: int = 0

    def __init__(self, host: str, port: int) -> None:
        self.addr = struct.unpack("=I", socket.inet_aton(host))[0]
        self.port = socket.htons(port)

    def __str__(self) -> str:
        return f"{socket.inet_ntoa(struct.pack('=I', self.addr))}:{socket.ntohs(self.port)}"


class In6Addr(SockAddr):
    """IPv6: `addr` is the 16 bytes."""

    _family = 4
    addr: bytes = bytes(16)
    port: int = 0

    def __init__(self, host: str, port: int) -> None:
        self.addr = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        self.port = socket.htons(port)

    def __str__(self) -> str:
        host = socket.inet_ntop(socket.AF_INET6, self.addr)
        return f"[{host}]:{socket.ntohs(self.port)}"


def sockaddr_of(url: str) -> SockAddr:
    """Of one of mqcore's URLs with numbers in it; SockAddr() for what nng has no address for."""
    scheme, _, rest = url.partition("://")
    if scheme == "inproc":
        return InprocAddr(b"inproc://" + unquote_to_bytes(rest))
    if scheme == "ipc":
        raw = unquote_to_bytes(rest)
        return AbstractAddr(raw[1:]) if raw[:1] == b"@" else IPCAddr(raw)
    found = HOST_PORT.fullmatch(rest)
    if found is None or not found["port"]:
        return SockAddr()
    host, port = found["host"], int(found["port"][1:])
    try:
        if host.startswith("["):
            return In6Addr(host[1:-1], port)
        return InAddr(host, port)
    except OSError:  # a name
        return SockAddr()
