"""The journal's figures, tiny, beside their references. No figure is judged here."""

import importlib.util
import json
from pathlib import Path

import pytest
from programs import run

PERF = Path(__file__).resolve().parents[3] / "perf"
TINY = ("--quick", "--rounds", 1, "--even-if-busy")
# not imported here: it starts threads
NEEDS_ARROW = pytest.mark.skipif(not importlib.util.find_spec("pyarrow"), reason="no pyarrow")
NEEDS_SPARK = pytest.mark.skipif(not importlib.util.find_spec("pyspark"), reason="no pyspark")
REFERENCES = {"append": "recv_batch", "write": "dd", "read": "np.copyto"}


@NEEDS_ARROW
@pytest.mark.slow
def test_figures_beside_their_references(tmp_path):
    rows = ("tcp, 16 B", "write, 64 KiB", "Arrow, 100 B", "memory")
    args = [arg for text in rows for arg in ("--row", text)]
    place = ("--disk", tmp_path, "--folder", tmp_path, "--name", "tiny")
    status, out, err = run(PERF / "journal.py", *TINY, *args, *place)
    assert status == 0, err
    assert out.decode() == (tmp_path / "tiny.md").read_text()
    assert b"ratio 0.5 or 1,500,000 /s" in out and b"at most 200 MB" in out
    found = json.loads((tmp_path / "tiny.json").read_text())["journal"]
    assert len(found) == len(rows)
    for entry in found:
        expected = {"mqcore", REFERENCES.get(entry["what"], "mqcore")}
        assert set(entry["runs"]) == expected
        assert all(one["value"] > 0 for some in entry["runs"].values() for one in some)
    assert {p.name for p in tmp_path.iterdir()} == {"tiny.md", "tiny.json", "tiny.svg"}


@NEEDS_SPARK
def test_sizes_of_what_spark_gets(tmp_path):
    place = ("--disk", tmp_path, "--folder", tmp_path, "--name", "tiny")
    status, out, err = run(PERF / "journal_spark.py", *TINY, "--only", "sizes", *place)
    assert status == 0, err
    for entry in json.loads((tmp_path / "tiny.json").read_text())["journal-spark"]:
        assert 4 <= entry["runs"]["mqcore"][0]["least"]
        assert entry["runs"]["mqcore"][0]["most"] <= 8


def test_ratios_are_taken_round_by_round(monkeypatch):
    monkeypatch.syspath_prepend(PERF)
    import figures
    from rows import summary

    runs = {"mqcore": [{"value": v} for v in (30, 10, 40)],
            "dd": [{"value": v} for v in (60, 10, 50)]}
    entry = {"name": "a row", "unit": "MB/s", "what": "write", "runs": runs,
             "summary": {name: summary(some) for name, some in runs.items()}}
    text = figures.table({"write": figures.Reach(ratio=0.7)}, [entry])
    assert "| 0.80 | 0.50 to 1.00 | ratio 0.7 |" in text
    entry["summary"]["dd"] = {"error": "no room"}
    assert "dd failed: no room" in figures.table({}, [entry])
