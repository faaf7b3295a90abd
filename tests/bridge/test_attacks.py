"""Bridges under attack: targets that refuse for ever, dead-letter targets that are away or full,
circles, functions that return nonsense, processes killed between two acknowledgments."""

import asyncio
import signal
import sys
import threading
from subprocess import PIPE, Popen

import pytest
from bridging import LIMIT, Numbers, Sink, bodies, laws, moved

import mqcore as mq
from mqcore import bridge, journal
from mqcore.bridge.runner import Runner


@pytest.fixture(autouse=True)
def default_context():
    """The bridge's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


@pytest.fixture
def served(tmp_path):
    """serve(**options): a queue server's URL."""
    servers = []

    def serve(**options):
        servers.append(journal.serve_queues(tmp_path / f"q{len(servers)}",
                                            f"ipc://{tmp_path}/s{len(servers)}", **options))
        return servers[-1].urls[0]
    yield serve
    for server in servers:
        server.stop()


class Everything:
    def __contains__(self, body):
        return True


def test_a_target_that_refuses_all_for_ever():
    async def main():
        source, letters = Numbers(300), Sink()
        runner = Runner(source, Sink(source, bad=Everything()), dead=letters, batch=16,
                        pause=0.001)
        await moved(runner, lambda: len(source.done) == 300)
        assert bodies(letters) == list(range(300))
        counts = runner.stats()
        laws(counts)
        assert counts.dead == 300 and counts.delivered == counts.target_reconnects == 0
    asyncio.run(main())


def test_a_job_that_never_fits_its_queue_is_a_dead_letter(served):
    url = served(limits=journal.QueueLimits(job_bytes=1000),
                 defaults=journal.QueueOptions(max_bytes=500))
    sizes = {3: 501, 4: 2000, 9: 501}

    class Sized(Numbers):
        async def receive(self, most):
            found = await super().receive(most)
            for message in found:
                message.body += b" " * (sizes.get(message.token, 10) - len(message.body))
            return found

    async def main():
        source, letters = Sized(12), Sink()
        runner = Runner(source, f"queue:{url}?queue=q", dead=letters, pause=0.001)
        await moved(runner, lambda: len(source.done) == 12)
        assert bodies(letters) == [3, 4, 9]
        assert b"JobTooLarge" in dict(letters.taken[0].headers)["dead-reason"]
        laws(runner.stats())
    asyncio.run(main())
    with journal.queue(url, "q") as queue:
        assert [int(job.body) for job in queue.get_many(20, timeout=LIMIT)] == \
            [n for n in range(12) if n not in sizes]


def test_a_full_queue_is_waited_for_and_gets_nothing_twice(served):
    """Each message has headers of its own, so a batch is many puts: those before the one that finds
    the queue full are not repeated."""
    url = served(defaults=journal.QueueOptions(max_jobs=7))

    class Headed(Numbers):
        async def receive(self, most):
            found = await super().receive(most)
            for message in found:
                message.headers = [("n", message.body)]
            return found

    taken = []

    def consume():
        with journal.queue(url, "q") as queue:
            while len(taken) < 60:
                for job in queue.get_many(5, timeout=LIMIT):
                    taken.append(int(job.body))
                    job.ack()

    async def main():
        source = Headed(60)
        runner = Runner(source, f"queue:{url}?queue=q", dead="discard", batch=20, pause=0.001,
                        longest_pause=0.01)
        consumer = threading.Thread(target=consume)
        task = asyncio.ensure_future(runner.run())
        async with asyncio.timeout(LIMIT):
            while not runner.stats().target_reconnects:
                await asyncio.sleep(0.005)
        consumer.start()
        async with asyncio.timeout(LIMIT):
            while len(source.done) < 60:
                await asyncio.sleep(0.005)
        runner.stop()
        await task
        await asyncio.to_thread(consumer.join, LIMIT)
        laws(runner.stats())
        assert runner.stats().discarded == 0
    asyncio.run(main())
    assert taken == list(range(60))


class Away(Sink):
    tries = 0

    async def send(self, messages):
        self.tries += 1
        if self.tries < 20:
            raise ConnectionError("away")
        return await super().send(messages)


def test_a_dead_letter_target_that_is_away_is_waited_for():
    async def main():
        source, letters = Numbers(10), Away()
        runner = Runner(source, Sink(bad=(b"3", b"8")), dead=letters, pause=0.001,
                        longest_pause=0.002)
        await moved(runner, lambda: len(source.done) == 10)
        assert bodies(letters) == [3, 8]
        laws(runner.stats())
    asyncio.run(main())


