"""Against a real Spark: what a user's program sees."""

import json
import socket as plain
import sys
import threading

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from spark_streams import run  # noqa: E402

import mqcore  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.spark import versions  # noqa: E402


def configured(reader, where, options):
    for name, value in {"path": where, "subscribe": "flights", **options}.items():
        reader = reader.option(name, value)
    return reader


def read(spark, where, schema=None, **options):
    reader = spark.read.format("mqcore")
    return configured(reader.schema(schema) if schema else reader, where, options).load()


def stream(spark, where, **options):
    return configured(spark.readStream.format("mqcore"), where,
                      {"startingOffsets": "earliest", **options}).load()


def collected(spark, folder):
    return sorted((r.partition, r.offset) for r in spark.read.parquet(str(folder)).collect())


def messages(where, topic, partition=0):
    with journal.open(where, topic=topic, partition=partition) as log:
        return [m for records in log.batches() for m in records]


def test_batch_has_all_columns(spark, compiled, where):
    rows = read(spark, where, includeHeaders="true", includeStamps="true").orderBy(
        "partition", "offset").collect()
    assert len(rows) == 110
    row = rows[3].asDict(recursive=True)
    assert row.pop("timestamp").timestamp() == 1003
    assert row == {"key": b"k3", "value": b"flights 0 3", "topic": "flights", "partition": 0,
                   "offset": 3, "headers": [{"key": "n", "value": b"3"}], "producer": None,
                   "sequence": None, "sent": None, "life": None}
    assert rows[102].key is None and rows[102].headers == []


def test_projection_ranges_and_times(spark, where):
    some = read(spark, where, "offset long, value binary", startingOffsets='{"flights|0": 95}',
                endingOffsets='{"flights|1": 2}', minPartitions="4", batchBytes="100")
    assert some.rdd.getNumPartitions() == 4
    assert sorted(some.collect()) == sorted(
        [(i, b"flights 0 %d" % i) for i in range(95, 100)] + [(i, b"flights 1 %d" % i)
                                                              for i in range(2)])
    assert read(spark, where, startingTimestamp="1097000").count() == 3
    assert read(spark, where, subscribe="flights,weather").groupBy("topic").count().count() == 2


@pytest.mark.skipif(not versions.FILTERS, reason="PySpark is older than 4.1")
def test_filters_choose_what_is_read(spark, where):
    some = read(spark, where, filterPushdown="true", minPartitions="1").where(
        "partition = 0 AND offset >= 10 AND offset < 13")
    assert [row.offset for row in some.collect()] == [10, 11, 12]
    assert some.rdd.getNumPartitions() == 1


def test_mistakes_are_told_on_the_driver(spark, where):
    def told(call):
        with pytest.raises(Exception) as caught:
            call()
        return str(caught.value)
    assert "did you mean subscribe?" in told(lambda: read(spark, where, subscrib="x"))
    assert "has no topic trains; it has flights, weather" in told(
        lambda: read(spark, where, subscribe="trains").count())
    assert "value is binary, not string" in told(
        lambda: read(spark, where, "value string").count())
    assert "there is no column value" in told(
        lambda: spark.range(3).write.format("mqcore").option("path", where).mode("append").save())


@pytest.mark.skipif(not versions.LIMITS, reason="PySpark is older than 4.2")
def test_stream_with_limits_goes_on_where_it_stopped(spark, where, tmp_path):
    df, place = stream(spark, where, maxOffsetsPerTrigger="60"), str(tmp_path / "p")
    assert run(df, tmp_path / "c", "parquet", path=place) == [60, 50]
    for partition in (0, 2):        # more in a partition, and a new one
        with journal.open(where, "a", topic="flights", partition=partition) as log:
            log.append_many([b"new"] * 3)
    assert run(df, tmp_path / "c", "parquet", path=place) == [6]
    assert collected(spark, place) == [(0, i) for i in range(103)] + [
        (1, i) for i in range(10)] + [(2, i) for i in range(3)]
    last = json.loads((tmp_path / "c" / "offsets" / "2").read_text().splitlines()[-1])
    assert {key.split("|", 1)[1]: at for key, at in last.items()} == {
        "flights|0": 103, "flights|1": 10, "flights|2": 3}


def test_a_stream_without_limits_goes_on_where_it_stopped(spark, where, tmp_path):
    place = str(tmp_path / "p")
    assert run(stream(spark, where), tmp_path / "c", "parquet", path=place) == [110]
    with journal.open(where, "a", topic="flights", partition=2) as log:
        log.append_many([b"new"] * 3)
    assert run(stream(spark, where), tmp_path / "c", "parquet", path=place) == [3]
    assert len(collected(spark, place)) == 113


def test_what_an_older_pyspark_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(versions, "FILTERS", False)
    monkeypatch.setattr(versions, "LIMITS", False)
    versions.check_filters(False)
    versions.check_limits(maxOffsetsPerTrigger=None)
    with pytest.raises(mqcore.NotSupported, match="filterPushdown needs 4.1"):
        versions.check_filters(True)
    with pytest.raises(mqcore.NotSupported, match="maxOffsetsPerTrigger needs 4.2"):
        versions.check_limits(maxOffsetsPerTrigger=60)


