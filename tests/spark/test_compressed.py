"""Journals with compressed blocks, as Spark's driver plans them and its executors read them; no
Spark session is needed."""

import pickle

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: E402
from staged import Crash, publish, stage, stored  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.spark import ledger  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.journal_sink import BatchSink  # noqa: E402
from mqcore.spark.options import STREAM, WRITE, check  # noqa: E402
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


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_what_a_job_writes(tmp_path, codec):
    given = check({"path": str(tmp_path), "topic": "t", "compression": codec}, WRITE)
    sink = BatchSink(StructType([StructField("value", BinaryType())]), given, False)
    batch = pa.record_batch({"value": pa.array(VALUES, pa.binary())})
    sink.commit([sink.write(iter([batch, batch]))])
    size = sum(file.stat().st_size for file in (tmp_path / "t").rglob("*.mqj"))
    assert (size < sum(map(len, VALUES))) == (codec != "none")
    with journal.open(tmp_path, topic="t") as reader:
        assert [value for records in reader.batches() for value in records] == VALUES * 2


def test_an_interrupted_publication_is_completed_as_it_was_begun(tmp_path, monkeypatch):
    files = stage(tmp_path, "q", 0, b"x" * 100)

    def crash(*_):
        raise Crash
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(ledger, "append_batch", crash)
        ledger.publish(str(tmp_path), "q", 0, files, 1.0, "zstd")
    opened, used = ledger.journal.open, []

    def told(*where, **how):
        used.append(how.get("compression"))
        return opened(*where, **how)
    monkeypatch.setattr(ledger.journal, "open", told)
    publish(tmp_path, "q", 1, stage(tmp_path, "q", 1, b"later"))
    assert used.count("zstd") == len({(file.topic, file.partition) for file in files})
    assert sum(len(rows) for rows in stored(tmp_path).values()) == 60
