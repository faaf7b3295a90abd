"""The benchmarks run, tiny, and write what they promise. No figure is judged here."""

import json
import os
from pathlib import Path

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"
PLACE = ("--place", "idle" if len(os.sched_getaffinity(0)) > 1 else "together")
TINY = ("--rounds", 2, "--seconds", 0, "--even-if-busy")
LIBS = ("--lib", "mqcore", "--lib", "pyzmq", "--lib", "raw")


@pytest.mark.parametrize("transport,peers,raw", [
    ("tcp", 2, 2), ("inproc", 2, 2), ("shm", 0, 0), ("wss", 0, 2)])
def test_side_by_side(tmp_path, transport, peers, raw):
    args = ("--size", 16, "--transport", transport, *LIBS, *TINY)
    status, out, err = run(PERF / "versus.py", *args, *PLACE, "--folder", tmp_path)
    assert status == 0, err
    table = (tmp_path / "versus.md").read_text()
    assert table == out.decode()
    assert "failed" not in table
    assert table.count("| mqcore |") == 3
    assert (table.count("| pyzmq |"), table.count("| raw |")) == (peers, raw)
    found = json.loads((tmp_path / "versus.json").read_text())
    assert found["about"]["even_if_busy"] is True
    for result in found["pairs"]:
        assert result["place"] == PLACE[1]
        for runs in result["runs"].values():
            assert len(runs) == 2 and all(one["value"] > 0 and one["cpu"] > 0 for one in runs)


def test_batches_and_asyncio(tmp_path):
    pytest.importorskip("numpy")
    args = ("--size", 16, "--calls", "batch", "--calls", "asyncio", *LIBS, *TINY)
    status, out, err = run(PERF / "versus.py", *args, *PLACE, "--folder", tmp_path)
    assert status == 0, err
    assert b"failed" not in out
    assert out.count(b"| mqcore |") == 3 and out.count(b"| pyzmq |") == 2
