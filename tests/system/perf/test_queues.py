"""The queues' figures, tiny, beside what is installed. No figure is judged here."""

import json
from pathlib import Path

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"


@pytest.mark.slow
def test_figures(tmp_path):
    status, out, err = run(PERF / "queues.py", "--quick", "--size", 16, "--batch", 100, "--jobs",
                           500, "--json", tmp_path / "found.json")
    assert status == 0, err
    [found] = json.loads((tmp_path / "found.json").read_text())
    assert (found["size"], found["batch"]) == (16, 100)
    for name, rounds in found["runs"].items():
        assert name.encode() in out and all(one["value"] > 0 for one in rounds)
    assert len(found["runs"]["mqcore"]) == 1
