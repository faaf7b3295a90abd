"""The latest spans of this process, which a monitor shows, and what was counted.

The ring keeps spans only while a monitor runs. It holds CAPACITY spans; the oldest gives way.
"""

from __future__ import annotations

import os
from collections import deque
from typing import NamedTuple

from mqcore.base.native import threading

CAPACITY = 4096         # spans of a process
LONGEST_NAME = 200      # characters


class SpanRecord(NamedTuple):
    """A span that has ended. `start`: seconds since the epoch. `duration`: seconds. `parent_id`: ""
    for the first span of a trace. `kind`: "internal", "client", "server", "producer" or
    "consumer". `error`: the name of the exception that ended it, or ""."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    start: float
    duration: float
    error: str = ""


class Ring:
    """Any thread adds; the monitor's thread reads."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Also in a forked child, where another thread may have held the lock."""
        # reentrant: for a signal handler, or a finalizer, that has spans of its own
        self.lock = threading.RLock()
        self.users: set[str] = set()        # monitors that run, by their ids
        self.kept: deque[SpanRecord] = deque(maxlen=CAPACITY)
        self.counts = dict.fromkeys(("recorded", "overwritten", "malformed", "left_out"), 0)

    def begin(self, user: str) -> None:
        with self.lock:
            self.users.add(user)

    def end(self, user: str) -> None:
        """Idempotent. Without a monitor nothing is kept."""
        with self.lock:
            self.users.discard(user)
            if not self.users:
                self.kept.clear()

    def add(self, record: SpanRecord) -> None:
        with self.lock:
            if self.users:
                self.counts["recorded"] += 1
                self.counts["overwritten"] += len(self.kept) == CAPACITY
                self.kept.append(record)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1


RING = Ring()
os.register_at_fork(after_in_child=RING.forget)


def spans(trace_id: str = "") -> list[SpanRecord]:
    """The spans that this process keeps of a trace, or of all traces, oldest first. It keeps the
    latest 4096 while a monitor runs, and none otherwise."""
    with RING.lock:
        kept = list(RING.kept)
    return [record for record in kept if not trace_id or record.trace_id == trace_id]


def stats() -> dict[str, int]:
    """Counters of this process: `recorded` spans, those `overwritten` by later ones, headers that
    were ignored because they are `malformed`, and messages whose trace was `left_out` because their
    headers are as many or as large as is allowed.

    `malformed` counts readings, not messages: `extract()`, `Job.trace_context`, `with job` and
    `Records.trace_context()` each parse the headers anew, so that no message keeps a parsed copy. A
    message of a cluster is read once."""
    with RING.lock:
        return dict(RING.counts)
