"""The patterns as classes, and socket(), which finds the class by the pattern's name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn

from mqcore.api.aio import Incoming, due, turn, until
from mqcore.api.asking import AT_ONCE, AskingTogether
from mqcore.api.attributes import add_options
from mqcore.api.contexts import RepContext, ReqContext, RequestLine, SubContext
from mqcore.api.socket import Socket, _addresses
from mqcore.api.survey import Respondent, Surveyor
from mqcore.api.timing import left_of, limit_of, passed
from mqcore.api.turnstile import Turnstile
from mqcore.base.native import threading
from mqcore.control.endpoint import Endpoint
from mqcore.control.records import Peer
from mqcore.errors import NotSubscribed, PeerGone, UsageError
from mqcore.spi import registry

SUBSCRIBERS = 1  # the question to the pattern
GROUP_MAX = 255  # bytes: in a datagram its length is one byte


class Pair(Socket):
    """Exactly one peer, both ways."""

    __slots__ = ()
    _pattern = "pair"


class Push(Socket):
    """Each message to one of the peers, in turn."""

    __slots__ = ()
    _pattern = "push"


class Pull(Socket):
    """Messages of all peers, one from each in turn."""

    __slots__ = ()
    _pattern = "pull"


class Dealer(Socket):
    """Out to the peers in turn, in from the peers in turn."""

    __slots__ = ()
    _pattern = "dealer"


class Req(AskingTogether, Socket):
    """Asks one peer, waits for that peer's answer. Any number of threads and tasks can call
    request() and arequest() at once; up to 1024 of the requests are under way side by side. A
    context() is one more line to send and receive in. Plain send() and recv() are for one."""

    __slots__ = ("_asked", "_own", "_turnstile")
    _pattern = "req"

    def __init__(self, **kw: Any) -> None:
        self._turnstile = Turnstile(AT_ONCE)
        self._own = threading.Lock()  # held while request() uses the socket's own line
        self._asked: dict[int, Any] = {}  # tasks that wait for answers, by their contexts' numbers
        super().__init__(**kw)
        self._set_places()

    def _set_option(self, name: str, value: Any) -> None:
        super()._set_option(name, value)
        self._set_places()

    def _set_places(self) -> None:
        self._turnstile.places = 1 if self._options["correlate"] is False else AT_ONCE

    def _beside(self) -> RequestLine:
        return RequestLine(self)

    def context(self, **timeouts: Any) -> ReqContext:
        """Requests beside the others, over the same peers: send, recv, request and their twins;
        send_timeout= and recv_timeout= of its own. Closed by `with`."""
        return ReqContext(self, **timeouts)


class Client(Socket):
    """Out to the servers in turn, in from them in turn; messages of one part. Any number may be on
    their way."""

    __slots__ = ()
    _pattern = "client"


class Scatter(Socket):
    """Each message, of one part, to one of the peers, in turn."""

    __slots__ = ()
    _pattern = "scatter"


class Gather(Socket):
    """Messages, of one part, of all peers, one from each in turn."""

    __slots__ = ()
    _pattern = "gather"


class Channel(Socket):
    """Exactly one peer, both ways, messages of one part."""

    __slots__ = ()
    _pattern = "channel"


class Rep(Socket):
    """Takes a request, answers whoever asked. recv_msg() and Message.reply() are for any number of
    threads and tasks, and so are contexts, one each; plain recv() and send() for one."""

    __slots__ = ()
    _pattern = "rep"

    def context(self, **timeouts: Any) -> RepContext:
        """One more who takes requests and answers them: recv, send and their twins; send_timeout=
        and recv_timeout= of its own. Closed by `with`."""
        return RepContext(self, **timeouts)


class _Addressing(Socket):
    """A message for the peer that is named."""

    __slots__ = ()

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        """The message, and its peer's number; 0: the message says it itself."""
        if not parts:
            raise UsageError("send_to() needs at least one part",
                             hint='send_to(peer, b"") is empty')
        return list(parts), peer.id if isinstance(peer, Peer) else 0

    def send_to(self, peer: Any, *parts: Any, timeout: Any = ...) -> None:
        """Send to one peer; NoSuchPeer if it is not connected."""
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
    """Iterating gives Messages, since whose they are matters."""

    __slots__ = ()

    def __iter__(self) -> Any:
        return Incoming(self.recv_msg, self.arecv_msg)

    __aiter__ = __iter__


