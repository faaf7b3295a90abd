"""Stopwatch: microseconds."""

from __future__ import annotations

import time


class Stopwatch:
    """start(), then stop() gives the microseconds between."""

    def __init__(self) -> None:
        self._started: int | None = None

    def start(self) -> None:
        """From now on. RuntimeError if it runs."""
        if self._started is not None:
            raise RuntimeError("Stopwatch is already running")
        self._started = time.perf_counter_ns()

    def stop(self) -> int:
        """Microseconds since start(). RuntimeError if it does not run."""
        if self._started is None:
            raise RuntimeError("Stopwatch is not running")
        started, self._started = self._started, None
        return (time.perf_counter_ns() - started) // 1000
