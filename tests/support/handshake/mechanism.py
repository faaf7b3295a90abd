"""What a security mechanism is: a sans-I/O exchange of commands, then perhaps a wrapping of frames.

A mechanism never sees the socket, the clock or the greeting. Its life:
1. it is made, one per connection, with our own properties;
2. `start` and `command` take the peer's command bodies and return ours, until `done`;
3. afterwards `properties` says what the peer told, and if `wraps` is true each frame goes through
   `wrap` on its way out and through `unwrap` on its way in.

To add one, derive from `Mechanism`, give it a `name`, and put the class in `MECHANISMS` of the
package or hand it to `Handshake`. Nothing else changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

HANDSHAKE_MAX = 64 * 1024


class Refused(Exception):
    """The peer did what the protocol or our configuration forbids. The text says what."""


def printable(data: bytes, limit: int = 63) -> str:
    """A peer's bytes as text that is safe to show, cut to what fits a reason."""
    return "".join(chr(c) if 32 <= c < 127 else "?" for c in data[:limit])


def command(name: bytes, data: bytes = b"") -> bytes:
    """The body of a command."""
    return bytes([len(name)]) + name + data


def split_command(body: bytes) -> tuple[bytes, bytes]:
    """Name and data. An empty name if the body is not a command."""
    if not body or len(body) <= body[0]:
        return b"", body
    return body[1:1 + body[0]], body[1 + body[0]:]


def pack_properties(items: Iterable[tuple[bytes, bytes]]) -> bytes:
    """(name, value) pairs as READY carries them."""
    return b"".join(bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
                    for name, value in items)


def unpack_properties(data: bytes) -> list[tuple[bytes, bytes]]:
    """The pairs in their order, duplicates too. Refused if the bytes do not come out even."""
    items = []
    at = 0
    while at < len(data):
        value_at = at + 1 + data[at] + 4
        size = int.from_bytes(data[value_at - 4:value_at], "big")
        if value_at + size > len(data):
            raise Refused("the peer's READY is malformed")
        items.append((data[at + 1:value_at - 4], data[value_at:value_at + size]))
        at = value_at + size
    return items


class Mechanism(ABC):
    """One side of one connection's security exchange.

    properties: ours, as pairs for READY or what stands in its place.
    """

    name: ClassVar[bytes]                   # as in the greeting, at most 20 bytes
    as_server: ClassVar[bool] = False       # the greeting's byte of that name
    wraps: ClassVar[bool] = False           # frames go through wrap and unwrap after the handshake
    old_peers: ClassVar[bool] = False       # peers before 3.0, which know no mechanism, are served

    def __init__(self, properties: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.ours = list(properties)
        self.theirs: list[tuple[bytes, bytes]] = []
        self.done = False

    @abstractmethod
    def start(self) -> list[bytes]:
        """Both greetings are complete: the command bodies to send at once."""

    @abstractmethod
    def command(self, body: bytes) -> list[bytes]:
        """The peer's next handshake command; the bodies to answer with. Sets `done` when the
        exchange is complete. Raises Refused."""

    def wrap(self, flags: int, body: bytes) -> tuple[int, bytes]:
        """A frame of ours before it is encoded, as what flags and body it travels."""
        return flags, body

    def unwrap(self, flags: int, body: bytes) -> tuple[int, bytes]:
        """The same for a frame of the peer's. Raises Refused."""
        return flags, body

    @property
    def properties(self) -> Mapping[str, bytes]:
        """What the peer told, names in lower case; of duplicates the first."""
        found: dict[str, bytes] = {}
        for name, value in self.theirs:
            found.setdefault(name.decode("latin-1").lower(), value)
        return found

    @staticmethod
    def check_error(body: bytes) -> None:
        """Raise Refused if the command is a well-formed ERROR."""
        name, data = split_command(body)
        if name == b"ERROR" and data and data[0] == len(data) - 1:
            raise Refused(f"the peer refused: {printable(data[1:])}")
