"""mqcore's work queue: jobs are put, delivered, acknowledged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from systems import child
from systems.system import BATCH, TCP, Started, System, Take

MOST, MOST_BYTES = 20_000_000, 32 << 30     # above what the benchmark puts


class MqcoreQueue(System):
    name = "mqcore-queue"
    group = "stored"
    durability = 'written before the answer, fsync each 0.1 s (`fsync="interval"`)'
    path = f"`put_many`, `get_many`, `ack_many` of up to {BATCH}, each call answered"
    modules = ("mqcore", "msgspec")
    distributions = ("mqcore",)

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        with child.running(cls.name, folder) as started:
            yield started

    @classmethod
    def serve(cls, folder: str) -> None:
        from mqcore import journal

        limits = journal.QueueLimits(jobs=MOST, bytes=MOST_BYTES)
        usual = journal.QueueOptions(max_jobs=MOST, max_bytes=MOST_BYTES)
        with journal.serve_queues(folder, TCP, limits=limits, defaults=usual) as server:
            child.until_told(server.urls[0])

    def listen(self) -> str:
        self.connect()
        return self.url

    def connect(self) -> None:
        from mqcore import journal

        self.queue = journal.queue(self.url, "bench")
        self.queue.stats()

    def consume(self, take: Take) -> None:
        over = False
        while not over:
            jobs = self.queue.get_many(BATCH)
            for job in jobs:
                over = take(job.body) or over
            self.queue.ack_many(jobs)

    def send(self, bodies: list[bytes]) -> None:
        self.queue.put_many(bodies)

    def close(self) -> None:
        self.queue.close()
