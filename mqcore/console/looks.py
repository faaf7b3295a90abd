"""What the monitored programs say: sockets once a second, peers and components while a page shows
them, events.

Each of the four has a thread and a monitor.Client of its own, so a program that does not answer
delays none of the others. A page reads the latest look, which is replaced as a whole.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mqcore.base.waits import Event
from mqcore.console.tables import clean
from mqcore.console.worker import Worker
from mqcore.monitor.client import Client
from mqcore.monitor.place import LOOPBACK
from mqcore.monitor.protocol import Components, Snapshot, SocketFacts
from mqcore.monitor.rates import Rates, SocketRow
from mqcore.monitor.topology import Topology, topology

__all__ = ["LOOPBACK", "Look", "Looks"]

EVERY = 1.0         # seconds between two looks
PATIENCE = 0.8      # seconds to wait for the programs
KEPT_EVENTS = 1000
MINUTE = 60         # looks whose totals are kept
EVENT_TURN = 2.0    # seconds after which new programs are subscribed to


@dataclass
class Look:
    """The latest look. `clock`: when, by time.monotonic(); 0.0: there was none."""

    clock: float = 0.0
    at: float = 0.0
    took: float = 0.0
    shots: list[Snapshot] = field(default_factory=list)
    rows: list[SocketRow] = field(default_factory=list)
    missing: int = 0        # programs that did not answer
    left_out: int = 0       # peers that the programs did not list
    failure: str = ""
    urls: dict[str, str] = field(default_factory=dict)      # where contexts answer, by their ids

    def facts(self, context: str, socket: int) -> tuple[Snapshot, SocketFacts] | None:
        for shot in self.shots:
            if shot.context.id == context:
                for facts in shot.sockets:
                    if facts.number == socket:
                        return shot, facts
        return None


class _Reader:
    """A Client that is opened by the first look and closed when no page looks."""

    def __init__(self, urls: Iterable[str], options: dict[str, Any]) -> None:
        self._urls = list(urls)
        self._options = options
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self._urls or None, **self._options)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Looks:
    """All that is known of the monitored programs. stop() waits for the threads."""

    def __init__(self, urls: Iterable[str], options: dict[str, Any], ending: Event) -> None:
        self._urls = list(urls)
        self._readers = [_Reader(self._urls, options) for _ in range(4)]
        self.sockets, self.peers = Look(), Look()
        self.components: list[Components] = []
        self.history: deque[dict[str, float]] = deque(maxlen=MINUTE)
        self.events: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self.events_seen = self.events_lost = 0
        self._rates, self._peer_rates = Rates(), Rates()
        self._map: tuple[float, Topology] = -1.0, Topology()
        self._ending = ending
        self.workers = {
            "sockets": Worker("sockets", self._look_at_sockets, self._rest_sockets, EVERY, ending),
            "peers": Worker("peers", self._look_at_peers, self._rest_peers, EVERY, ending),
            "components": Worker("components", self._look_at_components, self._rest_components,
                                 EVERY, ending),
            "events": Worker("events", self._look_at_events, self._rest_events, 0.05, ending)}

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()

    def topology(self) -> Topology:
        """The graph of the latest look at the peers. For one thread."""
        look = self.peers
        if self._map[0] != look.clock:
            self._map = look.clock, topology(look.shots)
        return self._map[1]

    # -- the threads -------------------------------------------------------------------------------

    def _look(self, reader: _Reader, rates: Rates, peers: bool) -> Look:
        began = time.monotonic()
        client = reader.client
        client.failure = ""
        shots = client.snapshots(peers=peers, timeout=PATIENCE)
        return Look(clock=began, at=time.time(), shots=shots, rows=rates.update(shots),
                    missing=max(0, len(client.urls) - len(shots)), failure=clean(client.failure),
                    left_out=sum(shot.left_out for shot in shots),
                    urls={shot.context.id: client.url_of(shot.context.id) for shot in shots},
                    took=time.monotonic() - began)

    def _look_at_sockets(self) -> None:
        self.sockets = self._look(self._readers[0], self._rates, False)
        self.history.append(totals(self.sockets))

    def _look_at_peers(self) -> None:
        self.peers = self._look(self._readers[1], self._peer_rates, True)

    def _look_at_components(self) -> None:
        self.components = self._readers[3].client.components(timeout=PATIENCE)

    def _look_at_events(self) -> None:
        client = self._readers[2].client
        until = time.monotonic() + EVENT_TURN
        for event in client.events(timeout=0.5):
            self.events_seen += 1
            self.events.append({
                "number": self.events_seen, "at": event.at, "kind": clean(event.kind),
                "context": event.context, "socket": event.socket, "pattern": clean(event.pattern),
                "endpoint": clean(event.endpoint), "address": clean(event.address),
                "reason": clean(event.reason)})
            if time.monotonic() > until or self._ending.is_set():
                break
        self.events_lost = client.events_lost

    def _rest_sockets(self) -> None:
        self._readers[0].close()
        self._rates, self.sockets = Rates(), Look()
        self.history.clear()

    def _rest_peers(self) -> None:
        self._readers[1].close()
        self._peer_rates, self.peers = Rates(), Look()
        self._map = -1.0, Topology()

    def _rest_components(self) -> None:
        self._readers[3].close()
        self.components = []

    def _rest_events(self) -> None:
        self._readers[2].close()


def totals(look: Look) -> dict[str, float]:
    """The sums over all sockets."""
    rows = look.rows
    return {
        "at": look.at, "contexts": len(look.shots),
        "programs": len({(shot.process.host, shot.process.pid) for shot in look.shots}),
        "sockets": len(rows), "peers": sum(row.peers_connected for row in rows),
        "out_rate": sum(row.out_rate for row in rows), "in_rate": sum(row.in_rate for row in rows),
        "bytes_rate": sum(row.bytes_out_rate + row.bytes_in_rate for row in rows),
        "queued": sum(row.queued_out + row.queued_in for row in rows),
        "drop_rate": sum(row.drop_rate for row in rows), "drops": sum(row.drops for row in rows),
        "errors": sum(bool(row.errors) for row in rows),
        "reconnects": sum(row.reconnects for row in rows),
        "missing": look.missing}
