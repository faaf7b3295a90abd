"""Spark as a peer of plain sockets: DataFrames out, back-pressure, and DataFrames back."""

import os
import re
import signal
import threading
import time
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

import pyarrow as pa  # noqa: E402

import mqcore  # noqa: E402
from mqcore import journal  # noqa: E402
from mqcore.spark.columns import live_schema  # noqa: E402
from mqcore.spark.live import LiveReader  # noqa: E402
from mqcore.spark.options import LIVE, check  # noqa: E402
from mqcore.spark.rows import with_topics  # noqa: E402
from mqcore.testing import until  # noqa: E402

LIMIT = 150.0


def live(spark, urls, pattern="pull", **options):
    reader = spark.read.format("mqcore").option("endpoints", ",".join(urls))
    for name, value in {"pattern": pattern, **options}.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.fixture
def within():
    """within(call): it runs in a thread, which is joined at the end; the thread's result()."""
    threads = []

    class Within:
        def __init__(self, call, *args):
            self.error = self.value = None
            self.thread = threading.Thread(target=self.run, args=(call, *args))
            threads.append(self.thread)
            self.thread.start()

        def run(self, call, *args):
            try:
                self.value = call(*args)
            except BaseException as error:
                self.error = error

        def result(self):
            self.thread.join(LIMIT)
            assert not self.thread.is_alive()
            if self.error is not None:
                raise self.error
            return self.value
    yield Within
    for thread in threads:
        thread.join(LIMIT)


def test_topics_in_front_of_values():
    """Messages of two parts from two columns, without a Python object for each."""
    def parts(values, topics, default):
        data, ends, split = with_topics(pa.array(values), topics, default)
        raw = bytes(data)
        return [[raw[a:b]] if cut < 0 else [raw[a:cut], raw[cut:b]]
                for a, b, cut in zip(ends, ends[1:], split, strict=False)]
    topics = pa.array(["x", None, "", "\u00fc"])
    assert parts([b"1", b"2", b"", b"4"], topics, None) == [
        [b"x", b"1"], [b"2"], [b"", b""], ["\u00fc".encode(), b"4"]]
    assert parts([b"1", b"2", b"", b"4"], topics, "d")[1] == [b"d", b"2"]
    assert parts(["1", "2"], None, "d") == [[b"d", b"1"], [b"d", b"2"]]
    assert parts([b"0", b"1", b"2"], topics.slice(1), None)[1:] == [[b"", b"1"],
                                                                    ["\u00fc".encode(), b"2"]]


def test_a_round_trip_through_workers(spark, ctx, within):
    """DataFrame -> PUSH -> a worker of mqcore and one of pyzmq -> PUSH -> DataFrame."""
    zmq = pytest.importorskip("zmq", reason="pip install pyzmq")
    n, ends = 200, threading.Event()

    def ours(work, results):
        done = 0
        while not ends.is_set():
            try:
                topic, value = work.recv_parts(timeout=0.05)
            except mqcore.RecvTimeout:
                continue
            results.send_parts([topic, value.upper()], timeout=LIMIT)
            done += 1
        return done

    def theirs(work, results):
        done = 0
        while not ends.is_set():
            if work.poll(50):
                topic, value = work.recv_multipart()
                results.send_multipart([topic, value.upper()])
                done += 1
        return done

    with mqcore.Pull(context=ctx) as work, mqcore.Push(context=ctx) as results, \
            zmq.Context() as other, other.socket(zmq.PULL) as zmq_work, \
            other.socket(zmq.PUSH) as zmq_results:
        ports = [s.bind_to_random_port("tcp://127.0.0.1") for s in (zmq_work, zmq_results)]
        to, back = ([sock.bind("tcp://127.0.0.1:0").url, f"tcp://127.0.0.1:{port}"]
                    for sock, port in zip((work, results), ports, strict=True))
        workers = [within(ours, work, results), within(theirs, zmq_work, zmq_results)]
        try:
            rows = spark.range(n).selectExpr("CONCAT('v', id) AS value", "'t' || id % 7 AS topic")
            for ends_at in (",".join(to), *to):         # the first may all go to one of them
                rows.write.format("mqcore").option("endpoints", ends_at).mode("append").save()
            back = live(spark, back, topicFrom="first-part", maxMessages=str(3 * n),
                        numPartitions="1")
            found = back.selectExpr("CAST(value AS STRING)", "topic", "timestamp").collect()
        finally:
            ends.set()
        assert sorted((row.value, row.topic) for row in found) == sorted(
            [(f"V{i}", f"t{i % 7}") for i in range(n)] * 3)
        assert all(row.timestamp is not None for row in found)
        done = [worker.result() for worker in workers]
        assert sum(done) == 3 * n and min(done) >= n


