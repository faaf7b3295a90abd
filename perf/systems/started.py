"""Brokers as children of the runner: the classes of tests/support/brokers.py, with the options of
the benchmark, and those that the tests have no use for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import brokers  # noqa: E402

from systems.system import Started  # noqa: E402

Broker: Any = brokers.Broker
Mosquitto: Any = brokers.Mosquitto
Nats: Any = brokers.Nats
RabbitMQ: Any = brokers.RabbitMQ
Redis: Any = brokers.Redis
ROOT: Path = brokers.ROOT


def absent(programs: tuple[str, ...]) -> str:
    """Which of these is not there, and what brings it; "" if all are."""
    for program in programs:
        if not any(ROOT.glob(program)):
            return (f"there is no {program.rpartition('/')[2]} below {ROOT}; "
                    "`make perf-brokers` or `sh tools/brokers.sh perf` brings it")
    return ""


def version(package: str) -> str:
    """Of a Debian package that tools/brokers.sh has fetched, without epoch and revision."""
    for path in (ROOT.parent / "packages").glob(f"{package}_*.deb"):
        return path.name.split("_")[1].rpartition("%3a")[2].partition("-")[0].partition("+")[0]
    return "(unknown)"


@contextlib.contextmanager
def running(kind: Any, folder: Path) -> Iterator[Started]:
    """A broker of this class, while it runs."""
    broker = kind(folder / "broker")
    try:
        broker.start()
        yield Started(broker.url, broker.process.pid)
    finally:
        broker.close()
