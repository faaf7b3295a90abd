"""Endpoint: what bind() and connect() give back, and what the control thread keeps up to date.

A small state machine behind one lock. The states that can follow each other are the table
TRANSITIONS; `closed` is final. Observers are told of each move, in order, outside the lock, on the
thread that moved it (nearly always the control thread).
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mqcore.base.native import threading
from mqcore.errors import ConnectTimeout, Error, HandshakeFailed, SocketClosed, StateError
from mqcore.sock.sleep import Bell

#: state: (meaning, the states that may follow)
TRANSITIONS: dict[str, tuple[str, frozenset[str]]] = {
    "listening": ("peers can connect", frozenset({"stopped", "closed"})),
    "connecting": ("an attempt is under way",
                   frozenset({"handshaking", "connected", "waiting", "stopped", "closed"})),
    "handshaking": ("connected; the two sides come to terms",
                    frozenset({"connected", "connecting", "waiting", "stopped", "closed"})),
    "connected": ("the peer is there and fits",
                  frozenset({"connecting", "waiting", "stopped", "closed"})),
    "waiting": ("the next attempt comes after a pause",
                frozenset({"connecting", "connected", "stopped", "closed"})),
    "stopped": ("no more attempts; see error", frozenset({"connecting", "closed"})),
    "closed": ("by us, for good", frozenset()),
}

READY = frozenset({"listening", "connected"})

Observer = Callable[["Endpoint", str, str, "Error | None"], Any]


class Endpoint:
    """One address that a socket listens on or connects to. `str(endpoint)` is its URL."""

    def __init__(self, url: str, kind: str, *, given: str = "", state: str = "",
                 closer: Callable[[], Any] | None = None) -> None:
        self.url = url
        self.kind = kind  # "bind" or "connect"
        self.given = given or url  # as the user wrote it
        self.of: Endpoint | None = None  # the resolver's endpoint that it is a member of
        self.follows = False  # it is one with members
        self._state = state or ("listening" if kind == "bind" else "connecting")
        self._error: Error | None = None
        self._fatal = False
        self._closer = closer
        self._observers: list[Observer] = []
        self._news: deque[tuple[str, str, Error | None]] = deque()
        self._telling = False
        self._changed = threading.Condition()

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        error = f", {self._error}" if self._error is not None else ""
        return f"<{self.kind} {self.url} {self._state}{error}>"

    @property
    def state(self) -> str:
        return self._state

    @property
    def error(self) -> Error | None:
        """Why the last attempt or connection ended; None while connected."""
        return self._error

    @property
    def members(self) -> tuple[Endpoint, ...]:
        """Of a resolver's URL: the endpoints that it stands for now. One that the program closes
        stays closed until its URL has left the set and come again."""
        return ()

    def close(self) -> None:
        """Unbind or disconnect: complete when it returns. Idempotent."""
        if self._state != "closed" and self._closer is not None:
            self._closer()
        self.move("closed")

    def wait(self, timeout: float | None = None) -> None:
        """Until listening, or connected and handshaken. Raises ConnectTimeout (`last`: what the
        latest attempt failed with), HandshakeFailed if the peer does not fit, SocketClosed, or
        what stopped the attempts."""
        started = time.monotonic()
        with self._changed:
            while not self._arrived():
                left = None if timeout is None else started + timeout - time.monotonic()
                if left is not None and left <= 0:
                    self._fail_wait(timeout)
                self._changed.wait(left)

    async def await_(self, timeout: float | None = None) -> None:
        """wait(), awaitable on asyncio and trio."""
        limit = None if timeout is None else time.monotonic() + timeout
        while True:
            bell = Bell()
            end = self.observe(lambda *_, ring=bell.ring: ring())
            try:
                if self._arrived():
                    return
                if limit is not None and time.monotonic() >= limit:
                    self._fail_wait(timeout)
                await bell.wait(limit)
            finally:
                end()

    def _arrived(self) -> bool:
        """Raises if it never will."""
        if self._state in READY:
            return True
        self._raise_if_hopeless()
        return False

    def _fail_wait(self, timeout: float | None) -> None:
        why = f": {self._error.text}" if self._error is not None else ""
        raise ConnectTimeout(f"no connection to {self.url} within {timeout:g} s "
                             f"({self._state}{why})", last=self._error)

    def _raise_if_hopeless(self) -> None:
        if self._state == "closed":
            raise SocketClosed(f"{self.url} was closed")
        failed = self._fatal and isinstance(self._error, HandshakeFailed)
        if self._error is not None and (failed or self._state == "stopped"):
            raise copy.copy(self._error)  # each waiter its own: a traceback belongs to one
        if self._state == "stopped":
            raise StateError(f"{self.url} has stopped", hint="connect again")

    # -- for the owner -----------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child, where nobody moves it any more; a thread of the parent may have held
        its lock."""
        self._changed = threading.Condition()
        self._observers.clear()
        self._state = "closed"

    def set_closer(self, closer: Callable[[], Any]) -> None:
        self._closer = closer

    def observe(self, observer: Observer) -> Callable[[], None]:
        """observer(endpoint, old, new, error) at each move from now on. Returns what ends it."""
        with self._changed:
            self._observers.append(observer)

        def end() -> None:
            with self._changed:
                if observer in self._observers:
                    self._observers.remove(observer)

        return end

    def note(self, error: Error | None) -> None:
        """What went wrong last with somebody who came in; the state stays."""
        with self._changed:
            if self._state == "listening":
                self._error = error

    def move(self, state: str, error: Error | None = None, *, fatal: bool = False) -> bool:
        """Go to `state`. False if we are there already or closed; StateError if the table has no
        such step. `fatal`: the error will come again however often one tries."""
        with self._changed:
            old = self._state
            if old in (state, "closed"):
                return False
            if state not in TRANSITIONS[old][1]:
                raise StateError(f"{self.url}: no way from {old} to {state}")
            self._state = state
            if error is not None:
                self._error, self._fatal = error, fatal
            elif state in READY:
                self._error, self._fatal = None, False
            self._news.append((old, state, error))
            self._changed.notify_all()
            if self._telling:
                return True  # whoever is telling tells this too: the order holds
            self._telling = True
        self._tell()
        return True

    def _tell(self) -> None:
        failed: BaseException | None = None
        while True:
            with self._changed:
                if not self._news:
                    self._telling = False
                    break
                old, new, error = self._news.popleft()
                observers = tuple(self._observers)
            for observer in observers:
                try:
                    observer(self, old, new, error)
                except BaseException as broken:
                    failed = broken
        if failed is not None:
            raise failed
