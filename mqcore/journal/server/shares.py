"""Shares: who gives way when a journal server is at a limit.

An owner is a user, else a machine or, over ipc, a process. At a limit, a newcomer gets the place of
what uses its own least: a stream whose reader has taken nothing for a while, or a connection that
asks for nothing. Failing that, it gets one of the owner who has most, as long as that leaves it no
fewer than the newcomer's owner has then. So one owner has all places only until others want some,
and owners who have equally many do not take places from each other.

A partition has several owners if several of them read it. It gives way if each of them has enough
others.
"""

from __future__ import annotations

import collections
import ipaddress
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from mqcore.journal.errors import JournalBusy
from mqcore.journal.server.sources import Source
from mqcore.journal.server.streams import Guest, Stream

T = TypeVar("T")
STUCK = 5.0             # seconds for which a reader has acknowledged nothing of what is under way


def owner_of(peer: Any) -> str:
    """Who is behind a connection, as far as the server can tell."""
    if peer.user is not None:
        return f"user {peer.user}"
    if peer.pid is not None:
        return f"process {peer.pid}"
    host = peer.address.partition("://")[2].rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host or str(peer.address)
    if address.version == 6:        # its lower half is the machine's own choice
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def gives_way() -> JournalBusy:
    return JournalBusy("the journal server is full, and another reader needs the place of this one",
                       hint="ask again later, use fewer streams and connections, or raise the "
                            "limit: journal.serve(limits=journal.Limits(...))")


def stream_to_end(streams: Iterable[Stream], owner: str, now: float) -> Stream | None:
    """The one that gives way to a new stream of this owner."""
    there = list(streams)
    stuck = min((one for one in there if one.out), key=lambda one: one.taken, default=None)
    if stuck is not None and _stuck(stuck, now):
        return stuck
    theirs = _of_largest(there, lambda one: one.guest.owner, owner)
    return min(theirs, key=lambda one: (one.heard, one.taken), default=None)


def guest_to_end(guests: Iterable[Guest], owner: str, members: set[int]) -> Guest | None:
    """The one that gives way to a new reader of this owner. members: the connections of members of
    consumer groups. They are never idle, and an owner's come last."""
    there = list(guests)
    idle = [guest for guest in there if guest.idle and guest.peer.id not in members]
    if idle:
        return min(idle, key=lambda guest: guest.asked)
    theirs = _of_largest(there, lambda guest: guest.owner, owner)
    return min(theirs, key=lambda guest: (guest.peer.id in members, guest.asked), default=None)


def source_to_end(sources: Iterable[Source], streams: Iterable[Stream], owner: str, now: float
                  ) -> list[Stream]:
    """The streams that give way, all those of one partition, so that another one can be opened for
    this owner."""
    readers = collections.defaultdict[Source, list[Stream]](list)
    for stream in streams:
        readers[stream.source].append(stream)
    counts = collections.Counter(one for theirs in readers.values()
                                 for one in {stream.guest.owner for stream in theirs})

    def most(source: Source) -> tuple[float, float]:
        least = min((counts[stream.guest.owner] for stream in readers[source]
                     if not _stuck(stream, now)), default=math.inf)
        return least, -source.used
    found = max((source for source in sources if source in readers), key=most, default=None)
    if found is None or most(found)[0] <= counts[owner] + 1:
        return []
    return readers[found]


def _stuck(stream: Stream, now: float) -> bool:
    return bool(stream.out) and now - stream.taken > STUCK


def _of_largest(all_: Sequence[T], owner_of: Callable[[T], str], owner: str) -> list[T]:
    """What the owner with most has, if it can give one to this owner and not have fewer."""
    counts = collections.Counter(map(owner_of, all_))
    if not counts:
        return []
    largest, most = counts.most_common(1)[0]
    return [one for one in all_ if owner_of(one) == largest] if most > counts[owner] + 1 else []
