"""Budgets of the benchmark: what holds, what is missed, what is broken, in made-up results."""

from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[3] / "perf"


@pytest.fixture
def budgets(monkeypatch):
    monkeypatch.syspath_prepend(PERF)
    import budgets

    return budgets


def pair(name, kind="thr", **figures):
    """A row of two ends, as versus.py gives it: library="figure of round 1, figure of round 2"."""
    runs = {library: [{"value": value} for value in values] for library, values in figures.items()}
    summary = {library: {"median": sorted(values)[len(values) // 2]}
               for library, values in figures.items()}
    return {"name": name, "kind": kind, "runs": runs, "summary": summary}


def judge(budgets, monkeypatch, budget, *rows, group="pairs"):
    monkeypatch.setattr(budgets, "BUDGETS", [budget])
    return budgets.judged({"about": {}, group: list(rows)})


@pytest.mark.parametrize(("kind", "ours", "found", "broken"), [
    ("thr", 8.0, "reached", False),
    ("thr", 6.0, "missed", False),
    ("thr", 2.0, "**broken**", True),
    ("lat", 2.0, "**broken**", True),
    ("lat", 1.0, "missed", False),
    ("lat", 0.5, "reached", False),
])
def test_what_is_better_depends_on_the_row(budgets, monkeypatch, kind, ours, found, broken):
    holds, goal = (1.5, 4.0) if kind == "thr" else (0.75, 0.25)
    budget = budgets.Budget("a row", "pyzmq", holds, goal)
    some = judge(budgets, monkeypatch, budget, pair("a row", kind, mqcore=[ours], pyzmq=[2.0]))
    (one,) = some
    assert one.ratio == ours / 2 and budgets.state(one) == found
    assert budgets.broken(some) is broken
    assert found in budgets.table(some)
    assert ("goals: 1 of 1" if found == "reached" else found.strip("*")) in budgets.summary(some)


def test_ratios_are_taken_round_by_round(budgets, monkeypatch):
    budget = budgets.Budget("a row", budgets.PEERS, None, 2.0)
    row = pair("a row", mqcore=[4, 30, 6], pyzmq=[2, 10, 2], pyomq=[1, 1, 1], raw=[99, 99, 99])
    (one,) = judge(budgets, monkeypatch, budget, row)
    assert (one.other, one.ratios) == ("pyzmq", [2.0, 3.0, 3.0])
    assert "| pyzmq | 3.00 | 2.00 to 3.00 |  | 2 | reached |" in budgets.line(one)


def test_a_figure_beside_that_of_another_row(budgets, monkeypatch):
    budget = budgets.Budget("many", budgets.OURS, 4.0, 1.3, budgets.CPU, other_row="one")
    rows = [{"name": name, "less_is_better": False, "summary": {"mqcore": {"median": 1.0}},
             "runs": {"mqcore": [{"value": 1.0, budgets.CPU: cpu}]}}
            for name, cpu in (("many", 0.6), ("one", 0.5))]
    some = judge(budgets, monkeypatch, budget, *rows, group="many")
    assert some[0].less and budgets.state(some[0]) == "reached"
    assert "| many | CPU | mqcore of one | 1.20 |" in budgets.table(some)


@pytest.mark.parametrize("row", [
    pair("another row", mqcore=[1.0], pyzmq=[1.0]),
    pair("a row", mqcore=[1.0]),
    pair("a row", pyzmq=[1.0]),
    {**pair("a row", mqcore=[1.0]),
     "runs": {"mqcore": [{"value": 1.0}], "pyzmq": [{"error": "it died"}]}},
])
def test_what_was_not_measured_is_not_judged(budgets, monkeypatch, row):
    budget = budgets.Budget("a row", "pyzmq", 1.5, 4.0)
    assert judge(budgets, monkeypatch, budget, row) == []


@pytest.mark.parametrize("holds", [1.5, None])
def test_a_row_in_which_mqcore_fails_breaks_its_budgets(budgets, monkeypatch, holds):
    row = pair("a row", pyzmq=[1.0])
    row["runs"]["mqcore"], row["summary"]["mqcore"] = [{"error": "it died"}], {"error": "it died"}
    some = judge(budgets, monkeypatch, budgets.Budget("a row", "pyzmq", holds, 4.0), row)
    assert budgets.broken(some) and "it failed" in budgets.table(some)
    assert "broken: a row" in budgets.summary(some)


def test_each_budget_has_its_row(budgets):
    import run as runner

    names = {entry.name for group in runner.groups(False) for entry in group.entries}
    assert {one.row for one in budgets.BUDGETS} <= names
    assert {one.other_row for one in budgets.BUDGETS} - {""} <= names
    for one in budgets.BUDGETS:
        if one.holds is not None:       # a goal is never easier than what must hold
            less = one.goal < one.holds
            assert less == (one.row.startswith("round trip") or "free" in one.row
                            or one.figure == budgets.CPU or "subscriptions" in one.row), one
