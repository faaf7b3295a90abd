"""Topics that are deleted, made anew or renamed between the plan of a batch and its tasks, or
between batches. No Spark session is needed."""

import os

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402

import mqcore  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.spark import read  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.options import BATCH, STREAM, check  # noqa: E402
from mqcore.spark.stream import StreamReader  # noqa: E402
from mqcore.spark.versions import ReadAllAvailable, ReadMaxRows  # noqa: E402

ALL = ReadAllAvailable()


@pytest.fixture(scope="module", autouse=True)
def default_context():
    """Readers of servers use it; its threads and descriptors stay, so they are here before any is
    counted. So do those of the first Arrow array."""
    pa.array([b"x"]).validate()
    with mqcore.Pull(bind="inproc://spark-gone"), mqcore.Push(connect="inproc://spark-gone"):
        pass


def fill(where, topic, label, n=10):
    with journal.open(where, "a", topic=topic) as log:
        log.append_many([b"%s %d" % (label, i) for i in range(n)])


def given(place, **options):
    return {"endpoints" if "://" in str(place) else "path": str(place), "subscribePattern": ".*",
            "startingOffsets": "earliest"} | options


@pytest.fixture
def stream():
    made = []

    def make(place, **options):
        made.append(StreamReader(full_schema(False, False), check(given(place, **options), STREAM)))
        return made[-1]
    yield make
    for reader in made:
        reader.stop()


def rows(reader, tasks):
    return [value for task in tasks for batch in reader.read(task)
            for value in batch.column(batch.schema.get_field_index("value")).to_pylist()]


def anew(where, n=20):
    journal.delete(where, topic="t")
    fill(where, "t", b"another", n)


@pytest.mark.parametrize("fail", [True, False])
def test_a_task_does_not_read_the_journal_that_took_the_place(tmp_path, place, stream, fail,
                                                              caplog):
    """Its messages have the same offsets, and are others."""
    fill(tmp_path, "t", b"planned")
    reader = stream(place, failOnDataLoss=str(fail))
    begin = reader.initialOffset()
    tasks = reader.partitions(begin, reader.latestOffset(begin, ALL))
    anew(tmp_path)
    if fail:
        with pytest.raises(journal.JournalError, match="t|0 .*is gone: messages 0 to 9"):
            rows(reader, tasks)
    else:
        assert rows(reader, tasks) == []
        assert "messages 0 to 9 are lost" in caplog.text


def test_a_batch_does_not_read_the_journal_that_took_the_place(tmp_path, place):
    fill(tmp_path, "t", b"planned")
    reader = read.Reader(full_schema(False, False), check(given(place), BATCH))
    tasks = reader.partitions()
    anew(tmp_path)
    with pytest.raises(journal.JournalError, match="is gone"):
        rows(reader, tasks)


def test_a_mirror_is_read_though_its_journal_is_another(tmp_path, mq_context):
    """Its id is its own."""
    fill(tmp_path / "a", "t", b"message")
    with journal.open(tmp_path / "a", topic="t") as source, \
            journal.open(tmp_path / "b", "a", topic="t", mirror=True) as copy, \
            mqcore.device(source, copy):
        mqcore.testing.until(lambda: copy.next == 10)
    with journal.serve(tmp_path / "b", "tcp://127.0.0.1:0", context=mq_context) as server:
        for where in (tmp_path / "b", server.urls[0]):
            reader = read.Reader(full_schema(False, False), check(given(where), BATCH))
            assert len(rows(reader, reader.partitions())) == 10


@pytest.mark.parametrize("how", ["deleted", "made anew", "renamed"])
@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_goes_while_all_that_was_available_is_read(tmp_path, place, stream, fail, how,
                                                                caplog):
    fill(tmp_path, "t", b"message")
    fill(tmp_path, "u", b"other")
    reader = stream(place, failOnDataLoss=str(fail), subscribePattern="[tu]")
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    at = reader.latestOffset(begin, ReadMaxRows(4))
    assert len(rows(reader, reader.partitions(begin, at))) == 4
    if how == "deleted":
        journal.delete(tmp_path, topic="t")
    elif how == "made anew":
        anew(tmp_path)
    else:
        journal.rename(tmp_path, topic="t", to="elsewhere")
    if fail:
        with pytest.raises(journal.JournalError, match="t|0 is gone or was made anew"):
            reader.latestOffset(at, ALL)
        return
    end = reader.latestOffset(at, ALL)
    assert "is gone or was made anew" in caplog.text
    assert all(value.startswith(b"other") for value in rows(reader, reader.partitions(at, end)))
    assert reader.latestOffset(end, ALL) == end


@pytest.mark.parametrize("available", [False, True])
def test_a_renamed_topic_goes_on_under_its_new_name(tmp_path, place, stream, available):
    """What was read under the old one is neither lost nor read again."""
    fill(tmp_path, "t|", b"message")
    reader = stream(place)
    if available:
        reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    at = reader.latestOffset(begin, ReadMaxRows(4))
    first = rows(reader, reader.partitions(begin, at))
    journal.rename(tmp_path, topic="t|", to="new")
    assert rows(reader, reader.partitions(begin, at)) == first      # after a failure, say
    fill(tmp_path, "new", b"later")
    fill(tmp_path, "t|", b"another")
    end = reader.latestOffset(at, ALL)
    rest = rows(reader, reader.partitions(at, end))
    wanted = [b"message %d" % i for i in range(10)]
    if not available:
        wanted += [b"later %d" % i for i in range(10)] + [b"another %d" % i for i in range(10)]
    assert first + rest == wanted
    assert reader.latestOffset(end, ALL) == end
    names = sorted(key.partition("|")[2] for key in end)
    assert names == (["new|0"] if available else ["new|0", "t||0"])


def test_a_topic_that_goes_while_it_is_read(tmp_path, stream, caplog):
    """Of a large one, the first segments are read by then."""
    with journal.open(tmp_path, "a", topic="t", segment_bytes=4096, block_bytes=1024) as log:
        log.append_many([b"%d" % i * 100 for i in range(500)])
    reader = stream(tmp_path, failOnDataLoss="false", batchBytes="2000")
    begin = reader.initialOffset()
    [task] = reader.partitions(begin, reader.latestOffset(begin, ALL))
    batches = iter(reader.read(task))
    first = next(batches)
    journal.delete(tmp_path, topic="t")
    total = first.num_rows + sum(batch.num_rows for batch in batches)
    assert total < 500 and "are lost" in caplog.text


def test_a_deleted_topic_is_let_go(tmp_path, stream):
    """The driver keeps none of its files open, whose space the disk would not get back."""
    for topic in "tu":
        fill(tmp_path, topic, b"message")
    reader = stream(tmp_path, failOnDataLoss="false")
    at = reader.latestOffset(reader.initialOffset(), ALL)
    journal.delete(tmp_path, topic="t")
    reader.latestOffset(at, ALL)
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
             if os.path.islink(f"/proc/self/fd/{fd}")]
    assert [link for link in links if link.endswith("(deleted)") and str(tmp_path) in link] == []
