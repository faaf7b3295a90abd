"""The patterns as classes, and socket(), which finds the class by the pattern's name."""

from __future__ import annotations

from typing import Any

from mqcore.api.aio import Incoming
from mqcore.api.attributes import add_options
from mqcore.api.exchanges import AT_ONCE, ConcurrentRequestCalls
from mqcore.api.pubsub import Pub, Sub, XPub, XSub
from mqcore.api.radio_dish import Dish, Radio
from mqcore.api.socket import Socket
from mqcore.api.sp_contexts import RepContext, ReqContext, RequestLine
from mqcore.api.survey import Respondent, Surveyor
from mqcore.binding.tickets import Turnstile
from mqcore.binding.timing import left_of, limit_of, passed
from mqcore.control.endpoint import Endpoint
from mqcore.control.stats import Peer
from mqcore.errors import PeerGone, UsageError
from mqcore.spi import registry


class Pair(Socket):
    """Sends to and receives from exactly one peer."""

    __slots__ = ()
    _pattern = "pair"


class Push(Socket):
    """Sends each message to one of its peers, in turn."""

    __slots__ = ()
    _pattern = "push"


class Pull(Socket):
    """Receives from all its peers, one message from each in turn."""

    __slots__ = ()
    _pattern = "pull"


class Dealer(Socket):
    """Sends to its peers in turn and receives from them in turn."""

    __slots__ = ()
    _pattern = "dealer"


class Req(ConcurrentRequestCalls, Socket):
    """Sends a request to one peer and waits for its reply. Any number of threads and tasks can call
    request() and arequest() concurrently; up to 1024 of the requests run in parallel.
    new_context() gives you a further line for send() and recv(). Plain send() and recv() are for
    one thread."""

    __slots__ = ("_asked", "_turnstile")
    _pattern = "req"

    def __init__(self, **kw: Any) -> None:
        self._turnstile = Turnstile()  # its first place is the socket's own line
        self._asked: dict[int, Any] = {}  # tasks that wait for replies, by their contexts' numbers
        super().__init__(**kw)
        self._set_places()

    def _set_option(self, name: str, value: Any) -> None:
        super()._set_option(name, value)
        self._set_places()

    def _set_places(self) -> None:
        self._turnstile.beside = 0 if self._options["correlate"] is False else AT_ONCE - 1

    def _close_input(self) -> bool:
        first = super()._close_input()
        self._turnstile.dismiss_all()
        return first

    def _beside(self) -> RequestLine:
        return RequestLine(self)

    def new_context(self, **timeouts: Any) -> ReqContext:
        """A context that sends its own requests over the same peers, with send, recv, request and
        their variants, and its own send_timeout= and recv_timeout=. `with` closes it."""
        return ReqContext(self, **timeouts)


class Client(Socket):
    """Sends to servers in turn and receives from them in turn (RFC 41). Messages have one part. Any
    number of them may be outstanding."""

    __slots__ = ()
    _pattern = "client"


class Scatter(Socket):
    """Sends each message to one of its peers, in turn (RFC 49). Messages have one part."""

    __slots__ = ()
    _pattern = "scatter"


class Gather(Socket):
    """Receives from all its peers in turn (RFC 49). Messages have one part."""

    __slots__ = ()
    _pattern = "gather"


class Channel(Socket):
    """Sends to and receives from exactly one peer (RFC 52). Messages have one part."""

    __slots__ = ()
    _pattern = "channel"


class Rep(Socket):
    """Receives requests and sends replies. Any number of threads and tasks can use recv_msg() and
    Message.reply(), or a context each. Plain recv() and send() are for one thread."""

    __slots__ = ()
    _pattern = "rep"

    def new_context(self, **timeouts: Any) -> RepContext:
        """A context that receives requests and replies on its own, with recv, send and their
        variants, and its own send_timeout= and recv_timeout=. `with` closes it."""
        return RepContext(self, **timeouts)


