"""Sealed datagrams: nothing in them can be read, changed, or used twice.

    salt (12) | nonce (12) | sealed: number (8) | milliseconds (8) | packet | tag (16)

The cipher is ChaCha20-Poly1305 (RFC 8439).

Each process draws a random salt. HMAC-SHA256(gossip key, salt) is the key of its session, the nonce
is random for each datagram, and both together make 192 random bits, so that neither a restart nor a
cloned machine uses a nonce twice. An observer sees random bytes, without key ids and node ids.

Replay: the numbers of a session only count up, and the receiver keeps a window of the last 1,024
(as RFC 4303, section 3.4.3). It keeps windows for a bounded number of sessions. A session it has no
window for must show a time within 5 minutes of the receiver's clock, so that recordings of old
sessions are worthless. Once a session is known, clocks do not matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from struct import Struct

from mqcore.cluster.crypto import Aead, InvalidTag, aead_of, hmac_sha256

SALT = 12
NONCE = 12
TAG = 16
OVERHEAD = SALT + NONCE + 16 + TAG
WINDOW = 1024           # numbers that may overtake each other
MAX_SESSIONS = 8192     # windows kept; the one that was idle longest goes
TOLERANCE = 300.0       # seconds between two clocks

_HEAD = Struct(">QQ")


class Refused(Exception):
    """The datagram does not count; `args[0]` is the reason, a key of `Membership.refused`."""


class Window:
    """Which numbers of a session were seen."""

    __slots__ = ("aead", "highest", "key", "seen")

    def __init__(self, key: bytes, salt: bytes) -> None:
        self.key = key
        self.aead = aead_of(hmac_sha256(key, salt))
        self.highest = -1
        self.seen = 0           # bit n: highest - n

    def take(self, number: int) -> bool:
        """Whether this number is new."""
        ahead = number - self.highest
        if ahead > 0:
            self.seen = (self.seen << min(ahead, WINDOW) | 1) & ((1 << WINDOW) - 1)
            self.highest = number
            return True
        if -ahead >= WINDOW or self.seen >> -ahead & 1:
            return False
        self.seen |= 1 << -ahead
        return True


class Seal:
    """Seals with the first key, opens with any. Not thread-safe.

    Args:
        keys: `Key.gossip_keys()`, 1 to 8 of 32 bytes.
        wall: seconds since 1970.
        random: returns that many unpredictable bytes.
    """

    def __init__(self, keys: Sequence[bytes], wall: Callable[[], float],
                 random: Callable[[int], bytes] = os.urandom) -> None:
        self._wall = wall
        self._random = random
        self._windows: dict[bytes, Window] = {}     # in the order of their last use
        self.replace_keys(keys)

    @property
    def sessions(self) -> int:
        """How many windows are kept."""
        return len(self._windows)

    def replace_keys(self, keys: Sequence[bytes]) -> None:
        """Begins a new session under the first key; the windows of sessions under keys that are
        gone go with them."""
        self._keys = list(keys)
        self._windows = {salt: window for salt, window in self._windows.items()
                         if window.key in self._keys}
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._salt = self._random(SALT)
        self._aead = aead_of(hmac_sha256(self._keys[0], self._salt))
        self._number = 0

    def seal(self, packet: bytes) -> bytes:
        """The datagram, OVERHEAD bytes longer than the packet."""
        if os.getpid() != self._pid:
            self._begin()       # a forked child must not go on with its parent's numbers
        nonce = self._random(NONCE)
        head = _HEAD.pack(self._number, int(self._wall() * 1000))
        self._number += 1
        return self._salt + nonce + self._aead.encrypt(nonce, head + packet, None)

    def open(self, data: bytes) -> bytes:
        """The packet. Raises Refused: "short", "seal", "clock" or "replay"."""
        if len(data) < OVERHEAD:
            raise Refused("short")
        salt = data[:SALT]
        window = self._windows.pop(salt, None)
        if window is not None:
            self._windows[salt] = window        # used last
            plain = _open(window.aead, data)
            if plain is None:
                raise Refused("seal")
            number, _ = _HEAD.unpack_from(plain)
        else:
            window, plain = self._find(salt, data)
            number, sent = _HEAD.unpack_from(plain)
            if abs(self._wall() - sent / 1000) > TOLERANCE:
                raise Refused("clock")
            if len(self._windows) >= MAX_SESSIONS:
                del self._windows[next(iter(self._windows))]
            self._windows[salt] = window
        if not window.take(number):
            raise Refused("replay")
        return plain[_HEAD.size:]

    def _find(self, salt: bytes, data: bytes) -> tuple[Window, bytes]:
        """Nothing is kept before the datagram has opened."""
        for key in self._keys:
            window = Window(key, salt)
            plain = _open(window.aead, data)
            if plain is not None:
                return window, plain
        raise Refused("seal")


def _open(aead: Aead, data: bytes) -> bytes | None:
    try:
        return aead.decrypt(data[SALT:SALT + NONCE], data[SALT + NONCE:], None)
    except InvalidTag:
        return None
