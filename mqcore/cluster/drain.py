"""How a node drains, and how it leaves: what adrain() waits for, and what is sent in any case."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqcore.cluster.link import Link
    from mqcore.cluster.node import Core

FLUSH = 1.0             # seconds in which a socket that is not stuck takes something
LONGEST = 5.0           # seconds until it has to have taken all
STALLED = 2.0           # seconds in which the other side, if it is not stuck, takes something


class Patience:
    """Hurries messages that wait for the other sides, once they have taken none of them for `FLUSH`
    seconds: they may be busy for long, and a node that leaves does not wait for that."""

    def __init__(self, links: Collection[Link]) -> None:
        self._links = links
        self._least: float = 0
        self._since: float | None = None

    def look(self) -> None:
        now, waiting = time.monotonic(), sum(link.session.waiting for link in self._links)
        if self._since is None or waiting < self._least:
            self._since, self._least = now, waiting
        elif waiting and now - self._since >= FLUSH:
            for link in self._links:
                link.hurry()


async def drain(node: Core, timeout: float | None) -> bool:
    """Core.adrain()."""
    node.draining = True
    for service in node.services.values():
        service.draining = True
    node.announce()
    links, requests = node.links, node.requests
    before, end = links.broke_off, timeout and time.monotonic() + timeout
    # what this node's own tasks begin from now on is not waited for, else it might never end; what
    # handlers begin keeps their services busy
    tunnels = node.tunnels.sending
    patience = Patience(links.by_rid.values())

    def finished() -> bool:
        links.confirm()
        if node.closed:
            return True
        if requests.pending > requests.late or not arrived() \
                or any(service.busy for service in node.services.values()):
            return False
        patience.look()
        return not links.holds

    def arrived() -> bool:
        return all(tunnel._arrived for tunnel in tunnels)

    def left() -> float | None:
        return end and max(0.0, end - time.monotonic())

    done = await node.until(finished, timeout)
    if done:        # a handler may have sent its end and returned
        tunnels = [tunnel for tunnel in node.tunnels.sending if tunnel._flow.eof_out]
        done = await node.until(arrived, left())
    if done:        # and until answers have arrived, which the end of a connection may prevent
        due = {link: link.answered for link in links.by_rid.values() if link.owes}
        done = await links.taken(list(due), left()) \
            and not any(link.confirmed < answered and link.owes and link.member is not None
                        for link, answered in due.items())
    if not node.closed:     # by another call
        node.drained = done and links.broke_off == before
        await node.aclose()
    return node.drained


async def hand_over(node: Core, links: Collection[Link]) -> None:
    """Give the socket what waits for it, as long as it takes something each `FLUSH` seconds, and
    wait until it has written that."""
    await _emptied(node, links, lambda: not _unsent(links))
    await node.until(lambda: not _queued(node, links), FLUSH)


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
        for link in links:
            link.hurry()
        return not any(link.holds for link in links) and not _unsent(links)

    await _emptied(node, links, empty)
    due = [link for link in links if _untaken([link])]
    end, before = time.monotonic() + LONGEST, _untaken(due)
    while not await node.links.taken(due, STALLED) and time.monotonic() < end:
        left = _untaken(due)
        if left >= before:
            return
        before = left


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


def _untaken(links: Collection[Link]) -> int:
    """Bytes that the other side has not said to have taken. It says so of many together."""
    return sum(link.session.window.unacked for link in links if link.usable)


def _queued(node: Core, links: Collection[Link]) -> int:
    """Messages that the socket has taken and not written."""
    numbers = {link.peer for link in links if link.alive and (link.usable or link.parting)}
    return sum(stats.queued_out for peer, stats in node.links.socket.stats().peers.items()
               if peer.id in numbers) if numbers else 0
