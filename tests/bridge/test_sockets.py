"""Sockets as sides of a bridge: every pattern, topics and groups, messages of several parts."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, bodies, laws, moved

import mqcore as mq
from mqcore import bridge
from mqcore.bridge.runner import Runner


@pytest.fixture(autouse=True)
def default_context():
    """The bridge's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


async def until(condition):
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.002)


async def received(source, feed, count):
    """What a bridge with this source gets while `feed` is awaited again and again."""
    sink = Sink()
    runner = Runner(source, sink, dead="discard", pause=0.001)
    task = asyncio.ensure_future(runner.run())
    async with asyncio.timeout(LIMIT):
        while len(sink.taken) < count:
            assert not task.done(), await task
            await feed()
            await asyncio.sleep(0.005)
    runner.stop()
    await task
    laws(runner.stats())
    return sink.taken


PATTERNS = [("pair", "pair"), ("scatter", "gather"), ("push", "pull")]


@pytest.mark.parametrize("bound", [True, False], ids=["source-binds", "target-binds"])
@pytest.mark.parametrize("pair", PATTERNS, ids="-".join)
def test_one_to_one(tmp_path, pair, bound):
    url = f"ipc://{tmp_path}/s"
    ends = ("connect", "bind") if bound else ("bind", "connect")

    async def main():
        source, sink = Numbers(200), Sink()
        second = Runner(f"{pair[1]}+{ends[1]}:{url}", sink, pause=0.001)
        first = Runner(source, f"{pair[0]}+{ends[0]}:{url}", batch=10, pause=0.001)
        task = asyncio.ensure_future(second.run())
        await moved(first, lambda: len(source.done) == 200)
        await until(lambda: len(sink.taken) == 200)
        second.stop()
        await task
        assert bodies(sink) == list(range(200))
        laws(first.stats())
        laws(second.stats())
    asyncio.run(main())


def test_bus_in_both_roles(tmp_path):
    async def main():
        url = f"ipc://{tmp_path}/s"
        async with mq.Bus(bind=url) as bus:
            found = await received(f"bus+connect:{url}", lambda: bus.asend(b"in"), 2)
            assert {message.body for message in found} == {b"in"}
            source = Numbers(5)
            runner = Runner(source, f"bus+connect:{url}", pause=0.001)
            task = asyncio.ensure_future(runner.run())
            async with asyncio.timeout(LIMIT):
                # a bus drops what it sends before it has a peer
                while not await got(bus):
                    source.done.clear()
                    source.next = 0
                    source.more.set()
            runner.stop()
            await task
    asyncio.run(main())


async def got(socket):
    try:
        await socket.arecv(timeout=0.05)
    except mq.RecvTimeout:
        return False
    return True


def test_sub_takes_the_topic_as_the_address(tmp_path):
    async def main():
        url = f"ipc://{tmp_path}/s"
        async with mq.Pub(bind=url) as pub:
            async def feed():
                await pub.asend_parts([b"other", b"no"])
                await pub.asend_parts([b"news.\xff", b"a", b"b"])
                await pub.asend(b"news alone")
            found = await received(f"sub+connect:{url}?topic=news", feed, 4)
        assert {(message.address, message.body) for message in found} == \
            {("news.\\xff", b"ab"), ("", b"news alone")}
    asyncio.run(main())


def test_dish_takes_the_group_as_the_address(tmp_path):
    async def main():
        url = f"ipc://{tmp_path}/s"
        async with mq.Radio(bind=url) as radio:
            async def feed():
                await radio.asend(b"no", group="other")
                await radio.asend(b"1", group="a")
                await radio.asend(b"2", group="b")
            found = await received(f"dish+connect:{url}?group=a&group=b", feed, 4)
        assert {(message.address, message.body) for message in found} == \
            {("a", b"1"), ("b", b"2")}
    asyncio.run(main())


@pytest.mark.parametrize("send", ["", "all"])
@pytest.mark.parametrize("pair", [("pub", "sub"), ("radio", "dish")], ids="-".join)
def test_addresses_go_on_as_topics_and_groups(tmp_path, pair, send):
    class Addressed(Numbers):
        async def receive(self, most):
            if self.next >= self.count:
                self.next = 0               # for ever: the subscriber may be late
            found = await super().receive(most)
            for message in found:
                message.address = f"t{message.token % 2}"
            await asyncio.sleep(0.001)
            return found

    async def main():
        url = f"ipc://{tmp_path}/s"
        runner = Runner(Addressed(10), f"{pair[0]}+bind:{url}?send={send}", batch=5, pause=0.001)
        task = asyncio.ensure_future(runner.run(linger=0))
        name = "topic" if pair[1] == "sub" else "group"
        found = await received(f"{pair[1]}+connect:{url}?{name}={send or 't1'}", nothing, 20)
        runner.stop()
        await task
        assert {message.address for message in found} == {send or "t1"}
        if not send:
            assert {int(message.body) % 2 for message in found} == {1}
    asyncio.run(main())


async def nothing():
    pass


@pytest.mark.parametrize("kind", ["pull", "pair"])
def test_parts_of_a_message_stay_together(tmp_path, kind):
    """A peer that sends several parts neither ends the bridge nor makes several messages."""
    async def main():
        url = f"ipc://{tmp_path}/s"
        peer = mq.Push if kind == "pull" else mq.Pair
        async with peer(bind=url) as socket:
            bodies = iter([[b"one"], [b"two", b" parts"], [b"", b""], [b"last"]])

            async def feed():
                parts = next(bodies, None)
                if parts is not None:
                    await socket.asend_parts(parts)
            found = await received(f"{kind}+connect:{url}", feed, 4)
        assert [message.body for message in found] == [b"one", b"two parts", b"", b"last"]
    asyncio.run(main())


def test_a_request_of_several_parts(tmp_path):
    async def main():
        url = f"ipc://{tmp_path}/s"
        sink = Sink()
        runner = Runner(f"rep+bind:{url}", sink, pause=0.001)
        task = asyncio.ensure_future(runner.run())
        async with mq.Req(connect=url) as client:
            await client.arequest([b"two", b" parts"], timeout=LIMIT)
        runner.stop()
        await task
        assert [message.body for message in sink.taken] == [b"two parts"]
    asyncio.run(main())


def test_a_target_without_peers_holds_the_bridge_back(tmp_path):
    async def main():
        source = Numbers(500)
        runner = Runner(source, f"push+bind:ipc://{tmp_path}/s", window=50, batch=10, pause=0.001,
                        confirm_timeout=0.05, dead="discard")
        task = asyncio.ensure_future(runner.run(linger=0))
        await until(lambda: runner.stats().held == 50)
        await asyncio.sleep(0.2)        # four times confirm_timeout: the socket is not closed
        counts = runner.stats()
        assert counts.discarded == counts.target_reconnects == 0 and counts.held == 50
        runner.stop()
        await task
        laws(runner.stats())
    asyncio.run(main())


def test_what_a_pattern_cannot_be():
    for source, target in (("push+bind:tcp://*:0", Sink()), (Numbers(1), "pull+bind:tcp://*:0")):
        with pytest.raises(mq.UsageError, match="of a bridge"):
            bridge.Bridge(source, target)
