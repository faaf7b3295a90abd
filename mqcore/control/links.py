"""SocketLinks: everything about one socket that is rare. Its listeners and connectors, its engines
and peers as the data plane's notes tell of them, its events, and its end.

Runs on the control thread and on the caller's, under the hub's lock where it touches the tables.
"""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from mqcore.base.native import socket as pysocket
from mqcore.base.native import threading, time
from mqcore.control import gate, inproc, records
from mqcore.control.connector import Connector
from mqcore.control.crowd import Crowd, let_in, shaken
from mqcore.control.endpoint import Endpoint
from mqcore.control.hub import (
    NOTE_ASKS,
    NOTE_DOWN,
    NOTE_GONE,
    NOTE_PATTERN,
    NOTE_UP,
    Hub,
)
from mqcore.control.idle import IdleWatch
from mqcore.control.listener import Listener
from mqcore.control.records import CloseReport, Peer, PeerStats, Stats, drops
from mqcore.control.resolving import Follower, follow
from mqcore.control.route import Route
from mqcore.control.upgrade import Upgrade, pass_filters
from mqcore.control.wire import (
    Wire,
    check_peer_id,
    check_security,
    check_wire,
    codec_of,
    encode_metadata,
    owner_of,
)
from mqcore.errors import (
    AddressError,
    Error,
    HandshakeFailed,
    NotSupported,
    PeerError,
    SocketClosed,
    UsageError,
)
from mqcore.link.backoff import Backoff
from mqcore.security import properties
from mqcore.spi import registry, sp, url
from mqcore.spi.filter import Refused
from mqcore.wire.security import native

# of link/engine.pxd; the others differ by their text only
DOWN_CLOSED, DOWN_PROTOCOL, DOWN_RESET = 0, 3, 5
GRACE = 0.2  # seconds a listener waits for the peer's first bytes before it speaks first
MAX_FAILURES = 100  # interruptions and errors that one close() survives
GONE_KEPT = 1024  # peers that left, kept so that late messages find them
EV_FAILED = 8  # of spi/pattern.pxd, as these are:
EV_NAMES = {1: records.Subscribed, 2: records.Unsubscribed, 3: records.Dropped,
            4: records.FailedOver,
            5: records.FailedBack, 6: records.TooSlow, 7: records.Refused}
_log = logging.getLogger("mqcore")


