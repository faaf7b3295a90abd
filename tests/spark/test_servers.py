"""Journals of several nodes, through their servers: batch, stream, and what servers suffer."""

import json

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from mqcore import journal  # noqa: E402


@pytest.fixture
def nodes(tmp_path):
    """Two folders with the same topic and partitions: flights|0 and flights|1, 30 and 10 in the
    first, 20 and 5 in the second; alerts|0 in the second alone."""
    for node, topic, partition, n in ((0, "flights", 0, 30), (0, "flights", 1, 10),
                                      (1, "flights", 0, 20), (1, "flights", 1, 5),
                                      (1, "alerts", 0, 3)):
        with journal.open(tmp_path / f"n{node}", "a", topic=topic, partition=partition) as log:
            log.append_many([b"%d %s %d %d" % (node, topic.encode(), partition, i)
                             for i in range(n)])
    return tmp_path / "n0", tmp_path / "n1"


@pytest.fixture
def servers(nodes, ctx):
    made = [journal.serve(where, "tcp://127.0.0.1:0", context=ctx) for where in nodes]
    yield made
    for server in made:
        server.stop()


def endpoints(servers):
    return ",".join(url for server in servers for url in server.urls)


def configured(reader, options):
    for name, value in {"subscribe": "flights", **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def read(spark, **options):
    return configured(spark.read.format("mqcore"), options)


def stream(spark, **options):
    return configured(spark.readStream.format("mqcore"), {"startingOffsets": "earliest", **options})


def run(df, checkpoint, sink, path, **options):
    """All that is available; how many rows each batch had."""
    writer = df.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for name, value in {"path": str(path), **options}.items():
        writer = writer.option(name, value)
    query = writer.format(sink).start()
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def expected():
    return sorted(b"%d flights %d %d" % (node, partition, i)
                  for node, partition, n in ((0, 0, 30), (0, 1, 10), (1, 0, 20), (1, 1, 5))
                  for i in range(n))


def values(df):
    return sorted(bytes(row.value) for row in df.select("value").collect())


def test_batch_from_folders_and_from_servers(spark, nodes, servers, tmp_path):
    folders = ",".join(map(str, nodes))
    for where in ({"path": folders}, {"endpoints": endpoints(servers)}):
        df = read(spark, **where)
        assert df.rdd.getNumPartitions() == 4 and values(df) == expected()
        assert read(spark, **where, minPartitions="9", batchBytes="50").count() == 65
        assert read(spark, **where, subscribe="alerts,flights").count() == 68
        assert read(spark, **where, startingOffsets="latest").count() == 0
    ids = {(info.partition, node): info.id for node, where in enumerate(nodes)
           for info in journal.list_partitions(where) if info.topic == "flights"}
    begin = json.dumps({f"{ids[0, 1]}|flights|0": 15, "flights|1": -1})
    assert values(read(spark, path=folders, startingOffsets=begin)) == sorted(
        value for value in expected() if value.split()[2] == b"0" and (
            value[:1] == b"0" or int(value.split()[3]) >= 15))
    with pytest.raises(Exception, match=f'say which, by the journals. ids: "{ids[0, 0]}.flights.0'):
        read(spark, path=folders, startingOffsets='{"flights|0": 3}').count()
    (tmp_path / "again").symlink_to(nodes[0])
    with pytest.raises(Exception, match="messages would come twice"):
        read(spark, path=f"{nodes[0]},{tmp_path / 'again'}").count()
    with pytest.raises(Exception, match="no journal at .*for a name with a comma in it"):
        read(spark, path=f"{nodes[0]},{tmp_path / 'none'}").count()


def test_stream_from_servers_into_a_journal(spark, nodes, servers, tmp_path):
    """With limits by bytes; then more comes, also to a partition that is new."""
    df = stream(spark, endpoints=endpoints(servers), maxBytesPerTrigger="3000").selectExpr(
        "value", "topic", "0 AS partition")
    counts = run(df, tmp_path / "c", "mqcore", tmp_path / "out")
    assert sum(counts) == 65 and len(counts) > 1
    for partition in (0, 7):
        with journal.open(nodes[1], "a", topic="flights", partition=partition) as log:
            log.append_many([b"new %d %d" % (partition, i) for i in range(4)])
    assert sum(run(df, tmp_path / "c", "mqcore", tmp_path / "out")) == 8
    wanted = expected() + [b"new %d %d" % (partition, i) for partition in (0, 7) for i in range(4)]
    with journal.open(tmp_path / "out", topic="flights") as log:
        assert sorted(m for records in log.batches() for m in records) == sorted(wanted)
