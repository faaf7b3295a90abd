"""Publishing exactly once, whatever is interrupted; no Spark session is needed."""

import shutil
import subprocess
import sys
import threading

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
from staged import (  # noqa: E402
    Crash,
    aged,
    entries,
    expected,
    left,
    publish,
    stage,
    stored,
)

from mqcore import journal  # noqa: E402
from mqcore.spark import entries as book  # noqa: E402
from mqcore.spark import ledger, sweep  # noqa: E402
from mqcore.spark.options import WRITE, check  # noqa: E402
from mqcore.spark.staging import HOME, Stage  # noqa: E402


def test_each_batch_once(tmp_path):
    assert publish(tmp_path, "q", 0, stage(tmp_path, "q", 0, b"one"))
    stage(tmp_path, "q", 1, b"lost")                    # a task that failed later
    assert publish(tmp_path, "q", 1, stage(tmp_path, "q", 1, b"two", 12))
    assert not publish(tmp_path, "q", 1, stage(tmp_path, "q", 1, b"again"))
    assert stored(tmp_path) == expected((b"one", 30), (b"two", 12))
    assert left(tmp_path) == []


@pytest.mark.parametrize("call", range(9))
@pytest.mark.parametrize("name", ["_store", "append_batch"])
def test_a_crash_anywhere(tmp_path, monkeypatch, name, call):
    """Before or in the middle of the call-th write: the batch is there once, and of one attempt."""
    publish(tmp_path, "q", 0, stage(tmp_path, "q", 0, b"one"))
    real, calls = getattr(ledger, name), []

    def crashing(*args):
        calls.append(args)
        if len(calls) == call + 1:
            if name == "append_batch" and call % 2:     # half of it gets out
                writer, batch, sender, sequence = args
                real(writer, batch.slice(0, batch.num_rows // 2), sender, sequence)
            raise Crash
        return real(*args)

    first = stage(tmp_path, "q", 1, b"two")
    with monkeypatch.context() as patch:
        patch.setattr(ledger, name, crashing)
        try:
            publish(tmp_path, "q", 1, first)
            crashed = False
        except Crash:
            crashed = True
    assert crashed == (call < (2 if name == "_store" else 6))
    with journal.open(tmp_path, "a", topic="a") as log:  # somebody else, meanwhile
        log.append(b"two 0")
    # the ledger decides: without it nothing was begun, and what the later attempt staged counts
    begun = not (name == "_store" and call == 0)
    assert publish(tmp_path, "q", 1, stage(tmp_path, "q", 1, b"later", 27)) == (not begun)
    label, n = (b"two", 30) if begun else (b"later", 27)
    found = stored(tmp_path)
    strange = [row for row in found["a", 0] if row[0] == b"two 0" and row[1] is None]
    mine = {key: [row for row in rows if not (key == ("a", 0) and row == (b"two 0", None, 0))]
            for key, rows in found.items()}
    assert strange and mine == expected((b"one", 30), (label, n))
    assert left(tmp_path) == []


def test_a_crash_is_finished_by_whoever_comes_next(tmp_path, monkeypatch):
    files = stage(tmp_path, "q", 0, b"one")
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_done", lambda *_: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            publish(tmp_path, "q", 0, files)
    ledger.discard(str(tmp_path), "q", 0, files)        # Spark's abort(): too late, it is decided
    assert publish(tmp_path, "other", 0, stage(tmp_path, "other", 0, b"two", 3))
    found = stored(tmp_path)
    assert [rows[:10] for rows in found.values()] == list(expected((b"one", 30)).values())
    assert sorted(len(rows) for rows in found.values()) == [11, 11, 11]


def test_an_aborted_attempt_leaves_nothing(tmp_path):
    files = stage(tmp_path, "q", 0, b"one")
    ledger.discard(str(tmp_path), "q", 0, files)
    assert left(tmp_path) == [] and stored(tmp_path) == {}


def test_a_journal_in_use_is_waited_for_then_named(tmp_path):
    files = stage(tmp_path, "q", 0, b"one")
    with journal.open(tmp_path, "a", topic="b"), pytest.raises(journal.JournalLocked):
        ledger.publish(str(tmp_path), "q", 0, files, 0.1)
    assert publish(tmp_path, "q", 0, files)
    assert stored(tmp_path) == expected((b"one", 30))


def test_keys_are_spread_and_nulls_are_named(tmp_path):
    options = check({"path": str(tmp_path), "partitions": "4", "topic": "t"}, WRITE)
    keys = [b"%d" % i for i in range(40)]
    batch = pa.record_batch({"value": keys, "key": keys})
    publish(tmp_path, "q", 0, Stage(options, "q", 0, 0).write(iter([batch])).files)
    for (_, partition), rows in stored(tmp_path).items():
        assert {journal.partition_of_key(value, 4) for value, *_ in rows} == {partition}
    assert sum(map(len, stored(tmp_path).values())) == 40
    with pytest.raises(TypeError, match="1 rows without value"):
        Stage(options, "q", 1, 0).write(iter([pa.record_batch({"value": [b"a", None]})]))


PROGRAM = """
import sys
import pyarrow as pa
from mqcore.spark import ledger
from mqcore.spark.options import WRITE, check
from mqcore.spark.staging import Stage
where, batch = sys.argv[1], int(sys.argv[2])
options = check({"path": where, "topic": "t", "partitions": "2"}, WRITE)
while True:
    rows = [b"%d %d" % (batch, i) for i in range(5000)]
    made = pa.record_batch({"value": rows, "key": rows})
    files = Stage(options, "q", batch, 0).write(iter([made])).files
    ledger.publish(where, "q", batch, files, 10.0)
    print(batch, flush=True)
    batch += 1
"""


def test_kill_9_at_any_moment(tmp_path, rng):
    """The next process begins with the batch after the last one that the killed one reported, as
    Spark does, or with that one, since Spark may die between the two commits."""
    told = -1
    for _ in range(4):
        start = max(0, told + rng.choice((0, 1)))
        with subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path),
                               str(start)], stdout=subprocess.PIPE) as child:
            told = max(told, int(child.stdout.readline()))
            killer = threading.Timer(rng.random() * 0.4, child.kill)
            killer.start()
            for line in child.stdout:
                told = max(told, int(line))
            killer.join()
    publish(tmp_path, "q", told, stage(tmp_path, "q", told, b"unseen"))     # finishes what is open
    found = [m for p in (0, 1) for m in map(bytes.split, rows(tmp_path, "t", p))]
    last = max(int(batch) for batch, _ in found)
    assert last in (told, told + 1)
    assert sorted((int(a), int(b)) for a, b in found) == [
        (batch, i) for batch in range(last + 1) for i in range(5000)]
    assert not [m for p in (0, 1) for m in rows(tmp_path, "t", p) if b"unseen" in m]


