"""The frames that nodes exchange over a link, as types with bounds.

A frame is a msgpack array: its tag, then its fields in the order below. `decode` returns a frame or
raises MalformedFrame, whatever the bytes are. A frame fits one Noise message; a longer one travels
as `Part` frames (see `links.py`), so a large body never holds up small ones for long.

Times are durations in microseconds, since clocks of nodes differ. Ids of requests, surveys and
tunnels are numbers of the node that made them.
"""

from __future__ import annotations

from typing import Annotated, Any, Union

from mqcore.cluster.errors import MalformedFrame
from mqcore.errors import NotSupported, UsageError

try:
    import msgspec
except ImportError:
    raise NotSupported("a cluster needs the package msgspec",
                       hint="pip install mqcore[cluster]") from None

NAME = 255              # characters of a service's name, a topic, a zone
BODY = 64 << 20         # bytes of one message
PART = 32 << 10         # bytes of a frame that travels whole, and of one Part
HEADERS = 32            # of a request
HEADER = 4096           # bytes of one
BATCH = 64              # records, subscriptions in one frame

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Micros = Annotated[int, msgspec.Meta(ge=0, lt=1 << 50)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME)]
Word = Annotated[str, msgspec.Meta(max_length=NAME)]
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Url = Annotated[str, msgspec.Meta(max_length=1000)]
NodeId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Body = Annotated[bytes, msgspec.Meta(max_length=BODY)]
Headers = Annotated[dict[Name, Annotated[bytes, msgspec.Meta(max_length=HEADER)]],
                    msgspec.Meta(max_length=HEADERS)]
Weight = Annotated[float, msgspec.Meta(ge=0, le=1e6)]

# answers to a request
OK, FAULT, OVERLOADED, NO_SERVICE, EXPIRED, DRAINING, LOST = range(7)
REFUSALS = (OVERLOADED, NO_SERVICE, DRAINING)       # it has certainly not run


