"""The bridge to Kafka, against librdkafka's mock cluster: brokers that go down in the middle, what
they refuse, groups whose members come and go."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import bridging
import pytest
from bridging import LIMIT, Numbers, Sink, bodies, laws, moved
from kafka_mock import FETCH, OFFSET_COMMIT, PRODUCE, Cluster
from killing import nothing_is_lost

import mqcore as mq
from mqcore import bridge, journal
from mqcore.bridge import connection, plugins
from mqcore.bridge.kafka_group import KafkaSource
from mqcore.bridge.runner import Runner


@pytest.fixture(autouse=True)
def default_context():
    """The bridge's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


@pytest.fixture
def cluster():
    with Cluster(t=3, one=1) as made:
        yield made


class Keyed(Sink):
    keyed = True


class Brokers:
    """As killing.py wants them. What is stored stays: the mock cluster is not killed."""

    def __init__(self, cluster):
        self.kill, self.start = cluster.down, cluster.up


def test_nothing_is_lost_when_all_brokers_go_down(cluster, tmp_path):
    nothing_is_lost(Brokers(cluster), cluster.url(topic="t"), cluster.url(topic="t", group="g"),
                    tmp_path, count=3000)


class Odd(Numbers):
    """Keys, headers, times, and messages of these sizes."""

    sizes = {}

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.key, message.time = b"k", 1e9
            message.headers = [("one", b"\xff\r\n"), ("one", b"2"), ("", b"")]
            message.body += b" " * (self.sizes.get(message.token, 0) - len(message.body))
        return found


async def read(url, count, **options):
    sink = Keyed()
    runner = Runner(url, sink, pause=0.01, **options)
    await moved(runner, lambda: runner.stats().acknowledged >= count)
    laws(runner.stats())
    return sink


def test_keys_headers_and_times_pass(cluster):
    async def main():
        source = Odd(20)
        await moved(Runner(source, cluster.url(topic="t"), pause=0.01),
                    lambda: len(source.done) == 20)
        sink = await read(cluster.url(topic="t", group="g"), 20)
        assert bodies(sink) == list(range(20))          # one key: one partition, in order
        first = sink.taken[0]
        assert (first.key, first.time, first.address) == (b"k", 1e9, "t")
        assert first.headers == [("one", b"\xff\r\n"), ("one", b"2"), ("", b"")]
        assert len({message.id for message in sink.taken}) == 20
        again = await read(cluster.url(topic="t", group="other"), 20)
        assert [message.stamp for message in again.taken] == \
            [message.stamp for message in sink.taken]
    asyncio.run(main())


def test_a_journal_stores_what_kafka_delivers_again_once(cluster, tmp_path):
    """Two groups read the topic: the second one's messages have come before."""
    async def main():
        source = Numbers(200)
        await moved(Runner(source, cluster.url(topic="t"), batch=50),
                    lambda: len(source.done) == 200)
        for group in ("g", "h"):
            runner = Runner(cluster.url(topic="t", group=group),
                            f"journal:{tmp_path}/j?topic=t&deduplicate=true")
            await moved(runner, lambda: runner.stats().acknowledged == 200)
            assert runner.stats().delivered == 200
            laws(runner.stats())
    asyncio.run(main())
    with journal.open(tmp_path / "j", topic="t") as log:
        assert sorted(map(int, log.read(0).to_list())) == list(range(200))


def test_a_tombstone_stays_one(cluster):
    async def main():
        from confluent_kafka import Producer
        producer = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
        producer.produce("one", None, b"k")
        producer.produce("one", b"", b"k")
        assert producer.flush(LIMIT) == 0
        del producer
        sink = Keyed()
        first = Runner(cluster.url(topic="one", group="g"), cluster.url(topic="t"))
        await moved(first, lambda: first.stats().acknowledged == 2)
        second = Runner(cluster.url(topic="t", group="g"), sink)
        await moved(second, lambda: second.stats().acknowledged == 2)
        assert [(message.body, message.headers) for message in sink.taken] == \
            [(b"", [("kafka-tombstone", b"1")]), (b"", [])]
    asyncio.run(main())


