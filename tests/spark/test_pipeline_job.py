"""The job against pandas: fed while it runs, killed in the middle, started again.

One scenario is played, since Spark takes seconds for everything; the tests look at what came of it.
"""

import contextlib
import json
import os
import signal
import socket as plain
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pandas as pd  # noqa: E402
import pipeline_feed as feed  # noqa: E402

import mqcore  # noqa: E402
from examples.pipeline import Job, compare, truth  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.errors import OptionError  # noqa: E402
from mqcore.spark import tables  # noqa: E402
from mqcore.testing.watch import until  # noqa: E402

ORIGINS = "EWR", "JFK", "LGA"
UNTIL = "2013-01-15T00:00:00Z"
LIMIT = 150.0
pytestmark = pytest.mark.timeout(500)       # of the first test: it plays the scenario
callbacks = pytest.mark.keeps(fds=20, threads=30, why="py4j's callback server and its connections, "
                              "for foreachBatch; Arrow's pool")


@contextlib.contextmanager
def subscriber(context, got):
    """Binds; what it receives goes into got."""
    with mqcore.Sub(context=context) as sub:
        sub.subscribe(b"hourly")
        url = sub.bind("tcp://127.0.0.1:0").url
        ended = threading.Event()

        def receive():
            while not ended.is_set():
                with contextlib.suppress(mqcore.RecvTimeout):
                    topic, value = sub.recv_parts(timeout=0.1)
                    assert topic == b"hourly"
                    got.append(json.loads(value))
        thread = threading.Thread(target=receive)
        thread.start()
        try:
            yield url
        finally:
            ended.set()
            thread.join()


def kill_a_driver(place, feeder, rows):
    """A driver of its own is killed with all it has, just when a second micro-batch has left a
    result; that is before Spark has committed it."""
    driver = subprocess.Popen([sys.executable, feed.__file__, "local[2]", str(place)],
                              stdin=subprocess.PIPE, start_new_session=True, env=feed.found())
    parts = place / "results" / "parts"
    try:
        for batch in range(2):
            until(lambda: (parts / f"{batch:08}.parquet").exists() or driver.poll(), LIMIT)
            assert driver.poll() is None
            if not batch:
                feeder.write(rows)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdin.close()


@pytest.fixture(scope="module")
def played(spark, quick_java, tmp_path_factory):
    """Two weeks: the first part before a driver is killed, the second while it dies, the third
    when another goes on."""
    place = tmp_path_factory.mktemp("job")
    flights, weather = feed.tables_until(UNTIL, *ORIGINS)
    rows = feed.messages(flights, weather)
    feeder = feed.Feeder(place, skip=[2])
    third = len(rows) // 3
    feeder.write(rows[:third])
    kill_a_driver(place, feeder, rows[third:2 * third])
    committed = {name: len(list((place / "checkpoint" / name / "commits").glob("[0-9]*")))
                 for name in ("hourly", "arrivals")}
    published = []
    with mqcore.Context() as context, subscriber(context, published) as url:
        job = Job(spark, {"path": feeder.path}, place / "results", url, place / "checkpoint",
                  every=feed.EVERY)
        with job:
            feeder.write(rows[2 * third:])
            feeder.write(feed.ends(*ORIGINS))
            job.drain(LIMIT)
        hourly = truth.read_table(None, place / "results" / "hourly")
        until(lambda: {(row["origin"], row["hour"]) for row in published} >= {
            (row.origin, f"{row.hour:%Y-%m-%dT%H:%M:%S.000Z}") for row in hourly.itertuples()
            if row.hour > flights_hour(rows[2 * third - 1])}, LIMIT)
    return SimpleNamespace(place=place, results=place / "results", feeder=feeder, rows=rows,
                           flights=flights, weather=weather, published=published,
                           committed=committed, hourly=hourly, progress=job.progress())


def flights_hour(row):
    return pd.Timestamp(json.loads(row[3])["hour"])


def contents(results):
    """Every table, its rows sorted."""
    found = {}
    for name in ("hourly", "topics", "rates", "latency", "sequences", "talkers"):
        table = truth.read_table(None, results / name)
        found[name] = table.sort_values(list(table.columns), ignore_index=True)
    return found


