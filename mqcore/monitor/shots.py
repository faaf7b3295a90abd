"""Snapshots that clients share, and the bound on what taking them may cost the program.

Snapshots with peers, snapshots without, and explanations each take at most 1/SHARE of one core,
whatever clients ask, and however often. A snapshot is good for PAUSE seconds at least. A request
that would exceed the bound gets an older snapshot, or one with fewer peers than it asked for, whose
`left_out` is the number of the missing ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mqcore.monitor import collect, protocol

PAUSE = 0.1         # seconds for which a snapshot is good, at least
SHARE = 20.0        # and this many times what it took to take it
KEPT = 8            # snapshots with peers that are kept, of different requests

Key = tuple[int, int]       # (socket, most) of a request with peers


class Budget:
    """Permits work while it takes at most 1/SHARE of the time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._free_at = 0.0

    @property
    def free(self) -> bool:
        return self._clock() >= self._free_at

    def spent(self, since: float) -> float:
        """The work that began at `since` has ended. Returns until when its result is good."""
        end = self._clock()
        self._free_at = end + SHARE * (end - since)
        return max(end + PAUSE, self._free_at)


class Shots:
    """For the agent's thread alone. take(peers=, most=, only=) makes a Snapshot."""

    def __init__(self, take: Callable[..., Any],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._take = take
        self._clock = clock
        self._with_peers, self._bare = Budget(clock), Budget(clock)
        self._full: dict[Key, tuple[float, bytes]] = {}
        self._small: tuple[float, bytes, bytes] = 0.0, b"", b""
        #: snapshots taken
        self.taken = 0

    def get(self, request: protocol.Look) -> bytes:
        """The answer to this request, encoded."""
        if not request.peers or not request.most:
            return self._without_peers()[1]
        key = request.socket, min(request.most, protocol.MOST_PEERS)
        until, data = self._full.get(key, (0.0, b""))
        now = self._clock()
        if now < until:
            return data
        if not self._with_peers.free:
            return self._substitute(key, now)
        shot = self._take(peers=True, most=key[1], only=key[0])
        data = self._encoded(shot)
        if len(self._full) >= KEPT:
            self._full.clear()
        self._full[key] = self._with_peers.spent(now), data
        return data

    def _substitute(self, key: Key, now: float) -> bytes:
        """The latest that suits: of the same socket, with at most so many peers."""
        suits = [(most, data) for (socket, most), (until, data) in self._full.items()
                 if socket == key[0] and most <= key[1] and now < until]
        return max(suits)[1] if suits else self._without_peers()[2]

    def _without_peers(self) -> tuple[float, bytes, bytes]:
        """A snapshot for who asked for none of the peers, and the same for who asked for some."""
        now = self._clock()
        if now >= self._small[0]:
            shot = self._take(peers=False, most=0, only=0)
            data = self._encoded(shot)
            shot.left_out = sum(facts.connected for facts in shot.sockets)
            wanted = protocol.encode(shot)
            self._small = self._bare.spent(now), data, wanted
        return self._small

    def _encoded(self, shot: Any) -> bytes:
        self.taken += 1
        return protocol.encode(shot)


def explanation(budget: Budget, hub: Any, socket: int) -> protocol.Explanation | None:
    """What a socket says of itself; None if explanations have taken too much time lately."""
    if not budget.free:
        return None
    began = time.monotonic()
    text = collect.clean(collect.explanation(hub, socket), protocol.LONGEST_EXPLANATION)
    budget.spent(began)
    return protocol.Explanation(v=protocol.VERSION, socket=socket, text=text)