def test_a_dead_letter_target_that_is_full_holds_the_bridge_back(served):
    url = served(defaults=journal.QueueOptions(max_jobs=1))

    async def main():
        source = Numbers(10)
        runner = Runner(source, Sink(bad=(b"3", b"8")), dead=f"queue:{url}?queue=d", batch=2,
                        pause=0.001, longest_pause=0.005)
        task = asyncio.ensure_future(runner.run())
        async with journal.queue(url, "d") as queue:
            async with asyncio.timeout(LIMIT):
                while (await queue.astats()).refused < 2:
                    await asyncio.sleep(0.005)
                assert not source.done & {8, 9}
                job = await queue.aget(timeout=LIMIT)
                assert job.body == b"3"
                await job.aack()
                while len(source.done) < 10:
                    await asyncio.sleep(0.005)
        runner.stop()
        await task
        laws(runner.stats())
    asyncio.run(main())


def test_a_bridge_whose_dead_letter_target_never_comes_can_be_stopped():
    class Never(Sink):
        async def send(self, messages):
            raise ConnectionError("away")

    async def main():
        source = Numbers(10)
        runner = Runner(source, Sink(bad=(b"3",)), dead=Never(), batch=1, pause=0.001,
                        longest_pause=0.002)
        task = asyncio.ensure_future(runner.run(linger=0.01))
        async with asyncio.timeout(LIMIT):
            while runner.dead.reconnects < 5:
                await asyncio.sleep(0.002)
            runner.stop()
            await task
        assert source.done == {0, 1, 2}         # the others stay in the source
        laws(runner.stats())
    asyncio.run(main())


@pytest.mark.parametrize("result", ["text", 5, b"bytes", bridge.Message("no bytes")],
                         ids=lambda result: type(result).__name__)
def test_what_a_function_must_not_return_is_a_dead_letter(result):
    async def main():
        source, letters = Numbers(5), Sink()
        runner = Runner(source, Sink(source), dead=letters,
                        map=lambda message: result if message.body == b"2" else message)
        await moved(runner, lambda: len(source.done) == 5)
        assert bodies(letters) == [2]
        assert b"map= has" in dict(letters.taken[0].headers)["dead-reason"]
    asyncio.run(main())


CIRCLES = [
    ("queue:tcp://h:1?queue=a", "queue:tcp://h:1?queue=a"),
    ("journal:FOLDER?topic=t&group=g", "journal:FOLDER/../FOLDER?topic=t"),
    ("redis://h?stream=s", "redis://me:secret@h:6379/0?stream=s"),
    ("redis://h?channel=c", "redis://h?channel=c"),
    ("redis://h/0?channel=news.*", "redis://h/1?channel=news.a"),
    ("nats://h?subject=a.*.c", "nats://h:4222?subject=a.b.c"),
    ("nats://h?subject=a.>&stream=S", "nats://h?subject=a.b.c"),
    ("mqtt://h?topic=x&topic=a/%2B&client=c", "mqtt://h:1883?topic=a/b"),
    ("mqtt://h?topic=%23&client=c", "mqtt://h:1883?topic=a/b"),
    ("amqp://h?queue=a", "amqp://h:5672?queue=a"),
    ("mqtt://h?topic=a&client=c", "mqtt://h"),
    ("nats://h?subject=a", "nats://h"),
    ("pull+bind:tcp://h:1", "push+connect:tcp://h:1"),
    ("bus+connect:ipc://a", "bus+bind:ipc://a"),
]


