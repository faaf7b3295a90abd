"""The order of a publisher's messages when it goes over to another link.

A publisher sends to each member over one link at a time. The first message over another one says
which was the last before it (`Publish.after`). What came over the former link may be unread still:
until that message is there, or the former link is over, those of the new one wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mqcore.cluster import frames
from mqcore.cluster.patterns import Rising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mqcore.cluster.directory import Member

HELD = 16 << 20         # bytes that wait here for what came before them
COST = 200              # bytes that a message is counted with, besides its own


class Held:
    """What came over one link and waits: the publisher, the number that it waits for, messages."""

    def __init__(self, member: Member, source: tuple[bytes, int], after: int) -> None:
        self.member, self.source, self.after = member, source, after
        self.messages: deque[frames.Publish] = deque()
        self.bytes = 0


class Turns:
    """`deliver(member, frame)` gets messages in their order. `links()`: all links there are."""

    def __init__(self, deliver: Callable[[Member, frames.Publish], None],
                 links: Callable[[], Iterable[Any]]) -> None:
        self.rising = Rising()
        self._deliver = deliver
        self._links = links
        self._held: dict[Any, Held] = {}        # by link

    def received(self, link: Any, frame: frames.Publish) -> None:
        source = link.member.record.id, link.epoch
        held = self._held.get(link)
        if held is None and frame.after and frame.after > self.rising.last(source) \
                and self._others(link, source):
            held = self._held[link] = Held(link.member, source, frame.after)
        if held is not None:
            held.messages.append(frame)
            held.bytes += len(frame.body) + COST
            if held.bytes > HELD:       # the rest of the former link comes too late
                self._release(link)
            return
        self._admit(link.member, source, frame)
        if self._held:
            self._look(source)

    def over(self, link: Any) -> None:
        """Nothing more comes over the link."""
        if self._held and link.member is not None:
            self._look((link.member.record.id, link.epoch), link)

    def _others(self, link: Any, source: tuple[bytes, int], over: Any = None) -> bool:
        """Whether another link of the publisher is still to be read."""
        return any(one is not link and one is not over and one not in self._held
                   and one.member is not None
                   and (one.member.record.id, one.epoch) == source for one in self._links())

    def _look(self, source: tuple[bytes, int], over: Any = None) -> None:
        """Let go what need not wait any longer."""
        for link, held in list(self._held.items()):
            if held.source == source and (held.after <= self.rising.last(source)
                                          or not self._others(link, source, over)):
                self._release(link)

    def _release(self, link: Any) -> None:
        held = self._held.pop(link)
        for frame in held.messages:
            self._admit(held.member, held.source, frame)

    def _admit(self, member: Member, source: tuple[bytes, int], frame: frames.Publish) -> None:
        if self.rising.admit(source, frame.seq):
            self._deliver(member, frame)
