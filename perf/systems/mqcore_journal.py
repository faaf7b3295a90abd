"""mqcore's journal: PUSH, a process that records and serves, a reader that follows."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from systems import child
from systems.system import BATCH, TCP, Started, System, Take

TOPIC = "bench"


class MqcoreJournal(System):
    name = "mqcore-journal"
    group = "stored"
    durability = 'written and fsynced each 0.1 s (`fsync="interval"`), or when 1 MiB is there, ' \
                 "only the end of a row is confirmed, by the journal's length"
    path = f"PUSH with `send_many` of {BATCH}, a recorder, which serves too, `follow` in batches"
    modules = ("mqcore", "msgspec")
    distributions = ("mqcore",)

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        with child.running(cls.name, folder) as started:
            yield started

    @classmethod
    def serve(cls, folder: str) -> None:
        import mqcore as mq
        from mqcore import journal

        with journal.open(folder, "a", topic=TOPIC) as log, mq.Pull(bind=TCP) as front:
            with mq.device(front, log), journal.serve(folder, TCP) as server:
                child.until_told(json.dumps([front.endpoints[0].url, server.urls[0]]))

    def opened(self) -> Any:
        from mqcore import journal

        self.record, serve = json.loads(self.url)
        return journal.open(f"{serve}/{TOPIC}")

    def listen(self) -> str:
        self.reader = self.opened()
        self.at = 0
        return self.url

    def consume(self, take: Take) -> None:
        for records in self.reader.follow(self.at):
            for body in records:
                self.at += 1
                if take(body):
                    return

    def connect(self) -> None:
        import mqcore as mq

        self.reader = self.opened()
        self.sent = 0
        self.socket = mq.Push(connect=self.record)
        self.socket.wait_peers()

    def send(self, bodies: list[bytes]) -> None:
        self.socket.send_many(bodies)
        self.sent += len(bodies)

    def finish(self) -> None:
        while self.reader.end < self.sent:
            time.sleep(0.001)

    def close(self) -> None:
        self.reader.close()
