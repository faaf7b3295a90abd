"""Memory that stays flat: surveys that nobody finishes, topics by the million, answers that nobody
takes, connections that say nothing, events that nobody reads."""

import gc
import itertools
import tracemalloc

import pytest
import rawzmtp
from hypothesis import given
from hypothesis import strategies as st
from memory import growth

from mqcore import cluster
from mqcore.cluster import links, patterns, surveys
from mqcore.cluster.patterns import PATTERNS, Table, matches
from mqcore.errors import UsageError

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


# -- patterns --------------------------------------------------------------------------------------


def test_long_patterns_take_little_memory():
    """Each of 64 tokens, alike in none, in the first half, and in all but the last one."""
    table, tails = Table(), [".".join(str(number % 7) for number in range(62))]
    names = [f"{number}.x.{tails[0]}" for number in range(1000)]
    names += [f"y.{tails[0]}.{number}" for number in range(1000)]
    names += [f"{'z.' * 31}{number}.{'z.' * 31}z" for number in range(1000)]
    tracemalloc.start()
    for name in names:
        assert table.add("it", name)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 5_000_000         # one branch for each token would take 130 MB
    for name in names[::100]:
        assert table.takers(name) == {("it", "")} and not table.takers(name + ".z")
    table.forget("it")
    assert table._root.empty and not table.of


TOKEN = st.sampled_from(["a", "b", "*", ""])
PATTERN = st.builds(lambda tokens, more: ".".join([*tokens, *more]),
                    st.lists(TOKEN, min_size=1, max_size=5), st.sampled_from([[], [">"]]))
STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2]), PATTERN), max_size=40)


@given(STEPS)
def test_a_table_finds_what_matches(steps):
    """Whatever begins and ends, in whatever order, and nothing is left in the end."""
    table, model = Table(), set()
    topics = [".".join(tokens) for size in (1, 2, 3, 6)
              for tokens in itertools.product("ab", repeat=size)]
    for begins, taker, pattern in steps:
        (table.add if begins else table.drop)(taker, pattern)
        (model.add if begins else model.discard)((taker, pattern))
        for topic in topics[:14]:
            assert table.takers(topic) == {(taker, "") for taker, pattern in model
                                           if matches(pattern, topic)}
    for topic in topics:
        assert table.takers(topic) == {(taker, "") for taker, pattern in model
                                       if matches(pattern, topic)}
    assert branches(table._root) <= 2 * len(model) + 1
    for taker, pattern in model:
        table.drop(taker, pattern)
    assert table._root.empty and not table.of


def branches(branch):
    return 1 + sum(map(branches, (branch.branches or {}).values()))


def test_tokens_and_bytes_of_one_member_have_bounds(monkeypatch):
    monkeypatch.setattr(patterns, "ANNOUNCED_TOKENS", 10)
    monkeypatch.setattr(patterns, "ANNOUNCED_BYTES", 30)
    table = Table()
    assert table.add("liar", "a.b.c.d.e") and table.add("liar", "a.b.c.d.*")
    assert table.refuses("liar", "a") == "tokens" and not table.add("liar", "a")
    assert table.add("liar", "a.b.c.d.*") and table.add("other", "a")
    table.drop("liar", "a.b.c.d.e")
    assert table.refuses("liar", "a", "\U0001f600" * 6) == "bytes"
    assert table.add("liar", "a", "\U0001f600" * 5)
    table.forget("liar")
    assert table.add("liar", "a" * 30)


def test_subscriptions_over_the_bounds_are_refused_and_counted(run, key, monkeypatch):
    monkeypatch.setattr(patterns, "ANNOUNCED_TOKENS", 10)

    async def main():
        async with cluster.ajoin(key) as net, cluster.ajoin(key, seeds=[net.url]) as other:
            assert await other.until(lambda: other.directory.members, LIMIT)
            async with net.asubscribe("a.b.c.d.e", "a.b.c.d"):
                with pytest.raises(UsageError, match="tokens at most"):
                    await net.asubscribe("x", "y").astart()
                async with net.asubscribe("x"), net.asubscribe("x", "a.b.c.d"):
                    assert await other.apublish("x", b"") == 1
            assert not net.topics.announced and not net.topics.announced.tokens
            heard = net.events()
            [member] = other.directory.members.values()
            other.topics._tell_over(member.link, [("a.b.c.d.e.f", ""), ("g.h.i.j.k", ""),
                                                  ("l.m.n.o.p", ""), ("q", "")], [])
            assert await net.until(
                lambda: net.stats()["counts"].get("subscriptions_refused_tokens") == 2, LIMIT)
            assert await net.apublish("q", b"") == 1
            event = await heard.anext(LIMIT)
            assert event.kind == "trouble" and "tokens" in event.reason
            assert await heard.anext(0.0) is None

    run(main)
