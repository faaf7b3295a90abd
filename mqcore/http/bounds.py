"""What a gateway spends on its clients at most, and what it counts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any

from mqcore.errors import OptionError

KNOWN = 10_000      # clients whose rates are remembered


@dataclass(frozen=True)
class Limits:
    """Bounds of a gateway. Sizes are in bytes, times in seconds. OptionError for a bad value."""

    body_bytes: int = 1 << 20       #: one request's body, or one WebSocket message
    bodies_bytes: int = 64 << 20    #: all bodies that are held at a time
    header_bytes: int = 16 << 10    #: request line and headers of one request
    clients: int = 1000             #: connections
    requests: int = 1000            #: requests in progress
    streams: int = 500              #: event streams, WebSockets and long polls
    rate: float = 0.0               #: requests a second per token, or per address; 0: no bound
    burst: int = 100                #: requests that may come at once, where there is a rate
    header_time: float = 10.0       #: until the headers are complete
    body_time: float = 30.0         #: until a body, or a WebSocket's message, is complete
    send_time: float = 30.0         #: a client that reads nothing for so long is disconnected
    idle_time: float = 30.0         #: an idle connection is kept open
    wait: float = 60.0              #: the longest ?wait=
    heartbeat: float = 15.0         #: between two signs of life on a quiet stream
    drain: float = 10.0             #: at the end, for requests in progress

    def __post_init__(self) -> None:
        for row in fields(self):
            value = getattr(self, row.name)
            least = 0 if row.name in ("rate", "drain") else 1 if row.type == "int" else 0.001
            right = int if row.type == "int" else (int, float)
            if isinstance(value, bool) or not isinstance(value, right) \
                    or not least <= value <= 1 << 40:
                raise OptionError(f"the limit {row.name}={value!r} is out of range",
                                  hint=f"give a number from {least} on")


@dataclass
class Stats:
    """Counters of a gateway since its start. `requests` is the sum of `answered` and `refused`,
    once none is in progress."""

    requests: int = 0       #: requests, WebSockets included
    answered: int = 0       #: with a status below 400
    refused: int = 0        #: with a problem, or given up by the client
    sent: int = 0           #: messages that clients sent
    delivered: int = 0      #: messages that were written to clients
    lost: int = 0           #: messages that clients came too late for, each reported to its client
    undelivered: int = 0    #: messages taken from a socket for a client that had gone
    slow: int = 0           #: clients that were disconnected because they did not read
    late: int = 0           #: connections whose headers, or refused body, took too long
    oversized: int = 0      #: connections closed for headers, or pipelines, beyond the limits
    turned_away: int = 0    #: connections beyond the limit `clients`
    streams: int = 0        #: streams open now
    in_progress: int = 0    #: requests in progress now
    held_bytes: int = 0     #: bytes of bodies and of WebSocket messages held now
    problems: dict[str, int] = field(default_factory=dict)      #: refusals by name

    def facts(self) -> dict[str, Any]:
        """All counters by name."""
        return {row.name: getattr(self, row.name) for row in fields(self)}


def count_problem(stats: Stats, name: str) -> None:
    """A refusal of this name."""
    stats.problems[name] = stats.problems.get(name, 0) + 1


class Rates:
    """Token buckets per client. Each client has `rate` requests a second, and `burst` at once. The
    client that was quiet longest is forgotten first."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self.buckets: dict[str, tuple[float, float]] = {}

    def wait(self, who: str, now: float | None = None) -> float:
        """0 if this client may go on; else the seconds until it may."""
        if not self.rate:
            return 0.0
        now = time.monotonic() if now is None else now
        left, since = self.buckets.pop(who, (float(self.burst), now))
        left = min(float(self.burst), left + (now - since) * self.rate)
        due = 0.0 if left >= 1 else (1 - left) / self.rate
        self.buckets[who] = (left if due else left - 1, now)
        if len(self.buckets) > KNOWN:
            del self.buckets[next(iter(self.buckets))]
        return due