def test_receivers_that_do_not_read_hold_the_trigger(spark, ctx, tmp_path):
    """A micro-batch is larger than all queues on the way: it cannot end before the receiver reads,
    and then nothing is missing and nothing is there twice."""
    n, size = 600, 64 << 10
    with journal.open(tmp_path / "j", "a", topic="t") as log:
        log.append_many([b"%d " % i + bytes(size) for i in range(n)])
    with mqcore.Pull(context=ctx, recv_hwm=10, recv_buffer=1 << 16) as receiver:
        url = receiver.bind("tcp://127.0.0.1:0").url
        df = (spark.readStream.format("mqcore").option("path", str(tmp_path / "j"))
              .option("subscribe", "t").option("startingOffsets", "earliest")
              .option("maxOffsetsPerTrigger", n // 2).load().select("value"))
        query = (df.writeStream.format("mqcore").option("endpoints", url).option("hwm", "10")
                 .option("timeoutMs", "60000").option("checkpointLocation", str(tmp_path / "c"))
                 .trigger(availableNow=True).start())
        try:
            def stalled():
                before = receiver.stats().total, receiver.stats().peers
                time.sleep(0.5)
                return before[1] and before == (receiver.stats().total, receiver.stats().peers)
            until(stalled, LIMIT)
            assert query.isActive and query.lastProgress is None
            assert not list((tmp_path / "c" / "commits").glob("[0-9]*"))
            got = Counter(int(receiver.recv(timeout=LIMIT).split(b" ")[0]) for _ in range(n))
            assert query.awaitTermination(LIMIT)
        finally:
            query.stop()
        assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [n // 2] * 2
        assert got == Counter(range(n))
        with pytest.raises(mqcore.RecvTimeout):
            receiver.recv(timeout=0)


def test_tasks_share_the_endpoints(spark, ctx, within):
    """Without topicFrom all parts are the value; a topic that is no UTF-8 costs nobody anything."""
    with mqcore.Push(context=ctx) as one, mqcore.Push(context=ctx) as two:
        urls = [sock.bind("tcp://127.0.0.1:0").url for sock in (one, two)]
        for sock, name in ((one, b"one"), (two, b"t\xffwo")):
            within(lambda s=sock, n=name: s.send_many([(n, b"%d" % i) for i in range(100)]))
        df = live(spark, urls, idleMs="500", topicFrom="first-part")
        assert df.rdd.getNumPartitions() == 2
        assert Counter((row.topic, bytes(row.value)) for row in df.collect()) == Counter(
            (name, b"%d" % i) for name in ("one", "t\ufffdwo") for i in range(100))
        for sock in (one, two):
            within(lambda s=sock: s.send_many([(b"a", b"%d" % i) for i in range(10)]))
        df = spark.read.schema("timestamp timestamp, value binary").format("mqcore").options(
            endpoints=",".join(urls), pattern="pull", idleMs="500", numPartitions="1").load()
        assert sorted(bytes(row.value) for row in df.collect()) == sorted(
            [b"a%d" % i for i in range(10)] * 2)


def test_what_publishers_send_meanwhile(spark, ctx, within):
    with mqcore.XPub(context=ctx, bind="tcp://127.0.0.1:0") as pub:
        def publish():
            assert pub.recv(timeout=LIMIT) == b"\x01b"
            for i in range(50):
                pub.send_parts([b"a", b"%d" % i])
                pub.send_parts([b"bc", b"%d" % i])
        publisher = within(publish)
        df = live(spark, [pub.endpoints[0].url], "sub", subscribe="b", maxMessages="50",
                  topicFrom="first-part")
        assert [(row.topic, int(row.value)) for row in df.collect()] == [
            ("bc", i) for i in range(50)]
        publisher.result()


def received(urls, **options):
    """As a task would, here."""
    reader = LiveReader(live_schema(), check(
        {"endpoints": ",".join(urls), "pattern": "pull", "timeoutMs": "1000", **options}, LIVE))
    return [batch for share in reader.partitions() for batch in reader.read(share)]


def test_what_a_task_says(ctx, within, caplog):
    def told(kind, text, *messages, **options):
        """What a reader says who is sent these messages."""
        with mqcore.Push(context=ctx, bind="tcp://127.0.0.1:0") as push:
            sender = within(push.send_many, messages)
            with pytest.raises(kind, match=text):
                received([push.endpoints[0].url], **options)
            sender.result()
            return push.endpoints[0].url
    told(mqcore.RecvTimeout, "2 of 3 messages came, then nothing for 1000 ms", b"1", b"2",
         maxMessages="3")
    url = told(mqcore.MessageTooLarge, "2000 bytes; more than maxMessageBytes", bytes(2000),
               idleMs="300", maxMessageBytes="1000")
    with pytest.raises(mqcore.RecvTimeout, match=f"not connected within 1000 ms: {url}, nobody li"):
        received([url], idleMs="1")
    with mqcore.Push(context=ctx, bind="tcp://127.0.0.1:0") as push:
        sender = within(push.send_many, [b"%d" % i for i in range(10)])
        assert sum(map(len, received([push.endpoints[0].url], maxMessages="4"))) == 4
        sender.result()
    assert re.search("[1-9] messages had come and were not read", caplog.text)
    mqcore.Context.default().close()        # a worker process keeps it for its life


def test_a_task_that_was_killed_is_not_repeated_silently(spark, task_workers, ctx, within):
    with mqcore.Push(context=ctx, bind="tcp://127.0.0.1:0") as push:
        job = within(live(spark, [push.endpoints[0].url], idleMs="60000").collect)
        push.send(b"1", timeout=LIMIT)
        until(lambda: push.stats().total.written or push.stats().peers, LIMIT)
        for worker in task_workers():
            os.kill(worker, signal.SIGKILL)
        with pytest.raises(Exception, match="what the first one received is gone"):
            job.result()
