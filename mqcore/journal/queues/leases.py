"""Leases: which deliveries hold which jobs, for whom and until when."""

from __future__ import annotations

from typing import Any

from mqcore.journal.queues.bulk import assign
from mqcore.journal.queues.entry import Entry, Lease, Timer


class Lost:
    """The holder of jobs whose connection is lost."""


def of(lease: Lease) -> list[Entry]:
    """What it still holds."""
    return [entry for entry in lease.entries if entry.lease is lease]


class Leases:
    def __init__(self) -> None:
        self.held: dict[Any, dict[Lease, None]] = {}    # by holder, in their order
        self.ends = Timer(lambda when, lease: lease.open > 0)

    def hold(self, entries: list[Entry], holder: Any, deadline: float) -> None:
        lease = Lease(deadline, holder, entries)
        assign(entries, lease)
        if holder is not None:
            self.held.setdefault(holder, {})[lease] = None
        self.ends.add(deadline, lease)

    def release(self, entry: Entry) -> None:
        """It is held no longer."""
        lease, entry.lease = entry.lease, None
        entry.queue.held -= 1
        if lease is not None:
            lease.open -= 1
            if not lease.open:
                self.close(lease)

    def close(self, lease: Lease) -> None:
        """It holds nothing any more."""
        lease.entries = []
        leases = self.held.get(lease.holder)
        if leases is not None:
            leases.pop(lease, None)
            if not leases:
                del self.held[lease.holder]

    def held_by(self, holder: Any) -> int:
        """How many jobs a connection holds."""
        return sum(lease.open for lease in self.held.get(holder, ()))

    def leave(self, holder: Any, now: float) -> None:
        """A connection is lost: its jobs wait for it a while, then go back."""
        for lease in self.held.pop(holder, ()):
            entries = of(lease)
            if entries:
                lease.holder = Lost
                lease.deadline = min(lease.deadline, now + entries[0].queue.options.grace)
                self.ends.add(lease.deadline, lease)

    def due(self, now: float, most: int) -> list[Lease]:
        """Those whose time is over. A lease that was left may be here twice."""
        found: list[Lease] = self.ends.due(now, most)
        return found

    def again(self, leases: list[Lease]) -> None:
        """They were due, and nothing could be done."""
        for lease in leases:
            self.ends.add(lease.deadline, lease)
