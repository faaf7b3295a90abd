# Written by tools/stubs.py. Do not edit.
"""Types and texts of the public names."""

import enum
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import EllipsisType, TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from mqcore import events as events, security as security
from mqcore._options import (
    ContextOptions, EndpointOptions, NamedEndpointOptions, Options, SocketAttributes,
)
from mqcore.api.device import DeviceStats as DeviceStats
from mqcore.api.event_log import EventLog as EventLog, log_events as log_events
from mqcore.api.histograms import Histogram as Histogram
from mqcore.api.hooks import Hook as Hook, HookMessage as HookMessage, HookStats as HookStats
from mqcore.api.poller import Poller as Poller
from mqcore.api.public import (
    CloseReport as CloseReport, Event as Event, Peer as Peer, PeerStats as PeerStats,
    PluginInfo as PluginInfo, Stats as Stats,
)
from mqcore.errors import (
    AddressDenied as AddressDenied, AddressError as AddressError, AddressInUse as AddressInUse,
    AddressNotAvailable as AddressNotAvailable, BindError as BindError,
    BlockingCallWarning as BlockingCallWarning,
    ConnectTimeout as ConnectTimeout, ContextClosed as ContextClosed, Error as Error,
    Forked as Forked, HandshakeFailed as HandshakeFailed, HookError as HookError,
    MessageTooLarge as MessageTooLarge,
    NoSuchPeer as NoSuchPeer, NotSubscribed as NotSubscribed, NotSupported as NotSupported,
    OptionError as OptionError, PeerError as PeerError, PeerGone as PeerGone,
    PluginError as PluginError, RecvTimeout as RecvTimeout, RemoteRefused as RemoteRefused,
    SendTimeout as SendTimeout, SocketClosed as SocketClosed, StateError as StateError,
    Timeout as Timeout, UnknownTransport as UnknownTransport, UsageError as UsageError,
    WaitTimeout as WaitTimeout,
)

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    from typing_extensions import Buffer

__version__: str

Data: TypeAlias = Buffer
Topic: TypeAlias = Buffer | str
Seconds: TypeAlias = float | None | EllipsisType  # left out: the socket's option
T_co = TypeVar("T_co", covariant=True)

class Endpoint:
    """One address that a socket listens on or connects to. `str(endpoint)` is its URL."""
    url: str
    kind: Literal["bind", "connect"]
    given: str
    @property
    def state(self) -> Literal["listening", "connecting", "handshaking", "connected", "waiting",
                               "stopped", "closed"]:
        """"listening", "connecting", "handshaking", "connected", "waiting" (for the next attempt),
        "stopped" (no more attempts; see `error`) or "closed".
        """
    @property
    def error(self) -> Error | None:
        """The reason why the last attempt or connection ended. None while connected."""
    @property
    def members(self) -> tuple[Endpoint, ...]:
        """The endpoints that a resolver's URL currently stands for. A member that the program
        closes stays closed until the resolver drops its URL and lists it again.
        """
    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until listening, or until connected with a completed handshake. Raises
        ConnectTimeout (`last` is the error of the latest attempt), HandshakeFailed if the peer does
        not fit, SocketClosed, or the error that stopped the attempts.
        """
    async def await_ready(self, timeout: float | None = None) -> None:
        """wait_ready(), awaitable on asyncio and trio."""
    def close(self) -> None:
        """Unbind or disconnect. Complete on return, but not in a finalizer that the garbage
        collector runs, or that interrupts another call of the library: there the control thread
        does it. Idempotent.
        """

Address: TypeAlias = str | Endpoint
Addresses: TypeAlias = Address | Iterable[Address]

class SocketOptions(Options, total=False):
    bind: Addresses
    connect: Addresses

class ReqOptions(SocketOptions, total=False):
    """What the constructor of Req takes."""
    correlate: bool | None
    """correlate: bool, default None: number requests, so that a late reply is recognized
    without a new connection; None: automatic: SP yes, ZMTP no.
    """
    strict: bool
    """strict: bool, default False: refuse a second send before the reply instead of abandoning
    the first.
    """
    probe: bool
    """probe: bool, default False: send an empty message to each new peer before anything else."""
    resend: float | None
    """resend: seconds, default None: send an unanswered request again after this time, and at
    once if its link is lost; 0: never; None: after 60 s to SP peers.
    """
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """

class DealerOptions(SocketOptions, total=False):
    """What the constructor of Dealer takes."""
    probe: bool
    """probe: bool, default False: send an empty message to each new peer before anything else."""
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """

class RouterOptions(SocketOptions, total=False):
    """What the constructor of Router takes."""
    mandatory: bool
    """mandatory: bool, default True: raise for an unknown or full peer instead of dropping
    (stream: wait for a full one).
    """
    handover: bool
    """handover: bool, default True: a newer peer takes over the routing id of an older one."""
    probe: bool
    """probe: bool, default False: send an empty message to each new peer before anything else."""

class StreamOptions(SocketOptions, total=False):
    """What the constructor of Stream takes."""
    mandatory: bool
    """mandatory: bool, default True: raise for an unknown or full peer instead of dropping
    (stream: wait for a full one).
    """
    notify: bool
    """notify: bool, default False: report new and closed connections by empty messages."""

class PushOptions(SocketOptions, total=False):
    """What the constructor of Push takes."""
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """

class PubOptions(SocketOptions, total=False):
    """What the constructor of Pub takes."""
    nodrop: bool
    """nodrop: bool, default False: wait for full subscribers instead of dropping."""
    retain: int
    """retain: int, default 0: the last n messages per first part, sent to each new
    subscription.
    """
    max_subscription_bytes: int
    """max_subscription_bytes: size, default 16777216: limit of one peer's subscriptions: bytes
    of its topics or groups plus 64 for each; a peer that exceeds it is disconnected.
    """

class XPubOptions(SocketOptions, total=False):
    """What the constructor of XPub takes."""
    verbose: bool
    """verbose: bool, default False: notify of every subscribe, not only of a topic's first."""
    verboser: bool
    """verboser: bool, default False: notify of every subscribe and of every cancel."""
    manual: bool
    """manual: bool, default False: apply subscriptions only by subscribe()."""
    welcome: bytes | None
    """welcome: bytes, default None: a message that each new peer gets first; None: not set."""
    nodrop: bool
    """nodrop: bool, default False: wait for full subscribers instead of dropping."""
    retain: int
    """retain: int, default 0: the last n messages per first part, sent to each new
    subscription.
    """
    max_subscription_bytes: int
    """max_subscription_bytes: size, default 16777216: limit of one peer's subscriptions: bytes
    of its topics or groups plus 64 for each; a peer that exceeds it is disconnected.
    """

class RadioOptions(SocketOptions, total=False):
    """What the constructor of Radio takes."""
    nodrop: bool
    """nodrop: bool, default False: wait for full subscribers instead of dropping."""
    max_subscription_bytes: int
    """max_subscription_bytes: size, default 16777216: limit of one peer's subscriptions: bytes
    of its topics or groups plus 64 for each; a peer that exceeds it is disconnected.
    """

class Pair1Options(SocketOptions, total=False):
    """What the constructor of Pair1 takes."""
    poly: bool
    """poly: bool, default False: any number of peers; send_to() names one."""
    raw: bool
    """raw: bool, default False: a forwarded message keeps its hop count."""

class BusOptions(SocketOptions, total=False):
    """What the constructor of Bus takes."""
    nodrop: bool
    """nodrop: bool, default False: wait for peers whose queues are full instead of dropping."""
    raw: bool
    """raw: bool, default False: messages identify their sender and are not returned to it."""