class _Routing(_Telling):
    """What Router and Stream share: peers have routing ids."""

    __slots__ = ()

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        message, number = super()._target(peer, parts)
        if isinstance(peer, str):
            raise UsageError("a routing id is bytes, not str", hint="send_to(name.encode(), ...)")
        return (message, number) if number else ([peer, *message], 0)


class Router(_Routing):
    """Each peer by its routing id. recv_parts() gives [id, ...], recv_msg() a Message with
    routing_id and reply(); iterating gives Messages. send_to() takes a routing id or a Peer; if it
    is not connected, NoSuchPeer (with mandatory=False such messages are dropped, counted)."""

    __slots__ = ()
    _pattern = "router"


class Stream(_Routing):
    """Anybody's bytes, over tcp, tls+tcp and ipc: no handshake, no frames, whatever the other side
    speaks. recv_msg() gives what came of one connection, as its bytes lay in the kernel: a Message
    of one part with peer and routing_id, at most max_message_size; iterating gives Messages.
    send_to() takes a Peer or a routing id; who reads slowly makes it wait. send_to(peer, b"") ends
    the connection behind all that was sent before; one that we made is not made again then. What
    comes and goes is told by events(), and with notify=True by an empty Message, too. The peer's
    end (FIN) is the end in both directions: what it had not been sent is dropped, counted."""

    __slots__ = ()
    _pattern = "stream"


class Dgram(_Telling):
    """A datagram socket, udp:// alone: recv_parts() gives [address, body], recv_msg() a Message
    with the address as its routing_id, and send_to() takes one: "192.0.2.1:5555", "[::1]:5555";
    iterating gives Messages. bind() hears everybody; connect() takes a free port and hears that
    address alone. One of either."""

    __slots__ = ()
    _pattern = "dgram"

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        if isinstance(peer, Peer):
            raise UsageError("a datagram goes to an address, not to a Peer",
                             hint='send_to("192.0.2.1:5555", body)')
        message, _ = super()._target(peer, parts)
        return [peer.encode() if isinstance(peer, str) else peer, *message], 0


class _Numbered(_Addressing):
    """Its peers are named by their numbers."""

    __slots__ = ()

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        message, number = super()._target(peer, parts)
        if not number:
            if isinstance(peer, bool) or not isinstance(peer, int) or not 0 < peer < 1 << 32:
                raise UsageError(f"a peer is a Peer or its id, not {peer!r}",
                                 hint="recv_msg().peer, or one of peers()")
            number = peer
        return message, number


class Server(_Telling, _Numbered):
    """Each client by its number, messages of one part: recv_msg() says whose it is (peer, peer_id)
    and has reply(), iterating gives Messages, send_to() takes a Peer or its id, and waits for who
    is at its mark; NoSuchPeer if it is not connected."""

    __slots__ = ()
    _pattern = "server"


class PeerSocket(Server):
    """Equals that know each other by number: as Server, and what it connects to is one too. (Peer
    is the record of a connected socket; the pattern is "peer".)"""

    __slots__ = ()
    _pattern = "peer"

    def connect_peer(self, url: Any, *, wait: Any = None, **endpoint: Any) -> Peer:
        """connect(), and who is there; waits up to `wait` seconds, None: for ever. It has another
        number after each reconnect. ConnectTimeout, HandshakeFailed, or PeerGone if it has left
        again already; then nothing stays behind."""
        return self._who(self.connect(url, wait=wait, **endpoint))

    async def aconnect_peer(self, url: Any, *, wait: Any = None, **endpoint: Any) -> Peer:
        """connect_peer(), awaitable."""
        return self._who(await self.aconnect(url, wait=wait, **endpoint))

    def _who(self, made: Endpoint) -> Peer:
        found: Peer | None = self._links.peer_at(made)
        if found is None:
            made.close()
            raise PeerGone(f"{made.url} was connected, and has left", hint="connect again")
        return found


