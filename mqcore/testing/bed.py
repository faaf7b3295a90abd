"""The sockets of one test of a transport's suite, and bodies for their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mqcore.testing.peer import Process
from mqcore.testing.suite import LIMIT

FAST: dict[str, Any] = {"reconnect": 0.01, "reconnect_max": 0.05}


class Bed:
    """One test's sockets over the suite's transport."""

    def __init__(self, suite: Any, context: Any, folder: Path) -> None:
        self.suite = suite
        self.context = context
        self.folder = folder
        self._folders = 0

    def fresh(self) -> Path:
        """An empty folder."""
        self._folders += 1
        path = self.folder / str(self._folders)
        path.mkdir()
        return path

    def socket(self, pattern: str, **options: Any) -> Any:
        return self.context.socket(pattern, **options)

    def bind(self, sock: Any) -> Any:
        """At a new address; the endpoint."""
        return sock.bind(self.suite.url(self.fresh()), **self.suite.bind_options)

    def connected(self, pattern: str, at: Any, **options: Any) -> Any:
        """A socket that connects to this endpoint."""
        sock = self.socket(pattern, **options)
        sock.connect(self.suite.connect_url(at), **self.suite.connect_options)
        return sock

    def meet(self, sock: Any, n: int) -> None:
        """Until it has so many peers, where peers are connections."""
        if "connection" not in self.suite.gaps():
            sock.wait_peers(n, LIMIT)

    def linked(self, sender: str = "", receiver: str = "", **options: Any) -> tuple[Any, Any]:
        """(who connects, who is bound), ready for messages."""
        r = self.socket(receiver or self.suite.receiver, **options)
        s = self.connected(sender or self.suite.sender, self.bind(r), **options)
        self.meet(s, 1)
        self.meet(r, 1)
        self.suite.prepare(s, r)
        return s, r

    def nowhere(self) -> str:
        """A URL to connect to and to bind, without a listener at present."""
        with self.socket(self.suite.receiver) as sock:
            return str(self.suite.connect_url(self.bind(sock)))

    def process(self, pattern: str, **where: str) -> Process:
        """A socket in a process of its own, at `bind` or `connect`."""
        given = self.suite.bind_options if "bind" in where else self.suite.connect_options
        return Process(pattern, options=dict(given), **where)


def pattern(size: int, seed: int) -> bytes:
    """A body whose every byte tells where it belongs."""
    block = bytes((seed + 31 * i) % 251 for i in range(min(size, 251)))
    return (block * (size // 251 + 1))[:size]
