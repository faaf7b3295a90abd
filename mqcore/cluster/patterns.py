"""Topics and patterns, who subscribes to what, and which publications are new. No I/O.

A topic is a text of tokens joined by dots, such as `px.EURUSD.bid`. In a pattern `*` stands for
exactly one token, and a last token `>` for one or more, as in NATS.
"""

from __future__ import annotations

from typing import Any

from mqcore.cluster import frames
from mqcore.cluster.checks import encodes
from mqcore.errors import UsageError

PATTERNS = 10_000       # subscriptions of one node
CACHED = 1 << 18        # takers that are remembered, over all topics
TOKENS = 64             # of a topic
PUBLISHERS = 20_000     # whose last number is remembered


def check_topic(topic: str) -> str:
    """Raises UsageError for what cannot be published."""
    if not isinstance(topic, str):
        raise UsageError(f"a topic is a str, not {type(topic).__name__}")
    tokens = topic.split(".")
    if not all(tokens) or len(topic) > frames.NAME or len(tokens) > TOKENS or not encodes(topic):
        raise UsageError(f"{topic[:80]!r} is no topic",
                         hint=f"join 1 to {TOKENS} tokens by single dots, {frames.NAME} characters "
                              "at most")
    if "*" in tokens or ">" in tokens:
        raise UsageError(f"{topic!r} has a wildcard, which is for subscriptions")
    return topic


def check_pattern(pattern: str) -> str:
    """Raises UsageError for what cannot be subscribed to."""
    tokens = pattern.split(".") if isinstance(pattern, str) else []
    if not tokens or not all(tokens) or len(pattern) > frames.NAME or len(tokens) > TOKENS \
            or not encodes(pattern):
        raise UsageError(f"{pattern!r} is no topic or pattern", hint="such as px.EURUSD, px.*.bid "
                                                                     "or px.>")
    if ">" in tokens[:-1]:
        raise UsageError(f"{pattern!r}: > must be the last token")
    return pattern


def matches(pattern: str, topic: str) -> bool:
    return _match(pattern.split("."), topic.split("."))


def _match(pattern: list[str], topic: list[str]) -> bool:
    if pattern[-1] == ">":
        return len(topic) >= len(pattern) and _all(pattern[:-1], topic)
    return len(topic) == len(pattern) and _all(pattern, topic)


def _all(pattern: list[str], topic: list[str]) -> bool:
    return all(want in ("*", token) for want, token in zip(pattern, topic, strict=False))


class _Branch:
    """A token of patterns, after those of the branches above. `ends`: who subscribes to the pattern
    that ends here. `rest`: to the one that goes on with a last `>`."""

    __slots__ = ("branches", "ends", "rest")

    def __init__(self) -> None:
        self.branches: dict[str, _Branch] = {}
        self.ends: set[tuple[Any, str]] = set()
        self.rest: set[tuple[Any, str]] = set()

    @property
    def empty(self) -> bool:
        return not (self.branches or self.ends or self.rest)


class Table:
    """Who subscribes to what. A taker is any hashable object, a subscription (pattern, group).

    The patterns are a tree by tokens, so that a topic costs a step for each of its tokens, and
    none for each pattern that does not match."""

    def __init__(self) -> None:
        self.of: dict[Any, set[tuple[str, str]]] = {}       # by taker: its subscriptions
        self._root = _Branch()
        self._cache: dict[str, frozenset[tuple[Any, str]]] = {}
        self._cached = 0

    def add(self, taker: Any, pattern: str, group: str = "") -> bool:
        """False: the taker has PATTERNS already, or the pattern is longer than any topic."""
        if pattern.count(".") >= TOKENS:
            return False
        its = self.of.setdefault(taker, set())
        if (pattern, group) in its:
            return True
        if len(its) >= PATTERNS:
            return False
        its.add((pattern, group))
        tokens, rest = _path(pattern)
        branch = self._root
        for token in tokens:
            branch = branch.branches.setdefault(token, _Branch())
        (branch.rest if rest else branch.ends).add((taker, group))
        self._forget_topics()
        return True

    def drop(self, taker: Any, pattern: str, group: str = "") -> None:
        its = self.of.get(taker, set())
        if (pattern, group) in its:
            its.discard((pattern, group))
            if not its:
                del self.of[taker]
            self._remove(taker, pattern, group)

    def forget(self, taker: Any) -> None:
        for pattern, group in self.of.pop(taker, ()):
            self._remove(taker, pattern, group)

    def _remove(self, taker: Any, pattern: str, group: str) -> None:
        tokens, rest = _path(pattern)
        way = [self._root]
        for token in tokens:
            way.append(way[-1].branches[token])
        (way[-1].rest if rest else way[-1].ends).discard((taker, group))
        while tokens and way.pop().empty:
            del way[-1].branches[tokens.pop()]
        self._forget_topics()

    def _forget_topics(self) -> None:
        self._cache.clear()
        self._cached = 0

    def takers(self, topic: str) -> frozenset[tuple[Any, str]]:
        """All (taker, group) whose pattern matches."""
        found = self._cache.get(topic)
        if found is None:
            if self._cached > CACHED:
                self._forget_topics()
            found = self._cache[topic] = frozenset(self._find(topic.split(".")))
            self._cached += 64 + len(found)     # the topic itself takes memory, too
        return found

    def _find(self, tokens: list[str]) -> set[tuple[Any, str]]:
        found: set[tuple[Any, str]] = set()
        level = [self._root]
        for token in tokens:
            below = []
            for branch in level:
                found |= branch.rest
                below += [branch.branches[one] for one in (token, "*") if one in branch.branches]
            level = below
        return found.union(*(branch.ends for branch in level))


def _path(pattern: str) -> tuple[list[str], bool]:
    """The tokens of a pattern without a last `>`, and whether it has one."""
    tokens = pattern.split(".")
    return (tokens[:-1], True) if tokens[-1] == ">" else (tokens, False)


class Rising:
    """The last number of each publisher: a message with a lower one is late or repeated."""

    def __init__(self, limit: int = PUBLISHERS) -> None:
        self._last: dict[Any, int] = {}
        self._limit = limit
        self.dropped = 0

    def last(self, publisher: Any) -> int:
        """-1: there was none."""
        return self._last.get(publisher, -1)

    def admit(self, publisher: Any, number: int) -> bool:
        last = self._last.pop(publisher, -1)
        self._last[publisher] = max(last, number)       # and it is the newest in the table
        if len(self._last) > self._limit:
            del self._last[next(iter(self._last))]
        if number <= last:
            self.dropped += 1
        return number > last
