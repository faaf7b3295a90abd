"""Journals with compressed blocks, as Spark's driver plans them and its executors read them; no
Spark session is needed."""

import pickle

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.options import STREAM, check  # noqa: E402
from mqcore.spark.stream import StreamReader  # noqa: E402
from mqcore.spark.versions import ReadAllAvailable, ReadMaxBytes  # noqa: E402

VALUES = [b"message %05d " % i * 4 for i in range(20_000)]


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_the_same_rows_in_the_same_batches(tmp_path, codec):
    """Plain and compressed blocks in one partition; limits count the bytes of plain blocks."""
    for name, compression in (("plain", None), ("packed", codec)):
        with journal.open(tmp_path / name, "a", topic="t", compression=compression) as writer:
            writer.append_many(VALUES[:15_000], time=1.0)
        with journal.open(tmp_path / name, "a", topic="t") as writer:
            writer.append_many(VALUES[15_000:], time=1.0)
    rows, taken = {}, {}
    for name in ("plain", "packed"):
        given = check({"path": str(tmp_path / name), "subscribe": "t", "batchBytes": "50000",
                       "startingOffsets": "earliest"}, STREAM)
        driver = StreamReader(full_schema(False, False), given)
        start = driver.initialOffset()
        [taken[name]] = driver.latestOffset(start, ReadMaxBytes(300_000)).values()
        ranges = driver.partitions(start, driver.latestOffset(start, ReadAllAvailable()))
        executor = pickle.loads(pickle.dumps(driver))
        batches = [batch for part in ranges for batch in executor.read(part)]
        assert max(batch.nbytes for batch in batches) < 200_000
        rows[name] = pa.Table.from_batches(batches).drop_columns(["topic"]).to_pydict()
        driver.stop()
    assert rows["packed"] == rows["plain"] and rows["plain"]["value"] == VALUES
    assert 0 < taken["packed"] < len(VALUES) and 0.5 < taken["packed"] / taken["plain"] < 2
