"""What members tell each other: msgpack arrays with types and bounds, decoded by msgspec.

A datagram holds one packet. Each packet carries `updates`, the gossip that rides along (Das et al.
2002, section 4.1). A link carries `Digest` and `Delta` (see `exchange.py`).

`decode_packet` and `decode_exchange` return a message or raise `Malformed`, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Any, Union

from mqcore.errors import NotSupported

try:
    import msgspec
except ImportError:
    raise NotSupported("a cluster needs the package msgspec",
                       hint="pip install mqcore[cluster]") from None

MAX_INLINE = 800        # bytes of a record in a datagram; the metadata of longer ones take a link
MAX_META = 16 << 10     # bytes of metadata
MAX_UPDATE = 1000       # bytes of an encoded update, which must fit in any packet
MAX_INCARNATION = 1 << 62
MAX_UPDATES = 64        # in a packet; 1,200 bytes hold fewer
MAX_TABLE = 1 << 14     # entries of a digest, records of a delta
MAX_EXCHANGE = 16 << 20     # bytes of a message over a link

Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Incarnation = Annotated[int, msgspec.Meta(ge=0, lt=MAX_INCARNATION)]
Sequence32 = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Host = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Port = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
Short = Annotated[str, msgspec.Meta(max_length=128)]


class State(IntEnum):
    """What is believed of a member. Of the same incarnation, the higher state wins."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


class Malformed(Exception):
    """The bytes are no message."""


class Record(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """A member as it describes itself. The owner alone writes it, with a higher incarnation each
    time."""

    id: Id
    incarnation: Incarnation
    host: Host                      # where it takes datagrams
    port: Port
    link: Short = ""                # the URL of its links
    zone: Short = ""
    meta: Annotated[bytes, msgspec.Meta(max_length=MAX_META)] | None = b""
    # None: too long for a datagram


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """`by` says that the member is in that state, as of that incarnation."""

    id: Id
    incarnation: Incarnation
    state: State
    by: Id


Update = Union[Record, Claim]       # noqa: UP007 a value, which msgspec reads
Updates = Annotated[tuple[Update, ...], msgspec.Meta(max_length=MAX_UPDATES)]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """Are you there? `target` is None if the sender knows the address alone, as of a seed."""

    sender: Id
    number: Sequence32
    target: Id | None
    updates: Updates


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The answer to the ping or the request with that number. `subject` is the member that is
    there, `known` whether it has a record of the one that asked."""

    sender: Id
    number: Sequence32
    subject: Id
    known: bool
    updates: Updates


class Request(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """Ping the target for me, and answer with an ack or, in good time, with a nack."""

    sender: Id
    number: Sequence32
    target: Id
    updates: Updates


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The target has not answered me yet (Dadgar et al. 2017, section IV-A)."""

    sender: Id
    number: Sequence32
    updates: Updates


class Gossip(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Updates alone."""

    sender: Id
    updates: Updates


Packet = Union[Ping, Ack, Request, Nack, Gossip]    # noqa: UP007 a value


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member in a digest. `incarnation` is 0 if the sender lacks the record."""

    id: Id
    incarnation: Incarnation
    state: State


class Digest(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """All that the sender knows, in short. The answer is a Delta."""

    sender: Id
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MAX_TABLE)]


class Delta(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """What the receiver lacks, and the ids of what the sender lacks."""

    sender: Id
    records: Annotated[tuple[Record, ...], msgspec.Meta(max_length=MAX_TABLE)]
    claims: Annotated[tuple[Claim, ...], msgspec.Meta(max_length=MAX_TABLE)]
    wanted: Annotated[tuple[Id, ...], msgspec.Meta(max_length=MAX_TABLE)]


Exchange = Union[Digest, Delta]     # noqa: UP007 a value

_ENCODER = msgspec.msgpack.Encoder()
_PACKETS: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Packet)
_EXCHANGES: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Exchange)
_TAGS = {kind: kind.__struct_config__.tag for kind in (Ping, Ack, Request, Nack, Gossip)}

encode = _ENCODER.encode
replace = msgspec.structs.replace


def encode_update(update: Update) -> bytes:
    """An update as a datagram carries it: long metadata stay behind."""
    data = _ENCODER.encode(update)
    if isinstance(update, Record) and len(data) > MAX_INLINE:
        data = _ENCODER.encode(replace(update, meta=None))
    return data


def encode_packet(kind: type[Packet], fields: tuple[Any, ...], updates: Sequence[bytes]) -> bytes:
    """A packet of that kind, from its fields but the last and updates that are encoded."""
    return _ENCODER.encode((_TAGS[kind], *fields, [msgspec.Raw(one) for one in updates]))


def decode_packet(data: bytes) -> Packet:
    """The packet in a datagram. Raises Malformed."""
    return _decode(_PACKETS, data)      # type: ignore[no-any-return]


def decode_exchange(data: bytes) -> Exchange:
    """The message in a link's bytes. Raises Malformed."""
    if len(data) > MAX_EXCHANGE:
        raise Malformed(f"{len(data)} bytes, {MAX_EXCHANGE} is the limit")
    return _decode(_EXCHANGES, data)    # type: ignore[no-any-return]


def _decode(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Malformed(str(error)[:200]) from None
