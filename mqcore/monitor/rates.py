"""Rates: what changed between two looks at the same sockets, per second.

    rates = Rates()
    rates.update(client.snapshots())            # the first look has no rates
    for row in rates.update(client.snapshots()):
        print(row.program, row.pattern, row.out_rate)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mqcore.api.histograms import Histogram
from mqcore.monitor.protocol import PeerFacts, Snapshot, SocketFacts

Key = tuple[str, int, int]      # context, socket, peer (0: the socket itself)
COUNTERS = ("sent", "received", "bytes_out", "bytes_in", "drops")
SOON = 1e-6     # seconds; two looks that are closer together have no rates, which might be infinite


@dataclass(frozen=True)
class PeerRow:
    """One peer of a socket. Rates are per second since the look before; 0.0 at the first one."""

    id: int
    address: str
    pattern: str
    wire: str
    user: str | None
    pid: int | None
    out_rate: float
    in_rate: float
    bytes_out_rate: float
    bytes_in_rate: float
    drop_rate: float
    written: int
    read: int
    queued_out: int
    queued_in: int
    dropped: dict[str, int]
    rtt: float | None


@dataclass(frozen=True)
class Latency:
    """Percentiles of a latency, in seconds. `count`: measured messages."""

    count: int
    p50: float
    p99: float


@dataclass(frozen=True)
class SocketRow:
    """One socket. Rates are per second since the look before; 0.0 at the first one. `dropped`:
    messages by reason, since the start. `queued_out` includes messages that wait in the socket.
    `latencies`: by the names of Socket.histograms(), of what was measured since the look before
    (at the first one: since the start). A kind that measured nothing is left out."""

    program: str
    pid: int
    context: str
    context_name: str
    socket: int
    pattern: str
    endpoints: tuple[str, ...]
    errors: tuple[str, ...]
    peers_connected: int
    out_rate: float
    in_rate: float
    bytes_out_rate: float
    bytes_in_rate: float
    drop_rate: float
    sent: int
    received: int
    queued_out: int
    queued_in: int
    send_hwm: int | None
    recv_hwm: int | None
    reconnects: int
    failed_handshakes: int
    dropped: dict[str, int]
    peers: tuple[PeerRow, ...] = field(default=())
    latencies: dict[str, Latency] = field(default_factory=dict)

    @property
    def drops(self) -> int:
        """Messages dropped, for any reason, since the start."""
        return sum(self.dropped.values())


class Rates:
    """Remembers the latest look at each socket. For one thread."""

    def __init__(self) -> None:
        self._counts: dict[Key, dict[str, dict[int, int]]] = {}
        self._last: dict[Key, tuple[float, tuple[int, ...], tuple[float, ...]]] = {}

    def update(self, shots: Iterable[Snapshot]) -> list[SocketRow]:
        """The sockets of these snapshots. Sockets that are in none of them are forgotten."""
        known: dict[Key, Any] = {}
        seen: dict[Key, dict[str, dict[int, int]]] = {}
        rows = []
        for shot in shots:
            for facts in shot.sockets:
                key = (shot.context.id, facts.number, 0)
                seen[key] = {kind: one.counts for kind, one in facts.latencies.items()}
                rows.append(self._socket(shot, facts, known))
        self._last, self._counts = known, seen
        return rows

    def _latencies(self, key: Key, facts: SocketFacts) -> dict[str, Latency]:
        found = {}
        for kind, one in facts.latencies.items():
            before = self._counts.get(key, {}).get(kind, {})
            counts = {i: n - before.get(i, 0) for i, n in one.counts.items()
                      if n > before.get(i, 0)}
            if counts:
                new = Histogram.of(0, counts)
                found[kind] = Latency(new.count, new.percentile(50), new.percentile(99))
        return found

    def _rates(self, key: Key, clock: float, counts: tuple[int, ...],
               known: dict[Key, Any]) -> tuple[float, ...]:
        then, before, rates = self._last.get(key, (clock, counts, (0.0,) * len(counts)))
        if clock - then > SOON:     # else it is the same look again
            rates = tuple(max(0, new - old) / (clock - then)
                          for new, old in zip(counts, before, strict=True))
        known[key] = clock, counts, rates
        return rates

    def _socket(self, shot: Snapshot, facts: SocketFacts, known: dict[Key, Any]) -> SocketRow:
        counts = (facts.sent, facts.received, facts.bytes_out, facts.bytes_in,
                  sum(facts.lost.values()))
        rates = self._rates((shot.context.id, facts.number, 0), shot.clock, counts, known)
        return SocketRow(
            program=shot.process.program, pid=shot.process.pid, context=shot.context.id,
            context_name=shot.context.name, socket=facts.number, pattern=facts.pattern,
            endpoints=tuple(one.url for one in facts.endpoints),
            errors=tuple(one.error for one in facts.endpoints if one.error),
            peers_connected=facts.connected,
            out_rate=rates[0], in_rate=rates[1], bytes_out_rate=rates[2], bytes_in_rate=rates[3],
            drop_rate=rates[4], sent=facts.sent, received=facts.received,
            queued_out=facts.queued_out + facts.waiting, queued_in=facts.queued_in,
            send_hwm=facts.send_hwm, recv_hwm=facts.recv_hwm, reconnects=facts.reconnects,
            failed_handshakes=facts.failed_handshakes, dropped=dict(facts.lost),
            latencies=self._latencies((shot.context.id, facts.number, 0), facts),
            peers=tuple(self._peer(shot, facts, peer, known) for peer in facts.peers))

    def _peer(self, shot: Snapshot, facts: SocketFacts, peer: PeerFacts,
              known: dict[Key, Any]) -> PeerRow:
        dropped = dict(peer.dropped_out)
        for reason, count in peer.dropped_in.items():
            dropped[reason] = dropped.get(reason, 0) + count
        counts = peer.written, peer.read, peer.bytes_out, peer.bytes_in, sum(dropped.values())
        rates = self._rates((shot.context.id, facts.number, peer.id), shot.clock, counts, known)
        return PeerRow(
            id=peer.id, address=peer.address, pattern=peer.pattern, wire=peer.wire,
            user=peer.user, pid=peer.pid, out_rate=rates[0], in_rate=rates[1],
            bytes_out_rate=rates[2], bytes_in_rate=rates[3], drop_rate=rates[4],
            written=peer.written, read=peer.read, queued_out=peer.queued_out,
            queued_in=peer.queued_in, dropped=dropped, rtt=peer.rtt)
