"""The components of this process, as the agent answers them."""

from __future__ import annotations

import math

from mqcore.base.components import COMPONENTS, State
from mqcore.base.described import described
from mqcore.monitor.collect import LONGEST, clean, process_facts
from mqcore.monitor.protocol import (
    MOST_COMPONENTS,
    MOST_COUNTS,
    VERSION,
    ComponentFacts,
    Components,
)

TRIES = 3       # a component's thread may change a table while it is read
FIRST, LAST = -(1 << 63), (1 << 63) - 1     # of the integers that the protocol has


def components() -> Components:
    """All that run, or that an error has ended, by kind and name."""
    found = [facts for one in COMPONENTS for facts in facts_of(one)]
    found.sort(key=lambda facts: (facts.kind, facts.name))
    return Components(v=VERSION, process=process_facts(), components=found[:MOST_COMPONENTS],
                      left_out=max(0, len(found) - MOST_COMPONENTS))


def facts_of(one: object) -> list[ComponentFacts]:
    """What one of them says. What ends at this moment, or fails, must not hide the others."""
    for _ in range(TRIES):
        try:
            return [facts(state) for state in one._mq_components()]  # type: ignore[attr-defined]
        except RuntimeError:        # a dictionary changed
            continue
        except Exception as error:
            return [facts(State(type(one).__name__, "", "unknown", described(error)))]
    return [facts(State(type(one).__name__, "", "busy"))]


def facts(state: State) -> ComponentFacts:
    listed = list(state.counts.items())[:MOST_COUNTS]
    counts = {clean(str(name), 100): count for name, value in listed if (count := number(value))}
    return ComponentFacts(kind=clean(str(state.kind), 100), name=clean(str(state.name), LONGEST),
                          state=clean(str(state.state)), error=clean(str(state.error)),
                          counts=counts)


def number(value: float) -> float:
    """A counter as the protocol has it. What is no number counts as nothing."""
    if isinstance(value, int):
        return min(max(int(value), FIRST), LAST)
    return float(value) if math.isfinite(value) else 0
