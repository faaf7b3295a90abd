"""Messaging sockets: ZeroMQ's patterns and wire, for threads, asyncio and trio alike.

    import mqcore as mq

    with mq.Pull(bind="tcp://*:5555") as jobs:
        for job in jobs: ...
"""

from mqcore.api.certificates import (
    Certificate,
    load_certificate,
    load_certificates,
    save_certificate,
)
from mqcore.api.context import Context
from mqcore.api.device import Device, device
from mqcore.api.empty import empty
from mqcore.api.events import EventStream
from mqcore.api.patterns import (
    Bus,
    Channel,
    Client,
    Dealer,
    Dgram,
    Dish,
    Gather,
    Pair,
    Pair1,
    PeerSocket,
    Pub,
    Pull,
    Push,
    Radio,
    Rep,
    Req,
    Router,
    Scatter,
    Server,
    Stream,
    Sub,
    XPub,
    XSub,
    socket,
)
from mqcore.api.poll import Ready, apoll, poll
from mqcore.api.poller import Poller
from mqcore.api.public import (
    Batch,
    Endpoint,
    Message,
    Pinned,
    PluginInfo,
    filters,
    patterns,
    resolvers,
    strategies,
    transports,
)
from mqcore.api.public import version as _version
from mqcore.api.records import CloseReport, DeviceStats, Event, Peer, PeerStats, Stats
from mqcore.api.socket import Socket
from mqcore.api.survey import Respondent, Surveyor
from mqcore.errors import (
    AddressDenied,
    AddressError,
    AddressInUse,
    AddressNotAvailable,
    BindError,
    BlockingCallWarning,
    ConnectTimeout,
    ContextClosed,
    Error,
    Forked,
    HandshakeFailed,
    MessageTooLarge,
    NoSuchPeer,
    NotSubscribed,
    NotSupported,
    OptionError,
    PeerError,
    PeerGone,
    PluginError,
    RecvTimeout,
    RemoteRefused,
    SendTimeout,
    SocketClosed,
    StateError,
    Timeout,
    UnknownTransport,
    UsageError,
    WaitTimeout,
)
from mqcore.security import (
    ANY,
    Asking,
    Curve,
    KeyPair,
    Null,
    Plain,
    Security,
    Verdict,
    curve_keypair,
    curve_public,
)

__version__ = _version
_ROOMS = ("api", "base", "control", "errors", "link", "options", "reactor", "security",
          "sock", "spi", "wire")
__all__ = [name for name in dict(globals())
           # pytest puts "@py_builtins" into the modules of packages that bring it a plug-in
           if name[0] != "_" and name.isidentifier() and name not in _ROOMS]
__all__.append("__version__")
