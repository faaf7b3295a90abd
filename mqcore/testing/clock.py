"""A clock that stands still until a test moves it, for what the control plane does later: the
pauses between attempts to connect, the time limit of one, a listener that waits for descriptors.

What the data plane times (handshakes, heartbeats) goes by the kernel's clock and is not governed.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from mqcore.control.loop import ControlLoop


class ManualClock:
    """Seconds as a float, like time.monotonic(), from which it starts.

        clock = ManualClock()
        with mq.Context() as context:
            clock.govern(context)
            ...
            clock.advance(0.1)

    A ControlLoop made by hand takes it as its clock: `clock.loop(ControlLoop(clock=clock))`.
    """

    def __init__(self) -> None:
        self.now = time.monotonic()
        self._loops: list[ControlLoop] = []

    def __call__(self) -> float:
        return self.now

    def govern(self, context: Any) -> None:
        """From now on the context's control thread goes by this clock. Before its first socket, or
        timers that are under way by the kernel's clock are due at odd moments."""
        loop = context._hub.loop
        loop.clock = self
        self.loop(loop)

    def loop(self, loop: ControlLoop) -> ControlLoop:
        """Tell this loop when the time changes."""
        self._loops.append(loop)
        return loop

    def advance(self, seconds: float) -> None:
        """Time passes at once. What becomes due has been done when this returns, and so has what
        that called for without delay."""
        self.now += seconds
        for loop in self._loops:
            loop.wake()
            settle(loop)

    def until_next(self) -> float:
        """Seconds until the next timer of any loop is due; 0 if one is already."""
        return max(0.0, min(self._next(loop) for loop in self._loops) - self.now)

    def _next(self, loop: ControlLoop) -> float:
        settle(loop)
        due = loop.call_wait(lambda: [t.when for t in loop._timers if t.fn is not None])
        return min(due, default=float("inf"))


def settle(loop: ControlLoop, turns: int = 3) -> None:
    """Until the loop has gone round: a turn runs what is due, then the calls that came."""
    for _ in range(turns):
        done = threading.Event()
        loop.call(done.set)
        if not done.wait(10):
            raise AssertionError("the control thread does not answer")
