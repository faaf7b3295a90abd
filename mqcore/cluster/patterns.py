"""Topics and patterns, who subscribes to what, and which publications are new. No I/O.

A topic is a text of tokens joined by dots, such as `px.EURUSD.bid`. In a pattern `*` stands for
exactly one token, and a last token `>` for one or more, as in NATS.
"""

from __future__ import annotations

from typing import Any

from mqcore.cluster import frames
from mqcore.cluster.checks import encodes, exact
from mqcore.errors import UsageError

PATTERNS = 10_000       # subscriptions of one node,
ANNOUNCED_TOKENS = 200_000      # tokens of all of their patterns,
ANNOUNCED_BYTES = 2 << 20       # and bytes of their patterns and groups
MOST = {"patterns": f"{PATTERNS} patterns", "tokens": f"{ANNOUNCED_TOKENS} tokens",
        "bytes": f"{ANNOUNCED_BYTES >> 20} MiB"}
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
    return topic if type(topic) is str else exact(topic)


def check_pattern(pattern: str) -> str:
    """Raises UsageError for what cannot be subscribed to."""
    tokens = pattern.split(".") if isinstance(pattern, str) else []
    if not tokens or not all(tokens) or len(pattern) > frames.NAME or len(tokens) > TOKENS \
            or not encodes(pattern):
        raise UsageError(f"{pattern!r} is no topic or pattern", hint="such as px.EURUSD, px.*.bid "
                                                                     "or px.>")
    if ">" in tokens[:-1]:
        raise UsageError(f"{pattern!r}: > must be the last token")
    return exact(pattern)


def matches(pattern: str, topic: str) -> bool:
    return _match(pattern.split("."), topic.split("."))


def _match(pattern: list[str], topic: list[str]) -> bool:
    if pattern[-1] == ">":
        return len(topic) >= len(pattern) and _all(pattern[:-1], topic)
    return len(topic) == len(pattern) and _all(pattern, topic)


def _all(pattern: list[str], topic: list[str]) -> bool:
    return all(want in ("*", token) for want, token in zip(pattern, topic, strict=False))


