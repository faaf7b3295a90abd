"""Memory that stays flat: surveys that nobody finishes, topics by the million, answers that nobody
takes, connections that say nothing, events that nobody reads."""

import gc

import pytest
import rawzmtp
from memory import growth

from mqcore import cluster
from mqcore.cluster import links, patterns, surveys
from mqcore.cluster.patterns import PATTERNS, Table

LIMIT = 50.0


class Answers:
    def __init__(self, size=0):
        self.size = size

    async def broadcast(self, msg):
        return bytes(self.size)


def test_surveys_that_are_left_early(run, key):
    """Whoever breaks out of the iteration does not say so."""
    async def main():
        async with cluster.ajoin(key) as net, net.aserve("it", Answers()), \
                cluster.ajoin(key, seeds=[net.url]) as other, other.aserve("it", Answers()):
            await net.await_members("it", 2, timeout=LIMIT)
            for _ in range(50):
                async for _ in net.asurvey("it", b"", deadline=LIMIT):
                    break
            assert await net.until(lambda: not net.surveys.open, LIMIT)     # all have answered
            other.services["it"].broadcast = lambda *_: None                # and now one does not
            for _ in range(50):
                async for _ in net.asurvey("it", b"", deadline=0.05):
                    break
            assert await net.until(lambda: not net.surveys.open, LIMIT)

    run(main)


def test_answers_that_nobody_takes(once, key, monkeypatch):
    monkeypatch.setattr(surveys, "ANSWERS", 10_000)

    async def main():
        async with cluster.ajoin(key) as net:
            others = [await cluster.ajoin(key, seeds=[net.url]).__aenter__() for _ in range(5)]
            for other in others:
                await other.aserve("it", Answers(4000)).astart()
            await net.await_members("it", 5, timeout=LIMIT)
            survey = net.asurvey("it", b"", deadline=LIMIT)
            first = await survey.anext()
            assert await net.until(lambda: not net.surveys.open, LIMIT)
            rest = [reply async for reply in survey]
            taken = [first, *rest]
            assert survey.asked == 5 == len(taken) + survey.dropped and survey.dropped >= 2
            assert net.stats()["broadcasts"]["dropped_answers"] == survey.dropped
            for other in others:
                await other.aclose()

    once(main)


def test_topics_by_the_million(monkeypatch):
    """What is remembered of them has a bound, and each costs its own tokens alone."""
    monkeypatch.setattr(patterns, "CACHED", 1 << 14)
    table = Table()
    for number in range(1000):
        table.add(number, "px.>")
        table.add(number, f"px.*.{number}")
    topics = (f"px.{number}.{number % 1000}" for number in range(1_000_000))

    def feed(count):
        for _ in range(count):
            assert len(table.takers(next(topics))) == 1001 or table.takers("px.a.b")

    assert growth(feed) < 1_000_000
    for number in range(1000):
        table.forget(number)
    assert table._root.empty


def test_patterns_of_one_member_have_a_bound():
    table = Table()
    added = sum(table.add("liar", f"a.{number}.>") for number in range(PATTERNS + 50))
    assert added == PATTERNS and len(table.of["liar"]) == PATTERNS
    for number in range(PATTERNS + 50):
        table.drop("liar", f"a.{number}.>")
    assert table._root.empty and not table.of


@pytest.mark.parametrize("pattern", ["a..b", ".", "..", "a.>.b", ">.a", "*" * 255,
                                     ".".join("*" * 128)])
def test_what_a_liar_may_subscribe_to(pattern):
    table = Table()
    table.add("liar", pattern)
    for topic in ("a", "a.b", "a.x.b", ".".join("a" * 64)):
        assert table.takers(topic) == frozenset()
    table.forget("liar")
    assert table._root.empty
    assert not table.add("liar", ".".join("a" * 65)) and table.add("liar", ".".join("a" * 64))


def test_strangers_that_say_nothing(once, key, monkeypatch):
    """They speak ZMTP, and hold no key: after PATIENCE they make room."""
    monkeypatch.setattr(links, "PATIENCE", 0.5)

    async def main():
        async with cluster.ajoin(key) as net:
            strangers = [await net.loop.in_pool(silent, net.url) for _ in range(30)]
            assert await net.until(lambda: net.links.dropped.get("silent") == 30, LIMIT)
            assert await net.until(lambda: not net.links.socket.peers(), LIMIT)
            assert not net.links.silent and not net.links.by_rid
            for stranger in strangers:
                stranger.close()
            async with cluster.ajoin(key, seeds=[net.url]) as other:
                assert await other.until(lambda: other.directory.members, LIMIT)

    once(main)


def silent(url):
    peer = rawzmtp.RawPeer.connect(url)
    peer.shake("DEALER")
    return peer


def test_streams_of_events_that_are_dropped(once, key):
    async def main():
        async with cluster.ajoin(key) as net:
            for _ in range(100):
                net.events()
            gc.collect()
            assert not net._streams
            kept = net.events()
            assert len(net._streams) == 1
            net.directory.event("trouble", None, "x")
            assert (await kept.anext(LIMIT)).reason == "x"

    once(main)
