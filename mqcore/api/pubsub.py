"""Publish and subscribe: Pub, XPub, Sub and XSub. Subscriptions are prefixes of the first part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NoReturn

from mqcore.api.socket import Socket, _addresses
from mqcore.api.sp_contexts import SubContext
from mqcore.api.turns import due, turn
from mqcore.api.wakers import until
from mqcore.base.native import threading
from mqcore.binding.timing import limit_of
from mqcore.errors import NotSubscribed, UsageError

SUBSCRIBERS = 1  # a query that patterns answer


def _topic(topic: Any) -> bytes:
    if isinstance(topic, str):
        return topic.encode()
    try:
        return bytes(memoryview(topic))
    except TypeError:
        raise UsageError(f"a topic must be str or bytes, not {type(topic).__name__}") from None


class _Publisher(Socket):
    __slots__ = ()

    def wait_subscribers(self, topic: Any = b"", n: int = 1, timeout: Any = None) -> None:
        """Wait until n peers would receive a message that starts with `topic`."""
        raw = _topic(topic)
        self._wait_count(n, timeout, lambda: self._subscribers(raw), "subscribers")

    async def await_subscribers(self, topic: Any = b"", n: int = 1, timeout: Any = None) -> None:
        """wait_subscribers(), awaitable."""
        raw = _topic(topic)
        self._check_count(n, "subscribers")
        if due():
            await turn()
        found = await until(self, lambda: self._enough(n, lambda: self._subscribers(raw)),
                            limit_of(timeout))
        if found is None:
            self._fail_wait(self._subscribers(raw), n, "subscribers", timeout)

    def _subscribers(self, raw: bytes) -> int:
        return int(self._query(SUBSCRIBERS, raw))


class Pub(_Publisher):
    """Sends each message to all peers that subscribed to a prefix of its first part."""

    __slots__ = ()
    _pattern = "pub"


class XPub(_Publisher):
    """A Pub that exposes subscriptions: recv() returns them as a byte 1 or 0 and the topic."""

    __slots__ = ()
    _pattern = "xpub"

    def subscribe(self, *topics: Any) -> None:
        """With manual=True: subscribe the peer of the last received notification to these
        topics."""
        self._apply(topics, 1)

    def unsubscribe(self, *topics: Any) -> None:
        """With manual=True: unsubscribe that peer from these topics."""
        self._apply(topics, 0)

    def _apply(self, topics: tuple[Any, ...], on: int) -> None:
        self._usable()
        if not self._options["manual"]:
            raise UsageError("subscriptions are applied as they arrive",
                             hint="XPub(manual=True) lets you apply them with subscribe()")
        for raw in [_topic(topic) for topic in topics]:
            self._subscribe(raw, on)


class _Chooser(Socket):
    """What Sub and Dish share: counted subscriptions. Their first and last use reach the
    pattern."""

    __slots__ = ("_guard", "_wanted")
    _given: ClassVar[str]  # the name of the constructor's argument

    def __init__(self, wanted: Iterable[Any], bind: Any, connect: Any, kw: dict[str, Any]) -> None:
        self._wanted: dict[bytes, int] = {}
        self._guard = threading.RLock()  # reentrant: for signal handlers
        if isinstance(wanted, (str, bytes, bytearray, memoryview)):
            wanted = (wanted,)
        elif not isinstance(wanted, Iterable):
            raise UsageError(f"{type(self).__name__}({self._given}=...) takes a list, "
                             f"not {type(wanted).__name__}")
        names = [self._name(one) for one in wanted]
        super().__init__(**kw)
        try:
            self._want(names)
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
        raise NotSubscribed(f"this socket has no subscription to {raw!r}",
                            hint=f"subscribed to {known}")


class Sub(_Chooser):
    """Receives messages whose first part starts with a subscribed topic."""

    __slots__ = ()
    _pattern = "sub"
    _given = "topics"

    def __init__(self, *, topics: Iterable[Any] = (), bind: Any = (), connect: Any = (),
                 **kw: Any) -> None:
        super().__init__(topics, bind, connect, kw)

    def subscribe(self, *topics: Any) -> None:
        """Subscribe to messages that start with these topics; b"" matches everything. Subscriptions
        are counted: unsubscribe as many times as you subscribed."""
        self._want([_topic(topic) for topic in topics])

    def unsubscribe(self, *topics: Any) -> None:
        """Undo one subscribe() of each topic. NotSubscribed if there is none."""
        self._unwant([_topic(topic) for topic in topics])

    @property
    def topics(self) -> tuple[bytes, ...]:
        """The subscribed topics, each once, in order."""
        return tuple(list(self._wanted))

    def new_context(self, **timeouts: Any) -> SubContext:
        """A context with its own subscriptions and its own queue over the same publishers, with
        subscribe, recv and their variants, and its own recv_timeout=. `with` closes it."""
        return SubContext(self, **timeouts)


class XSub(Socket):
    """A Sub that subscribes by messages: send(b"\\x01topic") subscribes, send(b"\\x00topic")
    unsubscribes."""

    __slots__ = ()
    _pattern = "xsub"
