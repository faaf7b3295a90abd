"""The limits of a service at its node: requests that run, and bytes of those that wait. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

WAITING = 10_000        # requests that wait at one service


class Gate:
    """Admits `concurrency` jobs, keeps up to `queue_bytes` of further ones in order, refuses the
    others. A job has `size` (bytes), `expired(now)` and `cancelled`. It is itself alone: no two are
    equal.

    Accounts, exact at any moment:
    offered == running + waiting + done + refused + expired + cancelled."""

    def __init__(self, concurrency: int, queue_bytes: int) -> None:
        self.concurrency = concurrency
        self.queue_bytes = queue_bytes
        self.queue: OrderedDict[Any, None] = OrderedDict()
        self.bytes = 0
        self.offered = self.running = self.done = 0
        self.refused = self.expired = self.cancelled = 0

    @property
    def load(self) -> int:
        return self.running + len(self.queue)

    def offer(self, job: Any, closed: bool = False) -> str:
        """"run", "wait" or "refuse". closed: nothing is taken at present."""
        self.offered += 1
        if closed:
            self.refused += 1
            return "refuse"
        if self.running < self.concurrency:
            self.running += 1
            return "run"
        if len(self.queue) >= WAITING or self.bytes + job.size > self.queue_bytes:
            self.refused += 1
            return "refuse"
        self.queue[job] = None
        self.bytes += job.size
        return "wait"

    def withdrawn(self, job: Any) -> None:
        """A job was cancelled. If it still waits, it gives its place to others at once. If it has
        its turn, see skipped()."""
        if job in self.queue:
            del self.queue[job]
            self.bytes -= job.size
            self.cancelled += 1

    def finished(self) -> None:
        """A running job is over. Call next() afterwards, until it returns None."""
        self.running -= 1
        self.done += 1

    def skipped(self, job: Any, refused: bool = False) -> None:
        """A job that should have run did not: it was cancelled, has expired, or its requester takes
        no answers."""
        self.running -= 1
        if job.cancelled:
            self.cancelled += 1
        elif refused:
            self.refused += 1
        else:
            self.expired += 1

    def next(self, now: float) -> tuple[Any, bool] | None:
        """A waiting job and whether it must run (False: it has expired, and the requester should
        know). None: nothing waits, or no place is free."""
        if self.queue and self.running < self.concurrency:
            job, _ = self.queue.popitem(last=False)
            self.bytes -= job.size
            if job.expired(now):
                self.expired += 1
                return job, False
            self.running += 1
            return job, True
        return None

    def dismiss(self) -> list[Any]:
        """Refuse what waits: these."""
        jobs = list(self.queue)
        self.queue.clear()
        self.bytes = 0
        self.refused += len(jobs)
        return jobs

    def accounts(self) -> dict[str, int]:
        return {"offered": self.offered, "running": self.running, "waiting": len(self.queue),
                "done": self.done, "refused": self.refused, "expired": self.expired,
                "cancelled": self.cancelled}
