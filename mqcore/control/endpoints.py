"""Endpoints: where one socket binds and connects, and how each of these ends.

The hub's lock: these calls run on the caller's thread without it, since they wait for the control
thread, which may want it. They take it to look at a table or to change one, and release it before
they start or stop a node. (A signal handler may call them while its thread holds the lock, which
call_wait() then releases.) leave() and the callbacks of listeners and connectors run on the control
thread, without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqcore.base.native import socket as pysocket
from mqcore.control import events, inproc, shortcut
from mqcore.control.connection import check_peer_id, check_security, check_wire
from mqcore.control.connector import Connector
from mqcore.control.crowd import Crowd
from mqcore.control.endpoint import Endpoint
from mqcore.control.listener import Listener
from mqcore.control.peers import Peers
from mqcore.control.resolving import Follower, follow
from mqcore.control.route import Route
from mqcore.errors import AddressError, SocketClosed, UsageError
from mqcore.spi import registry, url

LEFT = ("disconnected peers have left as many unread messages as max_departed and recv_hwm_bytes "
        "allow")
ITS_END = 0.25          # seconds that unbind() waits for a peer to end its side, too
ONCE = ("pub", "xpub", "sub", "xsub", "radio", "dish", "bus")    # connect to an address once


class Endpoints(Peers):
    """A SocketLinks as what binds and connects."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in list(self.nodes) if endpoint.of is None)

    def _prepare(self, text: str, role: str,
                 given: Mapping[str, Any]) -> tuple[Route, dict[str, Any]]:
        from mqcore import options as table

        if self.core.closed:
            raise SocketClosed("the socket is closed")
        route = Route(url.parse(text), role)
        options = table.for_link(self.options, route.url.query, given, extra=route.rows())
        if self.hub.world is not None:
            self.hub.world.check_scheme(route.url.transport)
        self._check_carried(route, role)
        check_wire(self.plugin, route, options)
        check_peer_id(self.plugin, route, role, options)
        check_security(self.plugin, route, options)
        # for filters: see spi/filter.py
        options |= {"pattern.name": self.plugin.name, "pattern.zmtp": self.plugin.zmtp,
                    "pattern.sp": self.plugin.sp}
        return route, options

    def _check_carried(self, route: Route, role: str) -> None:
        """Refuse a pattern that the transport does not carry, or not in this direction."""
        carried = getattr(route.transport, "patterns", {})
        name, scheme = self.plugin.name, route.url.transport
        if not carried or name in carried.get(role, ()):
            return
        if any(name in names for names in carried.values()):
            other = "connect" if role == "bind" else "bind"
            raise UsageError(f"a {name} socket cannot {role}() over {scheme}://",
                             hint=f"it can only {other}()")
        words = ", ".join(f"{name} to {way}()" for way, names in carried.items() for name in names)
        raise UsageError(f"{scheme}:// cannot carry a {name} socket",
                         hint=f"it carries {words}; use another transport")

    def bind(self, text: str, **given: Any) -> Endpoint:
        route, options = self._prepare(text, "bind", given)
        transport = route.transport
        if transport.kind == "inproc":
            return inproc.bind(self, route.url, transport)
        transport = shortcut.transport_of(self, route, options)
        listener: Any = None
        crowd = Crowd(options["max_handshakes"])

        def accepted(sock: pysocket.socket, remote: str) -> None:
            if listener.endpoint not in self.nodes:  # its bind() failed
                sock.close()
                return
            self.emit(events.Accepted, listener.endpoint, None, remote)
            try:
                self._adopt(sock, shortcut.way(transport, route, sock), None, listener.endpoint,
                            remote, options, crowd)
            except SocketClosed:  # close() is faster than the listener's end
                sock.close()

        def event(what: str, error: BaseException | None) -> None:
            if what == "listening":
                self.emit(events.Listening, listener.endpoint, None, "")
            elif what == "accept_paused":
                self.emit(events.AcceptPaused, listener.endpoint, None, str(error))
            elif what == "accept_held":
                self.emit(events.AcceptPaused, listener.endpoint, None, LEFT)
            elif what == "accept_failed":
                self.emit(events.HandshakeFailed, None, None, str(error))

        # without the hub's lock: the listener waits for the control thread, which may need it
        listener = Listener(self.hub.loop, transport, route, options, accepted, event,
                            full=self.full, start=False)
        try:
            listener.listen()
            options["listen.address"] = listener.address
            endpoint: Endpoint = listener.endpoint
            if not self._enter(endpoint, listener):
                raise SocketClosed("the socket is closed")
            endpoint.set_closer(lambda: self.end(endpoint))
            listener.accept()  # not before: a connection needs the endpoint
        except BaseException:  # including Ctrl-C
            if self._withdraw(listener) and listener.told:
                self.emit(events.Closed, listener.endpoint, None, "")
            raise
        return endpoint

    def _withdraw(self, node: Any) -> bool:
        """Undo a bind() or connect() that failed halfway. False: nothing was begun, or another
        thread has ended it."""
        with self.hub.lock:
            gone = [endpoint for endpoint, one in list(self.nodes.items()) if one is node]
            for endpoint in gone:
                del self.nodes[endpoint]
                self.count(endpoint, False)
        node.stop()
        return bool(gone)

    def connect(self, text: str, **given: Any) -> Endpoint:
        parsed = url.parse(text)
        there = self._there(text, given)
        if there is not None:
            return there
        resolver = registry.resolver(parsed.transport)
        if resolver is not None:
            return self._begin(follow(self, resolver, parsed, given))
        made = self.link(text, given)
        made.asked = given
        return made

    def _there(self, text: str, given: Mapping[str, Any]) -> Endpoint | None:
        """Where every peer gets every message, a second connect() with the same arguments would
        double them: it gives the endpoint of the first."""
        if self.plugin.name not in ONCE or self.core.closed:
            return None
        return next((endpoint for endpoint in list(self.nodes)
                     if endpoint.kind == "connect" and endpoint.of is None
                     and text in (endpoint.given, endpoint.url) and endpoint.asked == given
                     and endpoint.state not in ("stopped", "closed")), None)

    def link(self, text: str, given: Mapping[str, Any], of: Endpoint | None = None) -> Endpoint:
        """connect() for a transport's URL. `of`: the resolver's endpoint, if this is a member."""
        route, options = self._prepare(text, "connect", given)
        transport = route.transport
        if transport.kind == "inproc":
            return inproc.connect(self, route.url, transport, options, of)
        transport = shortcut.transport_of(self, route, options)
        connector: Any = None

        def connected(sock: pysocket.socket, remote: str) -> None:
            self._adopt(sock, shortcut.way(transport, route, sock), connector, connector.endpoint,
                        remote, options)

        def state(what: str, error: Any) -> None:
            kinds = {"connecting": events.Connecting, "waiting": events.Retrying,
                     "stopped": events.Stopped}
            if what in kinds:
                self.emit(kinds[what], connector.endpoint, None, str(error) if error else "")
            if what in ("connecting", "stopped"):
                self.count(connector.endpoint, what == "connecting")
            if what == "connecting" and connector.attempts > 1 and error is None:
                self.reconnects += 1

        connector = Connector(self.hub.loop, transport, route, options, connected, state,
                              full=self.crowded, **self._chance())
        connector.endpoint.of = of
        connector.endpoint.met, connector.endpoint.meet = self.settled, self.settle
        return self._begin(connector)

    def _chance(self) -> dict[str, Any]:
        world = self.hub.world
        return {} if world is None else {"rng": world.random}

    def check_link(self, text: str, given: Mapping[str, Any]) -> None:
        """Raise what link() would raise at once."""
        route, options = self._prepare(text, "connect", given)
        route.check(options)

    def _begin(self, node: Connector | Follower) -> Endpoint:
        endpoint = node.endpoint
        try:
            if not self._enter(endpoint, node):
                raise SocketClosed("the socket is closed")
            endpoint.set_closer(lambda: self.end(endpoint))
            self.count(endpoint, True)
            node.start()
        except BaseException:  # including Ctrl-C
            self._withdraw(node)
            raise
        return endpoint

    def _enter(self, endpoint: Endpoint, node: Any) -> bool:
        """Add to the table, unless close() has begun, which would not see the node any more."""
        with self.hub.lock:
            if self.core.closed:
                return False
            self.nodes[endpoint] = node
            return True

    def find(self, at: Any, kind: str) -> Endpoint:
        if isinstance(at, Endpoint) and at.kind == kind and at in self.nodes:
            return at  # and no other one of the same address
        for endpoint in list(self.nodes):  # other threads add and remove some
            if endpoint.kind == kind and (endpoint.of is None and
                                          str(at) in (endpoint.url, endpoint.given)):
                return endpoint
        raise AddressError(f"nothing is {'bound' if kind == 'bind' else 'connected'} at {at}",
                           hint=f"endpoints: {', '.join(map(str, self.endpoints)) or 'none'}")

    def unbind(self, at: Any) -> None:
        """Stop listening and end the connections of this listener. Complete on return, except for a
        guest (base/waits.pyx), for connections of which more has arrived than the socket holds: it
        reads them as the program receives, and they end then; and for peers that do not end their
        side soon."""
        self.end(self.find(at, "bind"))

    def disconnect(self, at: Any) -> None:
        self.end(self.find(at, "connect"))

    def end(self, endpoint: Endpoint) -> None:
        """Idempotent."""
        if self.hub.guest:
            self.hub.call_soon(self.leave, endpoint)
        elif endpoint in self.nodes and self.core is not None:  # else its finalizer ends all
            self._end_endpoint(endpoint)

    def leave(self, endpoint: Endpoint) -> None:
        """disconnect() on the control thread: does not wait for the engine's end."""
        if endpoint in self.nodes:
            self._end_endpoint(endpoint, wait=False)

    def end_peer(self, number: int, leave: bool = False) -> None:
        """End one connection. Its listener goes on; a connecting endpoint connects again. Does not
        wait. leave: what has arrived is read first."""
        if self.hub.forked:
            return
        with self.hub.lock:
            slots = [slot for slot, conn in list(self.connections.items())
                     if conn.peer is not None and conn.peer.id == number]
            self.end_engines(slots, leave)
            joined, core = number in self.joined, self.core
        if joined and core is not None:
            core._end_pipe(number)

    def _end_endpoint(self, endpoint: Endpoint, wait: bool = True) -> None:
        if self.hub.forked:
            return  # the child has already released it
        core = self.core
        with self.hub.lock:
            node = self.nodes.pop(endpoint, None)
            self.pauses.pop(endpoint, None)
            joined = [peer for peer, (ep, _, _) in list(self.joined.items())
                      if ep is endpoint]
            inproc.forget(self, endpoint)
        if node is not None:
            node.stop()
        for member in endpoint.members:
            if member in self.nodes:
                self._end_endpoint(member, wait)
        if self.handshakes:
            self.hub.loop.call_wait(self._stop_handshakes, endpoint)
        self.count(endpoint, False)
        with self.hub.lock:  # a slot that has left the table may have a new owner
            slots = [slot for slot, conn in list(self.connections.items())
                     if conn.endpoint is endpoint]
            self.end_engines(slots, leave=True)
        for peer in joined if core is not None else ():
            core._end_pipe(peer)
        if wait and core is not None:
            def left() -> list[int]:
                return [slot for slot in slots
                        if (conn := self.connections.get(slot)) is not None
                        and conn.endpoint is endpoint]
            if not self._wait_for(lambda: all(core._reads_on(slot) for slot in left()), ITS_END):
                self._wait_for(lambda: all(core._has_caught_up(slot) for slot in left()))
        endpoint.move("closed")
        self.emit(events.Closed, endpoint, None, "")
