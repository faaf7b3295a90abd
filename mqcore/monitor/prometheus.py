"""Metrics for Prometheus, through prometheus_client.

    from prometheus_client import REGISTRY
    from mqcore.monitor.prometheus import Collector

    REGISTRY.register(Collector(context))       # beside the program's own metrics
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from mqcore.api.histograms import EXPORTED, Histogram
from mqcore.errors import NotSupported
from mqcore.monitor.metrics import METRICS, Metric, Source, values

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
except ImportError as error:
    raise NotSupported(f"Prometheus' metrics need {error.name}",
                       hint='pip install "mqcore[metrics]"') from error

FAMILIES: Mapping[str, Any] = MappingProxyType({
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily})
__all__ = ["Collector", "CollectorRegistry", "generate_latest", "start_http_server"]


class Collector:
    """A collector that you register with a registry of prometheus_client.

    source: a Context of this process or a list of them, which need no monitor; a monitor.Client; or
    None (default): all monitored programs of this user. UsageError for anything else."""

    def __init__(self, source: Any = None) -> None:
        self._source = Source(source)

    def describe(self) -> list[Any]:
        """The metrics without values. prometheus_client asks when a collector is registered."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Any]:
        """The metrics. Scrapes within half a second share one look."""
        seen = self._source.seen()
        for metric in METRICS:
            family = _family(metric)
            for labels, value in values(metric, seen):
                if metric.kind == "histogram":
                    family.add_metric(labels, buckets_of(value), value.sum)
                else:
                    family.add_metric(labels, value)
            yield family

    def close(self) -> None:
        """Stop reading other processes. Idempotent. Unregister the collector first."""
        self._source.close()


def buckets_of(found: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts, with a bucket for each power of two from 1.024 us to 17.2 s."""
    bounds = [ns / 1e9 for ns in EXPORTED]
    totals = found.cumulative(bounds)
    return [*((str(bound), float(n)) for bound, n in zip(bounds, totals, strict=True)),
            ("+Inf", float(found.count))]


def _family(metric: Metric) -> Any:
    return FAMILIES[metric.kind](metric.prometheus.removesuffix("_total"), metric.doc,
                                 labels=metric.labels)
