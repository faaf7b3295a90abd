"""What is measured of devices, queues and bridges: rows of the table in metrics.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mqcore.monitor.protocol import ComponentFacts

Rows = Iterable[tuple[tuple[str, ...], Any]]
JOBS = ("ready", "delayed", "held")
JOB_EVENTS = ("put", "delivered", "redelivered", "acknowledged", "rejected", "timed_out",
              "abandoned", "expired", "dead")
BRIDGE_EVENTS = ("received", "delivered", "acknowledged", "dead", "discarded", "repeats", "resent")
#: name, kind, unit, doc, the kind of component ("": each), of, more labels
ROWS: tuple[tuple[str, str, str, str, str, Callable[[ComponentFacts], Rows], tuple[str, ...]], ...]


def counted(names: tuple[str, ...]) -> Callable[[ComponentFacts], Rows]:
    return lambda facts: [((name,), facts.counts.get(name, 0)) for name in names]


def one(name: str) -> Callable[[ComponentFacts], Rows]:
    return lambda facts: [((), facts.counts.get(name, 0))]


def connected(facts: ComponentFacts) -> Rows:
    return [((side,), facts.counts.get(f"{side}_connected", 0)) for side in ("source", "target")]


def failing(facts: ComponentFacts) -> Rows:
    return [((facts.kind,), int(bool(facts.error)))]


ROWS = (
    ("queue.jobs", "gauge", "{job}", "Jobs in a work queue, by what they do.", "queue",
     counted(JOBS), ("status",)),
    ("queue.stored", "gauge", "By", "Bytes of the jobs in a work queue.", "queue", one("bytes"),
     ()),
    ("queue.events", "counter", "{job}", "What happened to the jobs of a work queue.", "queue",
     counted(JOB_EVENTS), ("event",)),
    ("bridge.messages", "counter", "{message}", "What happened to the messages of a bridge.",
     "bridge", counted(BRIDGE_EVENTS), ("event",)),
    ("bridge.held.messages", "gauge", "{message}",
     "Messages that a bridge has received and not settled.", "bridge", one("held"), ()),
    ("bridge.connected", "gauge", "{connection}", "Connections of the bridge to each side.",
     "bridge", connected, ("side",)),
    ("device.messages", "counter", "{message}", "Messages that a device has passed on.", "device",
     counted(("forth", "back")), ("direction",)),
    ("component.failing", "gauge", "{component}", "Components of this name that have an error.",
     "", failing, ("component",)),
)
