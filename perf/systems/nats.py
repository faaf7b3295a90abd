"""NATS: its core, and a JetStream stream in files. The client is asyncio alone, so each call here
runs the loop until it has done its part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from systems.system import BATCH, Started, System, Take

PENDING = 4 << 30       # bytes that the server keeps for a slow subscriber; by default 64 MiB
CONF = """
max_pending: {pending}
jetstream {{ store_dir: "{folder}" }}
"""


class Nats(System):
    modules = ("nats",)
    packages = ("nats-server",)
    distributions = ("nats-py",)
    programs = ("usr/sbin/nats-server",)

    def __init__(self, url: str = "") -> None:
        super().__init__(url)
        self.loop = asyncio.new_event_loop()

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        from systems import started

        class Server(started.Nats):
            def command(self) -> tuple[Any, ...]:
                conf = self.folder / "nats.conf"
                conf.write_text(CONF.format(pending=PENDING, folder=self.folder / "js"))
                return *super().command()[:5], "-c", conf

        with started.running(Server, folder) as found:
            yield found

    def run(self, what: Any) -> Any:
        return self.loop.run_until_complete(what)

    def connect(self) -> None:
        import nats

        self.nats = self.run(nats.connect(self.url))

    def push(self) -> None:
        self.run(self.nats.flush())

    def finish(self) -> None:
        self.push()


class NatsCore(Nats):
    name = "nats"
    group = "broker"
    durability = "none: absent subscribers miss messages"
    path = "`publish` without waiting, a callback, no limits on what waits at server and client"

    def listen(self) -> str:
        self.connect()
        self.over: asyncio.Future[None] | None = None
        self.take: Take | None = None

        async def come(message: Any) -> None:
            if self.take is not None and self.take(message.data) and self.over is not None:
                self.over.set_result(None)

        async def subscribe() -> None:
            await self.nats.subscribe("bench", cb=come, pending_msgs_limit=-1,
                                      pending_bytes_limit=-1)
            await self.nats.flush()

        self.run(subscribe())
        return self.url

    def consume(self, take: Take) -> None:
        self.over, self.take = self.loop.create_future(), take
        self.loop.run_until_complete(self.over)

    def send(self, bodies: list[bytes]) -> None:
        async def publish() -> None:
            for body in bodies:
                await self.nats.publish("bench", body)

        self.run(publish())


class JetStream(Nats):
    name = "nats-jetstream"
    group = "stored"
    durability = "a stream in files, written before the answer, fsync each 2 minutes (its default)"
    path = f"`publish_async`, 4,000 in flight, pull subscription, `fetch({BATCH})`, `ack` each"

    def listen(self) -> str:
        self.connect()

        async def subscribe() -> None:
            jetstream = self.nats.jetstream()
            await jetstream.add_stream(name="bench", subjects=["bench"])
            self.pulling = await jetstream.pull_subscribe("bench", "c", stream="bench")

        self.run(subscribe())
        return self.url

    def consume(self, take: Take) -> None:
        async def fetch() -> None:
            over = False
            while not over:
                with contextlib.suppress(asyncio.TimeoutError):
                    for message in await self.pulling.fetch(BATCH, timeout=1):
                        over = take(message.data) or over
                        await message.ack()

        self.run(fetch())

    def connect(self) -> None:
        super().connect()
        self.jetstream = self.nats.jetstream()

    def send(self, bodies: list[bytes]) -> None:
        async def publish() -> None:
            for body in bodies:
                await self.jetstream.publish_async("bench", body)

        self.run(publish())

    def finish(self) -> None:
        async def confirmed() -> None:
            await self.jetstream.publish_async_completed()

        self.run(confirmed())
