"""The components of this process, as the agent answers them."""

from __future__ import annotations

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


def components() -> Components:
    """All that run, or that an error has ended, by kind and name."""
    states = [state for one in COMPONENTS for state in states_of(one)]
    states.sort(key=lambda state: (state.kind, state.name))
    return Components(v=VERSION, process=process_facts(),
                      components=[facts(state) for state in states[:MOST_COMPONENTS]],
                      left_out=max(0, len(states) - MOST_COMPONENTS))


def states_of(one: object) -> list[State]:
    """What one of them says. What ends at this moment, or fails, must not hide the others."""
    for _ in range(TRIES):
        try:
            return list(one._mq_components())       # type: ignore[attr-defined]
        except RuntimeError:        # a dictionary changed
            continue
        except Exception as error:
            return [State(type(one).__name__, "", "unknown", described(error))]
    return [State(type(one).__name__, "", "busy")]


def facts(state: State) -> ComponentFacts:
    counts = {clean(name, 100): value for name, value in list(state.counts.items())[:MOST_COUNTS]
              if value}
    return ComponentFacts(kind=state.kind, name=clean(state.name, LONGEST),
                          state=clean(state.state), error=clean(state.error), counts=counts)
