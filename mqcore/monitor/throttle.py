"""A bound on how often something is done: so many times a second, in bursts of one second's."""

from __future__ import annotations

import time
from collections.abc import Callable


class Throttle:
    """Threads may share it. A race between two of them grants one more or one fewer."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate
        self._at = clock()

    def take(self) -> float:
        """0.0: go ahead. Otherwise the seconds until the next may be."""
        now = self._clock()
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._rate

    def give_back(self) -> None:
        """What take() granted was not done."""
        self._left += 1.0
