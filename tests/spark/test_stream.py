"""The streaming reader as the driver uses it; no Spark session is needed."""

import os
import pickle
import resource

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import mqcore  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.nodes import OPEN, Nodes, Part  # noqa: E402
from mqcore.spark.options import STREAM, check  # noqa: E402
from mqcore.spark.plan import Range  # noqa: E402
from mqcore.spark.stream import StreamReader, shared  # noqa: E402
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


def taken(ranges, partition):
    return sum(r.stop - r.start for r in ranges if r.part.partition == partition)


@pytest.fixture(params=["folder", "server"])
def place(request, tmp_path, mq_context):
    """Where the stream reads what lies in tmp_path."""
    if request.param == "folder":
        yield tmp_path
        return
    with journal.serve(tmp_path, "tcp://127.0.0.1:0", context=mq_context) as server:
        yield server.urls[0]


def test_a_new_partition_is_read_from_its_beginning(tmp_path, place, stream):
    filled(tmp_path)
    reader = stream(place)
    at = reader.latestOffset(reader.initialOffset(), ALL)
    filled(tmp_path, 1, n=20)
    filled(tmp_path, 2, n=5, begin=7000)
    end = reader.latestOffset(at, ALL)
    ranges = reader.partitions(at, end)
    assert [taken(ranges, i) for i in range(3)] == [0, 20, 5]
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


# -- limits ----------------------------------------------------------------------------------------

def backlog(*numbers):
    return [Range(Part("", "", "t", i), 0, n) for i, n in enumerate(numbers)]


@pytest.mark.parametrize("rows", [1, 2, 8, 9])
def test_a_limit_starves_no_partition(rows):
    """One with much waiting among many with little, which goes on coming."""
    waiting = [10_000, *[1] * 9]
    served, turn = [0] * 10, 0
    for _ in range(40):
        cut = shared(backlog(*waiting), rows, turn)
        assert sum(r.stop for r in cut) == rows
        for i, r in enumerate(cut):
            served[i] += r.stop
            waiting[i] -= r.stop
            waiting[i] += i > 0 and waiting[i] == 0
        turn += max(1, rows // 2)
    assert min(served) >= 1


def test_a_limit_is_kept_and_used(rng):
    for _ in range(2000):
        numbers = [rng.choice((0, 1, 3, 50, 10_000)) for _ in range(rng.randrange(1, 12))]
        rows, turn = rng.randrange(1, 60), rng.randrange(100)
        cut = shared(backlog(*numbers), rows, turn)
        assert sum(r.stop - r.start for r in cut) == min(rows, sum(numbers))
        assert all(0 <= r.stop <= n for r, n in zip(cut, numbers, strict=True))


# -- descriptors -----------------------------------------------------------------------------------

def test_more_partitions_than_descriptors(tmp_path, stream):
    n = OPEN + 60
    for i in range(n):
        filled(tmp_path, i, n=1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    reader = stream(tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (len(os.listdir("/proc/self/fd")) + OPEN + 20, limits[1]))
    try:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert len(end) == n == len(reader.partitions({}, end))
        assert pickle.loads(pickle.dumps(reader))._nodes._recent == {}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with Nodes(check({"path": str(tmp_path), "subscribe": "t"}, STREAM)) as nodes:
        assert [nodes.end(part) for part in nodes.find(True)] == [1] * n