class Announced(set[tuple[str, str]]):
    """The subscriptions (pattern, group) of one node, or of one taker, and what they add up to."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = self.bytes = 0

    def refuses(self, pattern: str, group: str) -> str:
        """Why it cannot be one more, "" if it can."""
        if (pattern, group) in self:
            return ""
        if len(self) >= PATTERNS:
            return "patterns"
        tokens, size = _cost(pattern, group)
        if tokens > TOKENS or self.tokens + tokens > ANNOUNCED_TOKENS:
            return "tokens"
        return "bytes" if self.bytes + size > ANNOUNCED_BYTES else ""

    def begin(self, pattern: str, group: str) -> None:
        self.add((pattern, group))
        self._count(pattern, group, 1)

    def end(self, pattern: str, group: str) -> None:
        self.discard((pattern, group))
        self._count(pattern, group, -1)

    def _count(self, pattern: str, group: str, sign: int) -> None:
        tokens, size = _cost(pattern, group)
        self.tokens += sign * tokens
        self.bytes += sign * size


def _cost(pattern: str, group: str) -> tuple[int, int]:
    return pattern.count(".") + 1, len(pattern.encode()) + len(group.encode())


Taker = tuple[Any, str]         # and its group


class _Branch:
    """A token of patterns, after those of the branches above, and the `tail`: further tokens, where
    all patterns go on alike. `ends`: who subscribes to the pattern that ends here. `rest`: to the
    one that goes on with a last `>`. None: there are none, since most branches have few of these.
    """

    __slots__ = ("branches", "ends", "rest", "tail")

    def __init__(self, tail: list[str]) -> None:
        self.tail = _text(tail)
        self.branches: dict[str, _Branch] | None = None
        self.ends: set[Taker] | None = None
        self.rest: set[Taker] | None = None

    @property
    def empty(self) -> bool:
        return not (self.branches or self.ends or self.rest)

    def grow(self, tokens: list[str]) -> _Branch:
        """The branch at the end of these tokens below this one."""
        branch, at = self, 0
        while at < len(tokens):
            token, at = tokens[at], at + 1
            below = branch.branches
            if below is None:
                below = branch.branches = {}
            found = below.get(token)
            if found is None:
                found = below[token] = _Branch(tokens[at:])
                return found
            tail = found._tail()
            alike = _alike(tail, tokens[at:])
            if alike < len(tail):
                below[token] = found = found._split(tail, alike)
            branch, at = found, at + alike
        return branch

    def way(self, tokens: list[str]) -> list[tuple[_Branch, str]]:
        """The branches from this one to the end of the tokens, with the token of each. It is
        there."""
        found, at = [(self, "")], 0
        while at < len(tokens):
            token, branches = tokens[at], found[-1][0].branches
            assert branches is not None
            found.append((branches[token], token))
            at += 1 + len(branches[token]._tail())
        return found

    def _tail(self) -> list[str]:
        return [] if self.tail is None else self.tail.split(".")

    def _split(self, tail: list[str], at: int) -> _Branch:
        """The tail ends before its token number `at`, and goes on in a branch of its own."""
        upper = _Branch(tail[:at])
        upper.branches = {tail[at]: self}
        self.tail = _text(tail[at + 1:])
        return upper

    def joined(self) -> _Branch:
        """This branch, or the only one below it with the tokens of both."""
        if self.ends or self.rest or not self.branches or len(self.branches) > 1:
            return self
        [(token, below)] = self.branches.items()
        below.tail = _text([*self._tail(), token, *below._tail()])
        return below

    def find(self, topic: list[str]) -> set[Taker]:
        found: set[Taker] = set()
        last = len(topic)
        open_ = [(self, 0)]
        while open_:
            branch, at = open_.pop()
            while True:
                if branch.tail is not None:
                    tail = branch.tail.split(".")
                    end = at + len(tail)
                    if end > last or tail != topic[at:end] and not _all(tail, topic[at:end]):
                        break
                    at = end
                if at == last:
                    if branch.ends:
                        found |= branch.ends
                    break
                if branch.rest:
                    found |= branch.rest
                if not branch.branches:
                    break
                same, star = branch.branches.get(topic[at]), branch.branches.get("*")
                at += 1
                if same is not None and star is not None:
                    open_.append((star, at))
                following = same or star
                if following is None:
                    break
                branch = following
        return found


def _text(tokens: list[str]) -> str | None:
    """Empty tokens are tokens, too: those of members that check nothing."""
    return ".".join(tokens) if tokens else None


def _alike(one: list[str], other: list[str]) -> int:
    """How many tokens both begin with."""
    for count, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return count
    return min(len(one), len(other))


class Table:
    """Who subscribes to what. A taker is any hashable object, a subscription (pattern, group).

    The patterns are a tree by tokens, so that a topic costs a step for each of its tokens, and
    none for each pattern that does not match. Tokens that all patterns of a branch share are one
    step, and one text."""

    def __init__(self) -> None:
        self.of: dict[Any, Announced] = {}      # by taker: its subscriptions
        self._root = _Branch([])
        self._cache: dict[str, frozenset[Taker]] = {}
        self._cached = 0

    def refuses(self, taker: Any, pattern: str, group: str = "") -> str:
        """Why add() would not take it: "patterns", "tokens" or "bytes", of which the taker has or
        the pattern has too many. "": it would."""
        return self.of.get(taker, _NONE).refuses(pattern, group)

    def add(self, taker: Any, pattern: str, group: str = "") -> bool:
        """False: see refuses()."""
        if self.refuses(taker, pattern, group):
            return False
        its = self.of.get(taker)
        if its is None:
            its = self.of[taker] = Announced()
        if (pattern, group) in its:
            return True
        its.begin(pattern, group)
        tokens, rest = _path(pattern)
        branch = self._root.grow(tokens)
        if rest:
            branch.rest = branch.rest or set()
            branch.rest.add((taker, group))
        else:
            branch.ends = branch.ends or set()
            branch.ends.add((taker, group))
        self._forget_topics()
        return True

    def drop(self, taker: Any, pattern: str, group: str = "") -> None:
        its = self.of.get(taker, _NONE)
        if (pattern, group) in its:
            its.end(pattern, group)
            if not its:
                del self.of[taker]
            self._remove(taker, pattern, group)

    def forget(self, taker: Any) -> None:
        for pattern, group in self.of.pop(taker, ()):
            self._remove(taker, pattern, group)

    def _remove(self, taker: Any, pattern: str, group: str) -> None:
        tokens, rest = _path(pattern)
        way = self._root.way(tokens)
        last = way[-1][0]
        takers = last.rest if rest else last.ends
        assert takers is not None
        takers.discard((taker, group))
        if not takers:
            if rest:
                last.rest = None
            else:
                last.ends = None
            self._prune(way)
        self._forget_topics()

    @staticmethod
    def _prune(way: list[tuple[_Branch, str]]) -> None:
        """The last branch has lost something: remove it if it is empty, and join with the one below
        it a branch that is left with nothing else. After a removal the branch above is not empty:
        except for the root, a branch without takers has two branches or more."""
        for above, at in ((-2, -1), (-3, -2)):
            if len(way) < -above:
                return
            (upper, _), (branch, token) = way[above], way[at]
            assert upper.branches is not None
            if not branch.empty:
                upper.branches[token] = branch.joined()
                return
            del upper.branches[token]

    def _forget_topics(self) -> None:
        self._cache.clear()
        self._cached = 0

    def takers(self, topic: str) -> frozenset[Taker]:
        """All (taker, group) whose pattern matches."""
        found = self._cache.get(topic)
        if found is None:
            if self._cached > CACHED:
                self._forget_topics()
            found = self._cache[topic] = frozenset(self._root.find(topic.split(".")))
            self._cached += 64 + len(found)     # the topic itself takes memory, too
        return found


_NONE = Announced()     # of who has no subscriptions


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
        # and it is the newest in the table
        self._last[publisher] = number if number > last else last
        if len(self._last) > self._limit:
            del self._last[next(iter(self._last))]
        if number <= last:
            self.dropped += 1
        return number > last
