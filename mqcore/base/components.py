"""What a process runs beside plain sockets: devices, journals, servers, cluster nodes, bridges.

Each registers itself where it begins, and is held weakly. A monitor asks it for its state on a
thread of its own (mqcore.monitor.components), so `_mq_components` is called on any thread, never
waits, and touches only what may be read there. A forked child runs none of them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mqcore.base.living import Living

DEEPEST = 4         # levels of counters within counters


@dataclass(frozen=True)
class State:
    """One row. kind: what it is, such as "bridge". name: which one. state: "running", or what it
    does instead. error: why, if something is wrong. counts: its counters by name."""

    kind: str
    name: str
    state: str = "running"
    error: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)


class Component(Protocol):
    """An object that a monitor shows."""

    def _mq_components(self) -> Iterable[State]:
        """It, and what it consists of. Nothing once it has ended, unless an error has ended it."""
        ...


COMPONENTS: Living[Component] = Living()
os.register_at_fork(after_in_child=COMPONENTS.clear)


def numbers(stats: Any, prefix: str = "", depth: int = DEEPEST) -> dict[str, float]:
    """The counters of a dataclass or a mapping, by name; those within others as "outer.inner". Rows
    of a list are added up. Other values are left out."""
    if dataclasses.is_dataclass(stats):
        stats = {row.name: getattr(stats, row.name) for row in dataclasses.fields(stats)}
    found: dict[str, float] = {}
    for name, value in _items(stats):
        key = f"{prefix}{name}"
        if isinstance(value, int | float):
            found[key] = found.get(key, 0) + value
        elif depth > 1:
            for inner, count in numbers(value, f"{key}.", depth - 1).items():
                found[inner] = found.get(inner, 0) + count
    return found


def _items(stats: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(stats, Mapping):
        yield from list(stats.items())
    elif isinstance(stats, list | tuple):
        for row in stats:
            if isinstance(row, Mapping):
                yield from list(row.items())
            elif dataclasses.is_dataclass(row):
                yield from ((one.name, getattr(row, one.name)) for one in dataclasses.fields(row))
