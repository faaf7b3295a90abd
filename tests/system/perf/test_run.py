"""The runner, tiny, over every group of rows: what it writes, so that no part of the benchmark can
rot unseen. No figure is judged here."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"
TINY = ("--rounds", 1, "--seconds", 0.05, "--even-if-busy", "--lib", "mqcore", "--lib", "raw")
ROWS = {
    "pairs": "one way, tcp, 1 KiB",
    "busy": "one way, tcp, 16 B, beside",
    "loads": "k/s, tcp",
    "many": "fan-out to 10,",
    "ticks": "ticks beside",
}


def test_every_group(tmp_path):
    rows = [arg for text in (*ROWS.values(), "that wait") for arg in ("--row", text)]
    args = ("--quick", *TINY, *rows, "--name", "tiny", "--folder", tmp_path)
    status, out, err = run(PERF / "run.py", *args)
    assert status == 0, err
    table = (tmp_path / "tiny.md").read_text()
    assert table == out.decode()
    assert "| mqcore | failed" not in table, err
    found = json.loads((tmp_path / "tiny.json").read_text())
    assert set(ROWS) <= set(found)
    for group, text in ROWS.items():
        assert any(text in entry["name"] for entry in found[group]), group
        assert all(entry["runs"]["mqcore"] for entry in found[group])
    (pair,) = found["pairs"]
    assert pair["summary"]["mqcore"]["held"] > 0 and pair["summary"]["mqcore"]["sender"] > 0
    texts = {text.text for text in ElementTree.parse(tmp_path / "tiny.svg").iter()}
    assert "delay behind a backlog, ms" in texts


def test_tuned(tmp_path):
    args = (*TINY, "--only", "tuned", "--row", "one way, tcp, 16 B", "--name", "tuned")
    status, out, err = run(PERF / "run.py", *args, "--folder", tmp_path)
    assert status == 0, err
    assert b"default options" in out and b"failed" not in out
    (entry,) = json.loads((tmp_path / "tuned.json").read_text())["tuned"]
    assert list(entry["summary"]) == ["mqcore", "mqcore+tuned"]


def test_wires(tmp_path):
    args = (*TINY, "--only", "wires", "--row", "one way, tcp, 16 B", "--name", "wires")
    status, out, err = run(PERF / "run.py", *args, "--folder", tmp_path)
    assert status == 0, err
    assert b"failed" not in out
    (entry,) = json.loads((tmp_path / "wires.json").read_text())["wires"]
    assert list(entry["summary"]) == ["mqcore", "mqcore+sp"]


def test_list_measures_nothing(tmp_path):
    status, out, err = run(PERF / "run.py", "--list", "--folder", tmp_path)
    assert status == 0, err
    names = out.decode().splitlines()
    assert "    fan-out to 100, 16 B" in names and "    one way, tcp, 16 MiB" in names
    assert not list(tmp_path.iterdir())


def test_all_groups_fit_their_time(monkeypatch):
    monkeypatch.syspath_prepend(PERF)
    import run as runner

    for quick, limit in ((False, 40), (True, 5)):
        assert sum(group.minutes for group in runner.groups(quick)) < limit


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_ticks(tmp_path, loop):
    pytest.importorskip(loop)
    rows = ("--row", f"receive, {loop}", "--row", f"cancelled, {loop}")
    args = (*TINY, "--only", "ticks", *rows, "--name", "ticks", "--folder", tmp_path)
    status, out, err = run(PERF / "run.py", *args)
    assert status == 0, err
    assert b"failed" not in out
    found = json.loads((tmp_path / "ticks.json").read_text())["ticks"]
    assert len(found) == 2
    for entry in found:
        assert entry["runs"]["mqcore"][0]["value"] > -1e3    # us; a loop's timer may be early


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_peer_by_its_own_rules(tmp_path):
    """zenoh has no sockets: both of its ways, and both of its variants."""
    pytest.importorskip("zenoh")
    args = ("--lib", "zenoh", "--lib", "zenoh+tuned", "--size", 16, "--calls", "plain")
    args += ("--rounds", 1, "--seconds", 0, "--even-if-busy", "--folder", tmp_path)
    status, out, err = run(PERF / "versus.py", *args)
    assert status == 0, err
    assert b"failed" not in out and out.count(b"| zenoh+tuned |") == 2