def test_lost_messages_stop_a_stream_or_are_passed_over(spark, tmp_path):
    where, place = str(tmp_path / "j"), str(tmp_path / "p")
    with journal.open(where, "a", topic="flights") as log:
        log.append(b"0")
    assert run(stream(spark, where), tmp_path / "c", "parquet", path=place) == [1]
    with journal.open(where, "a", topic="flights", segment_bytes=4096, retain_bytes=0) as log:
        for i in range(1, 5):
            log.append(b"%d" % i)
            log.rotate()
        log.append(b"5")
        log.retain()
    with journal.open(where, topic="flights") as log:
        first, end = log.first, log.end
    assert 1 < first < end
    with pytest.raises(Exception, match=f"messages 1 to {first - 1} of flights.0 at .* are gone"):
        run(stream(spark, where), tmp_path / "c", "parquet", path=place)
    run(stream(spark, where, failOnDataLoss="false"), tmp_path / "c", "parquet", path=place)
    assert collected(spark, place) == [(0, 0), *((0, i) for i in range(first, end))]


def test_a_stream_into_a_journal_is_there_once(spark, where, tmp_path):
    target = str(tmp_path / "out")
    limits = {"maxOffsetsPerTrigger": "50"} if versions.LIMITS else {}
    df = stream(spark, where, **limits).selectExpr(
        "upper(CAST(value AS STRING)) AS value", "key", "'loud' AS topic")
    options = {"path": target, "partitions": "2"}
    run(df, tmp_path / "c", "mqcore", **options)
    wanted = sorted(m.upper() for p in (0, 1) for m in messages(where, "flights", p))

    def there():
        return sorted(m for p in (0, 1) for m in messages(target, "loud", p))
    assert there() == wanted
    # as if the driver had died between our commit and Spark's: it repeats the last batch
    last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    run(df, tmp_path / "c", "mqcore", **options)
    assert there() == wanted
    counts = journal.Sequences()
    with journal.open(target, topic="loud") as log:
        for records in log.batches():
            counts.add(records)
    assert (counts.missing, counts.duplicates) == (0, 0) and counts.messages


def test_a_batch_into_a_journal_and_back(spark, compiled, tmp_path):
    target = str(tmp_path / "out")
    df = spark.range(1000).selectExpr("CAST(id AS STRING) AS value", "current_timestamp() AS "
                                      "timestamp", "IF(id % 2 = 0, 'even', 'odd') AS topic")
    df.write.format("mqcore").option("path", target).mode("append").save()
    back = spark.read.format(
        "mqcore").option("path", target).option("subscribePattern", "e.*|odd").load()
    assert {row.topic: row["count"] for row in back.groupBy("topic").count().collect()} == {
        "even": 500, "odd": 500}
    assert sorted(map(int, messages(target, "odd"))) == list(range(1, 1000, 2))
    failing = df.selectExpr("IF(value = '999', NULL, value) AS value", "topic")
    with pytest.raises(Exception, match="rows without value"):
        failing.write.format("mqcore").option("path", target).mode("append").save()
    assert len(messages(target, "odd")) == 500


@pytest.mark.parametrize("pattern", ["push", "pub"])
def test_into_sockets(spark, pattern, ctx):
    kind = mqcore.Pull if pattern == "push" else mqcore.Sub
    got = []
    with kind(context=ctx) as receiver:
        if pattern == "pub":
            receiver.subscribe(b"a")
        url = receiver.bind("tcp://127.0.0.1:0").url
        done = threading.Event()

        def receive():
            while len(got) < 200:
                got.append(receiver.recv_parts(timeout=100))
            done.set()
        thread = threading.Thread(target=receive)
        thread.start()
        spark.range(200).selectExpr("CAST(id AS STRING) AS value", "'a' AS topic").write.format(
            "mqcore").option("endpoints", url).option("pattern", pattern).mode("append").save()
        assert done.wait(60)
        thread.join()
    assert sorted(int(value) for _, value in got) == list(range(200))
    assert {topic for topic, _ in got} == {b"a"}


def test_nobody_there_is_an_error(spark):
    with plain.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Exception, match="peer"):
            spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("mqcore").option(
                "endpoints", url).option("timeoutMs", "200").mode("append").save()


def test_our_session_is_the_active_one_with_the_format_registered(spark, where, monkeypatch):
    from mqcore.spark import MqcoreSource, session

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)     # else it leaves these behind
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    made = session("local[2]", spark_sql_shuffle_partitions="3")
    assert made.sparkContext is spark.sparkContext
    assert made.conf.get("spark.sql.shuffle.partitions") == "3"
    assert MqcoreSource.name() == "mqcore" and read(made, where).count() == 110
    made.conf.set("spark.sql.shuffle.partitions", "2")
