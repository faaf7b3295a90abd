"""The streaming reader as the driver uses it; no Spark session is needed."""

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import mqcore  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.options import STREAM, check  # noqa: E402
from mqcore.spark.stream import StreamReader  # noqa: E402
from mqcore.spark.versions import ReadAllAvailable  # noqa: E402

ALL = ReadAllAvailable()


@pytest.fixture(scope="module", autouse=True)
def default_context():
    """Readers of servers use it; its threads and descriptors stay, so they are here before any is
    counted."""
    with mqcore.Pull(bind="inproc://spark-streams"), mqcore.Push(connect="inproc://spark-streams"):
        pass


@pytest.fixture
def stream():
    made = []

    def make(where, **options):
        given = {"endpoints" if "://" in str(where) else "path": str(where), "subscribe": "t",
                 "startingOffsets": "earliest", **options}
        made.append(StreamReader(full_schema(False, False), check(given, STREAM)))
        return made[-1]
    yield make
    for reader in made:
        reader.stop()


def filled(where, partition=0, n=10, **how):
    with journal.open(where, "a", topic="t", partition=partition, **how) as writer:
        writer.append_many([b"message %05d " % i * 4 for i in range(n)])
        writer.retain()


RETAINED = {"n": 1000, "segment_bytes": 4096, "block_bytes": 1024, "retain_bytes": 8192}


def taken(tasks, partition):
    return sum(r.stop - r.start for task in tasks for r in task.ranges
               if r.part.partition == partition)


def test_a_new_partition_is_read_from_its_beginning(tmp_path, place, stream):
    filled(tmp_path)
    reader = stream(place)
    at = reader.latestOffset(reader.initialOffset(), ALL)
    filled(tmp_path, 1, n=20)
    filled(tmp_path, 2, n=5, begin=7000)
    end = reader.latestOffset(at, ALL)
    tasks = reader.partitions(at, end)
    assert [taken(tasks, i) for i in range(3)] == [0, 20, 5]
    # and the same again, with a reader that a restart has made
    assert reader.partitions(at, end) == stream(place).partitions(at, end)


@pytest.mark.parametrize("fail", [True, False])
def test_what_a_new_partition_has_lost_is_lost_data(tmp_path, place, stream, fail, caplog):
    """Retention was faster than the stream, before it planned the batch or after."""
    filled(tmp_path)
    reader = stream(place, failOnDataLoss=str(fail))
    at = reader.latestOffset(reader.initialOffset(), ALL)
    filled(tmp_path, 1, **RETAINED)
    with journal.open(tmp_path, topic="t", partition=1) as log:
        assert log.begin == 0 < log.first
        part = next(p for p in reader._find() if p.partition == 1)
        planned = {**at, part.key: log.end}
        left = log.end - log.first
    for call in (lambda: reader.latestOffset(at, ALL), lambda: reader.partitions(at, planned)):
        if fail:
            with pytest.raises(journal.JournalError, match="messages 0 to .* are gone"):
                call()
        else:
            call()
            assert "messages 0 to" in caplog.text
            caplog.clear()
    if not fail:
        assert taken(reader.partitions(at, planned), 1) == left


def test_begin(tmp_path):
    """It survives retention, rotations, restarts and a repair of its segment."""
    for _ in range(2):
        with journal.open(tmp_path, "a", topic="t", begin=500, segment_bytes=4096,
                          block_bytes=1024, retain_bytes=8192) as writer:
            writer.append_many([b"message" * 4] * 500)
            writer.retain()
    with journal.open(tmp_path, topic="t") as reader:
        assert reader.begin == 500 < reader.first < 1500
    path = min((tmp_path / "t" / "0").glob("*.mqj"))
    raw = bytearray(path.read_bytes())
    raw[20] ^= 0xff
    path.write_bytes(raw)
    journal.repair(tmp_path, topic="t")
    with journal.open(tmp_path, topic="t") as reader:
        assert reader.begin == 500
    with journal.open(tmp_path / "empty", "a", topic="t"), \
            journal.open(tmp_path / "empty", topic="t") as reader:
        assert reader.begin == 0
