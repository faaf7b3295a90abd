"""Shared: what a socket and its shadows share.

mqcore's socket is opened when it is first needed, not before: what libzmq takes as an option at any
time (the routing id, CONFLATE) mqcore wants to know when it opens one.
"""

from __future__ import annotations

import errno
import secrets
from collections import Counter
from typing import Any, NamedTuple

import mqcore as mq
from mqcore.base.native import threading
from mqcore.base.waits import Event, Released
from mqcore.zmq.address import from_mqcore, never, text_of, to_mqcore
from mqcore.zmq.constants import Errno, SocketOption, SocketType
from mqcore.zmq.error import (
    Again,
    ContextTerminated,
    ZMQError,
    make,
    number_of,
    strerror,
    translated,
)
from mqcore.zmq.fd import Edge
from mqcore.zmq.home import Home
from mqcore.zmq.mechanism import demands
from mqcore.zmq.options import DEFAULTS, PATTERN_DEFAULTS, seconds

PATTERNS = {
    SocketType.PAIR: "pair", SocketType.PUB: "pub", SocketType.SUB: "sub", SocketType.REQ: "req",
    SocketType.REP: "rep", SocketType.DEALER: "dealer", SocketType.ROUTER: "router",
    SocketType.PULL: "pull", SocketType.PUSH: "push", SocketType.XPUB: "xpub",
    SocketType.XSUB: "xsub", SocketType.RADIO: "radio", SocketType.DISH: "dish",
    SocketType.CLIENT: "client", SocketType.SERVER: "server", SocketType.SCATTER: "scatter",
    SocketType.GATHER: "gather", SocketType.PEER: "peer", SocketType.CHANNEL: "channel",
    SocketType.DGRAM: "dgram",
    SocketType.STREAM: "stream",
}
#: sockets on which an option has an effect; the others keep its value, as in libzmq (a ZAP handler
#: gets every server's routing id)
OF = {"conflate": ("push", "pull", "pub", "sub", "dealer"),
      "routing_id": ("req", "dealer", "router")}
CLASSIC = ("pair", "pub", "sub", "req", "rep", "dealer", "router", "pull", "push", "xpub", "xsub")
ONCE = ("pub", "sub", "req", "dealer")  # a second connect() to an address has no effect
NAMING = ("router", "stream")  # peers by routing id; what we connect to can be given one
FIXED = ("routing_id", "conflate")  # known when mqcore's socket opens
SOON = 10.0  # seconds for what takes milliseconds


class Place(NamedTuple):
    """An address of the socket: as it was given, as LAST_ENDPOINT said it, as mqcore's URL if it
    is connected, and what is there."""

    given: str
    said: str
    url: str
    endpoint: Any
    peer_id: bytes  # what we call the peer; b"": nothing


class Never:
    """What connect() to a port that no peer can have gives: messages wait for it, as in libzmq."""

    kind = "connect"
    state = "waiting"

    def __init__(self, core: Any) -> None:
        self._core = core
        self.url = ""
        core._connects(1)

    def close(self) -> None:
        if self.state != "closed":
            self.state = "closed"
            self._core._connects(-1)