class Offer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A service at a node. A weight of 0 takes no new requests. `urls` are plain sockets that
    answer for it (see `aadopt`). `hops`: borders between clusters on the way (federation.py)."""

    weight: Weight = 1.0
    concurrency: Number = 64
    queue_bytes: Size = 32 << 20
    urls: Annotated[tuple[Url, ...], msgspec.Meta(max_length=16)] = ()
    hops: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0


def checked_offer(*fields: Any) -> Offer:
    """An Offer that others can read. Raises UsageError."""
    try:
        return msgspec.convert(fields, Offer)
    except msgspec.ValidationError as error:
        raise UsageError(f"a service that nobody could read of: {error}",
                         hint="weight is up to 1e6; there are up to 16 urls of 1000 characters"
                         ) from None


class Record(msgspec.Struct, array_like=True, frozen=True):
    """What a node says about itself. The record with the highest incarnation is the valid one."""

    id: NodeId
    url: Url
    incarnation: Number
    zone: Word = ""
    services: Annotated[dict[Name, Offer], msgspec.Meta(max_length=1024)] = {}
    version: Word = ""


class Frame(msgspec.Struct, array_like=True, gc=False):
    """What all frames have in common."""


# -- membership ------------------------------------------------------------------------------------


class Hello(Frame, tag=1, gc=True):
    """The first frame of each side. `epoch`: a number of the process, which counts its publications
    from 0."""
    record: Record
    epoch: Number = 0


class Peers(Frame, tag=2, gc=True):
    """Records of members that the sender knows."""
    records: Annotated[list[Record], msgspec.Meta(max_length=BATCH)]


class Leave(Frame, tag=3):
    """The sender leaves the cluster in order."""


class Refuse(Frame, tag=4):
    """The sender does not accept this link, such as from a banned node."""
    why: Word


class Gossip(Frame, tag=5):
    """A datagram of the membership protocol, to a member without UDP."""
    data: Annotated[bytes, msgspec.Meta(max_length=9000)]


class Exchange(Frame, tag=6):
    """A message of an exchange of the membership protocol (gossip/exchange.py)."""
    data: Annotated[bytes, msgspec.Meta(max_length=16 << 20)]


class Ping(Frame, tag=7):
    """Answered at once, in order: what was sent before has arrived then."""
    id: Number


class Pong(Frame, tag=8):
    id: Number


class Spare(Frame, tag=9):
    """From the side that has made this link: there is a better one, use that. From the other side:
    it does, and sends nothing new over this one."""


# -- requests --------------------------------------------------------------------------------------


class Request(Frame, tag=10, gc=True):
    id: Number
    service: Name
    ttl: Micros                 # 0: no deadline
    body: Body
    headers: Headers = {}
    trace: Word = ""


class Cancel(Frame, tag=11):
    """The requester does not wait any longer."""
    id: Number


class Reply(Frame, tag=12):
    id: Number
    status: Annotated[int, msgspec.Meta(ge=OK, le=LOST)]
    load: Number                # requests that the service runs or holds
    body: Body = b""
    kind: Word = ""
    text: Text = ""


class Broadcast(Frame, tag=13):
    """Here and below, `trace` is a text of mqcore.trace.to_text(). Whatever it says, the frame is
    good. Nodes that do not know the field ignore it."""
    id: Number
    service: Name
    body: Body
    trace: Text = ""


class Survey(Frame, tag=14):
    id: Number
    service: Name
    ttl: Micros
    body: Body
    trace: Text = ""


class Answer(Frame, tag=15):
    """To a survey. None: this member has nothing to say."""
    id: Number
    body: Body | None


# -- topics ----------------------------------------------------------------------------------------

Subscription = tuple[Name, Word]        # a pattern, and a group or ""


class Interest(Frame, tag=20, gc=True):
    """Subscriptions of the sender that begin and end. `number` rises with each of its frames, over
    whichever link. `reset`: forget all earlier ones first. Else the frame follows the one with the
    number `after`, and says nothing to who has taken another one last."""
    add: Annotated[list[Subscription], msgspec.Meta(max_length=BATCH)]
    drop: Annotated[list[Subscription], msgspec.Meta(max_length=BATCH)]
    number: Number = 0
    after: Number = 0
    reset: bool = False


class Publish(Frame, tag=21, gc=True):
    """`plain`: for the receiver's subscriptions without a group; `groups`: for one subscription of
    each of these. `after`: if another link has carried the one before, the number of that one."""
    seq: Number
    topic: Name
    body: Body
    plain: bool = True
    groups: Annotated[tuple[Name, ...], msgspec.Meta(max_length=BATCH)] = ()
    trace: Text = ""
    after: Number = 0


# -- tunnels ---------------------------------------------------------------------------------------


class OfStream(Frame):
    stream: Number
    opener: bool                # whether the sender has opened it


class Open(OfStream, tag=30):
    service: Name
    ttl: Micros
    window: Size                # bytes that the opener is ready to receive
    resume: Micros = 0          # how long the tunnel waits for another link; 0: not at all
    trace: Text = ""


class Accept(OfStream, tag=31):
    window: Size


class Data(OfStream, tag=32):
    body: Annotated[bytes, msgspec.Meta(max_length=PART)]
    end: bool                   # of a message


class Credit(OfStream, tag=33):
    size: Size


class End(OfStream, tag=34):
    """The sender has sent all."""


class Reset(OfStream, tag=35):
    reason: Word
    text: Text = ""


class Seen(OfStream, tag=36):
    """The End has arrived, and all before it."""


class Resume(OfStream, tag=37):
    """The sender goes on with the tunnel over this link."""
    attempt: Number             # of the opener, rising: one that comes late is void
    pieces: Number              # Data frames that it has had
    returned: Number            # credit that it has returned


# -- large frames ----------------------------------------------------------------------------------


class Part(Frame, tag=40):
    """A piece of the frame number `bulk` of the sender."""
    bulk: Number
    body: Annotated[bytes, msgspec.Meta(max_length=PART)]
    last: bool


class Taken(Frame, tag=41):
    """That many bytes have been taken: of bodies of parts, of whole Data frames and of messages
    that are not cut, and 256 for each of them. `at`: when, by a clock of the sender's own."""
    size: Size
    at: Micros


KINDS = (Hello, Peers, Leave, Refuse, Gossip, Exchange, Ping, Pong, Spare, Request, Cancel,
         Reply, Broadcast, Survey, Answer, Interest, Publish, Open, Accept, Data, Credit, End,
         Reset, Seen, Resume, Part, Taken)
_DECODER: Any = msgspec.msgpack.Decoder(Union[KINDS])  # noqa: UP007
encode = msgspec.msgpack.Encoder().encode
replace = msgspec.structs.replace
Struct = msgspec.Struct


def decode(data: bytes) -> Frame:
    """The frame in these bytes. Raises MalformedFrame."""
    try:
        frame: Frame = _DECODER.decode(data)
    except (ValueError, RecursionError) as error:       # msgspec's errors are ValueErrors
        raise MalformedFrame(f"a peer's bytes are no frame: {str(error)[:200]!a}") from None
    return frame
