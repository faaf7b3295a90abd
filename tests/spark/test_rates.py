"""Which partitions get how much of a micro-batch; no Spark session is needed."""

import contextlib

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from mqcore import journal  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.nodes import Part  # noqa: E402
from mqcore.spark.options import STREAM, check  # noqa: E402
from mqcore.spark.plan import Range  # noqa: E402
from mqcore.spark.stream import StreamReader, Turns  # noqa: E402
from mqcore.spark.versions import LIMITS, ReadMaxRows  # noqa: E402


class Waiting:
    """Messages that wait in partitions, cut into micro-batches."""

    def __init__(self, backlog):
        self.at = [0] * len(backlog)
        self.end = list(backlog)
        self.turns = Turns()

    def batch(self, rows):
        """How many each partition gets."""
        cut = self.turns.cut([Range(Part("/", "id", "t", i), a, b)
                              for i, (a, b) in enumerate(zip(self.at, self.end, strict=True))],
                             rows)
        assert [r.start for r in cut] == self.at
        assert all(r.stop <= end for r, end in zip(cut, self.end, strict=True))
        self.at = [r.stop for r in cut]
        return [r.stop - r.start for r in cut]


def test_a_large_backlog_is_not_starved_by_small_ones():
    """Nine partitions always have something new; ten cannot all have a message of eight."""
    waiting = Waiting([10_000] + [1] * 9)
    got = [0] * 10
    for _ in range(50):
        one = waiting.batch(8)
        assert sum(one) == 8
        got = [a + b for a, b in zip(got, one, strict=True)]
        waiting.end = [end if i == 0 else max(end, at + 1)
                       for i, (at, end) in enumerate(zip(waiting.at, waiting.end, strict=True))]
    assert got[0] >= 50 * 7 and min(got[1:]) >= 50 // 9


def test_small_backlogs_are_not_starved_by_a_large_one():
    waiting = Waiting([10 ** 12, 1, 1, 1])
    for _ in range(3):
        waiting.batch(2)
    assert waiting.at[1:] == [1, 1, 1]


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_fewer_messages_than_partitions(rows):
    """Each has its turn before any has a second one."""
    waiting = Waiting([1000] * 20)
    for i in range(1, 40):
        assert sum(waiting.batch(rows)) == rows
        assert max(waiting.at) - min(waiting.at) <= 1, i


def test_partitions_that_come_and_go(rng):
    """Whatever has messages gets one before long."""
    waiting = Waiting([50] * 12)
    hungry = [0] * 12
    for _ in range(300):
        got = waiting.batch(4)
        for i in range(12):
            hungry[i] = 0 if got[i] or waiting.at[i] == waiting.end[i] else hungry[i] + 1
            if rng.random() < 0.5:
                waiting.end[i] += rng.randrange(8)
        assert max(hungry) <= 12


def test_everything_is_read_once(rng):
    waiting = Waiting([rng.randrange(100) for _ in range(9)])
    while waiting.at != waiting.end:
        assert 0 < sum(waiting.batch(13)) <= 13


@pytest.mark.skipif(not LIMITS, reason="this PySpark has no limits")
def test_a_query_that_begins_anew_each_time(tmp_path):
    """As a supervisor does with one that fails: the turn is not kept, the offsets are."""
    for i in range(6):
        with journal.open(tmp_path, "a", topic="t", partition=i) as log:
            log.append_many([b"x"] * 20)
    at = None
    for _ in range(60):
        options = check({"path": str(tmp_path), "subscribe": "t", "startingOffsets": "earliest"},
                        STREAM)
        with contextlib.closing(Stopping(full_schema(False, False), options)) as reader:
            at = at or reader.initialOffset()
            at = reader.latestOffset(at, ReadMaxRows(2))
    assert sorted(at.values()) == [20] * 6


class Stopping(StreamReader):
    def close(self):
        self.stop()