class Pair1(_Numbered):
    """A Pair whose messages count the devices they pass. With poly=True: any number of peers,
    recv_msg() says whose message it is (peer, reply()), send() goes to the first of them and
    send_to() to the one named, a Peer or its id; who is at its mark loses the message, counted."""

    __slots__ = ()
    _pattern = "pair1"


class Bus(Socket):
    """Each message to every peer that is directly connected, from all of them in turn. Nothing is
    passed on, nothing waits: who is at its mark misses it, counted."""

    __slots__ = ()
    _pattern = "bus"


def _topic(topic: Any) -> bytes:
    if isinstance(topic, str):
        return topic.encode()
    try:
        return bytes(memoryview(topic))
    except TypeError:
        raise UsageError(f"a topic is str or bytes, not {type(topic).__name__}") from None


class _Publisher(Socket):
    __slots__ = ()

    def wait_subscribers(self, topic: Any = b"", n: int = 1, timeout: Any = None) -> None:
        """Until n peers would get a message that starts with `topic`."""
        raw = _topic(topic)
        self._wait_count(n, timeout, lambda: self._subscribers(raw), "subscribers")

    async def await_subscribers(self, topic: Any = b"", n: int = 1, timeout: Any = None) -> None:
        """wait_subscribers(), awaitable."""
        raw = _topic(topic)
        if due():
            await turn()
        found = await until(self, lambda: self._enough(n, lambda: self._subscribers(raw)),
                            limit_of(timeout))
        if found is None:
            self._fail_wait(self._subscribers(raw), n, "subscribers", timeout)

    def _subscribers(self, raw: bytes) -> int:
        return int(self._query(SUBSCRIBERS, raw))


class Pub(_Publisher):
    """Each message to all who subscribed to a prefix of its first part."""

    __slots__ = ()
    _pattern = "pub"


class XPub(_Publisher):
    """A Pub whose application sees the subscriptions: recv() gives them, 1 or 0 and the topic."""

    __slots__ = ()
    _pattern = "xpub"

    def subscribe(self, *topics: Any) -> None:
        """With manual=True: have the peer of the notification received last get what starts so."""
        self._apply(topics, 1)

    def unsubscribe(self, *topics: Any) -> None:
        """With manual=True: that peer gets it no more."""
        self._apply(topics, 0)

    def _apply(self, topics: tuple[Any, ...], on: int) -> None:
        self._usable()
        if not self._options["manual"]:
            raise UsageError("subscriptions are applied as they arrive",
                             hint="XPub(manual=True) leaves that to subscribe()")
        for raw in [_topic(topic) for topic in topics]:
            self._subscribe(raw, on)


class _Chooser(Socket):
    """What Sub and Dish share: what they want, counted, told to the pattern at its edges."""

    __slots__ = ("_guard", "_wanted")

    def __init__(self, wanted: Iterable[Any], bind: Any, connect: Any, kw: dict[str, Any]) -> None:
        self._wanted: dict[bytes, int] = {}
        self._guard = threading.Lock()
        if isinstance(wanted, (str, bytes)):
            wanted = (wanted,)
        super().__init__(**kw)
        try:
            self._want([self._name(one) for one in wanted])
            for method, given in ((self.bind, bind), (self.connect, connect)):
                for url in _addresses(given):
                    method(url)
        except BaseException:
            self.close(0)
            raise

    @staticmethod
    def _name(one: Any) -> bytes:
        return _topic(one)

    def _want(self, names: Iterable[bytes]) -> None:
        self._usable()
        for raw in names:
            with self._guard:
                if not self._wanted.get(raw):
                    self._subscribe(raw, 1)
                self._wanted[raw] = self._wanted.get(raw, 0) + 1

    def _unwant(self, names: Iterable[bytes]) -> None:
        self._usable()
        for raw in names:
            with self._guard:
                if raw not in self._wanted:
                    self._unknown(raw, ", ".join(map(repr, self._wanted)) or "nothing")
                if self._wanted[raw] == 1:
                    self._subscribe(raw, 0)
                    del self._wanted[raw]
                else:
                    self._wanted[raw] -= 1

    def _unknown(self, raw: bytes, known: str) -> NoReturn:
        raise NotSubscribed(f"there is no subscription to {raw!r}", hint=f"subscribed to {known}")


