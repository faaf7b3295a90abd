"""How a node drains, and how it leaves: what adrain() waits for, and what is sent in any case."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any

from mqcore.cluster import frames
from mqcore.cluster.handling import PATIENCE, itself, under_way
from mqcore.cluster.pings import LOOK, Question
from mqcore.errors import StateError

if TYPE_CHECKING:
    from mqcore.cluster.directory import Member
    from mqcore.cluster.link import Link
    from mqcore.cluster.links import Links
    from mqcore.cluster.node import Core

FLUSH = 1.0             # seconds in which a socket that is not stuck takes something
LONGEST = 5.0           # seconds until it has to have taken all
STALLED = 2.0           # seconds in which the other side, if it is not stuck, takes something
LOG = logging.getLogger("mqcore.cluster")


class Patience:
    """Hurries messages that wait for the other side of a link, once it has taken nothing for
    `FLUSH` seconds: it may be busy for long, and a node that leaves does not wait for that."""

    def __init__(self, links: Collection[Link]) -> None:
        self._links = links
        # of each link that something waits for: what its other side has taken, and since when
        self._taken: dict[Link, tuple[int, float]] = {}

    def look(self, now: float) -> None:
        before, self._taken = self._taken, {}
        for link in list(self._links):      # hurry() may end one
            if not link.session.waiting:
                continue
            taken = link.session.window.taken
            was, since = before.get(link, (-1, now))
            self._taken[link] = taken, since if taken == was else now
            if taken == was and now - since >= FLUSH:
                link.hurry()


class Draining:
    """What has to be over at a node before it leaves. It takes nothing new from here on."""

    def __init__(self, node: Core) -> None:
        self.node, self._links = node, node.links
        self._before = _failures(node.links)
        # what this node's own tasks begin from now on is not waited for, else it might never end;
        # what handlers begin keeps their services busy
        self._tunnels = node.tunnels.sending
        self._patience = Patience(node.links.by_rid.values())
        self._marks: dict[Link, tuple[int, ...]] = {}
        self._given_up: set[Member | None] = set()
        node.draining = True
        for service in node.services.values():
            service.draining = True
        node.announce()

    def ask(self, every: bool, silence: float | None) -> list[Question]:
        """Questions over the links that members are reached by, or every one of theirs, whether
        they know."""
        return [Question(link, silence, patient=silence is None) for link in self.links()
                if link.member is not None and (every or link.member.link is link)] \
            if self.node.services else []

    def links(self) -> list[Link]:
        """All but those of members that were given up."""
        return [link for link in self._links.by_rid.values() if link.member not in self._given_up]

    def asked(self, questions: list[Question]) -> bool:
        """These are over. Whether none was given up. Such members are not asked again."""
        given_up = {question.link.member for question in questions if question.given_up}
        self._given_up |= given_up
        for question in questions:
            question.forget()
        return not given_up

    def finished(self) -> bool:
        node, links, marks = self.node, self._links, self._marks
        links.confirm()
        if node.closed:
            return True
        if node.requests.pending > node.requests.late or not self.arrived() \
                or any(one.busy for one in (*node.services.values(), *node.stopped)):
            return False
        self._patience.look(time.monotonic())
        if not marks:
            marks.update((link, link.session.mark()) for link in links.by_rid.values())
        return all(link.has_sent(mark) for link, mark in marks.items())

    def arrived(self) -> bool:
        return all(tunnel._arrived for tunnel in self._tunnels)

    def look_again(self) -> None:
        """A handler may have sent the end of a tunnel and returned."""
        self._tunnels = [tunnel for tunnel in self.node.tunnels.sending if tunnel._flow.eof_out]

    @property
    def failed(self) -> bool:
        return _failures(self._links) != self._before


async def drain(node: Core, timeout: float | None) -> bool:
    """Core.adrain(). What a gateway passes on is under way at two nodes, which drain together."""
    check_caller(node, node.loop.this_task())
    end = timeout and time.monotonic() + timeout

    def left() -> float | None:
        return end and max(0.0, end - time.monotonic())

    nodes = [node, *(gateway.fed for gateway in node.gateways
                     if gateway.fed.ready and not gateway.fed.closed)]
    parts = [Draining(each) for each in nodes]
    told = await _told(node, parts, left)
    done = await node.until(lambda: all([part.finished() for part in parts]), left())
    if done:
        for part in parts:
            part.look_again()
        done = await node.until(lambda: all(part.arrived() for part in parts), left())
    # and until answers have arrived, which the end of a link may prevent
    done = done and await _arrived(node, parts, left)
    if not node.closed:     # by another call
        node.drained = told and done and not any(part.failed for part in parts)
    await node.aclose()
    return node.drained


def check_caller(node: Core, task: Any = None) -> None:
    """Raises StateError if a handler of the node makes this call, in this task or in its thread."""
    if itself(task) in node.loop.handlers:
        raise StateError("a handler cannot wait until its node has drained, which waits for the "
                         "end of the handler",
                         hint="begin the drain in a task or thread of its own, and return")


async def _told(node: Core, parts: list[Draining], left: Callable[[], float | None]) -> bool:
    """Wait until the other members know: they send no new requests then, and have taken back those
    that they had not sent whole. Then until what they had sent before has come, over whichever
    link, and has been refused. If there is no time-out: as long as a frame comes every `STALLED`
    seconds from each one that is waited for."""
    know = await _asked(node, parts, False, left)
    return await _asked(node, parts, True, left) and know


async def _asked(node: Core, parts: list[Draining], every: bool,
                 left: Callable[[], float | None]) -> bool:
    limit = left()
    asked = [part.ask(every, STALLED if limit is None else None) for part in parts]
    try:
        done = await node.until(lambda: all([one.over() for part in asked for one in part]), limit)
    finally:
        answered = [part.asked(questions) for part, questions in zip(parts, asked, strict=True)]
    return done and all(answered)


def _failures(links: Links) -> int:
    return links.broke_off + links.dropped.get("unconfirmed", 0)


async def _arrived(node: Core, parts: list[Draining], left: Callable[[], float | None]) -> bool:
    """Whether all messages that nobody answers have arrived, for which it waits as hurry() does if
    there is no time-out, and all answers. Members that were given up are not waited for again."""
    links = [link for part in parts for link in part.links()]
    due = {link: link.answered for link in links if link.owes}
    news = [link for link in links if link.session.window.news]
    # what a broken link has carried is known when it is over
    return await _heard(node, news, left(), left() is not None) \
        and await node.links.taken(list(due), left()) \
        and await node.until(lambda: all(link.usable or link.member is None for link in news),
                             left()) \
        and not any(link.confirmed < answered and link.owes and link.member is not None
                    for link, answered in due.items())


async def leave(node: Core) -> None:
    """Release everything that there is so far, each part even if another one fails or this is
    cancelled."""
    node.closed = node.loop.leaving = True
    node._wake()
    async with AsyncExitStack() as stack:       # from the last one to the first
        stack.enter_context(under_way())
        stack.callback(count_left, node)
        stack.push_async_callback(node.loop.aclose)
        stack.callback(node._wake)      # who waits for the end has a turn before the loop ends
        stack.callback(setattr, node, "ended", True)
        if node._identity is not None:
            stack.callback(node._identity.release)
        for stream in list(node._streams):
            stack.callback(stream.close)
        if hasattr(node, "links"):
            stack.push_async_callback(node.links.aclose)
        for adopted in list(node.adopted):
            stack.push_async_callback(adopted.socket.aclose, 0)
        if node.ready:
            stack.callback(drop, node)
        if hasattr(node, "links"):
            stack.push_async_callback(hand_over, node, node.links.by_rid.values())
        for part in ("pulse", "sources"):
            if hasattr(node, part):
                stack.callback(getattr(node, part).close)
        if hasattr(node, "directory"):
            stack.callback(say_goodbye, node)
            stack.push_async_callback(hurry, node, node.links.by_rid.values())
        for service in node.services.values():      # take nothing new
            service.draining = True


def count_left(node: Core) -> None:
    """Handlers that a leave no longer waits for may go on, and use what is not there any more."""
    if left := node.loop.left:
        node.count("handlers_left", left)
        LOG.warning("this node has left the cluster, and %d of its handlers still run: they were "
                    "cancelled, and the leave has waited for at most %g s", left, PATIENCE)


async def hand_over(node: Core, links: Collection[Link]) -> None:
    """Give the socket what waits for it, as long as it takes something each `FLUSH` seconds, and
    wait until it has written that."""
    await _emptied(node, links, lambda: not _unsent(links))
    await node.until(lambda: not _queued(node, links), FLUSH)


def say_goodbye(node: Core) -> None:
    """Tell the other members, who would have to find it out."""
    node.pulse.leave()
    for member in list(node.directory.members.values()):
        if member.link is None or not member.link.send(frames.Leave()):
            any(link.send(frames.Leave()) for link in node.links.of(member))


def drop(node: Core) -> None:
    """End all that is under way, with this node itself, too: each part even if another one
    fails."""
    home = node.directory.me.link
    with ExitStack() as stack:      # from the last one to the first
        stack.callback(node.surveys.close)
        for service in (*node.services.values(), *node.stopped):
            stack.callback(service.drop)
        for feed in list(node.topics.feeds):
            stack.callback(feed.end)
        stack.callback(node.tunnels.close)
        stack.callback(node.unlinked, home, home.member, "this node has left")
        for link in list(node.links.by_rid.values()):
            stack.callback(node.links.lost, link, "this node has left", forget=False)


def abandon(node: Core) -> None:
    """Close a node that has not begun, or whose event loop has ended. In a forked child it is the
    parent's, and nothing is to be done."""
    was, node.begun, node.closed, node.ended = node.ended, True, True, True
    if was or node.pid != os.getpid():
        return
    for stream in list(node._streams):
        stream.closed = True        # no reader of this loop waits
        stream.ring()
    if not hasattr(node, "links"):
        return
    node.links.socket.close(0)
    if hasattr(node, "pulse") and node.pulse.socket is not None:
        node.pulse.socket.close()
    if node._identity is not None:
        node._identity.release()
    for adopted in node.adopted:
        adopted.socket.close(0)


