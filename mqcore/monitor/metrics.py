"""What is measured of sockets and components: one table, which Prometheus and OpenTelemetry share.

A name here is OpenTelemetry's without its prefix `mqcore.`. Prometheus' name follows from it by the
rules of both: dots become underscores, the unit is appended, and counters end with `_total`. So
`socket.sent` in bytes is `mqcore.socket.sent` there and `mqcore_socket_sent_bytes_total` here.

Values come from snapshots without peers, and from lists of components: the number of series depends
on the sockets and the components alone.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from mqcore.api.context import Context
from mqcore.api.histograms import Histogram
from mqcore.base.native import threading
from mqcore.errors import ContextClosed, SocketClosed, UsageError
from mqcore.monitor import collect
from mqcore.monitor.client import Client
from mqcore.monitor.component_metrics import ROWS
from mqcore.monitor.components import components
from mqcore.monitor.protocol import Components, Snapshot, SocketFacts

FRESH = 0.5         # seconds for which a look serves all metrics and all scrapes
KEPT = 3600.0       # seconds for which a counter is remembered that no look finds
MOST_KEPT = 50_000  # counters that are remembered, beside those of the latest look
PATIENCE = 2.0      # seconds to wait for other processes
SOCKET_LABELS = ("program", "pid", "context", "name", "socket", "pattern", "endpoint")
CONTEXT_LABELS = ("program", "pid", "context", "name")
COMPONENT_LABELS = ("program", "pid", "which")
Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, Any]]
Totals = dict[tuple[str, Labels], float]     # by metric and labels
UNITS = {"By": "_bytes", "s": "_seconds"}


class Metric(NamedTuple):
    """One metric. `more`: labels beyond those of a socket, a context or a component. `of`: yields
    (values of `more`, value) for one of them. `component`: the kind of component that it is of;
    "": each; None: it is of a socket or a context."""

    name: str
    kind: str           # "counter", "gauge" or "histogram", whose values are Histograms
    unit: str           # UCUM, as OpenTelemetry has it
    doc: str
    of: Callable[[Any], Values]
    more: Labels = ()
    component: str | None = None

    @property
    def prometheus(self) -> str:
        name = "mqcore_" + self.name.replace(".", "_") + UNITS.get(self.unit, "")
        return name + ("_total" if self.kind == "counter" else "")

    @property
    def opentelemetry(self) -> str:
        return "mqcore." + self.name

    @property
    def labels(self) -> Labels:
        if self.component is not None:
            return COMPONENT_LABELS + self.more
        return (SOCKET_LABELS if self.name.startswith("socket.") else CONTEXT_LABELS) + self.more


def one(field: str) -> Callable[[Any], Values]:
    return lambda facts: [((), getattr(facts, field))]


def by_reason(facts: SocketFacts) -> Values:
    return [((reason,), count) for reason, count in facts.lost.items()]


def by_direction(facts: SocketFacts) -> Values:
    return [(("out",), facts.queued_out + facts.waiting), (("in",), facts.queued_in)]


def by_state(facts: SocketFacts) -> Values:
    counts: dict[tuple[str, ...], float] = {}
    for endpoint in facts.endpoints:
        key = endpoint.kind, endpoint.state
        counts[key] = counts.get(key, 0) + 1
    return counts.items()


def latencies(facts: SocketFacts) -> Values:
    return [((kind,), Histogram.of(one.sum, one.counts)) for kind, one in facts.latencies.items()]


METRICS = (
    Metric("socket.sent.messages", "counter", "{message}", "Messages that the program has sent.",
           one("sent")),
    Metric("socket.received.messages", "counter", "{message}",
           "Messages that the program has received.", one("received")),
    Metric("socket.sent", "counter", "By", "Bytes written to peers.", one("bytes_out")),
    Metric("socket.received", "counter", "By", "Bytes read from peers.", one("bytes_in")),
    Metric("socket.dropped.messages", "counter", "{message}", "Messages dropped, by reason.",
           by_reason, ("reason",)),
    Metric("socket.unmatched.messages", "counter", "{message}",
           "Messages that had no subscriber.", one("unmatched")),
    Metric("socket.resent.messages", "counter", "{message}",
           "Requests sent again, to another peer.", one("resent")),
    Metric("socket.queued.messages", "gauge", "{message}",
           "Messages that wait to be sent (out) or received by the program (in).", by_direction,
           ("direction",)),
    Metric("socket.peers", "gauge", "{peer}", "Connected peers.", one("connected")),
    Metric("socket.endpoints", "gauge", "{endpoint}", "Endpoints, by kind and state.", by_state,
           ("kind", "state")),
    Metric("socket.reconnects", "counter", "{reconnect}", "Connections made again after a loss.",
           one("reconnects")),
    Metric("socket.failed.handshakes", "counter", "{handshake}",
           "Connections that ended before their handshake was complete.",
           one("failed_handshakes")),
    Metric("socket.broken.peers", "counter", "{peer}", "Peers that broke the protocol.",
           one("broken_peers")),
    Metric("socket.latency", "histogram", "s",
           "How long messages wait (sent, received), and round trips of requests.", latencies,
           ("stage",)),
    Metric("context.sockets", "gauge", "{socket}", "Open sockets.", one("sockets")),
    Metric("context.io.threads", "gauge", "{thread}", "I/O threads.", one("io_threads")),
    *(Metric(name, kind, unit, doc, of, more, component)
      for name, kind, unit, doc, component, of, more in ROWS),
)


class Seen(NamedTuple):
    """One look, for all metrics. `ended`: what components have counted that are gone, where others
    have their name. With it, a counter never goes down, also if a process misses a look."""

    shots: list[Snapshot]
    listed: list[Components]
    ended: Totals


class Source:
    """Where metrics come from: contexts of this process, which need no monitor, or a Client, which
    reads other processes. None: all monitored programs of this user. Thread-safe; looks at most
    every FRESH seconds, however many read it. Empty in a forked child, which makes its own."""

    def __init__(self, source: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        contexts = [source] if isinstance(source, Context) else source
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._clock = clock
        self._until = -1.0
        self._seen = Seen([], [], {})
        self._latest: dict[tuple[str, Labels], tuple[float, float]] = {}    # value, when
        self._client: Client | None = None
        self._own: Client | None = None
        self._contexts: list[tuple[str, Context]] = []
        if source is None:
            self._client = self._own = Client()
        elif isinstance(source, Client):
            self._client = source
        elif isinstance(contexts, (list, tuple)) and contexts \
                and all(isinstance(context, Context) for context in contexts):
            self._contexts = [(secrets.token_hex(8), one) for one in dict.fromkeys(contexts)]
        else:
            raise UsageError("metrics come from a Context, a list of Contexts, a monitor.Client or "
                             f"None, not {type(source).__name__}")

    def seen(self) -> Seen:
        """The latest look. A forked child has neither the contexts nor the client: nothing."""
        if self._pid != os.getpid():
            return Seen([], [], {})
        with self._lock:
            if self._clock() >= self._until:
                self._seen = self._look()
                self._until = self._clock() + FRESH
            return self._seen

    def _look(self) -> Seen:
        try:
            shots, listed = self._read()
        except (SocketClosed, ContextClosed):       # the client, perhaps at this moment
            shots, listed = [], []
        return Seen(shots, listed, self._ended(listed))

    def _read(self) -> tuple[list[Snapshot], list[Components]]:
        if self._client is not None:
            return (self._client.snapshots(peers=False, timeout=PATIENCE),
                    self._client.components(timeout=PATIENCE))
        return [collect.snapshot(context._hub, identity, "", "", peers=False, most=0)
                for identity, context in self._contexts if not context.closed], [components()]

    def _ended(self, listed: list[Components]) -> Totals:
        now = self._clock()
        ended = dict(self._seen.ended)
        for metric in METRICS:
            if metric.component is not None and metric.kind == "counter":
                for labels, value in of_components(metric, listed):
                    key = metric.name, labels
                    before = self._latest.pop(key, (0, now))[0]     # the latest ones stay last
                    if before > value:
                        ended[key] = ended.get(key, 0) + before - value
                    self._latest[key] = value, now
        missed = [(key, at) for key, (_, at) in self._latest.items() if at < now]
        for number, (key, at) in enumerate(missed):
            if at < now - KEPT or number < len(missed) - MOST_KEPT:
                del self._latest[key]
                ended.pop(key, None)
        return ended

    def close(self) -> None:
        """Close the client that None has made. Idempotent."""
        if self._own is not None and self._pid == os.getpid():
            self._own.close()


def values(metric: Metric, seen: Seen) -> Iterator[tuple[Labels, Any]]:
    """The values of a metric, by the values of its labels."""
    if metric.component is not None:
        for labels, value in of_components(metric, seen.listed):
            yield labels, value + seen.ended.get((metric.name, labels), 0)
        return
    for shot in seen.shots:
        of_context = (shot.process.program, str(shot.process.pid), shot.context.id,
                      shot.context.name)
        if not metric.name.startswith("socket."):
            for more, value in metric.of(shot.context):
                yield of_context + more, value
            continue
        for facts in shot.sockets:
            url = facts.endpoints[0].url if facts.endpoints else ""
            labels = (*of_context, str(facts.number), facts.pattern, url)
            for more, value in metric.of(facts):
                yield labels + more, value


def of_components(metric: Metric, listed: Iterable[Components]) -> Iterator[tuple[Labels, Any]]:
    """Two components of a process that have one name count together."""
    found: dict[Labels, Any] = {}
    for answer in listed:
        of_process = answer.process.program, str(answer.process.pid)
        for facts in answer.components:
            if metric.component in ("", facts.kind):
                for more, value in metric.of(facts):
                    labels = (*of_process, facts.name, *more)
                    found[labels] = found.get(labels, 0) + value
    yield from found.items()
