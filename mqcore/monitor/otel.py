"""Metrics for OpenTelemetry: through its API alone, so the program brings its SDK and exporters.

    from mqcore.monitor import otel

    measured = otel.instrument(context)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mqcore.errors import NotSupported
from mqcore.monitor.metrics import METRICS, Metric, Source, values

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter
except ImportError as error:
    raise NotSupported(f"OpenTelemetry's metrics need {error.name}",
                       hint='pip install "mqcore[metrics]"') from error

SCOPE = "mqcore"
# OpenTelemetry's own names where it has one; others are ours
ATTRIBUTES = {"program": "process.executable.name", "pid": "process.pid",
              "context": "mqcore.context.id", "name": "mqcore.context.name",
              "socket": "mqcore.socket.number", "pattern": "mqcore.socket.pattern",
              "endpoint": "mqcore.socket.endpoint", "reason": "mqcore.drop.reason",
              "direction": "mqcore.direction", "stage": "mqcore.latency.stage",
              "kind": "mqcore.endpoint.kind",
              "state": "mqcore.endpoint.state", "which": "mqcore.component.name",
              "component": "mqcore.component.kind", "status": "mqcore.job.status",
              "event": "mqcore.event", "side": "mqcore.bridge.side"}
NUMBERS = ("pid", "socket")


class Instruments:
    """What instrument() made. OpenTelemetry has no way to remove instruments: after close() they
    have no values."""

    def __init__(self, source: Any, provider: MeterProvider | None) -> None:
        self._source: Source | None = Source(source)
        meter = get_meter(SCOPE, meter_provider=provider)
        for metric in METRICS:
            if metric.kind == "histogram":  # the API has none that is read from callbacks
                self._summed(meter, metric)
                continue
            make = meter.create_observable_counter if metric.kind == "counter" \
                else meter.create_observable_up_down_counter
            make(metric.opentelemetry, callbacks=[self._callback(metric)], unit=metric.unit,
                 description=metric.doc)

    def _summed(self, meter: Any, metric: Metric) -> None:
        """A histogram as two counters: how many, and their sum."""
        for field, unit in (("count", "{message}"), ("sum", metric.unit)):
            part = metric._replace(of=_field(metric, field))
            meter.create_observable_counter(f"{metric.opentelemetry}.{field}", unit=unit,
                                            callbacks=[self._callback(part)],
                                            description=metric.doc)

    def _callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            source = self._source
            if source is None:
                return []
            return [Observation(value, attributes(metric, labels))
                    for labels, value in values(metric, source.seen())]

        return observe

    def close(self) -> None:
        """Stop measuring. Idempotent."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


def _field(metric: Metric, field: str) -> Callable[[Any], Iterable[tuple[Any, float]]]:
    return lambda facts: [(labels, getattr(found, field)) for labels, found in metric.of(facts)]


def attributes(metric: Metric, labels: Iterable[str]) -> dict[str, str | int]:
    found: dict[str, str | int] = {"messaging.system": "mqcore"}
    for name, text in zip(metric.labels, labels, strict=True):
        found[ATTRIBUTES[name]] = int(text) if name in NUMBERS else text
    return found


def instrument(source: Any = None, *, provider: MeterProvider | None = None) -> Instruments:
    """Measure sockets with OpenTelemetry. Keep what it returns; `close()` ends it.

    source: a Context of this process or a list of them, which need no monitor; a monitor.Client; or
    None (default): all monitored programs of this user. provider: None (default) is the global
    one."""
    return Instruments(source, provider)
