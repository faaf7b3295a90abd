"""Topics with a node: publications and subscriptions.

Subscriptions with the same `queue=` form a group over the whole cluster: each message goes to one
of them. A node knows the subscriptions of all nodes (frames `Interest`) and sends a publication
once to each node that wants it, so there is one hop and no duplicate by nature. Publications of one
process carry rising numbers. A receiver drops what does not rise, and after a change of links it
reads the former one first (turns.py). So that can neither repeat nor reorder a publisher's
messages; it loses those that the former link had not carried to the receiver when it broke.
Frames that tell of subscriptions always travel whole, so none overtakes another.
"""

from __future__ import annotations

import random
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Self

from mqcore import trace
from mqcore.binding.sleep import Nap
from mqcore.binding.yielding import fair
from mqcore.cluster import frames
from mqcore.cluster.checks import ends_at
from mqcore.cluster.errors import NodeClosed
from mqcore.cluster.patterns import (
    MOST,
    Announced,
    Rising,
    Table,
    check_pattern,
)
from mqcore.cluster.turns import Turns
from mqcore.errors import RecvTimeout, StateError, UsageError

if TYPE_CHECKING:
    from mqcore.cluster.directory import Member
    from mqcore.cluster.node import Core

INTEREST = 30_000       # bytes of subscriptions in one frame that begin, and of those that end


class Publication:
    """`topic` (str), `body` (bytes), `peer` (the publishing member), `trace_context` (what
    `trace.span(parent=)` continues; None: the publisher had no trace)."""

    __slots__ = ("body", "peer", "topic", "trace_context")

    def __init__(self, topic: str, body: bytes, peer: Member,
                 trace_context: trace.TraceContext | None = None) -> None:
        self.topic = topic
        self.body = body
        self.peer = peer
        self.trace_context = trace_context

    def __repr__(self) -> str:
        return f"<publication {self.topic!r}, {len(self.body)} bytes>"


class Feed:
    """A subscription. Iterate over it, or call arecv(). While the application is slow, up to
    `queue_bytes` of messages wait; then the oldest are dropped and counted in `dropped`."""

    COST = 200      # bytes that a message is counted with, besides its own

    def __init__(self, node: Core, patterns: tuple[str, ...], queue: str, queue_bytes: int) -> None:
        self._node = node
        self.patterns = tuple(check_pattern(pattern) for pattern in patterns)
        if not patterns:
            raise UsageError("subscribe to one topic or pattern at least", hint='">" is everything')
        self.queue = queue
        self.queue_bytes = queue_bytes
        self._messages: deque[Publication] = deque()
        self._bytes = 0
        self._bells: list[Nap] = []
        self._starts = 0        # calls that have begun it, or are about to
        self._turn = 0          # how often it has ended
        self.received = self.delivered = self.dropped = 0
        self.closed = False

    def put(self, message: Publication) -> None:
        self.received += 1
        self._messages.append(message)
        self._bytes += len(message.body) + self.COST
        while self._bytes > self.queue_bytes and len(self._messages) > 1:
            oldest = self._messages.popleft()
            self._bytes -= len(oldest.body) + self.COST
            self.dropped += 1
        for bell in self._bells:
            bell.wake()

    def _put_back(self, message: Publication) -> None:
        self._messages.appendleft(message)
        self._bytes += len(message.body) + self.COST
        self.delivered -= 1
        for bell in self._bells:
            bell.wake()

    @property
    def waiting(self) -> int:
        return len(self._messages)

    async def arecv(self, *, timeout: float | None = None) -> Publication:
        """The next message. Raises RecvTimeout, NodeClosed once the feed has ended, and StateError
        if it has not begun."""
        limit = ends_at(timeout)
        await fair()
        while not self._messages:
            if self.closed:
                raise NodeClosed("this subscription has ended")
            if self not in self._node.topics.feeds:
                raise StateError("this subscription has not begun",
                                 hint="async with net.asubscribe(...), or await feed.astart()")
            nap = self._node.loop.nap()
            self._bells.append(nap)
            try:
                if not await nap.wait(limit):
                    raise RecvTimeout(f"no message for {', '.join(self.patterns)} arrived")
            finally:
                self._bells.remove(nap)
        message = self._messages.popleft()
        self._bytes -= len(message.body) + self.COST
        self.delivered += 1
        return message

    async def astart(self) -> Self:
        """Begin, without `async with`. When it returns, all linked members know. Of calls at the
        same time, one that is cancelled takes nothing from the others: the last of them ends the
        subscription."""
        await self._begin()
        return self

    async def _begin(self) -> int:
        """What _release() takes."""
        self._node.topics.subscribe(self)
        self.closed = False
        self._starts += 1
        turn = self._turn
        try:
            await self._node.barrier()
        except BaseException:       # cancelled: the caller cannot end it
            self._release(turn)
            raise
        return turn

    def _release(self, turn: int) -> None:
        """A start is given up. It may have been ended, and begun again, since then."""
        if turn == self._turn:
            self._starts -= 1
            if not self._starts:
                self.end()

    def end(self) -> None:
        """aclose(), on the loop's thread."""
        if not self.closed:
            self.closed = True
            self._turn += 1
            self._starts = 0
            self._node.topics.unsubscribe(self)
            for bell in self._bells:
                bell.wake()

    async def aclose(self) -> None:
        """End the subscription; what waits can still be taken. Idempotent."""
        if not self._node.loop.inherited:
            self.end()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def __aiter__(self) -> AsyncIterator[Publication]:
        while True:
            try:
                message = await self.arecv()
            except NodeClosed:
                return
            yield message

    def recv(self, *, timeout: float | None = None) -> Publication:
        """arecv(), blocking."""
        found: Publication = self._node.loop.call(
            lambda: self.arecv(timeout=timeout), undo=self._put_back)
        return found

    def close(self) -> None:
        self._node.loop.end(self.aclose)

    def start(self) -> Self:
        """astart(), blocking."""
        self._node.loop.call(self._begin, undo=self._release)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Publication]:
        while True:
            try:
                message = self.recv()
            except NodeClosed:
                return
            yield message


