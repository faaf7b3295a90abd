"""Crowd: the connections of one listener that are in the middle of their handshake, and the limit
to them (the option `max_handshakes`).

A connection that says nothing costs a descriptor and memory until `handshake_timeout`, and one that
speaks TLS costs computing time. At the limit the oldest gives way to a new one, if it has had a
second: an honest peer needs less. If it has not, many come at once, and the new one is refused: it
comes again, and those that are at it get done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.base.native import time

if TYPE_CHECKING:
    from mqcore.control.links import SocketLinks
    from mqcore.control.wire import Wire

PATIENCE = 1.0  # seconds


class Crowd:
    """The hub's lock is held."""

    def __init__(self, limit: int | None, clock: Callable[[], float] | None = None) -> None:
        self.limit = limit
        self._clock = clock or time.monotonic
        self._since: dict[Wire, float] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._since)

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self._since) >= self.limit

    def enter(self, wire: Wire) -> Wire | None:
        """Which one has to go: none, the oldest, or this one, which has not entered then."""
        now = self._clock()
        if self.full:
            oldest = next(iter(self._since))
            if now - self._since[oldest] < PATIENCE:
                return wire
            del self._since[oldest]
            self._since[wire] = now
            return oldest
        self._since[wire] = now
        return None

    def leave(self, wire: Wire) -> None:
        """Its handshake is over. Idempotent."""
        self._since.pop(wire, None)


def let_in(links: SocketLinks, wire: Wire, crowd: Crowd) -> bool:
    """False: this connection is refused, and that has been reported. On the control thread."""
    with links.hub.lock:
        if crowd.full:
            links.hub.pump()  # some may be done
        wire.crowd = crowd
        loser = crowd.enter(wire)
        if loser is None:
            return True
        loser.why = f"too many handshakes at once ({crowd.limit}, see max_handshakes)"
        if links.wires.get(loser.slot) is loser:
            links.core._end_engine(loser.slot)  # the note of its end does the rest
            return True
    for upgrade, one in list(links.upgrades.items()):
        if one is loser:
            links.stop_upgrade(upgrade)
    links.shake_failed(loser, loser.why, False, told=True)
    return loser is not wire


def shaken(links: SocketLinks, wire: Wire) -> None:
    """A handshake is over, one way or the other."""
    if wire.crowd is not None:
        with links.hub.lock:
            wire.crowd.leave(wire)
