"""The parts of the benchmark that judge: what is carried, what is held, what a summary says."""

import time
from array import array
from pathlib import Path
from xml.etree import ElementTree

import pytest

PERF = Path(__file__).resolve().parents[3] / "perf"


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.syspath_prepend(PERF)


def delays(*parts):
    return array("q", [delay for delay, count in parts for _ in range(count)])


def test_a_load_is_carried_if_the_last_ones_are_in_time():
    import stamped

    plan = stamped.plan_of("1000:1,2000:0.5")
    us, ms = 1000, 1_000_000
    good, late = stamped.pieces(plan, delays((20 * us, 1900), (30 * ms, 100)))
    assert good["carried"] and good["p50"] == pytest.approx(20e-6)
    assert not late["carried"] and late["max"] == pytest.approx(0.03)
    good, short = stamped.pieces(plan, delays((20 * us, 1500)))
    assert good["carried"] and not short["carried"]
    _, missing = stamped.pieces(plan, delays((20 * us, 1000)))
    assert missing == {"carried": False}


def test_a_schedule_knows_nothing_of_what_was_sent():
    import stamped

    due = list(stamped.schedule(stamped.plan_of("1000:0.05,100000:0.001"), 7))
    assert due[:3] == [7, 1_000_007, 2_000_007]
    assert due[50:53] == [50_000_007, 50_010_007, 50_020_007]
    assert len(due) == 150


def test_a_schedule_of_bursts():
    import stamped

    due = list(stamped.schedule(stamped.plan_of("100:0.2:5,100:0.2"), 0))
    assert due[:20] == [i // 5 * 50_000_000 for i in range(20)]
    assert due[20:23] == [200_000_000, 210_000_000, 220_000_000]


def test_the_watcher_sees_a_call_that_keeps_the_gil():
    import beside

    watch = beside.start("watch")
    while not watch.longest:
        pass
    before = time.thread_time()
    sum(range(2_000_000))
    used = time.thread_time() - before
    held = watch.stop()["held"]
    watch.join()
    assert held >= 0.9 * used


def test_a_summary_keeps_marks_and_failures():
    import rows

    runs = [
        {"value": 3.0, "rate": 1.0},
        {"value": 1.0, "mark": "late"},
        {"value": 2.0, "mark": "late"},
    ]
    found = rows.summary(runs)
    assert (found["median"], found["low"], found["high"]) == (2.0, 1.0, 3.0)
    assert found["more"] == {"rate": 1.0} and found["mark"] == "late"
    assert rows.summary(runs[:1] * 2 + runs[1:2])["mark"] == ""
    assert rows.summary([{"error": "why"}]) == {"error": "why"}


def test_curves_leave_out_what_was_not_carried():
    import plots

    def result(at, value, mark=""):
        s = {"median": value, "low": value, "high": value, "mark": mark,
             "more": {"p50 us": value / 2, "p99.9 us": value * 2}}  # fmt: skip
        facts = {"name": f"at {at}", "unit": "us", "less_is_better": True, "what": "load", "at": at}
        return {**facts, "summary": {"mqcore": s, "pyzmq": {"error": "why"}}}

    results = [result(1000, 20.0), result(10_000, 200.0), result(100_000, 9e9, "not carried")]
    points = plots.curves.points(results, plots.curves.ALL[1])
    assert points == {"mqcore": [(1000, 20.0), (10_000, 200.0)]}
    drawn = ElementTree.fromstring(plots.svg(results, "a title"))
    lines = [e.get("points") for e in drawn.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 3 and all(len(line.split()) == 2 for line in lines)
