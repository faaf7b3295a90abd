"""Redis: publish and subscribe, and a stream with a consumer group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from systems.system import BATCH, Started, System, Take

LARGE = "client-output-buffer-limit"


class Redis(System):
    modules = ("redis",)
    packages = ("redis-server",)
    distributions = ("redis", "hiredis")
    programs = ("usr/bin/redis-server",)

    @classmethod
    def command(cls, usual: tuple[Any, ...]) -> tuple[Any, ...]:
        """The options of the server; later ones count."""
        raise NotImplementedError

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        from systems import started

        class Server(started.Redis):
            fsync = "everysec"

            def command(self) -> tuple[Any, ...]:
                return cls.command(super().command())

        with started.running(Server, folder) as found:
            yield found

    def opened(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url)

    def connect(self) -> None:
        self.pipe = self.opened().pipeline(transaction=False)


class RedisPubSub(Redis):
    name = "redis-pubsub"
    group = "broker"
    durability = "none: absent subscribers miss messages"
    path = f"pipelines of {BATCH} PUBLISH, `pubsub().listen()`, no limit on the subscriber's buffer"

    @classmethod
    def command(cls, usual: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*usual, "--appendonly", "no", f"--{LARGE}", "pubsub 0 0 0")

    def listen(self) -> str:
        self.subscription = self.opened().pubsub(ignore_subscribe_messages=True)
        self.subscription.subscribe("bench")
        while not self.subscription.subscribed:
            self.subscription.get_message(timeout=1)
        self.subscription.get_message(timeout=1)    # the answer, which is ignored
        return self.url

    def consume(self, take: Take) -> None:
        for message in self.subscription.listen():
            if message is not None and take(message["data"]):
                return

    def send(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.pipe.publish("bench", body)
        self.pipe.execute()


class RedisStreams(Redis):
    name = "redis-streams"
    group = "stored"
    durability = "append-only file, written before the answer, fsync each second (`everysec`)"
    path = f"pipelines of {BATCH} XADD, XREADGROUP COUNT {BATCH}, one XACK for all of them"

    @classmethod
    def command(cls, usual: tuple[Any, ...]) -> tuple[Any, ...]:
        return usual

    def listen(self) -> str:
        self.redis = self.opened()
        self.redis.xgroup_create("bench", "g", id="0", mkstream=True)
        return self.url

    def consume(self, take: Take) -> None:
        redis, me = self.redis, str(os.getpid())
        while True:
            found: Any = redis.xreadgroup("g", me, {"bench": ">"}, count=BATCH, block=1000)
            if not found:
                continue
            rows = next(iter(found.values()))[0] if isinstance(found, dict) else found[0][1]
            over = [take(fields[b"b"]) for _, fields in rows]
            redis.xack("bench", "g", *[number for number, _ in rows])
            if over[-1]:
                return

    def send(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.pipe.xadd("bench", {"b": body})
        self.pipe.execute()
