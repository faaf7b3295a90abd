"""Work queues of ours as sides of a bridge: queue:tcp://host:5559?queue=NAME."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import mqcore as mq
from mqcore import journal
from mqcore.bridge.address import Address
from mqcore.bridge.message import Message
from mqcore.bridge.spi import Plugin, Setting, Source, Target

REFUSALS = (mq.UsageError, mq.OptionError, ValueError, TypeError)     # JobTooLarge is the first
SHARE = 0.4     # of the visibility time-out: so often are held jobs extended


class JobSource(Source):
    transient = (mq.Timeout, mq.SocketClosed, journal.JournalBusy, journal.JournalClosed, OSError)

    def __init__(self, at: Address) -> None:
        at.want("queue")
        self.at = at
        self.queue: Any = None
        self.held: dict[int, Any] = {}
        self.extending: Any = None

    async def open(self) -> None:
        self.queue = journal.queue(self.at.url, self.at["queue"])
        self.visibility = (await self.queue.aconfigure()).visibility
        self.extending = asyncio.ensure_future(self._extend())

    async def close(self) -> None:
        if self.extending is not None:
            self.extending.cancel()
            with contextlib.suppress(BaseException):
                await self.extending
        queue, self.queue, self.extending = self.queue, None, None
        self.held.clear()
        if queue is not None:
            await queue.aclose()

    async def _extend(self) -> None:
        """The target may be away for longer than a job may be held."""
        while True:
            await asyncio.sleep(self.visibility * SHARE)
            with contextlib.suppress(journal.JobLost, *self.transient):     # next time, perhaps
                await self.queue.aextend_many(list(self.held.values()))

    async def receive(self, most: int) -> list[Message]:
        jobs = await self.queue.aget_many(most)
        for job in jobs:
            self.held[job.id] = job
        return [Message(job.body, headers=job.headers, address=self.at["queue"],
                        id=f"{self.at.url} {self.at['queue']} {job.id}",
                        redelivered=job.redelivered, token=job) for job in jobs]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        jobs = [message.token for message in messages]
        for job in jobs:
            self.held.pop(job.id, None)
        if self.queue is None:
            raise ConnectionError("the queue is not open")
        try:
            await self.queue.aack_many(jobs)
        except journal.JobLost:         # it comes again, and its id is known then
            raise ConnectionError("some jobs were held for too long, and come again") from None

    def explain(self) -> str:
        return f"queue {self.at['queue']} at {self.at.url}"

    def place(self) -> tuple[object, ...]:
        return "queue", self.at.url, self.at["queue"]


class JobTarget(Target):
    transient = (mq.Timeout, mq.SocketClosed, journal.JournalBusy, journal.JournalClosed,
                 journal.QueueFull, journal.JournalFull, OSError)

    def __init__(self, at: Address) -> None:
        at.want("queue")
        self.at = at
        self.queue: Any = None

    async def open(self) -> None:
        self.queue = journal.queue(self.at.url, self.at["queue"])

    async def close(self) -> None:
        queue, self.queue = self.queue, None
        if queue is not None:
            await queue.aclose()

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        refused: dict[int, Exception] = {}
        done = 0
        for headers, run in groupby(messages, lambda message: message.headers):
            bodies = [message.body for message in run]
            end = done + len(bodies)
            while done < end:
                try:
                    done += await self._put(bodies[done - end:], headers)
                except REFUSALS as error:
                    done += getattr(error, "taken", 0)
                    try:
                        done += await self._put(bodies[done - end:][:1], headers)
                    except REFUSALS as cause:
                        refused[done] = cause
                        done += 1
                    except self.transient as lost:
                        raise self._partly(lost, done, refused) from None
                except self.transient as lost:
                    raise self._partly(lost, done, refused) from None
        return refused

    async def _put(self, bodies: list[bytes], headers: Any) -> int:
        await self.queue.aput_many(bodies, headers=headers or None, priority=self.at["priority"])
        return len(bodies)

    def _partly(self, error: BaseException, done: int, refused: dict[int, Exception]
                ) -> BaseException:
        """What was stored before is not put again, unless the runner must hear of a refusal."""
        before = done + (error.taken if isinstance(error, journal.QueueFull) else 0)
        error.taken = min([before, *refused])       # type: ignore[attr-defined]
        return error

    def explain(self) -> str:
        return f"queue {self.at['queue']} at {self.at.url}"

    def place(self) -> tuple[object, ...]:
        return "queue", self.at.url, self.at["queue"]


class Jobs(Plugin):
    name = "queue"
    doc = "a durable work queue"
    form = "queue:tcp://host:5559?queue=NAME"
    passes = True
    settings = (
        Setting("queue", "text", "", "the queue"),
        Setting("priority", "int", 8, "target: 1 (first) to 16"),
    )

    def source(self, at: Address) -> Source:
        return JobSource(at)

    def target(self, at: Address) -> Target:
        return JobTarget(at)


plugin = Jobs()
