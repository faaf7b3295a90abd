"""The bytes of ZMTP 3.1 (RFC 37) for tests that speak on a descriptor themselves: greeting with the
NULL mechanism, READY, frames."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from mqcore.testing.suite import LIMIT

GREETING = (b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0"
            + bytes(31))
COMMAND, LONG = 4, 2


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return bytes((flags | LONG,)) + struct.pack(">Q", len(body)) + body
    return bytes((flags, len(body))) + body


def ready(kind: str) -> bytes:
    """The READY command of a socket of this type: "PUSH"."""
    value = kind.encode()
    data = b"\x0bSocket-Type" + struct.pack(">I", len(value)) + value
    return frame(b"\x05READY" + data, COMMAND)


class Wire:
    """A connected descriptor, and the socket of ours at its other end."""

    def __init__(self, sock: socket.socket, victim: Any) -> None:
        self.sock = sock
        self.victim = victim
        sock.settimeout(LIMIT)

    def say(self, *data: bytes) -> None:
        self.sock.sendall(b"".join(data))

    def shake(self, kind: str) -> None:
        """The whole handshake; what the other side said is passed over."""
        self.say(GREETING, ready(kind))
        self.victim.wait_peers(1, LIMIT)

    def half_close(self) -> None:
        """We say nothing more, and still listen."""
        self.sock.shutdown(socket.SHUT_WR)

    def ended(self) -> bool:
        """Reads to the end: True when the other side closes, or breaks, in time."""
        end = time.monotonic() + LIMIT
        try:
            while self.sock.recv(65536):
                if time.monotonic() > end:
                    return False
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True