class SocketLinks:
    """`core` is the SocketCore; `options` the socket's validated options (a live mapping)."""

    def __init__(self, hub: Hub, core: Any, plugin: Any, options: Mapping[str, Any]) -> None:
        self.hub = hub
        self._core = weakref.ref(core)  # weakly: a forgotten socket must be seen to be forgotten
        self._held: Any = None
        self._hurry = False
        self._closing = threading.RLock()
        self._failures = 0
        self.plugin = plugin
        self.options = options
        self.number = hub.register(self)
        self.nodes: dict[Endpoint, Any] = {}      # endpoint: Listener, Connector or None (inproc)
        self.wires: dict[int, Wire] = {}          # engine slot: Wire
        self.upgrades: dict[Upgrade, Wire] = {}   # connections that are not yet an engine's
        self.peers: dict[int, Peer] = {}
        self.gone: OrderedDict[int, Peer] = OrderedDict()
        # inproc: peer id: endpoint, other, its id
        self.joined: dict[int, tuple[Endpoint, SocketLinks, int]] = {}
        self.pauses: dict[Endpoint, Backoff] = {}  # of inproc endpoints that connect
        self.watchers: list[Callable[[records.Event], None]] = []
        self.reconnects = 0
        self.failed_handshakes = 0
        self.broken_peers = 0
        self.report: CloseReport | None = None
        self.idle = IdleWatch(self)
        self._hopeful: set[Endpoint] = set()  # connecting ones that may bring a peer
        try:
            core._open(hub.plane, plugin, self.number, self._shake(), self._marks())
        except BaseException:
            hub.forget(self.number)
            raise

    @property
    def core(self) -> Any:
        return self._held if self._held is not None else self._core()

    def hold(self, core: Any) -> None:
        """The socket has been forgotten unclosed: it lives on here until close() is done."""
        self._held = core

    def hurry(self) -> None:
        """A close() that is under way stops waiting: linger 0."""
        self._hurry = True

    def _shake(self) -> dict[str, Any]:
        return {
            "pattern": self.plugin.zmtp, "number": self.plugin.number, "peers": self.fitting(),
            "routing_id": self.routing_id(), "sp": self.plugin.sp,
            "sp_peer": sp.peer_of(self.plugin.sp), "max_hops": self.options["max_hops"],
            "metadata": encode_metadata(self.options.get("metadata", {})),
            "publishes": self.plugin.name in ("pub", "xpub"),
        }

    def routing_id(self) -> bytes:
        """What every peer is told. SP has no such field: patterns of SP alone have none."""
        if self.plugin.sp >= 0 and not self.plugin.zmtp:
            return b""
        return bytes(self.options.get("routing_id", b""))

    def fitting(self) -> list[str]:
        """The kinds of peer that we talk to."""
        return [registry.kind_of(name) for name in self.plugin.peers]

    def _marks(self) -> dict[str, Any]:
        names = ("send_hwm", "recv_hwm", "send_hwm_bytes", "recv_hwm_bytes")
        conflate = bool(self.options.get("conflate")) and self.plugin.conflates
        return {**{name: self.options[name] for name in names},
                "send_conflate": conflate and self.plugin.sends,
                "recv_conflate": conflate and self.plugin.receives}

    # -- endpoints ---------------------------------------------------------------------------------

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in self.nodes if endpoint.of is None)

    def _prepare(self, text: str, role: str,
                 given: Mapping[str, Any]) -> tuple[Route, dict[str, Any]]:
        from mqcore import options as table

        if self.core.closed:
            raise SocketClosed("the socket is closed")
        route = Route(url.parse(text), role)
        options = table.for_link(self.options, route.url.query, given, extra=route.rows())
        self._check_carried(route, role)
        check_wire(self.plugin, route, options)
        check_peer_id(self.plugin, route, role, options)
        check_security(self.plugin, route, options)
        # for filters: see spi/filter.py
        options |= {"pattern.name": self.plugin.name, "pattern.zmtp": self.plugin.zmtp,
                    "pattern.sp": self.plugin.sp}
        return route, options

    def _check_carried(self, route: Route, role: str) -> None:
        """Some transports carry few patterns, and each of them one way round."""
        carried = getattr(route.transport, "patterns", {})
        name, scheme = self.plugin.name, route.url.transport
        if not carried or name in carried.get(role, ()):
            return
        if any(name in names for names in carried.values()):
            other = "connect" if role == "bind" else "bind"
            raise UsageError(f"a {name} socket cannot {role}() over {scheme}://",
                             hint=f"there it can only {other}()")
        words = ", ".join(f"{name} to {way}()" for way, names in carried.items() for name in names)
        raise UsageError(f"{scheme}:// cannot carry a {name} socket",
                         hint=f"it carries {words}; take another transport")

    def bind(self, text: str, **given: Any) -> Endpoint:
        route, options = self._prepare(text, "bind", given)
        transport = route.transport
        if transport.kind == "inproc":
            return inproc.bind(self, route.url, transport)
        listener: Any = None
        crowd = Crowd(options["max_handshakes"])
        ready = threading.Event()  # the control thread may accept before the constructor returns

        def accepted(sock: pysocket.socket, remote: str) -> None:
            ready.wait()
            if listener.endpoint not in self.nodes:  # its bind() failed
                sock.close()
                return
            self.emit(records.Accepted, listener.endpoint, None, remote)
            try:
                self._adopt(sock, route, None, listener.endpoint, remote, options, crowd)
            except SocketClosed:  # a close() is ahead of the listener's end
                sock.close()

        def event(what: str, error: BaseException | None) -> None:
            if what == "accept_paused":
                self.emit(records.AcceptPaused, listener.endpoint, None, str(error))

            elif what == "accept_failed":
                self.emit(records.HandshakeFailedEvent, None, None, str(error))

        # not under the hub's lock: the listener waits for the control thread, which may want it
        listener = Listener(self.hub.loop, transport, route, options, accepted, event, start=False)
        try:
            listener.start()
            endpoint = listener.endpoint
            if not self._enter(endpoint, listener):
                raise SocketClosed("the socket is closed")
            endpoint.set_closer(lambda: self.unbind(endpoint))
        except BaseException:  # Ctrl-C, too
            self._withdraw(listener, ready.set)
            raise
        finally:
            ready.set()  # the control thread must not wait for ever
        self.emit(records.Listening, endpoint, None, "")
        return endpoint

    def _withdraw(self, node: Any, then: Callable[[], Any] = lambda: None) -> None:
        """A bind() or connect() that failed after it began. `then` runs before the node stops."""
        with self.hub.lock:
            for endpoint in [endpoint for endpoint, one in self.nodes.items() if one is node]:
                del self.nodes[endpoint]
                self.count(endpoint, False)
        then()
        node.stop()

    def connect(self, text: str, **given: Any) -> Endpoint:
        parsed = url.parse(text)
        resolver = registry.resolver(parsed.transport)
        if resolver is not None:
            return self._begin(follow(self, resolver, parsed, given))
        return self.link(text, given)

    def link(self, text: str, given: Mapping[str, Any], of: Endpoint | None = None) -> Endpoint:
        """connect() for a transport's URL. `of`: the endpoint that it is a member of."""
        route, options = self._prepare(text, "connect", given)
        transport = route.transport
        if transport.kind == "inproc":
            return inproc.connect(self, route.url, transport, options, of)
        connector: Any = None

        def connected(sock: pysocket.socket, remote: str) -> None:
            self._adopt(sock, route, connector, connector.endpoint, remote, options)

        def state(what: str, error: Any) -> None:
            kinds = {"connecting": records.Connecting, "waiting": records.Retrying,
                     "stopped": records.Stopped}
            if what in kinds:
                self.emit(kinds[what], connector.endpoint, None, str(error) if error else "")
            if what in ("connecting", "stopped"):
                self.count(connector.endpoint, what == "connecting")
            if what == "connecting" and connector.attempts > 1:
                self.reconnects += 1

        connector = Connector(self.hub.loop, transport, route, options, connected, state)
        connector.endpoint.of = of
        return self._begin(connector)

    def settled(self, endpoint: Endpoint) -> bool:
        """The pattern has met the peer there, of whom we are told a moment before; or he left."""
        with self.hub.lock:
            self.hub.pump()
        return self._met(getattr(self.nodes.get(endpoint), "peer", 0))

    def _met(self, number: int) -> bool:
        return number not in self.peers or self.core._has_pipe(number)

    def settle_peer(self, number: int) -> None:
        """Until the socket has met this peer, whose event comes a moment before, or it has left."""
        self._wait_for(lambda: self._met(number))

    def settle(self, endpoint: Endpoint) -> None:
        """Until it is so: what is sent to that peer by name would find nobody before."""
        self._wait_for(lambda: self.settled(endpoint))

    def check_link(self, text: str, given: Mapping[str, Any]) -> None:
        """Raises what link() would at once."""
        route, options = self._prepare(text, "connect", given)
        route.check(options)

    def _begin(self, node: Connector | Follower) -> Endpoint:
        endpoint = node.endpoint
        try:
            if not self._enter(endpoint, node):
                raise SocketClosed("the socket is closed")
            endpoint.set_closer(lambda: self.disconnect(endpoint))
            self.count(endpoint, True)
            node.start()
        except BaseException:  # Ctrl-C, too
            self._withdraw(node)
            raise
        return endpoint

    def _enter(self, endpoint: Endpoint, node: Any) -> bool:
        """Into the table, unless a close() has begun: it would not see the node any more."""
        with self.hub.lock:
            if self.core.closed:
                return False
            self.nodes[endpoint] = node
            return True

    def count(self, endpoint: Endpoint, on: bool) -> None:
        """Whether this endpoint may bring a peer, for which messages may wait."""
        with self.hub.lock:
            on = on and endpoint in self.nodes
            if on != (endpoint in self._hopeful):
                (self._hopeful.add if on else self._hopeful.discard)(endpoint)
                self.core._connects(1 if on else -1)

    def find(self, at: Any, kind: str) -> Endpoint:
        for endpoint in self.nodes:
            if endpoint.kind == kind and (endpoint is at or endpoint.of is None and
                                          str(at) in (endpoint.url, endpoint.given)):
                return endpoint
        raise AddressError(f"nothing is {'bound' if kind == 'bind' else 'connected'} at {at}",
                           hint=f"endpoints: {', '.join(map(str, self.endpoints)) or 'none'}")

    def unbind(self, at: Any) -> None:
        """Stop listening; connections that came in through it end. Complete on return."""
        self._end_endpoint(self.find(at, "bind"))

    def disconnect(self, at: Any) -> None:
        self._end_endpoint(self.find(at, "connect"))

    def leave(self, endpoint: Endpoint) -> None:
        """disconnect() on the control thread: the engine's end is not waited for."""
        if endpoint in self.nodes:
            self._end_endpoint(endpoint, wait=False)

    def _end_endpoint(self, endpoint: Endpoint, wait: bool = True) -> None:
        if self.hub.forked:
            return  # the child has let go of it already
        with self.hub.lock:
            node = self.nodes.pop(endpoint, None)
            self.pauses.pop(endpoint, None)
            joined = [peer for peer, (ep, _, _) in self.joined.items() if ep is endpoint]
            inproc.forget(self, endpoint)
        if node is not None:
            node.stop()
        for member in endpoint.members:
            if member in self.nodes:
                self._end_endpoint(member, wait)
        if self.upgrades:
            self.hub.loop.call_wait(self._stop_upgrades, endpoint)
        self.count(endpoint, False)
        with self.hub.lock:  # a slot that is not in the table any more may be another's
            slots = [slot for slot, wire in self.wires.items() if wire.endpoint is endpoint]
            for slot in slots:
                self.core._end_engine(slot)
        for peer in joined:
            self.core._end_pipe(peer)
        if wait:
            self._wait_for(lambda: not any(
                slot in self.wires and self.wires[slot].endpoint is endpoint for slot in slots))
        endpoint.move("closed")
        self.emit(records.Closed, endpoint, None, "")

    def _wait_for(self, done: Callable[[], bool], limit: float = 5.0) -> bool:
        """Pump notes until done(), for things that the I/O threads do promptly."""
        end = time.monotonic() + limit
        while not done():
            seen = self.core._change()
            self.hub.pump()
            if done():
                break
            if time.monotonic() >= end:
                return False
            self.core._wait(seen, 0.001)
        return True

    # -- engines -----------------------------------------------------------------------------------

    def _adopt(self, sock: pysocket.socket, route: Route, connector: Any, endpoint: Endpoint,
               remote: str, options: Mapping[str, Any], crowd: Crowd | None = None) -> None:
        """Give a connected descriptor to the data plane, by way of what must come first. If it
        raises, the descriptor is the caller's."""
        transport = route.transport
        names = (transport.names(sock)[0], remote)
        wire = Wire(route, connector, endpoint, names, transport.pid(sock), options)
        wire.owner_ids = owner_of(sock, wire.pid)
        if self.plugin.raw:
            wire.wire = "raw"
        if crowd is not None and not let_in(self, wire, crowd):
            sock.close()
            return
        sessions = route.sessions(options)
        if transport.kind == "stream" and not sessions:
            self._hand_over(sock, wire, [], None, b"")
            return
        steps = (pass_filters(sock, sessions) if sessions
                 else transport.open(sock, route.role, options))

        def done(result: Any) -> None:
            del self.upgrades[upgrade]
            try:
                if sessions:
                    self._hand_over(sock, wire, sessions, None, result)
                else:
                    self._hand_over(sock, wire, [], result, b"")
            except Exception as error:  # whatever a plug-in made
                self._not_handed_over(sock, wire, sessions, error, False)

        def failed(error: BaseException, fatal: bool) -> None:
            del self.upgrades[upgrade]
            self._not_handed_over(sock, wire, sessions, error, fatal)

        upgrade = Upgrade(self.hub.loop, sock, steps, options["handshake_timeout"], done, failed)
        self.upgrades[upgrade] = wire
        upgrade.sessions = sessions
        upgrade.start()

    def _hand_over(self, sock: pysocket.socket, wire: Wire, sessions: list[Any], engine: Any,
                   left: bytes) -> None:
        """To an engine, which owns the descriptor from here on."""
        options = wire.options
        size = options["max_message_size"]
        codec = (next((session.codec for session in sessions if session.codec), "")
                 or codec_of(self.plugin, wire))
        for session in sessions:
            wire.learn(session)
        wire.demands = native(options["security"])
        if wire.demands is not None and not codec.startswith("zmtp"):
            raise NotSupported(f"the filters of {wire.endpoint.url} know no mechanism",
                               hint="security=Null() leaves it to them")
        with self.hub.lock:
            slot = self.core._adopt(
                sock.fileno(), wire.owner is not None, options["prio"],
                options["handshake_timeout"] or 0.0, GRACE, options["heartbeat"] or 0.0,
                options["heartbeat_timeout"] or 0.0, options["heartbeat_ttl"],
                -1 if size is None else size, codec, wire.demands, sessions, engine, left,
                options["peer_id"] if wire.owner is not None else b"")
            sock.detach()
            wire.slot = slot
            self.wires[slot] = wire

    def _not_handed_over(self, sock: pysocket.socket, wire: Wire, sessions: list[Any],
                         error: BaseException, fatal: bool) -> None:
        """A connection that ended before it was an engine's."""
        sock.close()
        for session in sessions:
            session.close()
        if isinstance(error, SocketClosed):
            shaken(self, wire)
            return
        known = isinstance(error, (Refused, OSError, Error))
        self.shake_failed(wire, str(error) if known else f"{type(error).__name__}: {error}",
                           fatal, told=True)

    def _stop_upgrades(self, endpoint: Endpoint | None = None) -> None:
        """On the control thread: those of one endpoint, or all."""
        for upgrade, wire in list(self.upgrades.items()):
            if endpoint is None or wire.endpoint is endpoint:
                self.stop_upgrade(upgrade)

    def stop_upgrade(self, upgrade: Upgrade) -> None:
        shaken(self, self.upgrades.pop(upgrade))
        upgrade.stop()
        upgrade.sock.close()
        for session in upgrade.sessions:
            session.close()

    def note(self, kind: int, slot: int, peer: int, code: int, fatal: bool, text: bytes) -> None:
        """One note of the data plane; the hub's lock is held."""
        if kind == NOTE_UP:
            self._up(self.wires[slot], slot, peer)
        elif kind == NOTE_DOWN:
            self._down(self.wires.pop(slot, None), code, fatal, text.decode("utf-8", "replace"))
        elif kind == NOTE_GONE:
            inproc.gone(self, peer, refused=code != 0)
        elif kind == NOTE_ASKS and slot in self.wires:
            gate.ask(self, slot, self.wires[slot])
        elif kind == NOTE_PATTERN and code == EV_FAILED:
            self._failed(text.decode("utf-8", "replace"))
        elif kind == NOTE_PATTERN and self.watchers:
            who = self.peer(peer)
            if code == 3 and text:
                reason = records.REASONS[text[0]]
            elif EV_NAMES[code] in records.MOVED and len(text) == 16:
                reason = records.moved(EV_NAMES[code], who, text, self.peer)
            else:
                reason = text.decode("utf-8", "backslashreplace")
            self.emit(EV_NAMES[code], None, who, reason, who.endpoint if who else "")

    def _failed(self, what: str) -> None:
        """The pattern's own code failed where nobody could be told."""
        self.emit(records.PatternFailed, None, None, what)
        # off this thread's locks: a handler of the log may use sockets
        self.hub.loop.call(_log.error, "the pattern %s failed: %s", self.plugin.name, what)

    def _up(self, wire: Wire, slot: int, number: int) -> None:
        facts = self.hub.plane.facts(slot)
        wire.prove(facts["mechanism"], facts["proof"])
        shaken(self, wire)
        peer = Peer(
            id=number, address=wire.remote, endpoint=wire.endpoint.url,
            wire=wire.wire or (
                f"zmtp/{facts['major']}.{facts['minor']}" if facts["major"] else "sp"),
            pattern=facts["pattern"].lower(),
            routing_id=facts["routing_id"], pid=wire.pid,
            metadata=wire.metadata(properties(facts["metadata"])),
            verified=dict(wire.verified), user=wire.user, prio=wire.options["prio"],
            local=wire.local)
        wire.peer = peer
        self.peers[number] = peer
        wire.endpoint.note(None)
        if wire.owner is not None:
            wire.owner.peer = number
            wire.owner.handshaken()
        self.emit(records.Connected, wire.endpoint, peer, "")
        if self.watchers and self.plugin.receives:
            self.idle.start(wire.options["idle_after"])

    def _down(self, wire: Wire | None, code: int, fatal: bool, text: str) -> None:
        if wire is None:
            return
        if wire.peer is None:
            self.shake_failed(wire, wire.why or text, fatal,
                               told=code != DOWN_CLOSED or bool(wire.why))
            return
        self.broken_peers += code == DOWN_PROTOCOL
        if code == DOWN_RESET and self.plugin.raw:
            text = "the end was sent to it"
        reason = text or wire.why or (
            "the pattern wanted a new link" if code == DOWN_RESET else "closed by us")
        self.forget_peer(wire.peer.id)
        self.emit(records.Disconnected, wire.endpoint, wire.peer, reason)
        where = wire.remote or wire.endpoint.url
        self._lost(wire, PeerError(f"the connection to {where} ended: {reason}"), fatal, code)

    def shake_failed(self, wire: Wire, text: str, fatal: bool, *, told: bool) -> None:
        shaken(self, wire)
        where = wire.remote or wire.endpoint.url
        reason = text or "the connection ended before the handshake was complete"
        error = HandshakeFailed(f"the handshake with {where} failed: {reason}", reason=reason)
        if told:
            self.failed_handshakes += 1
            wire.endpoint.note(error)
            self.emit(records.HandshakeFailedEvent, wire.endpoint, None, reason)
        self._lost(wire, error, fatal, DOWN_CLOSED)

    def _lost(self, wire: Wire, error: Error, fatal: bool, code: int) -> None:
        """What becomes of the endpoint."""
        if wire.owner is None:
            if not getattr(wire.transport, "accepts", True) and wire.endpoint in self.nodes:
                wire.endpoint.move("stopped", error, fatal=True)  # it was the only one
        elif wire.endpoint in self.nodes:
            ended = code == DOWN_RESET and self.plugin.raw
            if code == DOWN_RESET and not ended:
                wire.owner.reset()
            wire.owner.lost(error, fatal, ended)

    def forget_peer(self, number: int) -> None:
        peer = self.peers.pop(number, None)
        if peer is not None:
            self.gone[number] = peer
            while len(self.gone) > GONE_KEPT:
                self.gone.popitem(last=False)

    def peer(self, number: int) -> Peer | None:
        found = self.peers.get(number) or self.gone.get(number)
        if found is None and number:
            self.hub.pump()
            found = self.peers.get(number) or self.gone.get(number)
        return found

    def present(self) -> list[Peer]:
        """The peers that are connected now."""
        with self.hub.lock:
            self.hub.pump()
            return list(self.peers.values())

    def peer_at(self, endpoint: Endpoint) -> Peer | None:
        """Who is connected there now."""
        with self.hub.lock:
            self.hub.pump()
            for wire in self.wires.values():
                if wire.peer is not None and endpoint in (wire.endpoint, wire.endpoint.of):
                    return wire.peer
            for number, (where, _, _) in self.joined.items():
                if endpoint in (where, where.of):
                    return self.peers.get(number)
        return None

    # -- events and accounts -----------------------------------------------------------------------

    def emit(self, kind: Any, endpoint: Endpoint | None, peer: Peer | None, reason: str,
             where: str = "", **facts: Any) -> None:
        if self.watchers:
            event = kind(time.time(), self.core, endpoint.url if endpoint is not None else where,
                         peer, reason, **facts)
            for watcher in tuple(self.watchers):
                watcher(event)

    def peer_stats(self, accounts: Mapping[str, Any]) -> dict[Peer, PeerStats]:
        out: dict[Peer, PeerStats] = {}
        for number, facts in (*accounts["live"], *accounts["ended"]):
            peer = self.peer(number)
            if peer is not None:
                out[peer] = PeerStats.of(facts)
        return out

    def stats(self) -> Stats:
        accounts = self.core._accounts()
        return Stats(
            sent=accounts["sent"], received=accounts["received"], waiting=accounts["waiting"],
            unmatched=accounts["unmatched"], dropped=drops(accounts["dropped"]),
            pinned_bytes=self.hub.plane.counters()["slab_bytes"], reconnects=self.reconnects,
            resent=accounts["resent"], failed_handshakes=self.failed_handshakes,
            broken_peers=self.broken_peers,
            peers=self.peer_stats(accounts), total=PeerStats.of(accounts["total"]))

    # -- the end -----------------------------------------------------------------------------------

    def close(self, linger: Any = ...) -> CloseReport:
        """Stop the input, drain the output for at most `linger` seconds, end everything below.
        Complete on return; a second call returns the same report, waiting for the first."""
        started = time.monotonic()
        if linger is ...:
            linger = self.options["linger"]
        if linger is not None and linger < 0:
            raise UsageError(f"linger must not be negative, got {linger!r}")
        deadline = None if linger is None else started + linger
        self.core._close_input()
        with self._closing:  # the second one waits for the first; the same thread again (a signal's
            # handler) goes on itself, and so does whoever comes after one that was torn out of it
            interrupted: BaseException | None = None
            while self.report is None:
                try:
                    self._close(linger, deadline, started)
                except BaseException as error:  # Ctrl-C: as if linger were over
                    self._hurry = True
                    self._failures += 1
                    interrupted = interrupted or error
                    if self._failures > MAX_FAILURES:
                        raise
            if interrupted is not None:
                raise interrupted
            return self.report

    def _close(self, linger: float | None, deadline: float | None, started: float) -> None:
        """All steps, each of which may be done again."""
        with self.hub.lock:
            sources = [node for node in self.nodes.values()
                       if isinstance(node, (Listener, Follower))]
            for endpoint in tuple(self.nodes):
                if endpoint.kind == "bind":
                    inproc.forget(self, endpoint)
        for source in sources:
            source.stop()
        if linger != 0:
            self._drain(deadline)
        unacked = self._await_acks(deadline) if linger != 0 else self._unacked()
        with self.hub.lock:
            connectors = [node for node in self.nodes.values() if isinstance(node, Connector)]
            for endpoint in tuple(self.nodes):
                inproc.forget(self, endpoint)
        for connector in connectors:
            connector.stop()
        if self.upgrades:
            self.hub.loop.call_wait(self._stop_upgrades)
        self._end_all()
        if self.report is not None:  # a signal's handler closed us meanwhile
            return
        self.core._unwatch()
        self.idle.stop()
        report = self._closing_report(self.core._accounts(), unacked, started)
        for endpoint in self.nodes:
            endpoint.move("closed")
        self.hub.forget(self.number)
        self.report = report
        self.emit(records.Closed, None, None, "")

    def _drain(self, deadline: float | None) -> None:
        pause = 0.0005
        while self.core._outstanding() > 0:
            if self._hurry or (deadline is not None and time.monotonic() >= deadline):
                return
            self.core._wait(self.core._change(), pause)
            pause = min(pause * 1.5, 0.01)

    def _unacked(self) -> int:
        with self.hub.lock:
            return sum(self.core._unacked(slot) for slot in self.wires)

    def _await_acks(self, deadline: float | None) -> int:
        pause = 0.0002
        while True:
            unacked = self._unacked()
            if (unacked == 0 or self._hurry
                    or (deadline is not None and time.monotonic() >= deadline)):
                return unacked
            time.sleep(pause)
            pause = min(pause * 1.5, 0.01)

    def _end_all(self) -> None:
        self.core._drop_all()
        with self.hub.lock:
            for slot in self.wires:
                self.core._end_engine(slot)
        while not (self._settled()):
            pass

    def _settled(self) -> bool:
        """The I/O threads end engines promptly; nothing here has a limit of its own."""
        seen = self.core._change()
        self.hub.pump()
        self.core._drop_all()
        if self.core._settled() and not self.wires:
            return True
        self.core._wait(seen, 0.0005)
        return False

    def _closing_report(self, accounts: Mapping[str, Any], unacked: int,
                        started: float) -> CloseReport:
        total = PeerStats.of(accounts["total"])
        lost = dict(drops(accounts["dropped"]))
        for reason, count in total.dropped_out.items():
            lost[reason] = lost.get(reason, 0) + count
        undelivered = sum(lost.get(reason, 0) for reason in ("closed", "peer_gone", "half_written"))
        return CloseReport(
            written=total.written, undelivered=undelivered, dropped=lost, unacked=unacked,
            elapsed=time.monotonic() - started, peers=self.peer_stats(accounts))

    def abandon(self) -> None:
        """In a forked child: close the inherited listening and connecting sockets. Threads of the
        parent may have held any lock."""
        self._closing = threading.RLock()
        for watcher in tuple(self.watchers):
            stream = getattr(watcher, "__self__", None)
            if hasattr(stream, "abandon"):
                stream.abandon()
        for endpoint, node in self.nodes.items():
            endpoint.abandon()
            if isinstance(node, Follower):
                node.abandon()
            for sock in getattr(node, "_sockets", None) or [getattr(node, "_sock", None),
                                                            getattr(node, "_adopted", None)]:
                if sock is not None:
                    sock.close()
        for upgrade in self.upgrades:
            upgrade.sock.close()
        self.core._close_descriptors()
