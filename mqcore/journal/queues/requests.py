"""Requests to a queue server, and its answers, as types with bounds. QUEUES.md describes them.

`decode` returns a request or raises Malformed, whatever the bytes are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

from mqcore.errors import NotSupported, UsageError
from mqcore.journal.queues.options import USUAL

try:
    import msgspec
except ImportError:
    raise NotSupported("queues need the package msgspec",
                       hint="pip install mqcore[journal]") from None

VERSION: Literal[1] = 1
ROOM = 8 << 20          # bytes of jobs in one answer
OK, ERROR = 0, 1
TEXT = 200              # characters of a peer's text that an error or the log repeats

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Priority = Annotated[int, msgspec.Meta(ge=1, le=16)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]


class Request(msgspec.Struct, array_like=True, gc=False):
    """What all requests have in common. The answer repeats the number."""

    v: Literal[1]
    number: Number


class Put(Request, tag="put", array_like=True, gc=False):
    """`wait`: seconds that it may wait for space."""

    queue: Name
    producer: Number
    sequence: Number
    floor: Number
    wait: Seconds
    bodies: list[bytes]
    priority: Priority = USUAL
    delay: Seconds = 0.0
    ttl: Seconds = 0.0
    headers: bytes | None = None


class Get(Request, tag="get", array_like=True, gc=False):
    queue: Name
    wait: Seconds
    most: Positive
    room: Positive


class Cancel(Request, tag="cancel", array_like=True, gc=False):
    """The request `which` of this connection waits no longer."""

    which: Number


class Ack(Request, tag="ack", array_like=True, gc=False):
    ids: list[Number]
    attempts: list[Number]


class Reject(Request, tag="reject", array_like=True, gc=False):
    ids: list[Number]
    attempts: list[Number]
    requeue: bool
    delay: Seconds
    untouched: bool


class Extend(Request, tag="extend", array_like=True, gc=False):
    ids: list[Number]
    attempts: list[Number]
    seconds: Seconds | None


class Names(Request, tag="list", array_like=True, gc=False): ...


class Stats(Request, tag="stats", array_like=True, gc=False):
    queue: Name


class Purge(Request, tag="purge", array_like=True, gc=False):
    queue: Name


class Peek(Request, tag="peek", array_like=True, gc=False):
    queue: Name
    most: Positive


class Configure(Request, tag="configure", array_like=True, gc=False):
    queue: Name
    options: dict[str, bool | int | float | str | None]


KINDS = (Put, Get, Cancel, Ack, Reject, Extend, Names, Stats, Purge, Peek, Configure)
_REQUEST: Any = msgspec.msgpack.Decoder(Union[KINDS])  # noqa: UP007
_ANY: Any = msgspec.msgpack.Decoder(list)
_HEADERS: Any = msgspec.msgpack.Decoder(list[tuple[str, bytes]])
encode = msgspec.msgpack.Encoder().encode
replace = msgspec.structs.replace
BAD = (ValueError, RecursionError)


class Malformed(UsageError):
    """These bytes are not a request. `number` is set where it can be read."""

    fields = {"number": None}
    number: int | None


def decode(parts: Any, limit: int) -> Request:
    """The request in a message. Raises Malformed."""
    if len(parts) != 1 or len(parts[0]) > limit:
        raise Malformed(f"a request is one part of at most {limit} bytes")
    try:
        request: Request = _REQUEST.decode(parts[0])
    except BAD as error:
        raise _malformed(parts[0], error) from None
    ids = getattr(request, "ids", None)
    if ids is not None and len(ids) != len(request.attempts):   # type: ignore[attr-defined]
        raise Malformed("a request with ids has as many attempts", number=request.number)
    return request


def _malformed(raw: Any, error: Exception) -> Malformed:
    number = None
    text = shown(str(error)) if isinstance(error, ValueError) else "it is nested too deeply"
    try:
        found = _ANY.decode(raw)
    except BAD:
        found = []
    if len(found) > 2 and type(found[2]) is int and 0 <= found[2] < 1 << 62:
        number = found[2]
    if len(found) > 1 and type(found[1]) is int and found[1] != VERSION:
        return Malformed(f"version {found[1]} of the queues' protocol", number=number,
                         hint=f"this server speaks version {VERSION}")
    return Malformed(f"the request cannot be read: {text}", number=number)


def decode_answer(raw: Any) -> list[Any]:
    """[number, OK or ERROR, what]. ValueError, whatever the bytes are."""
    try:
        found: list[Any] = _ANY.decode(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if len(found) != 3 or found[1] not in (OK, ERROR):
        raise ValueError("no answer")
    return found


def headers_of(packed: bytes | None) -> list[tuple[str, bytes]]:
    """The headers of a job. Malformed, whatever the bytes are: a consumer and a dead letter need
    them long after the put."""
    try:
        found: list[tuple[str, bytes]] = _HEADERS.decode(packed) if packed else []
        return found
    except BAD as error:
        raise Malformed(f"the headers of a job cannot be read: {shown(str(error))}",
                        hint="they are a list of pairs, a text and bytes") from None


def op(request: Request) -> str:
    return str(request.__struct_config__.tag)


def shown(text: str) -> str:
    """A peer's text, safe for a terminal and of bounded length."""
    safe = ascii(text)[1:-1]
    return safe if len(safe) <= TEXT else safe[:TEXT] + "..."
