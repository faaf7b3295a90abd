"""The benchmarks run, tiny, and write what they promise. No figure is judged here."""

import json
import os
from pathlib import Path

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[2] / "perf"
APART = ("--place", "apart" if len(os.sched_getaffinity(0)) > 1 else "together")


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_side_by_side(tmp_path, transport):
    args = ("--rounds", 2, "--scale", 0.001, "--size", 16, "--transport", transport)
    status, out, err = run(PERF / "versus.py", *args, *APART, "--folder", tmp_path, patience=60)
    assert status == 0, err
    table = (tmp_path / "versus.md").read_text()
    assert table == out.decode()
    assert table.count("| mqcore |") == 3
    assert table.count("| pyzmq |") == table.count("| raw |") == 2
    found = json.loads((tmp_path / "versus.json").read_text())
    assert found["about"]["place"] == APART[1]
    for result in found["results"]:
        for runs in result["runs"].values():
            assert len(runs) == 2 and all(one["value"] > 0 and one["cpu"] > 0 for one in runs)
