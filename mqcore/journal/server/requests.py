"""Requests to a journal server, as types with bounds. PROTOCOL.md describes the protocol.

`decode` returns a request or raises Malformed, whatever the bytes are. No number, text or nesting
that a peer can send raises anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union

from mqcore.errors import NotSupported, UsageError
from mqcore.journal.groups.roster import MOST
from mqcore.journal.server.codec import VERSION

try:
    import msgspec
except ImportError:
    raise NotSupported("a journal server needs the package msgspec",
                       hint="pip install mqcore[journal]") from None

REQUEST = 64 << 10      # the longest request, bytes
TEXT = 200              # characters of a peer's text that an error or the log repeats

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Partition = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Seconds = Annotated[float, msgspec.Meta(ge=-9e12, le=9e12)]     # as microseconds it fits 64 bits


class Request(msgspec.Struct, tag_field="op", gc=False):
    """What all requests have in common. `number` is the id, which the answer repeats."""

    number: Number = msgspec.field(name="id")


class OfPartition(Request, gc=False, kw_only=True):
    """`origin`: the journal that the reader has read so far, if it knows."""

    topic: Name
    partition: Partition
    origin: Annotated[str, msgspec.Meta(max_length=32)] | None = None


class List(Request, tag="list", gc=False): ...
class Ends(OfPartition, tag="ends", gc=False): ...
class Durable(OfPartition, tag="durable", gc=False): ...
class Groups(OfPartition, tag="groups", gc=False): ...
class Epochs(OfPartition, tag="epochs", gc=False): ...


class At(OfPartition, tag="at", gc=False):
    time: Seconds


class Size(OfPartition, tag="size", gc=False):
    start: Number
    stop: Number


class Read(OfPartition, tag="read", gc=False):
    offset: Number
    bytes: Number
    durable: bool = False
    compacted: bool = False


class Producers(OfPartition, tag="producers", gc=False):
    at: Number
    bytes: Number


class Committed(OfPartition, tag="committed", gc=False):
    group: Name


class Commit(OfPartition, tag="commit", gc=False):
    group: Name
    offset: Number
    token: Number | None = None
    expected: Number | None | Literal["any"] = "any"


class Beat(Request, tag="beat", gc=False):
    topic: Name
    group: Name
    member: Name
    session: Annotated[float, msgspec.Meta(ge=0.1, le=86400)]
    handling: Annotated[float, msgspec.Meta(ge=0.1, le=86400)]
    held: Annotated[list[tuple[Partition, Number]], msgspec.Meta(max_length=MOST)]
    seen: Number


class Members(Request, tag="members", gc=False):
    topic: Name
    group: Name


class Want(OfPartition, tag="want", gc=False):
    stream: Number
    offset: Number
    window: Number
    stop: Number | None = None
    durable: bool = False
    compacted: bool = False


class Stop(Request, tag="stop", gc=False):
    stream: Number


KINDS = (List, Ends, Durable, Groups, Epochs, At, Size, Read, Producers, Committed, Commit, Want,
         Stop, Beat, Members)
OPS = tuple(str(kind.__struct_config__.tag) for kind in KINDS)


def rows_of_list(rows: Sequence[Any]) -> bytes:
    """The answer to `list`: an array in JSON of arrays [topic, partition, id]."""
    found: bytes = msgspec.json.encode(rows)
    return found


class _Version(msgspec.Struct):
    v: int


class _Id(msgspec.Struct):
    id: Number


class _Op(msgspec.Struct):
    op: str


class _Stream(msgspec.Struct):
    stream: Number


_REQUEST: Any = msgspec.json.Decoder(Union[KINDS])  # noqa: UP007
_VERSION, _ID, _OP, _STREAM = (msgspec.json.Decoder(kind)
                               for kind in (_Version, _Id, _Op, _Stream))
BAD = (ValueError, RecursionError)      # msgspec's errors and UnicodeDecodeError are ValueErrors


class Malformed(UsageError):
    """These bytes are not a request. `number` and `stream` are set where they can be read."""

    fields = {"number": None, "stream": None}
    number: int | None
    stream: int | None


def decode(parts: Any) -> Request:
    """The request in a message. Raises Malformed."""
    if len(parts) != 1 or len(parts[0]) > REQUEST:
        raise Malformed(f"a request is one part of at most {REQUEST} bytes")
    raw = parts[0]
    version = _member(_VERSION, raw, "v")
    if version != VERSION:
        number, stream = _member(_ID, raw, "id"), _member(_STREAM, raw, "stream")
        if version is None:
            raise Malformed("a request is an object in JSON with v, id and op", number=number,
                            stream=stream)
        raise Malformed(f"version {shown(str(version))} of the journal's protocol", number=number,
                        stream=stream, hint=f"this server speaks version {VERSION}")
    try:
        request: Request = _REQUEST.decode(raw)
    except BAD as error:
        raise _malformed(raw, error) from None
    return request


def _malformed(raw: Any, error: Exception) -> Malformed:
    op = _member(_OP, raw, "op")
    text = shown(str(error)) if isinstance(error, ValueError) else "it is nested too deeply"
    if op is not None and op not in OPS:
        text = f"op {shown(op)!r} is none of this server's"
    elif op is not None:
        text = f"a request {op!r} cannot be read: {text}"
    return Malformed(text, number=_member(_ID, raw, "id"), stream=_member(_STREAM, raw, "stream"))


def _member(decoder: Any, raw: Any, name: str) -> Any:
    """One member of an object whose other members may be anything; None if it cannot be read."""
    try:
        return getattr(decoder.decode(raw), name)
    except BAD:
        return None


def op(request: Request) -> str:
    return str(request.__struct_config__.tag)


def shown(text: str) -> str:
    """A peer's text, safe for a terminal and of bounded length."""
    safe = ascii(text)[1:-1]
    return safe if len(safe) <= TEXT else safe[:TEXT] + "..."
