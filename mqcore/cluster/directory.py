"""Who is in the cluster and what they offer, as this node sees it. No I/O.

The directory holds one `Member` for each other node: its record, whether it is alive, and what the
balancer knows of it. Links update it (`heard`, `up`, `down`), and so does the membership protocol
(`heard`, `suspect`, `gone`). It reports each change as an `Event`.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from mqcore.binding.sleep import Bell
from mqcore.binding.yielding import fair
from mqcore.cluster.balance import Score
from mqcore.cluster.checks import ends_at, readable
from mqcore.cluster.frames import Offer, Record

MEMBERS = 10_000        # members that a directory holds
GONE = 1024             # ids of members that left or died, so that old news does not revive them
BACKLOG = 1000          # events that a slow reader may leave unread


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that changed in the cluster. `kind` is one of "joined", "left", "failed",
    "suspect", "alive", "offers" (services changed), "link", "link lost", "ejected" and "restored"
    (from and to a service, which is the reason), "key rejected" and "rejection over" (one
    of each, however often it is tried meanwhile, for up to 100 addresses and 100 hosts at a time),
    "refused", "trouble", "resolved" (a host name that did not)."""

    at: float           # time.time()
    kind: str
    member: str         # id in hex, "" if unknown
    url: str
    reason: str = ""

    def __str__(self) -> str:
        who = " ".join(part for part in (self.member[:8], self.url) if part)
        return f"{self.kind}: {who}" + (f" ({self.reason})" if self.reason else "")


class Member:
    """Another node, or this one. `link` is the best live link, None if there is none."""

    def __init__(self, record: Record, me: bool = False) -> None:
        self.record = record
        self.me = me
        self.state = "alive"            # or "suspect"
        self.link: Any = None
        self.epoch = 0                  # of its process, as the link in use says
        self.told = 0                   # number of the last Interest that it was sent,
        self.heard = 0                  # and that was taken from this process of it; 0: none
        self.since = time.time()
        self.unlinked = time.monotonic()        # since when it has had no link
        self.trouble = ""               # with its address or subscriptions, as last told
        self.refused = False            # its address has refused a connection since then
        self.scores: dict[str, Score] = {}

    @property
    def id(self) -> str:
        return self.record.id.hex()

    @property
    def url(self) -> str:
        return self.record.url

    @property
    def zone(self) -> str:
        return self.record.zone

    @property
    def services(self) -> dict[str, Offer]:
        return dict(self.record.services)

    def score(self, service: str) -> Score:
        found = self.scores.get(service)
        if found is None:
            if len(self.scores) > 4096:
                self.scores.clear()
            found = self.scores[service] = Score()
        return found

    def __repr__(self) -> str:
        return (f"<Member {self.id[:8]} {self.url} {self.state}"
                f"{' (this node)' if self.me else ''}: {', '.join(self.record.services) or '-'}>")


