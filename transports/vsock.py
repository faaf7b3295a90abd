"""vsock://cid:port: between a virtual machine and its host (vsock(7)), without a network.

cid: a number, or `host` (2), `local` (1, this machine), `hypervisor` (0); for bind() also `*`: all
of this machine. port: 1 to 4294967294; for bind() 0 or `*` takes a free one.

The URL of a socket bound to `*` has the machine's own CID, under which its host reaches it, or
`local` on a machine without one. A guest can reach its host but no other guest. The kernel ignores
send_buffer here: the receiver's recv_buffer limits the data in flight.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import re
import struct

from mqcore.base.native import socket
from mqcore.errors import AddressError, BindError
from mqcore.spi.transport import Listening, Options, StreamTransport, start_connect

# linux/vm_sockets.h, with the numbers for systems without vsock
FAMILY: int = getattr(socket, "AF_VSOCK", 40)
ANY = 0xFFFFFFFF  # VMADDR_CID_ANY, VMADDR_PORT_ANY
NAMES = {"hypervisor": 0, "local": 1, "host": 2}
BUFFER_SIZE, BUFFER_MAX_SIZE = 0, 2  # SO_VM_SOCKETS_...
GET_LOCAL_CID = 0x7B9  # IOCTL_VM_SOCKETS_...
NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def parse(address: str, role: str) -> tuple[int, int]:
    """(cid, port), or AddressError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port:
        raise AddressError("a port is missing", position=len(address), hint="write cid:port")
    return _cid(host, role), _port(port, len(host) + 1, role)


def _cid(text: str, role: str) -> int:
    if text in NAMES:
        return NAMES[text]
    if text == "*":
        if role == "connect":
            raise AddressError("* is only for bind()",
                               hint="connect to a number, local or host")
        return ANY
    if not NUMBER.fullmatch(text) or int(text) >= ANY:
        raise AddressError(f"{text!r} is not a CID" if text else "the CID is missing",
                           hint="use a number below 4294967295, or local, host, hypervisor")
    return int(text)


def _port(text: str, at: int, role: str) -> int:
    if text in ("0", "*") and role == "bind":
        return ANY
    if not NUMBER.fullmatch(text) or not 0 < int(text) < ANY:
        raise AddressError(f"{text!r} is not a port (1 to 4294967294)", position=at,
                           hint="use the URL that bind() returned" if text in ("0", "*") else None)
    return int(text)


def _new(options: Options) -> socket.socket:
    sock = socket.socket(FAMILY, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        transport.tune(sock, options)
    except OSError:
        sock.close()
        raise
    return sock


def _own_cid() -> int:
    """This machine's CID as its host knows it; `local` if it has none."""
    with contextlib.suppress(OSError), open("/dev/vsock", "rb") as device:
        cid: int = struct.unpack("I", fcntl.ioctl(device, GET_LOCAL_CID, bytes(4)))[0]
        if cid != ANY:
            return cid
    return NAMES["local"]


class Vsock(StreamTransport):
    scheme = "vsock"
    doc = "between virtual machines and their host"
    capabilities = frozenset({"wildcard", "network"})
    gaps = {"pid": "the peer is on another machine"}

    def unavailable(self) -> str:
        """Why this system does not support vsock; "" if it does."""
        try:
            _new({}).close()
        except OSError as error:
            return f"this kernel has no vsock ({error.strerror})"
        return ""

    def check(self, address: str, role: str) -> None:
        parse(address, role)

    def resolve(self, address: str, options: Options) -> list[tuple[int, int]]:
        return [parse(address, "connect")]

    def listen(self, address: str, options: Options) -> Listening:
        where = f"cannot listen on vsock://{address}"
        try:
            sock = _new(options)
        except OSError as error:
            hint = "this kernel has no vsock" if error.errno == errno.EAFNOSUPPORT else None
            raise BindError.of(error.errno or errno.EINVAL, where, hint) from None
        try:
            sock.bind(parse(address, "bind"))
            sock.listen(options.get("backlog", 1024))
            cid, port = sock.getsockname()
        except OSError as error:
            sock.close()
            hint = "this machine has no such CID" if error.errno == errno.EADDRNOTAVAIL else None
            raise BindError.of(error.errno or errno.EINVAL, where, hint) from None
        return Listening((sock,), f"{_own_cid() if cid == ANY else cid}:{port}")

    def connect(self, target: tuple[int, int], options: Options) -> socket.socket:
        sock = _new(options)
        try:
            start_connect(sock, target)
        except OSError:
            sock.close()
            raise
        return sock

    def finish(self, sock: socket.socket) -> int:
        failed = super().finish(sock)
        # without a listener the other side resets the connection
        return errno.ECONNREFUSED if failed == errno.ECONNRESET else failed

    def tune(self, sock: socket.socket, options: Options) -> None:
        size = options.get("recv_buffer")
        if size:
            for name in (BUFFER_MAX_SIZE, BUFFER_SIZE):
                sock.setsockopt(FAMILY, name, size)

    def names(self, sock: socket.socket) -> tuple[str, str]:
        result = []
        for ask in (sock.getsockname, sock.getpeername):
            try:
                cid, port = ask()
                result.append(f"vsock://{cid}:{port}")
            except OSError:
                result.append("")
        return result[0], result[1]


transport = Vsock()
