"""A ZMTP peer made of a plain socket: says exactly the bytes a test wants, and hears them one by
one.

Old versions and broken peers are made from it; the bytes are those of tests/vectors.json.
"""

import json
import socket
import struct
from pathlib import Path
from urllib.parse import unquote

VECTORS = {v["name"]: bytes.fromhex(v["hex"])
           for v in json.loads(Path(__file__).parents[1].joinpath("vectors.json").read_text())
           if set(v["hex"]) <= set("0123456789abcdef")}
GREETING = VECTORS["zmtp31_greeting_full_null"]
GREETING_30 = GREETING[:11] + b"\0" + GREETING[12:]
SIGNATURE = GREETING[:10]
NUMBERS = {"PAIR": 0, "PUB": 1, "SUB": 2, "REQ": 3, "REP": 4, "DEALER": 5, "ROUTER": 6, "PULL": 7,
           "PUSH": 8, "XPUB": 9, "XSUB": 10, "RADIO": 14,
           "DISH": 15}
PEER_OF = {"pair": "PAIR", "req": "REP", "rep": "REQ", "dealer": "DEALER", "router": "DEALER",
           "push": "PULL", "pull": "PUSH", "pub": "SUB", "sub": "PUB", "xpub": "SUB", "xsub": "PUB",
           "radio": "DISH", "dish": "RADIO"}
MORE, LONG, COMMAND = 1, 2, 4


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) > 255:
        return bytes((flags | LONG,)) + struct.pack(">Q", len(body)) + body
    return bytes((flags, len(body))) + body


def message(*parts: bytes) -> bytes:
    return b"".join(frame(p, MORE if i + 1 < len(parts) else 0) for i, p in enumerate(parts))


def command(name: bytes, data: bytes = b"") -> bytes:
    return frame(bytes((len(name),)) + name + data, COMMAND)


def prop(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + struct.pack(">I", len(value)) + value


def ready(kind: str, identity: bytes | None = None) -> bytes:
    data = prop(b"Socket-Type", kind.encode())
    if identity is not None:
        data += prop(b"Identity", identity)
    return command(b"READY", data)


def frame1(body: bytes, more: bool = False) -> bytes:
    """A ZMTP 1.0 frame."""
    n = len(body) + 1
    head = bytes((n,)) if n < 255 else b"\xff" + struct.pack(">Q", n)
    return head + bytes((int(more),)) + body


class RawPeer:
    """One stream. Everything has a time limit; `hear` raises EOFError when the other side ends."""

    def __init__(self, sock: socket.socket, limit: float = 10.0) -> None:
        self.sock = sock
        self.sock.settimeout(limit)
        self.held = b""

    @classmethod
    def connect(cls, url: str, **kw) -> "RawPeer":
        return cls(dial(url), **kw)

    def say(self, data: bytes) -> None:
        self.sock.sendall(data)

    def hear(self, n: int) -> bytes:
        while len(self.held) < n:
            got = self.sock.recv(65536)
            if not got:
                raise EOFError(self.held)
            self.held += got
        out, self.held = self.held[:n], self.held[n:]
        return out

    def frame(self) -> tuple[int, bytes]:
        flags = self.hear(1)[0]
        n = struct.unpack(">Q", self.hear(8))[0] if flags & LONG else self.hear(1)[0]
        return flags, self.hear(n)

    def parts(self) -> list[bytes]:
        """One message; commands in between are passed over."""
        out = []
        while True:
            flags, body = self.frame()
            if flags & COMMAND:
                continue
            out.append(body)
            if not flags & MORE:
                return out

    def frame1(self) -> tuple[bool, bytes]:
        n = self.hear(1)[0]
        if n == 255:
            n = struct.unpack(">Q", self.hear(8))[0]
        more = self.hear(1)[0] & 1
        return bool(more), self.hear(n - 1)

    def shake(self, kind: str, identity: bytes | None = None, greeting: bytes = GREETING) -> None:
        self.say(greeting)
        self.hear(64)
        self.say(ready(kind, identity))
        flags, body = self.frame()
        assert flags & COMMAND and body.startswith(b"\5READY"), body

    def ended(self) -> bool:
        """Reads to the end: True when the other side closes, or breaks, within the limit."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> "RawPeer":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def dial(url: str) -> socket.socket:
    if url.startswith("tcp://"):
        host, port = url[6:].rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=10)
    path = unquote(url[6:])
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect("\0" + path[1:] if path.startswith("@") else path)
    return s


class RawListener:
    """Where one of ours connects to."""

    def __init__(self) -> None:
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.sock.settimeout(10)
        self.url = f"tcp://127.0.0.1:{self.sock.getsockname()[1]}"

    def accept(self, **kw) -> RawPeer:
        return RawPeer(self.sock.accept()[0], **kw)

    def __enter__(self) -> "RawListener":
        return self

    def __exit__(self, *_) -> None:
        self.sock.close()