class Directory:
    """`offers(member)` is called when a member offers other services than before."""

    def __init__(self, me: Record, tell: Callable[[Event], None],
                 offers: Callable[[Member], None]) -> None:
        self.me = Member(me, me=True)
        self.members: dict[bytes, Member] = {}      # others, alive or suspect
        self.tell = tell
        self._offer = offers
        self._gone: dict[bytes, int] = {}           # id: highest incarnation known
        self._offers: dict[str, tuple[Member, ...]] = {}
        self.refused = 0                            # records that did not fit
        self.version = 0                            # of what is offered: rises with each change

    def __iter__(self) -> Iterator[Member]:
        yield self.me
        yield from self.members.values()

    def event(self, what: str, member: Member | None = None, reason: str = "", *,
              url: str = "") -> None:
        self.tell(Event(time.time(), what, member.id if member else "",
                        readable(member.url if member else url), readable(reason)))

    def offering(self, service: str) -> tuple[Member, ...]:
        """Members that offer the service and can be reached, this node included."""
        found = self._offers.get(service)
        if found is None:
            if len(self._offers) > 4096:
                self._offers.clear()
            found = self._offers[service] = tuple(
                member for member in self
                if service in member.record.services and member.link is not None)
        return found

    def local(self, service: str) -> list[Member]:
        """Those of them that are of this cluster, not gateways to others."""
        return [member for member in self.offering(service)
                if not member.record.services[service].hops]

    def changed(self) -> None:
        self._offers.clear()
        self.version += 1

    # -- what is heard -----------------------------------------------------------------------------

    def heard(self, record: Record, itself: bool = False) -> Member | None:
        """A record came. Returns the member; None if the record is ours or does not fit, or if the
        member is known to have gone, and not `itself` has just said that it is there."""
        if record.id == self.me.record.id:
            return None
        member = self.members.get(record.id)
        if member is None:
            if record.incarnation <= self._gone.get(record.id, -1) and not itself:
                return None
            if len(self.members) >= MEMBERS:
                self.refused += 1
                return None
            self._gone.pop(record.id, None)
            member = self.members[record.id] = Member(record)
            self.changed()
            self.event("joined", member)
        elif record.incarnation > member.record.incarnation:
            before, member.record = member.record, record
            self.changed()
            if before.services != record.services:
                self.event("offers", member, ", ".join(sorted(record.services)) or "none")
                self._offer(member)
        return member

    def up(self, member: Member, link: Any) -> None:
        """The member is reached by this link from now on."""
        if member.link is None:
            self.event("link", member)
        member.link = link
        for score in member.scores.values():
            score.linked(time.monotonic())
        self.recovered(member)
        self.changed()

    def down(self, member: Member, reason: str) -> None:
        """The member has no link any more."""
        member.link, member.refused = None, False
        member.unlinked = time.monotonic()
        self.changed()
        self.event("link lost", member, reason)

    def suspect(self, member: Member, reason: str) -> None:
        if member.state == "alive":
            member.state = "suspect"
            self.event("suspect", member, reason)

    def recovered(self, member: Member) -> None:
        if member.state != "alive":
            member.state = "alive"
            self.event("alive", member)

    def gone(self, member: Member, what: str, reason: str = "") -> None:
        """`what`: "left" or "failed"."""
        if self.members.pop(member.record.id, None) is None:
            return
        while len(self._gone) >= GONE:
            self._gone.pop(next(iter(self._gone)))
        self._gone[member.record.id] = member.record.incarnation
        self.changed()
        self.event(what, member, reason)


class Events:
    """Changes from now on, in order, to be iterated over with `async for` or, from another thread,
    with `for`. A reader that is more than 1000 events behind misses the oldest (`dropped`)."""

    def __init__(self, node: Any, forget: Callable[[Events], Any]) -> None:
        self._node = node
        self._forget = forget
        self._queue: deque[Event] = deque()
        self._bells: list[Any] = []
        self.dropped = 0
        self.closed = False

    def put(self, event: Event) -> None:
        if len(self._queue) >= BACKLOG:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(event)
        self.wake()

    def wake(self) -> None:
        self.ring()
        for bell in self._bells:
            if not isinstance(bell, Bell):
                bell.wake()

    def ring(self) -> None:
        """wake(), in any thread, those that wait since before the node joined."""
        for bell in list(self._bells):
            if isinstance(bell, Bell):
                bell.ring()

    async def anext(self, timeout: float | None = None) -> Event | None:
        """The next event; None after the time-out, or when the node has left."""
        limit = ends_at(timeout)
        await fair()
        while not self._queue:
            if self.closed:
                return None
            # a node that has not joined may do so, or be closed, in another thread
            nap = self._node.loop.nap() if self._node.begun else Bell()
            self._bells.append(nap)
            try:
                if not await nap.wait(limit):
                    return None
            finally:
                self._bells.remove(nap)
        return self._queue.popleft()

    def next(self, timeout: float | None = None) -> Event | None:
        """anext(), blocking."""
        if self._node.ended or self._node.loop.over:
            return self._queue.popleft() if self._queue else None
        found: Event | None = self._node.loop.call(self.anext, timeout, undo=self._put_back)
        return found

    def _put_back(self, event: Event | None) -> None:
        if event is not None:
            self._queue.appendleft(event)
            self.wake()

    def close(self) -> None:
        """End it; a reader that waits sees the end. Idempotent."""
        self.closed = True
        self._forget(self)
        self.wake()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Event:
        event = await self.anext()
        if event is None:
            raise StopAsyncIteration
        return event

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event
