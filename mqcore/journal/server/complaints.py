"""Complaints: what a server logs of its peers, however many mistakes they make.

Of each kind the first BURST within PERIOD seconds are logged. The others are counted, and one line
reports their number when the period ends.
"""

from __future__ import annotations

import logging
import time

BURST = 5
PERIOD = 10.0

_log = logging.getLogger("mqcore.journal")


class Complaints:
    """For one thread."""

    def __init__(self) -> None:
        self._since = 0.0
        self._counts: dict[str, int] = {}

    def due(self, kind: str) -> bool:
        """Count one. True: log it."""
        self.flush()
        if not self._counts:
            self._since = time.monotonic()
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind] <= BURST

    def flush(self, end: bool = False) -> None:
        """Report what was left out, once the period is over, or at the end."""
        if self._counts and (end or time.monotonic() - self._since >= PERIOD):
            for kind, n in self._counts.items():
                if n > BURST:
                    _log.warning("%s: %d more within %.0f s", kind, n - BURST,
                                 time.monotonic() - self._since)
            self._counts = {}
