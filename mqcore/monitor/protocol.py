"""The monitor's messages, version 1, as typed structs. PROTOCOL.md describes them.

A request and its answer are one message part each: a JSON object in UTF-8 whose field "op" names
its kind. An event has two parts: the topic, and a JSON object. Decoders ignore fields that they do
not know, so that a later version may add some.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from mqcore.errors import Error, UsageError

VERSION = 1
LARGEST_REQUEST = 4096      # bytes
LARGEST_ANSWER = 64 << 20   # bytes, for clients
LONGEST_EXPLANATION = 64 << 10  # characters
MOST_PEERS = 20_000         # in one snapshot
MOST_SPANS = 4096           # in one answer
MOST_COMPONENTS = 1000      # in one answer
MOST_COUNTS = 200           # of one component
TRACE_ID = re.compile(r"[0-9a-f]{32}")
EVENTS = b"event."          # topics begin with it; the kind of event follows


#: what fits into 64 bits; Python's own have no end, and arithmetic with floats would fail
Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Id = Annotated[str, msgspec.Meta(max_length=64)]


class Malformed(Error):
    """A message is not one of this protocol."""

    code = "malformed"


class Struct(msgspec.Struct, omit_defaults=True):
    """What all have in common: a field that has its default is left out."""


# -- requests --------------------------------------------------------------------------------------


class Request(Struct, tag_field="op"):
    """`v` is the version that the client speaks."""

    v: int = VERSION


class Hello(Request, tag="hello"):
    """Asks who answers here: a Welcome."""


class Look(Request, tag="snapshot"):
    """Asks for a Snapshot. peers: with the peers. most: peers at most; no snapshot has more than
    20,000. socket: peers of this socket alone, and no other socket; 0 (default): all sockets."""

    peers: bool = True
    most: int = MOST_PEERS
    socket: int = 0


class Explain(Request, tag="explain"):
    """Asks for one socket's state in words: an Explanation."""

    socket: int = 0


class Trace(Request, tag="trace"):
    """Asks for the spans of one trace that the process keeps: Spans."""

    trace: str = ""


class ListComponents(Request, tag="components"):
    """Asks what the process runs beside its sockets: Components."""


# -- facts -----------------------------------------------------------------------------------------


class Process(Struct):
    """The process that answers. `started`: seconds since the epoch."""

    pid: Number
    host: str
    program: str
    uid: Number
    started: float
    python: str
    mqcore: str


class ContextFacts(Struct):
    """A context. `id` is unique, and new for each context. `handles`: native objects alive."""

    id: Id
    name: str
    io_threads: Number = 1
    sockets: Number = 0
    handles: dict[str, Number] = {}


class EndpointFacts(Struct):
    """An endpoint, as mqcore.Endpoint has it. `of`: the resolver's URL that it belongs to."""

    url: str
    given: str
    kind: str
    state: str
    error: str = ""
    of: str = ""


class Counters(Struct):
    """The counters of mqcore.PeerStats, by the same names. A counter that is 0 is left out."""

    offered: Number = 0
    written: Number = 0
    queued_out: Number = 0
    read: Number = 0
    delivered: Number = 0
    queued_in: Number = 0
    bytes_out: Number = 0
    bytes_in: Number = 0
    bytes_unread: Number = 0
    bytes_unacked: Number = 0
    writes: Number = 0
    reads: Number = 0
    bounced: Number = 0
    lost: Number = 0
    dropped_out: dict[str, Number] = {}
    dropped_in: dict[str, Number] = {}


class PeerFacts(Counters):
    """A connected peer. `id` is unique in its socket. `socket`: inproc, the number of the peer's
    socket in this context. `rtt` in seconds, where the protocol measures it."""

    id: Number = 0
    address: str = ""
    local: str = ""
    endpoint: str = ""
    wire: str = ""
    pattern: str = ""
    routing_id: str = ""
    user: str | None = None
    pid: Number | None = None
    socket: Number | None = None
    since: float = 0.0
    rtt: float | None = None


Bucket = Annotated[int, msgspec.Meta(ge=0, le=311)]


class LatencyFacts(Struct):
    """A histogram of durations. `sum` in ns; `counts`: the number of messages in each bucket that
    is not empty, by the bucket's number. PROTOCOL.md says where the buckets end."""

    sum: Count = 0
    counts: dict[Bucket, Count] = {}


class SocketFacts(Struct):
    """A socket, with the counters of mqcore.Stats. `gone`: the sum over all departed peers.
    `queued_out`, `queued_in`: of all connected peers. `latencies`: by the names of
    Socket.histograms(); empty if the context measures none."""

    number: Number
    pattern: str
    send_hwm: Number | None = None
    recv_hwm: Number | None = None
    sent: Number = 0
    received: Number = 0
    waiting: Number = 0
    unmatched: Number = 0
    resent: Number = 0
    reconnects: Number = 0
    failed_handshakes: Number = 0
    broken_peers: Number = 0
    dropped: dict[str, Number] = {}
    gone: Counters = msgspec.field(default_factory=Counters)
    endpoints: list[EndpointFacts] = []
    connected: Number = 0
    queued_out: Number = 0
    queued_in: Number = 0
    bytes_out: Number = 0
    bytes_in: Number = 0
    lost: dict[str, Number] = {}
    peers: list[PeerFacts] = []
    latencies: dict[str, LatencyFacts] = {}


