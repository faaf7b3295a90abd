"""A journal that was compacted, as Spark's driver plans it and its executors read it; no Spark
session is needed."""

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402
import staged  # noqa: E402
from compact_case import closed_end, expected, fill  # noqa: E402
from journal_case import contents  # noqa: E402

import mqcore as mq  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.errors import Error  # noqa: E402
from mqcore.spark import ledger  # noqa: E402
from mqcore.spark.columns import full_schema  # noqa: E402
from mqcore.spark.options import BATCH, check  # noqa: E402
from mqcore.spark.plan import Range, Ranges  # noqa: E402
from mqcore.spark.read import Reader  # noqa: E402


@pytest.mark.parametrize("how", ["path", "endpoints"])
def test_a_gap_is_no_data_loss(ctx, tmp_path, rng, how):
    """Also where a range begins, ends or lies in one; what is lost behind the end still is."""
    told = fill(tmp_path, rng, 500, topic="t")
    left = expected(told, closed_end(tmp_path, "t"))
    journal.compact(tmp_path, topic="t", keep_tombstones=0)
    with journal.serve(tmp_path, "tcp://127.0.0.1:0", context=ctx) as server:
        where = {"path": str(tmp_path)} if how == "path" else {"endpoints": server.urls[0]}
        reader = Reader(full_schema(False, False),
                        check({**where, "subscribe": "t", "minPartitions": "7"}, BATCH))
        parts = [part for part in reader.partitions() if isinstance(part, Ranges)]
        table = pa.Table.from_batches(
            [batch for part in parts for batch in reader.read(part)]).to_pydict()
        rows = zip(table["key"], table["value"], strict=True)
        assert dict(zip(table["offset"], rows, strict=True)) == left
        part = parts[0].ranges[0].part
        for _ in range(20):
            start, stop = sorted(rng.sample(range(501), 2))
            found = [at for batch in reader.read(Ranges([Range(part, start, stop)]))
                     for at in batch.to_pydict()["offset"]]
            assert found == [at for at in sorted(left) if start <= at < stop]
        with pytest.raises(Error, match="ends at 500"):
            list(reader.read(Ranges([Range(part, 490, 501)])))
    mq.Context.default().close()        # a worker process keeps it for its life


@pytest.mark.parametrize("how", ["compact", "truncate"])
def test_what_was_stored_and_removed_is_not_published_again(tmp_path, monkeypatch, how):
    """A driver is killed when all is stored. Before the next one, newer values come, and the old
    ones go. Appended again, they would hide the newer ones."""
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_done", killed)
        with pytest.raises(staged.Crash):
            staged.publish(tmp_path, "q", 0, staged.stage(tmp_path, "q", 0, b"old"))
    for topic, partition in staged.KEYS:
        with journal.open(tmp_path, "a", topic=topic, partition=partition) as log:
            log.rotate()
            log.append_many([b"new %d" % i for i in range(30)],
                            keys=[b"k%d" % i for i in range(30)])
            log.rotate()
            log.append(b"end")
        if how == "compact":
            journal.compact(tmp_path, topic=topic, partition=partition, min_share=0)
        else:
            journal.truncate_before(tmp_path, 10, topic=topic, partition=partition)
    before = [contents(tmp_path, topic=topic, partition=n) for topic, n in staged.KEYS]
    assert staged.publish(tmp_path, "q", 1, staged.stage(tmp_path, "q", 1, b"next", 3))
    after = [contents(tmp_path, topic=topic, partition=n) for topic, n in staged.KEYS]
    assert after == [[*found, b"next %d" % i] for i, found in enumerate(before)]


def killed(*_):
    raise staged.Crash
