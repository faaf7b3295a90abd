"""The events of a socket's connections, one class each. Programs import them from mqcore.events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from mqcore.control.stats import Peer

Kind: TypeAlias = Literal[
    "Listening", "Accepted", "Connecting", "Connected", "HandshakeFailed", "Disconnected",
    "Retrying", "Stopped", "Dropped", "Subscribed", "Unsubscribed", "FailedOver", "FailedBack",
    "TooSlow", "Idle", "Lost", "Refused", "PatternFailed", "AcceptPaused", "Resolved",
    "ResolveFailed", "Closed"]


@dataclass(frozen=True)
class Event:
    """An event of a socket's connections. `at`: seconds since the epoch. `endpoint`: our URL, or
    "". `peer`: the peer that it concerns, if one is known. `reason`: the cause as text, or ""."""

    at: float
    socket: Any
    endpoint: str
    peer: Peer | None
    reason: str
    added = removed = cast("tuple[str, ...]", ())  # URLs; of Resolved

    @property
    def kind(self) -> Kind:
        """The name of the event's class."""
        return cast("Kind", type(self).__name__)

    def __str__(self) -> str:
        who = self.peer or self.endpoint
        return (self.kind + (f" {who}" if who else "")
                + (f": {self.reason}" if self.reason else ""))


class Listening(Event):
    """A listener is open."""


class Accepted(Event):
    """A listener accepted a connection. Its handshake follows."""


class Connecting(Event):
    """A connector starts an attempt."""


class Connected(Event):
    """The handshake with a peer is complete. Messages can flow."""


class HandshakeFailed(Event):
    """A connection ended before its handshake was complete. `reason` says why."""


@dataclass(frozen=True)
class Disconnected(Event):
    """The connection to a peer has ended. `bytes_unread`: bytes from the peer that had arrived and
    that the socket never read, because it ended the connection itself. See `stats()`."""

    bytes_unread: int = 0


class Retrying(Event):
    """An attempt or a connection has failed. The connector will try again after a pause."""


class Stopped(Event):
    """A connector or listener has given up. `reason` says why."""


class Dropped(Event):
    """The socket dropped a message, the first of a run. `reason` is the drop reason of
    `stats()`."""


class Subscribed(Event):
    """A peer has subscribed. `reason` is the topic or group."""


class Unsubscribed(Event):
    """A peer has unsubscribed. `reason` is the topic or group."""


class FailedOver(Event):
    """Messages now go to a worse priority, because the better peers are gone or unresponsive."""


class FailedBack(Event):
    """Messages go to a better priority again."""


class TooSlow(Event):
    """The socket disconnected a peer that did not read its messages (`on_full="disconnect"`)."""


class Idle(Event):
    """Nothing has arrived from the peer for `idle_after`."""


class Lost(Event):
    """A multicast source has sent something that will never arrive. `reason` gives the number of
    units (packets or messages, whatever the transport numbers) and the source. `stats().lost`
    counts them by source."""


class Refused(Event):
    """The pattern refused a peer: a second one for PAIR, a duplicate routing id, too many
    subscriptions."""


class PatternFailed(Event):
    """A pattern or strategy written in Python has raised an exception: the first of a run."""


class AcceptPaused(Event):
    """A listener cannot accept for now: the process has run out of a resource, or disconnected
    peers have left too many unread messages (`max_departed`)."""


@dataclass(frozen=True)
class Resolved(Event):
    """A resolver's URL now stands for other endpoints. `reason` gives their number."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __str__(self) -> str:
        changes = [f"+ {url}" for url in self.added] + [f"- {url}" for url in self.removed]
        return super().__str__() + (f" ({', '.join(changes)})" if changes else "")


class ResolveFailed(Event):
    """A resolver could not look its URL up. It keeps what it knew and tries again."""


class Closed(Event):
    """An endpoint has closed; with endpoint "", the socket has: the last event of a stream."""
