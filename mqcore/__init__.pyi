"""Types of the public names; what each call means is in its docstring."""

import enum
import ssl
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from mqcore.errors import (
    AddressDenied as AddressDenied,
)
from mqcore.errors import (
    AddressError as AddressError,
)
from mqcore.errors import (
    AddressInUse as AddressInUse,
)
from mqcore.errors import (
    AddressNotAvailable as AddressNotAvailable,
)
from mqcore.errors import (
    BindError as BindError,
)
from mqcore.errors import (
    ConnectTimeout as ConnectTimeout,
)
from mqcore.errors import (
    ContextClosed as ContextClosed,
)
from mqcore.errors import (
    Error as Error,
)
from mqcore.errors import (
    Forked as Forked,
)
from mqcore.errors import (
    HandshakeFailed as HandshakeFailed,
)
from mqcore.errors import (
    MessageTooLarge as MessageTooLarge,
)
from mqcore.errors import (
    NoSuchPeer as NoSuchPeer,
)
from mqcore.errors import (
    NotSubscribed as NotSubscribed,
)
from mqcore.errors import (
    NotSupported as NotSupported,
)
from mqcore.errors import (
    OptionError as OptionError,
)
from mqcore.errors import (
    PeerError as PeerError,
)
from mqcore.errors import (
    PeerGone as PeerGone,
)
from mqcore.errors import (
    PluginError as PluginError,
)
from mqcore.errors import (
    RecvTimeout as RecvTimeout,
)
from mqcore.errors import (
    RemoteRefused as RemoteRefused,
)
from mqcore.errors import (
    SendTimeout as SendTimeout,
)
from mqcore.errors import (
    SocketClosed as SocketClosed,
)
from mqcore.errors import (
    StateError as StateError,
)
from mqcore.errors import (
    Timeout as Timeout,
)
from mqcore.errors import (
    UnknownTransport as UnknownTransport,
)
from mqcore.errors import (
    UsageError as UsageError,
)
from mqcore.errors import (
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

# -- options ---------------------------------------------------------------------------------------

class TlsOptions(TypedDict, total=False):
    tls_cert: str | None
    tls_key: str | None
    tls_key_password: str | None
    tls_ca: str | None
    tls_verify: Literal["full", "ca", "none"]
    tls_hostname: str | None
    tls_mutual: bool | None
    tls_min_version: Literal["1.2", "1.3"]
    tls_context: ssl.SSLContext | None

class EndpointOptions(TlsOptions, total=False):
    max_message_size: int | None
    connect_timeout: float | None
    handshake_timeout: float | None
    reconnect: float | None
    reconnect_max: float
    reconnect_stop: Collection[Literal["refused", "handshake"]]
    heartbeat: float | None
    heartbeat_timeout: float | None
    heartbeat_ttl: float
    backlog: int
    prio: int
    wire: Literal["zmtp", "sp"] | None
    send_buffer: int | None
    recv_buffer: int | None
    keepalive: bool
    tos: int

class Options(EndpointOptions, total=False):
    send_timeout: float | None
    recv_timeout: float | None
    linger: float | None
    send_hwm: int | None
    recv_hwm: int | None
    send_hwm_bytes: int | None
    recv_hwm_bytes: int | None
    on_full: Literal["pattern", "block", "drop_new", "drop_old", "disconnect"]
    conflate: bool
    immediate: bool
    routing_id: bytes
    metadata: Mapping[str, bytes | str]
    max_hops: int

class ReqOptions(Options, total=False):
    correlate: bool | None
    strict: bool
    probe: bool

class DealerOptions(Options, total=False):
    probe: bool

class RouterOptions(Options, total=False):
    mandatory: bool
    handover: bool
    probe: bool

class PubOptions(Options, total=False):
    nodrop: bool
    retain: int

class RadioOptions(Options, total=False):
    nodrop: bool

class XPubOptions(Options, total=False):
    verbose: bool
    verboser: bool
    manual: bool
    welcome: bytes | None
    nodrop: bool
    retain: int

class ContextOptions(Options, total=False):
    correlate: bool | None
    strict: bool
    probe: bool
    mandatory: bool
    handover: bool
    nodrop: bool
    retain: int
    verbose: bool
    verboser: bool
    manual: bool
    welcome: bytes | None

# -- records ---------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Peer:
    id: int
    address: str
    endpoint: str
    wire: str
    pattern: str
    routing_id: bytes = b""
    user: str | None = None
    pid: int | None = None
    metadata: Mapping[str, bytes] = ...
    prio: int = 8

@dataclass(frozen=True)
class PeerStats:
    offered: int = 0
    written: int = 0
    queued_out: int = 0
    read: int = 0
    delivered: int = 0
    queued_in: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    dropped: dict[str, int] = ...
    dropped_out: dict[str, int] = ...
    dropped_in: dict[str, int] = ...
    bounced: int = 0
    rtt: float | None = None
    since: float = 0.0
    writes: int = 0
    reads: int = 0

@dataclass(frozen=True)
class Stats:
    sent: int = 0
    received: int = 0
    waiting: int = 0
    unmatched: int = 0
    dropped: dict[str, int] = ...
    pinned_bytes: int = 0
    reconnects: int = 0
    peers: dict[Peer, PeerStats] = ...
    total: PeerStats = ...
    def as_dict(self) -> dict[str, Any]: ...

@dataclass(frozen=True)
class CloseReport:
    written: int = 0
    undelivered: int = 0
    dropped: dict[str, int] = ...
    unacked: int = 0
    elapsed: float = 0.0
    peers: dict[Peer, PeerStats] = ...
    def __bool__(self) -> bool: ...

@dataclass(frozen=True)
class Event:
    at: float
    socket: Socket
    endpoint: str
    peer: Peer | None
    reason: str
    @property
    def added(self) -> tuple[str, ...]: ...
    @property
    def removed(self) -> tuple[str, ...]: ...
    @property
    def kind(self) -> str: ...

class PluginInfo:
    kind: str
    name: str
    distribution: str
    version: str
    target: str
    refused: str
    doc: str
    form: str
    gaps: Mapping[str, str]
    unavailable: str
    def __iter__(self) -> Iterator[Any]: ...

class Endpoint:
    url: str
    kind: Literal["bind", "connect"]
    given: str
    @property
    def state(self) -> Literal["listening", "connecting", "handshaking", "connected", "waiting",
                               "stopped", "closed"]: ...
    @property
    def error(self) -> Error | None: ...
    @property
    def members(self) -> tuple[Endpoint, ...]: ...
    def wait(self, timeout: float | None = None) -> None: ...
    async def await_(self, timeout: float | None = None) -> None: ...
    def close(self) -> None: ...

Address: TypeAlias = str | Endpoint

class EventStream:
    backlog: int
    lost: int
    def get(self, timeout: float | None = None) -> Event: ...
    async def aget(self, timeout: float | None = None) -> Event: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Event: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

class Stream(Protocol[T_co]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> T_co: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> T_co: ...

# -- messages --------------------------------------------------------------------------------------

class Message:
    @property
    def parts(self) -> tuple[bytes | memoryview, ...]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def topic(self) -> bytes | None: ...
    @property
    def peer(self) -> Peer: ...
    @property
    def peer_id(self) -> int: ...
    @property
    def routing_id(self) -> bytes | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def received_at(self) -> float: ...
    @property
    def replied(self) -> bool: ...
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def reply(self, *parts: Data, timeout: Seconds = ...) -> None: ...
    async def areply(self, *parts: Data, timeout: Seconds = ...) -> None: ...

class Batch:
    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    split: NDArray[np.int32]
    def __len__(self) -> int: ...
    def __getitem__(self, i: int) -> memoryview: ...
    def __iter__(self) -> Iterator[memoryview]: ...
    def to_list(self) -> list[bytes]: ...
    def to_arrow(self) -> Any: ...

class Pinned:
    @property
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> None: ...
    async def await_(self, timeout: float | None = None) -> None: ...

# -- context ---------------------------------------------------------------------------------------

class Context:
    def __init__(self, *, io_threads: int = 1, max_sockets: int = 65536, lead_tick: float = 0.01,
                 **defaults: Unpack[ContextOptions]) -> None: ...
    @staticmethod
    def default() -> Context: ...
    @overload
    def socket(self, pattern: Literal["pair"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[Options]) -> Pair: ...
    @overload
    def socket(self, pattern: Literal["req"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[ReqOptions]) -> Req: ...
    @overload
    def socket(self, pattern: Literal["rep"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[Options]) -> Rep: ...
    @overload
    def socket(self, pattern: Literal["dealer"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[DealerOptions]) -> Dealer: ...
    @overload
    def socket(self, pattern: Literal["router"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[RouterOptions]) -> Router: ...
    @overload
    def socket(self, pattern: Literal["push"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[Options]) -> Push: ...
    @overload
    def socket(self, pattern: Literal["pull"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[Options]) -> Pull: ...
    @overload
    def socket(self, pattern: Literal["pub"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[PubOptions]) -> Pub: ...
    @overload
    def socket(self, pattern: Literal["sub"], *, topics: Iterable[Topic] | Topic = (),
               bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[Options]) -> Sub: ...
    @overload
    def socket(self, pattern: Literal["xpub"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[XPubOptions]) -> XPub: ...
    @overload
    def socket(self, pattern: Literal["xsub"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[Options]) -> XSub: ...
    @overload
    def socket(self, pattern: Literal["radio"], *, bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[RadioOptions]) -> Radio: ...
    @overload
    def socket(self, pattern: Literal["dish"], *, groups: Iterable[Topic] | Topic = (),
               bind: Address | Iterable[Address] = (),
               connect: Address | Iterable[Address] = (),
               **options: Unpack[Options]) -> Dish: ...
    @overload
    def socket(self, pattern: str, **kw: Any) -> Socket: ...
    @property
    def sockets(self) -> tuple[Socket, ...]: ...
    @property
    def closed(self) -> bool: ...
    def close(self, linger: Seconds = ...) -> CloseReport: ...
    async def aclose(self, linger: Seconds = ...) -> CloseReport: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None: ...

# -- sockets ---------------------------------------------------------------------------------------

class Socket:
    """What all patterns share; sending and receiving belong to those that do."""

    send_timeout: float | None
    recv_timeout: float | None
    linger: float | None
    send_hwm: int | None
    recv_hwm: int | None
    send_hwm_bytes: int | None
    recv_hwm_bytes: int | None
    on_full: Literal["pattern", "block", "drop_new", "drop_old", "disconnect"]
    conflate: bool
    immediate: bool
    max_message_size: int | None
    connect_timeout: float | None
    handshake_timeout: float | None
    reconnect: float | None
    reconnect_max: float
    reconnect_stop: Collection[Literal["refused", "handshake"]]
    heartbeat: float | None
    heartbeat_timeout: float | None
    heartbeat_ttl: float
    backlog: int
    prio: int
    wire: Literal["zmtp", "sp"] | None
    send_buffer: int | None
    recv_buffer: int | None
    keepalive: bool
    tos: int
    routing_id: bytes
    metadata: Mapping[str, bytes | str]
    max_hops: int
    def __init__(self, *, bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[Options]) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def pattern(self) -> str: ...
    @property
    def context(self) -> Context: ...
    @property
    def endpoints(self) -> tuple[Endpoint, ...]: ...
    def bind(self, url: Address, **endpoint: Unpack[EndpointOptions]) -> Endpoint: ...
    async def abind(self, url: Address, **endpoint: Unpack[EndpointOptions]) -> Endpoint: ...
    def connect(self, url: Address, *, wait: float | None = 0, refresh: float | None = ...,
                family: Literal[0, 4, 6] = ...,
                **endpoint: Unpack[EndpointOptions]) -> Endpoint: ...
    async def aconnect(self, url: Address, *, wait: float | None = 0, refresh: float | None = ...,
                       family: Literal[0, 4, 6] = ...,
                       **endpoint: Unpack[EndpointOptions]) -> Endpoint: ...
    def unbind(self, at: Address) -> None: ...
    async def aunbind(self, at: Address) -> None: ...
    def disconnect(self, at: Address) -> None: ...
    async def adisconnect(self, at: Address) -> None: ...
    def wait_peers(self, n: int = 1, timeout: float | None = None) -> None: ...
    async def await_peers(self, n: int = 1, timeout: float | None = None) -> None: ...
    def peers(self) -> list[Peer]: ...
    def stats(self) -> Stats: ...
    def events(self, *, backlog: int = 1000) -> EventStream: ...
    def explain(self) -> str: ...
    def close(self, linger: Seconds = ...) -> CloseReport: ...
    async def aclose(self, linger: Seconds = ...) -> CloseReport: ...
    def fileno(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...

class _Sends(Socket):
    def send(self, data: Data, *, timeout: Seconds = ...) -> None: ...
    async def asend(self, data: Data, *, timeout: Seconds = ...) -> None: ...
    def send_parts(self, parts: Sequence[Data], *, timeout: Seconds = ...) -> None: ...
    async def asend_parts(self, parts: Sequence[Data], *, timeout: Seconds = ...) -> None: ...
    def send_many(self, messages: Iterable[Data | Sequence[Data]], *,
                  timeout: Seconds = ...) -> int: ...
    async def asend_many(self, messages: Iterable[Data | Sequence[Data]], *,
                         timeout: Seconds = ...) -> int: ...
    def send_batch(self, data: NDArray[np.uint8] | Buffer, offsets: NDArray[np.integer[Any]], *,
                   timeout: Seconds = ...) -> int: ...
    async def asend_batch(self, data: NDArray[np.uint8] | Buffer,
                          offsets: NDArray[np.integer[Any]], *, timeout: Seconds = ...) -> int: ...
    def send_ref(self, data: Data, *, timeout: Seconds = ...) -> Pinned: ...
    async def asend_ref(self, data: Data, *, timeout: Seconds = ...) -> Pinned: ...

class _ReceivesParts(Socket):
    def recv_parts(self, *, timeout: Seconds = ...) -> list[bytes]: ...
    async def arecv_parts(self, *, timeout: Seconds = ...) -> list[bytes]: ...
    def recv_msg(self, *, timeout: Seconds = ...) -> Message: ...
    async def arecv_msg(self, *, timeout: Seconds = ...) -> Message: ...
    def messages(self) -> Stream[Message]: ...

class _Receives(_ReceivesParts):
    def recv(self, *, timeout: Seconds = ...) -> bytes: ...
    async def arecv(self, *, timeout: Seconds = ...) -> bytes: ...
    def recv_into(self, buffer: Buffer, *, timeout: Seconds = ...) -> int: ...
    async def arecv_into(self, buffer: Buffer, *, timeout: Seconds = ...) -> int: ...
    def recv_many(self, max: int = 1024, *, timeout: Seconds = ...) -> list[bytes]: ...
    async def arecv_many(self, max: int = 1024, *, timeout: Seconds = ...) -> list[bytes]: ...
    def recv_batch(self, max: int = 65536, *, max_bytes: int = ...,
                   timeout: Seconds = ...) -> Batch: ...
    async def arecv_batch(self, max: int = 65536, *, max_bytes: int = ...,
                          timeout: Seconds = ...) -> Batch: ...
    def batches(self, max: int = 65536) -> Stream[Batch]: ...
    def __iter__(self) -> Stream[bytes]: ...
    def __aiter__(self) -> Stream[bytes]: ...

class Pair(_Sends, _Receives): ...

class Req(_Sends, _Receives):
    correlate: bool | None
    strict: bool
    probe: bool
    def __init__(self, *, bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[ReqOptions]) -> None: ...
    def request(self, data: Data | Sequence[Data], *, timeout: Seconds = ...) -> bytes: ...
    async def arequest(self, data: Data | Sequence[Data], *, timeout: Seconds = ...) -> bytes: ...
    def request_msg(self, data: Data | Sequence[Data], *, timeout: Seconds = ...) -> Message: ...
    async def arequest_msg(self, data: Data | Sequence[Data], *,
                           timeout: Seconds = ...) -> Message: ...

class Rep(_Sends, _Receives): ...

class Dealer(_Sends, _Receives):
    probe: bool
    def __init__(self, *, bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[DealerOptions]) -> None: ...

class Router(_Sends, _ReceivesParts):
    mandatory: bool
    handover: bool
    probe: bool
    def __init__(self, *, bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[RouterOptions]) -> None: ...
    def send_to(self, peer: bytes | Peer, *parts: Data, timeout: Seconds = ...) -> None: ...
    async def asend_to(self, peer: bytes | Peer, *parts: Data, timeout: Seconds = ...) -> None: ...
    def __iter__(self) -> Stream[Message]: ...
    def __aiter__(self) -> Stream[Message]: ...

class Push(_Sends): ...

class Pull(_Receives): ...

class Pub(_Sends):
    nodrop: bool
    retain: int
    def __init__(self, *, bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[PubOptions]) -> None: ...
    def wait_subscribers(self, topic: Topic = b"", n: int = 1,
                         timeout: float | None = None) -> None: ...
    async def await_subscribers(self, topic: Topic = b"", n: int = 1,
                                timeout: float | None = None) -> None: ...

class Sub(_Receives):
    def __init__(self, *, topics: Iterable[Topic] | Topic = (),
                 bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[Options]) -> None: ...
    def subscribe(self, *topics: Topic) -> None: ...
    def unsubscribe(self, *topics: Topic) -> None: ...
    @property
    def topics(self) -> tuple[bytes, ...]: ...

class XPub(_Sends, _Receives):
    verbose: bool
    verboser: bool
    manual: bool
    welcome: bytes | None
    nodrop: bool
    retain: int
    def __init__(self, *, bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[XPubOptions]) -> None: ...
    def subscribe(self, *topics: Topic) -> None: ...
    def unsubscribe(self, *topics: Topic) -> None: ...
    def wait_subscribers(self, topic: Topic = b"", n: int = 1,
                         timeout: float | None = None) -> None: ...
    async def await_subscribers(self, topic: Topic = b"", n: int = 1,
                                timeout: float | None = None) -> None: ...

class XSub(_Sends, _Receives): ...

class Radio(_Sends):
    nodrop: bool
    def __init__(self, *, bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[RadioOptions]) -> None: ...
    def send(self, data: Data, *, group: Topic = "", timeout: Seconds = ...) -> None: ...
    async def asend(self, data: Data, *, group: Topic = "", timeout: Seconds = ...) -> None: ...
    def send_parts(self, parts: Sequence[Data], *, group: Topic = "",
                   timeout: Seconds = ...) -> None: ...
    async def asend_parts(self, parts: Sequence[Data], *, group: Topic = "",
                          timeout: Seconds = ...) -> None: ...
    def send_many(self, messages: Iterable[Data | Sequence[Data]], *, group: Topic = "",
                  timeout: Seconds = ...) -> int: ...
    async def asend_many(self, messages: Iterable[Data | Sequence[Data]], *, group: Topic = "",
                         timeout: Seconds = ...) -> int: ...
    def send_batch(self, data: NDArray[np.uint8] | Buffer, offsets: NDArray[np.integer[Any]], *,
                   group: Topic = "", timeout: Seconds = ...) -> int: ...
    async def asend_batch(self, data: NDArray[np.uint8] | Buffer,
                          offsets: NDArray[np.integer[Any]], *, group: Topic = "",
                          timeout: Seconds = ...) -> int: ...
    def send_ref(self, data: Data, *, group: Topic = "", timeout: Seconds = ...) -> Pinned: ...
    async def asend_ref(self, data: Data, *, group: Topic = "",
                        timeout: Seconds = ...) -> Pinned: ...
    def wait_subscribers(self, group: Topic = "", n: int = 1,
                         timeout: float | None = None) -> None: ...
    async def await_subscribers(self, group: Topic = "", n: int = 1,
                                timeout: float | None = None) -> None: ...

class Dish(_Receives):
    def __init__(self, *, groups: Iterable[Topic] | Topic = (),
                 bind: Address | Iterable[Address] = (),
                 connect: Address | Iterable[Address] = (), context: Context | None = None,
                 **options: Unpack[Options]) -> None: ...
    def join(self, *groups: Topic) -> None: ...
    def leave(self, *groups: Topic) -> None: ...
    @property
    def groups(self) -> tuple[str, ...]: ...

@overload
def socket(pattern: Literal["pair"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[Options]) -> Pair: ...
@overload
def socket(pattern: Literal["req"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[ReqOptions]) -> Req: ...
@overload
def socket(pattern: Literal["rep"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[Options]) -> Rep: ...
@overload
def socket(pattern: Literal["dealer"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[DealerOptions]) -> Dealer: ...
@overload
def socket(pattern: Literal["router"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[RouterOptions]) -> Router: ...
@overload
def socket(pattern: Literal["push"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[Options]) -> Push: ...
@overload
def socket(pattern: Literal["pull"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[Options]) -> Pull: ...
@overload
def socket(pattern: Literal["pub"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[PubOptions]) -> Pub: ...
@overload
def socket(pattern: Literal["sub"], *, topics: Iterable[Topic] | Topic = (),
           bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[Options]) -> Sub: ...
@overload
def socket(pattern: Literal["xpub"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[XPubOptions]) -> XPub: ...
@overload
def socket(pattern: Literal["xsub"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[Options]) -> XSub: ...
@overload
def socket(pattern: Literal["radio"], *, bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[RadioOptions]) -> Radio: ...
@overload
def socket(pattern: Literal["dish"], *, groups: Iterable[Topic] | Topic = (),
           bind: Address | Iterable[Address] = (),
           connect: Address | Iterable[Address] = (),
           context: Context | None = None,
           **options: Unpack[Options]) -> Dish: ...
@overload
def socket(pattern: str, **kw: Any) -> Socket: ...

# -- polling, devices ------------------------------------------------------------------------------

class Ready(enum.Flag):
    READ = 1
    WRITE = 2
    ERROR = 4

class HasFileno(Protocol):
    def fileno(self) -> int: ...

Pollable: TypeAlias = Socket | int | HasFileno

def poll(objects: Iterable[Pollable | tuple[Pollable, Ready]],
         timeout: float | None = None) -> list[tuple[Any, Ready]]: ...
async def apoll(objects: Iterable[Pollable | tuple[Pollable, Ready]],
                timeout: float | None = None) -> list[tuple[Any, Ready]]: ...

@dataclass(frozen=True)
class DeviceStats:
    forth: int = 0
    forth_bytes: int = 0
    forth_refused: int = 0
    back: int = 0
    back_bytes: int = 0
    back_refused: int = 0
    captured: int = 0
    missed: int = 0

class Device:
    front: Socket
    back: Socket
    capture: Socket | None
    @property
    def running(self) -> bool: ...
    def stats(self) -> DeviceStats: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def wait(self, timeout: float | None = None) -> None: ...
    async def await_(self, timeout: float | None = None) -> None: ...
    def stop(self, linger: Seconds = ...) -> tuple[CloseReport, ...]: ...
    async def astop(self, linger: Seconds = ...) -> tuple[CloseReport, ...]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

def device(front: Socket, back: Socket, *, capture: Socket | None = None) -> Device: ...
def empty(n: int, *, socket: Socket | None = None) -> memoryview: ...
def transports() -> list[PluginInfo]: ...
def filters() -> list[PluginInfo]: ...
def resolvers() -> list[PluginInfo]: ...
def patterns() -> list[PluginInfo]: ...
