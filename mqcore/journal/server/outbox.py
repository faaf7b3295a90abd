"""Outbox: what a server's peers have not taken yet, and how much of it there may be."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable

from mqcore import Router
from mqcore.errors import PeerError, SendTimeout
from mqcore.journal.server.limits import WINDOW
from mqcore.journal.server.streams import Guest, Parts

FULL = 0.02             # seconds between two looks at what peers have taken


class Outbox:
    """Of all guests. left: called with one whose connection has gone. `held`: those with an answer
    that did not fit."""

    def __init__(self, socket: Router, guests: dict[int, Guest], most: int,
                 counts: collections.Counter[str], left: Callable[[Guest], None]) -> None:
        self.held: set[Guest] = set()
        self._socket = socket
        self._guests = guests
        self._most = most
        self._counts = counts
        self._left = left
        self._unsent = 0                # bytes of all guests
        self._weighed = 0.0

    def send(self, guest: Guest, parts: Parts, keep: bool = False) -> bool:
        """False: the peer's queue is full. With `keep` it is sent as soon as there is space, else
        never. A peer that has left gets nothing any more."""
        try:
            self._socket.send_to(guest.peer, *parts, timeout=0)
        except PeerError:
            self._counts["unsent"] += 1
            self._left(guest)
            return True
        except SendTimeout:
            if keep:
                guest.pending = parts
                self.held.add(guest)
                self._hold(guest, parts)
            else:
                self._counts["unsent"] += 1
            return False
        if guest.peer.id in self._guests:
            guest.sizes.append(self._hold(guest, parts))
            if len(guest.sizes) > 4000:
                self.weigh()
        return True

    def ready(self, guest: Guest) -> bool:
        """Whether the peer has taken all that was made for it."""
        if guest.pending is None:
            return True
        parts, guest.pending = guest.pending, None
        self.held.discard(guest)
        size = sum(map(len, parts))
        guest.unsent -= size
        self._unsent -= size
        return self.send(guest, parts, keep=True)

    def forget(self, guest: Guest) -> None:
        """Nothing more goes there."""
        self._counts["unsent"] += guest.pending is not None
        guest.pending = None
        self.held.discard(guest)
        self._unsent -= guest.unsent
        guest.unsent = 0
        guest.sizes.clear()

    def weigh(self) -> None:
        """How much of what was sent still waits in the socket."""
        self._weighed = time.monotonic()
        for peer, stats in self._socket.stats().peers.items():
            guest = self._guests.get(peer.id)
            if guest is not None:
                self._unsent -= guest.settle(stats.queued_out)

    def weigh_again(self) -> None:
        """weigh(), if that was not just now."""
        if time.monotonic() - self._weighed > FULL:
            self.weigh()

    def allowance(self, guest: Guest) -> int:
        """Bytes that may be read for this peer now. Once slow peers make the server hold as much as
        it may, each has its share of that."""
        if self._unsent >= self._most:
            self.weigh_again()
        if self._unsent < self._most:
            return WINDOW
        return max(0, self._most // max(1, len(self._guests)) - guest.unsent)

    def _hold(self, guest: Guest, parts: Parts) -> int:
        size = sum(map(len, parts))
        guest.unsent += size
        self._unsent += size
        return size
