"""A batch job that fails is published never or whole, and its second run is known; no Spark session
is needed: the sink is called as Spark calls it."""

import contextlib
import resource

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import BinaryType, StringType, StructField, StructType  # noqa: E402
from staged import Crash, entries, left, publish, stage_to, values  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.errors import OptionError  # noqa: E402
from mqcore.spark import journal_sink, ledger  # noqa: E402
from mqcore.spark.options import WRITE, check  # noqa: E402

SCHEMA = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])
TOPICS = "a", "b", "c"


def sink(where, **options):
    return journal_sink.BatchSink(SCHEMA, check({"path": str(where)} | options, WRITE), False)


def batches(rows, cut):
    """Arrow batches of at most so many rows."""
    for i in range(0, len(rows), cut):
        yield pa.record_batch({"value": pa.array([v for v, _ in rows[i:i + cut]], pa.binary()),
                               "topic": pa.array([t for _, t in rows[i:i + cut]], pa.string())})


def rows_of(label, task, n=6):
    return [(b"%s %d %d" % (label, task, i), topic) for i in range(n) for topic in TOPICS]


def run(where, label=b"x", cut=5, tasks=2, **options):
    """What Spark does: tasks write, the driver commits, and aborts if that fails."""
    job = sink(where, **options)
    messages = [job.write(batches(rows_of(label, task), cut)) for task in range(tasks)]
    try:
        job.commit(messages)
    except Exception:
        job.abort(messages)
        raise


def failing(monkeypatch, where, call, error=None, durable=True, **how):
    """A run whose call-th append to a journal fails; the error."""
    real, calls = ledger.append_batch, []

    def append(*args):
        calls.append(args)
        if len(calls) == call + 1:
            raise error or OSError(28, "No space left on device")
        real(*args)
        if durable:
            args[0].commit()        # as a large job is, whose segments are full
        else:
            args[0].flush()

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "append_batch", append)
        with pytest.raises((Exception, Crash)) as caught:
            run(where, **how)
    return caught.value


def whole(*labels, tasks=2):
    return {topic: [v for label in labels for task in range(tasks)
                    for v, name in rows_of(label, task) if name == topic] for topic in TOPICS}


def stored(where):
    return {topic: values(where, topic) for topic in TOPICS}


CALLS = 3 * 2 * 4       # appends of a job: topics, tasks, Arrow batches


@pytest.mark.parametrize("call", range(0, CALLS, 5))
def test_run_again_it_is_there_once(tmp_path, monkeypatch, call):
    """Wherever the first run failed, and however Spark cuts the second one's batches."""
    error = failing(monkeypatch, tmp_path, call)
    if call >= CALLS // 3:
        assert "of its 36 messages are stored" in str(error) and "run the job again" in str(error)
    run(tmp_path, cut=7)
    assert stored(tmp_path) == whole(b"x")
    assert entries(tmp_path) == [] and left(tmp_path) == []
    run(tmp_path)       # not a second run of anything: a job that writes the same
    assert stored(tmp_path) == whole(b"x", b"x")


@pytest.mark.parametrize("call", range(0, CALLS, 5))
def test_what_is_not_durable_is_taken_back(tmp_path, monkeypatch, call):
    """So a small job that failed leaves nothing at all, and readers see nothing of it."""
    run(tmp_path, b"before")
    error = failing(monkeypatch, tmp_path, call, durable=False)
    assert isinstance(error, OSError)
    assert entries(tmp_path) == [] and left(tmp_path) == []
    assert stored(tmp_path) == whole(b"before")
    run(tmp_path, b"other")
    assert stored(tmp_path) == whole(b"before", b"other")
    run(tmp_path)
    assert stored(tmp_path) == whole(b"before", b"other", b"x")
    for topic in TOPICS:
        assert journal.verify(tmp_path, topic=topic).findings == []


def test_a_job_of_which_nothing_was_stored_is_never_published(tmp_path, monkeypatch):
    error = failing(monkeypatch, tmp_path, 0)
    assert isinstance(error, OSError)
    assert entries(tmp_path) == [] and left(tmp_path) == []
    run(tmp_path, b"other")
    assert stored(tmp_path) == whole(b"other")


def test_a_job_that_finds_a_journal_in_use_is_never_published(tmp_path):
    with journal.open(tmp_path, "a", topic="b"), pytest.raises(journal.JournalLocked):
        run(tmp_path, timeoutMs="50")
    run(tmp_path, b"other")
    assert stored(tmp_path) == whole(b"other")