async def part(node: Core, link: Link) -> None:
    """End a link that nothing more is sent over, once the socket has written what waits for it."""
    await hand_over(node, [link])
    link.parting = False
    if link.alive:      # else this node has left
        node.links.socket._links.end_peer(link.peer, leave=True)
        node.links.departed(link)


async def hurry(node: Core, links: Collection[Link]) -> None:
    """hand_over(), also of what waits for the other side. That may only be busy, so the window
    counts for large frames alone, which have `FLUSH` seconds. Then wait until the other side has
    taken it: what it sends to a connection that has been closed would end that with a reset, and
    discard what its kernel has and it has not read."""
    def empty() -> bool:
        for link in list(links):
            link.hurry()
        return not any(link.holds for link in links) and not _unsent(links)

    await _emptied(node, links, empty)
    await _heard(node, [link for link in links if link.usable and link.session.window.unacked],
                 LONGEST)


async def _heard(node: Core, links: Collection[Link], timeout: float | None,
                 patient: bool = False) -> bool:
    """Wait until the other sides have taken what was sent, or their links are broken: for each one
    as long as it takes something every `STALLED` seconds, or, if it is patient, for the whole time.
    It does not wait again for one that has taken nothing since it was found to be stuck."""
    waits = {link: Hearing(link) for link in links}
    stalled: list[Link] = []

    def heard() -> bool:
        now = time.monotonic()
        for link, hearing in list(waits.items()):
            if hearing.over():
                del waits[link]
            elif hearing.stalled(now) and not patient:
                hearing.forget()
                del waits[link]
                stalled.append(link)
        return not waits

    try:
        return await node.until(heard, timeout) and not stalled
    finally:
        for hearing in waits.values():
            hearing.forget()


