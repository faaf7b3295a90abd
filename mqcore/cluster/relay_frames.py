"""The relay protocol of Iris, v1.0-draft2, as frames: bytes in, frames out, no I/O.

    varint   base-128 groups, the lowest first, the high bit says that more follow (uint64)
    bool     00 or 01
    bin      a varint, then so many bytes
    str      a bin that holds UTF-8

A packet is an opcode and its fields, without a length around it. What an opcode carries depends on
the direction: `FROM_BINDING` and `FROM_RELAY` are the two tables. docs/inside/cluster.md has them
as text.

The original takes whatever length a peer announces. Here every field has a limit, and a decoder
holds at most one packet that is within its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mqcore.cluster.errors import ClusterError

VERSION = "v1.0-draft2"
CLIENT_MAGIC = "iris-client-magic"
RELAY_MAGIC = "iris-relay-magic"
PORT = 55555
CHUNK = 65536           # bytes of a tunnel's chunk, at most
MAX_NAME = 1024         # bytes of a cluster, topic, magic or version
MAX_TEXT = 64 << 10     # bytes of a reason or a fault
MAX_BODY = 16 << 20     # bytes of a message, a request or a reply


class MalformedPacket(ClusterError):
    """The other side sent bytes that are no packet of the relay protocol."""

    code = "malformed_packet"
    hint = "the connection is closed; check that a binding of Iris v1 is at the other end"


class Cut(Exception):
    """More bytes are needed: at least `args[0]` in all."""


# -- fields --------------------------------------------------------------------------------------

class Reader:
    """Takes fields out of a buffer, from `at` on."""

    __slots__ = ("at", "data", "limit")

    def __init__(self, data: bytearray, limit: int) -> None:
        self.data = data
        self.limit = limit      # of a body, bytes
        self.at = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            if self.at >= len(self.data):
                raise Cut(self.at + 1)
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise MalformedPacket("a varint of more than 10 bytes")
        if value >> 64:
            raise MalformedPacket("a varint of more than 64 bits")
        return value

    def flag(self) -> bool:
        if self.at >= len(self.data):
            raise Cut(self.at + 1)
        byte = self.data[self.at]
        if byte > 1:
            raise MalformedPacket(f"a bool must be 00 or 01, not {byte:02x}")
        self.at += 1
        return bool(byte)

    def sized(self, limit: int) -> bytes:
        size = self.varint()
        if size > limit:
            raise MalformedPacket(f"a field of {size} bytes, {limit} is the limit")
        end = self.at + size
        if end > len(self.data):
            raise Cut(end)
        value = bytes(self.data[self.at:end])
        self.at = end
        return value

    def body(self) -> bytes:
        return self.sized(self.limit)

    def chunk(self) -> bytes:
        return self.sized(CHUNK)

    def text(self, limit: int) -> str:
        try:
            return self.sized(limit).decode()
        except UnicodeDecodeError:
            raise MalformedPacket("a text that is not UTF-8") from None

    def name(self) -> str:
        return self.text(MAX_NAME)

    def reason(self) -> str:
        return self.text(MAX_TEXT)

    def outcome(self) -> bytes | str:
        """The answer, or a fault as str."""
        return self.body() if self.flag() else self.reason()

    def late(self) -> bytes | str | None:
        """The answer, a fault, or None for a time-out."""
        return None if self.flag() else self.outcome()

    def confirmed(self) -> int | None:
        """The chunk limit, or None for a time-out."""
        return None if self.flag() else self.varint()


def varint(value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} does not fit in 64 bits")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bin(value: bytes) -> bytes:
    return varint(len(value)) + value


def _text(value: str) -> bytes:
    return _bin(value.encode())


def _outcome(value: bytes | str) -> bytes:
    return b"\0" + _text(value) if isinstance(value, str) else b"\1" + _bin(value)


def _late(value: bytes | str | None) -> bytes:
    return b"\1" if value is None else b"\0" + _outcome(value)


def _confirmed(value: int | None) -> bytes:
    return b"\1" if value is None else b"\0" + varint(value)


# kind of a field: how to write it; Reader has a method of the same name to read it
WRITERS: dict[str, Callable[[Any], bytes]] = {
    "varint": varint, "body": _bin, "chunk": _bin, "name": _text, "reason": _text,
    "outcome": _outcome, "late": _late, "confirmed": _confirmed}


# -- frames --------------------------------------------------------------------------------------

class Hello(NamedTuple):
    """A binding begins. `cluster` is the service it is a member of, "" for a plain client."""

    magic: str
    version: str
    cluster: str


class Welcome(NamedTuple):
    """The relay takes the binding."""

    magic: str
    version: str


class Deny(NamedTuple):
    """The relay does not take the binding, and closes."""

    magic: str
    reason: str


class Close(NamedTuple):
    """The binding ends."""


class Closed(NamedTuple):
    """The relay ends; "" if all was finished."""

    reason: str


class Broadcast(NamedTuple):
    """To all members of a cluster."""

    cluster: str
    body: bytes


class Broadcasted(NamedTuple):
    """A broadcast to the binding's cluster."""

    body: bytes


