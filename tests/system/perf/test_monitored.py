"""The cost of a monitor, measured for a moment. No figure is judged here."""

import json
from pathlib import Path

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"


@pytest.mark.slow
def test_figures():
    status, out, err = run(PERF / "monitored.py", "--pairs", 1, "--seconds", 0.5)
    assert status == 0, err
    found = json.loads(out)
    assert found["pairs"] == 1
    assert found["share_of_a_core"] < 1
    assert found["rate"]["median"] > 0 and found["cpu"]["median"] > 0
