"""The eleven patterns as classes, and socket(), which finds the class by the pattern's name."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from mqcore.api.aio import Stream, due, turn, until
from mqcore.api.socket import Socket, _add_options, _addresses
from mqcore.api.timing import left_of, limit_of, passed, span
from mqcore.api.turnstile import Turnstile
from mqcore.control.records import Peer
from mqcore.errors import NotSubscribed, RecvTimeout, UsageError
from mqcore.spi import registry

SUBSCRIBERS = 1  # the question to the pattern


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


class Req(Socket):
    """Asks one peer, waits for that peer's answer. request() is the call that any number of threads
    and tasks can make; plain send() and recv() are for one."""

    __slots__ = ("_turnstile",)
    _pattern = "req"

    def __init__(self, **kw: Any) -> None:
        self._turnstile = Turnstile()
        super().__init__(**kw)

    def request(self, data: Any, *, timeout: Any = ...) -> bytes:
        """Send a request, wait for its answer. Others that ask meanwhile wait in line; `timeout`
        covers that too. Left out: recv_timeout. After a time-out the request is abandoned."""
        return self._request(data, timeout, self.recv)  # type: ignore[no-any-return]

    def request_msg(self, data: Any, *, timeout: Any = ...) -> Any:
        """request() that gives a Message."""
        return self._request(data, timeout, self.recv_msg)

    def _request(self, data: Any, timeout: Any, take: Any) -> Any:
        self._usable()
        limit = limit_of(timeout, self.recv_timeout)
        if not self._turnstile.acquire(limit):
            self._late(timeout)
        try:
            self._usable()
            if isinstance(data, (list, tuple)):
                self.send_parts(data, timeout=self._send_left(limit))
            else:
                self.send(data, timeout=self._send_left(limit))
            try:
                return take(timeout=left_of(limit))
            except BaseException as error:
                self._give_up(error)
                raise
        finally:
            self._turnstile.release()

    async def arequest(self, data: Any, *, timeout: Any = ...) -> bytes:
        """request(), awaitable."""
        return await self._arequest(data, timeout, 0)  # type: ignore[no-any-return]

    async def arequest_msg(self, data: Any, *, timeout: Any = ...) -> Any:
        """request_msg(), awaitable."""
        return await self._arequest(data, timeout, 2)

    async def _arequest(self, data: Any, timeout: Any, kind: int) -> Any:
        self._usable()
        limit = limit_of(timeout, self.recv_timeout)
        if not await self._turnstile.aacquire(limit):
            self._late(timeout)
        try:
            self._usable()
            await self._asend(data, not isinstance(data, (list, tuple)), self._send_left(limit))
            try:
                return await self._arecv(kind, None, left_of(limit))
            except BaseException as error:
                self._give_up(error)
                raise
        finally:
            self._turnstile.release()

    def _send_left(self, limit: float | None) -> float | None:
        """A request goes out within send_timeout, and never later than it may be answered."""
        left, most = left_of(limit), self.send_timeout
        return most if left is None else left if most is None else min(left, most)

    def _give_up(self, error: BaseException) -> None:
        if not self.closed:
            self._abandon()

    def _late(self, timeout: Any) -> None:
        raise RecvTimeout(
            f"other requests were under way{span(timeout, self.recv_timeout)}",
            hint="one Req asks one question at a time; use several, or a Dealer")


class Rep(Socket):
    """Takes a request, answers whoever asked. recv_msg() and Message.reply() are for any number of
    threads and tasks; plain recv() and send() for one."""

    __slots__ = ()
    _pattern = "rep"


class Router(Socket):
    """Each peer by its routing id. recv_parts() gives [id, ...], recv_msg() a Message with
    routing_id and reply(); iterating gives Messages."""

    __slots__ = ()
    _pattern = "router"

    def __iter__(self) -> Any:
        return Stream(self.recv_msg, self.arecv_msg)

    __aiter__ = __iter__

    def _target(self, peer: Any, parts: tuple[Any, ...]) -> tuple[list[Any], int]:
        if not parts:
            raise UsageError("send_to() needs at least one part",
                             hint='send_to(peer, b"") is empty')
        if isinstance(peer, Peer):
            return list(parts), peer.id
        if isinstance(peer, str):
            raise UsageError("a routing id is bytes, not str", hint="send_to(name.encode(), ...)")
        return [peer, *parts], 0

    def send_to(self, peer: Any, *parts: Any, timeout: Any = ...) -> None:
        """Send to one peer, by routing id or Peer. NoSuchPeer if it is not connected (with
        mandatory=False such messages are dropped, counted)."""
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


class Sub(Socket):
    """Messages whose first part starts with a topic that we subscribed to."""

    __slots__ = ("_guard", "_topics")
    _pattern = "sub"

    def __init__(self, *, topics: Iterable[Any] = (), bind: Any = (), connect: Any = (),
                 **kw: Any) -> None:
        self._topics: dict[bytes, int] = {}
        self._guard = threading.Lock()
        if isinstance(topics, (str, bytes)):
            topics = (topics,)
        super().__init__(**kw)
        try:
            self.subscribe(*topics)
            for method, given in ((self.bind, bind), (self.connect, connect)):
                for url in _addresses(given):
                    method(url)
        except BaseException:
            self.close(0)
            raise

    def subscribe(self, *topics: Any) -> None:
        """Want messages that start so; b"" is everything. Twice wanted must be twice
        unsubscribed."""
        self._usable()
        for raw in [_topic(topic) for topic in topics]:
            with self._guard:
                if not self._topics.get(raw):
                    self._subscribe(raw, 1)
                self._topics[raw] = self._topics.get(raw, 0) + 1

    def unsubscribe(self, *topics: Any) -> None:
        """Take it back."""
        self._usable()
        for raw in [_topic(topic) for topic in topics]:
            with self._guard:
                if raw not in self._topics:
                    known = ", ".join(map(repr, self._topics)) or "nothing"
                    raise NotSubscribed(f"there is no subscription to {raw!r}",
                                        hint=f"subscribed to {known}")
                if self._topics[raw] == 1:
                    self._subscribe(raw, 0)
                    del self._topics[raw]
                else:
                    self._topics[raw] -= 1

    @property
    def topics(self) -> tuple[bytes, ...]:
        """What is subscribed to, each once, in order."""
        return tuple(self._topics)


class XSub(Socket):
    """A Sub whose subscriptions are messages: send(b"\\x01topic") subscribes, b"\\x00topic" ends
    it."""

    __slots__ = ()
    _pattern = "xsub"


CLASSES: dict[str, type[Socket]] = {
    cls._pattern: cls
    for cls in (Pair, Req, Rep, Dealer, Router, Push, Pull, Pub, Sub, XPub, XSub)}

_add_options(Req, ("correlate", "strict", "probe"))
_add_options(Dealer, ("probe",))
_add_options(Router, ("mandatory", "handover", "probe"))
_add_options(Pub, ("nodrop", "retain"))
_add_options(XPub, ("verbose", "verboser", "manual", "welcome", "nodrop", "retain"))


def class_of(pattern: str) -> type[Socket]:
    """The class of a pattern; one is made for a plug-in's that has none."""
    found = CLASSES.get(pattern)
    if found is None:
        plugin = registry.pattern(pattern)
        found = type("".join(map(str.capitalize, pattern.split("_"))), (Socket,),
                     {"__slots__": (), "_pattern": pattern, "__doc__": plugin.doc})
        _add_options(found, (row.name for row in registry.pattern_options(pattern)))
        found = CLASSES.setdefault(pattern, found)
    return found


def socket(pattern: str, **kw: Any) -> Any:
    """A new socket of this pattern: socket("push", connect="tcp://host:5555")."""
    if not isinstance(pattern, str):
        raise UsageError(f"a pattern is named by a string, not {pattern!r}", hint='socket("push")')
    return class_of(pattern)(**kw)