def test_what_is_too_large_is_a_dead_letter(cluster):
    class Large(Odd):
        sizes = {3: 3000, 9: 1_000_000}

    async def main():
        source, letters = Large(12), Sink()
        runner = Runner(source, cluster.url(topic="one", max_bytes=2000), dead=letters, pause=0.01)
        await moved(runner, lambda: len(source.done) == 12)
        assert [message.id for message in letters.taken] == ["3", "9"]
        assert b"Message size too large" in dict(letters.taken[0].headers)["dead-reason"]
        laws(runner.stats())
    asyncio.run(main())


def test_a_batch_that_a_broker_refuses_is_sent_one_by_one(cluster):
    """It may refuse many for the sake of one: here the batch, then one of its messages."""
    async def main():
        source, letters = Numbers(10), Sink()
        cluster.fail(PRODUCE, "MSG_SIZE_TOO_LARGE", 2)
        runner = Runner(source, cluster.url(topic="one", set="linger.ms%3D500"), dead=letters,
                        pause=0.01)
        await moved(runner, lambda: len(source.done) == 10)
        assert bodies(letters) == [0]
        laws(runner.stats())
        assert bodies(await read(cluster.url(topic="one", group="g"), 9)) == list(range(1, 10))
    asyncio.run(main())


def test_errors_that_pass_cost_nothing(cluster):
    async def main():
        source = Numbers(500)
        for error in ("NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "NOT_LEADER_FOR_PARTITION"):
            cluster.fail(PRODUCE, error)
        runner = Runner(source, cluster.url(topic="one"), dead="discard", batch=100, pause=0.01)
        await moved(runner, lambda: len(source.done) == 500)
        assert runner.stats().discarded == 0
        cluster.fail(FETCH, "NOT_LEADER_FOR_PARTITION")
        sink = await read(cluster.url(topic="one", group="g"), 500)
        assert list(dict.fromkeys(bodies(sink))) == list(range(500))
    asyncio.run(main())


def test_a_commit_that_fails_connects_again_and_asks_the_target_only_once(cluster):
    async def main():
        source, sink = Numbers(300), Sink()
        await moved(Runner(source, cluster.url(topic="one")), lambda: len(source.done) == 300)
        cluster.fail(OFFSET_COMMIT, "TOPIC_AUTHORIZATION_FAILED")
        runner = Runner(cluster.url(topic="one", group="g"), sink, batch=20, pause=0.01)
        await moved(runner, lambda: runner.source.side.committed.get(("one", 0)) == 300)
        laws(runner.stats())
        assert runner.stats().source_reconnects and runner.stats().unacknowledged
        assert bodies(sink) == list(range(300))
    asyncio.run(main())


class Gate(Sink):
    """Takes nothing until `open` is set; counts what it was asked."""

    def __init__(self):
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = 0

    async def send(self, messages):
        self.asked += 1
        await self.gate.wait()
        return await super().send(messages)


def test_a_target_that_is_away_does_not_cost_the_membership(cluster):
    """For longer than max.poll.interval.ms, and with more messages than the bridge may hold: the
    partitions are paused, and read on where they were."""
    async def main():
        source, sink = Numbers(6000), Gate()
        await moved(Runner(source, cluster.url(topic="t"), batch=500),
                    lambda: len(source.done) == 6000)
        url = cluster.url(topic="t", group="g") + \
            "&set=max.poll.interval.ms%3D4000"
        runner = Runner(url, sink, window=100, pause=0.01, confirm_timeout=LIMIT)
        task = asyncio.ensure_future(runner.run())
        async with asyncio.timeout(LIMIT):
            while ", paused" not in runner.explain():
                await asyncio.sleep(0.01)
            began = time.monotonic()
            while time.monotonic() < began + 6.0:       # what is waited for is time itself
                await asyncio.sleep(0.05)
            side = runner.source.side
            assert runner.stats().received == 100 and len(side.waiting) <= 4000
            assert side.assignments == 1 and len(side.owned) == 3
            sink.gate.set()
            while runner.stats().acknowledged < 6000:
                await asyncio.sleep(0.01)
        runner.stop()
        await task
        laws(runner.stats())
        assert sorted(bodies(sink)) == list(range(6000)) and runner.stats().source_reconnects == 0
    asyncio.run(main())


class Keys(Numbers):
    """Over all partitions."""

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.key = b"%d" % (message.token % 50)
        return found


def counted(real, seen):
    def call(group, client, partitions):
        seen.append(len(partitions))
        real(group, client, partitions)
    return call


@pytest.mark.parametrize("strategy", [
    "cooperative-sticky", pytest.param("range", marks=pytest.mark.slow)])
def test_a_member_that_joins_takes_over(cluster, strategy, monkeypatch, caplog):
    """The first member hands partitions over after the target has what it holds of them. The mock
    cluster takes a commit in a cooperative rebalance only, Kafka in both: with the other strategy,
    what a member held when it gave its partitions up comes again. So it does if the group has moved
    on meanwhile, since a member was silent for a session time-out: the commit is refused then, or
    the partitions are lost."""
    caplog.set_level("INFO", "mqcore.bridge")
    revoked, lost = [], []
    for name, seen in (("_on_revoke", revoked), ("_on_lost", lost)):
        monkeypatch.setattr(KafkaSource, name, counted(getattr(KafkaSource, name), seen))

    async def main():
        source = Keys(600)
        await moved(Runner(source, cluster.url(topic="t"), batch=100),
                    lambda: len(source.done) == 600)
        url = cluster.url(topic="t", group="g", handover=60) + \
            f"&set=partition.assignment.strategy%3D{strategy}"
        one, two = Gate(), Sink()
        first = Runner(url, one, batch=10, window=50, confirm_timeout=LIMIT)
        second = Runner(url, two, batch=10, window=50)
        tasks = [asyncio.ensure_future(first.run())]
        async with asyncio.timeout(LIMIT):
            while first.stats().held < 50:
                await asyncio.sleep(0.01)
            tasks.append(asyncio.ensure_future(second.run()))
            while not (first.source.side.revoking or second.source.side.owned):
                await asyncio.sleep(0.01)
            one.gate.set()
            while len({*bodies(one), *bodies(two)}) < 600:
                await asyncio.sleep(0.01)
        for runner in (first, second):
            runner.stop()
        await asyncio.gather(*tasks)
        assert two.taken, "the second member had no share"
        twice = len(one.taken) + len(two.taken) - 600
        refused = caplog.text.count("the last commit of a rebalance")
        assert twice <= 50 * (len(lost) + (len(revoked) if strategy == "range" else refused))
        for runner in (first, second):
            laws(runner.stats())
    asyncio.run(main())


def test_a_member_that_does_not_get_rid_of_its_messages_lets_go(cluster):
    """The target is away for longer than `handover`: the other member gets them again."""
    async def main():
        source = Numbers(100)
        await moved(Runner(source, cluster.url(topic="one")), lambda: len(source.done) == 100)
        url = cluster.url(topic="one", group="g", handover=0.1)
        one, two = Gate(), Sink()
        first = Runner(url, one, batch=10, confirm_timeout=LIMIT)
        task = asyncio.ensure_future(first.run())
        async with asyncio.timeout(LIMIT):
            while first.stats().held < 100:
                await asyncio.sleep(0.01)
            side = first.source.side
            second = [Runner(url, two, batch=10) for _ in range(3)]     # one has the partition
            others = [asyncio.ensure_future(runner.run()) for runner in second]
            while side.owned and not two.taken:
                await asyncio.sleep(0.01)
            had = bool(side.owned)      # the only partition may have come back to the first
            one.gate.set()
            while sum(runner.stats().acknowledged for runner in (first, *second)) < 100:
                await asyncio.sleep(0.01)
        for runner in (first, *second):
            runner.stop()
        await asyncio.gather(task, *others)
        assert set(bodies(one)) | set(bodies(two)) == set(range(100)), had
        for runner in (first, *second):
            laws(runner.stats())
    asyncio.run(main())


STOPPED = """
import asyncio, sys
from bridging import LIMIT, Numbers, Sink, laws
from mqcore.bridge.runner import Runner
async def main():
    source, sink = Numbers(2000), Sink()
    runner = Runner(source, sys.argv[1], batch=50, window=100, pause=0.01)
    reader = Runner(sys.argv[2], sink, batch=20, pause=0.01)
    tasks = [asyncio.ensure_future(one.run(linger=0.1)) for one in (runner, reader)]
    async with asyncio.timeout(LIMIT):
        while reader.stats().acknowledged < 100:
            await asyncio.sleep(0.005)
        print("kill", flush=True)
        sys.stdin.readline()
        for one in (runner, reader):
            one.stop()
        await asyncio.gather(*tasks)
    for one in (runner, reader):
        laws(one.stats())
asyncio.run(main())
"""


def test_a_cluster_that_dies_and_stays_away_can_be_stopped(cluster):
    """In the middle of a batch, and while offsets are committed: then librdkafka's close() may
    never return. The bridge ends all the same, and so does its program."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, cluster.url(topic="t"), cluster.url(topic="t", group="g")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(bridging.__file__).parent)})
    assert process.stdout.readline() == "kill\n", process.communicate()
    cluster.kill()
    try:
        _, err = process.communicate("\n", timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err


class Stuck:
    """A client whose end waits for a broker."""

    def __init__(self, client):
        self.client, self.broker = client, threading.Event()

    def __getattr__(self, name):
        return getattr(self.client, name)

    def close(self):
        self.broker.wait()
        self.client.close()


def test_a_client_that_does_not_end_is_left_behind(cluster, monkeypatch):
    monkeypatch.setattr(connection, "CLOSING", 0.2)
    side = plugins.source(cluster.url(topic="t", group="g"))

    async def main():
        await side.open()
        side.client = stuck = Stuck(side.client)
        async with asyncio.timeout(LIMIT):
            await connection.Connection(side, 0.1, 0.1).close()
        return stuck

    stuck = asyncio.run(main())         # nor does the loop's end wait
    stuck.broker.set()
    for thread in threading.enumerate():
        if thread.name == "mqcore-bridge":
            thread.join(LIMIT)


def test_an_assignment_that_comes_at_the_end_is_taken_first(cluster):
    """librdkafka never closes with one that waits (its issue 4884)."""
    side = plugins.source(cluster.url(topic="t", group="g"))

    class Watched:
        def __init__(self, client):
            self.client, self.calls = client, []

        def __getattr__(self, name):
            def call(*arguments):
                self.calls.append(name)
                return getattr(self.client, name)(*arguments)
            return call

    async def main():
        await side.open()
        side.ending = True              # nothing polls any more
        side.space.set()
        await asyncio.wait([side.polling])
        side.client = watched = Watched(side.client)
        await side.close()
        return watched.calls

    calls = asyncio.run(main())
    assert calls[0] == "unsubscribe" and set(calls[1:-1]) == {"poll"} and calls[-1] == "close"


def test_a_bridge_in_a_forked_child_is_not_there(cluster):
    with bridge.Bridge(cluster.url(topic="one", group="g"), Sink()) as running:
        end = time.monotonic() + LIMIT
        while not running.stats().source_connected:
            assert time.monotonic() < end
            time.sleep(0.01)
        child = os.fork()
        if not child:
            code = 1
            try:
                assert not running.running
                running.stop()
                with pytest.raises(mq.Error, match="parent process"):
                    running.wait_stopped(0)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert running.running


@pytest.mark.parametrize(("address", "word"), [
    ("kafka://h?group=g", "topic"), ("kafka://h?topic=t", "group"),
    ("kafka://h?topic=t&group=g&start=never", "start"),
    ("kafka://h?topic=t&group=g&handover=-1", "handover"),
    ("kafka://h?topic=t&group=g&set=nonsense", "NAME"),
    ("kafka://h?topic=t&group=g&set=enable.auto.commit%3Dtrue", "enable.auto.commit"),
    ("kafka://?topic=t&group=g", "no host"),
], ids=str)
def test_addresses_with_mistakes(address, word):
    with pytest.raises(mq.Error, match=word):
        plugins.source(address)


def test_targets_with_mistakes():
    with pytest.raises(mq.UsageError, match="2 topics"):
        plugins.target("kafka://h?topic=t&topic=u")
    with pytest.raises(mq.UsageError, match="max_bytes"):
        plugins.target("kafka://h?topic=t&max_bytes=1")

    async def main():
        with pytest.raises(mq.UsageError, match="nonsense"):
            await Runner(Numbers(1), "kafka://127.0.0.1:1?topic=t&set=nonsense%3D1").run()
    asyncio.run(main())


def test_hosts_and_ports():
    assert plugins.target("kafka://me:secret@a,b:1,[::1],[::1]:2?topic=t").servers == \
        ("a:9092", "b:1", "[::1]:9092", "[::1]:2")


@pytest.mark.parametrize(("source", "target"), [
    ("kafka://a,b?topic=t&topic=u&group=g", "kafka://b:9092?topic=u"),
    ("kafka://h?topic=t&group=g", "kafka://h"),
])
def test_a_circle_is_refused(source, target):
    with pytest.raises(mq.OptionError, match="circle"):
        Runner(source, target)
