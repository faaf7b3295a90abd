"""Peers: the connections of one socket, from the descriptor to the engine, and its peers as the
data plane's notes tell of them; what they did, for stats().

The hub's lock: note() and what it calls run under it, on the control thread or on an application's.
_adopt() and the steps of a handshake run on the control thread without it, and take it to hand a
descriptor over to an engine. shake_failed() and _lost() are called with it or without. peer(),
present() and peer_at() are the application's calls; they take it to read the notes that wait.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from typing import Any

from mqcore.base.described import described
from mqcore.base.native import socket as pysocket
from mqcore.control import authentication, events, inproc
from mqcore.control.connection import Connection, codec_of, owner_of
from mqcore.control.crowd import Crowd, let_in, shaken
from mqcore.control.endpoint import Endpoint
from mqcore.control.handshake import Handshake, pass_filters
from mqcore.control.hub import (
    NOTE_ASKS,
    NOTE_DOWN,
    NOTE_GONE,
    NOTE_PATTERN,
    NOTE_ROOM,
    NOTE_UP,
)
from mqcore.control.listener import Listener
from mqcore.control.route import Route
from mqcore.control.shortcut import PATIENCE
from mqcore.control.stats import REASONS, Peer, PeerStats, Stats, both, drops_of
from mqcore.control.tables import Tables
from mqcore.errors import (
    ContextClosed,
    Error,
    HandshakeFailed,
    NotSupported,
    PeerError,
    SocketClosed,
)
from mqcore.security import properties
from mqcore.spi.filter import Refused
from mqcore.wire.zmtp.security import native

# of link/engine.pxd; the others differ only in their text
DOWN_CLOSED, DOWN_PROTOCOL, DOWN_RESET = 0, 3, 5
GRACE = 0.2  # seconds that a listener waits for the peer's first bytes before it sends its own
SOURCES = 1000  # whose losses are counted one by one
EV_FAILED, EV_LOST = 8, 9  # of spi/pattern.pxd, as these are:
EV_NAMES = {1: events.Subscribed, 2: events.Unsubscribed, 3: events.Dropped,
            4: events.FailedOver, 5: events.FailedBack, 6: events.TooSlow,
            7: events.Refused}
_log = logging.getLogger("mqcore")


def moved(kind: type[events.Event], who: Peer | None, raw: bytes,
          peer_of: Callable[[int], Peer | None]) -> str:
    """The reason of a fail-over event: from which priority and endpoint to which, and why. `raw` is
    a FailOver of protocols/routing/load_balance.pxd."""
    number, before, after, silent = struct.unpack("4I", raw)
    other = peer_of(number)
    mine, theirs = (peer.endpoint if peer else "a peer that left" for peer in (who, other))
    if mine == theirs and who and other:  # both connected through the same bind()
        mine, theirs = who.address or mine, other.address or theirs
    if kind is events.FailedOver:
        why = "it is unresponsive" if silent else "it disconnected"
        return f"from priority {before} ({mine}) to {after} ({theirs}): {why}"
    why = "it responds again" if silent else "it is connected"
    return f"from priority {before} ({theirs}) to {after} ({mine}): {why}"


class Peers(Tables):
    """A SocketLinks as what has connections and peers."""

    # -- connections -------------------------------------------------------------------------------

    def _adopt(self, sock: pysocket.socket, route: Route, connector: Any, endpoint: Endpoint,
               remote: str, options: Mapping[str, Any], crowd: Crowd | None = None) -> None:
        """Hand a connected descriptor to the data plane, after any handshake. If this raises, the
        caller keeps the descriptor."""
        transport = route.transport
        names = (transport.names(sock)[0], remote)
        conn = Connection(route, connector, endpoint, names, transport.pid(sock), options)
        conn.owner_ids = owner_of(sock, conn.pid)
        if self.plugin.raw:
            conn.wire = "raw"
        if crowd is not None and not let_in(self, conn, crowd):
            sock.close()
            return
        sessions = route.sessions(options)
        if transport.kind == "stream" and not sessions:
            self._hand_over(sock, conn, [], None, b"")
            return
        steps = (pass_filters(sock, sessions) if sessions
                 else transport.open(sock, route.role, options))

        def done(result: Any) -> None:
            del self.handshakes[handshake]
            try:
                if sessions:
                    self._hand_over(sock, conn, sessions, None, result)
                else:
                    self._hand_over(sock, conn, [], result, b"")
            except Exception as error:  # any error of a plug-in
                self._not_handed_over(sock, conn, sessions, error, False)

        detour = connector is not None and connector.detour
        limit = options["handshake_timeout"]

        def failed(error: BaseException, fatal: bool) -> None:
            del self.handshakes[handshake]
            self._not_handed_over(sock, conn, sessions, error, fatal and not detour)

        handshake = Handshake(self.hub.loop, sock, steps,
                              min(limit or PATIENCE, PATIENCE) if detour else limit, done, failed)
        self.handshakes[handshake] = conn
        handshake.sessions = sessions
        handshake.start()

    def _hand_over(self, sock: pysocket.socket, conn: Connection, sessions: list[Any], engine: Any,
                   left: bytes) -> None:
        """Hand over to an engine, which owns the descriptor from here on."""
        options = conn.options
        size = options["max_message_size"]
        codec = (next((session.codec for session in sessions if session.codec), "")
                 or codec_of(self.plugin, conn))
        for session in sessions:
            conn.learn(session)
        conn.demands = native(options["security"])
        if conn.demands is not None and not codec.startswith("zmtp"):
            raise NotSupported(f"the filters of {conn.endpoint.url} support no security mechanism",
                               hint="security=Null() relies on the filters alone")
        core = self.core
        if core is None:
            raise SocketClosed("the socket is closed")
        with self.hub.lock:
            slot = core._adopt(
                sock.fileno(), conn.owner is not None, options["prio"],
                options["handshake_timeout"] or 0.0, GRACE, options["heartbeat"] or 0.0,
                options["heartbeat_timeout"] or 0.0, options["heartbeat_ttl"],
                -1 if size is None else size, codec, conn.demands, sessions, engine, left,
                options["peer_id"] if conn.owner is not None else b"")
            sock.detach()
            conn.slot = slot
            self.connections[slot] = conn

    def _not_handed_over(self, sock: pysocket.socket, conn: Connection, sessions: list[Any],
                         error: BaseException, fatal: bool) -> None:
        """A connection ended before it had an engine."""
        sock.close()
        for session in sessions:
            session.close()
        if isinstance(error, SocketClosed):
            shaken(self, conn)
            return
        known = isinstance(error, (Refused, OSError, Error))
        self.shake_failed(conn, str(error) if known else described(error),
                           fatal, told=True)

    def _stop_handshakes(self, endpoint: Endpoint | None = None) -> None:
        """Runs on the control thread: stop those of one endpoint, or all."""
        for handshake, conn in list(self.handshakes.items()):
            if endpoint is None or conn.endpoint is endpoint:
                self.stop_handshake(handshake)

    def stop_handshake(self, handshake: Handshake) -> None:
        shaken(self, self.handshakes.pop(handshake))
        handshake.stop()
        handshake.sock.close()
        for session in handshake.sessions:
            session.close()

    # -- notes -------------------------------------------------------------------------------------

    def note(self, kind: int, slot: int, peer: int, code: int, fatal: bool, text: bytes,
             unread: int = 0, carried: bool = False) -> None:
        """Handle one note of the data plane. Callers hold the hub's lock."""
        if kind == NOTE_UP:
            self._up(self.connections[slot], slot, peer)
        elif kind == NOTE_DOWN:
            self._down(self.connections.pop(slot, None), code, fatal,
                       text.decode("utf-8", "replace"), unread, carried)
        elif kind == NOTE_GONE:
            inproc.gone(self, peer, refused=code != 0)
        elif kind == NOTE_ROOM:
            self.accept_again()
        elif kind == NOTE_ASKS and slot in self.connections:
            authentication.ask(self, slot, self.connections[slot])
        elif kind == NOTE_PATTERN and code == EV_FAILED:
            self._failed(text.decode("utf-8", "replace"))
        elif kind == NOTE_PATTERN and code == EV_LOST:
            self._lost_some(peer, text)
        elif kind == NOTE_PATTERN and self.watched:
            who = self.peer(peer)
            if code == 3 and text:
                reason = REASONS[text[0]]
            elif EV_NAMES[code] in (events.FailedOver, events.FailedBack) and len(text) == 16:
                reason = moved(EV_NAMES[code], who, text, self.peer)
            else:
                reason = text.decode("utf-8", "backslashreplace")
            self.emit(EV_NAMES[code], None, who, reason, who.endpoint if who else "")

    def _failed(self, what: str) -> None:
        """The pattern's own code failed where no caller can get the error."""
        self.emit(events.PatternFailed, None, None, what)
        # on the control thread, without locks: a log handler may use sockets
        self.hub.loop.call(_log.error, "the pattern %s failed: %s", self.plugin.name, what)

    def _lost_some(self, number: int, raw: bytes) -> None:
        """A message engine has lost something of a source."""
        count, untold = struct.unpack_from("2q", raw)
        source = raw[16:].decode("utf-8", "replace")
        for whose, more in ((source, count), ("", untold)):
            if more:
                known = whose in self.lost or len(self.lost) < SOURCES
                whose = whose if known else ""
                self.lost[whose] = self.lost.get(whose, 0) + more
        who = self.peer(number)
        reason = f"{count} from {source}" + (f", and {untold} before, unreported" if untold else "")
        self.emit(events.Lost, None, who, reason, who.endpoint if who else "")

    def _up(self, conn: Connection, slot: int, number: int) -> None:
        facts = self.hub.plane.facts(slot)
        conn.prove(facts["mechanism"], facts["proof"])
        shaken(self, conn)
        peer = Peer(
            id=number, address=conn.remote, endpoint=conn.endpoint.url,
            wire=conn.wire or (
                f"zmtp/{facts['major']}.{facts['minor']}" if facts["major"] else "sp"),
            pattern=facts["pattern"].lower(),
            routing_id=facts["routing_id"], pid=conn.pid,
            metadata=conn.metadata(properties(facts["metadata"])),
            verified=dict(conn.verified), user=conn.user, prio=conn.options["prio"],
            local=conn.local)
        conn.peer = peer
        self.peers[number] = peer
        conn.endpoint.note(None)
        if conn.owner is not None:
            conn.owner.peer = number
            conn.owner.handshaken()
        self.emit(events.Connected, conn.endpoint, peer, "")
        if self.watched and self.plugin.receives:
            self.idle.start(conn.options["idle_after"])

    def _down(self, conn: Connection | None, code: int, fatal: bool, text: str, unread: int,
              carried: bool) -> None:
        if conn is None:
            return
        if conn.peer is None:
            self.shake_failed(conn, conn.why or text, fatal,
                               told=code != DOWN_CLOSED or bool(conn.why))
            return
        self.broken_peers += code == DOWN_PROTOCOL
        if code == DOWN_RESET and self.plugin.raw:
            text = "the end was sent to it"
        reason = text or conn.why or (
            "the pattern wanted a new link" if code == DOWN_RESET else "closed by us")
        self.forget_peer(conn.peer.id)
        self.emit(events.Disconnected, conn.endpoint, conn.peer, reason, bytes_unread=unread)
        where = conn.remote or conn.endpoint.url
        self._lost(conn, PeerError(f"the connection to {where} ended: {reason}"), fatal, code,
                   carried)

    def shake_failed(self, conn: Connection, text: str, fatal: bool, *, told: bool) -> None:
        shaken(self, conn)
        where = conn.remote or conn.endpoint.url
        reason = text or "the connection ended before the handshake was complete"
        error = HandshakeFailed(f"the handshake with {where} failed: {reason}", reason=reason)
        if told and (fatal or conn.owner is None or not conn.owner.detour):
            with self.hub.lock:  # the control thread arrives here without it
                self.failed_handshakes += 1
            conn.endpoint.note(error)
            self.emit(events.HandshakeFailed, conn.endpoint, None, reason)
        self._lost(conn, error, fatal, DOWN_CLOSED)

    def _lost(self, conn: Connection, error: Error, fatal: bool, code: int,
              carried: bool = False) -> None:
        """Update the endpoint after a lost connection."""
        if conn.owner is None:
            if not getattr(conn.transport, "accepts", True) and conn.endpoint in self.nodes \
                    and conn.endpoint.move("stopped", error, fatal=True):   # and not closed by us
                self.emit(events.Stopped, conn.endpoint, None, str(error))  # it was the only one
        elif conn.endpoint in self.nodes:
            ended = code == DOWN_RESET and self.plugin.raw
            if code == DOWN_RESET and not ended:
                conn.owner.reset()
            conn.owner.lost(error, fatal, ended, carried)

    # -- places for more ---------------------------------------------------------------------------

    def crowded(self) -> bool:
        """Whether departed peers have left as much unread as they may."""
        core = self.core
        return core is not None and core._crowded()

    def full(self) -> bool:
        """The same for a listener, which waits for accept_again() then."""
        core = self.core
        return core is not None and core._departed_full()

    def accept_again(self) -> None:
        """Departed peers have left less unread again, or may leave more."""
        for node in list(self.nodes.values()):
            if isinstance(node, Listener):
                node.go_on()
        inproc.accept_again(self)

    # -- who is there ------------------------------------------------------------------------------

    def settled(self, endpoint: Endpoint) -> bool:
        """Whether the pattern has seen the peer of this endpoint (its note arrives just before), or
        the peer has disconnected."""
        self.hub.pump()
        return self._met(getattr(self.nodes.get(endpoint), "peer", 0))

    def _met(self, number: int) -> bool:
        core = self.core
        return core is None or number not in self.peers or core._has_pipe(number)

    def settle_peer(self, number: int) -> None:
        """Wait until the socket has seen this peer, whose event arrives just before, or the peer
        has disconnected."""
        self._wait_for(lambda: self._met(number))

    def settle(self, endpoint: Endpoint) -> None:
        """Wait for settled(): a message to this peer by name would not find it before."""
        self._wait_for(lambda: self.settled(endpoint))

    def peer(self, number: int) -> Peer | None:
        found = self.peers.get(number) or self.gone.get(number)
        if found is None and number:
            self.hub.pump()
            with self.hub.lock:  # so that no peer moves between the tables meanwhile
                found = self.peers.get(number) or self.gone.get(number)
        return found

    def present(self) -> list[Peer]:
        """The peers that are connected now."""
        self.hub.pump()
        with self.hub.lock:
            return list(self.peers.values())

    def peer_at(self, endpoint: Endpoint) -> Peer | None:
        """The peer that is connected through this endpoint now."""
        self.hub.pump()
        with self.hub.lock:
            for conn in list(self.connections.values()):
                if conn.peer is not None and endpoint in (conn.endpoint, conn.endpoint.of):
                    return conn.peer
            for number, (where, _, _) in list(self.joined.items()):
                if endpoint in (where, where.of):
                    return self.peers.get(number)
        return None

    # -- accounts ----------------------------------------------------------------------------------

    def peer_stats(self, accounts: Mapping[str, Any]) -> dict[Peer, PeerStats]:
        out: dict[Peer, PeerStats] = {}
        for number, facts in (*accounts["live"], *accounts["ended"]):
            peer = self.peer(number)
            if peer is not None:
                out[peer] = PeerStats.of(facts)
        return out

    def stats(self) -> Stats:
        accounts = self.core._accounts()
        try:
            plane = self.hub.plane
        except ContextClosed:       # closed since the caller looked
            raise SocketClosed("the socket is closed") from None
        return Stats(
            sent=accounts["sent"], received=accounts["received"], waiting=accounts["waiting"],
            unmatched=accounts["unmatched"], dropped=drops_of(accounts),
            pinned_bytes=plane.counters()["slab_bytes"], reconnects=self.reconnects,
            resent=accounts["resent"], failed_handshakes=self.failed_handshakes,
            broken_peers=self.broken_peers, lost=dict(self.lost),
            departed=accounts["left_peers"], peers=self.peer_stats(accounts),
            total=PeerStats.of(both(accounts["total"], accounts["left"])))
