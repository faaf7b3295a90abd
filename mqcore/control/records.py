"""What a program sees of peers, counters and events: frozen records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mqcore.spi.drop import DROP_REASONS

REASONS = tuple(name for name, _ in DROP_REASONS)


def drops(counts: list[int]) -> dict[str, int]:
    """The data plane's array by reason -> only what is not zero, by name."""
    return {REASONS[i]: n for i, n in enumerate(counts) if n}


@dataclass(frozen=True)
class Peer:
    """One connected socket at the other end, or one that was: it stays valid after the link is
    gone. `address` is its end of the connection, `local` is ours, as URLs; "" where the transport
    cannot say.

    Decide by `user` and `verified` alone: no peer can write there. `verified` has what its
    handshake proved ("mechanism", "tls-subject" ...) and what an authentication callback returned.
    `metadata` shows these beside whatever the peer claims about itself."""

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
    """Accounts of one peer. offered == written + queued_out + dropped going out, read == delivered
    + queued_in + dropped coming in; `dropped` is both directions together."""

    offered: int = 0
    written: int = 0
    queued_out: int = 0
    read: int = 0
    delivered: int = 0
    queued_in: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    dropped_out: dict[str, int] = field(default_factory=dict)
    dropped_in: dict[str, int] = field(default_factory=dict)
    bounced: int = 0  # written, and the network said that they did not arrive: at least so many
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
            bytes_out=facts["bytes_out"], bytes_in=facts["bytes_in"], dropped=both,
            dropped_out=out, dropped_in=inn, rtt=facts.get("rtt"), since=facts["since"],
            bounced=facts.get("bounced", 0),
            writes=facts.get("writes", 0), reads=facts.get("reads", 0))


@dataclass(frozen=True)
class Stats:
    """Accounts of a socket. For one-to-one patterns sent == sum(offered) + waiting + dropped; for
    fan-out `unmatched` counts messages nobody wanted. `peers` has the live ones and the latest
    that left; `total` is the sum over all that left, forgotten ones too. `resent`: requests that a
    Req sent again, each one offered more than `sent` has. `failed_handshakes`: connections that
    never became peers, those that were refused among them; `broken_peers`: peers whose link we
    ended for what they sent (malformed, forged, replayed)."""

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
    peers: dict[Peer, PeerStats] = field(default_factory=dict)
    total: PeerStats = field(default_factory=PeerStats)

    def as_dict(self) -> dict[str, Any]:
        """Plain types, fit for JSON; peers by their text."""
        out = asdict(self, dict_factory=dict) if not self.peers else {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "peers"}
        out["total"] = asdict(self.total)
        out["peers"] = {str(peer): asdict(stats) for peer, stats in self.peers.items()}
        return out


@dataclass(frozen=True)
class CloseReport:
    """What close() did. True: nothing is undelivered. `written`: with the kernel or an inproc peer;
    `unacked`: bytes that the peer's kernel had not confirmed when linger ended (tcp)."""

    written: int = 0
    undelivered: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    unacked: int = 0
    elapsed: float = 0.0
    peers: dict[Peer, PeerStats] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.undelivered == 0 and self.unacked == 0


@dataclass(frozen=True)
class Event:
    """Something that happened to a socket's connections."""

    at: float
    socket: Any
    endpoint: str
    peer: Peer | None
    reason: str
    added = removed = ()  # URLs; of Resolved

    @property
    def kind(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        who = self.peer or self.endpoint
        return (self.kind + (f" {who}" if who else "")
                + (f": {self.reason}" if self.reason else ""))


class Listening(Event): ...
class Accepted(Event): ...
class Connecting(Event): ...
class Connected(Event): ...
class HandshakeFailedEvent(Event):
    @property
    def kind(self) -> str:
        return "HandshakeFailed"


class Disconnected(Event): ...
class Retrying(Event): ...
class Stopped(Event): ...
class Dropped(Event): ...
class Subscribed(Event): ...
class Unsubscribed(Event): ...
class FailedOver(Event): ...
class FailedBack(Event): ...
class TooSlow(Event): ...


class Idle(Event):
    """Nothing has come from the peer for `idle_after`."""


class Refused(Event): ...
class PatternFailed(Event): ...
class AcceptPaused(Event): ...


MOVED = (FailedOver, FailedBack)


def moved(kind: type[Event], who: Peer | None, raw: bytes,
          peer_of: Callable[[int], Peer | None]) -> str:
    """The reason of one of these: from which priority and endpoint to which, and why. `raw` is a
    FailOver of protocols/routing/load_balance.pxd."""
    number, before, after, silent = struct.unpack("4I", raw)
    other = peer_of(number)
    mine, theirs = (peer.endpoint if peer else "a peer that left" for peer in (who, other))
    if mine == theirs and who and other:  # both came in through one bind()
        mine, theirs = who.address or mine, other.address or theirs
    if kind is FailedOver:
        why = "it is silent" if silent else "it left"
        return f"from priority {before} ({mine}) to {after} ({theirs}): {why}"
    why = "it answers again" if silent else "it is there"
    return f"from priority {before} ({theirs}) to {after} ({mine}): {why}"


@dataclass(frozen=True)
class Resolved(Event):
    """A resolver's URL stands for other endpoints than before; `reason` says how many."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __str__(self) -> str:
        changes = [f"+ {url}" for url in self.added] + [f"- {url}" for url in self.removed]
        return super().__str__() + (f" ({', '.join(changes)})" if changes else "")


class ResolveFailed(Event): ...
class Closed(Event): ...