@callbacks
def test_hours_are_what_pandas_says(played):
    assert played.committed["arrivals"] >= 1      # the first driver had got somewhere
    told = compare(None, played.results, played.flights, played.weather)
    assert told.ok, str(told)
    assert told.rows == len(played.hourly) > 0
    assert sum(row["late"] for row in played.progress) == 0
    assert {row["query"] for row in played.progress} == {"hourly", "arrivals"}


@pytest.mark.keeps(threads=12, why="Arrow's own pool")
def test_arrivals_are_what_was_fed(played):
    found = contents(played.results)
    sent = pd.DataFrame([*played.rows, *feed.ends(*ORIGINS)],
                        columns=["topic", "producer", "key", "value"])
    assert found["topics"].set_index("topic")["messages"].to_dict() == \
        sent.groupby("topic").size().to_dict()
    sequences = found["sequences"].set_index("producer")
    assert sequences["messages"].to_dict() == sent.groupby("producer").size().to_dict()
    assert sequences["missing"].to_dict() == {1: 0, 2: 1, 3: 0, 4: 0}
    assert not sequences["duplicates"].any()
    rates = found["rates"]
    assert rates["messages"].sum() == rates["sent"].sum() == len(sent)
    assert rates["bytes"].sum() == sent["value"].map(len).sum()
    assert (rates["messages_per_s"] * rates["seconds"]).sum() == len(sent)
    assert found["latency"]["n"].sum() == len(sent)
    assert (found["latency"]["p50"] <= found["latency"]["p99"]).all()
    talkers = found["talkers"].set_index(["by", "name"])["messages"]
    assert talkers["key"].to_dict() == sent.groupby("key").size().to_dict()
    assert talkers["carrier"].to_dict() == played.flights.groupby("carrier").size().to_dict()
    assert talkers["dest"].to_dict() == played.flights.groupby("dest").size().to_dict()


def test_published_rows_are_those_of_the_files(played):
    rows = {(row.origin, row.hour): row for row in played.hourly.itertuples()}
    assert played.published and not any(row["unpublished"] for row in played.progress)
    for got in played.published:
        row = rows[got["origin"], pd.Timestamp(got["hour"])]
        assert (got["flights"], got.get("temp")) == (
            row.flights, None if pd.isna(row.temp) else row.temp)


@callbacks
def test_started_once_more(played, spark, monkeypatch):
    """As if the driver had died between the files and Spark's commit, in both queries: a batch that
    is repeated changes nothing. Nobody subscribes, which is counted; so are late rows, and what is
    no JSON."""
    before = contents(played.results)
    for name in ("hourly", "arrivals"):
        commits = played.place / "checkpoint" / name / "commits"
        last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
    monkeypatch.setattr("examples.pipeline.job.PATIENCE", 200)
    with plain.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        job = Job(spark, {"path": played.feeder.path}, played.results,
                  f"tcp://127.0.0.1:{silent.getsockname()[1]}", played.place / "checkpoint",
                  every=feed.EVERY)
        with job:
            job.drain(LIMIT)
            after = contents(played.results)
            repeated = job.progress()
            played.feeder.write([*feed.messages(played.flights[:1], played.weather[:0]),
                                 ("flights", 1, "EWR", b"no JSON")])
            job.drain(LIMIT)
    assert {row["query"] for row in repeated} == {"hourly", "arrivals"}
    for name, table in before.items():
        pd.testing.assert_frame_equal(table, after[name], obj=name)
    last = max(path.name for path in (played.results / "hourly").glob("*.parquet"))
    assert sum(row["unpublished"] for row in repeated) == len(
        pd.read_parquet(played.results / "hourly" / last)) > 0
    assert sum(row["late"] for row in job.progress()) == 1
    told = compare(spark, played.results, played.flights, played.weather)
    assert told.differences == [
        f"flights: {len(played.flights) + 2} messages, not {len(played.flights)}",
        "flights: 1 messages are unreadable"]


