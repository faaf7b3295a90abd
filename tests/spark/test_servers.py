"""Journals of several nodes, through their servers: batch, stream, and what servers suffer."""

import json
import os
import signal
import time

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from programs import mq, starter  # noqa: E402
from spark_streams import run  # noqa: E402

import mqcore  # noqa: E402
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
def servers(nodes, ctx, authority):
    """Of the two folders, the second over TLS."""
    made = [journal.serve(nodes[0], "tcp://127.0.0.1:0", context=ctx),
            journal.serve(nodes[1], "tls+tcp://127.0.0.1:0", context=ctx, **authority.server)]
    yield made
    for server in made:
        server.stop()


@pytest.fixture
def endpoints(servers, authority):
    query = f"tls_ca={authority.ca['tls_ca']}&tls_hostname=localhost"
    return f"{servers[0].urls[0]},{servers[1].urls[0]}?{query}"


def configured(reader, options):
    """With these options; an empty one is left out."""
    for name, value in {"subscribe": "flights", **options}.items():
        reader = reader.option(name, value) if value else reader
    return reader.load()


def read(spark, **options):
    return configured(spark.read.format("mqcore"), options)


def stream(spark, **options):
    return configured(spark.readStream.format("mqcore"), {"startingOffsets": "earliest", **options})


def expected():
    return sorted(b"%d flights %d %d" % (node, partition, i)
                  for node, partition, n in ((0, 0, 30), (0, 1, 10), (1, 0, 20), (1, 1, 5))
                  for i in range(n))


def values(df):
    return sorted(bytes(row.value) for row in df.select("value").collect())


def test_batch_from_folders_and_from_servers(spark, nodes, endpoints, tmp_path):
    folders = ",".join(map(str, nodes))
    for where in ({"path": folders}, {"endpoints": endpoints}):
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


def test_stream_from_servers_into_a_journal(spark, nodes, endpoints, tmp_path):
    """With limits by bytes; then more comes, also to a partition that is new."""
    df = stream(spark, endpoints=endpoints, maxBytesPerTrigger="3000").selectExpr(
        "value", "topic", "0 AS partition")
    counts = run(df, tmp_path / "c", "mqcore", path=tmp_path / "out")
    assert sum(counts) == 65 and len(counts) > 1
    for partition in (0, 7):
        with journal.open(nodes[1], "a", topic="flights", partition=partition) as log:
            log.append_many([b"new %d %d" % (partition, i) for i in range(4)])
    assert sum(run(df, tmp_path / "c", "mqcore", path=tmp_path / "out")) == 8
    wanted = expected() + [b"new %d %d" % (partition, i) for partition in (0, 7) for i in range(4)]
    with journal.open(tmp_path / "out", topic="flights") as log:
        assert sorted(m for records in log.batches() for m in records) == sorted(wanted)


def test_a_live_socket_is_refused_before_any_job(spark, ctx, tmp_path):
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    spark.range(1).count()
    assert scheduler.numTotalJobs() > before

    def started(**options):
        before = scheduler.numTotalJobs()
        with pytest.raises(Exception) as caught:
            run(stream(spark, **options), tmp_path / "c", "parquet", path=tmp_path / "p")
        assert scheduler.numTotalJobs() == before
        return str(caught.value)
    with mqcore.Push(context=ctx, bind="tcp://127.0.0.1:0") as live:
        [at] = live.endpoints
        told = started(endpoints=at.url, timeoutMs="2000")
        for part in ("within 2 s", "the peer is a PUSH socket", "forgets what nobody received",
                     "mq journal record"):
            assert part in told, told
        for options in ({}, {"subscribe": "", "startingOffsets": "", "idleMs": "9"}):
            told = started(endpoints=at.url, pattern="pull", **options)
            assert "which a stream cannot read: a live socket forgets" in told, told