def _fit(subscriptions: list[tuple[str, str]]) -> int:
    """How many of the first ones one frame takes. It must travel whole (session.py): small frames
    overtake one that is cut, such as the next Interest, or the Ping of a barrier."""
    room = INTEREST
    for count, (pattern, group) in enumerate(subscriptions[:frames.BATCH]):
        room -= len(pattern.encode()) + len(group.encode()) + 8
        if room < 0:
            return count
    return min(len(subscriptions), frames.BATCH)


class Topics:
    """All that a node publishes and subscribes to. Accounts, exact at any moment:
    sum of `wanted` over publications == delivered here + sent + dropped[reason]."""

    def __init__(self, node: Core) -> None:
        self.node = node
        self.local = Table()            # takers: feeds
        self.remote = Table()           # takers: ids of members
        self.own: dict[tuple[str, str], int] = {}       # (pattern, group): feeds of it
        self.announced = Announced()    # all of these
        self.reported: set[tuple[bytes, str]] = set()   # members with too many, and of what
        self.feeds: set[Feed] = set()
        self.seq = 0                    # of the last publication
        self.epoch = secrets.randbits(61) + 1   # of this process: its numbers begin anew
        self.told = 0               # frames that told of subscriptions
        self.turns = Turns(self._take, lambda: node.links.by_rid.values(),
                           lambda seconds, function: node.loop.later(seconds, function))
        self.latest = Rising()      # the number of the last message to each process of a member
        self.rng = random.Random()
        self.published = self.wanted = self.sent = self.unmatched = self.unsent = 0

    # -- subscriptions -----------------------------------------------------------------------------

    def subscribe(self, feed: Feed) -> None:
        self.node.check_here()
        if feed in self.feeds:
            return
        added = self._announce(feed)
        self.feeds.add(feed)
        for pattern in feed.patterns:
            self.local.add(feed, pattern, feed.queue)
            self.own[pattern, feed.queue] = self.own.get((pattern, feed.queue), 0) + 1
        self._tell(added, [])

    def _announce(self, feed: Feed) -> list[tuple[str, str]]:
        """Count those of its subscriptions that are new. Raises UsageError, and has counted none
        then, if they are more than another node would take."""
        added: list[tuple[str, str]] = []
        for pattern in feed.patterns:
            if why := self.announced.refuses(pattern, feed.queue):
                for one in added:
                    self.announced.end(*one)
                raise UsageError(f"the subscriptions of a node have {MOST[why]} at most",
                                 hint="use wildcards, and shorter patterns")
            if (pattern, feed.queue) not in self.announced:
                self.announced.begin(pattern, feed.queue)
                added.append((pattern, feed.queue))
        return added

    def unsubscribe(self, feed: Feed) -> None:
        if feed not in self.feeds:      # it has not begun
            return
        self.feeds.discard(feed)
        self.local.forget(feed)
        dropped = []
        for pattern in feed.patterns:
            self.own[pattern, feed.queue] -= 1
            if not self.own[pattern, feed.queue]:
                del self.own[pattern, feed.queue]
                self.announced.end(pattern, feed.queue)
                dropped.append((pattern, feed.queue))
        self._tell([], dropped)

    def _tell(self, added: list[tuple[str, str]], dropped: list[tuple[str, str]]) -> None:
        for member in self.node.directory.members.values():
            if member.link is not None:
                self._tell_over(member.link, added, dropped)

    def linked(self, link: Any) -> None:
        """From now on this link to its member is used: tell all anew."""
        self._tell_over(link, list(self.own), [], reset=True)

    def _tell_over(self, link: Any, added: list[tuple[str, str]],
                   dropped: list[tuple[str, str]], reset: bool = False) -> None:
        member = link.member
        while added or dropped or reset:
            after, self.told = member.told, self.told + 1
            member.told = self.told
            adds, drops = _fit(added), _fit(dropped)
            link.control(frames.Interest(added[:adds], dropped[:drops], self.told, after, reset))
            added, dropped, reset = added[adds:], dropped[drops:], False

    def interest(self, link: Any, frame: frames.Interest) -> None:
        """A member tells its subscriptions over the link that it uses, all of them at first. What
        it has said over another one before may come later."""
        member = link.member
        taker = member.record.id
        if frame.number <= member.heard or not frame.reset and frame.after != member.heard:
            return
        member.heard = frame.number
        if frame.reset:
            self.remote.forget(taker)
        for pattern, group in frame.drop:
            self.remote.drop(taker, pattern, group)
        for pattern, group in frame.add:
            if why := self.remote.refuses(taker, pattern, group):
                self._refused(member, why)
            else:
                self.remote.add(taker, pattern, group)

    def _refused(self, member: Member, why: str) -> None:
        """Count it, and report it once: this node's publications do not reach the subscription."""
        self.node.count(f"subscriptions_refused_{why}")
        if (member.record.id, why) not in self.reported:
            self.reported.add((member.record.id, why))
            member.trouble = f"it has more subscriptions than a node takes: {MOST[why]} at most"
            self.node.directory.event("trouble", member, member.trouble)

    def gone(self, member: Member) -> None:
        self.remote.forget(member.record.id)
        self.reported -= {(member.record.id, why) for why in MOST}

    # -- messages ----------------------------------------------------------------------------------

    def publish(self, topic: str, body: bytes) -> int:
        """To everybody who wants it. Returns the number of nodes, this one included. `topic` has
        been checked."""
        self.seq += 1
        self.published += 1
        chosen: dict[Any, list[str]] = {}       # takers, with the groups that each serves
        groups: dict[str, list[Any]] = {}
        for taker, group in self.remote.takers(topic):
            if group:
                groups.setdefault(group, []).append(taker)
            else:
                chosen[taker] = []
        for group in {group for _, group in self.local.takers(topic)}:
            if group:
                groups.setdefault(group, []).append(None)
            else:
                chosen[None] = []
        plain = chosen
        if groups:
            plain = chosen.copy()
            for group, takers in groups.items():
                chosen.setdefault(self._one(takers), []).append(group)
        if not chosen:
            self.unmatched += 1
        for taker, its in chosen.items():
            self.wanted += 1
            if taker is None:
                self.deliver(self.node.directory.me, topic, body, None in plain, tuple(its),
                             trace.current())
                self.sent += 1
                continue
            member = self.node.directory.members.get(taker)
            if member is not None and member.link is not None and self._send(
                    member.link, topic, body, taker in plain, its):
                self.sent += 1
            else:
                self.unsent += 1
        return len(chosen)

    def _send(self, link: Any, topic: str, body: bytes, plain: bool, groups: list[str]) -> bool:
        """More groups than fit into one frame take several, with a number each."""
        sent = True
        context = trace.current()
        text = "" if context is None else trace.to_text(context)
        process = link.member.record.id, link.epoch
        for at in range(0, len(groups) or 1, frames.BATCH):
            self.seq += at > 0
            last = self.latest.last(process)
            after = 0 if link.published == last else max(0, last)   # this link has carried it
            if link.send(frames.Publish(self.seq, topic, body, plain and not at,
                                        tuple(groups[at:at + frames.BATCH]), text, after)):
                self.latest.admit(process, self.seq)
                link.published = self.seq
            else:
                sent = False
        return sent

    def _one(self, takers: list[Any]) -> Any:
        """The node that serves a group this time: one that is linked, at random."""
        members = self.node.directory.members
        live = [taker for taker in takers if taker is None
                or (taker in members and members[taker].link is not None)]
        return self.rng.choice(sorted(live or takers, key=lambda taker: taker or b""))

    def _take(self, member: Member, frame: frames.Publish) -> None:
        self.deliver(member, frame.topic, frame.body, frame.plain, frame.groups,
                     trace.from_text(frame.trace) if frame.trace else None)

    def deliver(self, peer: Member, topic: str, body: bytes, plain: bool,
                groups: tuple[str, ...], context: trace.TraceContext | None = None) -> None:
        feeds: set[Any] = set()
        shared: dict[str, list[Any]] = {}
        for feed, group in self.local.takers(topic):
            if not group and plain:
                feeds.add(feed)
            elif group in groups:
                shared.setdefault(group, []).append(feed)
        for those in shared.values():
            feeds.add(min(those, key=lambda feed: (feed.waiting, feed.received)))
        for feed in feeds:
            feed.put(Publication(topic, body, peer, context))

    def accounts(self) -> dict[str, int]:
        return {"published": self.published, "wanted": self.wanted, "sent": self.sent,
                "unsent": self.unsent, "unmatched": self.unmatched,
                "repeated": self.turns.rising.dropped}
