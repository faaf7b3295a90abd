"""Idle: which peers have been silent for `idle_after`.

Some peers have no heartbeat (those that speak SP), and a peer that vanished looks like one that has
nothing to say, until the kernel's keep-alive has given it up. While events() are read, a timer on
the control thread looks at the counters of each peer, and reports one that has been silent, once
until it speaks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mqcore.control import records
from mqcore.control.loop import Timer

if TYPE_CHECKING:
    from mqcore.control.links import SocketLinks
    from mqcore.control.wire import Wire

LOOKS = 4  # in the shortest idle_after: a report is late by one part of it at most


class Quiet:
    """A peer as the last look saw it."""

    __slots__ = ("counts", "since", "told")

    def __init__(self, counts: tuple[int, ...], since: float) -> None:
        self.counts, self.since, self.told = counts, since, False


class IdleWatch:
    """Of one socket. `start` and `stop` from any thread; all else on the control thread."""

    def __init__(self, links: SocketLinks) -> None:
        self._links = links
        self._loop = links.hub.loop
        self._seen: dict[int, Quiet] = {}
        self._timer: Timer | None = None

    def start(self, limit: float | None) -> None:
        """Somebody reads events; or a peer has come whose idle_after is `limit`."""
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
        """The next look is `pause` from now at the latest."""
        when = self._loop.clock() + pause
        if self._timer is None or self._timer.when > when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        links = self._links
        core = links.core
        if not links.watchers or core is None or core.closed:
            self._stop()
            return
        with links.hub.lock:
            wires = {wire.peer.id: wire for wire in links.wires.values() if wire.peer is not None}
        limits = {number: wire.options["idle_after"] for number, wire in wires.items()
                  if wire.options["idle_after"] is not None}
        now = self._loop.clock()
        for number, facts in core._accounts()["live"]:
            if number in limits:
                self._judge(number, facts, now, wires[number], limits[number])
        self._seen = {number: quiet for number, quiet in self._seen.items() if number in wires}
        if limits:
            self._by(min(limits.values()) / LOOKS)

    def _judge(self, number: int, facts: dict[str, Any], now: float, wire: Wire,
               limit: float) -> None:
        counts = (facts["reads"], facts["read"], facts["bytes_in"])
        quiet = self._seen.get(number)
        if quiet is None or quiet.counts != counts:
            self._seen[number] = Quiet(counts, now)
        elif not quiet.told and now - quiet.since >= limit:
            quiet.told = True
            self._links.emit(records.Idle, wire.endpoint, wire.peer,
                             f"nothing has come from it for {now - quiet.since:.3g} s")
