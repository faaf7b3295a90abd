"""Replay: a Book from its records, as after a restart.

Only the states of jobs follow from the records. Lanes, timers and leases are built at the end:
jobs that a consumer held stay held, since it may still acknowledge them, until the queue's
visibility time-out has passed once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqcore.journal.errors import JournalError
from mqcore.journal.queues import book as records
from mqcore.journal.queues.book import Book
from mqcore.journal.queues.entry import DELAYED, HELD, READY, Entry, numbers
from mqcore.journal.queues.options import QueueOptions

#: Jobs that a power cut may have taken: their ids are not used again, since a consumer that got one
#: of them may still settle it.
GAP = 1 << 20


class Replay:
    """For one Book. `record` takes each record in its order, `end` makes the Book usable. Before
    it is used, its snapshot must be durable: it says which ids are used from here on."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._closed = True                 # nothing behind the last record can be missing
        self.clock: tuple[Any, ...] | None = None       # what ServerClock goes on from
        book.replaying = True
        self._kinds: dict[int, Callable[..., None]] = {
            records.PUT: self._put, records.TAKE: self._take, records.DONE: self._done,
            records.BACK: self._back, records.DEAD: self._dead, records.MOVE: self._move,
            records.QUEUE: self._queue, records.SNAP: self._snap, records.CLOCK: self._clock}

    def record(self, record: list[Any], place: int) -> None:
        """Raises JournalError if it is not a record of a queue server."""
        try:
            self._closed = False
            self._kinds[record[0]](place, *record[1:])
        except (LookupError, TypeError, ValueError) as error:
            raise JournalError(f"record {place} is none of a queue server: {error!r}",
                               hint="is this the folder of a queue server, and of this version?"
                               ) from error

    def end(self, now: float) -> None:
        book = self._book
        book.replaying = False
        if not self._closed:
            book.next_id += GAP
        held: dict[Any, list[Entry]] = {}
        for entry in sorted(book.jobs.values(), key=lambda entry: entry.id):
            if entry.expires:
                book._ends.add(entry.expires, entry)
            if entry.state == READY or entry.state == DELAYED and entry.ready <= now:
                entry.queue.push(entry)
            elif entry.state == DELAYED:
                book._delay(entry)
            else:
                entry.queue.held += 1
                held.setdefault(entry.queue, []).append(entry)
        for queue, entries in held.items():
            book.leases.hold(entries, None, now + queue.options.visibility)

    def _name(self, name: str) -> Any:
        book = self._book
        return book.queues.get(name) or book._made(name, book.options)

    def _put(self, place: int, name: str, producer: int, sequence: int, floor: int, first: int,
             priority: int, ready: float, expires: float, headers: bytes | None,
             bodies: list[bytes]) -> None:
        self._book._insert(self._name(name), bodies, first, place, priority, ready, expires,
                           headers)
        self._book.stamps.remember(producer, sequence, floor, first, len(bodies))

    def _take(self, place: int, ids: list[int]) -> None:
        for number in numbers(ids):
            entry = self._book.jobs.get(number)
            if entry is not None:
                entry.state = HELD
                entry.attempts += 1

    def _forget(self, number: int) -> None:
        book = self._book
        entry = book.jobs.pop(number, None)
        if entry is not None:
            entry.queue.jobs -= 1
            entry.queue.bytes -= entry.size
            book.bytes -= entry.size
            if entry.body is None:
                book.spilled -= 1
            else:
                book.memory -= entry.size

    def _done(self, place: int, ids: list[int]) -> None:
        for number in numbers(ids):
            self._forget(number)

    def _back(self, place: int, ids: list[int], ready: float, untouched: bool) -> None:
        for number in numbers(ids):
            entry = self._book.jobs.get(number)
            if entry is not None:
                entry.state = DELAYED if ready else READY
                entry.ready = ready or entry.ready
                entry.attempts -= untouched

    def _dead(self, place: int, number: int, anew: int, name: str, priority: int,
              headers: bytes | None, body: bytes) -> None:
        self._forget(number)
        self._book._insert(self._name(name), [body], anew, place, priority, 0.0, 0.0, headers)

    def _move(self, place: int, rows: list[Any]) -> None:
        book = self._book
        for index, (number, name, attempts, priority, ready, expires, headers, state,
                    body) in enumerate(rows):
            self._forget(number)
            entry = Entry(number, self._name(name), body, len(body) + len(headers or b""), place,
                          index, priority)
            entry.attempts = attempts
            entry.ready, entry.expires, entry.headers = ready, expires, headers
            book._admit(entry)
            entry.state = state
            book.next_id = max(book.next_id, number + 1)

    def _queue(self, place: int, name: str, options: dict[str, Any]) -> None:
        self._book._made(name, QueueOptions(**options))

    def _snap(self, place: int, next_id: int, closed: bool, queues: list[Any],
              rows: list[Any]) -> None:
        book = self._book
        self._closed = closed
        book.next_id = max(book.next_id, next_id)
        for name, options in queues:
            book._made(name, QueueOptions(**options))
        book.stamps.load(rows)

    def _clock(self, place: int, now: float, wall: float, booted: float, boot: str) -> None:
        self.clock = float(now), float(wall), float(booted), str(boot)