@pytest.mark.parametrize("source, target", CIRCLES, ids=[row[0] for row in CIRCLES])
@pytest.mark.parametrize("dead", [False, True], ids=["target", "dead"])
def test_a_circle_is_refused(source, target, dead, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").mkdir()
    with pytest.raises(mq.OptionError, match="go in a circle") as caught:
        if dead:
            Runner(source, Sink(), dead=target)
        else:
            Runner(source, target)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("source, target", [
    ("queue:tcp://h:1?queue=a", "queue:tcp://h:1?queue=b"),
    ("redis://h/0?stream=s", "redis://h/1?stream=s"),
    ("redis://h?stream=s", "redis://h?channel=s"),
    ("redis://h?channel=news.*", "redis://h?channel=old.a"),
    ("redis://h?channel=news.*", "redis://other?channel=news.a"),
    ("nats://h?subject=a.*", "nats://h?subject=a.b.c"),
    ("nats://h?subject=a.b", "nats://h?subject=a"),
    ("mqtt://h?topic=a/%2B&client=c", "mqtt://h?topic=b/a"),
    ("amqp://h/one?queue=a", "amqp://h/two?queue=a"),
    ("pull+bind:tcp://*:0", "push+bind:tcp://*:0"),
], ids=str)
def test_what_is_no_circle(source, target):
    Runner(source, target)


def test_a_function_may_set_other_addresses():
    Runner("nats://h?subject=a", "nats://h", map=lambda message: message)
    with pytest.raises(mq.OptionError, match="go in a circle"):
        Runner("nats://h?subject=a", "nats://h?subject=a", map=lambda message: message)


KILLED = """
import os, signal, sys
from mqcore import bridge
from mqcore.bridge import plugins
from mqcore.bridge.runner import Runner
import asyncio

source = plugins.source(sys.argv[1])
acknowledge = source.acknowledge
calls = 0

async def killed(messages):
    global calls
    calls += 1
    if calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    await acknowledge(messages)

source.acknowledge = killed
asyncio.run(Runner(source, sys.argv[2], batch=10, window=10).run())
"""


@pytest.mark.parametrize("kinds", ["queue-journal", "journal-queue", "queue-queue"])
def test_kill_between_the_two_acknowledgments_loses_nothing(kinds, served, tmp_path):
    """The process dies when the target has the third batch, and the source does not know it."""
    url = served(defaults=journal.QueueOptions(grace=0.0, visibility=5.0))
    first, second = kinds.split("-")
    source = f"queue:{url}?queue=in" if first == "queue" else f"journal:{tmp_path}/in?group=g"
    target = f"queue:{url}?queue=out" if second == "queue" else f"journal:{tmp_path}/out"
    if first == "queue":
        with journal.queue(url, "in") as queue:
            queue.put_many([b"%d" % n for n in range(50)])
    else:
        with journal.open(tmp_path / "in", "a") as log:
            log.append_many([b"%d" % n for n in range(50)])
    process = Popen([sys.executable, "-c", KILLED, source, target], stderr=PIPE)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGKILL, err.decode()

    async def again():
        runner = Runner(source, target)
        await moved(runner, lambda: runner.stats().acknowledged == 30)
        laws(runner.stats())
    asyncio.run(again())
    if second == "queue":
        with journal.queue(url, "out") as queue:
            found = [int(job.body) for job in queue.get_many(100, timeout=LIMIT)]
    else:
        with journal.open(tmp_path / "out") as log:
            found = [int(body) for body in log.read(0).to_list()]
    assert sorted(found) == sorted([*range(50), *range(20, 30)])    # one batch came twice


def test_a_queue_server_that_is_killed_loses_nothing(tmp_path):
    """The target is a queue of a server that dies with SIGKILL, three times."""
    url = f"ipc://{tmp_path}/s"
    serve = [sys.executable, "-m", "mqcore", "queue", "serve", f"{tmp_path}/q", "--bind", url,
             "--every", "0"]

    def started():
        server = Popen(serve, stdout=PIPE)
        server.stdout.readline()        # it serves
        return server

    def ended(server):
        server.kill()
        server.wait()
        server.stdout.close()

    async def main():
        server, kills = started(), 0
        source = Numbers(3000)
        runner = Runner(source, f"queue:{url}?queue=q", batch=20, window=40, pause=0.001,
                        longest_pause=0.1)
        task = asyncio.ensure_future(runner.run())
        try:
            async with asyncio.timeout(LIMIT):
                while len(source.done) < 3000:
                    if kills < 3 and len(source.done) > 700 * (kills + 1):
                        kills += 1
                        ended(server)
                        server = await asyncio.to_thread(started)
                    await asyncio.sleep(0)
            async with journal.queue(url, "q") as queue:
                stored = [int(job.body) for job in await queue.aget_many(10_000, timeout=LIMIT)]
        finally:
            runner.stop()
            await task
            ended(server)
        assert kills == 3 and set(stored) == set(range(3000))
        assert list(dict.fromkeys(stored)) == list(range(3000))
        assert runner.stats().dead == 0
    asyncio.run(main())
