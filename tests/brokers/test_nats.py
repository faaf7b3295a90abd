"""Bridges over a real NATS server: JetStream while it is killed, core subjects, what it refuses."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, laws, moved
from killing import nothing_is_lost

import mqcore as mq
from mqcore import bridge
from mqcore.bridge.runner import Runner

pytestmark = pytest.mark.brokers


def test_nothing_is_lost_when_nats_is_killed(broker, tmp_path):
    nats = broker("nats")
    where = f"{nats.url}?stream=S&subject=numbers&create=true"
    nothing_is_lost(nats, where, f"{where}&ack_wait=1", tmp_path)


def test_through_subjects(broker):
    url = broker("nats").url

    class Subjects(Numbers):
        async def receive(self, most):
            found = await super().receive(most)
            for message in found:
                message.address = f"n.{message.token % 3}"
                message.headers = [("one", b"two\r\nNats-Rollup: all")]
                message.key = b"k"
            return found

    async def main():
        sink, source = Sink(), Subjects(3000)
        second = Runner(f"{url}?subject=n.*", sink, pause=0.01, window=100)
        task = asyncio.ensure_future(second.run())
        async with asyncio.timeout(LIMIT):
            while not second.stats().source_connected:
                await asyncio.sleep(0.01)
            first = Runner(source, url, pause=0.01)
            await moved(first, lambda: len(source.done) == 3000)
            while len(sink.taken) < 3000:
                await asyncio.sleep(0.01)
        second.stop()
        await task
        assert [int(message.body) for message in sink.taken] == list(range(3000))
        assert {message.address for message in sink.taken} == {"n.0", "n.1", "n.2"}
        assert all(message.key == b"k" for message in sink.taken)
        assert dict(sink.taken[0].headers)["one"] == b"two\\r\\nNats-Rollup: all"
        assert "no acknowledgments" in second.explain()
        laws(second.stats())
    asyncio.run(main())


class Odd(Numbers):
    """Some that NATS cannot carry."""

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.address = "n"
            if message.token == 2:
                message.body = b"x" * ((1 << 20) + 1)
            elif message.token == 3:
                message.address = "a subject with spaces"
            elif message.token == 4:
                message.headers = [("Nats-Rollup", b"all")]
            elif message.token == 5:
                message.headers = [("with:colon", b"")]
            elif message.token == 6:
                message.address = ""
        return found


@pytest.mark.parametrize("stream", [False, True], ids=["core", "stream"])
def test_what_nats_cannot_carry_is_a_dead_letter(broker, stream):
    url = broker("nats").url

    async def main():
        import nats
        async with await nats.connect(url) as client:
            await client.jsm().add_stream(name="S", subjects=["n"])
        source, letters = Odd(10), Sink()
        runner = Runner(source, f"{url}?stream=S" if stream else url, dead=letters, pause=0.01)
        await moved(runner, lambda: len(source.done) == 10)
        assert [message.id for message in letters.taken] == ["2", "3", "4", "5", "6"]
        assert runner.stats().delivered == 5
    asyncio.run(main())


def test_a_full_stream_is_waited_for_and_stores_nothing_twice(broker):
    url = broker("nats").url

    async def main():
        import nats
        async with await nats.connect(url) as client:
            manager = client.jsm()
            await manager.add_stream(name="S", subjects=["n"], max_msgs=15, discard="new",
                                     retention="workqueue")
            source, sink = Numbers(60), Sink()
            runner = Runner(source, f"{url}?stream=S&subject=n", dead="discard", batch=10,
                            pause=0.001, longest_pause=0.05)
            task = asyncio.ensure_future(runner.run())
            async with asyncio.timeout(LIMIT):
                while runner.stats().target_reconnects < 3:
                    await asyncio.sleep(0.01)
                assert not runner.stats().discarded
                second = Runner(f"{url}?stream=S&subject=n", sink, pause=0.01)
                await moved(second, lambda: len(set(source.done)) == 60 and len(sink.taken) >= 60)
            runner.stop()
            await task
        assert sorted(int(message.body) for message in sink.taken) == list(range(60))
        laws(runner.stats())
    asyncio.run(main())


def test_held_messages_are_not_delivered_again(broker):
    """The target is away for longer than `ack_wait`."""
    url = broker("nats").url + "?stream=S&subject=n&create=true"

    class Slow(Sink):
        async def send(self, messages):
            await asyncio.sleep(0.5)
            return await super().send(messages)

    async def main():
        source, sink = Numbers(20), Slow()
        await moved(Runner(source, url, pause=0.01), lambda: len(source.done) == 20)
        second = Runner(f"{url}&ack_wait=0.5", sink, batch=5, pause=0.01)
        await moved(second, lambda: second.stats().acknowledged == 20)
        assert [int(message.body) for message in sink.taken] == list(range(20))
        assert second.stats().repeats == 0
    asyncio.run(main())


def test_a_wrong_password_ends_the_bridge(broker):
    nats = broker("nats")
    nats.kill()
    command = nats.command()
    nats.command = lambda: (*command, "--user", "me", "--pass", "right")
    nats.start()

    async def main():
        with pytest.raises(mq.UsageError, match="refuses this user") as caught:
            wrong = nats.url.replace("//", "//me:wrong@")
            async with asyncio.timeout(LIMIT):
                await Runner(Numbers(5), f"{wrong}?subject=n").run()
        assert "wrong" not in str(caught.value)
        source = Numbers(5)
        await moved(Runner(source, f"{nats.url.replace('//', '//me:right@')}?subject=n"),
                    lambda: len(source.done) == 5)
    asyncio.run(main())


def test_a_bridge_into_its_own_subject_is_refused():
    with pytest.raises(mq.OptionError, match="circle"):
        bridge.Bridge("nats://h?subject=a", "nats://h:4222?subject=a")
