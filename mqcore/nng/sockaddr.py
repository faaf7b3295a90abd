"""Addresses of listeners and pipes as objects over nng's `nng_sockaddr`, or what looks like it:
`s_family`, and the member for that family. Numbers are in network byte order."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import quote, unquote, unquote_to_bytes

from mqcore.base.native import socket
from mqcore.nng import lib
from mqcore.nng.address import HOST_PORT

UNKNOWN = (SimpleNamespace(s_family=lib.NNG_AF_UNSPEC),)


class SockAddr:
    """Base of all; itself where the address is not known. `ffi_sock_addr[0]` is the structure."""

    type_to_str: ClassVar[dict[int, str]] = {
        lib.NNG_AF_UNSPEC: "Unspecified", lib.NNG_AF_INPROC: "inproc", lib.NNG_AF_IPC: "ipc",
        lib.NNG_AF_INET: "inet", lib.NNG_AF_INET6: "inetv6", lib.NNG_AF_ZT: "zerotier",
        lib.NNG_AF_ABSTRACT: "abstract"}
    _member: ClassVar[str] = ""

    def __init__(self, ffi_sock_addr: Any = UNKNOWN) -> None:
        self._sock_addr = ffi_sock_addr
        self._mem: Any = getattr(self.sock_addr, self._member) if self._member else None

    @property
    def sock_addr(self) -> Any:
        """The structure."""
        return self._sock_addr[0]

    @property
    def family(self) -> int:
        return int(self.sock_addr.s_family)

    @property
    def family_as_str(self) -> str:
        return self.type_to_str[self.family]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self if self._member else self.family_as_str}>"


class InprocAddr(SockAddr):
    """inproc://name, as a whole."""

    _member = "s_inproc"

    @property
    def name_bytes(self) -> bytes:
        return bytes(self._mem.sa_name)

    @property
    def name(self) -> str:
        return self.name_bytes.decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return self.name


class AbstractAddr(SockAddr):
    """A name in Linux's abstract namespace: any bytes."""

    _member = "s_abstract"

    @property
    def name_bytes(self) -> bytes:
        return bytes(self._mem.sa_name[:self._mem.sa_len])

    @property
    def name(self) -> str:
        try:
            return unquote(self.name_bytes.decode())
        except UnicodeDecodeError:
            return repr(self.name_bytes)

    def __str__(self) -> str:
        return f"abstract://{quote(self.name_bytes)}"


class IPCAddr(SockAddr):
    """The path of a Unix socket."""

    _member = "s_ipc"

    @property
    def path_bytes(self) -> bytes:
        return bytes(self._mem.sa_path)

    @property
    def path(self) -> str:
        return self.path_bytes.decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return self.path


class InAddr(SockAddr):
    """IPv4: `addr` and `port` are the four and two bytes as they lie in memory."""

    _member = "s_in"

    @property
    def addr(self) -> int:
        return int(self._mem.sa_addr)

    @property
    def port(self) -> int:
        return int(self._mem.sa_port)

    def __str__(self) -> str:
        return f"{socket.inet_ntoa(struct.pack('=I', self.addr))}:{socket.ntohs(self.port)}"


class In6Addr(SockAddr):
    """IPv6: `addr` is the 16 bytes."""

    _member = "s_in6"

    @property
    def addr(self) -> bytes:
        return bytes(self._mem.sa_addr)

    @property
    def port(self) -> int:
        return int(self._mem.sa_port)

    def __str__(self) -> str:
        return f"[{socket.inet_ntop(socket.AF_INET6, self.addr)}]:{socket.ntohs(self.port)}"


def _nng_sockaddr(sa: Any) -> SockAddr:
    """The object for a structure, by its family."""
    kinds: dict[int, type[SockAddr]] = {
        lib.NNG_AF_INPROC: InprocAddr, lib.NNG_AF_IPC: IPCAddr, lib.NNG_AF_INET: InAddr,
        lib.NNG_AF_INET6: In6Addr, lib.NNG_AF_ABSTRACT: AbstractAddr}
    return kinds.get(sa[0].s_family, SockAddr)(sa)


def _made(family: int, member: str, **fields: Any) -> SockAddr:
    return _nng_sockaddr((SimpleNamespace(
        s_family=family, **{member: SimpleNamespace(sa_family=family, **fields)}),))


def sockaddr_of(url: str) -> SockAddr:
    """Of one of mqcore's URLs with numbers in it; SockAddr() for what nng has no address for."""
    scheme, _, rest = url.partition("://")
    if scheme == "inproc":
        return _made(lib.NNG_AF_INPROC, "s_inproc", sa_name=b"inproc://" + unquote_to_bytes(rest))
    if scheme == "ipc":
        raw = unquote_to_bytes(rest)
        if raw[:1] == b"@":
            return _made(lib.NNG_AF_ABSTRACT, "s_abstract", sa_len=len(raw) - 1, sa_name=raw[1:])
        return _made(lib.NNG_AF_IPC, "s_ipc", sa_path=raw)
    found = HOST_PORT.fullmatch(rest)
    if found is None or not found["port"]:
        return SockAddr()
    host, port = found["host"], int(found["port"][1:])
    try:
        if host.startswith("["):
            raw = socket.inet_pton(socket.AF_INET6, host[1:-1].partition("%")[0])
            return _made(lib.NNG_AF_INET6, "s_in6", sa_addr=raw, sa_port=socket.htons(port))
        number = struct.unpack("=I", socket.inet_aton(host))[0]
        return _made(lib.NNG_AF_INET, "s_in", sa_addr=number, sa_port=socket.htons(port))
    except OSError:  # a name
        return SockAddr()