class SurveyorOptions(SocketOptions, total=False):
    """What the constructor of Surveyor takes."""
    deadline: float
    """deadline: seconds, default 1.0: time for the answers to a survey."""
    nodrop: bool
    """nodrop: bool, default False: wait for peers whose queues are full instead of dropping."""
    raw: bool
    """raw: bool, default False: the application handles the envelope, as devices do."""

class RespondentOptions(SocketOptions, total=False):
    """What the constructor of Respondent takes."""
    raw: bool
    """raw: bool, default False: the application handles the envelope, as devices do."""

class ClientOptions(SocketOptions, total=False):
    """What the constructor of Client takes."""
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """

class ScatterOptions(SocketOptions, total=False):
    """What the constructor of Scatter takes."""
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """

class EventStream:
    """The events since its creation, oldest first, for `for` and `async for`. Iteration ends when
    the socket or the stream is closed. A full backlog loses new events; `lost` counts them.
    """
    backlog: int
    lost: int
    """Events lost: the backlog was full, or they came faster than they could be queued."""
    def get(self, timeout: float | None = None) -> Event:
        """The next event. WaitTimeout after `timeout` seconds; SocketClosed once the socket or the
        stream is closed.
        """
    async def aget(self, timeout: float | None = None) -> Event:
        """get(), awaitable."""
    def close(self) -> None:
        """Stop collecting. Iteration ends after the queued events. Idempotent."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Event: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

class Incoming(Protocol[T_co]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> T_co: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> T_co: ...

class Answers(Incoming[T_co], Protocol[T_co]):
    """The answers to one survey, for `for` and `async for`. Iteration ends normally at the
    deadline. Calling close(), leaving with an exception, or dropping the last reference cancels the
    survey. Threads and tasks may share one: each answer goes to one of them, and all of them end
    with the survey.
    """
    def close(self) -> None:
        """Cancel the survey. Other threads and tasks that iterate over it, or wait for its turn,
        end normally. Answers that arrive later are counted as `late_answer`. Idempotent; no effect
        on a survey that is over.
        """
    async def aclose(self) -> None:
        """close(), for contextlib.aclosing()."""

class Message:
    """One received message: parts, where it came from, and how to answer it. Read-only."""
    @property
    def parts(self) -> tuple[bytes | memoryview, ...]:
        """The parts. Above 4 KiB a part is a view of the receive buffer, else bytes."""
    @property
    def body(self) -> bytes:
        """The last part, as bytes."""
    @property
    def topic(self) -> bytes | None:
        """The first part if there are several, else None."""
    @property
    def peer(self) -> Peer:
        """The Peer it came from; valid after the link is gone."""
    @property
    def peer_id(self) -> int:
        """`peer.id`, without making a Peer."""
    @property
    def routing_id(self) -> bytes | None:
        """Router, Stream: whose message it is, for send_to(); else None."""
    @property
    def group(self) -> str | None:
        """Dish: the group it came for, as text (bytes that are no UTF-8 as surrogates); else
        None.
        """
    @property
    def received_at(self) -> float:
        """When recv_msg() took it: seconds since the epoch."""
    @property
    def replied(self) -> bool:
        """reply() has answered it."""
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def reply(self, *parts: Data | Sequence[Data], timeout: Seconds = ...) -> None:
        """Answer it, from any thread, once, with parts or a list of them. StateError if it was
        answered or its pattern has no answers; NoSuchPeer if the peer has left.
        """
    async def areply(self, *parts: Data | Sequence[Data], timeout: Seconds = ...) -> None:
        """reply(), awaitable."""

class Batch:
    """Message i is data[offsets[i]:offsets[i+1]], its parts joined; its first part ends at
    split[i].

    data: uint8[n bytes], offsets: int32[messages + 1], split: int32[messages]. In a batch of more
    than 2 GiB offsets and split are int64. The arrays are the batch's own memory; slices of them
    copy nothing.
    """
    data: NDArray[np.uint8]
    offsets: NDArray[np.int32] | NDArray[np.int64]
    split: NDArray[np.int32] | NDArray[np.int64]
    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> memoryview: ...
    def __iter__(self) -> Iterator[memoryview]: ...
    def to_list(self) -> list[bytes]:
        """The messages as bytes, parts joined. Copies."""
    def to_arrow(self) -> Any:
        """A pyarrow BinaryArray over the same memory; LargeBinaryArray above 2 GiB."""

class Pinned:
    """What send_ref() returns: `done` once the buffer may be written again."""
    @property
    def done(self) -> bool:
        """Whether the buffer may be written again."""
    def wait_done(self, timeout: float | None = None) -> None:
        """Until done; WaitTimeout."""
    async def await_done(self, timeout: float | None = None) -> None:
        """wait_done(), awaitable."""

class Context:
    """The sockets of one application. Thread-safe. The threads start with the first socket.

    io_threads: 1 to 64. max_sockets: at least 1. All other keyword arguments are default options of
    its sockets.

    lead_tick: seconds, 0.01 by default. A thread that blocks in a receive reads from the network
    itself. When the thread goes on to do something else, new data stays in the kernel for one to
    two ticks before the I/O thread reads it. A longer tick saves wake-ups; a shorter one queues
    messages sooner.

    monitor: publishes the context's sockets, peers and counters for `mq top` and other monitors.
    True: in the folder of this user's monitors. A URL: there. A mqcore.monitor.Publish: there, with
    its settings. False: never. None (default): as the environment variable MQCORE_MONITOR says.

    histograms: True lets its sockets measure latencies, for Socket.histograms(). A message
    then costs a look at the clock at each end of its queue. False (default): they do not.
    """
    def __init__(self, *, io_threads: int = 1, max_sockets: int = 65536, lead_tick: float = 0.01,
                 **defaults: Unpack[ContextOptions]) -> None: ...
    @staticmethod
    def default() -> Context:
        """The default context of this process, created on first use. After it was closed, and in a
        forked child, the next call creates a new one.
        """
    @overload
    def socket(self, pattern: Literal["pair"],
               **options: Unpack[SocketOptions]) -> Pair:
        """Sends to and receives from exactly one peer. The socket belongs to this context."""
    @overload
    def socket(self, pattern: Literal["req"],
               **options: Unpack[ReqOptions]) -> Req:
        """Sends a request to one peer and waits for its reply. The socket belongs to this
        context.
        """
    @overload
    def socket(self, pattern: Literal["rep"],
               **options: Unpack[SocketOptions]) -> Rep:
        """Receives requests and sends replies. The socket belongs to this context."""
    @overload
    def socket(self, pattern: Literal["dealer"],
               **options: Unpack[DealerOptions]) -> Dealer:
        """Sends to its peers in turn and receives from them in turn. The socket belongs to this
        context.
        """
    @overload
    def socket(self, pattern: Literal["router"],
               **options: Unpack[RouterOptions]) -> Router:
        """Addresses each peer by its routing id. The socket belongs to this context."""
    @overload
    def socket(self, pattern: Literal["stream"],
               **options: Unpack[StreamOptions]) -> Stream:
        """Exchanges raw bytes over tcp, tls+tcp and ipc, without handshake or framing, with a
        peer that speaks any protocol. The socket belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["push"],
               **options: Unpack[PushOptions]) -> Push:
        """Sends each message to one of its peers, in turn. The socket belongs to this context."""
    @overload
    def socket(self, pattern: Literal["pull"],
               **options: Unpack[SocketOptions]) -> Pull:
        """Receives from all its peers, one message from each in turn. The socket belongs to
        this context.
        """
    @overload
    def socket(self, pattern: Literal["pub"],
               **options: Unpack[PubOptions]) -> Pub:
        """Sends each message to all peers that subscribed to a prefix of its first part. The
        socket belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["sub"], *, topics: Iterable[Topic] | Topic = (),
               **options: Unpack[SocketOptions]) -> Sub:
        """Receives messages whose first part starts with a subscribed topic. The socket belongs
        to this context.
        """
    @overload
    def socket(self, pattern: Literal["xpub"],
               **options: Unpack[XPubOptions]) -> XPub:
        """A Pub that exposes subscriptions: recv() returns them as a byte 1 or 0 and the topic.
        The socket belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["xsub"],
               **options: Unpack[SocketOptions]) -> XSub:
        """A Sub that subscribes by messages: send(b"\\x01topic") subscribes, send(b"\\x00topic")
        unsubscribes. The socket belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["radio"],
               **options: Unpack[RadioOptions]) -> Radio:
        """Sends each message to all peers that joined its group (RFC 48), over udp:// to every
        listener. The socket belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["dish"], *, groups: Iterable[Topic] | Topic = (),
               **options: Unpack[SocketOptions]) -> Dish:
        """Receives messages of the groups that it joined (RFC 48). The socket belongs to this
        context.
        """
    @overload
    def socket(self, pattern: Literal["pair1"],
               **options: Unpack[Pair1Options]) -> Pair1:
        """A Pair whose messages count the devices that they pass. The socket belongs to this
        context.
        """
    @overload
    def socket(self, pattern: Literal["bus"],
               **options: Unpack[BusOptions]) -> Bus:
        """Sends each message to every directly connected peer and receives from all of them in
        turn. The socket belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["surveyor"],
               **options: Unpack[SurveyorOptions]) -> Surveyor:
        """Asks all peers at once and collects their answers until a deadline. The socket
        belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["respondent"],
               **options: Unpack[RespondentOptions]) -> Respondent:
        """Receives surveys and answers them. The socket belongs to this context."""
    @overload
    def socket(self, pattern: Literal["client"],
               **options: Unpack[ClientOptions]) -> Client:
        """Sends to servers in turn and receives from them in turn (RFC 41). The socket belongs
        to this context.
        """
    @overload
    def socket(self, pattern: Literal["server"],
               **options: Unpack[SocketOptions]) -> Server:
        """Addresses each client by its number (RFC 41). The socket belongs to this context."""
    @overload
    def socket(self, pattern: Literal["scatter"],
               **options: Unpack[ScatterOptions]) -> Scatter:
        """Sends each message to one of its peers, in turn (RFC 49). The socket belongs to this
        context.
        """
    @overload
    def socket(self, pattern: Literal["gather"],
               **options: Unpack[SocketOptions]) -> Gather:
        """Receives from all its peers in turn (RFC 49). The socket belongs to this context."""
    @overload
    def socket(self, pattern: Literal["peer"],
               **options: Unpack[SocketOptions]) -> PeerSocket:
        """Peers of equal rank that address each other by number (RFC 51), like Server; a
        connecting socket is a server, too. The socket belongs to this context.
        """
    @overload
    def socket(self, pattern: Literal["channel"],
               **options: Unpack[SocketOptions]) -> Channel:
        """Sends to and receives from exactly one peer (RFC 52). The socket belongs to this
        context.
        """
    @overload
    def socket(self, pattern: Literal["dgram"],
               **options: Unpack[SocketOptions]) -> Dgram:
        """A datagram socket, for udp:// only. The socket belongs to this context."""
    @overload
    def socket(self, pattern: str, **options: Any) -> Socket:
        """Create a socket in this context."""
    @property
    def sockets(self) -> tuple[Socket, ...]:
        """The open sockets."""
    @property
    def closed(self) -> bool:
        """Whether close() has been called, or this process is a fork of the context's."""
    def close(self, linger: Seconds = ...) -> CloseReport:
        """Close all sockets in parallel, then end the threads. Each socket lingers for `linger`
        seconds (default: its own option). No socket can be created meanwhile. Idempotent. Ctrl-C
        ends the lingering, and is raised when everything is closed. In a finalizer that the
        garbage collector runs, or that interrupts another call of the library, it returns an empty
        report at once, and a thread closes the context. So it does in a signal handler that
        interrupts the close() of a socket while another thread closes the context.
        """
    async def aclose(self, linger: Seconds = ...) -> CloseReport:
        """close(), awaitable. If cancelled, it closes with linger=0."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None: ...

class Socket(SocketAttributes):
    """Base class of all patterns. Thread-safe: a message is always sent and received as a whole.
    `with` closes it.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[SocketOptions]) -> None: ...
    @property
    def closed(self) -> bool:
        """Whether close() has been called, or this process is a fork of the socket's."""
    @property
    def pattern(self) -> str:
        """The name of the pattern: "push", "pull", ..."""
    @property
    def context(self) -> Context:
        """The Context of this socket."""
    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints that bind() and connect() created, in order."""
    def bind(self, url: Address, **endpoint: Unpack[EndpointOptions]) -> Endpoint:
        """Listen at url. When it returns, peers can connect, and `.url` of the returned Endpoint is
        the actual address (with a port number instead of 0). BindError, AddressError,
        OptionError.
        """
    async def abind(self, url: Address, **endpoint: Unpack[EndpointOptions]) -> Endpoint:
        """bind(), awaitable, because it may have to resolve a name."""
    def connect(self, url: Address, *, wait: float | None = 0,
                **endpoint: Unpack[EndpointOptions]) -> Endpoint:
        """Connect to url and reconnect after each loss. Where every peer gets every message (Pub,
        Sub, XPub, XSub, Radio, Dish, Bus), a second call with the same arguments returns the first
        one's endpoint. With `wait`, block up to that many seconds
        (default 0) until the peer's handshake is complete. If it is not, ConnectTimeout or
        HandshakeFailed is raised and the endpoint is removed.
        """
    async def aconnect(self, url: Address, *, wait: float | None = 0,
                       **endpoint: Unpack[EndpointOptions]) -> Endpoint:
        """connect(), awaitable."""
    def unbind(self, at: Address) -> None:
        """Stop listening at this address. When it returns, its connections are closed."""
    async def aunbind(self, at: Address) -> None:
        """unbind(), awaitable."""
    def disconnect(self, at: Address) -> None:
        """Close a connection. Messages queued for that peer return to the socket or are counted as
        dropped.
        """
    async def adisconnect(self, at: Address) -> None:
        """disconnect(), awaitable."""
    def wait_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until n peers have completed the handshake. WaitTimeout says how many did, and
        why.
        """
    async def await_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """wait_peers(), awaitable."""
    def peers(self) -> list[Peer]:
        """The connected peers whose handshake succeeded."""
    def histograms(self) -> dict[str, Histogram]:
        """How long messages took, if the context was made with histograms=True; else UsageError.

        "sent": from a peer's queue until the connection takes the message to write it. "received":
        from the decoded message (inproc: the sender's send) until a call receives it. "round_trip":
        Req, from the request to its reply. See docs/guides/monitoring.md for what these leave
        out.
        """
    def stats(self) -> Stats:
        """Exact counters of the socket and of each peer at this moment."""
    def events(self, *, backlog: int = 1000) -> EventStream:
        """The events of the connections from now on, for `for` and `async for`. It queues up to
        `backlog` unread events (default 1000) and counts further ones in `.lost`.
        """
    def explain(self) -> str:
        """Describe in plain words what each endpoint and peer is doing and why messages wait."""
    def close(self, linger: Seconds = ...) -> CloseReport:
        """Keep sending queued messages for up to `linger` seconds (default: the option), then close
        everything. The close is complete on return. What the report does not count as undelivered
        or unacked is in the receiver's machine, and a receiver that goes on reading gets it. A
        second call returns the same report. In a finalizer that the garbage collector runs, or that
        interrupts another call of the library, it returns an empty report at once, and a thread
        closes the socket.
        """
    async def aclose(self, linger: Seconds = ...) -> CloseReport:
        """close(), awaitable. If cancelled, it closes with linger=0."""
    def fileno(self) -> int:
        """A descriptor that is readable while recv() would not wait. Do not read, write or close
        it. It is valid until the socket is closed.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

class _Sends(Socket):
    def send(self, data: Data, *, timeout: Seconds = ...) -> None:
        """Send one message of one part: all or nothing. `bytes` go by reference, other buffers are
        copied. Waits for space or a peer for up to `timeout` seconds. Then it raises SendTimeout,
        and the message is not sent.
        """
    async def asend(self, data: Data, *, timeout: Seconds = ...) -> None:
        """send(), awaitable."""
    def send_parts(self, parts: Sequence[Data], *, timeout: Seconds = ...) -> None:
        """Send one message of several parts: all or nothing, and never mixed with others."""
    async def asend_parts(self, parts: Sequence[Data], *, timeout: Seconds = ...) -> None:
        """send_parts(), awaitable."""
    def send_many(self, messages: Iterable[Data | Sequence[Data]], *,
                  timeout: Seconds = ...) -> int:
        """Send each of `messages` (buffers, or sequences of parts). Returns how many; if time runs
        out, SendTimeout.sent says how many went. What comes before a bad item is sent.
        """
    async def asend_many(self, messages: Iterable[Data | Sequence[Data]], *,
                         timeout: Seconds = ...) -> int:
        """send_many(), awaitable."""
    def send_batch(self, data: NDArray[np.uint8] | Buffer, offsets: NDArray[np.integer[Any]], *,
                   split: NDArray[np.integer[Any]] | None = None,
                   timeout: Seconds = ...) -> int:
        """Send message i = data[offsets[i]:offsets[i+1]] for each i. data: C-contiguous uint8 array
        or buffer; offsets: n + 1 ascending integers. split: n integers: the first part of message i
        ends at split[i], and the rest is its second part. -1 means a single part. Returns n.
        SendTimeout.sent is the number of messages sent before the time-out.
        """
    async def asend_batch(self, data: NDArray[np.uint8] | Buffer,
                          offsets: NDArray[np.integer[Any]], *,
                          split: NDArray[np.integer[Any]] | None = None,
                          timeout: Seconds = ...) -> int:
        """send_batch(), awaitable."""
    def send_ref(self, data: Data, *, timeout: Seconds = ...) -> Pinned:
        """Send a buffer without copying it. Leave it alone until the returned Pinned is done."""
    async def asend_ref(self, data: Data, *, timeout: Seconds = ...) -> Pinned:
        """send_ref(), awaitable."""

class _ReceivesParts(Socket):
    def recv_parts(self, *, timeout: Seconds = ...) -> list[bytes]:
        """Receive one message as a list of its parts. ROUTER: the routing id comes first."""
    async def arecv_parts(self, *, timeout: Seconds = ...) -> list[bytes]:
        """recv_parts(), awaitable."""
    def recv_msg(self, *, timeout: Seconds = ...) -> Message:
        """Receive one Message: parts (large ones without a copy), peer, reply()."""
    async def arecv_msg(self, *, timeout: Seconds = ...) -> Message:
        """recv_msg(), awaitable."""
    def messages(self) -> Incoming[Message]:
        """Iterate over recv_msg() until the socket is closed, for `for` and `async for`."""

class _Receives(_ReceivesParts):
    def recv(self, *, timeout: Seconds = ...) -> bytes:
        """Receive one message, its parts joined. RecvTimeout after `timeout` seconds."""
    async def arecv(self, *, timeout: Seconds = ...) -> bytes:
        """recv(), awaitable. A cancelled call has taken no message."""
    def recv_into(self, buffer: Buffer, *, timeout: Seconds = ...) -> int:
        """Receive one message into a writable buffer; returns its length. If it does not fit,
        MessageTooLarge, and the message stays for the next call.
        """
    async def arecv_into(self, buffer: Buffer, *, timeout: Seconds = ...) -> int:
        """recv_into(), awaitable."""
    def recv_many(self, max: int = 1024, *, timeout: Seconds = ...) -> list[bytes]:
        """Receive up to `max` messages, waiting for the first only. A list of bytes."""
    async def arecv_many(self, max: int = 1024, *, timeout: Seconds = ...) -> list[bytes]:
        """recv_many(), awaitable. Returns at most 8192 messages, so that other tasks can run."""
    def recv_batch(self, max: int = 65536, *, max_bytes: int = ...,
                   timeout: Seconds = ...) -> Batch:
        """Receive up to `max` messages or about `max_bytes` as one Batch (NumPy arrays), waiting
        for the first only.
        """
    async def arecv_batch(self, max: int = 65536, *, max_bytes: int = ...,
                          timeout: Seconds = ...) -> Batch:
        """recv_batch(), awaitable. Returns at most 8192 messages or about 1 MiB, so that other
        tasks can run.
        """
    def batches(self, max: int = 65536) -> Incoming[Batch]:
        """Iterate over recv_batch() until the socket is closed, for `for` and `async for`."""
    def __iter__(self) -> Incoming[bytes]: ...
    def __aiter__(self) -> Incoming[bytes]: ...

class _Asks:
    def request(self, data: Data | Sequence[Data], *, timeout: Seconds = ...) -> bytes:
        """Send a request and wait for its reply. `data` is a buffer, or a list or tuple of parts.
        `timeout` covers the whole exchange, in seconds (default: recv_timeout). A request that
        times out is abandoned. SendTimeout, RecvTimeout. StateError where requests take turns, and
        it would wait for its own thread, as in a signal handler.
        """
    async def arequest(self, data: Data | Sequence[Data], *, timeout: Seconds = ...) -> bytes:
        """request(), awaitable. Cancelling it abandons the request."""
    def request_msg(self, data: Data | Sequence[Data], *, timeout: Seconds = ...) -> Message:
        """request() that returns a Message."""
    async def arequest_msg(self, data: Data | Sequence[Data], *,
                           timeout: Seconds = ...) -> Message:
        """request_msg(), awaitable."""

class _Surveys:
    def survey(self, data: Data | Sequence[Data], *, deadline: Seconds = ...) -> Answers[bytes]:
        """Send a survey to all connected peers and iterate over their answers. Iteration ends after
        `deadline` seconds (default: the option; None: never). Leaving the loop early cancels the
        survey; later answers are counted as `late_answer`. The first iteration sends the survey. It
        waits until the survey before it is closed, or its deadline has passed. StateError if it
        would wait for ever for its own thread or task: in a signal handler of a thread that waits
        for its turn, or inside a survey without a deadline. Such a survey belongs to the thread or
        task that asked it for an answer last. SocketClosed if the socket is closed meanwhile.
        """
    def survey_msg(self, data: Data | Sequence[Data], *,
                   deadline: Seconds = ...) -> Answers[Message]:
        """survey() that yields Messages, which know their peer."""
    def asurvey(self, data: Data | Sequence[Data], *,
                deadline: Seconds = ...) -> Answers[bytes]:
        """survey() for `async for`."""
    def asurvey_msg(self, data: Data | Sequence[Data], *,
                    deadline: Seconds = ...) -> Answers[Message]:
        """survey_msg() for `async for`."""

class _Subscribes:
    def subscribe(self, *topics: Topic) -> None:
        """Subscribe to messages that start with these topics; b"" matches everything. Subscriptions
        are counted: unsubscribe as many times as you subscribed.
        """
    def unsubscribe(self, *topics: Topic) -> None:
        """Undo one subscribe() of each topic. NotSubscribed if there is none."""
    @property
    def topics(self) -> tuple[bytes, ...]:
        """The subscribed topics, each once, in order."""

class _With:
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

class _Context(_With):
    """A context that its pattern keeps state for."""
    send_timeout: float | None
    recv_timeout: float | None
    @property
    def closed(self) -> bool:
        """No call is possible any more: it was closed, or its socket was."""
    def close(self) -> None:
        """Abandon the outstanding exchange. Calls that wait in it raise StateError. Idempotent."""
    def recv(self, *, timeout: Seconds = ...) -> bytes:
        """Receive one message with its parts joined. RecvTimeout after `timeout` seconds."""
    async def arecv(self, *, timeout: Seconds = ...) -> bytes:
        """recv(), awaitable. A cancelled call has taken no message."""
    def recv_parts(self, *, timeout: Seconds = ...) -> list[bytes]:
        """Receive one message as a list of its parts."""
    async def arecv_parts(self, *, timeout: Seconds = ...) -> list[bytes]:
        """recv_parts(), awaitable."""
    def recv_msg(self, *, timeout: Seconds = ...) -> Message:
        """Receive one Message."""
    async def arecv_msg(self, *, timeout: Seconds = ...) -> Message:
        """recv_msg(), awaitable."""

class _SendingContext(_Context):
    """A Line that can send."""
    def send(self, data: Data, *, timeout: Seconds = ...) -> None:
        """Send one message of one part: all or nothing. Abandons this context's outstanding
        exchange.
        """
    async def asend(self, data: Data, *, timeout: Seconds = ...) -> None:
        """send(), awaitable."""
    def send_parts(self, parts: Sequence[Data], *, timeout: Seconds = ...) -> None:
        """send() for a message of several parts."""
    async def asend_parts(self, parts: Sequence[Data], *, timeout: Seconds = ...) -> None:
        """send_parts(), awaitable."""

class ReqContext(_Asks, _SendingContext):
    """One of any number of concurrent requests of a Req."""
    def abandon(self) -> None:
        """Abandon the outstanding exchange. Its answer is counted as late when it arrives."""

class SurveyorContext(_Surveys, _SendingContext):
    """One of any number of concurrent surveys of a Surveyor."""
    def abandon(self) -> None:
        """Cancel the running survey. Its answers are counted as late when they arrive."""

class RepContext(_SendingContext):
    """One of any number of requests or surveys that a socket answers at once: recv() receives one,
    send() answers it.
    """
class SubContext(_Subscribes, _Context):
    """Own subscriptions over a Sub's publishers, with an own queue for their messages."""
    def __iter__(self) -> Incoming[bytes]: ...
    def __aiter__(self) -> Incoming[bytes]: ...