def rows(where, topic, partition):
    with journal.open(where, topic=topic, partition=partition) as log:
        return [m for records in log.batches() for m in records]


def test_entries_of_batch_jobs_go_when_they_are_done(tmp_path):
    """Also those that drivers left which died."""
    publish(tmp_path, "query", 0, stage(tmp_path, "query", 0, b"stream", 3))
    publish(tmp_path, "job-1", 0, stage(tmp_path, "job-1", 0, b"one", 3))
    assert entries(tmp_path) == ["query.json"]
    done = {"version": 2, "batch": 0, "state": "done", "files": [], "starts": {}, "sequences": {}}
    for i in range(20):
        book.store(str(tmp_path), {**done, "query": f"job-old{i}"})
    publish(tmp_path, "job-2", 0, stage(tmp_path, "job-2", 0, b"two", 3))
    assert entries(tmp_path) == ["query.json"]
    assert not publish(tmp_path, "query", 0, stage(tmp_path, "query", 0, b"again", 3))
    assert sum(map(len, stored(tmp_path).values())) == 9


def test_a_job_that_was_cut_short_is_finished_and_a_day_later_forgotten(tmp_path, monkeypatch):
    """Until then a second run of it is known."""
    files = stage(tmp_path, "job-1", 0, b"one", 3)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_done", lambda *_: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            publish(tmp_path, "job-1", 0, files)
    assert entries(tmp_path) == ["job-1.json"]
    publish(tmp_path, "job-2", 0, stage(tmp_path, "job-2", 0, b"two", 3))
    assert entries(tmp_path) == ["job-1.json"] and sum(map(len, stored(tmp_path).values())) == 6
    aged(tmp_path / HOME / "ledger", sweep.ABANDONED + 100)
    publish(tmp_path, "job-3", 0, stage(tmp_path, "job-3", 0, b"three", 3))
    assert entries(tmp_path) == []