class Request(NamedTuple):
    """To one member of a cluster. `timeout` in milliseconds."""

    id: int
    cluster: str
    body: bytes
    timeout: int


class Requested(NamedTuple):
    """A request to the binding's cluster. The relay numbers these itself."""

    id: int
    body: bytes
    timeout: int


class Reply(NamedTuple):
    """The binding answers a request: bytes, or a fault as str."""

    id: int
    outcome: bytes | str


class Replied(NamedTuple):
    """The answer to a request of the binding's; None: it timed out."""

    id: int
    outcome: bytes | str | None


class Subscribe(NamedTuple):
    """The binding wants a topic."""

    topic: str


class Unsubscribe(NamedTuple):
    """The binding wants the topic no longer."""

    topic: str


class Publish(NamedTuple):
    """An event of a topic, either way."""

    topic: str
    body: bytes


class TunnelInit(NamedTuple):
    """The binding wants a tunnel to a member of a cluster. `timeout` in milliseconds, 0: none."""

    id: int
    cluster: str
    timeout: int


class TunnelOffer(NamedTuple):
    """A tunnel to the binding's cluster, numbered by the relay until the binding names it."""

    build: int
    chunk: int


class TunnelConfirm(NamedTuple):
    """The binding takes a tunnel and gives it its id."""

    build: int
    id: int


class TunnelResult(NamedTuple):
    """The tunnel that the binding wanted is there; None: it timed out."""

    id: int
    chunk: int | None


class TunnelAllow(NamedTuple):
    """The receiver takes so many bytes more, either way."""

    id: int
    size: int


class TunnelTransfer(NamedTuple):
    """A piece of a message, either way. `size`: of the whole message in its first piece, else 0."""

    id: int
    size: int
    chunk: bytes


class TunnelClose(NamedTuple):
    """The binding ends a tunnel."""

    id: int


class TunnelClosed(NamedTuple):
    """The tunnel has ended; "" if by either side's will."""

    id: int
    reason: str


Table = dict[int, tuple[type[Any], tuple[str, ...]]]

FROM_BINDING: Table = {
    0x00: (Hello, ("name", "name", "name")),
    0x02: (Close, ()),
    0x03: (Broadcast, ("name", "body")),
    0x04: (Request, ("varint", "name", "body", "varint")),
    0x05: (Reply, ("varint", "outcome")),
    0x06: (Subscribe, ("name",)),
    0x07: (Unsubscribe, ("name",)),
    0x08: (Publish, ("name", "body")),
    0x09: (TunnelInit, ("varint", "name", "varint")),
    0x0A: (TunnelConfirm, ("varint", "varint")),
    0x0B: (TunnelAllow, ("varint", "varint")),
    0x0C: (TunnelTransfer, ("varint", "varint", "chunk")),
    0x0D: (TunnelClose, ("varint",)),
}
FROM_RELAY: Table = {
    0x00: (Welcome, ("name", "name")),
    0x01: (Deny, ("name", "reason")),
    0x02: (Closed, ("reason",)),
    0x03: (Broadcasted, ("body",)),
    0x04: (Requested, ("varint", "body", "varint")),
    0x05: (Replied, ("varint", "late")),
    0x08: (Publish, ("name", "body")),
    0x09: (TunnelOffer, ("varint", "varint")),
    0x0A: (TunnelResult, ("varint", "confirmed")),
    0x0B: (TunnelAllow, ("varint", "varint")),
    0x0C: (TunnelTransfer, ("varint", "varint", "chunk")),
    0x0D: (TunnelClosed, ("varint", "reason")),
}
_OPCODES = {kind: (op, fields) for table in (FROM_BINDING, FROM_RELAY)
            for op, (kind, fields) in table.items()}


def encode(frame: Any) -> bytes:
    """The packet of a frame. Raises ValueError for a number that is no uint64."""
    op, kinds = _OPCODES[type(frame)]
    return b"".join((bytes([op]), *(WRITERS[kind](value)
                                    for kind, value in zip(kinds, frame, strict=True))))


class Decoder:
    """Frames out of a stream, however it is cut. After MalformedPacket it is of no more use.

    Args:
        table: FROM_BINDING or FROM_RELAY, by the sender.
        limit: of a body, bytes.
    """

    def __init__(self, table: Table, limit: int = MAX_BODY) -> None:
        self._table = table
        self._limit = limit
        self._data = bytearray()
        self._needed = 1        # bytes before it is worth looking

    def __len__(self) -> int:
        """Bytes that wait for the rest of their packet."""
        return len(self._data)

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yields the frames that are complete. Raises MalformedPacket."""
        self._data += data
        while len(self._data) >= self._needed:
            reader = Reader(self._data, self._limit)
            try:
                frame = self._frame(reader)
            except Cut as cut:
                self._needed = cut.args[0]
                return
            del self._data[:reader.at]
            self._needed = 1
            yield frame

    def _frame(self, reader: Reader) -> Any:
        op = reader.data[0]
        reader.at = 1
        row = self._table.get(op)
        if row is None:
            raise MalformedPacket(f"opcode {op:02x} is not allowed here")
        kind, fields = row
        return kind(*[getattr(reader, field)() for field in fields])
