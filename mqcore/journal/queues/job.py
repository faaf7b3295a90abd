"""Job: what a consumer gets."""

from __future__ import annotations

import time
from typing import Any

from mqcore import trace
from mqcore.journal.queues.bulk import JobFields
from mqcore.journal.queues.requests import Malformed, headers_of
from mqcore.trace.flow import received


class Job(JobFields):
    """A job that this consumer holds. Acknowledge it when its work is done, within the queue's
    visibility time-out; else it goes to another consumer.

    body: bytes. id: the number that put() returned. attempts: how often it was delivered, this time
    included. settled: it was acknowledged or rejected here.

        with queue.get() as job:        # ack() at the end, reject() after an exception
            work(job.body)              # continues the producer's trace, if it has one
    """

    __slots__ = ("_span",)

    @property
    def redelivered(self) -> bool:
        """It was delivered before, so perhaps it was done before, in part or as a whole."""
        return self.attempts > 1

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Name and value of each header that put() gave it. A dead letter also has `dead-reason`,
        `dead-queue`, `dead-attempts`, `dead-id` and `dead-time`."""
        return headers_of(self._headers)

    @property
    def trace_context(self) -> trace.TraceContext | None:
        """The producer's span, or None."""
        try:
            return trace.extract(self.headers)
        except Malformed:           # which reading `headers` reports
            return None

    @property
    def left(self) -> float:
        """Seconds until it goes back to the queue; extend() gives more."""
        return self._until - time.monotonic()

    def ack(self) -> None:
        """It is done: the queue forgets it. Raises JobLost, RecvTimeout."""
        self._queue.ack_many([self])

    async def aack(self) -> None:
        await self._queue.aack_many([self])

    def reject(self, *, requeue: bool = True, delay: float = 0.0) -> None:
        """It is not done. requeue: another attempt, after `delay` seconds, unless it has had as
        many as the queue allows. requeue=False: it becomes a dead letter. Raises JobLost."""
        self._queue.reject_many([self], requeue=requeue, delay=delay)

    async def areject(self, *, requeue: bool = True, delay: float = 0.0) -> None:
        await self._queue.areject_many([self], requeue=requeue, delay=delay)

    def extend(self, seconds: float | None = None) -> None:
        """Hold it for `seconds` from now; None: the queue's visibility. Raises JobLost."""
        self._queue.extend_many([self], seconds)

    async def aextend(self, seconds: float | None = None) -> None:
        await self._queue.aextend_many([self], seconds)

    def _begin(self) -> Job:
        """Work within `with` continues the trace of the job."""
        context = self.trace_context if self._headers else None
        self._span = received(context, f"work {self._queue.name}", "consumer")
        self._span.__enter__()
        return self

    def __enter__(self) -> Job:
        return self._begin()

    def __exit__(self, kind: Any, *rest: object) -> None:
        self._span.__exit__(kind, *rest)
        if not self.settled:
            if kind is None:
                self.ack()
            else:
                self.reject()

    async def __aenter__(self) -> Job:
        return self._begin()

    async def __aexit__(self, kind: Any, *rest: object) -> None:
        self._span.__exit__(kind, *rest)
        if not self.settled:
            if kind is None:
                await self.aack()
            else:
                await self.areject()

    def __repr__(self) -> str:
        return f"<Job {self.id}, {len(self.body)} B, attempt {self.attempts}" \
               f"{', settled' if self.settled else ''}>"
