"""Where a stream begins in partitions that appear later; no Spark session is needed."""

import contextlib

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from mqcore import journal  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.options import STREAM, check  # noqa: E402
from mqcore.spark.stream import StreamReader  # noqa: E402
from mqcore.spark.versions import ReadAllAvailable  # noqa: E402

ALL = ReadAllAvailable()


def fill(where, partition, n, kept=None, topic="t"):
    """n messages, of which about the last `kept` bytes stay."""
    with journal.open(where, "a", topic=topic, partition=partition, segment_bytes=4096,
                      block_bytes=1024, retain_bytes=kept) as log:
        log.append_many([b"message %05d " % i * 4 for i in range(n)])
        log.commit()
        if kept:
            log.retain()


@contextlib.contextmanager
def stream(where, **options):
    given = {"path": str(where), "subscribePattern": ".*", "startingOffsets": "earliest"}
    reader = StreamReader(full_schema(False, False), check(given | options, STREAM))
    try:
        yield reader
    finally:
        reader.stop()


def first_of(where, partition, topic="t"):
    with journal.open(where, topic=topic, partition=partition) as log:
        return log.first


def ranges(reader, at, end):
    return [task.ranges for task in reader.partitions(at, end)]


@pytest.mark.parametrize("topic", ["t", "new"])
def test_a_new_partition_begins_at_its_beginning(tmp_path, topic):
    fill(tmp_path, 0, 10)
    with stream(tmp_path) as reader:
        at = reader.latestOffset(reader.initialOffset(), ALL)
        fill(tmp_path, 1, 1000, topic=topic)
        end = reader.latestOffset(at, ALL)
        [[new]] = ranges(reader, at, end)
        assert (new.part.topic, new.part.partition, new.start, new.stop) == (topic, 1, 0, 1000)


@pytest.mark.parametrize("topic", ["t", "new"])
def test_what_a_new_partition_has_lost_is_data_loss(tmp_path, caplog, topic):
    fill(tmp_path, 0, 10)
    with stream(tmp_path) as reader, stream(tmp_path, failOnDataLoss="false") as careless:
        at = reader.latestOffset(reader.initialOffset(), ALL)
        fill(tmp_path, 1, 1000, 8192, topic)
        first = first_of(tmp_path, 1, topic)
        assert first > 0
        with pytest.raises(journal.JournalError, match=f"messages 0 to {first - 1} of {topic}"):
            reader.latestOffset(at, ALL)
        end = careless.latestOffset(at, ALL)
        assert f"messages 0 to {first - 1}" in caplog.text
        [[new]] = ranges(careless, at, end)
        assert (new.start, new.stop) == (first, 1000)
        assert careless.latestOffset(end, ALL) == end


def test_a_batch_of_a_new_partition_is_the_same_when_it_runs_again(tmp_path, caplog):
    """Or what it lacks by then is data loss."""
    fill(tmp_path, 0, 10)
    with stream(tmp_path) as reader:
        at = reader.latestOffset(reader.initialOffset(), ALL)
        fill(tmp_path, 1, 1000)
        end = reader.latestOffset(at, ALL)
    with stream(tmp_path) as reader, stream(tmp_path, failOnDataLoss="false") as careless:
        [[before]] = ranges(reader, at, end)
        assert (before.start, before.stop) == (0, 1000)
        fill(tmp_path, 1, 1, 8192)
        first = first_of(tmp_path, 1)
        assert first > 0
        with pytest.raises(journal.JournalError, match=f"messages 0 to {first - 1} of t"):
            reader.partitions(at, end)
        [[after]] = ranges(careless, at, end)
        assert (after.start, after.stop) == (first, 1000)
        assert f"messages 0 to {first - 1}" in caplog.text
