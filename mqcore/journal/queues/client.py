"""Queue: one queue of a queue server, for producers and consumers, blocking and awaitable."""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from mqcore.api.turns import fair
from mqcore.base.native import threading
from mqcore.errors import OptionError, RecvTimeout, UsageError
from mqcore.journal.errors import JobLost, JobTooLarge, JournalClosed, JournalError, QueueFull
from mqcore.journal.queues import requests
from mqcore.journal.queues.arguments import (
    Headers,
    bodies_of,
    bytes_of,
    common_of,
    count_of,
    delay_of,
    handles_of,
    sequence_of,
)
from mqcore.journal.queues.book import CHUNK
from mqcore.journal.queues.held import Claim, Held
from mqcore.journal.queues.job import Job
from mqcore.journal.queues.line import LATE, LONGEST, Line
from mqcore.journal.queues.options import USUAL, QueueOptions, QueueStats
from mqcore.journal.queues.requests import ROOM, encode
from mqcore.journal.waiting import Deadline, seconds_of
from mqcore.trace.carry import joined

BATCH = 1000                # jobs of one put request
BATCH_BYTES = 1 << 20       # and their bytes
WINDOW = 32                 # stamps that overtake one without an answer; a server remembers more
_NUMBERS = random.SystemRandom().randrange