class Sub(_Chooser):
    """Messages whose first part starts with a topic that we subscribed to."""

    __slots__ = ()
    _pattern = "sub"

    def __init__(self, *, topics: Iterable[Any] = (), bind: Any = (), connect: Any = (),
                 **kw: Any) -> None:
        super().__init__(topics, bind, connect, kw)

    def subscribe(self, *topics: Any) -> None:
        """Want messages that start so; b"" is everything. Twice wanted must be twice
        unsubscribed."""
        self._want([_topic(topic) for topic in topics])

    def unsubscribe(self, *topics: Any) -> None:
        """Take it back."""
        self._unwant([_topic(topic) for topic in topics])

    @property
    def topics(self) -> tuple[bytes, ...]:
        """What is subscribed to, each once, in order."""
        return tuple(self._wanted)

    def context(self, **timeouts: Any) -> SubContext:
        """Subscriptions and a queue of its own over the same publishers: subscribe, recv and their
        twins; recv_timeout= of its own. Closed by `with`."""
        return SubContext(self, **timeouts)


class XSub(Socket):
    """A Sub whose subscriptions are messages: send(b"\\x01topic") subscribes, b"\\x00topic" ends
    it."""

    __slots__ = ()
    _pattern = "xsub"


def _group(group: Any) -> bytes:
    if isinstance(group, str):
        raw = group.encode("utf-8", "surrogateescape")
    else:
        try:
            raw = bytes(memoryview(group))
        except TypeError:
            raise UsageError(
                f"a group is str or bytes, not {type(group).__name__}") from None
    if len(raw) > GROUP_MAX:
        raise UsageError(f"a group has at most {GROUP_MAX} bytes, not {len(raw)}")
    return raw