def test_stray_entries_stop_nothing(tmp_path, caplog):
    """In the staging folder of a query, and in the ledger."""
    publish(tmp_path, "q", 0, stage(tmp_path, "q", 0, b"one", 3))
    files = stage(tmp_path, "q", 1, b"two", 3)
    query = tmp_path / HOME / "staging" / "q"
    (query / "lost+found").mkdir()
    (query / ".DS_Store").write_bytes(b"x")
    (query / "\u0662").write_bytes(b"a digit, but not one of ours")
    (tmp_path / HOME / "ledger" / "notes.json").write_text("")
    (tmp_path / HOME / "ledger" / "list.json").write_text("[1]")
    assert publish(tmp_path, "q", 1, files)
    assert publish(tmp_path, "q", 2, stage(tmp_path, "q", 2, b"three", 3))
    assert sum(map(len, stored(tmp_path).values())) == 9
    assert sorted(path.name for path in query.iterdir()) == [".DS_Store", "lost+found", "\u0662"]
    assert "notes.json" in caplog.text and "list.json" in caplog.text


def test_staged_files_that_were_abandoned_are_removed(tmp_path, monkeypatch):
    """Not those of jobs that still run, nor those that the ledger promises to publish."""
    staging = tmp_path / HOME / "staging"
    for name in ("job-killed", "job-running", "stream-killed", "job-slow"):
        stage(tmp_path, name, 0, b"x", 3)
    promised = stage(tmp_path, "promised", 0, b"one", 3)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_append", lambda *args: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            publish(tmp_path, "promised", 0, promised)
    (staging / "a file").write_bytes(b"")
    long = sweep.ABANDONED + 100
    for name in ("job-killed", "stream-killed", "promised", "job-slow"):
        aged(staging / name, long)
    stage(tmp_path, "job-slow", 0, b"y", 3, task=1)     # a later task of the same job
    aged(staging / "job-running", long - 200)
    monkeypatch.setattr(ledger, "_finish_others", lambda *args: None)
    publish(tmp_path, "q", 0, stage(tmp_path, "q", 0, b"two", 3))
    assert {path.name for path in staging.iterdir()} == {
        "job-running", "job-slow", "promised", "a file"}
    monkeypatch.undo()
    publish(tmp_path, "q", 1, stage(tmp_path, "q", 1, b"three", 3))
    assert sum(map(len, stored(tmp_path).values())) == 9


def test_staged_files_that_are_gone_stop_this_job_only(tmp_path):
    """The ledger promises nothing that cannot be kept."""
    files = stage(tmp_path, "job-1", 0, b"one", 3)
    shutil.rmtree(tmp_path / HOME / "staging" / "job-1")
    with pytest.raises(journal.JournalError, match="missing"):
        publish(tmp_path, "job-1", 0, files)
    assert publish(tmp_path, "q", 0, stage(tmp_path, "q", 0, b"two", 3))
    assert sum(map(len, stored(tmp_path).values())) == 3


def test_a_broken_entry_of_the_query_itself_is_an_error(tmp_path):
    """Nobody can say then what has been published."""
    publish(tmp_path, "q", 0, stage(tmp_path, "q", 0, b"one", 3))
    (tmp_path / HOME / "ledger" / "q.json").write_text("")
    with pytest.raises(journal.JournalCorrupt, match=r"q\.json.*restore it"):
        publish(tmp_path, "q", 1, stage(tmp_path, "q", 1, b"two", 3))
