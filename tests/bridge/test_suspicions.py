"""Suspicions about sides of ours and of others that turned out to be right: closed while they
receive, full in the middle of a batch, slow without a confirmation."""

import asyncio

import pytest
from bridging import Numbers, Sink, bodies, laws, moved
from fake_brokers import FakeNats

import mqcore as mq
from mqcore import journal
from mqcore.bridge import plugins
from mqcore.bridge.runner import Runner


@pytest.fixture(autouse=True)
def default_context():
    """The bridge's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


@pytest.mark.parametrize("kind", ["journal", "queue"])
def test_a_source_that_is_closed_while_it_receives_goes_on(kind, tmp_path):
    """An acknowledgment fails while receive() waits for more: the side is closed and opened."""
    with journal.serve_queues(tmp_path / "q", f"ipc://{tmp_path}/s") as server:
        url = server.urls[0]
        if kind == "journal":
            where = f"journal:{tmp_path}/j?topic=t&group=g"
            with journal.open(tmp_path / "j", "a", topic="t") as log:
                log.append_many([b"%d" % n for n in range(10)])
        else:
            where = f"queue:{url}?queue=q"
            with journal.queue(url, "q") as queue:
                queue.put_many([b"%d" % n for n in range(10)])

        async def main():
            source, sink = plugins.source(where), Sink()
            acknowledge, receive, waits = source.acknowledge, source.receive, asyncio.Event()
            failed = []

            async def waiting(most):
                if runner.stats().received == 10:
                    waits.set()
                return await receive(most)

            async def failing(messages):
                if not failed:
                    await waits.wait()
                    for _ in range(5):      # receive() waits now
                        await asyncio.sleep(0)
                    failed.append(1)
                    raise ConnectionError("lost before the acknowledgment")
                await acknowledge(messages)
            source.acknowledge, source.receive = failing, waiting
            runner = Runner(source, sink, pause=0.001)
            await moved(runner, lambda: runner.stats().acknowledged == 10)
            assert failed and runner.stats().source_reconnects >= 1
            assert bodies(sink) == list(range(10))      # known, when they came again
            laws(runner.stats())
        asyncio.run(main())


class Nameless(Numbers):
    """Messages without ids, so a stream cannot deduplicate them."""

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.id = None
        return found


def test_what_a_full_stream_has_taken_is_not_sent_again():
    async def main():
        class Once(FakeNats):
            """Refuses the rest of the first batch from its sixth message on."""
            seen = 0

            def take(self, line, inboxes, head, body, writer):
                self.seen += 1
                self.full = 5 < self.seen <= 10
                return super().take(line, inboxes, head, body, writer)
        async with Once() as fake:
            source = Nameless(20)
            runner = Runner(source, f"nats://127.0.0.1:{fake.port}?stream=S&subject=s", batch=10,
                            pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(source.done) == 20)
            assert [int(body) for body in fake.stored] == list(range(20))
            laws(runner.stats())
    asyncio.run(main())


def test_what_a_full_redis_has_taken_is_not_sent_again(monkeypatch):
    async def main():
        target = plugins.target("redis://h?stream=s")
        out_of_memory = target.transient[-1]("OOM command not allowed")
        stored, answers = [], [[b"1", b"2", out_of_memory, out_of_memory], [b"3"], [b"4"]]

        class Pipeline:
            async def __aenter__(self):
                self.rows = []
                return self

            async def __aexit__(self, *_):
                pass

            def xadd(self, _, fields, maxlen):
                self.rows.append(fields[b"body"])

            async def execute(self, raise_on_error):
                told = answers.pop(0)[:len(self.rows)]
                stored.extend(body for body, answer in zip(self.rows, told, strict=True)
                              if isinstance(answer, bytes))
                return told

        class Client:
            def pipeline(self, transaction):
                return Pipeline()

            async def aclose(self):
                pass

        async def opened():
            target.client = Client()
        monkeypatch.setattr(target, "open", opened)
        source = Numbers(4)
        runner = Runner(source, target, pause=0.001)
        await moved(runner, lambda: len(source.done) == 4)
        assert stored == [b"0", b"1", b"2", b"3"]
        laws(runner.stats())
    asyncio.run(main())


def test_a_target_that_confirms_nothing_is_waited_for():
    """A push socket without room, say. To close it after confirm_timeout would lose what it holds
    and what the source was told that it has."""
    class Slow(Sink):
        confirms = False

        async def send(self, messages):
            await asyncio.sleep(0.2)        # four times confirm_timeout
            return await super().send(messages)

    async def main():
        source, sink = Numbers(10), Slow()
        runner = Runner(source, sink, batch=5, confirm_timeout=0.05, pause=0.001)
        await moved(runner, lambda: len(source.done) == 10)
        assert bodies(sink) == list(range(10)) and runner.stats().target_reconnects == 0
        laws(runner.stats())
    asyncio.run(main())
