"""How long to wait before the next attempt to connect.

The step starts at `initial`, doubles up to `maximum`, and starts over after a connection that
lasted longer than the last wait, or brought a message. A handshake alone does not suffice, because
a peer may complete it and leave at once, each time. Each wait is a random part of the step, from
half of it to all, so that a thousand clients of a server that came back do not call at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Not thread-safe: belongs to one connector."""

    def __init__(self, initial: float, maximum: float,
                 rng: Callable[[], float] = random.random) -> None:
        self.initial = initial
        self.maximum = max(initial, maximum)
        self.step = initial
        self._rng = rng

    def next(self) -> float:
        """Seconds to wait now; the step after this one is twice as long."""
        wait = self.step * (0.5 + 0.5 * self._rng())
        self.step = min(self.step * 2, self.maximum)
        return wait

    def reset(self) -> None:
        self.step = self.initial
