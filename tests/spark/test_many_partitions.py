"""More topics and partitions than a process may open files; no Spark session is needed."""

import contextlib
import os
import resource
import threading

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
from staged import Crash, aged, publish, stage_to, values  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.journal.store import place  # noqa: E402
from mqcore.spark import entries as book  # noqa: E402
from mqcore.spark import ledger, plan, staging, sweep  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.options import BATCH, STREAM, WRITE, check  # noqa: E402
from mqcore.spark.read import Reader  # noqa: E402
from mqcore.spark.staging import HOME  # noqa: E402
from mqcore.spark.stream import StreamReader  # noqa: E402
from mqcore.spark.versions import ReadAllAvailable  # noqa: E402


@contextlib.contextmanager
def descriptors(free):
    """This process may open so many more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


TOPICS = [f"t{i:03d}" for i in range(300)]


def test_a_batch_with_more_topics_than_descriptors(tmp_path, monkeypatch):
    """Also one that is cut short in a later group of journals."""
    real, calls = ledger._append, []

    def crashing(*args):
        calls.append(args)
        if len(calls) == 150:
            raise Crash
        return real(*args)

    with descriptors(100):
        files = stage_to(tmp_path, "q", b"one", 2, TOPICS)
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(ledger, "_append", crashing)
            publish(tmp_path, "q", 0, files)
        assert len(calls) == 150
        assert publish(tmp_path, "q", 1, stage_to(tmp_path, "q", b"two", 1, TOPICS, 1))
    assert all(values(tmp_path, topic) == [b"one 0", b"one 1", b"two 0"] for topic in TOPICS)


def test_a_journal_in_use_is_met_before_anything_is_promised(tmp_path):
    """Though it is in the last group."""
    with descriptors(100):
        files = stage_to(tmp_path, "q", b"one", 1, TOPICS)
        with journal.open(tmp_path, "a", topic=TOPICS[-1]), pytest.raises(journal.JournalLocked):
            ledger.publish(str(tmp_path), "q", 0, files, 0.05)
        assert not values(tmp_path, TOPICS[0])
        assert publish(tmp_path, "q", 0, files)
    assert all(values(tmp_path, topic) == [b"one 0"] for topic in TOPICS)


def test_files_of_a_task_that_writes_more_topics_than_it_may_open(tmp_path):
    """Those that are closed meanwhile go on in another file, in order."""
    options = check({"path": str(tmp_path)}, WRITE)
    with descriptors(60):
        stage = staging.Stage(options, "q", 0, 0)
        files = stage.write(stage_batches(3))
    publish(tmp_path, "q", 0, files.files)
    assert all(values(tmp_path, topic) == [b"0", b"1", b"2"] for topic in TOPICS)


def stage_batches(n):
    for i in range(n):
        yield pa.record_batch({"value": pa.array([b"%d" % i] * 300, pa.binary()),
                               "topic": pa.array(TOPICS)})


@pytest.fixture
def wide(tmp_path):
    """400 partitions of three messages."""
    for i in range(400):
        with journal.open(tmp_path, "a", topic="t", partition=i, fsync="never") as log:
            log.append_many([b"x"] * 3)
            log.commit()
    return tmp_path


def test_reading_more_partitions_than_descriptors(wide):
    options = {"path": str(wide), "subscribe": "t"}
    schema = full_schema(False, False)
    with descriptors(200):
        assert len(Reader(schema, check(options, BATCH)).partitions()) == 400
        stream = StreamReader(schema, check(options | {"startingOffsets": "earliest"}, STREAM))
        try:
            start = stream.initialOffset()
            for _ in range(2):
                end = stream.latestOffset(start, ReadAllAvailable())
                tasks = stream.partitions(start, end)
            assert sum(r.stop - r.start for task in tasks for r in task.ranges) == 1200
        finally:
            stream.stop()


def rows(reader):
    return sorted((row["partition"], row["offset"])
                  for task in reader.partitions() for batch in reader.read(task)
                  for row in batch.select(["partition", "offset"]).to_pylist())


def test_a_task_reads_several_partitions(wide):
    """Each message once; tasks have about as much to do; batches are as large as they may be."""
    options = {"path": str(wide), "subscribe": "t"}
    with journal.open(wide, "a", topic="t", partition=7) as log:
        log.append_many([b"x"] * 5000)
    schema = full_schema(False, False)
    reader = Reader(schema, check(options | {"maxPartitions": "7"}, BATCH))
    tasks = reader.partitions()
    work = sorted(sum(plan.OPENING + r.stop - r.start for r in task.ranges) for task in tasks)
    assert len(tasks) == 7 and work[-1] - work[0] <= plan.OPENING + 3
    assert rows(reader) == sorted([(n, at) for n in range(400) for at in range(3)]
                                  + [(7, at) for at in range(3, 5003)])
    small = min(tasks, key=lambda task: sum(r.stop - r.start for r in task.ranges))
    assert len(list(reader.read(small))) == 1
    many = Reader(schema, check(options | {"minPartitions": "2000"}, BATCH)).partitions()
    assert len(many) > 1900


def test_the_path_itself_is_durable(tmp_path, monkeypatch):
    """Its own entry, and those of the parents that are made with it."""
    synced = []
    real = place.sync_folder
    monkeypatch.setattr(place, "sync_folder", lambda folder: (synced.append(folder), real(folder)))
    book.check_home(str(tmp_path / "new" / "path"))
    # and that of the folder that was there: its maker may have been killed
    assert synced == [tmp_path.parent, tmp_path, tmp_path / "new"]
    book.home_of(str(tmp_path / "new" / "path"))
    assert tmp_path / "new" / "path" in synced and tmp_path / "new" / "path" / HOME in synced


def test_staged_files_of_a_task_that_is_still_running_stay(tmp_path):
    """Though nothing has changed there for a day: it waits for its input, say."""
    options = check({"path": str(tmp_path)}, WRITE)
    go, begun = threading.Event(), threading.Event()

    def slow():
        yield from stage_batches(1)
        begun.set()
        assert go.wait(60)

    result = []
    task = threading.Thread(target=lambda: result.append(
        staging.Stage(options, "slow", 0, 0).write(slow())))
    task.start()
    try:
        assert begun.wait(60)
        folder = tmp_path / HOME / "staging" / "slow"
        aged(folder, sweep.ABANDONED + 100)
        publish(tmp_path, "q", 0, stage_to(tmp_path, "q", b"one", 1, ["a"]))
        assert folder.is_dir()
    finally:
        go.set()
        task.join()
    assert result[0].files
    aged(folder, sweep.ABANDONED + 100)
    publish(tmp_path, "q", 1, stage_to(tmp_path, "q", b"two", 1, ["a"], 1))
    assert not folder.exists()
