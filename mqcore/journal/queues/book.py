"""Book: all queues of a server, as a state that commands and a clock drive. It does no I/O.

Each change is one record, handed to `append`, which returns the record's offset. A Book that is
given the same records again (`replay`) has the same jobs: the log is the state. QUEUES.md describes
the records. Times are seconds since the epoch and come from the caller.

One log for all queues makes what concerns two queues (a dead letter) one record, which is there or
is not, and lets a power cut take a suffix of the changes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from mqcore.journal.errors import JournalBusy, QueueFull
from mqcore.journal.queues import bulk, dead
from mqcore.journal.queues.entry import (
    DELAYED,
    GONE,
    HELD,
    READY,
    Entry,
    QueueState,
    Timer,
    earliest,
)
from mqcore.journal.queues.leases import Leases, Lost, of
from mqcore.journal.queues.options import QueueLimits, QueueOptions
from mqcore.journal.queues.stamps import Stamps

PUT, TAKE, DONE, BACK, DEAD, MOVE, QUEUE, SNAP, CLOCK = range(9)       # kinds of records
CHUNK = 10_000          # jobs of one record, and jobs of one look at the clock


class Book:
    """`load(entry)` returns the body of an entry that is on disk alone. `fresh` collects the queues
    in which jobs became ready, `roomy` those that have space again; the caller clears both."""

    def __init__(self, append: Callable[[list[Any]], int], load: Callable[[Entry], bytes],
                 options: QueueOptions | None = None, limits: QueueLimits | None = None) -> None:
        self._append = append
        self._load = load
        self.options = options or QueueOptions()
        self.limits = limits or QueueLimits()
        self.jobs: dict[int, Entry] = {}        # in the order of their places
        self.queues: dict[str, QueueState] = {}
        self.next_id = 1
        self.memory = 0                         # bytes of bodies in memory
        self.spilled = 0                        # entries without a body
        self.bytes = 0                          # bodies and headers, wherever they are
        self.stamps = Stamps(self.limits.producers, self.limits.waiting)
        self.leases = Leases()
        self.fresh: set[QueueState] = set()
        self.roomy: set[QueueState] = set()
        self.crowded: set[QueueState] = set()   # those that the server's limits kept from a put
        self.replaying = False
        self._delays = Timer(lambda when, entry: entry.state == DELAYED and entry.ready == when)
        self._ends = Timer(lambda when, entry: entry.state != GONE)
        self._timers = (self._delays, self._ends, self.leases.ends)

    # -- queues --

    def queue(self, name: str) -> QueueState:
        """The queue of this name; it is made if there is none. JournalBusy at the limit."""
        found = self.queues.get(name)
        if found is None:
            if len(self.queues) >= self.limits.queues:
                raise JournalBusy(f"the queue server has {len(self.queues)} queues, its limit",
                                  hint="raise it: QueueLimits(queues=...)")
            found = self._made(name, self.options)
            self._append([QUEUE, name, asdict(found.options)])
        return found

    def _made(self, name: str, options: QueueOptions) -> QueueState:
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueState(name, options)
        found.options = options
        return found

    def configure(self, name: str, given: dict[str, Any]) -> QueueOptions:
        """Change a queue's options. OptionError."""
        queue = self.queue(name)
        options = queue.options.changed(**given)
        if "dead" in given:
            dead.check_circle(name, options, self.queues, self.options)
        if options != queue.options:
            self._append([QUEUE, name, asdict(options)])
            queue.options = options
            self.roomy.add(queue)
        return options

    # -- put --

    def put(self, name: str, bodies: Sequence[bytes], now: float, *, priority: int = 8,
            delay: float = 0.0, ttl: float = 0.0, headers: bytes | None = None,
            producer: int = 0, sequence: int = 0, floor: int = 0) -> int:
        """Store jobs; the id of the first, the others follow. A producer that is not 0 may repeat a
        request with its sequence number and gets the same answer; it has had the answers to all
        numbers below `floor`. Raises QueueFull, JobTooLarge, UsageError, JournalBusy."""
        known = self.stamps.known(producer, sequence, floor)
        queue = self.queue(name)
        if known is not None:
            queue.counts["repeated"] += len(bodies)
            return known
        queue.check_size(max(map(len, bodies), default=0) + len(headers or b""), self.limits.bytes)
        size = sum(map(len, bodies)) + len(bodies) * len(headers or b"")
        self._room(queue, len(bodies), size)
        ready = now + delay if delay else 0.0
        expires = now + ttl if ttl else 0.0
        first = self.next_id
        place = self._append([PUT, name, producer, sequence, floor, first, priority, ready,
                              expires, headers, bodies])
        queue.counts["put"] += len(bodies)
        self._insert(queue, bodies, first, place, priority, ready, expires, headers)
        self.stamps.remember(producer, sequence, floor, first, len(bodies))
        return first

    def _room(self, queue: QueueState, jobs: int, size: int) -> None:
        """QueueFull: the queue, or the server, cannot hold so much more."""
        if queue.full(jobs, size):
            what, held, taken = f"queue {queue.name!r}", queue.jobs, queue.bytes
        elif len(self.jobs) + jobs > self.limits.jobs or self.bytes + size > self.limits.bytes:
            what, held, taken = "queue server", len(self.jobs), self.bytes
            self.crowded.add(queue)
        else:
            return
        queue.counts["refused"] += jobs
        raise QueueFull(f"the {what} holds {held} jobs of {taken} bytes, and this is too much")

    def _left(self, queue: QueueState) -> None:
        """Jobs have left this queue."""
        self.roomy.add(queue)
        if self.crowded:
            self.roomy |= self.crowded
            self.crowded.clear()

    def _insert(self, queue: QueueState, bodies: Sequence[bytes], first: int, place: int,
                priority: int, ready: float, expires: float, headers: bytes | None) -> None:
        self.next_id = max(self.next_id, first + len(bodies))
        size = sum(map(len, bodies))
        if not (ready or expires or headers or self.replaying) \
                and self.memory + size <= self.limits.memory:
            self._insert_plain(queue, bodies, first, place, priority, size)
            return
        extra = len(headers or b"")
        for index, body in enumerate(bodies):
            entry = Entry(first + index, queue, body, len(body) + extra, place, index, priority)
            entry.ready = ready
            entry.expires = expires
            entry.headers = headers
            self._admit(entry)

    def _insert_plain(self, queue: QueueState, bodies: Sequence[bytes], first: int, place: int,
                      priority: int, size: int) -> None:
        """What _admit() does, for many jobs that are ready and stay in memory."""
        bulk.insert(self.jobs, queue.lane(priority).append, queue, bodies, first, place, priority)
        queue.jobs += len(bodies)
        queue.ready += len(bodies)
        queue.bytes += size
        self.bytes += size
        self.memory += size
        self.fresh.add(queue)

    def _admit(self, entry: Entry) -> None:
        """A new entry; its body stays in memory if there is space."""
        queue = entry.queue
        self.jobs[entry.id] = entry
        queue.jobs += 1
        queue.bytes += entry.size
        self.bytes += entry.size
        if self.memory + entry.size <= self.limits.memory:
            self.memory += entry.size
        else:
            entry.body = None
            self.spilled += 1
        if self.replaying:
            entry.state = DELAYED if entry.ready else READY
            return
        if entry.expires:
            self._ends.add(entry.expires, entry)
        if entry.ready:
            self._delay(entry)
        else:
            queue.push(entry)
            self.fresh.add(queue)

    def _delay(self, entry: Entry) -> None:
        entry.state = DELAYED
        self._delays.add(entry.ready, entry)

    # -- take --

    def take(self, name: str, most: int, room: int, holder: Any, now: float) -> list[Entry]:
        """Deliver up to `most` jobs, at least one, of at most `room` bytes in all."""
        queue = self.queue(name)
        if not queue.ready:
            return []
        found, late, stale = bulk.choose(queue.lanes.values(), most, room, now)
        queue.ready -= len(found)
        queue.stale -= stale + len(late)    # _finish() counts those as left behind
        if late:
            self._finish(late, "expired")
        if not found:
            return []
        try:
            if self.spilled:
                self._bring(found)
            self._append([TAKE, bulk.runs_of(found)])
        except BaseException:
            for entry in reversed(found):
                queue.push(entry, front=True)
            raise
        again = bulk.deliver(found)
        queue.held += len(found)
        queue.counts["delivered"] += len(found)
        queue.counts["redelivered"] += again
        self.leases.hold(found, holder, now + queue.options.visibility)
        return found

    def _bring(self, entries: list[Entry]) -> None:
        """Their bodies into memory."""
        for entry in entries:
            if entry.body is None:
                entry.body = self._load(entry)
                self.memory += entry.size
                self.spilled -= 1

    # -- what becomes of jobs that are held --

    def ack(self, ids: Sequence[int], attempts: Sequence[int]) -> tuple[list[int], list[int]]:
        """Settle jobs; (ids that are gone already, ids that this delivery no longer holds)."""
        good, gone, lost = bulk.sort_out(self.jobs, ids, attempts)
        if good:
            self._append([DONE, bulk.runs_of(good)])
            self._drop_held(good)
        return gone, lost

    def _drop_held(self, entries: list[Entry]) -> None:
        """What _finish() does, for many jobs that were acknowledged."""
        groups, memory, spilled, closed = bulk.drop(self.jobs, entries)
        self.memory -= memory
        self.spilled -= spilled
        for lease in closed:
            self.leases.close(lease)
        for queue, count, size in groups:
            self._forget(queue, count, size)

    def _forget(self, queue: QueueState, count: int, size: int) -> None:
        """So many jobs that were held have been acknowledged."""
        queue.jobs -= count
        queue.held -= count
        queue.bytes -= size
        self.bytes -= size
        queue.counts["acknowledged"] += count
        self._left(queue)

    def reject(self, ids: Sequence[int], attempts: Sequence[int], now: float, *,
               requeue: bool = True, delay: float = 0.0,
               untouched: bool = False) -> tuple[list[int], list[int]]:
        """Give jobs back, or make them dead letters. untouched: no consumer has looked at them, so
        the delivery does not count."""
        good, gone, lost = bulk.sort_out(self.jobs, ids, attempts)
        if requeue:
            self._back(good, now, "untouched" if untouched else "rejected", delay)
        else:
            for entry in good:
                self._bury(entry, now, "rejected")
        return gone, lost

    def extend(self, ids: Sequence[int], attempts: Sequence[int], holder: Any, now: float,
               seconds: float | None = None) -> tuple[list[int], list[int]]:
        """Hold jobs for `seconds` from now (None: the queue's visibility), by this connection."""
        good, gone, lost = bulk.sort_out(self.jobs, ids, attempts)
        by_queue: dict[QueueState, list[Entry]] = {}
        for entry in good:
            by_queue.setdefault(entry.queue, []).append(entry)
        for queue, entries in by_queue.items():
            for entry in entries:
                self.leases.release(entry)
                queue.held += 1
            self.leases.hold(entries, holder,
                        now + (queue.options.visibility if seconds is None else seconds))
        return gone, lost

    def _finish(self, entries: list[Entry], why: str) -> None:
        """They are settled, for good."""
        self._append([DONE, bulk.runs_of(entries)])
        queue = entries[0].queue
        for entry in entries:
            if entry.queue is not queue:
                queue = entry.queue
            queue.counts[why] += 1
            self._drop(entry)
            self._left(queue)

    def _drop(self, entry: Entry) -> None:
        queue = entry.queue
        del self.jobs[entry.id]
        queue.jobs -= 1
        queue.bytes -= entry.size
        self.bytes -= entry.size
        state, entry.state = entry.state, GONE
        if state == HELD:
            self.leases.release(entry)
        elif state == READY:
            queue.ready -= 1
            queue.left_behind()
        if entry.body is None:
            self.spilled -= 1
        else:
            self.memory -= entry.size
            entry.body = None

    def _back(self, entries: Sequence[Entry], now: float, why: str, delay: float = 0.0) -> None:
        """Held jobs go back to their queues, in front, or away if they have come too often."""
        back: list[Entry] = []
        for entry in entries:
            entry.queue.counts[why] += 1
            most = 0 if why == "untouched" else entry.queue.options.max_attempts
            if most and entry.attempts >= most and not dead.stays(entry):
                self._bury(entry, now, f"{entry.attempts} attempts, the last one {why}")
            elif entry.expires and entry.expires <= now:
                self._finish([entry], "expired")
            else:
                back.append(entry)
        if not back:
            return
        ready = now + delay if delay else 0.0
        self._append([BACK, bulk.runs_of(back), ready, why == "untouched"])
        for entry in reversed(back):
            self.leases.release(entry)
            entry.attempts -= why == "untouched"
            if ready:
                entry.ready = ready
                self._delay(entry)
            else:
                entry.queue.push(entry, front=True)
                self.fresh.add(entry.queue)

    def _bury(self, entry: Entry, now: float, why: str) -> None:
        """It becomes a dead letter: another job, with its history in the headers."""
        queue = entry.queue
        name = dead.queue_for(entry)
        queue.counts["dead"] += 1
        if name is None:
            self._finish([entry], "discarded")
            return
        try:
            grave = self.queue(name)
        except JournalBusy:             # no more queues: it is kept where it is
            entry.attempts -= 1
            self._append([BACK, [entry.id, 1], 0.0, True])
            self.leases.release(entry)
            queue.push(entry, front=True)
            return
        headers = dead.headers(entry, now, why)
        body = self._load(entry) if entry.body is None else entry.body
        number, self.next_id = self.next_id, self.next_id + 1
        place = self._append([DEAD, entry.id, number, name, entry.priority, headers, body])
        self._drop(entry)
        self._left(queue)
        grave.counts["put"] += 1
        self._insert(grave, [body], number, place, entry.priority, 0.0, 0.0, headers)

    # -- the clock --

    def tick(self, now: float) -> bool:
        """Do what is due. True: there is more."""
        delayed = self._delays.due(now, CHUNK)
        for entry in delayed:
            entry.queue.push(entry)
            self.fresh.add(entry.queue)
        late = [entry for entry in self._ends.due(now, CHUNK)
                if entry.state in (READY, DELAYED)]     # one that is held is looked at later
        by_queue: dict[QueueState, list[Entry]] = {}
        for entry in late:
            by_queue.setdefault(entry.queue, []).append(entry)
        for entries in by_queue.values():
            self._finish(entries, "expired")
        leases = self.leases.due(now, 100)
        for at, lease in enumerate(leases):
            try:
                self._back(of(lease), now, "abandoned" if lease.holder is Lost else "timed_out")
            except BaseException:       # a body that cannot be read now
                self.leases.again(leases[at:])
                raise
        return len(delayed) == CHUNK or len(late) == CHUNK or len(leases) == 100

    @property
    def due(self) -> float | None:
        """When tick() has something to do next."""
        return earliest(self._timers)

    # -- looks, and orders --

    def purge(self, name: str) -> int:
        """Discard all jobs of a queue that no consumer holds. Returns their number."""
        queue = self.queue(name)
        entries = [entry for entry in self.jobs.values()
                   if entry.queue is queue and entry.state != HELD]
        for at in range(0, len(entries), CHUNK):
            self._finish(entries[at:at + CHUNK], "purged")
        return len(entries)

    def peek(self, name: str, most: int, room: int) -> list[tuple[Entry, bytes]]:
        """The jobs that would be delivered next, and their bodies."""
        found: list[tuple[Entry, bytes]] = []
        queue = self.queues.get(name)
        for entry in () if queue is None else queue.waiting():
            if len(found) >= most or found and room < entry.size:
                break
            found.append((entry, self._load(entry) if entry.body is None else entry.body))
            room -= entry.size
        return found

    def close(self) -> None:
        """Cut what leads from queues and leases to entries, which the collector does not look at
        (bulk.Entry). The Book only knows its numbers then."""
        for queue in self.queues.values():
            queue.lanes.clear()
        for entry in self.jobs.values():
            if entry.lease is not None:
                entry.lease.entries = []

    # -- the log --

    def snapshot(self, closed: bool = False) -> int:
        """A record of what is not in the records of jobs, so that those before it may go. closed:
        it is the last one, and nothing behind it can have been lost."""
        queues = [[name, asdict(queue.options)] for name, queue in self.queues.items()]
        return self._append([SNAP, self.next_id, closed, queues, self.stamps.rows()])

    def move(self, entries: list[Entry]) -> None:
        """Write jobs anew, at the end of the log, so that what they were in may go."""
        rows = [[entry.id, entry.queue.name, entry.attempts, entry.priority, entry.ready,
                 entry.expires, entry.headers, entry.state,
                 self._load(entry) if entry.body is None else entry.body] for entry in entries]
        place = self._append([MOVE, rows])
        for index, entry in enumerate(entries):
            entry.place = place
            entry.index = index
            self.jobs[entry.id] = self.jobs.pop(entry.id)       # the order is that of places
