"""seqpacket://NAME: messages as packets of a Unix socket (SOCK_SEQPACKET) with an abstract name.

This half knows addresses and makes descriptors; the other one, in Cython, moves messages.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Generator

from mqcore_seqpacket_engine import new_engine

from mqcore import AddressError, BindError
from mqcore.spi.capability import STREAM
from mqcore.spi.filter import Refused
from mqcore.spi.message_engine import NativeEngine
from mqcore.spi.transport import (
    Listening,
    MessageTransport,
    Options,
    set_buffers,
    start_connect,
)

NAME_MAX = 90  # bytes; a socket address has 108
PREFIX = b"\0seqpacket/"
HELLO = b"mqcore seqpacket 1"  # each side's first packet


class Seqpacket(MessageTransport):
    scheme = "seqpacket"
    doc = "each message a packet, between processes of one machine"
    capabilities = STREAM - {"raw", "large", "handshake"} | {"pid"}
    gaps = {"large": "a message must fit into the socket's send buffer (send_buffer=)",
            "handshake": "both sides must know who is what"}

    def check(self, address: str, role: str) -> None:
        if len(address.encode()) > NAME_MAX:
            raise AddressError(f"a name has at most {NAME_MAX} bytes", position=NAME_MAX)

    def listen(self, address: str, options: Options) -> Listening:
        sock = new_socket(options)
        try:
            sock.bind(PREFIX + address.encode())
            sock.listen(options["backlog"])
        except OSError as error:
            sock.close()
            raise BindError.of(error.errno, f"cannot listen on seqpacket://{address}") from None
        return Listening((sock,), address)

    def connect(self, target: str, options: Options) -> socket.socket:
        sock = new_socket(options)
        try:
            start_connect(sock, PREFIX + target.encode())
        except OSError:
            sock.close()
            raise
        return sock

    def tune(self, sock: socket.socket, options: Options) -> None:
        set_buffers(sock, options)

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        """Both sides send a hello; then the engine takes over."""
        sock.send(HELLO)  # the first packet always fits
        while True:
            try:
                said = sock.recv(len(HELLO) + 1)
                break
            except BlockingIOError:
                yield "read"
        if not said:
            raise ConnectionResetError("the peer left before it said hello")
        if said != HELLO:
            raise Refused(f"the peer says {said!r} where {HELLO!r} belongs: is it mqcore-seqpacket "
                          "of this version?")
        return new_engine(sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))

    def names(self, sock: socket.socket) -> tuple[str, str]:
        """A connecting socket has no name of its own: it goes by the one that it connected to."""
        found = []
        for ask in (sock.getsockname, sock.getpeername):
            try:
                name = ask() or b""
            except OSError:
                name = b""
            found.append(name[len(PREFIX):].decode())
        ours, theirs = found
        return f"seqpacket://{ours or theirs}", f"seqpacket://{theirs or ours}"

    def pid(self, sock: socket.socket) -> int | None:
        try:
            data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
        return struct.unpack("3i", data)[0] or None


def new_socket(options: Options) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX,
                         socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    set_buffers(sock, options)
    return sock


transport = Seqpacket()
