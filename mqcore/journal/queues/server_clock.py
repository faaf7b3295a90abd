"""ServerClock: the time by which jobs are delayed and expire. Setting the machine's clock does not
change it.

It is the machine's time when the folder was new, and what has passed since. The log has it beside
the machine's two clocks (`row`), so that the next server goes on from there:

- Until the machine starts again, CLOCK_BOOTTIME says what has passed, also after a `kill -9`. How
  old the record is does not matter, and setting the other clock has no effect.
- Then only that other clock can say it, if it is not behind. It counts from the later one of the
  two times in the record, so what it was wrong by at that time makes jobs late, never early.

So the record is written anew when the machine's clock was set, and every hour, since a clock that
is behind after a power cut leaves time standing at the last record.
"""

from __future__ import annotations

from pathlib import Path

from mqcore.journal.store import clock

STEP = 1.0              # seconds by which a clock must be set before the log says so
EVERY = 3600.0          # seconds after which it says so in any case


def boot() -> str:
    """Names the start of the machine from which booted() counts, for this process. Empty: there is
    no name."""
    try:
        found = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        offsets = Path("/proc/self/timens_offsets")     # of a container; since Linux 5.6
        if found and offsets.exists():
            found = " ".join([found, *offsets.read_text("ascii").split()])
        return found
    except (OSError, ValueError):
        return ""


class ServerClock:
    """Of one Store. One thread at a time uses it."""

    def __init__(self) -> None:
        self._boot = boot()
        self._ahead = clock.wall() - clock.booted()
        self._noted = 0.0, 0.0          # what row() last gave: the wall clock ahead by, and when

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._ahead + clock.booted()

    def go_on(self, now: float, wall: float, booted: float, boot: str) -> None:
        """From a row() that another one gave."""
        machine = clock.wall()          # before booted(): a pause in between makes jobs late
        at = clock.booted()
        if boot and boot == self._boot and at >= booted:
            passed = at - booted
        else:
            passed = max(0.0, machine - max(wall, now))
        self._ahead = now + passed - at

    def row(self) -> tuple[float, float, float, str]:
        """This time, the machine's, seconds since the machine was started, and which start."""
        at = clock.booted()
        wall = clock.wall()
        self._noted = wall - at, at
        return self._ahead + at, wall, at, self._boot

    def due(self) -> bool:
        """Whether the log should get another row()."""
        ahead, when = self._noted
        at = clock.booted()
        return at - when >= EVERY or abs(clock.wall() - at - ahead) > STEP
