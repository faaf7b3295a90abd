"""What a page may ask: one JSON object of at most LARGEST bytes, whose field `op` names its kind.

Everything that a page chooses has a bound here. A request that breaks one is refused with the
reason. An answer is a JSON object with the same `op`, or `failure` with `code` and `text`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

LARGEST = 256 << 10     # bytes of a request; messages to send may be large
PAGE_ROWS = 50          # rows in one answer
LONGEST_BODY = 128 << 10    # characters of a message to send

Number = Annotated[int, Meta(ge=0, lt=1 << 53)]
Code = Literal["malformed", "refused", "failed"]
Word = Annotated[str, Meta(max_length=64)]


class Refused(Exception):
    """A request is well-formed, and the console does not do it. `text` is for people."""

    code: Code = "refused"

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text = f"{text}; {hint}" if hint else text


class Malformed(Refused):
    """A request is not one of a page."""

    code = "malformed"


class Request(msgspec.Struct, tag_field="op", forbid_unknown_fields=True):
    """What all requests have in common."""


class Table(Request):
    """A page of a table. find: words that a row must have. sort: a column. page: counts from 0."""

    find: Annotated[str, Meta(max_length=200)] = ""
    sort: Word = ""
    reverse: bool = False
    page: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class Totals(Request, tag="totals"):
    """The sums over all sockets, and their last minute."""


class Sockets(Table, tag="sockets"):
    """The sockets, busiest first."""


class Peers(Table, tag="peers"):
    """The peers, those with the longest queues first. context, socket: of this socket alone."""

    context: Word = ""
    socket: Number = 0


class One(Request, tag="socket"):
    """One socket: its endpoints with their errors, and drops by reason."""

    context: Word
    socket: Number


class Explain(Request, tag="explain"):
    """What Socket.explain() says of one socket."""

    context: Word
    socket: Number


class Map(Request, tag="map"):
    """Who is connected to whom: the busiest connections."""


class Journals(Table, tag="journals"):
    """Partitions of journals with their consumer groups, those that lag furthest first."""


class Spark(Table, tag="spark"):
    """Structured Streaming queries, by their checkpoints."""


class Events(Table, tag="events"):
    """What happened to connections, latest first."""


class Components(Table, tag="components"):
    """Devices, journals, servers, queues, cluster nodes and bridges of the programs."""


class Send(Request, tag="send"):
    """Send one message to a socket that listens. hex: the parts are hexadecimal digits. id: tells
    the message from others, since a page repeats a request when its connection breaks."""

    context: Word
    socket: Number
    parts: Annotated[list[Annotated[str, Meta(max_length=LONGEST_BODY)]],
                     Meta(min_length=1, max_length=16)]
    hex: bool = False
    id: Word = ""


class Watch(Request, tag="watch"):
    """Subscribe to a publisher. The answer's `watch` is the number for Watched."""

    context: Word
    socket: Number
    topic: Annotated[str, Meta(max_length=200)] = ""


class Watched(Request, tag="watched"):
    """The messages that a watch has received after number `since`. Not asking ends it."""

    watch: Number
    since: Number = 0


class Unwatch(Request, tag="unwatch"):
    """End a watch."""

    watch: Number


DECODER = msgspec.json.Decoder(Totals | Sockets | Peers | One | Explain | Map | Journals | Spark
                                | Events | Components | Send | Watch | Watched | Unwatch)
encode = msgspec.json.Encoder().encode


def decode(data: bytes) -> Any:
    """The request in these bytes. Malformed says what is wrong with them."""
    if len(data) > LARGEST:
        raise Malformed(f"a request has {len(data)} bytes; {LARGEST} are allowed")
    try:
        return DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"not a request: {error}") from None


def failure(code: Code, text: str) -> dict[str, str]:
    return {"op": "failure", "code": code, "text": text}
