"""Timestamps that Spark knows and no journal takes: nothing is promised, so nothing waits for ever.
No Spark session is needed."""

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
from staged import entries, left, publish, stage, values  # noqa: E402

from mqcore.errors import UsageError  # noqa: E402
from mqcore.spark.options import WRITE, check  # noqa: E402
from mqcore.spark.staging import Stage  # noqa: E402

SCHEMA = pa.schema([("value", pa.binary()), ("timestamp", pa.timestamp("us", "UTC"))])


def staged(where, *times):
    rows = pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"%d" % i for i in range(len(times))]), rows], schema=SCHEMA)
    options = check({"path": str(where), "topic": "a"}, WRITE)
    return Stage(options, "q", 0, 0).write(iter([batch])).files


@pytest.mark.parametrize("us", [(1 << 63) - 1, -(1 << 63), 253402300800 * 10**6])
def test_a_task_refuses_them(tmp_path, us):
    with pytest.raises(UsageError, match="beyond the year 9999"):
        staged(tmp_path, 5, None, us)
    assert left(tmp_path) == []
    assert publish(tmp_path, "q", 0, stage(tmp_path, "q", 0, b"mended"))
    assert entries(tmp_path) == ["q.json"]


def test_all_others_are_kept(tmp_path):
    assert publish(tmp_path, "q", 0, staged(tmp_path, -62135596800 * 10**6, None, 5,
                                            253402300799 * 10**6))
    assert values(tmp_path, "a") == [b"0", b"1", b"2", b"3"]
