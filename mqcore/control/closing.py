"""Closing: the end of one socket.

The hub's lock: close() runs on the caller's thread and releases the lock, should a signal handler
call it while its thread holds it; each step takes it to look at the tables. `_closing` is the lock
of the thread that closes; no thread waits for it with the hub's lock. abandon() is for a forked
child, in which any lock may be held for ever: it takes none.

A guest (a finalizer in the middle of another call: see base/waits.pyx) takes none and waits for
nothing either. It calls close_behind(): calls on the socket fail at once, and a thread of its own
does the rest.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from mqcore.base.at_rest import AtRest
from mqcore.base.native import threading, time
from mqcore.base.virtual import monotonic
from mqcore.base.waits import Busy, Released, start_behind
from mqcore.control import events, inproc
from mqcore.control.connector import Connector
from mqcore.control.hub import MAX_FAILURES
from mqcore.control.listener import Listener
from mqcore.control.peers import Peers
from mqcore.control.resolving import Follower
from mqcore.control.stats import CloseReport, PeerStats, drops_of
from mqcore.errors import ContextClosed, SocketClosed, StateError, UsageError

AT_REST = AtRest(ContextClosed, SocketClosed)


class Closing(Peers):
    """A SocketLinks as what is closed."""

    def hurry(self) -> None:
        """Make a running close() stop waiting, as with linger 0."""
        self._hurry = True

    def close(self, linger: Any = ...) -> CloseReport:
        """Stop receiving, send what is queued for at most `linger` seconds, then end everything.
        Complete on return. A second call waits for the first and returns the same report; its
        `linger` can shorten the first one's."""
        if self.report is not None:
            return self.report
        started = monotonic()
        asked = linger is not ...
        if not asked:
            linger = self.options["linger"]
        if linger is not None and linger < 0:
            raise UsageError(f"linger must not be negative, not {linger!r}")
        deadline = math.inf if linger is None else started + linger
        if asked or self._until is None:
            self._until = min(deadline, math.inf if self._until is None else self._until)
        self.core._close_input()
        # A second thread waits for the first. A nested call on the same thread (from a signal
        # handler) does the work itself, as does a call after an interrupted one.
        with Released(self.hub.lock), self._closing, Busy(only_calls=True):
            interrupted: BaseException | None = None
            while self.report is None:
                try:
                    self._close(linger, started)
                except BaseException as error:  # Ctrl-C: as if linger were over
                    self._hurry = True
                    self._failures += 1
                    interrupted = interrupted or error
                    if self._failures > MAX_FAILURES:
                        raise
            if interrupted is not None:
                raise interrupted
            return self.report

    def close_behind(self, core: Any, linger: Any = ..., *, level: Any = None,
                     daemon: bool = True) -> CloseReport:
        """close() of this SocketCore on a thread of its own. `level`: its Level, if it is closed
        with it. Until then the report is empty."""
        if self.report is not None:
            return self.report
        self.hold(core)

        def body() -> None:
            try:
                if level is not None:
                    level.close()
                core.close(linger)
            finally:
                self.hold(None)

        with contextlib.suppress(StateError):   # inside the code of a pattern in Python
            core._close_input()
        if self.hub.guest:
            self.hub.behind(body, daemon)
        else:
            try:
                start_behind(body, "mqcore-close", daemon)
            except RuntimeError:  # no threads, or the interpreter is shutting down
                body()
        return self.report or CloseReport()

    def _close(self, linger: float | None, started: float) -> None:
        """All steps; each may safely run again."""
        with self.hub.lock:
            sources = [node for node in list(self.nodes.values())
                       if isinstance(node, (Listener, Follower))]
            for endpoint in list(self.nodes):
                if endpoint.kind == "bind":
                    inproc.forget(self, endpoint)
        for source in sources:
            source.stop()
        if linger != 0:
            self._drain()
        with self.hub.lock:
            connectors = [node for node in list(self.nodes.values())
                          if isinstance(node, Connector)]
            for endpoint in list(self.nodes):
                inproc.forget(self, endpoint)
        for connector in connectors:  # first: the peers end, too, when they hear of it
            connector.stop()
        unacked = self._await_acks() if linger != 0 else self._unacked()
        unacked += self.core._accounts()["total"]["bytes_unacked"]     # of ended connections
        if self.handshakes:
            self.hub.loop.call_wait(self._stop_handshakes)
        self._end_all()
        if self.report is not None:  # a signal handler closed the socket meanwhile
            return
        self.core._unwatch()
        self.idle.stop()
        report = self._closing_report(self.core._accounts(), unacked, started)
        for endpoint in list(self.nodes):
            endpoint.move("closed")
        self.hub.forget(self)
        self.report = report
        self.emit(events.Closed, None, None, "")

    def _late(self) -> bool:
        """Whether close() has waited long enough."""
        return self._hurry or (self._until is not None and monotonic() >= self._until)

    def _pause(self, seconds: float) -> None:
        if self.hub.world is not None:
            self.hub.world.wait_for(lambda: False, seconds)
            return
        with Released():
            time.sleep(seconds)

    def _drain(self) -> None:
        pause = 0.0005
        while self.core._outstanding() > 0:
            if self._late():
                return
            self.core._wait(self.core._change(), pause)
            pause = min(pause * 1.5, 0.01)

    def _unacked(self, last: bool = False) -> int:
        """Bytes without an acknowledgement. `last`: tell the peers that nothing follows."""
        with self.hub.lock:
            return sum(self.core._unacked(slot, last) for slot in list(self.connections)
                       if slot in self.connections)

    def _await_acks(self) -> int:
        pause = 0.0002
        last = self.core._outstanding() == 0
        while True:
            unacked = self._unacked(last)
            if unacked == 0 or self._late():
                return unacked
            self._pause(pause)
            pause = min(pause * 1.5, 0.01)

    def _end_all(self) -> None:
        self.core._drop_all()
        with self.hub.lock:
            self.end_engines(self.connections)
        while not (self._settled()):
            pass

    def _settled(self) -> bool:
        """Whether the engines have ended. I/O threads end them promptly, so it needs no time
        limit."""
        seen = self.core._change()
        if self._none_left():
            return True
        if self.hub.world is not None:
            self._pause(0)      # without letting time pass, which a callback there may not
            if self._none_left():
                return True
        self.core._wait(seen, 0.0005)
        return False

    def _none_left(self) -> bool:
        self.hub.pump()
        self.core._drop_all()
        return bool(self.core._settled()) and not self.connections

    def _closing_report(self, accounts: Mapping[str, Any], unacked: int,
                        started: float) -> CloseReport:
        total = PeerStats.of(accounts["total"])
        lost = drops_of(accounts)
        for reason, count in total.dropped_out.items():
            lost[reason] = lost.get(reason, 0) + count
        undelivered = sum(lost.get(reason, 0) for reason in ("closed", "peer_gone", "half_written"))
        return CloseReport(
            written=total.written, undelivered=undelivered, dropped=lost, unacked=unacked,
            unread=total.bytes_unread, dropped_in=total.dropped_in,
            elapsed=monotonic() - started, peers=self.peer_stats(accounts))

    def abandon(self) -> None:
        """In a forked child: close the inherited listening and connecting sockets. A thread of the
        parent may have held any lock."""
        self._closing = threading.RLock()
        for watcher in tuple(self.watchers):
            abandon = getattr(watcher, "abandon", None)
            if abandon is not None:
                abandon()
        for endpoint, node in self.nodes.items():
            endpoint.abandon()
            if isinstance(node, Follower):
                node.abandon()
            for sock in getattr(node, "_sockets", None) or [getattr(node, "_sock", None),
                                                            getattr(node, "_adopted", None)]:
                if sock is not None:
                    sock.close()
        for handshake in self.handshakes:
            handshake.sock.close()
        core = self.core
        if core is not None:  # else it is garbage, forked by another finalizer, and frees itself
            core._close_descriptors()
