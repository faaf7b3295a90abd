"""Bridges over a real Redis: streams while it is killed, channels, what it refuses."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, laws, moved
from killing import nothing_is_lost

from mqcore import bridge
from mqcore.bridge.runner import Runner

pytestmark = pytest.mark.brokers


def test_nothing_is_lost_when_redis_is_killed(broker, tmp_path):
    redis = broker("redis")
    nothing_is_lost(redis, f"{redis.url}?stream=s", f"{redis.url}?stream=s", tmp_path)


def test_through_channels(broker):
    """What is published while both are connected arrives in order, with the channel's name."""
    url = broker("redis").url

    async def main():
        sink, source = Sink(), Numbers(500)
        second = Runner(f"{url}?channel=news.*", sink, pause=0.01)
        task = asyncio.ensure_future(second.run())
        async with asyncio.timeout(LIMIT):
            while not second.stats().source_connected:
                await asyncio.sleep(0.01)
            first = Runner(source, f"{url}?channel=news.a", pause=0.01)
            await moved(first, lambda: len(source.done) == 500)
            while len(sink.taken) < 500:
                await asyncio.sleep(0.01)
        second.stop()
        await task
        assert [int(message.body) for message in sink.taken] == list(range(500))
        assert {message.address for message in sink.taken} == {"news.a"}
        assert "no acknowledgments" in second.explain()
        laws(second.stats())
    asyncio.run(main())


def test_a_header_called_body_is_refused(broker):
    url = broker("redis").url

    class Headed(Numbers):
        async def receive(self, most):
            found = await super().receive(most)
            for message in found:
                message.headers = [("body" if message.token == 2 else "other", b"x")]
            return found

    async def main():
        source, letters = Headed(5), Sink()
        runner = Runner(source, f"{url}?stream=s", dead=letters, pause=0.01)
        await moved(runner, lambda: len(source.done) == 5)
        assert [message.body for message in letters.taken] == [b"2"]
    asyncio.run(main())


def test_a_key_of_another_type_is_refused_by_redis(broker):
    """WRONGTYPE is final: dead letters, not attempts for ever."""
    url = broker("redis").url

    async def main():
        import redis.asyncio
        async with redis.asyncio.Redis.from_url(url) as client:
            await client.set("s", "a text")
        with pytest.raises(bridge.BridgeRefused, match="WRONGTYPE"):
            await Runner(Numbers(5), f"{url}?stream=s").run()
    asyncio.run(main())