class Hearing:
    """A Ping over a link, which is sent when the link has room. What the other side takes until it
    answers shows that it is not stuck."""

    def __init__(self, link: Link) -> None:
        self._link, self._pings = link, link.links
        self._number = 0
        self._arrived = link.session.window.arrived
        self._looked, self._waited = time.monotonic(), 0.0

    def over(self) -> bool:
        self._number = self._number or self._pings.ping(self._link)
        return not self._link.usable \
            or self._number > 0 and (self._link, self._number) not in self._pings.pings

    def stalled(self, now: float) -> bool:
        """Whether the other side has taken nothing for too long, which the link remembers."""
        link, arrived = self._link, self._link.session.window.arrived
        if arrived != self._arrived:
            self._arrived, self._waited = arrived, 0.0
        self._waited += min(LOOK, now - self._looked)   # a loop that stood still has to read first
        self._looked = now
        if arrived != link.stalled and self._waited < STALLED:
            return False
        link.stalled = arrived
        return True

    def forget(self) -> None:
        self._pings.pings.pop((self._link, self._number), None)


async def _emptied(node: Core, links: Collection[Link], empty: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST
    empty()
    before = _unsent(links)
    await node.until(empty, FLUSH)
    while 0 < (left := _unsent(links)) < before and time.monotonic() < end:
        before = left
        await node.until(lambda: not _unsent(links), FLUSH)


def _unsent(links: Collection[Link]) -> int:
    return sum(link.unsent_bytes for link in links if link.usable or link.parting)


def _queued(node: Core, links: Collection[Link]) -> int:
    """Messages that the socket has taken and not written."""
    numbers = {link.peer for link in links if link.alive and (link.usable or link.parting)}
    return sum(stats.queued_out for peer, stats in node.links.socket.stats().peers.items()
               if peer.id in numbers) if numbers else 0
