"""Bridges over a real mosquitto: a session while the broker is stopped and started, both versions
of MQTT, what it refuses."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, laws, moved
from killing import nothing_is_lost

import mqcore as mq
from mqcore import bridge
from mqcore.bridge.runner import Runner

pytestmark = pytest.mark.brokers


def test_nothing_is_lost_when_mosquitto_is_stopped(broker, tmp_path):
    mosquitto = broker("mqtt")
    nothing_is_lost(mosquitto, f"{mosquitto.url}?topic=numbers",
                    f"{mosquitto.url}?topic=numbers&client=test", tmp_path)


class Odd(Numbers):
    """Headers and addresses, and some that MQTT cannot carry."""

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.key = b"k"
            message.headers = [("one", b"\xff\r\n"), ("one", b"two"),
                               ("mqtt-content-type", b"text/plain")]
            message.address = {3: "a/#", 4: "", 5: "t" * 70_000}.get(message.token, "a/b")
            if message.token == 6:
                message.headers = [("h", b"x" * 70_000)]
            if message.token == 7:
                message.body = b"x" * 200_000
        return found


@pytest.mark.parametrize("version", [5, 4])
def test_what_mqtt_carries_and_refuses(broker, version):
    url = broker("mqtt").url

    async def main():
        sink, source, letters = Sink(), Odd(10), Sink()
        second = Runner(f"{url}?topic=a/%2B&client=c&version={version}", sink, pause=0.01)
        task = asyncio.ensure_future(second.run())
        async with asyncio.timeout(LIMIT):
            while not second.stats().source_connected:
                await asyncio.sleep(0.01)
            first = Runner(source, f"{url}?version={version}", dead=letters, pause=0.01)
            await moved(first, lambda: len(source.done) == 10)
            laws(first.stats())
            count = 10 - len(letters.taken)
            while len(sink.taken) < count:
                await asyncio.sleep(0.01)
        second.stop()
        await task
        refused = ["3", "4", "5", "6"] if version == 5 else ["3", "4", "5"]
        assert [message.id for message in letters.taken] == refused
        assert [message.body[:1] for message in sink.taken[-2:]] == [b"8", b"9"]
        assert len(sink.taken) == count
        one = sink.taken[0]
        assert one.address == "a/b"
        if version == 5:
            assert one.key == b"k"
            assert one.headers == [("one", b"\\xff\\r\\n"), ("one", b"two"),
                                   ("mqtt-content-type", b"text/plain"), ("mq-key", b"k")]
        else:
            assert one.headers == [] and "has no headers" in first.explain()
    asyncio.run(main())


def test_the_session_keeps_what_comes_while_the_bridge_is_away(broker):
    url = broker("mqtt").url

    async def main():
        where = f"{url}?topic=t&client=c"
        away = Runner(where, Sink(), pause=0.01)
        await moved(away, lambda: away.stats().source_connected)
        source, sink = Numbers(500), Sink()
        await moved(Runner(source, f"{url}?topic=t"), lambda: len(source.done) == 500)
        back = Runner(where, sink, pause=0.01)
        await moved(back, lambda: back.stats().acknowledged == 500)
        assert [int(message.body) for message in sink.taken] == list(range(500))
        once = Runner(where, sink, pause=0.01)
        await moved(once, lambda: once.stats().source_connected)
        assert len(sink.taken) == 500
    asyncio.run(main())


def test_what_was_not_acknowledged_comes_again_in_order(broker):
    url = broker("mqtt").url

    class Stuck(Sink):
        async def send(self, messages):
            if len(self.taken) >= 30:
                await asyncio.Event().wait()
            return await super().send(messages)

    async def main():
        where = f"{url}?topic=t&client=c"
        first = Runner(where, Stuck(), batch=10, pause=0.01)
        task = asyncio.ensure_future(first.run(linger=0))
        async with asyncio.timeout(LIMIT):
            while not first.stats().source_connected:
                await asyncio.sleep(0.01)
            source = Numbers(200)
            await moved(Runner(source, f"{url}?topic=t"), lambda: len(source.done) == 200)
            while first.stats().acknowledged < 10:
                await asyncio.sleep(0.01)
        first.stop()
        await task
        done = first.stats().acknowledged
        sink = Sink()
        second = Runner(where, sink, pause=0.01)
        await moved(second, lambda: second.stats().acknowledged >= 200 - done)
        assert [int(message.body) for message in sink.taken] == list(range(done, 200))
        assert sink.taken[0].redelivered or dict(sink.taken[0].headers).get("mq-redelivered")
    asyncio.run(main())


def test_messages_that_nobody_has_subscribed_to_are_counted(broker):
    url = broker("mqtt").url

    async def main():
        source = Numbers(5)
        runner = Runner(source, f"{url}?topic=t")
        await moved(runner, lambda: len(source.done) == 5)
        assert "5 messages had no subscriber" in runner.explain()
    asyncio.run(main())


def test_a_wrong_password_ends_the_bridge(broker):
    mosquitto = broker("mqtt")
    mosquitto.kill()
    mosquitto.anonymous = False
    mosquitto.start()

    async def main():
        with pytest.raises(mq.UsageError, match="refuses this client") as caught:
            async with asyncio.timeout(LIMIT):
                await Runner(Numbers(1),
                             mosquitto.url.replace("//", "//me:secret@") + "?topic=t").run()
        assert "secret" not in str(caught.value)
    asyncio.run(main())


def test_what_an_address_must_say():
    with pytest.raises(mq.AddressError, match="client"):
        bridge.Bridge("mqtt://h?topic=t", Sink())
    with pytest.raises(mq.UsageError, match="version=3"):
        bridge.Bridge(Numbers(1), "mqtt://h?topic=t&version=3")
    with pytest.raises(mq.OptionError, match="circle"):
        bridge.Bridge("mqtt://h?topic=t&client=c", "mqtt://h:1883?topic=t")