class _Addressing(Socket):
    """Patterns that send a message to a named peer."""

    __slots__ = ()

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        """The message and its peer's number. 0: the message itself names the peer."""
        if not parts:
            raise UsageError("send_to() needs at least one part",
                             hint='send_to(peer, b"") sends an empty message')
        return list(parts), peer.id if isinstance(peer, Peer) else 0

    def send_to(self, peer: Any, *parts: Any, timeout: Any = ...) -> None:
        """Send to one peer. NoSuchPeer if it is not connected."""
        message, number = self._target(peer, parts)
        if not number:
            self.send_parts(message, timeout=timeout)
            return
        limit = limit_of(timeout, self.send_timeout)
        while True:
            seen = self._change()
            why = self._try_send(message, False, number)
            if why == 0:
                return
            if limit == 0 or passed(limit):
                self._fail_send(why, timeout)
            self._wait(seen, left_of(limit))

    async def asend_to(self, peer: Any, *parts: Any, timeout: Any = ...) -> None:
        """send_to(), awaitable."""
        message, number = self._target(peer, parts)
        await self._asend(message, False, timeout, number)


class _Telling(_Addressing):
    """Patterns whose iteration yields Messages, because their sender matters."""

    __slots__ = ()

    def __iter__(self) -> Any:
        return Incoming(self.recv_msg, self.arecv_msg)

    __aiter__ = __iter__


class _Routing(_Telling):
    """What Router and Stream share: their peers have routing ids."""

    __slots__ = ()

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        message, number = super()._target(peer, parts)
        if isinstance(peer, str):
            raise UsageError("a routing id must be bytes, not str",
                             hint="send_to(name.encode(), ...)")
        return (message, number) if number else ([peer, *message], 0)


class Router(_Routing):
    """Addresses each peer by its routing id. recv_parts() returns [id, ...]. recv_msg() returns a
    Message with routing_id and reply(), and so does iteration. send_to() takes a routing id or a
    Peer and raises NoSuchPeer if that peer is not connected. With mandatory=False such messages are
    dropped and counted."""

    __slots__ = ()
    _pattern = "router"


class Stream(_Routing):
    """Exchanges raw bytes over tcp, tls+tcp and ipc, without handshake or framing, with a peer that
    speaks any protocol.

    recv_msg() returns the bytes that have arrived on one connection: a Message of one part with
    peer and routing_id, of at most max_message_size. Iteration yields Messages. send_to() takes a
    Peer or a routing id, and waits for a peer that reads slowly. send_to(peer, b"") closes the
    connection after everything sent before. The socket does not reconnect a connection that it
    closed so.

    events() reports connections and disconnections. With notify=True an empty Message does so, too.
    When the peer ends the connection (FIN), both directions end; data not yet sent to it is dropped
    and counted."""

    __slots__ = ()
    _pattern = "stream"


class Dgram(_Telling):
    """A datagram socket, for udp:// only. recv_parts() returns [address, body]. recv_msg() returns
    a Message with the address as its routing_id, and so does iteration. send_to() takes an address:
    "192.0.2.1:5555" or "[::1]:5555". bind() receives from everyone. connect() takes a free port and
    receives from that address only. Call bind() or connect() once, not both."""

    __slots__ = ()
    _pattern = "dgram"

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        if isinstance(peer, Peer):
            raise UsageError("a datagram goes to an address, not to a Peer",
                             hint='send_to("192.0.2.1:5555", body)')
        message, _ = super()._target(peer, parts)
        return [peer.encode() if isinstance(peer, str) else peer, *message], 0


class _Numbered(_Addressing):
    """Patterns that name their peers by number."""

    __slots__ = ()

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        message, number = super()._target(peer, parts)
        if not number:
            if isinstance(peer, bool) or not isinstance(peer, int) or not 0 < peer < 1 << 32:
                raise UsageError(f"the peer must be a Peer or its id, not {peer!r}",
                                 hint="use recv_msg().peer or one of peers()")
            number = peer
        return message, number


