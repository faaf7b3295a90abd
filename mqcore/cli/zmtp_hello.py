"""The first bytes of ZMTP without the engine, for `mq doctor`: greeting, READY, PING. It also
recognizes other protocols, SP with the socket's protocol.

It shares no code with the engine, so that it can report what the other side does when the engine
cannot. It is blocking, handles one connection, speaks ZMTP 3 with NULL, and recognizes 1.0 and 2.0.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass, field

VERSION_END = 11  # bytes of the greeting that a peer needs before it sends its mechanism
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
COMMAND, LONG = 4, 2
TYPES_2_0 = ("PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB")

# The type to announce to a peer so that it answers. None: it might send us a message that is meant
# for others, or give us its only place, so we leave after its READY.
HARMLESS = {
    "REP": "REQ",
    "ROUTER": "REQ",
    "PULL": "PUSH",
    "PUB": "SUB",
    "XPUB": "SUB",
    "SUB": "PUB",
    "XSUB": "PUB",
    "PUSH": None,
    "DEALER": None,
    "REQ": None,
    "PAIR": None,
}


SP_MAGIC = b"\0SP\0"
SP_TYPES = {  # by the number in the header: name, and the type that fits
    0x10: ("PAIR", "Pair"), 0x11: ("PAIR v1", "Pair1"), 0x20: ("PUB", "Sub"), 0x21: ("SUB", "Pub"),
    0x30: ("REQ", "Rep"), 0x31: ("REP", "Req"), 0x50: ("PUSH", "Pull"), 0x51: ("PULL", "Push"),
    0x62: ("SURVEYOR", "Respondent"), 0x63: ("RESPONDENT", "Surveyor"), 0x70: ("BUS", "Bus"),
}


class Silent(Exception):
    """The peer sent nothing more in time. `got` is what it sent before."""

    def __init__(self, got: bytes) -> None:
        super().__init__(f"{len(got)} bytes, then silence")
        self.got = got


class Left(Exception):
    """The peer closed the connection. `got` is what it sent before."""

    def __init__(self, got: bytes) -> None:
        super().__init__(f"{len(got)} bytes, then the end of the connection")
        self.got = got


class NotZmtp(Exception):
    """The data is not a ZMTP 3 greeting. The text says what it looks like."""


class SpPeer(Exception):
    """The peer speaks SP, the protocol of nanomsg and nng, in which both sides send at once."""

    def __init__(self, number: int) -> None:
        self.name, self.partner = SP_TYPES.get(number, (f"protocol {number:#x}", ""))
        super().__init__(f"an SP {self.name} socket (nanomsg, nng)")


@dataclass
class Greeting:
    version: tuple[int, int]
    mechanism: str
    seconds: float = 0.0


@dataclass
class Ready:
    properties: dict[str, bytes] = field(default_factory=dict)
    error: str = ""

    @property
    def pattern(self) -> str:
        return self.properties.get("Socket-Type", b"").decode("latin-1")


def read(sock: socket.socket, n: int, got: bytes = b"") -> bytes:
    """Read until n bytes have arrived. The socket's timeout applies to each piece."""
    while len(got) < n:
        try:
            piece = sock.recv(n - len(got))
        except TimeoutError:
            raise Silent(got) from None
        except ConnectionError:
            raise Left(got) from None
        if not piece:
            raise Left(got)
        got += piece
    return got


def looks_like(got: bytes) -> str:
    """Describe other protocols that often run on the wrong port."""
    for start, name in (
        (b"HTTP/", "an HTTP server"),
        (b"SSH-", "an SSH server"),
        (SP_MAGIC, "an SP (nanomsg) socket with an incomplete header"),
        (b"\x15\x03", "a TLS server"),
        (b"220 ", "a mail or FTP server"),
        (b"-ERR", "a Redis server"),
    ):
        if got.startswith(start):
            return name
    return f"something that says {got[:16]!r}"


def greet(sock: socket.socket) -> Greeting:
    """Exchange greetings. SpPeer, NotZmtp, Silent or Left if the peer sends none. Our mechanism
    goes last, because libzmq disconnects without a greeting if it rejects the mechanism."""
    sock.sendall(GREETING[:VERSION_END])
    head = read(sock, 1)
    if head != b"\xff":
        try:
            head = read(sock, 8, head)
            if head.startswith(SP_MAGIC):
                raise SpPeer(int.from_bytes(head[4:6], "big"))
            head = read(sock, 16, head)
        except (Silent, Left) as end:
            head = end.got
        raise NotZmtp(looks_like(head))
    head = read(sock, 11, head)
    if not head[9] & 1:
        raise NotZmtp("a ZMTP 1.0 peer (ZeroMQ 2.x)")
    if head[10] < 3:
        number = read(sock, 12, head)[11]
        name = TYPES_2_0[number] if number < len(TYPES_2_0) else f"type {number}"
        raise NotZmtp(f"a ZMTP 2.0 {name} socket (ZeroMQ 3.x)")
    whole = read(sock, 64, head)
    with contextlib.suppress(ConnectionError):  # it may have closed after its greeting
        sock.sendall(GREETING[VERSION_END:])
    return Greeting((whole[10], whole[11]), whole[12:32].rstrip(b"\0").decode("latin-1"))


def answers_http(sock: socket.socket) -> bool:
    """Whether it replies to an HTTP request. An HTTP server may be silent until then."""
    try:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return read(sock, 5) == b"HTTP/"
    except (Silent, Left, OSError):
        return False


def read_frame(sock: socket.socket) -> tuple[int, bytes]:
    flags, size = read(sock, 2)
    if flags & LONG:
        size = struct.unpack(">Q", read(sock, 8, bytes((size,))))[0]
    if size > 1 << 20:
        raise NotZmtp(f"a frame of {size} bytes where a command is expected")
    return flags, read(sock, size)


def command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    if len(body) > 255:
        return bytes((COMMAND | LONG,)) + struct.pack(">Q", len(body)) + body
    return bytes((COMMAND, len(body))) + body


def split(body: bytes) -> tuple[bytes, bytes]:
    return body[1 : 1 + body[0]] if body else b"", body[1 + body[0] :] if body else b""


def read_ready(sock: socket.socket) -> Ready:
    """The peer's READY. With NULL, peers send it without waiting for ours."""
    name, data = split(read_frame(sock)[1])
    if name == b"ERROR":
        return Ready(error=data[1:].decode("latin-1"))
    if name != b"READY":
        raise NotZmtp(f"a command {name!r} where READY is expected")
    properties: dict[str, bytes] = {}
    while data:
        key, data = data[1 : 1 + data[0]].decode("latin-1"), data[1 + data[0] :]
        size = int.from_bytes(data[:4], "big")
        properties.setdefault(key, data[4 : 4 + size])
        data = data[4 + size :]
    return Ready(properties)


def send_ready(sock: socket.socket, pattern: str) -> None:
    name = pattern.encode()
    data = b"\x0bSocket-Type" + len(name).to_bytes(4, "big") + name
    if pattern in ("REQ", "DEALER", "ROUTER"):
        data += b"\x08Identity" + bytes(4)
    sock.sendall(command(b"READY", data))


def ping(sock: socket.socket, context: bytes = b"mqdoctor") -> None:
    """Send PING and read up to its PONG."""
    sock.sendall(command(b"PING", bytes(2) + context))
    while True:
        flags, body = read_frame(sock)
        name, data = split(body)
        if flags & COMMAND and name == b"PONG" and data.startswith(context):
            return