class SpanFacts(Struct):
    """A span, as mqcore.trace.SpanRecord has it. `start`: seconds since the epoch, by the clock of
    its machine. `duration` in seconds. `parent`: "" for the first span of a trace."""

    span: str
    name: str
    kind: str
    start: float
    duration: float
    parent: str = ""
    error: str = ""


class ComponentFacts(Struct):
    """A device, journal, queue, server, cluster node or bridge. `state`: "running", or what it
    does instead. `error`: what is wrong with it, or "". `counts`: its counters by name; a counter
    that is 0 is left out."""

    kind: str
    name: str
    state: str = "running"
    error: str = ""
    counts: dict[str, Number | float] = {}


# -- answers ---------------------------------------------------------------------------------------


class Answer(Struct, tag_field="op"):
    v: Number


class Welcome(Answer, tag="welcome"):
    """`events`: the URL at which events are published."""

    process: Process
    context: ContextFacts
    events: str


class Snapshot(Answer, tag="snapshot"):
    """The state at `at` (seconds since the epoch); `clock` is the same moment on a clock that is
    never set, for rates. `left_out`: peers that are not listed, because they are more than
    `most` or because clients ask the process too often."""

    at: float
    clock: float
    process: Process
    context: ContextFacts
    events: str
    sockets: list[SocketFacts] = []
    left_out: Number = 0


class Explanation(Answer, tag="explanation"):
    """What mqcore.Socket.explain() says. "" if the socket does not exist."""

    socket: Number
    text: str


class Spans(Answer, tag="spans"):
    """The spans of a trace that a process keeps, oldest first. The contexts of a process share
    them. `overwritten`: spans of any trace that gave way to later ones."""

    process: Process
    trace: str
    spans: list[SpanFacts] = []
    overwritten: Number = 0


class Components(Answer, tag="component_list"):
    """What a process runs beside its sockets. The contexts of a process share them. `left_out`: how
    many are not listed."""

    process: Process
    components: list[ComponentFacts] = []
    left_out: Number = 0


class Failure(Answer, tag="failure"):
    """The request was not answered. `code`: "malformed", "version", "busy" (ask again
    later) or "failed"."""

    code: str
    text: str


class EventFacts(Struct):
    """The body of an event. `number` counts the context's events from 1. A reader that finds a gap
    has lost events. `lost`: events before this one that were not published, because there were too
    many."""

    v: Number
    at: float
    context: Id
    socket: Number
    pattern: str
    kind: str
    number: Number = 0
    endpoint: str = ""
    peer: Number | None = None
    address: str = ""
    reason: str = ""
    lost: Number = 0


encode = msgspec.json.Encoder().encode
Asked = Hello | Look | Explain | Trace | ListComponents
_request = msgspec.json.Decoder(Asked)
_answer = msgspec.json.Decoder(Welcome | Snapshot | Explanation | Spans | Components | Failure)
_event = msgspec.json.Decoder(EventFacts)


def decode_request(data: bytes) -> Asked:
    if len(data) > LARGEST_REQUEST:
        raise Malformed(f"a request has {len(data)} bytes; {LARGEST_REQUEST} are allowed", hint="")
    request = _decoded(_request, data)
    if isinstance(request, Look) and not 0 <= request.most <= 1_000_000:
        raise Malformed("most is 0 to 1000000", hint="")
    if isinstance(request, (Look, Explain)) and not 0 <= request.socket < 1 << 53:
        raise Malformed("a socket's number is 0 to 2**53 - 1", hint="")
    if isinstance(request, Trace) and not TRACE_ID.fullmatch(request.trace):
        raise Malformed("a trace's id has 32 digits of 0-9 and a-f", hint="")
    return request  # type: ignore[no-any-return]


def decode_answer(data: bytes) -> Any:
    """An answer, such as a Snapshot or a Failure. Malformed for anything else, and for a snapshot
    that has two sockets of one number: they would be one series of metrics with two values."""
    answer = _decoded(_answer, data)
    if isinstance(answer, Snapshot) \
            and len({facts.number for facts in answer.sockets}) < len(answer.sockets):
        raise Malformed("a snapshot lists a socket twice", hint="")
    return answer


def decode_event(data: bytes) -> EventFacts:
    return _decoded(_event, data)  # type: ignore[no-any-return]


def _decoded(decoder: Any, data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"not a message of the monitor's protocol: {error}",
                        hint="PROTOCOL.md of mqcore.monitor describes them") from None


def check_version(found: int) -> None:
    """A client's look at an answer: later versions may have changed what a field means."""
    if found != VERSION:
        raise UsageError(f"the monitor speaks version {found} of its protocol, this mqcore "
                         f"version {VERSION}", hint="use the mqcore of the monitored process")
