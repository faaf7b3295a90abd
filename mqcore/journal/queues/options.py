"""Options of a queue (QueueOptions), limits of its server (QueueLimits), statistics of both."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from mqcore.errors import OptionError

BEST, WORST, USUAL = 1, 16, 8       # priorities
DEAD = ".dead"                      # what a queue's dead letters are called, unless it says so
YEAR = 366 * 86400.0


@dataclass(frozen=True)
class QueueOptions:
    """How one queue behaves. `Queue.configure()` changes them; a new queue has its server's.

    visibility: seconds that a consumer may hold a job without acknowledging it.
    grace: seconds that the jobs of a lost connection wait for their consumer's return.
    max_attempts: deliveries after which a job that comes back is a dead letter; 0: no limit.
    dead: the queue of the dead letters; "" is NAME.dead, None discards them. A queue that is its
    own keeps them, and so does one whose dead letter a job would become for the second time.
    max_jobs, max_bytes: what the queue holds at most, jobs that consumers hold included.
    on_full: "refuse" answers a put with QueueFull; "block" lets it wait for space.
    """

    visibility: float = 60.0
    grace: float = 1.0
    max_attempts: int = 20
    dead: str | None = ""
    max_jobs: int = 1_000_000
    max_bytes: int = 1 << 30
    on_full: str = "refuse"

    def __post_init__(self) -> None:
        number(self, "visibility", 0.001, 43200.0)
        number(self, "grace", 0.0, 3600.0)
        whole(self, "max_attempts", 0, 1 << 31)
        whole(self, "max_jobs", 1, 1 << 40)
        whole(self, "max_bytes", 1, 1 << 50)
        if self.on_full not in ("refuse", "block"):
            raise OptionError(f"on_full={self.on_full!r}", hint='it is "refuse" or "block"')
        if self.dead is not None and (not isinstance(self.dead, str) or len(self.dead) > 255):
            raise OptionError(f"dead={self.dead!r}",
                              hint="give the name of a queue, or None to discard dead letters")

    def changed(self, **given: Any) -> QueueOptions:
        """A copy with some of them changed. OptionError."""
        known = {field.name for field in fields(self)}
        for name in given.keys() - known:
            raise OptionError(f"{name}={given[name]!r}", hint=f"a queue's options are "
                                                              f"{', '.join(sorted(known))}")
        return QueueOptions(**{**asdict(self), **given})

    def dead_of(self, name: str) -> str | None:
        """Where the dead letters of the queue `name` go. Those of such a queue stay in it."""
        if self.dead is None or name.endswith(DEAD):
            return None
        found = self.dead or name[:255 - len(DEAD)] + DEAD
        return None if found == name else found


@dataclass(frozen=True)
class QueueLimits:
    """What a queue server refuses beyond."""

    peers: int = 1000               #: connections that have asked for something
    queues: int = 1000              #: queues
    jobs: int = 10_000_000          #: jobs of all queues
    bytes: int = 16 << 30           #: their bodies and headers, wherever they are
    job_bytes: int = 1 << 20        #: the body of one job
    header_bytes: int = 16 << 10    #: the headers of one job
    batch: int = 10_000             #: jobs of one request
    held: int = 100_000             #: jobs that one connection holds
    waiting: int = 64               #: requests of one connection that wait for jobs or space
    waiting_bytes: int = 64 << 20   #: memory of puts that wait for space, of all connections
    producers: int = 10_000         #: producers whose last requests are remembered
    memory: int = 256 << 20         #: bytes of bodies in memory; the others are read from disk

    def __post_init__(self) -> None:
        for field in fields(self):
            whole(self, field.name, 1, 1 << 50)
        if self.job_bytes > 64 << 20:
            raise OptionError(f"job_bytes={self.job_bytes}", hint="a job has at most 64 MiB")


@dataclass(frozen=True)
class QueueStats:
    """One queue. The first five are of this moment, the others counters since its server started.
    `delivered` counts jobs that went to consumers, `redelivered` those of them that had gone to one
    before. What comes back is counted by why: `rejected`, `timed_out`, `abandoned` (the link of
    their consumer died)."""

    ready: int = 0
    delayed: int = 0
    held: int = 0
    bytes: int = 0
    waiting: int = 0
    put: int = 0
    repeated: int = 0
    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    rejected: int = 0
    timed_out: int = 0
    abandoned: int = 0
    expired: int = 0
    dead: int = 0
    purged: int = 0
    refused: int = 0


@dataclass(frozen=True)
class QueueServerStats:
    """Counters of a queue server: the `requests` that came and what became of them (requests ==
    answered + errors + dropped + waiting). Of the errors, `malformed` were not requests, `refused`
    met a limit, `failed` met a mistake of the server (its log has them). `unsent`: answers that
    their peer did not take. The rest are numbers of this moment: `bytes` are those of all jobs with
    their headers, `memory` bytes of bodies are held in memory, `spilled` jobs are on disk alone,
    `stored` bytes are in the journal's files."""

    requests: int = 0
    answered: int = 0
    errors: int = 0
    dropped: int = 0
    malformed: int = 0
    refused: int = 0
    failed: int = 0
    unsent: int = 0
    moved: int = 0
    waiting: int = 0
    peers: int = 0
    queues: int = 0
    jobs: int = 0
    bytes: int = 0
    memory: int = 0
    spilled: int = 0
    stored: int = 0


def whole(owner: Any, name: str, low: int, high: int) -> None:
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise OptionError(f"{name}={value!r}", hint=f"it is a whole number, {low} to {high}")


def number(owner: Any, name: str, low: float, high: float) -> None:
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) \
            or not low <= value <= high:
        raise OptionError(f"{name}={value!r}", hint=f"it is {low:g} to {high:g} seconds")
