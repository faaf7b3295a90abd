"""What the rows of `run.py` must hold, and what they are to reach.

A budget is a ratio of mqcore's figure to that of another candidate in the same rounds, below 1
better for a time, above 1 for a rate. If the other figure is in another row, it is that of the
medians. A row in which mqcore fails breaks its budgets. `holds` leaves room for the noise of a busy
or slow machine: if a run misses it, something broke, and `run.py` ends with status 1. `goal` is
where the work goes; what misses it is listed.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

import report

OURS = "mqcore"
PEERS = "the fastest peer"
CPU, P99 = "CPU s per million", "p99 us"
HEAD = ("| what | figure | to | ratio, round by round | lowest to highest | must hold | goal | |\n"
        "|---|---|---|--:|--:|--:|--:|---|")  # fmt: skip


class Budget(NamedTuple):
    row: str
    to: str  # a candidate, or PEERS
    holds: float | None
    goal: float
    figure: str = "value"  # or another one of each run
    other_row: str = ""  # where the other candidate's figure is, if not in this row


def free(what: str, peer: str, holds: float | None, p50: float, p99: float | None) -> list[Budget]:
    row = f"{what}, tcp, 64 B, free"
    tail = [] if p99 is None else [Budget(row, peer, None, p99, P99)]
    return [Budget(row, peer, holds, p50), *tail]


BUDGETS = [
    *(
        Budget(f"round trip, tcp, 16 B, {place}", to, holds, goal)
        for place in ("awake", "idle")
        for to, holds, goal in (("raw", 1.6, 1.05), ("pyzmq", 0.9, 0.7), ("pyomq", 1.0, 0.7))
    ),
    *(
        Budget("round trip, ipc, 16 B, awake", to, holds, goal)
        for to, holds, goal in (("raw", 1.6, 1.05), ("pyzmq", 0.9, 0.7), ("pyomq", 0.9, 0.7))
    ),
    Budget("one way, tcp, 16 B", PEERS, 2.0, 4.0),
    Budget("one way, tcp, 1 KiB", PEERS, 1.2, 2.5),
    *(Budget(f"one way, tcp, {size}", "raw", 0.4, 0.8) for size in ("64 KiB", "1 MiB", "16 MiB")),
    *(Budget(f"one way, tcp, {size}", PEERS, 0.9, 1.0) for size in ("64 KiB", "1 MiB", "16 MiB")),
    *(Budget(f"one way, ipc, {size}", PEERS, 0.5, 1.0) for size in ("64 KiB", "1 MiB", "16 MiB")),
    Budget("one way, tcp, 16 B, batches", "pyzmq", 5.0, 10.0, other_row="one way, tcp, 16 B"),
    Budget("one way, inproc, 16 B", "pyomq", 2.0, 4.0),
    Budget("one way, inproc, 16 B", "pyzmq", 3.0, 6.0),
    Budget("one way, tcp, 16 B, asyncio", "pyzmq", 6.0, 12.0),
    Budget("round trip, tcp, 16 B, asyncio, awake", "pyzmq", 0.7, 0.2),
    Budget("round trip, tcp, 16 B, uvloop, awake", "raw", 1.6, 1.2),
    *(Budget(f"one way, {over}, 64 KiB", "raw", 0.5, 0.8) for over in ("tls", "wss")),
    Budget("one way, ws, 64 KiB", "raw", 0.2, 0.8),
    Budget("fan-in from 4,000, 16 B", OURS, 4.0, 1.3, CPU, other_row="fan-in from 1, 16 B"),
    Budget("1,000,000 subscriptions, no match", "pyzmq", 0.5, 0.2),
    Budget("one way, shared memory, 1 MiB", "iceoryx2", None, 1.0),
    Budget("one way, shared memory, 64 KiB", "iceoryx2", None, 1.0),
    *(
        Budget(f"one way, tcp, {size}, native", "libzmq", holds, goal)
        for size, holds, goal in (("16 B", 1.2, 4.0), ("100 B", 2.0, 4.0), ("1 KiB", 1.8, 3.0))
    ),
    *(
        budget
        for peer, trip, req in (("pyzmq", 1.0, 1.0), ("pyomq", 1.1, 1.4))
        for budget in (
            *free("round trip over PUSH and PULL", peer, trip, 0.35, 0.7),
            *free("round trip, REQ and REP", peer, req, 0.35, 0.7),
        )
    ),
    *(
        budget
        for load in ("one way", "PUB to 1 SUB")
        for rate in (1, 10)
        for budget in free(f"{load} at {rate} k/s", "pyzmq", 1.0, 0.5, 0.8)
    ),
    *(
        budget
        for what in (
            "bursts of 50 each 10 ms",
            "a chain of three processes",
            "round trip, polling 100 sockets",
            "round trip over PUSH and PULL, asyncio",
            "round trip over PUSH and PULL, beside two busy processes",
            "PUB to 10 SUB at 10 k/s",
        )
        for budget in free(what, "pyzmq", 1.1, 1.0, 1.0)
    ),
    Budget("one way at 0.1 k/s, tcp, 256 KiB, free", "pyzmq", 1.1, 1.0),
    Budget("one way at 0.1 k/s, tcp, 256 KiB, free", "pyzmq", None, 1.0, P99),
]


class Judged(NamedTuple):
    budget: Budget
    other: str  # the candidate
    ratios: list[float]  # round by round; none: mqcore has failed
    less: bool  # is less better?

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios) if self.ratios else math.nan

    def meets(self, limit: float | None) -> bool:
        if limit is None or not self.ratios:
            return bool(self.ratios)
        return self.ratio <= limit if self.less else self.ratio >= limit


def judged(results: dict[str, list[dict]]) -> list[Judged]:
    """The budgets whose rows were measured, in the order above. `results`: by groups."""
    some = [entry for group in ("pairs", "unpinned", "many", "shared", "native")
            for entry in results.get(group, [])]  # fmt: skip
    rows = {entry["name"]: entry for entry in some}
    found = (judge(budget, rows) for budget in BUDGETS)
    return [one for one in found if one is not None]


def judge(budget: Budget, rows: dict[str, dict]) -> Judged | None:
    entry = rows.get(budget.row)
    beside = rows.get(budget.other_row or budget.row)
    if entry is None or beside is None:
        return None
    less = budget.figure == CPU or entry.get("less_is_better", entry.get("kind") == "lat")
    other = fastest(beside, less) if budget.to == PEERS else budget.to
    ours, theirs = values(entry, OURS, budget.figure), values(beside, other, budget.figure)
    if "error" in entry["summary"].get(OURS, {}):
        return Judged(budget, other, [], less)
    if not ours or not theirs:
        return None
    if budget.other_row:
        ours, theirs = [statistics.median(ours)], [statistics.median(theirs)]
    return Judged(budget, other, [a / b for a, b in zip(ours, theirs, strict=True)], less)


def values(entry: dict, library: str, figure: str) -> list[float]:
    """One a round; none if the library is not there, or failed."""
    return [run[figure] for run in entry["runs"].get(library, []) if figure in run]


def fastest(entry: dict, less: bool) -> str:
    """The peer, or "" if there is none."""
    found = {name: s["median"] for name, s in entry["summary"].items()
             if "median" in s and report.is_peer(name)
             and not name.startswith(OURS)}  # fmt: skip
    return (min if less else max)(found, key=lambda name: found[name]) if found else ""


def state(one: Judged) -> str:
    if not one.meets(one.budget.holds):
        return "**broken**"
    return "reached" if one.meets(one.budget.goal) else "missed"


def line(one: Judged) -> str:
    budget = one.budget
    figure = {"value": "p50" if "free" in budget.row else "", P99: "p99", CPU: "CPU"}[budget.figure]
    holds = "" if budget.holds is None else f"{budget.holds:g}"
    to = " of ".join(filter(None, (report.label(one.other), budget.other_row)))
    spread = f"{min(one.ratios):.2f} to {max(one.ratios):.2f}" if one.ratios else "it failed"
    cells = (budget.row, figure, to, f"{one.ratio:.2f}", spread, holds, f"{budget.goal:g}",
             state(one))  # fmt: skip
    return f"| {' | '.join(cells)} |"


def table(some: list[Judged]) -> str:
    return "\n".join([HEAD, *map(line, some)])


def summary(some: list[Judged]) -> str:
    """How many goals are reached, and a line for each that is not, or whose budget is broken."""
    states = [state(one) for one in some]
    lines = [f"goals: {states.count('reached')} of {len(some)} reached"]
    for one, found in zip(some, states, strict=True):
        if found != "reached":
            limit = one.budget.holds if one.budget.holds and found != "missed" else one.budget.goal
            what = one.budget.row + {"value": "", P99: ", p99", CPU: ", CPU"}[one.budget.figure]
            lines.append(f"{found.strip('*')}: {what}: {one.ratio:.2f} of {report.label(one.other)}"
                         f", {'at most' if one.less else 'at least'} {limit:g}")  # fmt: skip
    return "\n".join(lines)


def broken(some: list[Judged]) -> bool:
    return any(not one.meets(one.budget.holds) for one in some)
