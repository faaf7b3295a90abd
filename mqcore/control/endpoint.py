"""Endpoint: the result of bind() and connect(), kept up to date by the control thread.

A small state machine with one lock. The table TRANSITIONS lists the allowed moves; `closed` is
final. Observers are called for each move, in order, outside the lock, on the thread that made the
move (nearly always the control thread).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from mqcore.base.renamed import renamed
from mqcore.base.virtual import world
from mqcore.base.waits import Condition, guest
from mqcore.binding import blocking
from mqcore.binding.sleep import Bell, sleep
from mqcore.binding.timing import left_of, limit_of, passed
from mqcore.binding.yielding import fair
from mqcore.errors import (
    BindError,
    ConnectTimeout,
    Error,
    HandshakeFailed,
    SocketClosed,
    StateError,
    UsageError,
)

#: state: (meaning, the states that may follow)
TRANSITIONS: dict[str, tuple[str, frozenset[str]]] = {
    "listening": ("peers can connect", frozenset({"stopped", "closed"})),
    "connecting": ("an attempt is running",
                   frozenset({"handshaking", "connected", "waiting", "stopped", "closed"})),
    "handshaking": ("connected; the handshake is running",
                    frozenset({"connected", "connecting", "waiting", "stopped", "closed"})),
    "connected": ("the handshake succeeded",
                  frozenset({"connecting", "waiting", "stopped", "closed"})),
    "waiting": ("waiting for the next attempt",
                frozenset({"connecting", "connected", "stopped", "closed"})),
    "stopped": ("no more attempts; see error", frozenset({"connecting", "closed"})),
    "closed": ("closed by this program", frozenset()),
}

MOMENT = 0.001      # seconds between two looks whether the pattern has seen a peer,
MOMENTS = 5000      # and how many there are at most

READY = frozenset({"listening", "connected"})

Observer = Callable[["Endpoint", str, str, "Error | None"], Any]


class Endpoint:
    """One address that a socket listens on or connects to. `str(endpoint)` is its URL."""

    def __init__(self, url: str, kind: str, *, given: str = "", state: str = "",
                 closer: Callable[[], Any] | None = None, lock: Any = None) -> None:
        """lock: the hub's. A signal handler may interrupt wait_ready() and wait for the control
        thread, which may want to move this endpoint: see ControlLoop.call_wait()."""
        self.url = url
        self.kind = kind  # "bind" or "connect"
        self.given = given or url  # as the program passed it
        self.of: Endpoint | None = None  # the resolver's endpoint, if this is one of its members
        self.asked: Mapping[str, Any] | None = None     # the arguments of connect()
        self.follows = False  # this is a resolver's endpoint, with members
        # whether the pattern has seen the peer, and wait until it has; None: there is none to see
        self.met: Callable[[Endpoint], bool] | None = None
        self.meet: Callable[[Endpoint], None] | None = None
        self._state = state or ("listening" if kind == "bind" else "connecting")
        self._error: Error | None = None
        self._fatal = False
        self._closer = closer
        self._observers: list[Observer] = []
        self._news: deque[tuple[str, str, Error | None]] = deque()
        self._telling = False
        self._changed = Condition(lock)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        error = f", {self._error}" if self._error is not None else ""
        return f"<{self.kind} {self.url} {self._state}{error}>"

    def __reduce__(self) -> Any:
        raise UsageError("an endpoint cannot be pickled or copied", hint="pass its url")

    @property
    def state(self) -> str:
        """"listening", "connecting", "handshaking", "connected", "waiting" (for the next attempt),
        "stopped" (no more attempts; see `error`) or "closed"."""
        return self._state

    @property
    def error(self) -> Error | None:
        """The reason why the last attempt or connection ended. None while connected."""
        return self._error

    @property
    def members(self) -> tuple[Endpoint, ...]:
        """The endpoints that a resolver's URL currently stands for. A member that the program
        closes stays closed until the resolver drops its URL and lists it again."""
        return ()

    def close(self) -> None:
        """Unbind or disconnect. Complete on return, but not in a finalizer that the garbage
        collector runs, or that interrupts another call of the library: there the control thread
        does it. Idempotent."""
        if self._state != "closed" and self._closer is not None:
            self._closer()
            if guest():
                return
        self.move("closed")

    __getattr__ = renamed(wait="wait_ready", await_="await_ready")

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until listening, or until connected with a completed handshake. Raises
        ConnectTimeout (`last` is the error of the latest attempt), HandshakeFailed if the peer does
        not fit, SocketClosed, or the error that stopped the attempts."""
        limit = limit_of(timeout)
        if self._state == "closed":  # a forked child must not wait for the lock
            self._raise_if_hopeless()
        with self._changed:
            if not self._arrived():
                here = world()
                if limit != 0 and here is None:
                    blocking.check(self)
                wait_for = self._changed.wait_for if here is None else here.wait_for
                if not wait_for(self._arrived, left_of(limit)):
                    self._fail_wait(timeout)
        if self.meet is not None:
            self.meet(self)

    async def await_ready(self, timeout: float | None = None) -> None:
        """wait_ready(), awaitable on asyncio and trio."""
        limit = limit_of(timeout)
        await fair()
        while True:
            bell = Bell()
            end = self.observe(lambda *_, ring=bell.ring: ring())
            try:
                if self._arrived():
                    break
                if limit == 0 or passed(limit):
                    self._fail_wait(timeout)
                await bell.wait(limit)
            finally:
                end()
        for _ in range(MOMENTS):
            if self.met is None or self.met(self):
                return
            await sleep(MOMENT)

    def _arrived(self) -> bool:
        """Whether the state is reached. Raises if it never will be."""
        if self._state in READY:
            return True
        self._raise_if_hopeless()
        return False

    def _fail_wait(self, timeout: float | None) -> None:
        why = f": {self._error.text}" if self._error is not None else ""
        # this machine has refused the attempt: only its own hint helps
        hint = self._error.hint if isinstance(self._error, BindError) else None
        raise ConnectTimeout(f"no connection to {self.url} within {timeout:g} s "
                             f"({self._state}{why})", hint=hint or None, last=self._error)

    def _raise_if_hopeless(self) -> None:
        if self._state == "closed":
            raise SocketClosed(f"{self.url} was closed")
        failed = self._fatal and isinstance(self._error, HandshakeFailed)
        if self._error is not None and (failed or self._state == "stopped"):
            # a copy for each waiter: a traceback belongs to one thread
            raise copy.copy(self._error)
        if self._state == "stopped":
            raise StateError(f"{self.url} has stopped", hint="connect again")

    # -- for the owner -----------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child: no thread changes the state any more, and a thread of the parent may
        have held the lock."""
        self._changed = Condition()
        self._observers.clear()
        self._state = "closed"

    def set_closer(self, closer: Callable[[], Any]) -> None:
        self._closer = closer

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call observer(endpoint, old, new, error) at each move from now on. Call the returned
        function to stop that."""
        with self._changed:
            self._observers.append(observer)

        def end() -> None:
            with self._changed:
                if observer in self._observers:
                    self._observers.remove(observer)

        return end

    def note(self, error: Error | None) -> None:
        """Record the latest error of an incoming connection. The state stays."""
        with self._changed:
            if self._state == "listening":
                self._error = error

    def move(self, state: str, error: Error | None = None, *, fatal: bool = False) -> bool:
        """Change to `state`. False if this is the current state or the endpoint is closed;
        StateError if the table does not allow it. `fatal`: further attempts would fail the same
        way."""
        if self._state == "closed":  # for ever; a forked child must not wait for the lock
            return False
        with self._changed:
            old = self._state
            if old in (state, "closed"):
                return False
            if state not in TRANSITIONS[old][1]:
                raise StateError(f"{self.url}: cannot change from {old} to {state}")
            self._state = state
            if error is not None:
                self._error, self._fatal = error, fatal
            elif state in READY:
                self._error, self._fatal = None, False
            self._news.append((old, state, error))
            self._changed.notify_all()
            if self._telling:
                return True  # the thread that is notifying reports this move too, in order
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
