"""Many peers: a tiny run of each scenario writes what it promises. No figure is judged here."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"
TINY = ("--lib", "mqcore", "--rounds", 1, "--seconds", 0.05, "--even-if-busy")
ROWS = {
    "device": "device",
    "fan-out": "fan-out",
    "fan-in": "fan-in from 100,",
    "quiet": "quiet",
    "connections": "1,000 idle",
    "subscriptions": "10,000 subscriptions",
}


@pytest.mark.parametrize("what", ROWS)
def test_scenario(tmp_path, what):
    args = ("--what", what, "--row", ROWS[what], *TINY, "--folder", tmp_path)
    status, out, err = run(PERF / "many.py", *args)
    assert status == 0, err
    table = (tmp_path / "many.md").read_text()
    assert table == out.decode()
    assert "failed" not in table, err
    found = json.loads((tmp_path / "many.json").read_text())["many"]
    assert found and all(one["what"] == what for one in found)
    assert all(run["value"] >= 0 for one in found for run in one["runs"]["mqcore"])
    status, out, err = run(PERF / "plots.py", tmp_path / "many.json")
    assert status == 0, err
    assert "mqcore" in {text.text for text in ElementTree.parse(tmp_path / "many.svg").iter()}
    for one in found:
        for run_ in one["runs"]["mqcore"]:
            assert 0.1 < run_.get("Jain's index", 1) <= 1.000001


def test_connections_over_several_io_threads(monkeypatch):
    """The row itself wants 16 cores; what it is made of works on any."""
    monkeypatch.syspath_prepend(PERF)
    import many

    found = many.gathered("mqcore", 0.05, 2, 3, 1024)
    assert found["value"] > 0