class Radio(_Publisher):
    """Each message, of one part, to all who joined its group. Over udp:// to whoever listens."""

    __slots__ = ()
    _pattern = "radio"

    def send(self, data: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """Send a message to a group: text, or at most 255 bytes. Never waits (but for nodrop)."""
        super().send_parts((_group(group), data), timeout=timeout)

    def send_parts(self, parts: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """send() of the one part. UsageError for several: a radio has no multipart messages."""
        super().send_parts(_grouped(_group(group), _sequence(parts)), timeout=timeout)

    def send_many(self, messages: Iterable[Any], *, group: Any = "", timeout: Any = ...) -> int:
        """Send each of `messages` to one group. Returns how many."""
        raw = _group(group)
        return int(super().send_many((_grouped(raw, one) for one in messages), timeout=timeout))

    def send_batch(self, data: Any, offsets: Any, *, group: Any = "", timeout: Any = ...) -> int:
        """Send data[offsets[i]:offsets[i+1]] for each i to one group. Returns how many."""
        return int(self._send_batch(data, offsets, timeout, _group(group)))

    def send_ref(self, data: Any, *, group: Any = "", timeout: Any = ...) -> Any:
        """send() without copying. Leave the buffer alone until the returned Pinned is done."""
        return self._send_ref(data, timeout, _group(group))

    async def asend(self, data: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """send(), awaitable."""
        await self._asend((_group(group), data), False, timeout)

    async def asend_parts(self, parts: Any, *, group: Any = "", timeout: Any = ...) -> None:
        """send_parts(), awaitable."""
        await self._asend(_grouped(_group(group), _sequence(parts)), False, timeout)

    async def asend_many(self, messages: Iterable[Any], *, group: Any = "",
                         timeout: Any = ...) -> int:
        """send_many(), awaitable."""
        raw = _group(group)
        return await super().asend_many((_grouped(raw, one) for one in messages), timeout=timeout)

    async def asend_batch(self, data: Any, offsets: Any, *, group: Any = "",
                          timeout: Any = ...) -> int:
        """send_batch(), awaitable."""
        return await self._asend_batch(data, offsets, timeout,
                                       partial(self.send_batch, group=group))

    async def asend_ref(self, data: Any, *, group: Any = "", timeout: Any = ...) -> Any:
        """send_ref(), awaitable."""
        return await self._asend_ref(data, timeout, partial(self.send_ref, group=group))

    def wait_subscribers(self, group: Any = "", n: int = 1, timeout: Any = None) -> None:
        """Until n peers would get a message to `group`. Over udp:// that is the connection."""
        super().wait_subscribers(_group(group), n, timeout)

    async def await_subscribers(self, group: Any = "", n: int = 1, timeout: Any = None) -> None:
        """wait_subscribers(), awaitable."""
        await super().await_subscribers(_group(group), n, timeout)


def _sequence(parts: Any) -> Any:
    if isinstance(parts, (bytes, bytearray, memoryview, str)):
        raise UsageError("send_parts() takes a sequence of parts", hint="use send() for one")
    return list(parts)


def _grouped(raw: bytes, data: Any) -> tuple[bytes, Any]:
    if isinstance(data, (list, tuple)):
        if len(data) != 1:
            raise UsageError(f"a radio's message has one part, not {len(data)}",
                             hint="pack several into one, or use a Pub")
        data = data[0]
    return raw, data


class Dish(_Chooser):
    """Messages of the groups that we joined. recv() gives the body, recv_msg() a Message with its
    group."""

    __slots__ = ()
    _pattern = "dish"

    def __init__(self, *, groups: Iterable[Any] = (), bind: Any = (), connect: Any = (),
                 **kw: Any) -> None:
        super().__init__(groups, bind, connect, kw)

    @staticmethod
    def _name(one: Any) -> bytes:
        return _group(one)

    def join(self, *groups: Any) -> None:
        """Want the messages of these groups: text, or at most 255 bytes each. What is joined twice
        must be left twice."""
        self._want([_group(group) for group in groups])

    def leave(self, *groups: Any) -> None:
        """Take it back."""
        self._unwant([_group(group) for group in groups])

    @property
    def groups(self) -> tuple[str, ...]:
        """What is joined, each once, in order; bytes that are no UTF-8 as surrogates."""
        return tuple(raw.decode("utf-8", "surrogateescape") for raw in self._wanted)

    def _unknown(self, raw: bytes, known: str) -> NoReturn:
        raise NotSubscribed(f"the group {raw!r} is not joined", hint=f"joined: {known}")


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
    """The class of a pattern; one is made for a plug-in's that has none."""
    found = CLASSES.get(pattern)
    if found is None:
        plugin = registry.pattern(pattern)
        found = type("".join(map(str.capitalize, pattern.split("_"))), (Socket,),
                     {"__slots__": (), "_pattern": pattern, "__doc__": plugin.doc})
        add_options(found, (row.name for row in registry.pattern_options(pattern)))
        found = CLASSES.setdefault(pattern, found)
    return found


def socket(pattern: str, **kw: Any) -> Any:
    """A new socket of this pattern: socket("push", connect="tcp://host:5555")."""
    if not isinstance(pattern, str):
        raise UsageError(f"a pattern is named by a string, not {pattern!r}", hint='socket("push")')
    return class_of(pattern)(**kw)


