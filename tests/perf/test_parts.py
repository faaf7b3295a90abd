"""The parts of the benchmark that judge: what is carried, what is held, what a summary says."""

import time
from array import array
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[2] / "perf"


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
