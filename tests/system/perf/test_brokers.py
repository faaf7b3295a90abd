"""perf/brokers.py, tiny: a pair without a broker, and one whose broker is not there. No figure is
judged here."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

PERF = Path(__file__).resolve().parents[3] / "perf"


@pytest.fixture
def found(tmp_path):
    """(what the program wrote to stderr, the results file)"""
    words = ["--system", "mqcore", "--system", "pyzmq", "--system", "redis-streams",
             "--messages", 300, "--rounds", 2, "--seconds", 0.1, "--bursts", 1, 50, "--loads", 500,
             "--minutes", 3, "--even-if-busy", "--folder", tmp_path, "--name", "tiny"]
    done = subprocess.run(
        [sys.executable, PERF / "brokers.py", *map(str, words)], text=True, capture_output=True,
        timeout=250, env={**os.environ, "MQCORE_BROKERS": str(tmp_path / "none")})
    assert done.returncode == 0, done.stderr
    return done.stderr, tmp_path / "tiny.json"


@pytest.mark.slow
def test_report(found, monkeypatch):
    said, path = found
    assert "redis-streams is left out: there is no redis-server below" in said
    assert "kafka is left out: " in said
    results = json.loads(path.read_text())
    about = results["about"]
    assert set(about["systems"]) == {"mqcore", "pyzmq"}
    assert all(one["durability"] and one["path"] and one["versions"]
               for one in about["systems"].values())
    assert {"kafka", "nsq", "artemis"} == set(about["absent"])

    rows = {(row["what"], row["at"]): row for kind in ("rates", "bursts", "loads")
            for row in results[kind]}
    assert set(rows) == {("rate, no broker", 0), ("sent, no broker", 0), ("burst, no broker", 1),
                         ("burst, no broker", 50), ("load, no broker", 500)}
    for row in rows.values():
        for name in ("mqcore", "pyzmq"):
            assert len(row["runs"][name]) == 2 and row["summary"][name]["median"] > 0, row["name"]
    costs = rows["rate, no broker", 0]["summary"]["mqcore"]["more"]
    assert {"end to end", "CPU us, producer", "CPU us, consumer", "MiB, producer",
            "MiB, consumer"} == set(costs)          # it has no broker, and nothing is confirmed

    text = path.with_suffix(".md").read_text()
    assert text.count("| mqcore |") == text.count("| pyzmq |") == 5
    drawn = ElementTree.fromstring(path.with_suffix(".svg").read_text())
    assert "pyzmq" in "".join(drawn.itertext())

    monkeypatch.syspath_prepend(PERF)
    tables = importlib.import_module("systems.tables")
    assert tables.every(about, results) in text     # the page is made of the same tables