class Pair(_Sends, _Receives):
    """Sends to and receives from exactly one peer."""

class Req(_Asks, _Sends, _Receives):
    """Sends a request to one peer and waits for its reply. Any number of threads and tasks can call
    request() and arequest() concurrently; up to 1024 of the requests run in parallel.
    new_context() gives you a further line for send() and recv(). Plain send() and recv() are for
    one thread.
    """
    correlate: bool | None
    """correlate: bool, default None: number requests, so that a late reply is recognized
    without a new connection; None: automatic: SP yes, ZMTP no.
    """
    strict: bool
    """strict: bool, default False: refuse a second send before the reply instead of abandoning
    the first.
    """
    probe: bool
    """probe: bool, default False: send an empty message to each new peer before anything else."""
    resend: float | None
    """resend: seconds, default None: send an unanswered request again after this time, and at
    once if its link is lost; 0: never; None: after 60 s to SP peers.
    """
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[ReqOptions]) -> None: ...
    def new_context(self, **timeouts: float | None) -> ReqContext:
        """A context that sends its own requests over the same peers, with send, recv, request and
        their variants, and its own send_timeout= and recv_timeout=. `with` closes it.
        """

class Rep(_Sends, _Receives):
    """Receives requests and sends replies. Any number of threads and tasks can use recv_msg() and
    Message.reply(), or a context each. Plain recv() and send() are for one thread.
    """
    def new_context(self, **timeouts: float | None) -> RepContext:
        """A context that receives requests and replies on its own, with recv, send and their
        variants, and its own send_timeout= and recv_timeout=. `with` closes it.
        """

