"""Bridges over a real RabbitMQ: a queue while the broker is killed, exchanges, what it refuses."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, laws, moved
from killing import nothing_is_lost

import mqcore as mq
from mqcore import bridge
from mqcore.bridge.runner import Runner

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(400)]


def test_nothing_is_lost_when_rabbitmq_is_killed(broker, tmp_path):
    rabbit = broker("amqp")
    where = f"{rabbit.url}?queue=numbers&create=true"
    nothing_is_lost(rabbit, where, where, tmp_path, kills=2)


class Odd(Numbers):
    """Headers and keys, and some that AMQP or the broker cannot take."""

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.key, message.time = b"k", 1e9
            message.headers = [("one", b"\xff\r\n"), ("amqp-content_type", b"text/plain")]
            message.address = {3: "unbound", 4: "k" * 256}.get(message.token, "bound")
            if message.token == 5:
                message.headers.append(("h" * 256, b""))
            if message.token == 6:
                message.body = b"x" * 3000
            if message.token == 7:
                message.body = b"x" * 1001
        return found


def test_what_rabbitmq_takes_and_refuses(broker):
    """One broker for all: it takes long to start."""
    rabbit = broker("amqp")
    asyncio.run(headers_and_refusals(rabbit.url))
    asyncio.run(full_queue(rabbit.url))
    asyncio.run(wrong_user(rabbit.url))
    asyncio.run(other_declaration(rabbit.url))
    asyncio.run(deleted_queue(rabbit.url))


def channel_of(url):
    import pika
    return pika.BlockingConnection(pika.URLParameters(url)).channel()


async def headers_and_refusals(url):
    channel = channel_of(url)
    channel.exchange_declare("ex", "topic")
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "ex", "bound")
    source, letters, sink = Odd(12), Sink(), Sink()
    runner = Runner(source, f"{url}?exchange=ex&max_bytes=1000", dead=letters, pause=0.01,
                    longest_pause=0.05)
    await moved(runner, lambda: len(source.done) == 12)
    assert [message.id for message in letters.taken] == ["3", "4", "5", "6", "7"]
    laws(runner.stats())
    second = Runner(f"{url}?queue=q", sink, pause=0.01)
    await moved(second, lambda: len(sink.taken) == 7 and second.stats().acknowledged == 7)
    assert [int(message.body) for message in sink.taken] == [0, 1, 2, 8, 9, 10, 11]
    first = sink.taken[0]
    assert (first.key, first.time, first.address) == (b"k", 1e9, "bound")
    assert dict(first.headers) == {"one": b"\\xff\\r\\n", "amqp-content_type": b"text/plain",
                                   "amqp-message_id": b"0", "mq-key": b"k"}
    channel.connection.close()


async def full_queue(url):
    channel = channel_of(url)
    channel.queue_declare("full", durable=True,
                          arguments={"x-max-length": 7, "x-overflow": "reject-publish"})
    source, sink = Numbers(60), Sink()
    runner = Runner(source, f"{url}?queue=full", dead="discard", batch=20, pause=0.001,
                    longest_pause=0.05)
    task = asyncio.ensure_future(runner.run())
    async with asyncio.timeout(LIMIT):
        while runner.stats().target_reconnects < 3:
            await asyncio.sleep(0.01)
        second = Runner(f"{url}?queue=full", sink, pause=0.01)
        await moved(second, lambda: len(source.done) == 60 and len(
            {message.body for message in sink.taken}) == 60)
    runner.stop()
    await task
    assert runner.stats().discarded == 0
    laws(runner.stats())
    channel.connection.close()


async def wrong_user(url):
    with pytest.raises(mq.UsageError, match="refuses this user") as caught:
        async with asyncio.timeout(LIMIT):
            await Runner(Numbers(1), url.replace("//", "//me:secret@") + "?queue=q").run()
    assert "secret" not in str(caught.value)


async def other_declaration(url):
    """create=true declares the queue in another way than it is."""
    with pytest.raises(mq.UsageError, match="inequivalent"):
        async with asyncio.timeout(LIMIT):
            await Runner(Numbers(1), f"{url}?queue=full&create=true").run()


async def deleted_queue(url):
    """The bridge waits until there is a queue again."""
    channel = channel_of(url)
    channel.queue_declare("gone", durable=True)
    sink = Sink()
    runner = Runner(f"{url}?queue=gone", sink, pause=0.01, longest_pause=0.05)
    task = asyncio.ensure_future(runner.run())
    async with asyncio.timeout(LIMIT):
        while not runner.stats().source_connected:
            await asyncio.sleep(0.01)
        channel.queue_delete("gone")
        while not runner.stats().source_reconnects:
            await asyncio.sleep(0.01)
        channel.queue_declare("gone", durable=True)
        channel.basic_publish("", "gone", b"back")
        while not sink.taken:
            await asyncio.sleep(0.01)
    runner.stop()
    await task
    channel.connection.close()


def test_a_bridge_into_its_own_queue_is_refused():
    with pytest.raises(mq.OptionError, match="circle"):
        bridge.Bridge("amqp://h?queue=a", "amqp://h:5672?queue=a")