def test_a_server_that_is_away_too_long_ends_the_query_which_goes_on_later(
        spark, nodes, servers, endpoints, ctx, tmp_path):
    df = stream(spark, endpoints=endpoints)
    hasty = stream(spark, endpoints=endpoints, timeoutMs="400")
    assert sum(run(df, tmp_path / "c", "parquet", path=tmp_path / "p")) == 65
    with journal.open(nodes[0], "a", topic="flights") as log:
        log.append_many([b"0 flights 0 %d" % i for i in range(30, 35)])
    [url] = servers[0].urls
    servers[0].stop()
    with pytest.raises(Exception, match=f"no answer from the journal server at {url} within 0.4 s"):
        run(hasty, tmp_path / "c", "parquet", path=tmp_path / "p")
    servers.append(journal.serve(nodes[0], url, context=ctx))
    assert sum(run(df, tmp_path / "c", "parquet", path=tmp_path / "p")) == 5
    assert values(spark.read.parquet(str(tmp_path / "p"))) == sorted(
        expected() + [b"0 flights 0 %d" % i for i in range(30, 35)])


def test_exactly_once_while_servers_and_workers_are_killed(spark, task_workers, tmp_path, rng):
    """Two queries read two servers. In each of their batches, while tasks run, a server is killed
    and started again, or a worker is killed; every message arrives once, in a journal and in
    Parquet."""
    folders = tmp_path / "n0", tmp_path / "n1"
    for node, where in enumerate(folders):
        with journal.open(where, "a", topic="flights") as log:
            for start in range(0, 30_000, 1000):
                log.append_many([b"%d %d " % (node, i) + b"x" * 400
                                 for i in range(start, start + 1000)])
    tracker = spark.sparkContext.statusTracker()

    def serve(node, url):
        made = start(*mq("journal", "serve", folders[node], "--bind", url))
        return made, made.line()

    def tasks_run():
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(info is not None and info.numActiveTasks for info in infos)

    with starter() as start:
        running = [serve(node, "tcp://127.0.0.1:0") for node in (0, 1)]
        df = stream(spark, endpoints=",".join(url for _, url in running),
                    maxOffsetsPerTrigger="8750")
        queries = [(df.selectExpr(*columns).writeStream.format(sink)
                    .option("checkpointLocation", str(tmp_path / f"c-{sink}"))
                    .option("path", str(tmp_path / sink)).trigger(availableNow=True).start())
                   for sink, columns in (("parquet", ["value"]),
                                         ("mqcore", ["value", "topic", "0 AS partition"]))]
        kills = {"server": 0, "worker": 0}
        met = [-1, -1]
        try:
            while any(query.isActive for query in queries):
                batches = [query.lastProgress and query.lastProgress.batchId for query in queries]
                moved = [now != before for query, now, before in zip(queries, batches, met,
                                                                     strict=True) if query.isActive]
                if all(moved) and tasks_run():
                    met = batches                       # once in a batch: a task has four tries
                    time.sleep(rng.random() / 4)        # somewhere in a task, or behind it
                    if kills["server"] <= kills["worker"]:
                        node = rng.randrange(2)
                        running[node][0].process.kill()
                        running[node][0].process.wait()
                        running[node] = serve(node, running[node][1])
                        kills["server"] += 1
                    elif workers := task_workers():
                        os.kill(rng.choice(workers), signal.SIGKILL)
                        kills["worker"] += 1
                time.sleep(0.01)
            for query in queries:
                assert query.exception() is None, query.exception()
        finally:
            for query in queries:
                query.stop()
    print(kills)
    assert kills["server"] >= 2 and kills["worker"] >= 2
    wanted = {b"%d %d" % (node, i) for node in (0, 1) for i in range(30_000)}

    def once(found):
        assert len(found) == len(wanted) and {value[:-401] for value in found} == wanted
    once(values(spark.read.parquet(str(tmp_path / "parquet"))))
    with journal.open(tmp_path / "mqcore", topic="flights") as log:
        once([m for records in log.batches() for m in records])