class Dealer(_Sends, _Receives):
    """Sends to its peers in turn and receives from them in turn."""
    probe: bool
    """probe: bool, default False: send an empty message to each new peer before anything else."""
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[DealerOptions]) -> None: ...

class _Routes(_Sends, _ReceivesParts):
    def connect(self, url: Address, *, wait: float | None = 0,
                **endpoint: Unpack[NamedEndpointOptions]) -> Endpoint:
        """Connect to url and reconnect after each loss. Where every peer gets every message (Pub,
        Sub, XPub, XSub, Radio, Dish, Bus), a second call with the same arguments returns the first
        one's endpoint. With `wait`, block up to that many seconds
        (default 0) until the peer's handshake is complete. If it is not, ConnectTimeout or
        HandshakeFailed is raised and the endpoint is removed.
        """
    async def aconnect(self, url: Address, *, wait: float | None = 0,
                       **endpoint: Unpack[NamedEndpointOptions]) -> Endpoint:
        """connect(), awaitable."""
    def send_to(self, peer: bytes | Peer, *parts: Data, timeout: Seconds = ...) -> None:
        """Send to one peer. NoSuchPeer if it is not connected."""
    async def asend_to(self, peer: bytes | Peer, *parts: Data, timeout: Seconds = ...) -> None:
        """send_to(), awaitable."""
    def __iter__(self) -> Incoming[Message]: ...
    def __aiter__(self) -> Incoming[Message]: ...

