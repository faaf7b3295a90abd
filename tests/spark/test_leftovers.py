"""Staged files that are damaged or of two runs at the same time, and what killed processes leave in
the ledger; no Spark session is needed."""

import contextlib
import os
import time

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import BinaryType, StringType, StructField, StructType  # noqa: E402
from staged import cut_short, entries, left, publish, stage_to, values  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.spark import entries as book  # noqa: E402
from mqcore.spark import journal_sink, ledger, staging  # noqa: E402
from mqcore.spark.options import WRITE, check  # noqa: E402
from mqcore.spark.staging import HOME, StagedFilesLost  # noqa: E402
from mqcore.spark.sweep import ABANDONED, sweep_abandoned  # noqa: E402

SCHEMA = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])
TOPICS = "a", "b", "c"


def job_of(where):
    return journal_sink.BatchSink(SCHEMA, check({"path": str(where), "jobId": "1"}, WRITE), False)


def rows(label, task):
    """What a task writes: a message to each topic."""
    yield pa.record_batch({"value": pa.array([b"%s %d" % (label, task)] * 3, pa.binary()),
                           "topic": pa.array(TOPICS, pa.string())})


def stored(where):
    return [values(where, topic) for topic in TOPICS]


def damage(where, query, file, batch=0):
    """One byte in the middle of a value."""
    path = staging.folder_of(str(where), query, batch) / file.name
    raw = path.read_bytes()
    at = raw.rindex(b"x 1")
    path.write_bytes(raw[:at] + b"y" + raw[at + 1:])
    return path, raw


@pytest.mark.parametrize("query", ["q", "job-1", book.name_of("1")])
def test_a_damaged_staged_file_is_named_and_nothing_is_published(tmp_path, query):
    files = stage_to(tmp_path, query, b"x", 10, ["a", "b"])
    path, raw = damage(tmp_path, query, files[1])
    with pytest.raises(StagedFilesLost, match="check sum") as caught:
        publish(tmp_path, query, 0, files)
    assert str(path) in str(caught.value) and "nothing was published" in str(caught.value)
    assert values(tmp_path, "a") == values(tmp_path, "b") == [] == entries(tmp_path)
    path.write_bytes(raw)
    assert publish(tmp_path, query, 0, files)
    assert values(tmp_path, "b") == [b"x %d" % i for i in range(10)]


def test_a_staged_file_that_was_damaged_after_a_crash(tmp_path, monkeypatch):
    """A part is stored, so the rest must not be made up: it waits for the file."""
    files = cut_short(monkeypatch, tmp_path, "q", b"x", ["a", "b"])
    path, raw = damage(tmp_path, "q", files[1])
    more = stage_to(tmp_path, "q", b"z", 3, ["b"], 1)
    with pytest.raises(StagedFilesLost, match="check sum") as caught:
        publish(tmp_path, "q", 1, more)
    assert str(path) in str(caught.value) and "0 of 3 messages" in str(caught.value)
    path.write_bytes(raw)
    assert publish(tmp_path, "q", 1, more)
    assert values(tmp_path, "a") == [b"x 0", b"x 1", b"x 2"]
    assert values(tmp_path, "b") == [b"x 0", b"x 1", b"x 2", b"z 0", b"z 1", b"z 2"]


@pytest.mark.parametrize("error", [pa.ArrowInvalid("damaged"), KeyError("a bug")])
def test_whatever_fails_is_taken_back(tmp_path, monkeypatch, error):
    files = stage_to(tmp_path, "job-1", b"x", 10, ["a", "b"])
    real, calls = ledger.append_batch, []

    def failing(*args):
        calls.append(args)
        if len(calls) == 8:
            raise error
        real(*args)
        args[0].flush()

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "append_batch", failing)
        with pytest.raises(type(error)):
            publish(tmp_path, "job-1", 0, files)
    assert values(tmp_path, "a") == values(tmp_path, "b") == [] == entries(tmp_path)


def test_a_file_that_arrow_cannot_read_is_named(tmp_path):
    [file] = stage_to(tmp_path, "q", b"x", 10, ["a"])
    path = staging.folder_of(str(tmp_path), "q", 0) / file.name
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(StagedFilesLost, match=str(path)):
        list(ledger._staged(str(tmp_path), {"query": "q", "batch": 0}, [file]))


@pytest.mark.parametrize("done_first", [0, 1])
def test_two_runs_with_one_id_at_the_same_time(tmp_path, done_first):
    """Neither removes what the other has staged. One of them is published."""
    jobs = [job_of(tmp_path) for _ in range(2)]
    staged = [[job.write(rows(label, task)) for task in range(2)]
              for job, label in zip(jobs, (b"x", b"y"), strict=True)]
    assert len(left(tmp_path)) == 12
    jobs[done_first].commit(staged[done_first])
    assert len(left(tmp_path)) == 6
    more = jobs[1 - done_first].write(rows(b"z", 2))
    assert len(left(tmp_path)) == 9
    jobs[1 - done_first].commit([*staged[1 - done_first], more])
    assert stored(tmp_path) == [[(b"x 0", b"y 0")[done_first], (b"x 1", b"y 1")[done_first]]] * 3
    assert left(tmp_path) == [] == entries(tmp_path)


def test_a_run_removes_what_its_failed_attempts_have_staged(tmp_path):
    job = job_of(tmp_path)
    job.write(rows(b"x", 0))
    job.commit([job.write(rows(b"x", task)) for task in range(2)])
    assert stored(tmp_path) == [[b"x 0", b"x 1"]] * 3 and left(tmp_path) == []


def test_what_killed_jobs_leave_in_the_ledger(tmp_path):
    """Locks without an entry and half written entries, once they are a day old, unless their
    process lives."""
    publish(tmp_path, "stream", 0, stage_to(tmp_path, "stream", b"x", 3, ["a"]))
    home = tmp_path / HOME
    folder = home / "ledger"
    kept = {"stream.json", "stream.lock"}
    old = {"job-1.lock", "job-2.lock", "job-2.new", "stream.new", "named-a.b.lock", "job-4.lock",
           "job-4.new"}
    for name in (*old, "job-3.lock", "job-3.new"):
        (folder / name).write_text("1\n")
    for name in (*old, *kept):
        os.utime(folder / name, (time.time() - ABANDONED - 60,) * 2)
    with book.alone(home, "job-4", 0):
        os.utime(folder / "job-4.lock", (time.time() - ABANDONED - 60,) * 2)
        sweep_abandoned(home)
        assert {file.name for file in folder.iterdir()} == kept | {
            "job-3.lock", "job-3.new", "job-4.lock", "job-4.new"}
    sweep_abandoned(home)
    assert {file.name for file in folder.iterdir()} == kept | {"job-3.lock", "job-3.new"}
    assert not publish(tmp_path, "stream", 0, stage_to(tmp_path, "stream", b"x", 3, ["a"]))


def test_a_ledger_on_a_full_disk(tmp_path, monkeypatch):
    """A publisher that cannot write its process id holds the lock all the same."""
    home = book.home_of(str(tmp_path))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with book.alone(home, "q", 0), pytest.raises(journal.JournalLocked, match="process ?"), \
            contextlib.ExitStack() as stack:
        stack.enter_context(book.alone(home, "q", 0))
