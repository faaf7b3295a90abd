"""Who sends next over a link: the turns of large frames that are cut, and of tunnels.

Each kind gets half of the bytes while both have something to send, so that a large request waits
no longer because there are many tunnels. Within a kind, sources take turns, one message each, in
rounds. Until all that wait have had their share of bytes, none gets another one. A source that is
alone sends all it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.cluster import frames

if TYPE_CHECKING:
    from mqcore.cluster.window import Window

SHARE = frames.PART     # bytes of a source in a round

# sends one message, and returns whether it has more to send now
Source = Callable[[], bool]


class Kind:
    """The sources of one kind."""

    __slots__ = ("had", "spent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Source] = deque()   # in the order of their turns
        self.had: deque[Source] = deque()       # those that have had their share of this round
        self.spent: dict[Source, int] = {}      # bytes of each in this round

    def __len__(self) -> int:
        return len(self.waiting) + len(self.had)

    def clear(self) -> None:
        self.waiting.clear()
        self.had.clear()
        self.spent.clear()

    def forgive(self) -> None:
        """None has had anything yet."""
        self.spent.clear()
        self.waiting.extend(self.had)
        self.had.clear()

    def has_had(self, source: Source) -> bool:
        return self.spent.get(source, 0) >= SHARE

    def add(self, source: Source) -> None:
        (self.had if self.has_had(source) else self.waiting).append(source)

    def discard(self, source: Source) -> None:
        self.spent.pop(source, None)
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
        had, self.had = self.had, deque()
        for source in had:
            self.add(source)


class Sources:
    """`full()` says that none may send although the window is open; feed() is due when that is
    over. `feed_later()` has feed() called once all that is due in the loop has run: sources that go
    on have entered again by then. Without it, nothing else runs in between."""

    def __init__(self, window: Window, feed_later: Callable[[], None] | None,
                 full: Callable[[], bool]) -> None:
        self.cut = Kind()
        self.tunnels = Kind()
        self._window = window
        self._feed_later = feed_later
        self._full = full
        self._shared = False        # two or more have waited since one was alone
        self._lead = 0              # bytes that tunnels have sent more than cut frames

    def __len__(self) -> int:
        return len(self.cut) + len(self.tunnels)

    def clear(self) -> None:
        self.cut.clear()
        self.tunnels.clear()

    @property
    def open(self) -> bool:
        """Whether the window has room for another message."""
        return self._window.open and not self._full()

    def enter(self, source: Source) -> None:
        """Of a tunnel: have it send a message when its turn comes. That is at once, unless it has
        had its share and others may want theirs."""
        kind = self.tunnels
        if not self._shared:
            if len(self) or not self.open or source():
                kind.waiting.append(source)
                self.feed()
            return
        if not self.open or kind.has_had(source) or self.cut and self._lead >= 0 \
                or self._turn(kind, source):
            kind.add(source)
        self.feed_soon()

    def withdraw(self, source: Source) -> None:
        """A tunnel has nothing to send any more."""
        self.tunnels.discard(source)

    def feed_soon(self) -> None:
        if len(self) and self.open:
            (self._feed_later or self.feed)()

    def feed(self) -> None:
        """Let sources send as far as the window goes."""
        if len(self) == 1:
            self._alone()
            return
        self._shared = self._shared or len(self) > 1
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

    def _alone(self) -> None:
        self._shared = False
        self.cut.forgive()
        self.tunnels.forgive()
        while len(self) and self.open:
            kind = self._next_kind()
            source = kind.next()
            if source():
                kind.waiting.append(source)

    def _next_kind(self) -> Kind:
        if not self.cut or not self.tunnels:
            return self.cut or self.tunnels
        return self.cut if self._lead >= 0 else self.tunnels

    def _turn(self, kind: Kind, source: Source) -> bool:
        before = self._window.sent
        more = source()
        spent = self._window.sent - before
        kind.spent[source] = kind.spent.get(source, 0) + spent
        if kind is self.tunnels:
            self._lead = self._lead + spent if self.cut else 0
        else:
            self._lead = self._lead - spent if self.tunnels else 0
        return more