class Router(_Routes):
    """Addresses each peer by its routing id. recv_parts() returns [id, ...]. recv_msg() returns a
    Message with routing_id and reply(), and so does iteration. send_to() takes a routing id or a
    Peer and raises NoSuchPeer if that peer is not connected. With mandatory=False such messages are
    dropped and counted.
    """
    mandatory: bool
    """mandatory: bool, default True: raise for an unknown or full peer instead of dropping
    (stream: wait for a full one).
    """
    handover: bool
    """handover: bool, default True: a newer peer takes over the routing id of an older one."""
    probe: bool
    """probe: bool, default False: send an empty message to each new peer before anything else."""
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[RouterOptions]) -> None: ...

class Stream(_Routes):
    """Exchanges raw bytes over tcp, tls+tcp and ipc, without handshake or framing, with a peer that
    speaks any protocol.

    recv_msg() returns the bytes that have arrived on one connection: a Message of one part with
    peer and routing_id, of at most max_message_size. Iteration yields Messages. send_to() takes a
    Peer or a routing id, and waits for a peer that reads slowly. send_to(peer, b"") closes the
    connection after everything sent before. The socket does not reconnect a connection that it
    closed so.

    events() reports connections and disconnections. With notify=True an empty Message does so, too.
    When the peer ends the connection (FIN), both directions end; data not yet sent to it is dropped
    and counted.
    """
    mandatory: bool
    """mandatory: bool, default True: raise for an unknown or full peer instead of dropping
    (stream: wait for a full one).
    """
    notify: bool
    """notify: bool, default False: report new and closed connections by empty messages."""
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[StreamOptions]) -> None: ...

class Push(_Sends):
    """Sends each message to one of its peers, in turn."""
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[PushOptions]) -> None: ...

class Pull(_Receives):
    """Receives from all its peers, one message from each in turn."""
