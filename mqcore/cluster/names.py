"""Host names of members: looked up in threads, since a look-up can take as long as it likes.

A datagram to a name that is not known yet waits for the look-up, then goes. What was found is used
for FRESH seconds; after that it is used once more while it is looked up again.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

FRESH = 30.0        # seconds that an address is used
AGAIN = 5.0         # seconds until a name that did not resolve is looked up again
WAITING = 16        # datagrams that wait for one name
NAMES = 4096
AT_ONCE = 4         # look-ups; plain handlers share their threads


def numeric(host: str) -> bool:
    """Whether this is an IP address, which needs no look-up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Name:
    """A host name. `address` is "" until it has resolved, `error` why it does not."""

    __slots__ = ("address", "error", "due", "waiting")

    def __init__(self) -> None:
        self.address = ""
        self.error = ""
        self.due: float | None = 0.0        # when it is looked up; None while that is under way
        self.waiting: deque[tuple[bytes, int]] = deque()


class Names:
    """`send(data, (address, port))` gets what waited. `changed(host, error)` hears of each name
    that stops resolving, and with "" of each that does so again."""

    def __init__(self, loop: Any, family: int, send: Callable[[bytes, tuple[str, int]], None],
                 changed: Callable[[str, str], None]) -> None:
        self.loop = loop
        self.family = family
        self.send = send
        self.changed = changed
        self.known: dict[str, Name] = {}
        self.dropped = 0            # datagrams that did not get an address
        self._due: deque[str] = deque()
        self._running = 0

    def failing(self) -> dict[str, str]:
        """The names that do not resolve, and why."""
        return {host: name.error for host, name in self.known.items() if name.error}

    def post(self, data: bytes, host: str, port: int) -> bool:
        """Send to a name, now or when it has resolved. False: it does not resolve at present."""
        name = self.known.get(host)
        if name is None:
            while len(self.known) >= NAMES:
                self.dropped += len(self.known.pop(next(iter(self.known))).waiting)
            name = self.known[host] = Name()
        if name.due is not None and time.monotonic() >= name.due:
            name.due = None
            self._due.append(host)
            self._next()
        if name.address:
            self.send(data, (name.address, port))
        elif name.error:
            return False
        else:
            if len(name.waiting) >= WAITING:
                name.waiting.popleft()
                self.dropped += 1
            name.waiting.append((data, port))
        return True

    def _next(self) -> None:
        while self._due and self._running < AT_ONCE:
            self._running += 1
            self.loop.spawn(self._look_up, self._due.popleft())

    async def _look_up(self, host: str) -> None:
        address = error = ""
        try:
            found = await self.loop.in_thread(self._ask, host)
            address = found[0][4][0]
        except (OSError, UnicodeError, IndexError) as failed:
            error = getattr(failed, "strerror", None) or str(failed) or "no address"
        finally:
            self._running -= 1
        name = self.known.get(host)
        if name is not None:
            self._found(host, name, address, error)
        self._next()

    def _ask(self, host: str) -> list[Any]:
        return socket.getaddrinfo(host, None, self.family, socket.SOCK_DGRAM)

    def _found(self, host: str, name: Name, address: str, error: str) -> None:
        before, name.error = name.error, error
        name.due = time.monotonic() + (AGAIN if error else FRESH)
        if address:
            name.address = address      # an older address stays while the look-up fails
        if bool(before) != bool(error):
            self.changed(host, error)
        while name.waiting:
            data, port = name.waiting.popleft()
            if name.address:
                self.send(data, (name.address, port))
            else:
                self.dropped += 1
