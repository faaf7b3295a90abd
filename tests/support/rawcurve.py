"""A CURVE peer by hand, over libsodium's plain calls: says what a test wants, true or forged.

It shares no code with the one that is tested. `Client` and `Server` make and read the commands'
bodies (RFC 26); frames and greetings are rawzmtp.py's.
"""

import ctypes
import os
import struct

import pytest
from rawzmtp import GREETING, prop

try:
    SODIUM = ctypes.CDLL("libsodium.so.23")
except OSError:
    pytest.skip("needs libsodium", allow_module_level=True)
SODIUM.sodium_init()


def greeting(mechanism: bytes, server: bool = False) -> bytes:
    return GREETING[:12] + mechanism.ljust(20, b"\0") + bytes([server]) + bytes(31)


def keypair() -> tuple[bytes, bytes]:
    public, secret = ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
    SODIUM.crypto_box_keypair(public, secret)
    return public.raw, secret.raw


def box(data: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    assert len(nonce) == 24
    out = ctypes.create_string_buffer(len(data) + 16)
    assert SODIUM.crypto_box_easy(out, data, ctypes.c_ulonglong(len(data)), nonce, public,
                                  secret) == 0
    return out.raw


def open_box(data: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    out = ctypes.create_string_buffer(max(len(data) - 16, 1))
    assert SODIUM.crypto_box_open_easy(out, data, ctypes.c_ulonglong(len(data)), nonce, public,
                                       secret) == 0, "it does not open"
    return out.raw[:len(data) - 16]


def number(n: int) -> bytes:
    return struct.pack(">Q", n)


class Side:
    """The traffic of either side, once `peer` (its key of this connection) is known."""

    mine = theirs = b""

    def __init__(self) -> None:
        self.public, self.secret = keypair()
        self.peer = b""
        self.count = 0

    def next(self) -> bytes:
        self.count += 1
        return number(self.count)

    def message(self, body: bytes, flags: int = 0, nonce: bytes = b"") -> bytes:
        nonce = nonce or self.next()
        return b"\7MESSAGE" + nonce + box(bytes([flags]) + body, b"CurveZMQMESSAGE" + self.mine
                                          + nonce, self.peer, self.secret)

    def read(self, body: bytes) -> tuple[int, bytes]:
        """Flags and body of a MESSAGE."""
        assert body[:8] == b"\7MESSAGE"
        data = open_box(body[16:], b"CurveZMQMESSAGE" + self.theirs + body[8:16], self.peer,
                        self.secret)
        return data[0], data[1:]


class Client(Side):
    """`own`: its long-term key pair; `server`: the server's public key."""

    mine, theirs = b"C", b"S"

    def __init__(self, own: tuple[bytes, bytes], server: bytes) -> None:
        super().__init__()
        self.own, self.server = own, server
        self.cookie = b""

    def hello(self) -> bytes:
        nonce = self.next()
        return (b"\5HELLO\1\0" + bytes(72) + self.public + nonce
                + box(bytes(64), b"CurveZMQHELLO---" + nonce, self.server, self.secret))

    def welcome(self, body: bytes) -> None:
        assert body[:8] == b"\7WELCOME" and len(body) == 168
        data = open_box(body[24:], b"WELCOME-" + body[8:24], self.server, self.secret)
        self.peer, self.cookie = data[:32], data[32:]

    def initiate(self, kind: str = "PUSH", *, vouched: bytes = b"", named: bytes = b"",
                 own: tuple[bytes, bytes] | None = None, cookie: bytes = b"",
                 nonce: bytes = b"", properties: bytes | None = None) -> bytes:
        """Whatever is given stands in for the true part: the key vouched for, the server named in
        the vouch, the long-term pair that signs it, the cookie, the nonce, the properties."""
        public, secret = own or self.own
        random = os.urandom(16)
        vouch = random + box((vouched or self.public) + (named or self.server),
                             b"VOUCH---" + random, self.peer, secret)
        nonce = nonce or self.next()
        text = prop(b"Socket-Type", kind.encode()) if properties is None else properties
        return (b"\x08INITIATE" + (cookie or self.cookie) + nonce
                + box(public + vouch + text, b"CurveZMQINITIATE" + nonce, self.peer, self.secret))

    def ready(self, body: bytes) -> bytes:
        assert body[:6] == b"\5READY", body[:20]
        return open_box(body[14:], b"CurveZMQREADY---" + body[6:14], self.peer, self.secret)


class Server(Side):
    """`own`: its long-term key pair."""

    mine, theirs = b"S", b"C"

    def __init__(self, own: tuple[bytes, bytes]) -> None:
        super().__init__()
        self.own = own
        self.cookie = os.urandom(96)      # ours alone to understand
        self.client = b""

    def hello(self, body: bytes) -> None:
        assert len(body) == 200 and body[:80] == b"\5HELLO\1\0" + bytes(72)
        self.peer = body[80:112]
        assert open_box(body[120:], b"CurveZMQHELLO---" + body[112:120], self.peer,
                        self.own[1]) == bytes(64)

    def welcome(self) -> bytes:
        random = os.urandom(16)
        return b"\7WELCOME" + random + box(self.public + self.cookie, b"WELCOME-" + random,
                                           self.peer, self.own[1])

    def initiate(self, body: bytes) -> bytes:
        """The properties; the vouch is looked at."""
        assert body[:9] == b"\x08INITIATE" and body[9:105] == self.cookie
        data = open_box(body[113:], b"CurveZMQINITIATE" + body[105:113], self.peer, self.secret)
        self.client = data[:32]
        assert open_box(data[48:128], b"VOUCH---" + data[32:48], self.client,
                        self.secret) == self.peer + self.own[0]
        return data[128:]

    def ready(self, kind: str = "PULL") -> bytes:
        nonce = self.next()
        return b"\5READY" + nonce + box(prop(b"Socket-Type", kind.encode()),
                                        b"CurveZMQREADY---" + nonce, self.peer, self.secret)