class Pub(_Sends):
    """Sends each message to all peers that subscribed to a prefix of its first part."""
    nodrop: bool
    """nodrop: bool, default False: wait for full subscribers instead of dropping."""
    retain: int
    """retain: int, default 0: the last n messages per first part, sent to each new
    subscription.
    """
    max_subscription_bytes: int
    """max_subscription_bytes: size, default 16777216: limit of one peer's subscriptions: bytes
    of its topics or groups plus 64 for each; a peer that exceeds it is disconnected.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[PubOptions]) -> None: ...
    def wait_subscribers(self, topic: Topic = b"", n: int = 1,
                         timeout: float | None = None) -> None:
        """Wait until n peers would receive a message that starts with `topic`."""
    async def await_subscribers(self, topic: Topic = b"", n: int = 1,
                                timeout: float | None = None) -> None:
        """wait_subscribers(), awaitable."""

class Sub(_Subscribes, _Receives):
    """Receives messages whose first part starts with a subscribed topic."""
    def __init__(self, *, topics: Iterable[Topic] | Topic = (),
                 context: Context | None = None,
                 **options: Unpack[SocketOptions]) -> None: ...
    def new_context(self, **timeouts: float | None) -> SubContext:
        """A context with its own subscriptions and its own queue over the same publishers, with
        subscribe, recv and their variants, and its own recv_timeout=. `with` closes it.
        """

class XPub(_Sends, _Receives):
    """A Pub that exposes subscriptions: recv() returns them as a byte 1 or 0 and the topic."""
    verbose: bool
    """verbose: bool, default False: notify of every subscribe, not only of a topic's first."""
    verboser: bool
    """verboser: bool, default False: notify of every subscribe and of every cancel."""
    manual: bool
    """manual: bool, default False: apply subscriptions only by subscribe()."""
    welcome: bytes | None
    """welcome: bytes, default None: a message that each new peer gets first; None: not set."""
    nodrop: bool
    """nodrop: bool, default False: wait for full subscribers instead of dropping."""
    retain: int
    """retain: int, default 0: the last n messages per first part, sent to each new
    subscription.
    """
    max_subscription_bytes: int
    """max_subscription_bytes: size, default 16777216: limit of one peer's subscriptions: bytes
    of its topics or groups plus 64 for each; a peer that exceeds it is disconnected.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[XPubOptions]) -> None: ...
    def subscribe(self, *topics: Topic) -> None:
        """With manual=True: subscribe the peer of the last received notification to these
        topics.
        """
    def unsubscribe(self, *topics: Topic) -> None:
        """With manual=True: unsubscribe that peer from these topics."""
    def wait_subscribers(self, topic: Topic = b"", n: int = 1,
                         timeout: float | None = None) -> None:
        """Wait until n peers would receive a message that starts with `topic`."""
    async def await_subscribers(self, topic: Topic = b"", n: int = 1,
                                timeout: float | None = None) -> None:
        """wait_subscribers(), awaitable."""

class XSub(_Sends, _Receives):
    """A Sub that subscribes by messages: send(b"\\x01topic") subscribes, send(b"\\x00topic")
    unsubscribes.
    """

class Radio(_Sends):
    """Sends each message to all peers that joined its group (RFC 48), over udp:// to every
    listener. Messages have one part.
    """
    nodrop: bool
    """nodrop: bool, default False: wait for full subscribers instead of dropping."""
    max_subscription_bytes: int
    """max_subscription_bytes: size, default 16777216: limit of one peer's subscriptions: bytes
    of its topics or groups plus 64 for each; a peer that exceeds it is disconnected.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[RadioOptions]) -> None: ...
    def send(self, data: Data, *, group: Topic = "", timeout: Seconds = ...) -> None:
        """Send a message to a group: text, or at most 255 bytes. Never waits, except with
        nodrop.
        """
    async def asend(self, data: Data, *, group: Topic = "", timeout: Seconds = ...) -> None:
        """send(), awaitable."""
    def send_parts(self, parts: Sequence[Data], *, group: Topic = "",
                   timeout: Seconds = ...) -> None:
        """send() of a list with one part. UsageError for more: RADIO messages have one part."""
    async def asend_parts(self, parts: Sequence[Data], *, group: Topic = "",
                          timeout: Seconds = ...) -> None:
        """send_parts(), awaitable."""
    def send_many(self, messages: Iterable[Data | Sequence[Data]], *, group: Topic = "",
                  timeout: Seconds = ...) -> int:
        """Send each of `messages` to one group. Returns their number."""
    async def asend_many(self, messages: Iterable[Data | Sequence[Data]], *, group: Topic = "",
                         timeout: Seconds = ...) -> int:
        """send_many(), awaitable."""
    def send_batch(  # type: ignore[override]  # a group instead of a second part
            self, data: NDArray[np.uint8] | Buffer, offsets: NDArray[np.integer[Any]], *,
            group: Topic = "", timeout: Seconds = ...) -> int:
        """Send data[offsets[i]:offsets[i+1]] for each i to one group. Returns their number."""
    async def asend_batch(  # type: ignore[override]
            self, data: NDArray[np.uint8] | Buffer, offsets: NDArray[np.integer[Any]], *,
            group: Topic = "", timeout: Seconds = ...) -> int:
        """send_batch(), awaitable."""
    def send_ref(self, data: Data, *, group: Topic = "", timeout: Seconds = ...) -> Pinned:
        """send() without copying. Do not change the buffer until the returned Pinned is done."""
    async def asend_ref(self, data: Data, *, group: Topic = "",
                        timeout: Seconds = ...) -> Pinned:
        """send_ref(), awaitable."""
    def wait_subscribers(self, group: Topic = "", n: int = 1,
                         timeout: float | None = None) -> None:
        """Wait until n peers would receive a message to `group`. Over udp:// any connection
        counts.
        """
    async def await_subscribers(self, group: Topic = "", n: int = 1,
                                timeout: float | None = None) -> None:
        """wait_subscribers(), awaitable."""

class Dish(_Receives):
    """Receives messages of the groups that it joined (RFC 48). recv() returns the body, recv_msg()
    a Message with its group.
    """
    def __init__(self, *, groups: Iterable[Topic] | Topic = (),
                 context: Context | None = None,
                 **options: Unpack[SocketOptions]) -> None: ...
    def join(self, *groups: Topic) -> None:
        """Join these groups: text, or at most 255 bytes each. Joins are counted: leave a group as
        many times as you joined it.
        """
    def leave(self, *groups: Topic) -> None:
        """Undo one join() of each group. NotSubscribed if there is none."""
    @property
    def groups(self) -> tuple[str, ...]:
        """The joined groups, each once, in order. Bytes that are not UTF-8 appear as
        surrogates.
        """

class Pair1(_Sends, _Receives):
    """A Pair whose messages count the devices that they pass. poly=True allows any number of peers.
    recv_msg() then returns the sender (peer, reply()), send() sends to the first peer, and
    send_to() takes a Peer or its id. A message to a peer at its HWM is dropped and counted.
    """
    poly: bool
    """poly: bool, default False: any number of peers; send_to() names one."""
    raw: bool
    """raw: bool, default False: a forwarded message keeps its hop count."""
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[Pair1Options]) -> None: ...
    def send_to(self, peer: int | Peer, *parts: Data, timeout: Seconds = ...) -> None:
        """Send to one peer. NoSuchPeer if it is not connected."""
    async def asend_to(self, peer: int | Peer, *parts: Data, timeout: Seconds = ...) -> None:
        """send_to(), awaitable."""

class Bus(_Sends, _Receives):
    """Sends each message to every directly connected peer and receives from all of them in turn.
    Messages are not forwarded. A message to a peer at its HWM is dropped and counted.
    """
    nodrop: bool
    """nodrop: bool, default False: wait for peers whose queues are full instead of dropping."""
    raw: bool
    """raw: bool, default False: messages identify their sender and are not returned to it."""
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[BusOptions]) -> None: ...

class Surveyor(_Surveys, _Sends, _Receives):
    """Asks all peers at once and collects their answers until a deadline.

    `for answer in s.survey(b"who?", deadline=0.25)` works from any number of threads and tasks,
    which take turns. Use new_context() to run surveys in parallel. Plain send() and recv() are for
    one thread: recv() returns the answers, then raises RecvTimeout once when the survey is over,
    then StateError.
    """
    deadline: float
    """deadline: seconds, default 1.0: time for the answers to a survey."""
    nodrop: bool
    """nodrop: bool, default False: wait for peers whose queues are full instead of dropping."""
    raw: bool
    """raw: bool, default False: the application handles the envelope, as devices do."""
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[SurveyorOptions]) -> None: ...
    def new_context(self, **timeouts: float | None) -> SurveyorContext:
        """A context that runs its own surveys over the same peers, with survey, send, recv and
        their variants, and its own send_timeout= and recv_timeout=. `with` closes it.
        """

