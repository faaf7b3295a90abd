"""The wall clock, which may be set: what retention by age goes by."""

from __future__ import annotations

import logging

from mqcore.base.native import time

_log = logging.getLogger("mqcore.journal")
STEP = 3600.0           # seconds: a clock that is set by more than this is not believed at once
WHILE = 3600.0          # seconds after which it is


def wall() -> float:
    return float(time.time())


def booted() -> float:
    """Seconds since the machine was started, also while it slept."""
    return float(time.clock_gettime(time.CLOCK_BOOTTIME))


class SteadyClock:
    """now(): seconds since the epoch. A clock that jumps by more than an hour, in either direction,
    is wrong before or behind the jump, and nothing should be removed by mistake: so time goes on as
    it was for another hour. A jump that is taken back until then has no effect."""

    def __init__(self) -> None:
        self._ahead = wall() - booted()     # of the wall clock, as it is believed
        self._jumped: tuple[float, float] | None = None     # (ahead by, at which `booted`)

    def now(self) -> float:
        at = booted()
        ahead = wall() - at
        if abs(ahead - self._ahead) <= STEP:
            self._ahead, self._jumped = ahead, None
        elif self._jumped is None or abs(ahead - self._jumped[0]) > STEP:
            _log.warning("the clock of this machine was set by %.0f s: retention by age goes on as "
                         "if it was not, for %.0f s", ahead - self._ahead, WHILE)
            self._jumped = ahead, at
        elif at - self._jumped[1] >= WHILE:
            self._ahead, self._jumped = ahead, None
        return at + self._ahead
