"""Tombstones, as Spark reads them and as it writes them."""

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from spark_streams import run  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.errors import UsageError  # noqa: E402
from mqcore.spark import ledger, tables  # noqa: E402
from mqcore.spark.options import WRITE, check  # noqa: E402
from mqcore.spark.staging import Stage  # noqa: E402

VALUES = [b"a", None, b"", None, b"e"]
KEYS = [None, b"k", b"", b"", b"l"]


def rows(where, topic="t", partition=0):
    with journal.open(where, topic=topic, partition=partition) as log:
        return [(value, records.key(i)) for records in log.batches()
                for i, value in enumerate(records)]


def staged(where, *batches, query="q", number=0):
    options = check({"path": str(where), "topic": "t"}, WRITE)
    return Stage(options, query, number, 0).write(iter(batches)).files


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()])
@pytest.mark.parametrize("start", [0, 1])
def test_a_null_value_becomes_a_tombstone(tmp_path, kind, start):
    """Once, with its key, time and stamp, also where the batch is published again."""
    times = pa.array(range(5), pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": pa.array(VALUES, pa.binary()).cast(kind),
                             "key": pa.array(KEYS, pa.binary()), "timestamp": times}).slice(start)
    plain = pa.record_batch({"value": pa.array([b"x"], pa.binary()).cast(kind),
                             "key": pa.array([b"y"], pa.binary()), "timestamp": times[:1]})
    files = staged(tmp_path, plain, batch)
    assert ledger.publish(str(tmp_path), "q", 0, files, 10.0)
    assert not ledger.publish(str(tmp_path), "q", 0, files, 10.0)
    assert rows(tmp_path) == [(b"x", b"y"), *list(zip(VALUES, KEYS, strict=True))[start:]]
    with journal.open(tmp_path, topic="t") as log:
        records = log.read(0)
        assert records.sequences.tolist() == list(range(6 - start))
        assert len(set(records.producers.tolist())) == 1 and records.producers[0]
        assert records._microseconds.tolist() == [0, *range(start, 5)]


@pytest.mark.parametrize("keys", [None, [None, b"k", None]])
def test_a_tombstone_needs_a_key(tmp_path, keys):
    columns = {"value": pa.array([b"a", None, None], pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    with pytest.raises(UsageError, match="without value and without key") as caught:
        staged(tmp_path, pa.record_batch(columns))
    assert str(caught.value).startswith("2 rows" if keys is None else "1 rows")


def test_a_large_batch_in_pieces(tmp_path, monkeypatch, rng):
    """Columns of more than 2 GiB would not fit offsets of 32 bits."""
    monkeypatch.setattr(ledger, "halves", lambda batch, most: halves(batch, 1000))
    from mqcore.spark.columns import halves

    values = [rng.choice((None, b"", b"v" * rng.randrange(300))) for _ in range(500)]
    keys = [b"%d" % i for i in range(500)]
    files = staged(tmp_path, pa.record_batch({"value": pa.array(values, pa.binary()), "key": keys}))
    assert ledger.publish(str(tmp_path), "q", 0, files, 10.0)
    assert rows(tmp_path) == list(zip(values, keys, strict=True))
    with journal.open(tmp_path, topic="t") as log:
        got = np.concatenate([records.sequences for records in log.batches()])
        assert got.tolist() == list(range(500))


def test_through_spark(spark, tmp_path):
    """Read as null, in a batch and in a stream, and written as they were."""
    source, target = str(tmp_path / "a"), str(tmp_path / "b")
    with journal.open(source, "a", topic="t") as log:
        log.append_many(VALUES, keys=[key or b"" for key in KEYS], time=100.0)
        log.append_many([b"only", b"values"])
    wanted = [*VALUES, b"only", b"values"]
    options = {"path": source, "subscribe": "t", "startingOffsets": "earliest"}
    df = spark.read.format("mqcore").options(**options).load()
    assert [row.value for row in df.orderBy("offset").collect()] == wanted
    assert df.where("value IS NULL").count() == 2
    counted = tables.rates(df).orderBy("start").collect()[0]
    assert (counted.messages, counted.bytes) == (5, 2)
    with pytest.raises(Exception, match="message 1 of topic 't', partition 0 is a tombstone"):
        strict(spark, options).collect()
    run(spark.readStream.format("mqcore").options(**options).load().select("key", "value"),
        tmp_path / "c", "mqcore", path=target, topic="t")
    assert [value for value, _ in rows(target)] == wanted
    df.where("value IS NULL").select("key", "value").write.format("mqcore").mode(
        "append").option("path", target).option("topic", "u").save()
    assert sorted(rows(target, "u")) == [(None, b""), (None, b"k")]


def strict(spark, options):
    from pyspark.sql.types import BinaryType, StructField, StructType

    schema = StructType([StructField("value", BinaryType(), nullable=False)])
    return spark.read.format("mqcore").schema(schema).options(**options).load()
