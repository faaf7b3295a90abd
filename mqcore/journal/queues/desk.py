"""Desk: what a queue server does with each request. It does no I/O beside its Book's.

`ask` answers, parks or refuses a request. `turn` serves what waits, as far as the Book's changes
allow. Both leave answers in `out`, and the caller sends them once the changes are stored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from mqcore.errors import OptionError, UsageError
from mqcore.journal.errors import JobTooLarge, JournalBusy, QueueFull
from mqcore.journal.queues import requests
from mqcore.journal.queues.book import Book
from mqcore.journal.queues.bulk import columns
from mqcore.journal.queues.entry import Entry
from mqcore.journal.queues.parking import Guest, Parked, Parking
from mqcore.journal.queues.requests import ERROR, OK, ROOM, Get, Put, Request, encode, replace
from mqcore.journal.server.codec import error_head
from mqcore.trace.carry import LONGEST_TRACE, without
from mqcore.trace.recent import RING

#: (connection, encoded answer, the jobs that it delivers)
Answer = tuple[Guest, bytes, list[Entry] | None]


def permitted(configure: Any) -> frozenset[str] | None:
    """The users who may configure and purge queues; None: every client. OptionError."""
    if isinstance(configure, bool):
        return None if configure else frozenset()
    names = [configure] if isinstance(configure, str) else configure
    try:
        found = frozenset(names)
    except TypeError:
        found = frozenset([None])
    if not all(isinstance(name, str) for name in found):
        raise OptionError(f"configure={configure!r}",
                          hint="it is True, False, or the names of the users who may")
    return found


class Desk:
    """`counts` are the server's. `may_configure`: who may configure and purge queues, by user
    names; None: every client."""

    def __init__(self, book: Book, counts: Counter[str],
                 may_configure: frozenset[str] | None = None) -> None:
        self.book = book
        self._may_configure = may_configure
        self.parking = Parking(book.limits)
        self.out: list[Answer] = []
        self._limits = book.limits
        self._counts = counts
        self._others = {requests.Ack: self._ack, requests.Reject: self._reject,
                        requests.Extend: self._extend, requests.Names: self._names,
                        requests.Stats: self._stats, requests.Purge: self._purge,
                        requests.Peek: self._peek, requests.Configure: self._configure}

    def ask(self, guest: Guest, request: Request, now: float) -> None:
        """Raises what is wrong with it."""
        if isinstance(request, Put):
            self._put(guest, request, now)
        elif isinstance(request, Get):
            self._get(guest, request, now)
        elif isinstance(request, requests.Cancel):
            parked = guest.parked.get(request.which)
            if parked is not None:
                self._end(parked)
            self._answer(guest, request, parked is not None)
        else:
            self._answer(guest, request, self._others[type(request)](guest, request, now))

    def _answer(self, guest: Guest, request: Request, what: Any,
                jobs: list[Entry] | None = None) -> None:
        self._counts["answered"] += 1
        self.out.append((guest, encode((request.number, OK, what)), jobs))

    def refuse(self, guest: Guest, number: int | None, error: Exception) -> None:
        """The answer that reports an error."""
        self._counts["errors"] += 1
        self._counts["refused"] += isinstance(error, JournalBusy | QueueFull | JobTooLarge)
        self.out.append((guest, encode((number, ERROR, error_head(error)["error"])), None))

    # -- what waits --

    def _park(self, guest: Guest, request: Get | Put, deadline: float) -> None:
        """A request that waits already was sent again, on the same connection: it goes on."""
        if request.number in guest.parked:
            self._counts["dropped"] += 1
        else:
            self.parking.park(guest, request, deadline)

    def _end(self, parked: Parked) -> None:
        """Answer a request whose time is up."""
        self.parking.end(parked)
        request = parked.request
        if isinstance(request, Get):
            self._answer(parked.guest, request, ())
        else:
            self.refuse(parked.guest, request.number, QueueFull(
                f"the queue {request.queue!r} is full, and there was no room within "
                f"{request.wait:g} s"))

    def turn(self, now: float) -> None:
        """Serve what waits for the changes since the last turn."""
        book = self.book
        for parked in self.parking.due(now):
            self._end(parked)
        while book.fresh or book.roomy:
            while book.roomy:
                self._serve_puts(book.roomy.pop().name, now)
            while book.fresh:
                queue = book.fresh.pop()
                try:
                    self._serve_gets(queue.name, now)
                except BaseException:       # a body that cannot be read now
                    book.fresh.add(queue)
                    raise

    def _serve_gets(self, name: str, now: float) -> None:
        queue = self.book.queues[name]
        passed = set()
        for parked in self.parking.line(Get, name):
            if not queue.ready or parked in passed:
                return
            if self._give(parked.guest, parked.request, now):   # type: ignore[arg-type]
                self.parking.end(parked)
            else:                       # it holds too many; others may have space
                passed.add(parked)
                self.parking.rotate(parked)

    def _serve_puts(self, name: str, now: float) -> None:
        for parked in self.parking.line(Put, name):
            request: Any = parked.request
            try:
                first = self._store(request, now)
            except QueueFull:
                return
            except Exception as error:
                self.parking.end(parked)
                self.refuse(parked.guest, request.number, error)
                continue
            self.parking.end(parked)
            self._answer(parked.guest, request, (first, len(request.bodies)))

    # -- requests --

    def _put(self, guest: Guest, request: Put, now: float) -> None:
        limits = self._limits
        if not request.bodies or len(request.bodies) > limits.batch:
            raise UsageError(f"a put of {len(request.bodies)} jobs",
                             hint=f"it has 1 to {limits.batch}")
        longest = max(map(len, request.bodies))
        if longest > limits.job_bytes:
            raise JobTooLarge(f"a job of {longest} bytes; this server takes {limits.job_bytes}")
        request = self._with_headers_checked(request)
        try:
            first = self._store(request, now)
        except QueueFull:
            queue = self.book.queues[request.queue]
            if queue.options.on_full != "block" or not request.wait:
                raise
            self._park(guest, request, now + request.wait)
            return
        self._answer(guest, request, (first, len(request.bodies)))

    def _with_headers_checked(self, request: Put) -> Put:
        """The same request; without its trace where that makes the headers too large."""
        size, most = len(request.headers or b""), self._limits.header_bytes
        try:
            if size <= most + LONGEST_TRACE:
                rows = requests.headers_of(request.headers)
                if size <= most:
                    return request
                bare = encode(without(rows))
                if len(bare) <= most:
                    RING.count("left_out")
                    return replace(request, headers=bare)
        except requests.Malformed as error:
            error.number = request.number
            raise
        raise JobTooLarge(f"{size} bytes of headers; this server takes {most}",
                          hint="QueueLimits(header_bytes=...)")

    def _store(self, request: Put, now: float) -> int:
        return self.book.put(
            request.queue, request.bodies, now, priority=request.priority, delay=request.delay,
            ttl=request.ttl, headers=request.headers, producer=request.producer,
            sequence=request.sequence, floor=request.floor)

    def _get(self, guest: Guest, request: Get, now: float) -> None:
        if self._give(guest, request, now):
            return
        if request.wait:
            self._park(guest, request, now + request.wait)
        else:
            self._answer(guest, request, ())

    def _give(self, guest: Guest, request: Get, now: float) -> bool:
        """Whether there were jobs for it."""
        most = min(request.most, self._limits.batch,
                   self._limits.held - self.book.leases.held_by(guest))
        if most <= 0:
            return False
        entries = self.book.take(request.queue, most, min(request.room, ROOM), guest, now)
        if not entries:
            return False
        self._answer(guest, request, (
            *columns(entries), self.book.queues[request.queue].options.visibility), entries)
        return True

    def _ack(self, guest: Guest, request: Any, now: float) -> Any:
        return self.book.ack(request.ids, request.attempts)

    def _reject(self, guest: Guest, request: Any, now: float) -> Any:
        return self.book.reject(request.ids, request.attempts, now, requeue=request.requeue,
                                delay=request.delay, untouched=request.untouched)

    def _extend(self, guest: Guest, request: Any, now: float) -> Any:
        return self.book.extend(request.ids, request.attempts, guest, now, request.seconds)

    def _names(self, guest: Guest, request: Any, now: float) -> Any:
        return sorted(self.book.queues)

    def _stats(self, guest: Guest, request: Any, now: float) -> Any:
        queue = self.book.queues.get(request.queue)
        if queue is None:
            return None
        found = asdict(queue.stats())
        found["waiting"] = self.parking.waits(request.queue)
        return [found, asdict(queue.options)]

    def _purge(self, guest: Guest, request: Any, now: float) -> Any:
        self._permit(guest, "purge")
        return self.book.purge(request.queue) if request.queue in self.book.queues else 0

    def _peek(self, guest: Guest, request: Any, now: float) -> Any:
        return [(entry.id, entry.attempts, body, entry.headers) for entry, body in
                self.book.peek(request.queue, min(request.most, self._limits.batch), ROOM)]

    def _configure(self, guest: Guest, request: Any, now: float) -> Any:
        if request.options:             # without, the client asks for them
            self._permit(guest, "configure")
        return asdict(self.book.configure(request.queue, request.options))

    def _permit(self, guest: Guest, what: str) -> None:
        if self._may_configure is not None and guest.peer.user not in self._may_configure:
            who = "this client" if guest.peer.user is None else f"the user {guest.peer.user!r}"
            raise UsageError(f"{who} may not {what} queues of this server",
                             hint="the server names those who may: serve_queues(configure=...)")

    # -- connections --

    def leave(self, guest: Guest, now: float) -> None:
        self._counts["dropped"] += self.parking.leave(guest)
        self.book.leases.leave(guest, now)

    def take_back(self, jobs: list[Entry], now: float) -> None:
        """An answer with jobs could not be sent."""
        self.book.reject([job.id for job in jobs], [job.attempts for job in jobs], now,
                         untouched=True)
