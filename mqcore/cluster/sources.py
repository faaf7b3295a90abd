"""Who sends next over a link: the turns of lines of messages, of large frames that are cut, and of
tunnels.

Kinds that have something to send get as many bytes each, so that a request waits no longer because
there are many tunnels. Within a kind, sources take turns, one message each, in
rounds. Until all that wait have had their share of bytes, none gets another one. A source that is
alone sends all it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from mqcore.cluster import frames

if TYPE_CHECKING:
    from mqcore.cluster.window import Window

SHARE = frames.PART     # bytes of a source in a round

# sends one message, and returns whether it has more to send now
Source = Callable[[], bool]


class Kind:
    """The sources of one kind. A new one in place of one that has gone has had what that one had:
    else those that come and go would have a round never end, and who waits for the next one would
    get nothing."""

    __slots__ = ("bytes", "gone", "had", "spent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Source] = deque()   # in the order of their turns
        self.had: deque[Source] = deque()       # those that have had their share of this round
        self.spent: dict[Source, int] = {}      # bytes of each in this round,
        self.gone: list[int] = []               # and of those that are over
        self.bytes = 0                          # of all, to compare with other kinds

    def __len__(self) -> int:
        return len(self.waiting) + len(self.had)

    def clear(self) -> None:
        self.waiting.clear()
        self.had.clear()
        self.spent.clear()
        self.gone.clear()

    def forgive(self) -> None:
        """None has had anything yet."""
        self.spent.clear()
        self.gone.clear()
        self.waiting.extend(self.had)
        self.had.clear()
        self.bytes = 0

    def has_had(self, source: Source) -> bool:
        return self.spent.get(source, 0) >= SHARE

    def begin(self, source: Source) -> None:
        """It has something to send. It may be new."""
        if self.gone and source not in self.spent:
            self.spent[source] = self.gone.pop()

    def add(self, source: Source) -> None:
        (self.had if self.has_had(source) else self.waiting).append(source)

    def over(self, source: Source) -> None:
        """It waits no more, and does not come back."""
        if spent := self.spent.pop(source, 0):
            self.gone.append(spent)

    def discard(self, source: Source) -> None:
        self.over(source)
        for those in (self.waiting, self.had):
            if source in those:
                those.remove(source)

    def next(self) -> Source:
        if not self.waiting:
            self._begin()
        return self.waiting.popleft()

    def _begin(self) -> None:
        """A new round. Who has had more than a share owes the rest."""
        least = min(map(self.spent.__getitem__, self.had))
        self.spent = {source: owed for source, spent in self.spent.items()
                      if (owed := spent - least) > 0}
        self.gone = [owed for spent in self.gone if (owed := spent - least) > 0]
        had, self.had = self.had, deque()
        for source in had:
            self.add(source)


class Sources:
    """`full()` says that none may send although the window is open; feed() is due when that is
    over. `feed_later()` has feed() called once all that is due in the loop has run: sources that go
    on have entered again by then. Without it, nothing else runs in between."""

    def __init__(self, window: Window, feed_later: Callable[[], None] | None,
                 full: Callable[[], bool]) -> None:
        self.lines = Kind()
        self.cut = Kind()
        self.tunnels = Kind()
        self._kinds = (self.lines, self.cut, self.tunnels)
        self._window = window
        self._feed_later = feed_later
        self._full = full
        self._shared = False        # two or more have waited since one was alone
        self._ahead = 0             # bytes of short messages that went ahead of those that wait

    def __len__(self) -> int:
        lines, cut, tunnels = self._kinds
        return len(lines.waiting) + len(lines.had) + len(cut.waiting) + len(cut.had) \
            + len(tunnels.waiting) + len(tunnels.had)

    def clear(self) -> None:
        for kind in self._kinds:
            kind.clear()

    @property
    def open(self) -> bool:
        """Whether the window has room for another message."""
        return self._window.open and not self._full()

    def ahead(self, size: int, most: int, news: bool) -> bool:
        """Send a short message, although the window is full, if so many bytes more are not on their
        way, and if it is not ahead of those that wait by as much: they would never have a turn."""
        waits = len(self)
        if waits and self._ahead + size > most or not self._window.takes(size, news, most):
            return False
        self._ahead = self._ahead + size if waits else 0
        return True

    def _behind(self, size: int) -> None:
        """One that has waited has sent so much."""
        self._ahead = max(0, self._ahead - size)

    def enter(self, source: Source) -> None:
        """Of a tunnel: have it send a message when its turn comes. That is at once, unless it has
        had its share and others may want theirs."""
        kind = self.tunnels
        if not self._shared:
            if len(self) or not self.open or source():
                kind.waiting.append(source)
                self.feed()
            return
        kind.begin(source)
        if not self.open or kind.has_had(source) or self._is_ahead(kind) \
                or self._turn(kind, source):
            kind.add(source)
        self.feed_soon()

    def enter_line(self, source: Source) -> None:
        """Of a line that was empty: feed() is due, or going on."""
        self.lines.begin(source)
        self.lines.add(source)

    def enter_cut(self, source: Source) -> None:
        """Of a frame that is cut: feed() is due."""
        self.cut.begin(source)
        self.cut.add(source)

    def withdraw(self, source: Source) -> None:
        """A tunnel has nothing to send any more."""
        self.tunnels.discard(source)

    def feed_soon(self) -> None:
        if len(self) and self.open:
            (self._feed_later or self.feed)()

    def feed(self) -> None:
        """Let sources send as far as the window goes."""
        while len(self) == 1 and self.open:
            self._alone()
        if len(self) < 2:
            return
        self._shared = True
        while len(self) and self.open:
            self._turns()
            if self._feed_later is not None:
                self.feed_soon()
                return

    def _turns(self) -> None:
        """As many messages as there are sources now."""
        for _ in range(len(self)):
            if not len(self) or not self.open:
                return
            kind = self._next_kind()
            source = kind.next()
            if self._turn(kind, source):
                kind.add(source)
            elif kind is not self.tunnels:
                kind.over(source)

    def _alone(self) -> None:
        self._shared = False
        for kind in self._kinds:
            kind.forgive()
        kind = self._next_kind()
        source, before = kind.next(), self._window.sent
        while more := source():
            if len(self) or not self.open:
                break
        self._behind(self._window.sent - before)
        if more:
            kind.waiting.append(source)

    def _next_kind(self) -> Kind:
        """The one that has sent least of those that wait."""
        return min((kind for kind in self._kinds if kind), key=_bytes)

    def _is_ahead(self, kind: Kind) -> bool:
        """Whether another kind is to send first."""
        return any(other and other is not kind and other.bytes <= kind.bytes
                   for other in self._kinds)

    def _turn(self, kind: Kind, source: Source) -> bool:
        before = self._window.sent
        more = source()
        spent = self._window.sent - before
        kind.spent[source] = kind.spent.get(source, 0) + spent
        kind.bytes += spent
        self._behind(spent)
        for other in self._kinds:
            if not other and other is not kind:     # it wants nothing: it saves nothing up
                other.bytes = kind.bytes
        return more


_bytes = attrgetter("bytes")
