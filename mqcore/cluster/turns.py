"""The order of a publisher's messages when it changes to another link.

A publisher sends to each member over one link at a time. The first message after a change carries
the number of the message before it (`Publish.after`), also when the publisher returns to a link
that it used earlier. That earlier message may still be unread on the former link, so the new
message, and all that follow it on its link, wait until one of these happens:

- a message with that number or a higher one is delivered;
- every other link of the publisher has ended or waits too: then the lowest number goes first;
- nothing of that publisher process has been delivered for `CALM` ticks. The event loop counts
  them, so a loop that stood still first reads what has arrived;
- more than `HELD` bytes wait of one member, over all its links and processes, ended ones included:
  then its process that has waited longest goes on, lowest numbers first.

Messages wait in their encoded form, so that the bytes counted are the bytes held. An ended link
leaves its messages here, but the link itself is not kept. A message that arrives after a higher
number was delivered is dropped and counted (`rising.dropped`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mqcore.cluster import frames
from mqcore.cluster.patterns import Rising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mqcore.cluster.directory import Member

HELD = 16 << 20         # bytes of one member that wait here
COST = 200              # bytes that a message is counted with, besides its own
QUEUE = 64 << 10        # bytes that a link is counted with: at most 256 links of a member wait
TICK = 1.0              # seconds
CALM = 5                # ticks

Source = tuple[bytes, int]      # a member's id, and the epoch of its process
Queue = deque[tuple[int, int, bytes]]       # seq, after and the encoded frame


class Waiting:
    """What waits of one process of a publisher: a queue for each link, or for a key that stands
    for a link that has ended. `last`: the number delivered last, as of the last tick."""

    __slots__ = ("calm", "last", "member", "queues")

    def __init__(self, member: Member, last: int) -> None:
        self.member, self.last = member, last
        self.queues: dict[Any, Queue] = {}
        self.calm = 0           # ticks without a delivery

    @property
    def first(self) -> Any:
        """The key of the queue whose next number is the lowest."""
        return min(self.queues, key=lambda key: self.queues[key][0][0])


class Turns:
    """`deliver(member, frame)` gets messages in their order. `links()`: all links there are.
    `later(seconds, function)` calls the function then. All on the event loop's thread."""

    def __init__(self, deliver: Callable[[Member, frames.Publish], None],
                 links: Callable[[], Iterable[Any]],
                 later: Callable[[float, Callable[[], None]], object]) -> None:
        self.rising = Rising()
        self._deliver = deliver
        self._links = links
        self._later = later
        self._held: dict[Source, Waiting] = {}      # from the one that has waited longest
        self._bytes: dict[bytes, int] = {}          # that wait, by the member's id
        self._ticking = False

    def received(self, link: Any, frame: frames.Publish) -> None:
        source = link.member.record.id, link.epoch
        waiting = self._held.get(source)
        if waiting is not None and link in waiting.queues \
                or frame.after and frame.after > self.rising.last(source):
            self._hold(link, source, frame)
            return
        self._admit(link.member, source, frame)
        if waiting is not None:
            self._look(source)

    def over(self, link: Any) -> None:
        """Nothing more comes over the link."""
        if not self._held or link.member is None:
            return
        source = link.member.record.id, link.epoch
        waiting = self._held.get(source)
        if waiting is not None:
            if link in waiting.queues:
                waiting.queues[object()] = waiting.queues.pop(link)
            self._look(source, link)

    def _hold(self, link: Any, source: Source, frame: frames.Publish) -> None:
        member = source[0]
        waiting = self._held.get(source)
        if waiting is None:
            waiting = self._held[source] = Waiting(link.member, self.rising.last(source))
            self._begin()
        data = frames.encode(frame)
        new = link not in waiting.queues
        waiting.queues.setdefault(link, deque()).append((frame.seq, frame.after, data))
        self._count(member, len(data) + COST + new * QUEUE)
        if new:
            self._look(source)
        while self._bytes.get(member, 0) > HELD:
            oldest = next(one for one in self._held if one[0] == member)
            self._release(oldest)
            self._look(oldest)

    def _others(self, source: Source, over: Any) -> bool:
        """Whether a link of the publisher is still to be read that does not wait itself."""
        queues = self._held[source].queues
        return any(one is not over and one not in queues and one.member is not None
                   and (one.member.record.id, one.epoch) == source for one in self._links())

    def _look(self, source: Source, over: Any = None) -> None:
        """Deliver what need not wait any longer."""
        while (waiting := self._held.get(source)) is not None:
            after = waiting.queues[waiting.first][0][1]
            if after > self.rising.last(source) and self._others(source, over):
                return
            self._release(source)

    def _release(self, source: Source) -> None:
        """Deliver the lowest number, and what follows it on its link up to the next change."""
        waiting = self._held[source]
        key = waiting.first
        queue = waiting.queues[key]
        while True:
            _, _, data = queue.popleft()
            size = len(data) + COST
            if not queue:
                del waiting.queues[key]
                size += QUEUE
                if not waiting.queues:
                    del self._held[source]
            self._count(source[0], -size)
            frame: Any = frames.decode(data)
            self._admit(waiting.member, source, frame)
            if not queue or queue[0][1] > self.rising.last(source):
                return

    def _count(self, member: bytes, size: int) -> None:
        size += self._bytes.pop(member, 0)
        if size:
            self._bytes[member] = size

    def _tick(self) -> None:
        """Deliver what has waited for too long."""
        self._ticking = False
        self._begin()
        for source, waiting in list(self._held.items()):
            last = self.rising.last(source)
            waiting.calm = waiting.calm + 1 if waiting.last == last else 0
            waiting.last = last
            while waiting.calm >= CALM and waiting.queues:
                self._release(source)

    def _begin(self) -> None:
        if self._held and not self._ticking:
            self._ticking = True
            self._later(TICK, self._tick)

    def _admit(self, member: Member, source: Source, frame: frames.Publish) -> None:
        if self.rising.admit(source, frame.seq):
            self._deliver(member, frame)
