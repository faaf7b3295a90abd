"""Crowd: the connections of one listener that are still in their handshake, and their limit (option
`max_handshakes`).

A connection that sends nothing holds a descriptor and memory until `handshake_timeout`; one that
speaks TLS also costs computing time. At the limit a new connection replaces the oldest one, if that
has had a second, which is more than an honest peer needs. Otherwise many arrive at once, and the
new connection is refused: its peer will retry, and the handshakes in progress can finish.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.base.native import time

if TYPE_CHECKING:
    from mqcore.control.connection import Connection
    from mqcore.control.peers import Peers

PATIENCE = 1.0  # seconds


class Crowd:
    """Callers hold the hub's lock."""

    def __init__(self, limit: int | None, clock: Callable[[], float] | None = None) -> None:
        self.limit = limit
        self._clock = clock or time.monotonic
        self._since: dict[Connection, float] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._since)

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self._since) >= self.limit

    def enter(self, conn: Connection) -> Connection | None:
        """Add `conn`. Returns the connection that must go: none, the oldest, or `conn` itself,
        which is then not added."""
        now = self._clock()
        if self.full:
            oldest = next(iter(self._since))
            if now - self._since[oldest] < PATIENCE:
                return conn
            del self._since[oldest]
            self._since[conn] = now
            return oldest
        self._since[conn] = now
        return None

    def leave(self, conn: Connection) -> None:
        """The handshake is over. Idempotent."""
        self._since.pop(conn, None)


def let_in(links: Peers, conn: Connection, crowd: Crowd) -> bool:
    """Runs on the control thread. False: the connection was refused, and this has been reported."""
    with links.hub.lock:
        if crowd.full:
            links.hub.pump()  # some handshakes may be complete
        conn.crowd = crowd
        loser = crowd.enter(conn)
        if loser is None:
            return True
        loser.why = f"too many handshakes at once ({crowd.limit}, see max_handshakes)"
        if links.connections.get(loser.slot) is loser:
            links.end_engines([loser.slot])  # the note of its end triggers the rest
            return True
    for handshake, one in list(links.handshakes.items()):
        if one is loser:
            links.stop_handshake(handshake)
    links.shake_failed(loser, loser.why, False, told=True)
    return loser is not conn


def shaken(links: Peers, conn: Connection) -> None:
    """A handshake has succeeded or failed."""
    if conn.crowd is not None:
        with links.hub.lock:
            conn.crowd.leave(conn)