@pytest.mark.parametrize("error", [None, Crash()])
def test_another_job_completes_it_and_its_second_run_is_known_all_the_same(tmp_path, monkeypatch,
                                                                          error):
    failing(monkeypatch, tmp_path, CALLS // 2, error)
    run(tmp_path, b"other")
    assert stored(tmp_path) == whole(b"x", b"other")
    run(tmp_path)
    assert stored(tmp_path) == whole(b"x", b"other")
    run(tmp_path)
    assert stored(tmp_path) == whole(b"x", b"other", b"x")
    assert entries(tmp_path) == []


def test_a_second_run_that_fails_too(tmp_path, monkeypatch):
    failing(monkeypatch, tmp_path, 9)
    failing(monkeypatch, tmp_path, 2)
    with journal.open(tmp_path, "a", topic="c"), pytest.raises(journal.JournalLocked):
        run(tmp_path, timeoutMs="50")
    run(tmp_path)
    assert stored(tmp_path) == whole(b"x")
    assert entries(tmp_path) == [] and left(tmp_path) == []


def test_a_job_that_resembles_the_one_that_failed_is_another(tmp_path, monkeypatch):
    """As many messages, of the same lengths, for the same topics."""
    failing(monkeypatch, tmp_path, CALLS // 2)
    run(tmp_path, b"y")
    assert stored(tmp_path) == whole(b"x", b"y")


@pytest.mark.parametrize("call", range(0, CALLS, 5))
def test_a_job_with_an_id(tmp_path, monkeypatch, call):
    """Its second run may hold something else; the first one counts, if any of it was stored."""
    failing(monkeypatch, tmp_path, call, jobId="a/b")
    run(tmp_path, b"y", jobId="a/b")
    there = stored(tmp_path)
    assert there == whole(b"x") if there["a"][0].startswith(b"x") else whole(b"y")
    for label in (b"y", b"z"):
        run(tmp_path, label, jobId="a/b")
    assert stored(tmp_path) == there
    assert entries(tmp_path) == [] and left(tmp_path) == []
    run(tmp_path, b"z", jobId="a/c")
    assert sum(map(len, stored(tmp_path).values())) == 72


def test_a_job_with_an_id_whose_driver_was_killed(tmp_path, monkeypatch):
    """Completed by another one, and known for ever."""
    failing(monkeypatch, tmp_path, CALLS // 2, Crash(), jobId="7")
    run(tmp_path, b"other")
    run(tmp_path, jobId="7")
    assert stored(tmp_path) == whole(b"x", b"other")
    assert entries(tmp_path) == []


def test_ids_that_are_refused(tmp_path):
    for name in ("", "x" * 256):
        with pytest.raises(OptionError, match="jobId"):
            sink(tmp_path, jobId=name)
    run(tmp_path, jobId="ü" * 127)
    run(tmp_path, jobId="ü" * 127)
    assert stored(tmp_path) == whole(b"x")
    with pytest.raises(OptionError, match="jobId names a batch job"):
        journal_sink.StreamSink(SCHEMA, check({"path": str(tmp_path), "jobId": "1"}, WRITE), False)
    with pytest.raises(OptionError, match="jobId has no meaning with endpoints"):
        check({"endpoints": "tcp://127.0.0.1:1", "jobId": "1"}, WRITE)


@contextlib.contextmanager
def small_files(limit):
    """No file may become larger: the system refuses, as it does when the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_system_that_takes_no_more(tmp_path):
    """The first journal gets its messages, the second cannot take them all: both are taken back."""
    small, large = stage_to(tmp_path, "job-1", b"x", 10, ["a"]), \
        stage_to(tmp_path, "job-1", b"y" * 500, 2000, ["b"])
    with small_files(700_000), pytest.raises(journal.JournalFull):
        publish(tmp_path, "job-1", 0, small + large)
    ledger.discard(str(tmp_path), "job-1", 0, small + large)
    assert values(tmp_path, "a") == values(tmp_path, "b") == [] == entries(tmp_path)
    publish(tmp_path, "job-2", 0, stage_to(tmp_path, "job-2", b"x", 10, ["a"])
            + stage_to(tmp_path, "job-2", b"y" * 500, 2000, ["b"]))
    assert len(values(tmp_path, "a")) == 10
    assert values(tmp_path, "b") == [b"y" * 500 + b" %d" % i for i in range(2000)]
    assert left(tmp_path) == [] and entries(tmp_path) == []
