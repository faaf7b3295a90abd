"""Bridges over STOMP, with a real ActiveMQ and RabbitMQ: queues while the broker is killed, what
passes, what it refuses."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, laws, moved
from killing import nothing_is_lost

import mqcore as mq
from mqcore.bridge.runner import Runner

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(400)]
KINDS = {"activemq": "?destination=/queue/numbers", "rabbit-stomp":
         "?destination=/queue/numbers&vhost=/"}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_when_the_broker_is_killed(broker, tmp_path, kind):
    one = broker(kind)
    nothing_is_lost(one, one.url + KINDS[kind], one.url + KINDS[kind], tmp_path, count=1000,
                    kills=1 if kind == "rabbit-stomp" else 2)      # it takes long to start


class Odd(Numbers):
    """Headers and keys, and some that STOMP cannot carry."""

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.key = b"k:\\"
            message.headers = [("one", b"\xff\r\n:\\"), ("stomp-content-type", b"text/plain"),
                               ("stomp-correlation-id", b"c 1")]
            if message.token == 3:
                message.headers.append(("receipt", b"x"))
            if message.token == 4:
                message.headers.append(("a:b", b"x"))
            if message.token == 5:
                message.body = b"x" * 1001
            if message.token == 6:
                message.body += b"\0\n\0"
        return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_passes_and_what_is_refused(broker, kind):
    url = broker(kind).url + KINDS[kind]

    async def main():
        source, letters, sink = Odd(12), Sink(), Sink()
        runner = Runner(source, url + "&max_bytes=1000", dead=letters, pause=0.01)
        await moved(runner, lambda: len(source.done) == 12)
        assert [message.id for message in letters.taken] == ["3", "4", "5"]
        laws(runner.stats())
        second = Runner(url, sink, pause=0.01)
        await moved(second, lambda: second.stats().acknowledged == 9)
        assert [message.body for message in sink.taken] == \
            [b"0", b"1", b"2", b"6\0\n\0", b"7", b"8", b"9", b"10", b"11"]
        for message in sink.taken:
            assert dict(message.headers) == {
                "one": b"\\xff\\r\\n:\\", "stomp-content-type": b"text/plain",
                "stomp-correlation-id": b"c 1", "mq-key": b"k:\\"}
            assert message.key == b"k:\\" and message.address == "/queue/numbers"
        await again(url)
        await wrong_user(url)
    asyncio.run(main())


async def again(url):
    """What a bridge holds when it ends goes to the next one, which is told."""
    source, sink = Numbers(10), Sink()
    await moved(Runner(source, url), lambda: len(source.done) == 10)

    class Stuck(Sink):
        async def send(self, messages):
            await asyncio.Event().wait()
    first = Runner(url, Stuck(), pause=0.01)
    task = asyncio.ensure_future(first.run(linger=0))
    async with asyncio.timeout(LIMIT):
        while first.stats().held < 10:
            await asyncio.sleep(0.01)
    first.stop()
    await task
    second = Runner(url, sink, pause=0.01)
    await moved(second, lambda: second.stats().acknowledged == 10)
    assert [int(message.body) for message in sink.taken] == list(range(10))
    assert all(message.redelivered for message in sink.taken)


async def wrong_user(url):
    """ActiveMQ without a list of users takes any."""
    if "vhost" in url:
        with pytest.raises(mq.UsageError, match="refuses this user") as caught:
            async with asyncio.timeout(LIMIT):
                await Runner(Numbers(1), url.replace("//", "//me:secret@")).run()
        assert "secret" not in str(caught.value)
