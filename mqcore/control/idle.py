"""Idle: finds peers from which nothing arrived for `idle_after`.

Some peers have no heartbeat (those that speak SP). A peer that vanished then looks like one with
nothing to send, until the kernel's keep-alive disconnects it. While a program reads events(), a
timer on the control thread checks the counters of each peer. It reports an idle peer once, until
that peer sends again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqcore.control import events
from mqcore.control.loop import Timer

if TYPE_CHECKING:
    from mqcore.control.connection import Connection
    from mqcore.control.tables import Tables

LOOKS = 4  # checks per shortest idle_after: a report is late by at most one such interval


class Quiet:
    """A peer's counters at the last check."""

    __slots__ = ("counts", "since", "told")

    def __init__(self, counts: tuple[int, ...], since: float) -> None:
        self.counts, self.since, self.told = counts, since, False


class IdleWatch:
    """The watch of one socket. `start` and `stop` may be called from any thread; everything else
    runs on the control thread."""

    def __init__(self, links: Tables) -> None:
        self._links = links
        self._loop = links.hub.loop
        self._seen: dict[int, Quiet] = {}
        self._timer: Timer | None = None

    def start(self, limit: float | None) -> None:
        """A program reads events, or a peer with the idle_after `limit` has connected."""
        if limit is not None:
            self._loop.call(self._by, limit / LOOKS)

    def stop(self) -> None:
        self._loop.call(self._stop)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._seen.clear()

    def _by(self, pause: float) -> None:
        """Schedule the next check within `pause` seconds."""
        when = self._loop.clock() + pause
        if self._timer is None or self._timer.when > when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        links = self._links
        core = links.core
        if not links.watched or core is None or core.closed:
            self._stop()
            return
        with links.hub.lock:
            connections = {conn.peer.id: conn for conn in list(links.connections.values())
                           if conn.peer is not None}
        limits = {number: conn.options["idle_after"] for number, conn in connections.items()
                  if conn.options["idle_after"] is not None}
        now = self._loop.clock()
        for number, facts in core._accounts()["live"]:
            if number in limits:
                self._judge(number, facts, now, connections[number], limits[number])
        self._seen = {number: quiet for number, quiet in self._seen.items()
                      if number in connections}
        if limits:
            self._by(min(limits.values()) / LOOKS)

    def _judge(self, number: int, facts: dict[str, Any], now: float, conn: Connection,
               limit: float) -> None:
        counts = (facts["reads"], facts["read"], facts["bytes_in"])
        quiet = self._seen.get(number)
        if quiet is None or quiet.counts != counts:
            self._seen[number] = Quiet(counts, now)
        elif not quiet.told and now - quiet.since >= limit:
            quiet.told = True
            self._links.emit(events.Idle, conn.endpoint, conn.peer,
                             f"nothing has arrived from it for {now - quiet.since:.3g} s")