class Respondent(_Sends, _Receives):
    """Receives surveys and answers them. Any number of threads and tasks can use recv_msg() and
    Message.reply(), or a context each. Plain recv() and send() are for one thread.
    """
    raw: bool
    """raw: bool, default False: the application handles the envelope, as devices do."""
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[RespondentOptions]) -> None: ...
    def new_context(self, **timeouts: float | None) -> RepContext:
        """A context that receives and answers surveys on its own, with recv, send and their
        variants, and its own send_timeout= and recv_timeout=. `with` closes it.
        """

class Client(_Sends, _Receives):
    """Sends to servers in turn and receives from them in turn (RFC 41). Messages have one part. Any
    number of them may be outstanding.
    """
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[ClientOptions]) -> None: ...
class Server(_Sends, _Receives):
    """Addresses each client by its number (RFC 41). Messages have one part. recv_msg() returns a
    Message with its sender (peer, peer_id) and reply(), and so does iteration. send_to() takes a
    Peer or its id and waits while that peer is at its HWM. NoSuchPeer if the peer is
    not connected.
    """
    def send_to(self, peer: int | Peer, *parts: Data, timeout: Seconds = ...) -> None:
        """Send to one peer. NoSuchPeer if it is not connected."""
    async def asend_to(self, peer: int | Peer, *parts: Data, timeout: Seconds = ...) -> None:
        """send_to(), awaitable."""
    def __iter__(self) -> Incoming[Message]: ...  # type: ignore[override]  # whose it is matters
    def __aiter__(self) -> Incoming[Message]: ...  # type: ignore[override]

class PeerSocket(Server):
    """Peers of equal rank that address each other by number (RFC 51), like Server; a connecting
    socket is a server, too. (The record of a connected socket is `Peer`; this pattern is
    "peer".)
    """
    def connect_peer(self, url: Address, *, wait: float | None = None,
                     **endpoint: Unpack[EndpointOptions]) -> Peer:
        """connect() that returns the peer. Waits up to `wait` seconds for it (None: for ever). The
        peer gets another number after each reconnect. ConnectTimeout, HandshakeFailed, or PeerGone
        if it has disconnected again; after an error the endpoint is removed.
        """
    async def aconnect_peer(self, url: Address, *, wait: float | None = None,
                            **endpoint: Unpack[EndpointOptions]) -> Peer:
        """connect_peer(), awaitable."""
class Scatter(_Sends):
    """Sends each message to one of its peers, in turn (RFC 49). Messages have one part."""
    strategy: str
    """strategy: text, default 'priority': how to choose the peer for a message: 'priority',
    'round_robin', 'least_loaded', 'two_choices', an installed strategy, or 'module:Name'.
    """
    def __init__(self, *, context: Context | None = None,
                 **options: Unpack[ScatterOptions]) -> None: ...
class Gather(_Receives):
    """Receives from all its peers in turn (RFC 49). Messages have one part."""
class Channel(_Sends, _Receives):
    """Sends to and receives from exactly one peer (RFC 52). Messages have one part."""
class Dgram(_Sends, _ReceivesParts):
    """A datagram socket, for udp:// only. recv_parts() returns [address, body]. recv_msg() returns
    a Message with the address as its routing_id, and so does iteration. send_to() takes an address:
    "192.0.2.1:5555" or "[::1]:5555". bind() receives from everyone. connect() takes a free port and
    receives from that address only. Call bind() or connect() once, not both.
    """
    def send_to(self, peer: str | bytes, *parts: Data, timeout: Seconds = ...) -> None:
        """Send to one peer. NoSuchPeer if it is not connected."""
    async def asend_to(self, peer: str | bytes, *parts: Data, timeout: Seconds = ...) -> None:
        """send_to(), awaitable."""
    def __iter__(self) -> Incoming[Message]: ...
    def __aiter__(self) -> Incoming[Message]: ...

