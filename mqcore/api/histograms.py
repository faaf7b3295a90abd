"""Histograms of latencies, as Socket.histograms() gives them: base/histogram.pxd counts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mqcore.errors import UsageError

#: the order of mqcore/base/histogram.pxd, Latencies
KINDS = ("sent", "received", "round_trip")
STEPS = 8                       # buckets to each power of two
#: upper bounds for exporters, ns: every power of two from 1 us to 17 s, each a bucket's bound
EXPORTED = tuple(1 << power for power in range(10, 35))


def bucket_end(i: int) -> int:
    """The first duration, in ns, that is in a later bucket than i."""
    i += 1
    return i if i < 2 * STEPS else (STEPS + i % STEPS) << (i // STEPS - 1)


@dataclass(frozen=True)
class Histogram:
    """How long messages took, in seconds. `count`: messages that it stands for (in a long queue one
    in four is measured, and counts for four); `sum`: of their times.
    `bounds`: the upper bounds of the buckets that are not empty, and `counts`: how many messages
    are in each. A bucket is at most 12.5 % wide. The last one, which ends after 37 minutes, also
    has what took longer."""

    count: int = 0
    sum: float = 0.0
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @classmethod
    def of(cls, ns: int, counts: Mapping[int, int]) -> Histogram:
        """From a sum in ns and the counts of the buckets, by number."""
        numbers = sorted(counts)
        return cls(sum(counts.values()), ns / 1e9, tuple(bucket_end(i) / 1e9 for i in numbers),
                   tuple(counts[i] for i in numbers))

    @property
    def mean(self) -> float:
        """Seconds; 0.0 if nothing was measured."""
        return self.sum / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """A time in seconds that `percent` (0 to 100) of the messages did not exceed: the upper
        bound of a bucket, so at most 12.5 % too high. 0.0 if nothing was measured."""
        if not 0 <= percent <= 100:
            raise UsageError(f"a percentile is from 0 to 100, not {percent!r}",
                             hint="use 99 for the time that 99 % of all messages did not exceed")
        wanted = max(1.0, self.count * percent / 100)
        for bound, total in zip(self.bounds, accumulate(self.counts), strict=True):
            if total >= wanted:
                return bound
        return 0.0

    def cumulative(self, bounds: Sequence[float]) -> list[int]:
        """How many messages took at most each of these times (seconds, ascending). A bucket counts
        once its whole width is below."""
        totals = [0, *accumulate(self.counts)]
        return [totals[bisect_right(self.bounds, bound)] for bound in bounds]


def histograms_of(found: Sequence[tuple[int, Mapping[int, int]]] | None) -> dict[str, Histogram]:
    """By kind, from what SocketCore._latencies() returns; empty if it measures nothing."""
    return {kind: Histogram.of(*one) for kind, one in zip(KINDS, found or ())}  # noqa: B905
