"""Limits: how much of a journal server its readers may use. ServerStats: what they have used."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mqcore.errors import OptionError

WINDOW = 8 << 20        # bytes of one answer, and of one stream under way
SLICE = 0.005           # seconds that the answers of a turn may take, its pieces, or one look
PIECE = 1 << 20         # bytes that a stream reads at a time
PIECES = 512            # records messages of one stream under way
MESSAGES = 1 << 18      # messages in one answer


@dataclass(frozen=True)
class Limits:
    """What a journal server refuses beyond. It answers such a request with JournalBusy and counts
    it in `ServerStats.refused`; a reader asks again until its own time-out.

    At `peers`, `streams` and `partitions`, what uses its place least gives way to a newcomer:
    connections that ask for nothing, streams whose reader has taken nothing for 5 s, then those of
    the owner (user, machine, or process over ipc) that has most, if it has two more than the
    newcomer's. Of its connections, those of members of consumer groups come last."""

    peers: int = 1000               #: connections that have asked for something
    streams: int = 1000             #: streams of all peers
    streams_per_peer: int = 16      #: streams of one peer
    requests: int = 64              #: requests of one peer that wait for their turn
    partitions: int = 200           #: partitions that are open at a time
    groups: int = 1000              #: consumer groups of one partition
    members: int = 1000             #: members of all consumer groups
    bytes: int = 256 << 20          #: answers that wait in memory for slow peers, of all peers
    idle: float = 60.0              #: seconds until an unused partition is closed

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kinds = (int, float) if field.name == "idle" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                raise OptionError(f"the limit {field.name} must be a number above 0, not {value!r}")


@dataclass(frozen=True)
class ServerStats:
    """Counters since the start: the `requests` that came and what became of them (requests ==
    answered + errors + repeated + dropped + waiting). `errors` were answered with one; `repeated`
    came again before their turn; `dropped` were left by peers that closed their connection. Of the
    errors, and of the streams that ended with one (`streams_failed`), `malformed` were not
    requests, `refused` met a limit, `failed` met a mistake of the server (its log has them).
    `unsent`: answers that their peer did not take. `messages` and `bytes` were sent as records.
    `longest_turn`: seconds that a peer has waited at most while others were served. The rest are
    numbers of this moment."""

    requests: int = 0
    answered: int = 0
    errors: int = 0
    repeated: int = 0
    dropped: int = 0
    streams_failed: int = 0
    malformed: int = 0
    refused: int = 0
    failed: int = 0
    unsent: int = 0
    messages: int = 0
    bytes: int = 0
    waiting: int = 0
    peers: int = 0
    streams: int = 0
    partitions: int = 0
    longest_turn: float = 0.0
