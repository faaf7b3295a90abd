"""Which member gets a request. No I/O; time and chance are given.

In this order: members that drain or were tried already are left out; ejected members come last;
members come before gateways to other clusters; members of the own zone come before others. Of those
that remain, two random ones are compared (power of two choices, Mitzenmacher 2001) by

    latency x (requests in flight + load that the member reported + 1) / weight

so that a slow or busy member gets less without a count for all. While nothing is in flight, the
latency of a member halves every FADE seconds since it was last used, so that one that was slow once
is tried again, by one request. A burst after a pause thus goes to all. A member that has answered
nothing yet is tried by one request at once, and if that gets no answer, by another one some seconds
later.

With `key`, rendezvous hashing (Thaler and Ravishankar 1998) chooses instead: one key goes to one
member as long as that member is there.

A member that fails EJECT times in a row is ejected for a time that grows with each ejection. At
most half of a service's members are ejected at once. If the member gets a new link meanwhile, it
has been restarted, or goes on after a pause. One request then finds out whether it answers, which
ends the ejection. After repeated ejections that request waits until the last EJECTED seconds of
the time, since a new link alone shows little.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence
from typing import Any

EJECT = 5               # failures in a row
EJECTED = 30.0          # seconds, times the number of ejections in succession
EJECTED_MAX = 300.0
PROBE = 5.0             # seconds between two requests to an ejected member with a new link
NEVER = float("inf")
SMOOTH = 0.1            # weight of the newest latency; more, the longer ago the one before it is
UNKNOWN = 1e-3          # seconds: latency of a member that has answered nothing yet
FADE = 2.0              # seconds
RETRIES = 0.1           # of the requests
RESERVE = 10.0          # retries that are always possible after a pause
RESERVE_MAX = 100.0


def faded(seconds: float) -> float:
    """The share that is left after this time."""
    return float(0.5 ** (seconds / FADE))


class Score:
    """What this node knows of one service at one member."""

    __slots__ = ("at", "ejections", "failures", "in_flight", "latency", "load", "probe", "until",
                 "used")

    def __init__(self) -> None:
        self.latency = 0.0      # seconds, smoothed; 0: unknown
        self.at = 0.0           # when it was last answered
        self.used = -NEVER      # when a request or tunnel was last sent to it, or answered
        self.in_flight = 0      # of this node
        self.load = 0           # as last reported, of all nodes
        self.failures = 0       # in a row
        self.ejections = 0      # in succession
        self.until = 0.0        # ejected until then
        self.probe = NEVER      # ejected: from then on, one request finds out whether it answers

    def sent(self, now: float) -> None:
        self.in_flight += 1
        self.used = now
        if self.probe <= now:
            self.probe = now + PROBE

    def linked(self, now: float) -> None:
        """The member has a new link."""
        if now < self.until and self.probe == NEVER:
            self.probe = max(now, self.until - EJECTED)

    def ejected(self, now: float) -> bool:
        """Whether it gets no request now, unless too many members are ejected."""
        return now < self.until and now < self.probe

    def answered(self, seconds: float, load: int, now: float) -> None:
        self.in_flight -= 1
        newest = 1 - (1 - SMOOTH) * faded(now - self.at)     # 1 after a pause
        self.latency += (newest if self.latency else 1) * (seconds - self.latency)
        self.at = self.used = now
        self.load = load
        self.failures = 0
        if self.probe < NEVER:      # ejected before it got the link
            self.probe, self.until = NEVER, min(self.until, now)

    def released(self) -> None:
        """The request is over, and says nothing about the member."""
        self.in_flight -= 1

    def failed(self, now: float) -> bool:
        """No answer, or no connection. True: ejected now. What was under way when it was ejected
        does not count: one link that breaks with many requests is one failure of the member."""
        self.in_flight -= 1
        self.failures += now >= self.until
        if self.failures < EJECT:
            return False
        self.failures = 0
        if self.at - self.until > self._length:     # it has served for as long again
            self.ejections = 0
        self.ejections += 1
        self.until = now + self._length
        self.probe = NEVER
        return True

    @property
    def _length(self) -> float:
        """Seconds of its last ejection."""
        return min(EJECTED * self.ejections, EJECTED_MAX)

    def refused(self, load: int) -> None:
        """It has answered that it is at its limit."""
        self.in_flight -= 1
        self.load = load

    def expected(self, now: float) -> float:
        """Seconds until an answer. 0: unknown. It fades while none comes."""
        return self.latency * faded(now - self.at)

    def cost(self, weight: float, now: float) -> float:
        if self.probe <= now:
            return 0.0
        others = max(0, self.load - self.in_flight)
        latency = self.latency or UNKNOWN
        if not self.in_flight:      # a faster member beside it would keep it as it is, or unknown
            latency *= faded(now - self.used)
        return latency * (self.in_flight + others + 1) / max(weight, 1e-9)


class Budget:
    """Retries and hedges may be a tenth of the requests, and a few more after a pause."""

    def __init__(self) -> None:
        self.left = RESERVE
        self.refused = 0

    def request(self) -> None:
        self.left = min(RESERVE_MAX, self.left + RETRIES)

    def take(self) -> bool:
        if self.left < 1:
            self.refused += 1
            return False
        self.left -= 1
        return True


class Balancer:
    def __init__(self, zone: str, rng: random.Random | None = None) -> None:
        self.zone = zone
        self.rng = rng or random.Random()

    def choose(self, members: Sequence[Any], service: str, now: float,
               tried: Collection[Any] = (), key: bytes | None = None) -> Any:
        """One of the members, None if there is none to take it. A member has `record` (zone,
        services) and score(service)."""
        if len(members) == 1 and not tried:
            only = members[0]
            return only if only.record.services[service].weight > 0 else None
        able = [member for member in members
                if member not in tried and member.record.services[service].weight > 0]
        able = self._healthy(able, service, now)
        if not able:
            return None
        if len(able) > 1:
            nearest = min(member.record.services[service].hops for member in able)
            able = [member for member in able if member.record.services[service].hops == nearest]
        if key is not None:
            return max(able, key=lambda member: hashlib.blake2b(
                key, digest_size=8, key=member.record.id).digest())
        if self.zone:
            near = [member for member in able if member.record.zone == self.zone]
            able = near or able
        if len(able) == 1:
            return able[0]
        first, second = self.rng.sample(able, 2)
        costs = [member.score(service).cost(member.record.services[service].weight, now)
                 for member in (first, second)]
        return first if costs[0] <= costs[1] else second

    def _healthy(self, members: list[Any], service: str, now: float) -> list[Any]:
        ejected = [member for member in members if member.score(service).ejected(now)]
        if not ejected:
            return members
        # those that come back first are let in again if more than half are out
        ejected.sort(key=lambda member: member.score(service).until)
        out = set(ejected[-(len(members) // 2):]) if len(members) > 1 else set()
        return [member for member in members if member not in out]
