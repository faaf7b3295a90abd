"""The alias beside our own calls and pyzmq, tiny. No figure is judged here."""

import json
from pathlib import Path

import pytest
from programs import run

pytest.importorskip("zmq")
PERF = Path(__file__).resolve().parents[3] / "perf"
ROWS = ("one way, inproc, 16 B, two", "poll(), 10", "copy=False", "multipart, inproc", "recv waits")


@pytest.mark.slow
def test_beside_both(tmp_path):
    args = [arg for text in ROWS for arg in ("--row", text)]
    status, out, err = run(PERF / "zmq_alias.py", *args, "--rounds", 1, "--seconds", 0,
                           "--even-if-busy", "--folder", tmp_path)
    assert status == 0, err
    assert (tmp_path / "zmq-alias.md").read_text() == out.decode()
    assert b"failed" not in out, err
    found = json.loads((tmp_path / "zmq-alias.json").read_text())
    assert [row["name"] for row in found["pairs"]] == ["one way, inproc, 16 B, two parts"]
    for row in (*found["pairs"], *found["calls"]):
        (line,) = [text for text in out.decode().splitlines() if f"| {row['name']} |" in text]
        cells = [cell.strip() for cell in line.split("|")[2:-1]]
        assert all(cells if "mqcore" in row["runs"] else [cells[i] for i in (1, 2, 7)]), line
        for runs in row["runs"].values():
            assert len(runs) == 1 and all(one["value"] > 0 for one in runs)