class Queue(Line):
    """Made by `mqcore.journal.queue`. Threads and tasks may share it. `with` closes it."""

    def __init__(self, url: str, name: str, *, prefetch: int = 1, timeout: float = 10.0,
                 producer: int | None = None, **options: Any) -> None:
        if not isinstance(name, str) or not 1 <= len(name) <= 255:
            raise OptionError(f"a queue called {name!r}", hint="a name has 1 to 255 characters")
        if type(prefetch) is not int or not 1 <= prefetch <= CHUNK:
            raise OptionError(f"prefetch={prefetch!r}", hint=f"it is 1 to {CHUNK} jobs")
        if producer is not None and not (type(producer) is int and 1 <= producer < 1 << 62):
            raise OptionError(f"producer={producer!r}", hint="it is a number, 1 to 2^62 - 1")
        self.name = name
        self._prefetch = prefetch
        self._producer = producer or _NUMBERS(1, 1 << 62)
        self._given = producer is not None
        self._stamps = threading.RLock()  # reentrant: for signal handlers
        self._sequence = 0
        self._open: set[int] = set()            # sequence numbers without an answer
        self._ready: deque[Job] = deque()       # jobs that were prefetched
        self._visibility = 60.0                 # the queue's, as the last answer said
        self._held = Held()                     # jobs that are not settled
        super().__init__(url, timeout, options)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Give back what was prefetched, and disconnect. The server gives jobs that were not
        settled to other consumers. Calls that wait raise JournalClosed."""
        self._give_back()
        super().close()

    async def aclose(self) -> None:
        """close(). It does not wait."""
        self.close()

    def _forked(self) -> None:
        """The parent has the jobs. A thread of its may hold the lock."""
        super()._forked()
        self._stamps = threading.RLock()
        self._ready.clear()

    def _give_back(self) -> None:
        jobs = list(self._ready)
        self._ready.clear()
        if jobs and not self.closed:
            with contextlib.suppress(Exception), self._link() as socket:
                socket.send(encode(requests.Reject(
                    1, self._next_number(), [job.id for job in jobs],
                    [job.attempts for job in jobs], True, 0.0, True)), timeout=0)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} at {self.url}{', closed' if self.closed else ''}>"

    # -- put --

    def put(self, body: bytes, *, headers: Headers | None = None, delay: float = 0.0,
            ttl: float | None = None, priority: int = USUAL, sequence: int | None = None,
            timeout: float | None = ...) -> int:  # type: ignore[assignment]
        """Store a job; its id. When this returns, the job survives the server's death.

        headers: names and values that the consumer gets with it. delay: seconds until it may be
        delivered. ttl: seconds after which it is discarded unless a consumer has it. priority: 1
        (first) to 16. sequence: the job's number among those of this `producer`, for a producer
        that may put it again after it was restarted: within its last 64 numbers the queue stores
        it once. timeout: seconds, with on_full="block" those to wait for space (left out: the
        queue's `timeout`; None: for ever).

        Raises QueueFull, JobTooLarge, RecvTimeout (whether it is stored is unknown), UsageError.
        """
        return self.put_many([body], headers=headers, delay=delay, ttl=ttl, priority=priority,
                             sequence=sequence, timeout=timeout)[0]

    def put_many(self, bodies: Iterable[bytes], *, headers: Headers | None = None,
                 delay: float = 0.0, ttl: float | None = None, priority: int = USUAL,
                 sequence: int | None = None,
                 timeout: float | None = ...) -> list[int]:  # type: ignore[assignment]
        """put() for many jobs that have the same options; their ids. It sends up to 1000 jobs or
        1 MiB at a time, and what is sent together is stored together. QueueFull says in `taken` how
        many were stored."""
        found: list[int] = []
        common = common_of(joined(headers), delay, ttl, priority)
        for batch in self._batches(bodies, sequence):
            stamp, waiting = self._stamp(sequence)
            try:
                answer, _ = self._request(requests.Put, *stamp, self._patience(timeout), batch,
                                          *common, timeout=self._whole(timeout))
                found += self._ids(answer, len(batch))
            except (QueueFull, JobTooLarge) as error:
                error.taken = len(found)
                raise
            finally:
                self._answered(stamp, waiting)
        return found

    async def aput(self, body: bytes, *, headers: Headers | None = None, delay: float = 0.0,
                   ttl: float | None = None, priority: int = USUAL, sequence: int | None = None,
                   timeout: float | None = ...) -> int:  # type: ignore[assignment]
        """put() for asyncio and trio."""
        ids = await self.aput_many([body], headers=headers, delay=delay, ttl=ttl,
                                   priority=priority, sequence=sequence, timeout=timeout)
        return ids[0]

    async def aput_many(self, bodies: Iterable[bytes], *, headers: Headers | None = None,
                        delay: float = 0.0, ttl: float | None = None, priority: int = USUAL,
                        sequence: int | None = None,
                        timeout: float | None = ...) -> list[int]:  # type: ignore[assignment]
        """put_many() for asyncio and trio."""
        found: list[int] = []
        common = common_of(joined(headers), delay, ttl, priority)
        for batch in self._batches(bodies, sequence):
            stamp, waiting = self._stamp(sequence)
            try:
                answer, _ = await self._arequest(
                    requests.Put, *stamp, self._patience(timeout), batch, *common,
                    timeout=self._whole(timeout))
                found += self._ids(answer, len(batch))
            except (QueueFull, JobTooLarge) as error:
                error.taken = len(found)
                raise
            finally:
                self._answered(stamp, waiting)
        if not found:
            await fair()
        return found

    def _batches(self, bodies: Iterable[bytes], sequence: int | None) -> Iterator[list[bytes]]:
        if type(bodies) is list and 0 < len(bodies) <= BATCH and set(map(type, bodies)) == {bytes} \
                and sum(map(len, bodies)) <= BATCH_BYTES:
            yield bodies[:]             # all of them at once
            return
        batch: list[bytes] = []
        size = 0
        split = False
        for body in bodies_of(bodies):
            if not isinstance(body, bytes):
                body = bytes_of(body)
            if batch and (len(batch) == BATCH or size + len(body) > BATCH_BYTES):
                if sequence is not None:
                    raise UsageError("with sequence=, one call puts at most 1000 jobs and 1 MiB")
                yield batch
                split = True
                batch, size = [], 0
            batch.append(body)
            size += len(body)
        if batch or split:
            yield batch

    def _stamp(self, sequence: int | None) -> tuple[tuple[str, int, int, int], set[int]]:
        """(queue, producer, sequence, floor) of a put, and the set of numbers without an answer
        that it is in until _answered()."""
        if sequence is not None:
            if not self._given:
                raise UsageError("sequence= without a producer id of your own",
                                 hint="open the queue with producer=")
            return (self.name, self._producer, sequence_of(sequence), 0), set()
        if self._given:                 # its numbers are the caller's, others would clash
            return (self.name, 0, 0, 0), set()
        with self._stamps:
            if self._open and self._sequence - min(self._open) >= WINDOW:
                # one waits for space, say: further puts, as another producer's, do not drive its
                # stamp out of the server's memory
                self._producer, self._sequence, self._open = _NUMBERS(1, 1 << 62), 0, set()
            producer, waiting = self._producer, self._open
            number, self._sequence = self._sequence, self._sequence + 1
            waiting.add(number)
            return (self.name, producer, number, min(waiting)), waiting

    def _answered(self, stamp: tuple[str, int, int, int], waiting: set[int]) -> None:
        with self._stamps:
            waiting.discard(stamp[2])

    def _patience(self, timeout: Any) -> float:
        """How long a put may wait for space."""
        whole = self._timeout if timeout is ... else timeout
        return 1e6 if whole is None else min(seconds_of(whole, "timeout"), 1e6)

    def _whole(self, timeout: Any) -> float | None:
        whole = self._timeout if timeout is ... else timeout
        return None if whole is None else seconds_of(whole, "timeout") + LATE

    def _ids(self, answer: Any, n: int) -> range:
        first, count = self._expected(answer, lambda pair: len(pair) == 2 and pair[1] == n
                                      and type(pair[0]) is int)
        return range(first, first + count)

    # -- get --

    def get(self, timeout: float | None = None) -> Job:
        """The next job; it waits up to `timeout` seconds (None: for ever, also while there is no
        server; 0: not at all). Raises RecvTimeout, JournalClosed."""
        job = self._kept()
        return job or self._first(self._fetch(self._prefetch, timeout))

    async def aget(self, timeout: float | None = None) -> Job:
        """get() for asyncio and trio. A call that is cancelled loses no job."""
        await fair()
        job = self._kept()
        return job or self._first(await self._afetch(self._prefetch, timeout))

    def get_many(self, max: int = 100, *, timeout: float | None = None) -> list[Job]:
        """1 to `max` jobs; it waits for the first only. Raises RecvTimeout, JournalClosed."""
        kept = self._some_kept(count_of(max))
        return kept or self._fetch(max, timeout)

    async def aget_many(self, max: int = 100, *, timeout: float | None = None) -> list[Job]:
        """get_many() for asyncio and trio."""
        await fair()
        kept = self._some_kept(count_of(max))
        return kept or await self._afetch(max, timeout)

    def __iter__(self) -> Iterator[Job]:
        """Jobs as they come, until close()."""
        while True:
            try:
                job = self.get()
            except JournalClosed:
                return
            yield job

    async def __aiter__(self) -> AsyncIterator[Job]:
        while True:
            try:
                job = await self.aget()
            except JournalClosed:
                return
            yield job

    def _fetch(self, most: int, timeout: float | None) -> list[Job]:
        deadline = Deadline(timeout)
        while True:
            wait = self._turn(deadline)
            answer = None
            try:
                answer = self._request(requests.Get, self.name, wait, most, ROOM,
                                       timeout=self._reach(wait))[0]
            except RecvTimeout:         # a server that is away is an error only at the end
                if deadline.over:
                    raise
            jobs = self._jobs(answer) or self._some_kept(most)
            if jobs:
                return jobs
            self._none(deadline)

    async def _afetch(self, most: int, timeout: float | None) -> list[Job]:
        deadline = Deadline(timeout)
        while True:
            wait = self._turn(deadline)
            answer = None
            try:
                answer, _ = await self._arequest(requests.Get, self.name, wait, most, ROOM,
                                                 timeout=self._reach(wait))
            except RecvTimeout:
                if deadline.over:
                    raise
            jobs = self._jobs(answer) or self._some_kept(most)
            if jobs:
                return jobs
            self._none(deadline)

    def _turn(self, deadline: Deadline) -> float:
        """How long the next request may wait at the server."""
        self._check()
        left = deadline.left
        return LONGEST if left is None else max(0.0, min(left, LONGEST))

    def _reach(self, wait: float) -> float:
        """And how long its answer may take."""
        return wait + (LATE if wait else self._timeout)

    def _none(self, deadline: Deadline) -> None:
        if deadline.over:
            raise RecvTimeout(f"no job in the queue {self.name!r} within {deadline.timeout:g} s",
                              hint="give more time with timeout=; `mq queue stats` shows the queue")

    def _jobs(self, answer: Any) -> list[Job]:
        if not answer:
            return []
        until = time.monotonic()
        try:
            ids, attempts, bodies, headers, visibility = answer
            found: list[Job] = self._held.jobs(Job, self, until + visibility, ids, attempts,
                                               bodies, headers)
        except (TypeError, ValueError):
            raise JournalError(f"the queue server at {self.url} gave an answer that cannot be "
                               "read", hint="is it of this version?") from None
        self._visibility = visibility
        return found

    def _stray(self, answer: Any) -> None:
        self._ready.extend(self._jobs(answer))

    def _first(self, jobs: list[Job]) -> Job:
        self._ready.extend(jobs[1:])
        return jobs[0]

    def _kept(self) -> Job | None:
        """A job that was prefetched, and has not gone back since."""
        while self._ready:
            try:
                job = self._ready.popleft()
            except IndexError:          # another thread was faster
                return None
            if job.left > 0:
                return job
            self._held.drop(job.id, job.attempts)
        return None

    def _some_kept(self, most: int) -> list[Job]:
        found: list[Job] = []
        while len(found) < most:
            job = self._kept()
            if job is None:
                break
            found.append(job)
        return found

    def _claims(self) -> list[Claim]:
        return self._held.claims(self._visibility)

    # -- what becomes of jobs --

    def ack_many(self, jobs: Sequence[Job]) -> None:
        """ack() for many jobs. JobLost names those that this consumer held no longer; the others
        are acknowledged."""
        if jobs:
            self._settled(jobs, self._request(requests.Ack, *handles_of(jobs)))

    async def aack_many(self, jobs: Sequence[Job]) -> None:
        if jobs:
            self._settled(jobs, await self._arequest(requests.Ack, *handles_of(jobs)))
        else:
            await fair()

    def reject_many(self, jobs: Sequence[Job], *, requeue: bool = True,
                    delay: float = 0.0) -> None:
        """reject() for many jobs."""
        if jobs:
            self._settled(jobs, self._request(requests.Reject, *handles_of(jobs), requeue,
                                              delay_of(delay), False))

    async def areject_many(self, jobs: Sequence[Job], *, requeue: bool = True,
                           delay: float = 0.0) -> None:
        if jobs:
            self._settled(jobs, await self._arequest(requests.Reject, *handles_of(jobs), requeue,
                                                     delay_of(delay), False))
        else:
            await fair()

    def extend_many(self, jobs: Sequence[Job], seconds: float | None = None) -> None:
        """extend() for many jobs."""
        seconds = None if seconds is None else delay_of(seconds, "seconds")
        if jobs:
            self._extended(jobs, seconds,
                           self._request(requests.Extend, *handles_of(jobs), seconds))

    async def aextend_many(self, jobs: Sequence[Job], seconds: float | None = None) -> None:
        seconds = None if seconds is None else delay_of(seconds, "seconds")
        if jobs:
            self._extended(jobs, seconds,
                           await self._arequest(requests.Extend, *handles_of(jobs), seconds))
        else:
            await fair()

    def _settled(self, jobs: Sequence[Job], answered: tuple[Any, bool]) -> None:
        (gone, lost), again = self._pair(answered[0]), answered[1]
        self._held.settle(jobs)
        # the first of two requests may have settled a job
        self._complain(lost if again else [*gone, *lost])

    def _extended(self, jobs: Sequence[Job], seconds: float | None,
                  answered: tuple[Any, bool]) -> None:
        gone, lost = self._pair(answered[0])
        missing = {*gone, *lost}
        now = time.monotonic()
        for job in jobs:
            if job.id in missing:
                self._held.drop(job.id, job.attempts)
            else:
                job._until = now + (self._visibility if seconds is None else seconds)
                self._held.add([(job.id, job.attempts)], job._until)
        self._complain([*gone, *lost])

    def _pair(self, answer: Any) -> tuple[list[int], list[int]]:
        gone, lost = self._expected(answer, lambda pair: len(pair) == 2)
        return gone, lost

    def _complain(self, ids: list[int]) -> None:
        if ids:
            some = ", ".join(map(str, ids[:5])) + (" ..." if len(ids) > 5 else "")
            raise JobLost(f"this consumer no longer holds job {some}", ids=tuple(ids))

    # -- the queue --

    def stats(self) -> QueueStats:
        """Counts of the queue. A queue that does not exist has zeroes."""
        return self._counted(self._request(requests.Stats, self.name)[0])

    async def astats(self) -> QueueStats:
        return self._counted((await self._arequest(requests.Stats, self.name))[0])

    def _counted(self, answer: Any) -> QueueStats:
        known = QueueStats.__annotations__
        return QueueStats(**{name: n for name, n in (answer[0] if answer else {}).items()
                             if name in known})

    def purge(self) -> int:
        """Discard all jobs that no consumer holds. Returns their number. The server may let only
        those purge who may configure: UsageError."""
        found: int = self._request(requests.Purge, self.name)[0]
        return found

    async def apurge(self) -> int:
        found: int = (await self._arequest(requests.Purge, self.name))[0]
        return found

    def peek(self, max: int = 1) -> list[Job]:
        """The jobs that would be delivered next. They stay in the queue and cannot be settled."""
        return self._shown(self._request(requests.Peek, self.name, count_of(max))[0])

    async def apeek(self, max: int = 1) -> list[Job]:
        return self._shown((await self._arequest(requests.Peek, self.name, count_of(max)))[0])

    def _shown(self, answer: Any) -> list[Job]:
        found = [Job(self, number, attempts, body, headers, time.monotonic())
                 for number, attempts, body, headers in answer]
        for job in found:
            job.settled = True
        return found

    def configure(self, **options: Any) -> QueueOptions:
        """Change options of the queue (see QueueOptions), for good; all of them as they are then.
        Without arguments it makes the queue if there is none."""
        return QueueOptions(**self._request(requests.Configure, self.name, options)[0])

    async def aconfigure(self, **options: Any) -> QueueOptions:
        return QueueOptions(**(await self._arequest(requests.Configure, self.name, options))[0])

    def queues(self) -> list[str]:
        """The names of all queues of the server."""
        found: list[str] = self._request(requests.Names)[0]
        return found

    async def aqueues(self) -> list[str]:
        found: list[str] = (await self._arequest(requests.Names))[0]
        return found
