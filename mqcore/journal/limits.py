"""Limits: how much of a journal server its readers may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mqcore.errors import OptionError

WINDOW = 8 << 20        # bytes of one answer, and of one stream under way
PIECE = 1 << 20         # bytes that a stream reads at a time
PIECES = 512            # records messages of one stream under way
MESSAGES = 1 << 18      # messages in one answer


@dataclass(frozen=True)
class Limits:
    """What a journal server refuses beyond. It answers such a request with JournalBusy and counts
    it in `ServerStats.refused`; a reader asks again until its own time-out."""

    peers: int = 1000               #: connections that have asked for something
    streams: int = 1000             #: streams of all peers
    streams_per_peer: int = 16      #: streams of one peer
    requests: int = 64              #: requests of one peer that wait for their turn
    partitions: int = 200           #: partitions that are open at a time
    groups: int = 1000              #: consumer groups of one partition
    bytes: int = 256 << 20          #: answers that wait in memory for slow peers, of all peers
    idle: float = 60.0              #: seconds until an unused partition is closed

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kinds = (int, float) if field.name == "idle" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                raise OptionError(f"the limit {field.name} must be a number above 0, not {value!r}")
