"""A WebSocket peer made of a plain socket: frames and ZWS 2.0 as the RFCs have them (6455, 45)."""

import socket
from urllib.parse import urlsplit

from rawzmtp import RawPeer

KEY = bytes.fromhex("37fa213d")  # of the examples in RFC 6455, section 5.7
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MORE, COMMAND = 1, 2


def masked(data, key=KEY):
    n = len(data)
    mask = (key * (n // 4 + 1))[:n]
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(n, "big")


def ws(payload, opcode=BINARY, key=None, fin=True):
    """A WebSocket frame; of a client if it has a key."""
    bit = 0x80 if key else 0
    n = len(payload)
    head = bytes([opcode | (0x80 if fin else 0)])
    if n < 126:
        head += bytes([bit | n])
    elif n < 65536:
        head += bytes([bit | 126]) + n.to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + n.to_bytes(8, "big")
    return head + (key + masked(payload, key) if key else payload)


def unws(data):
    """(first byte, payload) of each frame of a client or server."""
    frames, at = [], 0
    while at < len(data):
        size, head = data[at + 1] & 127, 2
        if size > 125:
            head = 4 if size == 126 else 10
            size = int.from_bytes(data[at + 2 : at + head], "big")
        key = b"\0\0\0\0"
        if data[at + 1] & 128:
            key = data[at + head : at + head + 4]
            head += 4
        frames.append((data[at], masked(data[at + head : at + head + size], key)))
        at += head + size
    assert at == len(data)
    return frames


def ready(pattern):
    name = pattern.upper().encode()
    return b"\x02\x05READY\x0bSocket-Type" + len(name).to_bytes(4, "big") + name


def request(path="/", offers="ZWS2.0/NULL", host="127.0.0.1", more=""):
    return (f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {offers}\r\n"
            f"Sec-WebSocket-Version: 13\r\n{more}\r\n").encode()


class RawWs(RawPeer):
    """A client's side."""

    @classmethod
    def dial(cls, url, **kw):
        """Connected, nothing said."""
        parts = urlsplit(url)
        peer = cls(socket.create_connection((parts.hostname, parts.port), timeout=10), **kw)
        peer.path = parts.path or "/"
        return peer

    def upgrade(self, **kw):
        self.say(request(self.path, **kw))
        return self.head()

    def head(self):
        """An answer's head, and its body if it says how long."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.hear(1)
        size = [int(line.split(b":")[1]) for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")]
        return head + self.hear(sum(size))

    def shake(self, pattern):
        assert self.upgrade().startswith(b"HTTP/1.1 101 ")
        self.send(ready(pattern))
        opcode, payload = self.ws_frame()
        assert opcode == 0x82 and payload.startswith(b"\x02\x05READY")

    def ws_frame(self):
        """(first byte, payload)."""
        head = self.hear(2)
        size = head[1] & 127
        if size > 125:
            size = int.from_bytes(self.hear(2 if size == 126 else 8), "big")
        key = self.hear(4) if head[1] & 128 else bytes(4)
        return head[0], masked(self.hear(size), key)

    def send(self, payload, opcode=BINARY, fin=True, key=KEY):
        self.say(ws(payload, opcode, key, fin))

    def put(self, *parts):
        for i, part in enumerate(parts):
            self.send(bytes([i < len(parts) - 1]) + part)

    def parts(self):
        out = []
        while True:
            opcode, payload = self.ws_frame()
            assert opcode == 0x82, (opcode, payload)
            out.append(payload[1:])
            if not payload[0] & MORE:
                return out
