"""What a writer has done, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class WriterStats:
    """Counters since the writer was opened."""

    blocks: int = 0             #: written to the files
    bytes: int = 0              #: of these blocks, padding included
    syncs: int = 0              #: that have succeeded
    sync_seconds: float = 0.0   #: which they took together
    longest_sync: float = 0.0   #: seconds
    segments: int = 0           #: begun
    removed: int = 0            #: segments that retention gave up
    duplicates: int = 0         #: repeated messages that were left out
    producers: int = 0          #: that are remembered, to know what they send again
    forgotten: int = 0          #: producers that were given up for others
    fenced: int = 0             #: messages refused since a newer life of their producer has begun


def stats_of(facts: Mapping[str, int], removed: int) -> WriterStats:
    """facts: of WriterCore._counters()."""
    return WriterStats(
        facts["blocks"], facts["bytes"], facts["syncs"], facts["sync_ns"] / 1e9,
        facts["sync_longest"] / 1e9, facts["rotations"], removed, facts["duplicates"],
        facts.get("producers", 0), facts.get("forgotten", 0), facts["fenced"])
