"""Bridges over AMQP 1.0, with RabbitMQ's plug-in: a queue while the broker is killed, what passes,
what it refuses."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, laws, moved
from killing import nothing_is_lost

import mqcore as mq
from mqcore.bridge import plugins
from mqcore.bridge.runner import Runner

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(400)]


def test_nothing_is_lost_when_the_broker_is_killed(broker, tmp_path):
    rabbit = broker("amqp10")
    where = f"{rabbit.url}?address=/queue/numbers"
    nothing_is_lost(rabbit, where, where, tmp_path, count=2000, kills=1)


class Odd(Numbers):
    """Headers and keys; one body is too large."""

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.key, message.time = b"k", 1e9
            message.headers = [("one", b"\xff\r\n"), ("amqp-content_type", b"text/plain"),
                               ("amqp-correlation_id", b"c")]
            if message.token == 3:
                message.body = b"x" * 1001
        return found


def test_what_passes_and_what_is_refused(broker):
    url = broker("amqp10").url

    async def main():
        source, letters, sink = Odd(12), Sink(), Sink()
        where = f"{url}?address=/queue/q"
        runner = Runner(source, f"{where}&max_bytes=1000", dead=letters, pause=0.01)
        await moved(runner, lambda: len(source.done) == 12)
        assert [message.id for message in letters.taken] == ["3"]
        laws(runner.stats())
        second = Runner(where, sink, pause=0.01)
        await moved(second, lambda: second.stats().acknowledged == 11)
        assert [int(message.body) for message in sink.taken] == [n for n in range(12) if n != 3]
        first = sink.taken[0]
        assert (first.key, first.time, first.redelivered) == (b"k", 1e9, False)
        assert dict(first.headers) == {
            "one": b"\\xff\\r\\n", "amqp-content_type": b"text/plain", "mq-key": b"k",
            "amqp-correlation_id": b"c", "amqp-message_id": b"0"}
        await again(where)
        await to_the_other_protocol(where, url)
        await wrong_user(where)
    asyncio.run(main())


async def again(url):
    """What a bridge holds when it ends goes to the next one, which is told; credit bounds it."""
    source, sink = Numbers(50), Sink()
    await moved(Runner(source, url), lambda: len(source.done) == 50)

    class Stuck(Sink):
        async def send(self, messages):
            await asyncio.Event().wait()
    first = Runner(f"{url}&prefetch=10", Stuck(), pause=0.01)
    task = asyncio.ensure_future(first.run(linger=0))
    async with asyncio.timeout(LIMIT):
        while first.stats().held < 10:
            await asyncio.sleep(0.01)
    assert first.stats().received == 10
    first.stop()
    await task
    second = Runner(f"{url}&prefetch=7", sink, pause=0.01)
    await moved(second, lambda: second.stats().acknowledged == 50)
    assert sorted(int(message.body) for message in sink.taken) == list(range(50))
    assert any(message.redelivered for message in sink.taken)


async def to_the_other_protocol(where, url):
    """Properties have the same names in a bridge's headers."""
    source, sink = Odd(2), Sink()
    await moved(Runner(source, where), lambda: len(source.done) == 2)
    runner = Runner(url.replace("amqp10", "amqp") + "?queue=q", sink, pause=0.01)
    await moved(runner, lambda: runner.stats().acknowledged == 2)
    assert dict(sink.taken[0].headers)["amqp-correlation_id"] == b"c"


async def wrong_user(url):
    with pytest.raises(mq.UsageError, match="refuses this user") as caught:
        async with asyncio.timeout(LIMIT):
            await Runner(Numbers(1), url.replace("//", "//me:secret@")).run()
    assert "secret" not in str(caught.value)


def test_addresses_with_mistakes():
    for address, word in (("amqp10://h", "address"), ("amqp10://h?address=a&prefetch=0",
                                                       "prefetch")):
        with pytest.raises(mq.Error, match=word):
            plugins.source(address)
    with pytest.raises(mq.OptionError, match="circle"):
        Runner("amqp10://h?address=a", "amqp10://h:5672?address=a")
    assert "secret" not in plugins.target("amqp10://me:secret@h?address=a").explain()
