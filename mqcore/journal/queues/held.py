"""Held: which jobs a consumer holds, and until when: it keeps them over a new connection."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterable
from typing import Any

from mqcore.journal.queues import bulk
from mqcore.journal.queues.book import CHUNK
from mqcore.journal.queues.bulk import JobFields

SLACK = 1000            # jobs whose time is over, beside as many as are held
LAST = 1 << 62          # above every id

#: (ids, attempts, seconds to hold them; None: the queue's visibility)
Claim = tuple[list[int], list[int], float | None]


class Held:
    """Only numbers: the jobs themselves live as long as the application wants. The server gives a
    job to others when its time is over, so those that were never settled are forgotten then.
    Threads may share it."""

    def __init__(self) -> None:
        self._until: dict[tuple[int, int], float] = {}  # by id and attempt
        self._bound = SLACK

    def __len__(self) -> int:
        return len(self._until)

    def jobs(self, kind: type[JobFields], queue: Any, until: float, *answer: Any) -> list[Any]:
        """Those of an answer, held from now on. TypeError, ValueError: it is none."""
        found = bulk.jobs_of(kind, queue, self._until, until, *answer)
        if len(self._until) > self._bound:
            self._sweep()
        return found

    def settle(self, jobs: Iterable[JobFields]) -> None:
        bulk.settle(self._until, jobs)

    def add(self, jobs: Iterable[tuple[int, int]], until: float) -> None:
        for job in jobs:
            self._until[job] = until
        if len(self._until) > self._bound:
            self._sweep()

    def drop(self, number: int, attempt: int) -> None:
        self._until.pop((number, attempt), None)

    def _sweep(self) -> None:
        now = time.monotonic()
        for job, until in list(self._until.items()):
            if until <= now:
                self._until.pop(job, None)
        self._bound = 2 * len(self._until) + SLACK

    def claims(self, visibility: float) -> list[Claim]:
        """All of them. Those that extend() gave more than the queue's visibility keep that."""
        self._sweep()
        now = time.monotonic()
        held = sorted((until, *job) for job, until in list(self._until.items()))
        longer = bisect.bisect_right(held, (now + visibility, LAST, LAST))
        claims: list[Claim] = []
        for first, end in ((0, longer), (longer, len(held))):
            for at in range(first, end, CHUNK):
                rows = held[at:min(at + CHUNK, end)]
                claims.append(([number for _, number, _ in rows], [attempt for *_, attempt in rows],
                               rows[-1][0] - now if first else None))
        return claims