@overload
def socket(pattern: Literal["pair"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Pair:
    """Sends to and receives from exactly one peer."""
@overload
def socket(pattern: Literal["req"],
           *, context: Context | None = None,
           **options: Unpack[ReqOptions]) -> Req:
    """Sends a request to one peer and waits for its reply."""
@overload
def socket(pattern: Literal["rep"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Rep:
    """Receives requests and sends replies."""
@overload
def socket(pattern: Literal["dealer"],
           *, context: Context | None = None,
           **options: Unpack[DealerOptions]) -> Dealer:
    """Sends to its peers in turn and receives from them in turn."""
@overload
def socket(pattern: Literal["router"],
           *, context: Context | None = None,
           **options: Unpack[RouterOptions]) -> Router:
    """Addresses each peer by its routing id."""
@overload
def socket(pattern: Literal["stream"],
           *, context: Context | None = None,
           **options: Unpack[StreamOptions]) -> Stream:
    """Exchanges raw bytes over tcp, tls+tcp and ipc, without handshake or framing, with a peer
    that speaks any protocol.
    """
@overload
def socket(pattern: Literal["push"],
           *, context: Context | None = None,
           **options: Unpack[PushOptions]) -> Push:
    """Sends each message to one of its peers, in turn."""
@overload
def socket(pattern: Literal["pull"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Pull:
    """Receives from all its peers, one message from each in turn."""
@overload
def socket(pattern: Literal["pub"],
           *, context: Context | None = None,
           **options: Unpack[PubOptions]) -> Pub:
    """Sends each message to all peers that subscribed to a prefix of its first part."""
@overload
def socket(pattern: Literal["sub"], *, topics: Iterable[Topic] | Topic = (),
           context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Sub:
    """Receives messages whose first part starts with a subscribed topic."""
@overload
def socket(pattern: Literal["xpub"],
           *, context: Context | None = None,
           **options: Unpack[XPubOptions]) -> XPub:
    """A Pub that exposes subscriptions: recv() returns them as a byte 1 or 0 and the topic."""
@overload
def socket(pattern: Literal["xsub"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> XSub:
    """A Sub that subscribes by messages: send(b"\\x01topic") subscribes, send(b"\\x00topic")
    unsubscribes.
    """
@overload
def socket(pattern: Literal["radio"],
           *, context: Context | None = None,
           **options: Unpack[RadioOptions]) -> Radio:
    """Sends each message to all peers that joined its group (RFC 48), over udp:// to every
    listener.
    """
@overload
def socket(pattern: Literal["dish"], *, groups: Iterable[Topic] | Topic = (),
           context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Dish:
    """Receives messages of the groups that it joined (RFC 48)."""
@overload
def socket(pattern: Literal["pair1"],
           *, context: Context | None = None,
           **options: Unpack[Pair1Options]) -> Pair1:
    """A Pair whose messages count the devices that they pass."""
@overload
def socket(pattern: Literal["bus"],
           *, context: Context | None = None,
           **options: Unpack[BusOptions]) -> Bus:
    """Sends each message to every directly connected peer and receives from all of them in
    turn.
    """
@overload
def socket(pattern: Literal["surveyor"],
           *, context: Context | None = None,
           **options: Unpack[SurveyorOptions]) -> Surveyor:
    """Asks all peers at once and collects their answers until a deadline."""
@overload
def socket(pattern: Literal["respondent"],
           *, context: Context | None = None,
           **options: Unpack[RespondentOptions]) -> Respondent:
    """Receives surveys and answers them."""
@overload
def socket(pattern: Literal["client"],
           *, context: Context | None = None,
           **options: Unpack[ClientOptions]) -> Client:
    """Sends to servers in turn and receives from them in turn (RFC 41)."""
@overload
def socket(pattern: Literal["server"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Server:
    """Addresses each client by its number (RFC 41)."""
@overload
def socket(pattern: Literal["scatter"],
           *, context: Context | None = None,
           **options: Unpack[ScatterOptions]) -> Scatter:
    """Sends each message to one of its peers, in turn (RFC 49)."""
@overload
def socket(pattern: Literal["gather"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Gather:
    """Receives from all its peers in turn (RFC 49)."""
@overload
def socket(pattern: Literal["peer"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> PeerSocket:
    """Peers of equal rank that address each other by number (RFC 51), like Server; a connecting
    socket is a server, too.
    """
@overload
def socket(pattern: Literal["channel"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Channel:
    """Sends to and receives from exactly one peer (RFC 52)."""
@overload
def socket(pattern: Literal["dgram"],
           *, context: Context | None = None,
           **options: Unpack[SocketOptions]) -> Dgram:
    """A datagram socket, for udp:// only."""
@overload
def socket(pattern: str, **options: Any) -> Socket:
    """Create a socket of this pattern: socket("push", connect="tcp://host:5555")."""

class Ready(enum.Flag):
    """What poll() waits for and returns."""
    READ = 1
    WRITE = 2
    ERROR = 4

class HasFileno(Protocol):
    def fileno(self) -> int:
        """The descriptor."""

Pollable: TypeAlias = Socket | int | HasFileno

def poll(objects: Iterable[Pollable | tuple[Pollable, Ready]],
         timeout: float | None = None) -> list[tuple[Any, Ready]]:
    """Wait until one of these is ready and return [(object, Ready)], or [] after `timeout` seconds.
    Each object is a socket, a descriptor, something with fileno(), or a tuple of one of those and
    the wanted events (default: Ready.READ).
    """
async def apoll(objects: Iterable[Pollable | tuple[Pollable, Ready]],
                timeout: float | None = None) -> list[tuple[Any, Ready]]:
    """poll(), awaitable."""

class _Running(_With):
    """A `with` block stops it at its end. A subclass has _loop(), which moves messages until
    _stop() or an error ends it, stats(), pause(), resume() and _stop(linger). It calls _begin() to
    start the thread. `_kind`: what it is; `_which()`: which one, for monitors. `_its_sockets`:
    its sockets, where a function of the program runs on its thread.
    """
    @property
    def running(self) -> bool:
        """Whether it moves messages, or is paused. False after stop() or an error."""
    def pause(self) -> None:
        """Stop moving messages, which stay in the queues until resume()."""
    def resume(self) -> None:
        """Move messages again."""
    def wait_stopped(self, timeout: float | None = None) -> None:
        """Wait until it has ended. If an error ended it, raise that error (JournalFull if the disk
        of a journal device is full). WaitTimeout after `timeout` seconds.
        """
    async def await_stopped(self, timeout: float | None = None) -> None:
        """wait_stopped(), awaitable."""
    def stop(self, linger: Seconds = ...) -> tuple[CloseReport, ...]:
        """Stop it and close each socket within `linger` seconds. Returns the sockets' reports.
        Idempotent. In a finalizer that the garbage collector runs, or that interrupts another call
        of the library, it returns no reports, and a thread stops the device.
        """
    async def astop(self, linger: Seconds = ...) -> tuple[CloseReport, ...]:
        """stop(), awaitable."""

class Device(_Running):
    """A running device. stop() sends the messages in its buffer, closes both sockets and the
    capture socket, and returns their reports: front, back, capture.
    """
    front: Socket
    back: Socket
    capture: Socket | None
    hooks: tuple[Hook, ...]
    def stats(self) -> DeviceStats:
        """What has passed so far."""

class _Recorder(_Running):
    """A running journal device. stop() stops reading, makes everything read durable and closes the
    socket. The writer stays open; it belongs to the caller. If the writer fails, stop() raises its
    error. stats().unwritten messages are then lost. Data that the writer still buffers is written
    once its commit() succeeds.
    """
    front: Socket
    writer: Any
    acknowledges: bool
    error: BaseException | None
    def stats(self) -> Any:
        """What has been stored so far."""

_Hooks: TypeAlias = (
    Hook | Callable[[HookMessage], HookMessage | Data | list[Data] | tuple[Data, ...] | None])

@overload
def device(front: Socket, back: Socket | None = None, *, capture: Socket | None = None,
           allow_bus: bool = False, hooks: Sequence[_Hooks] = ()) -> Device:
    """Start moving messages between front and back. These pairs fit together:

        router and dealer          a queue: requests to any free worker, replies back
        respondent and surveyor    the same for surveys
        xsub and xpub, sub and pub a forwarder: to all subscribers
        pull and push              a streamer: collects work and distributes it
        pair and pair, pair1 and pair1
        bus and bus                only with allow_bus=True, see below

    `capture` receives a copy of every message that is passed on. `hooks` filter, change, sample and
    tap messages on their way, in the order of the list: Hooks, or functions, each of which is a
    Hook.transform. The device switches surveyor, respondent, bus and
    pair1 sockets to their raw form. The raw form of req and rep is dealer and router.

    A bus device requires allow_bus=True. BUS messages carry no route, so if a second path joins the
    two buses (a second device is enough), each message returns for ever and multiplies. With
    allow_bus=True you can also pass a single bus, which then repeats each message to all other
    members.

    If back is a journal's writer, the device stores what front receives. `rights` says what each
    user may write: {user: mqcore.journal.Rights(write=...)}, or a function of the Peer, which runs
    on the device's thread: it may neither wait nor close the socket. If front is a journal's reader
    as well, the device mirrors its messages: see mqcore/journal/README.md. These return objects
    with the methods of a Device.
    """
@overload
def device(front: Any, back: Any, *, rights: Any = None) -> _Recorder:
    """Start moving messages between front and back. These pairs fit together:

        router and dealer          a queue: requests to any free worker, replies back
        respondent and surveyor    the same for surveys
        xsub and xpub, sub and pub a forwarder: to all subscribers
        pull and push              a streamer: collects work and distributes it
        pair and pair, pair1 and pair1
        bus and bus                only with allow_bus=True, see below

    `capture` receives a copy of every message that is passed on. `hooks` filter, change, sample and
    tap messages on their way, in the order of the list: Hooks, or functions, each of which is a
    Hook.transform. The device switches surveyor, respondent, bus and
    pair1 sockets to their raw form. The raw form of req and rep is dealer and router.

    A bus device requires allow_bus=True. BUS messages carry no route, so if a second path joins the
    two buses (a second device is enough), each message returns for ever and multiplies. With
    allow_bus=True you can also pass a single bus, which then repeats each message to all other
    members.

    If back is a journal's writer, the device stores what front receives. `rights` says what each
    user may write: {user: mqcore.journal.Rights(write=...)}, or a function of the Peer, which runs
    on the device's thread: it may neither wait nor close the socket. If front is a journal's reader
    as well, the device mirrors its messages: see mqcore/journal/README.md. These return objects
    with the methods of a Device.
    """
def empty(n: int) -> memoryview:
    """A writable buffer of n bytes to fill and send. send() copies it; send_ref() does not."""
def transports() -> list[PluginInfo]:
    """The transports installed here, and those refused and why; `mq info` lists them."""
def filters() -> list[PluginInfo]:
    """The filters installed here, and those refused and why; `mq info` lists them."""
def resolvers() -> list[PluginInfo]:
    """The resolvers installed here, and those refused and why; `mq info` lists them."""
def patterns() -> list[PluginInfo]:
    """The patterns installed here, and those refused and why; `mq info` lists them."""
def strategies() -> list[PluginInfo]:
    """The strategies installed here, and those refused and why; `mq info` lists them."""
