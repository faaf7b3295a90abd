"""Sides of ours, between real sockets and journals: what arrives, what is acknowledged, and where a
message goes that a side cannot take."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, laws, moved

import mqcore as mq
from mqcore import bridge, journal
from mqcore.bridge.runner import Runner


@pytest.fixture(autouse=True)
def default_context():
    """The bridge's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


class Addressed(Numbers):
    """The address of message `bad` is longer than a group may be."""

    bad = 2

    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.address = "g" * (300 if message.token == self.bad else 3)
        return found


def test_a_topic_is_read_on_from_the_committed_offset(tmp_path):
    with journal.open(tmp_path / "in", "a", topic="t") as log:
        log.append_many([b"%d" % n for n in range(50)])
    async def go(count):
        runner = Runner(f"journal:{tmp_path}/in?topic=t&group=g", f"journal:{tmp_path}/out?topic=t",
                        batch=7, pause=0.001)
        await moved(runner, lambda: runner.stats().acknowledged >= count)
        laws(runner.stats())
        return runner.stats().received
    assert asyncio.run(go(50)) == 50
    with journal.open(tmp_path / "in", "a", topic="t") as log:
        log.append_many([b"50", b"51"])
    assert asyncio.run(go(2)) == 2
    with journal.open(tmp_path / "out", topic="t") as log:
        assert log.read(0).to_list() == [b"%d" % n for n in range(52)]


@pytest.mark.parametrize("deduplicate", ["false", "true"])
def test_tombstones_stay_tombstones(tmp_path, deduplicate):
    """From topic to topic. A message that only looks like one, without a key, keeps its header."""
    mark = ("kafka-tombstone", b"1")
    with journal.open(tmp_path / "in", "a", topic="t") as log:
        log.append_many([b"a", None, b""], keys=[b"k", b"k", b"l"])
        log.append(None, key=b"m", headers=[("n", b"v"), ("", b"")])
        log.append(b"", headers=[mark])
        log.append(b"text", key=b"k", headers=[mark])

    async def go(group):
        runner = Runner(f"journal:{tmp_path}/in?topic=t&group={group}",
                        f"journal:{tmp_path}/out?topic=t&deduplicate={deduplicate}", pause=0.001)
        await moved(runner, lambda: runner.stats().acknowledged >= 6)
        laws(runner.stats())
    for n, group in enumerate("gh", 1):
        asyncio.run(go(group))
        with journal.open(tmp_path / "out", topic="t") as log:
            records = log.read(0)
            rows = [(value, records.key(i), records.headers(i)) for i, value in enumerate(records)]
        assert rows == [(b"a", b"k", []), (None, b"k", []), (b"", b"l", []),
                        (None, b"m", [("n", b"v"), ("", b"")]), (b"", None, [mark]),
                        (b"text", b"k", [mark])] * (1 if deduplicate == "true" else n)


@pytest.mark.parametrize("deduplicate", ["false", "true"])
def test_an_empty_key_stays_one(tmp_path, deduplicate):
    """Else its tombstone hides nothing in the copy."""
    told = [(b"a", b""), (b"", b""), (None, b""), (b"b", None), (b"c", b"")]
    with journal.open(tmp_path / "in", "a", topic="t") as log:
        for value, key in told:
            log.append(value, key=key, headers=[("n", b"v")])

    async def go(group):
        runner = Runner(f"journal:{tmp_path}/in?topic=t&group={group}",
                        f"journal:{tmp_path}/out?topic=t&deduplicate={deduplicate}", pause=0.001)
        await moved(runner, lambda: runner.stats().acknowledged >= len(told))
    for n, group in enumerate("gh", 1):
        asyncio.run(go(group))
        with journal.open(tmp_path / "out", topic="t") as log:
            records = log.read(0)
            rows = [(value, records.key(i)) for i, value in enumerate(records)]
            assert {tuple(records.headers(i)) for i in range(len(rows))} == {(("n", b"v"),)}
        assert rows == told * (1 if deduplicate == "true" else n)


@pytest.mark.parametrize("pair", [("push", "pull"), ("req", "rep")], ids="-".join)
def test_through_sockets(tmp_path, pair):
    url = f"ipc://{tmp_path}/s"
    async def main():
        source = Numbers(100)
        first = Runner(source, f"{pair[0]}+connect:{url}", batch=10, pause=0.001)
        second = Runner(f"{pair[1]}+bind:{url}", f"journal:{tmp_path}/j?topic=t", pause=0.001)
        taking = asyncio.ensure_future(second.run())
        await moved(first, lambda: len(source.done) == 100)
        async with asyncio.timeout(LIMIT):
            while second.stats().acknowledged < 100:
                await asyncio.sleep(0.005)
        second.stop()
        await taking
        laws(first.stats())
        laws(second.stats())
    asyncio.run(main())
    with journal.open(tmp_path / "j", topic="t") as log:
        assert sorted(map(int, log.read(0).to_list())) == list(range(100))


def test_what_a_socket_cannot_take_is_a_dead_letter(tmp_path):
    async def main():
        source = Addressed(5)
        runner = Runner(source, f"radio+bind:ipc://{tmp_path}/s", pause=0.001,
                        dead=f"journal:{tmp_path}/j?topic=dead")
        await moved(runner, lambda: len(source.done) == 5)
        laws(runner.stats())
        assert runner.stats().dead == 1 and runner.stats().delivered == 4
    asyncio.run(main())
    with journal.open(tmp_path / "j", topic="dead") as log:
        records = log.read(0)
        assert records.to_list() == [b"2"]
        assert b"255 bytes" in dict(records.headers(0))["dead-reason"]


def test_a_dead_letter_that_is_refused_ends_the_bridge(tmp_path):
    async def main():
        source = Addressed(5)
        with pytest.raises(bridge.BridgeRefused, match="refuses a dead letter"):
            await Runner(source, f"radio+bind:ipc://{tmp_path}/a",
                         dead=f"radio+bind:ipc://{tmp_path}/b?send={'d' * 300}").run()
        assert 2 not in source.done
    asyncio.run(main())
