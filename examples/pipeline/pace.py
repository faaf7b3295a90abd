"""When each row is due: event time against one common clock, at a pace that changes in steps.

The steps have equal wall time, so that a report can show what a higher load does. Rows of one hour
are spread evenly over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from examples.pipeline.feed import DAY, HOUR, Days

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPEED = 14.0                    # days a second: the year in three quarters of a minute
SHARES = (0.25, 0.5, 1.0)       # of the speed


class Pace(NamedTuple):
    """speed: days of event time in a second; 0: no clock, as fast as it goes."""

    days: Days
    speed: float
    shares: tuple[float, ...] = SHARES

    @property
    def seconds(self) -> float:
        """How long it takes."""
        if not self.speed:
            return 0.0
        return (self.days.stop - self.days.start) / DAY / self.speed / float(np.mean(self.shares))

    @property
    def steps(self) -> list[tuple[float, float]]:
        """(seconds after the start, share of the speed) of each step."""
        each = self.seconds / len(self.shares)
        return [(i * each, share) for i, share in enumerate(self.shares)]

    def due(self, hours: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds after the start at which rows of these event times, in order, are due."""
        if not self.speed or not len(hours):
            return np.zeros(len(hours))
        length = self.days.stop - self.days.start
        events = self.days.start + length * np.cumsum([0.0, *self.shares]) / sum(self.shares)
        walls = np.linspace(0.0, self.seconds, len(self.shares) + 1)
        due: NDArray[np.float64] = np.interp(spread(hours), events, walls)
        return due


def spread(hours: NDArray[np.int64]) -> NDArray[np.float64]:
    """Event times as they are, but rows of the same hour one after the other within it."""
    _, first, n = np.unique(hours, return_index=True, return_counts=True)
    within = np.arange(len(hours)) - np.repeat(first, n)
    return hours + HOUR * within / np.repeat(n, n)