class Server(_Telling, _Numbered):
    """Addresses each client by its number (RFC 41). Messages have one part. recv_msg() returns a
    Message with its sender (peer, peer_id) and reply(), and so does iteration. send_to() takes a
    Peer or its id and waits while that peer is at its HWM. NoSuchPeer if the peer is
    not connected."""

    __slots__ = ()
    _pattern = "server"


class PeerSocket(Server):
    """Peers of equal rank that address each other by number (RFC 51), like Server; a connecting
    socket is a server, too. (The record of a connected socket is `Peer`; this pattern is
    "peer".)"""

    __slots__ = ()
    _pattern = "peer"

    def connect_peer(self, url: Any, *, wait: Any = None, **endpoint: Any) -> Peer:
        """connect() that returns the peer. Waits up to `wait` seconds for it (None: for ever). The
        peer gets another number after each reconnect. ConnectTimeout, HandshakeFailed, or PeerGone
        if it has disconnected again; after an error the endpoint is removed."""
        return self._who(self.connect(url, wait=wait, **endpoint))

    async def aconnect_peer(self, url: Any, *, wait: Any = None, **endpoint: Any) -> Peer:
        """connect_peer(), awaitable."""
        return self._who(await self.aconnect(url, wait=wait, **endpoint))

    def _who(self, made: Endpoint) -> Peer:
        found: Peer | None = self._links.peer_at(made)
        if found is None:
            made.close()
            raise PeerGone(f"{made.url} was connected, but has disconnected", hint="connect again")
        return found


class Pair1(_Numbered):
    """A Pair whose messages count the devices that they pass. poly=True allows any number of peers.
    recv_msg() then returns the sender (peer, reply()), send() sends to the first peer, and
    send_to() takes a Peer or its id. A message to a peer at its HWM is dropped and counted."""

    __slots__ = ()
    _pattern = "pair1"


class Bus(Socket):
    """Sends each message to every directly connected peer and receives from all of them in turn.
    Messages are not forwarded. A message to a peer at its HWM is dropped and counted."""

    __slots__ = ()
    _pattern = "bus"


CLASSES: dict[str, type[Socket]] = {
    cls._pattern: cls
    for cls in (Pair, Req, Rep, Dealer, Router, Stream, Push, Pull, Pub, Sub, XPub, XSub,
                Radio, Dish, Pair1, Bus, Surveyor, Respondent, Client, Server, Scatter, Gather,
                PeerSocket, Channel, Dgram)}

add_options(Req, ("correlate", "strict", "strategy", "probe", "resend"))
add_options(Dealer, ("strategy", "probe"))
for _spreads in (Push, Client, Scatter):
    add_options(_spreads, ("strategy",))
add_options(Router, ("mandatory", "handover", "probe", "peer_id"))
add_options(Stream, ("mandatory", "notify", "peer_id"))
add_options(Pub, ("nodrop", "retain", "max_subscription_bytes"))
add_options(Radio, ("nodrop", "max_subscription_bytes"))
add_options(Pair1, ("poly", "raw"))
add_options(Bus, ("nodrop", "raw"))
add_options(XPub, ("verbose", "verboser", "manual", "welcome", "nodrop", "retain",
                   "max_subscription_bytes"))


def class_of(pattern: str) -> type[Socket]:
    """The class of a pattern. Creates one for a plug-in's pattern without a class."""
    found = CLASSES.get(pattern)
    if found is None:
        plugin = registry.pattern(pattern)
        found = type("".join(map(str.capitalize, pattern.split("_"))), (Socket,),
                     {"__slots__": (), "_pattern": pattern, "__doc__": plugin.doc})
        add_options(found, (row.name for row in registry.pattern_options(pattern)))
        found = CLASSES.setdefault(pattern, found)
    return found


def socket(pattern: str, **kw: Any) -> Any:
    """Create a socket of this pattern: socket("push", connect="tcp://host:5555")."""
    if not isinstance(pattern, str):
        raise UsageError(f"a pattern's name must be a string, not {pattern!r}",
                         hint='socket("push")')
    return class_of(pattern)(**kw)


