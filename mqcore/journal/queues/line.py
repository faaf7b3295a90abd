"""Line: requests to a queue server, and the answers to them. The client half of QUEUES.md.

A request that may have been lost with its connection is sent again over the next one. It is safe
to repeat each: a put has a stamp, settling a job twice changes nothing. A get whose answer comes
after its caller has given up is not lost: its jobs are kept for the next get().
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator
from typing import Any

from mqcore import Dealer
from mqcore.errors import Forked, SocketClosed
from mqcore.journal.errors import JournalBusy, JournalClosed, JournalWriteError
from mqcore.journal.queues import requests
from mqcore.journal.queues.held import Claim
from mqcore.journal.queues.requests import ERROR, OK, VERSION, Get, decode_answer, encode
from mqcore.journal.server.codec import error_from
from mqcore.journal.server.connection import AGAIN, Connection

LONGEST = 20.0          # seconds that one get waits at the server before it is repeated
LATE = 1.0              # seconds beyond that for its answer to arrive
BUSY = 0.2              # seconds until a refused request is repeated

#: yields how many seconds to wait, is sent the answer that came within them, returns the result
Asking = Generator[float, list[Any] | None, Any]


class Line(Connection):
    _server = "queue"
    _fails_over = False     # queues have no mirrors

    def __init__(self, url: str, timeout: float, options: dict[str, Any]) -> None:
        self._abandoned: set[int] = set()       # gets whose caller has given up
        self._known: dict[Dealer, set[int]] = {}
        super().__init__(url, url, {}, timeout, options)

    # -- what the queue does --

    def _stray(self, answer: Any) -> None:
        """Jobs that came too late for their get()."""

    def _claims(self) -> list[Claim]:
        """The jobs that this process holds."""
        return []

    # -- sockets --

    _inherited = False      # by a forked child

    def _forked(self) -> None:
        super()._forked()
        self._inherited = True

    def _take(self) -> Dealer:
        """Over a socket of its own, a child would put jobs under the numbers of its parent's."""
        if self._inherited:
            raise Forked(f"the queue at {self.url} belongs to the parent process",
                         hint="open it in the process that uses it")
        return super()._take()

    def _give(self, socket: Dealer) -> None:
        """All sockets are kept: the server gives back the jobs of one that is closed."""
        with self._lock:
            if socket in self._all:
                self._spare.append(socket)
                return
        socket.close()

    def _check(self) -> None:
        if self.closed:
            raise JournalClosed(f"the queue at {self.url} is closed", hint="open it again")

    def _decoded(self, raw: bytes, *more: bytes) -> list[Any]:
        if more:
            raise ValueError("several parts")
        return decode_answer(raw)

    # -- requests --

    def _request(self, kind: Any, *fields: Any, timeout: Any = ...) -> Any:
        patience = self._timeout if timeout is ... else timeout
        socket = self._take()
        try:
            return self._drive(socket, self._steps(socket, kind, fields, patience))
        finally:
            self._give(socket)

    async def _arequest(self, kind: Any, *fields: Any, timeout: Any = ...) -> Any:
        patience = self._timeout if timeout is ... else timeout
        with self._link() as socket:
            return await self._adrive(socket, self._steps(socket, kind, fields, patience))

    def _steps(self, socket: Dealer, kind: Any, fields: tuple[Any, ...],
               timeout: float | None) -> Asking:
        """One request until it is answered: (answer, whether it was sent more than once)."""
        number = self._next_number()
        raw = encode(kind(VERSION, number, *fields))
        clock = time.monotonic
        end = math.inf if timeout is None else clock() + timeout
        refused: Exception | None = None
        asked: set[int] = set()
        sent = 0
        try:
            while clock() < end:
                wait = AGAIN
                here = self._links(socket)
                if not asked & here:
                    self._claim(socket, here)
                    wait = self._post(socket, raw)
                    asked = here
                    sent += wait == AGAIN
                again = min(end, clock() + wait)
                while (left := again - clock()) > 0:
                    got = yield left
                    if got is None:
                        continue
                    if got[0] != number:
                        self._other(got)
                        if got[0] is not None:
                            continue
                    try:
                        answer = self._result(got)
                    except (JournalBusy, JournalWriteError) as error:
                        refused = error
                        asked = set()
                        again = min(end, clock() + BUSY)
                        while (left := again - clock()) > 0:
                            late = yield left
                            if late is not None:
                                self._other(late)
                        break
                    number = -1
                    return answer, sent > 1
            raise refused or self._away(timeout)
        finally:
            if number >= 0 and kind is Get and sent:
                self._abandon_get(socket, number, asked)

    def _claim(self, socket: Dealer, here: set[int]) -> None:
        """Over a new connection: keep the jobs that were delivered over the old one."""
        before = self._known.get(socket)
        if here and before != here:
            self._known[socket] = here
            if before is not None:
                for ids, attempts, seconds in self._claims():
                    self._post(socket, encode(requests.Extend(
                        VERSION, self._next_number(), ids, attempts, seconds)))

    def _result(self, got: list[Any]) -> Any:
        if got[1] == ERROR:
            raise error_from(got[2])
        return got[2]

    def _other(self, got: list[Any]) -> None:
        """An answer to another request than the one of this call."""
        if got[0] in self._abandoned:
            self._abandoned.discard(got[0])
            if got[1] == OK and got[2]:
                self._stray(got[2])

    def _abandon_get(self, socket: Dealer, number: int, asked: set[int]) -> None:
        """The caller has given up. Jobs that are on their way are kept. asked: the connections
        that it went out over; the answer comes over no other. () where it waits for the first."""
        with contextlib.suppress(SocketClosed, JournalClosed):
            if asked and not asked & self._links(socket):
                return
            self._abandoned.add(number)
            self._post(socket, encode(requests.Cancel(VERSION, self._next_number(), number)))