class Shared:
    def __init__(self, home: Home, type_: int) -> None:
        try:
            self.type = SocketType(type_)
        except ValueError:
            raise ZMQError(Errno.EINVAL) from None
        if self.type not in PATTERNS:
            raise make(Errno.ENOTSUP, f"{self.type.name} sockets are not here yet; "
                                      "README.md of mqcore.zmq says what is")
        self.pattern = PATTERNS[self.type]
        self.home = home
        self.core: Any = None
        self.closed = False
        self._left = False  # close() is through
        self.values: dict[int, Any] = {}  # libzmq's options, as they were set
        self.wanted: Counter[bytes] = Counter()
        self.filters: tuple[frozenset[int], ...] = (frozenset(),) * 3  # IPC_FILTER_UID, GID, PID
        self.last = b""
        self.edge: Edge | None = None  # of FD
        self._watchers: set[Edge] = set()
        self._places: list[Place] = []
        self._peer_id = b""  # CONNECT_ROUTING_ID, for the next connect()
        self._ended: set[bytes] = set()  # peers that were sent the end
        self._options = {**DEFAULTS, **PATTERN_DEFAULTS.get(self.pattern, {})}
        self._lock = threading.RLock()
        home.enter(self)

    # -- life --------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Raise what every call on this socket would."""
        if self.closed:
            raise ZMQError(Errno.ENOTSOCK)
        if self.core is not None and self.core._links.hub.forked:
            raise make(Errno.ENOTSOCK, "this socket belongs to the parent process")
        if self.home.terminating:
            raise ContextTerminated

    def failed(self, error: mq.Error) -> ZMQError:
        """pyzmq's exception for one of mqcore's on this socket."""
        if not self.closed and isinstance(error, mq.SocketClosed):
            if self.home.terminating:
                return ContextTerminated()
            if self.home.ended and threading.current_thread() is not threading.main_thread():
                Event().wait()  # a daemon thread: it ends inside its call, as in libzmq
        return translated(error)

    def open(self) -> Any:
        """mqcore's socket."""
        if self.core is not None:
            return self.core
        with self._lock:
            self.refuse()
            if self.core is None:
                try:
                    core: Any = mq.socket(self.pattern, context=self.home.context(),
                                          **self._options)
                except mq.Error as error:
                    raise translated(error) from error
                # libzmq compares the types of sockets in handshakes, and inproc has none
                core._links.any_pattern = self.pattern in CLASSIC
                if self.pattern in ("sub", "dish"):
                    core._set("chooses", False)
                elif self.pattern == "req":
                    core._set_pattern_option("patient", True)
                for topic in self.wanted:
                    core.subscribe(topic)
                self.core = core
        return self.core

    def close(self, linger: int | None = None) -> None:
        """libzmq's close(): what was sent is delivered behind. linger: milliseconds. Idempotent; a
        call that Ctrl-C interrupts leaves the rest to the next one."""
        with Released(), self._lock:  # another thread may open it, which needs the hub's lock
            if self._left:
                return
            self.closed = True
            edge, self.edge = self.edge, None
            for watcher in self._watchers:
                watcher.ring()
            self._watchers.clear()
            core = self.core
        if linger is None:
            linger = self.values.get(SocketOption.LINGER, -1)
        if edge is not None:
            edge.close()
        try:
            if core is not None:
                self.home.deliver(core, seconds(linger))
        finally:
            self.home.leave(self)
            self._left = True

    def alone(self) -> Any:
        """For `with`: no other thread opens, closes or monitors the socket meanwhile."""
        return self._lock

    def renew(self) -> None:
        """In a forked child: locks that no thread holds."""
        self._lock = threading.RLock()
        for edge in self._edges():
            edge.renew()

    def stop(self) -> None:
        """The context terminates: every call fails, and who waits wakes up."""
        if self.core is not None:
            self.core._close_input()
        with Released(), self._lock:
            if self.core is not None:  # it was just opening
                self.core._close_input()
            for edge in self._edges():
                edge.ring()

    # -- options -----------------------------------------------------------------------------------

    def put(self, name: str, value: Any) -> None:
        """One of mqcore's options."""
        without = self.pattern not in OF.get(name, PATTERNS.values())
        if without and name == "conflate":
            return
        with self._lock:
            if without and self.core is not None:
                return
            if self.core is None:
                self._options[name] = value
                return
            if name in FIXED:
                if self._places:
                    raise make(Errno.EINVAL, f"{name} is what peers are told first: set it before "
                                             "bind() and connect()")
                self._options[name] = value
                core, self.core = self.core, None
                core.close(0)
                fresh = self.open()
                for edge in self._edges():
                    edge.attach(fresh)
                return
            try:
                setattr(self.core, name, value)
            except mq.Error as error:
                raise translated(error) from error

    def want(self, topic: bytes, on: bool) -> None:
        """SUBSCRIBE, UNSUBSCRIBE: how often something was subscribed counts."""
        if self.type == SocketType.XPUB:
            if not self.values.get(SocketOption.XPUB_MANUAL):
                raise make(Errno.EINVAL, "an XPUB subscribes with XPUB_MANUAL alone")
            core = self.open()
            (core.subscribe if on else core.unsubscribe)(topic)
            return
        with self._lock:
            if on:
                self.wanted[topic] += 1
                if self.core is not None and self.wanted[topic] == 1:
                    self.core.subscribe(topic)
            elif self.wanted[topic] > 0:
                self.wanted[topic] -= 1
                if not self.wanted[topic]:
                    del self.wanted[topic]
                    if self.core is not None:
                        self.core.unsubscribe(topic)

    def be_raw(self, on: bool) -> None:
        """ROUTER_RAW: become a STREAM that drops messages without a receiver."""
        with self._lock:
            if on == (self.pattern == "stream"):
                return
            if self.core is not None or not on:
                raise make(Errno.EINVAL, "ROUTER_RAW decides what the socket is: set it first")
            own = PATTERN_DEFAULTS[self.pattern]
            kept = {name: value for name, value in self._options.items() if name not in own}
            mandatory = self._options["mandatory"]
            self.pattern = "stream"
            self._options = {**kept, **PATTERN_DEFAULTS["stream"], "mandatory": mandatory}

    def name_next(self, peer_id: bytes) -> None:
        """CONNECT_ROUTING_ID."""
        self._peer_id = peer_id

    # -- addresses ---------------------------------------------------------------------------------

    def keep(self, option: int, value: int) -> None:
        """The value of an option that is the opposite of another one."""
        self.values[option] = value

    @property
    def ipv6(self) -> bool:
        return bool(self.values.get(SocketOption.IPV6))

    def attach(self, kind: str, address: str | bytes) -> Place:
        """bind() or connect(); `said` is the address that it became."""
        given = text_of(address)
        peer_id = b""
        if kind == "connect" and self.pattern in NAMING:
            with self._lock:
                peer_id, self._peer_id = self._peer_id, b""
            if self.pattern == "stream":
                # those that mqcore makes have the first bit clear
                peer_id = peer_id or b"\0" + (1 << 31 | secrets.randbits(31)).to_bytes(4, "big")
        try:
            self.refuse()
            url = to_mqcore(given, kind, self.ipv6)
            core = self.open()
            if peer_id and any(peer_id == place.peer_id for place in self._places):
                raise make(Errno.EINVAL, "another connection has that CONNECT_ROUTING_ID")
            named = {"peer_id": peer_id} if peer_id else {}
            if kind == "connect" and self.pattern in ONCE:
                there = next((place for place in self._places if place.url == url
                              and place.endpoint.state not in ("stopped", "closed")), None)
                if there is not None:
                    return there
            if kind == "connect" and never(url):
                endpoint: Any = Never(core)
            else:
                endpoint = getattr(core, kind)(url, **named, **demands(self, kind, url))
            if self.pattern == "dgram" and kind == "bind":  # no peer will ever connect
                core.wait_peers(1, SOON)
        except mq.Error as error:
            made = self.failed(error)
            raise _at(number_of(error) if made.errno is None else made.errno, given,
                      error.text) from error
        except ZMQError as error:
            raise _at(error.errno or Errno.EINVAL, given) from error
        said = from_mqcore(endpoint.url) if kind == "bind" else given
        place = Place(given, said, url if kind == "connect" else "", endpoint, peer_id)
        self._places.append(place)
        if peer_id and self.pattern == "stream":
            self.values[SocketOption.ROUTING_ID] = peer_id
        self.last = said.encode("utf-8", "surrogateescape")
        return place

    def attach_peer(self, address: str | bytes) -> int:
        """zmq_connect_peer(): the number of the PEER there. It has one when it is connected, so
        this waits, SNDTIMEO at most."""
        if self.type != SocketType.PEER:
            raise make(Errno.ENOTSUP, "connect_peer() belongs to PEER sockets")
        place = self.attach("connect", address)
        try:
            place.endpoint.wait_ready(seconds(self.values.get(SocketOption.SNDTIMEO, -1)))
            return int(self.core._who(place.endpoint).id)
        except BaseException as error:
            with self._lock:
                if place in self._places:
                    self._places.remove(place)
            place.endpoint.close()
            if isinstance(error, mq.ConnectTimeout):
                raise Again from None
            if isinstance(error, mq.Error):
                raise self.failed(error) from error
            raise

    def detach(self, kind: str, address: str | bytes) -> None:
        """unbind() or disconnect(). ENOENT if the address is not in use."""
        given = text_of(address)
        self.refuse()
        if "://" not in given:
            raise ZMQError(Errno.EINVAL)
        with self._lock:
            found = [place for place in self._places if place.endpoint.kind == kind
                     and given in (place.said, place.given)]
            if not found:
                raise ZMQError(errno.ENOENT)
            for place in found:
                self._places.remove(place)
        try:
            for place in found:
                place.endpoint.close()
        except mq.Error as error:
            raise self.failed(error) from error

    def awaits(self, peer_id: bytes) -> bool:
        """We have an address whose peer goes by this, and its connection may come."""
        return peer_id not in self._ended and any(
            place.peer_id == peer_id and place.endpoint.state not in ("stopped", "closed")
            for place in self._places)

    def ended(self, peer_id: bytes) -> None:
        """STREAM: it was sent the end, and is not connected to again."""
        if any(place.peer_id == peer_id for place in self._places):
            self._ended.add(peer_id)

    def descriptor(self) -> int:
        """FD: made when it is first asked for."""
        with self._lock:
            self.refuse()
            if self.edge is None:
                self.edge = Edge(self.open())
            return self.edge.fd

    def watch(self) -> Edge:
        """A descriptor like FD, for one who gives it back with unwatch(). When the socket is closed
        it becomes readable."""
        with self._lock:
            self.refuse()
            edge = Edge(self.open())
            self._watchers.add(edge)
            return edge

    def unwatch(self, edge: Edge) -> None:
        with self._lock:
            self._watchers.discard(edge)
            edge.close()

    def _edges(self) -> list[Edge]:
        return [*self._watchers, *([] if self.edge is None else [self.edge])]


def _at(number: int, address: str, text: str = "") -> ZMQError:
    if number == Errno.ETERM:
        return ContextTerminated()
    words = f"{strerror(number)}: {text}" if text else strerror(number)
    return ZMQError(number, f"{words} (addr={address!r})")
