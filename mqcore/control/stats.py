"""Peers and counters, as a program sees them: frozen data classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mqcore.spi.drop import DROP_REASONS

REASONS = tuple(name for name, _ in DROP_REASONS)
FULL = REASONS.index("full")


def drops(counts: list[int]) -> dict[str, int]:
    """Convert the data plane's drop counters to a dict of reasons with a nonzero count."""
    return {REASONS[i]: n for i, n in enumerate(counts) if n}


def drops_of(accounts: Mapping[str, Any]) -> dict[str, int]:
    """A socket's own drops: those that belong to no peer, and what departed peers left unread."""
    counts = list(accounts["dropped"])
    counts[FULL] += accounts["left_dropped"]
    return drops(counts)


def both(total: Mapping[str, Any], left: Mapping[str, Any]) -> dict[str, Any]:
    """The sum over all departed peers: those whose messages have been read, and the others."""
    return {name: [a + b for a, b in zip(value, left[name], strict=True)]
            if isinstance(value, list) else value + left[name] if isinstance(value, int) else value
            for name, value in total.items()}


@dataclass(frozen=True)
class Peer:
    """A peer: one connected socket at the other end. It stays valid after the link has
    ended. `address` is the peer's end of the connection and `local` is ours, as URLs, or "" if the
    transport does not know it.

    Authorize by `user` and `verified` only: no peer can set them. `verified` has what the handshake
    proved ("mechanism", "tls-subject" ...) and what an authentication callback returned. `metadata`
    also contains the peer's unproven claims about itself."""

    id: int
    address: str
    endpoint: str
    wire: str
    pattern: str
    routing_id: bytes = b""
    user: str | None = None
    pid: int | None = None
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False, compare=False)
    prio: int = 8
    local: str = ""
    verified: Mapping[str, bytes] = field(default_factory=dict, hash=False, compare=False)

    def __str__(self) -> str:
        return f"{self.pattern or 'peer'} {self.id} at {self.address or self.endpoint}"


@dataclass(frozen=True)
class PeerStats:
    """Counters of one peer. Sending: offered == written + queued_out + sum(dropped_out.values()).
    Receiving: read == delivered + queued_in + sum(dropped_in.values()). `dropped` has both
    directions. `bytes_unread`: bytes that had arrived here when the connection ended, and that the
    socket never read. It closed, or the peer broke the protocol or was unresponsive. Those of a
    connection that ended in its handshake are in the total only.
    `bytes_unacked`: bytes of messages in `written` that the peer's kernel had not confirmed when
    the connection ended (tcp), so they may not have arrived. Where the pattern ended it, as with
    on_full="disconnect", they are in the total only."""

    offered: int = 0
    written: int = 0
    queued_out: int = 0
    read: int = 0
    delivered: int = 0
    queued_in: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    bytes_unread: int = 0
    bytes_unacked: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    dropped_out: dict[str, int] = field(default_factory=dict)
    dropped_in: dict[str, int] = field(default_factory=dict)
    bounced: int = 0  # written but reported undelivered by the network: a lower bound
    lost: int = 0  # sent to us, and lost on the way: packets or messages, as the transport counts
    rtt: float | None = None
    since: float = 0.0
    writes: int = 0
    reads: int = 0

    @classmethod
    def of(cls, facts: dict[str, Any]) -> PeerStats:
        out, inn = drops(facts["out_dropped"]), drops(facts["in_dropped"])
        both = {name: out.get(name, 0) + inn.get(name, 0) for name in {**out, **inn}}
        return cls(
            offered=facts["offered"], written=facts["written"],
            queued_out=facts["offered"] - facts["written"] - sum(out.values()),
            read=facts["read"], delivered=facts["delivered"],
            queued_in=facts["read"] - facts["delivered"] - sum(inn.values()),
            bytes_out=facts["bytes_out"], bytes_in=facts["bytes_in"],
            bytes_unread=facts["bytes_unread"], bytes_unacked=facts["bytes_unacked"], dropped=both,
            dropped_out=out, dropped_in=inn, rtt=facts.get("rtt"), since=facts["since"],
            bounced=facts.get("bounced", 0), lost=facts.get("lost", 0),
            writes=facts.get("writes", 0), reads=facts.get("reads", 0))


@dataclass(frozen=True)
class Stats:
    """Counters of a socket. One-to-one patterns: sent == sum(offered) + waiting + dropped. Fan-out:
    `unmatched` counts messages without a receiver. `peers` has the connected peers and the latest
    disconnected ones. `total` is the sum over all disconnected peers, including forgotten ones, and
    `departed` the number of those whose messages you have not received yet. `dropped` has the drops
    that belong to no peer, and in SUB, DISH and BUS those of messages that disconnected peers left
    unread. All drops of a peer are in its own `dropped`.
    `resent`: requests that a Req sent again; each adds one to an `offered` but not to `sent`.
    `failed_handshakes`: connections that never became peers, including refused ones.
    `broken_peers`: peers disconnected for their data (malformed, forged, replayed, more than
    `max_unfinished`). `lost`: what multicast sources sent and never arrived, by source. The numbers
    add up to `PeerStats.lost`; sources beyond 1,000 are counted under ""."""

    sent: int = 0
    received: int = 0
    waiting: int = 0
    unmatched: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    pinned_bytes: int = 0
    reconnects: int = 0
    resent: int = 0
    failed_handshakes: int = 0
    broken_peers: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    departed: int = 0
    peers: dict[Peer, PeerStats] = field(default_factory=dict)
    total: PeerStats = field(default_factory=PeerStats)

    def as_dict(self) -> dict[str, Any]:
        """The counters as plain types for JSON; peers become text."""
        out = asdict(self, dict_factory=dict) if not self.peers else {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "peers"}
        out["total"] = asdict(self.total)
        out["peers"] = {str(peer): asdict(stats) for peer, stats in self.peers.items()}
        return out


@dataclass(frozen=True)
class CloseReport:
    """The result of close(). True if nothing is undelivered. `written`: messages given to the
    kernel or an inproc peer. `unacked`: bytes that the peer's kernel had not confirmed when linger
    ended, or before when their connection ended (tcp). `unread`: bytes that had arrived and that
    the socket never read, those of unfinished handshakes included. `dropped_in`: messages that the
    socket had read from any peer and that the program did not receive, by reason."""

    written: int = 0
    undelivered: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    unacked: int = 0
    unread: int = 0
    dropped_in: dict[str, int] = field(default_factory=dict)
    elapsed: float = 0.0
    peers: dict[Peer, PeerStats] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.undelivered == 0 and self.unacked == 0
