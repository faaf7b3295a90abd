"""What another cluster may ask of this one through a gateway. No I/O; time is given."""

from __future__ import annotations

import dataclasses

from mqcore.errors import UsageError

IN_FLIGHT = 1024
BURST = 1.0             # seconds of a rate that may come at once
MOST = 1e12             # of a rate


@dataclasses.dataclass(frozen=True)
class Quota:
    """Limits for each other cluster at one gateway. What exceeds them is answered with Overloaded
    at once; a tunnel is slowed down instead.

    requests: a second, None for no limit. Opened tunnels count as well.
    bytes: of requests and of messages in tunnels, a second, None for no limit. A body that is
        longer than a second's share passes, and what follows waits for its turn.
    in_flight: requests and tunnels at once.
    """

    requests: float | None = None
    bytes: float | None = None
    in_flight: int = IN_FLIGHT

    def __post_init__(self) -> None:
        for what in ("requests", "bytes"):
            rate = getattr(self, what)
            if rate is not None and (not isinstance(rate, int | float) or isinstance(rate, bool)
                                     or not 0 < rate <= MOST):
                raise UsageError(f"{what}= is a number above 0 for each second, or None, not "
                                 f"{rate!r:.80}")
        if not isinstance(self.in_flight, int) or isinstance(self.in_flight, bool) \
                or not 0 < self.in_flight <= 65536:
            raise UsageError(f"in_flight= is 1 to 65536, not {self.in_flight!r:.80}")


class Bucket:
    """A token bucket. A taker may overdraw it once, and then waits until it has filled up again."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.level = 0.0 if rate is None else max(1.0, rate * BURST)
        self.at: float | None = None

    def wait(self, now: float) -> float:
        """Seconds until something may be taken; 0: now."""
        if self.rate is None:
            return 0.0
        if self.at is not None:
            self.level = min(max(1.0, self.rate * BURST),
                             self.level + (now - self.at) * self.rate)
        self.at = now
        return 0.0 if self.level >= 1.0 else (1.0 - self.level) / self.rate

    def take(self, size: float) -> None:
        if self.rate is not None:
            self.level -= size


class Usage:
    """What one cluster has asked. Accounts, exact at any moment:
    offered == refused + in_flight + answered + failed."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.requests = Bucket(quota.requests)
        self.bytes = Bucket(quota.bytes)
        self.offered = self.refused = self.in_flight = self.answered = self.failed = 0

    def admit(self, size: int, now: float) -> bool:
        """Whether a request or tunnel may begin. over() must follow then."""
        self.offered += 1
        if self.in_flight >= self.quota.in_flight or self.requests.wait(now) \
                or self.bytes.wait(now):
            self.refused += 1
            return False
        self.requests.take(1)
        self.bytes.take(size)
        self.in_flight += 1
        return True

    def over(self, answered: bool) -> None:
        self.in_flight -= 1
        if answered:
            self.answered += 1
        else:
            self.failed += 1

    def accounts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("offered", "refused", "in_flight",
                                                       "answered", "failed")}
