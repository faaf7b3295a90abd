"""Nodes without the cluster's key, or that refuse this one. Each is tried again and again, so there
is an event when that begins and one when it ends. `stats()` counts every attempt, and those of
nodes that are not remembered, because there are too many, as `rejections_untold` once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.cluster.checks import readable
from mqcore.cluster.errors import KeyRejected

MOST = 100              # addresses, and hosts, that are remembered
QUIET = 100.0           # seconds without an attempt from a host; a seed is tried each 30


class Rejections(dict[str, KeyRejected]):
    """Why this node and the one at an address that it has tried do not meet, by address."""

    def __init__(self, event: Callable[..., None]) -> None:
        super().__init__()
        self._event = event
        # of nodes that connect: host and reason, and when one last did
        self._hosts: dict[tuple[str, str], float] = {}
        self.untold = 0         # attempts that are not remembered

    def add(self, url: str, reason: str, why: str = "key") -> None:
        """The node at this address was tried."""
        error = KeyRejected(readable(reason), peer=readable(url),
                            why="banned" if why == "banned" else "key")
        before = self.pop(url, None)
        if len(self) == MOST:
            self.untold += 1
            return
        self[url] = error
        if before is None or before.text != error.text:
            self._event("key rejected", None, reason, url=url)

    def over(self, url: str, reason: str) -> None:
        """The node at this address is let in and lets this one in, or is tried no more."""
        if self.pop(url, None) is not None:
            self._event("rejection over", None, reason, url=url)

    def connected(self, host: str, reason: str, now: float) -> None:
        """A node has connected from there. Its id is unknown, since there was no handshake."""
        before = self._hosts.pop((host, reason), None)
        if len(self._hosts) == MOST:
            self.untold += 1
            return
        self._hosts[host, reason] = now
        if before is None:
            self._event("key rejected", None, reason, url=host)

    def explain(self) -> list[str]:
        """A line if there are, or were, too many."""
        return [f"  {self.untold} attempts that have no event, because nodes at {MOST} other "
                "addresses, or hosts, do not hold this cluster's key or refuse this node"] \
            if self.untold else []

    def tick(self, now: float) -> None:
        for one in [one for one, last in self._hosts.items() if now - last > QUIET]:
            del self._hosts[one]
            self._event("rejection over", None, f"no attempt for {QUIET:g} s", url=one[0])


def host_of(peer: Any) -> str:
    """The peer's address without its port, which is another one each time. "" if unknown."""
    address: str = peer.address
    head, colon, port = address.rpartition(":")
    return head if colon and port.isdigit() else address