def test_results_and_checkpoint_belong_together(played, spark, tmp_path):
    for results, checkpoint in ((played.results, tmp_path / "c"),
                                (tmp_path / "r", played.place / "checkpoint")):
        with pytest.raises(OptionError, match="do not belong together"):
            Job(spark, {"path": played.feeder.path}, results, None, checkpoint).start()


@pytest.mark.keeps(threads=12, why="Arrow's own pool")
def test_a_comparison_names_what_differs(tmp_path):
    flights, weather = feed.tables_until("2013-01-02T00:00:00Z", "JFK")
    wanted = truth.hourly(flights, weather)
    wrong = pd.concat([wanted, wanted[:1]], ignore_index=True).drop(1)
    wrong.loc[2, "flights"] += 1
    wrong.loc[3, "temp"] *= 1.0001
    wrong.loc[4, "hour"] += pd.Timedelta(days=1)
    for name, table in (("hourly", wrong), ("topics", pd.DataFrame(
            [("flights", len(flights) + 1, 1, 0)],
            columns=["topic", "messages", "ends", "unreadable"]))):
        (tmp_path / name).mkdir()
        table.to_parquet(tmp_path / name / "0.parquet")
    told = compare(None, tmp_path, flights, weather)
    assert not told.ok
    assert told.rows == len(wanted)
    hours = [f"JFK {hour}" for hour in wanted["hour"]]
    assert sorted(told.differences) == sorted([
        f"{hours[0]} is there twice", f"{hours[1]} is missing", f"{hours[4]} is missing",
        f"JFK {wrong.loc[4, 'hour']} is not in the files",
        f"{hours[2]}: flights is {wanted['flights'][2] + 1}.0, not {wanted['flights'][2]}.0",
        f"{hours[3]}: temp is {wrong['temp'][3]}, not {wanted['temp'][3]}",
        f"there are no messages of the topic weather, {len(weather)} expected"])
    assert "differences" in str(told)


def test_counts_on_a_stream(spark, tmp_path):
    """What the job counts in batches, a stream counts with state: gaps and duplicates over several
    micro-batches, numbers far apart and out of order, and of two lives apart."""
    numbers = [*range(0, 40_000), 5, 5, 39_999, 50_000, 45_000]
    newer = [70_000, 69_000, 69_001, 69_001]        # it may begin with any number
    with journal.open(tmp_path / "j", "a", topic="t", stamps=True, fsync="never") as log:
        for number in numbers:
            log.append(journal.stamp(7, number, 1000.0) + b"x")
        for number in newer:
            log.append(journal.stamp(7, number, 1000.0, life=3) + b"x")
    messages = spark.readStream.format("mqcore").option("path", str(tmp_path / "j")).option(
        "subscribe", "t").option("startingOffsets", "earliest").option(
        "includeStamps", "true").option("maxOffsetsPerTrigger", "20005").load()
    query = tables.sequences(messages).writeStream.queryName("seen").format("memory").outputMode(
        "complete").trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT)
    rows = tables.gaps(spark.table("seen")).orderBy("life").collect()
    spark.catalog.dropTempView("seen")
    assert len([p for p in query.recentProgress if p.numInputRows]) == 2
    assert [row.asDict() for row in rows] == [
        {"producer": 7, "life": 0, "messages": len(numbers), "duplicates": 3,
         "missing": 50_001 - 40_002},
        {"producer": 7, "life": 3, "messages": len(newer), "duplicates": 1, "missing": 1001 - 3}]


def test_percentiles(spark):
    """Within the three digits that are kept of each number; negative ones too."""
    took = [-1500, 0, 7, *(i * i for i in range(3000))]
    frame = spark.createDataFrame([(us,) for us in took], "us long").selectExpr(
        "timestamp_micros(1000000000 - us) AS sent", "timestamp_micros(1000000000) AS timestamp",
        "'t' AS topic")
    (row,) = tables.percentiles(tables.latencies(frame)).collect()
    assert (row["topic"], row["n"]) == ("t", len(took))
    wanted = pd.Series(took, dtype=float) / 1000
    assert row["max"] == pytest.approx(wanted.max(), rel=0.005)
    for name, share in tables.PERCENTILES.items():
        assert row[name] == pytest.approx(wanted.quantile(share), rel=0.005)
