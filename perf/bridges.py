"""Bridges beside the clients that they are made of: messages a second into a broker and out of it.

    bridges.py [--broker NAME ...] [--messages N] [--size N] [--rounds N]

`client` is the shortest loop over the client library that gives the same promise: into the broker
with its confirmation, out of it with an acknowledgment, BATCH messages at a time. `bridge` is a
bridge between the broker and a source or target in memory. Client and bridge take turns within each
round, over a queue of their own; the ratio is the median of the rounds' ratios. All run in this
process; the brokers are children of it, with a temporary folder and a port of the loopback
interface.

It needs the brokers of `tools/brokers.sh`, in MQCORE_BROKERS, and the groups `test` and `brokers`.
Redis runs with appendfsync everysec, RabbitMQ and ActiveMQ with durable queues and persistent
messages, NATS with a stream in files. Kafka is librdkafka's mock cluster, which keeps 5 MB of each
partition: give it --messages 4000. HTTP is a server that answers 204, and that streams events.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import bridge_clients  # noqa: E402
import brokers  # noqa: E402

from mqcore import bridge  # noqa: E402
from mqcore.bridge.runner import Runner  # noqa: E402

BATCH = 200
LIMIT = 300.0


class Feed(bridge.Source):
    """`count` messages from memory."""

    def __init__(self, body: bytes, count: int) -> None:
        self.body, self.count = body, count
        self.given = self.done = 0

    async def receive(self, most: int) -> list[bridge.Message]:
        if self.given == self.count:
            await asyncio.Event().wait()
        first, self.given = self.given, min(self.count, self.given + most)
        return [bridge.Message(self.body, id=str(n)) for n in range(first, self.given)]

    async def acknowledge(self, messages: Sequence[bridge.Message]) -> None:
        self.done += len(messages)

    def explain(self) -> str:
        return "memory"


class Drain(bridge.Target):
    async def send(self, messages: Sequence[bridge.Message]) -> dict[int, Exception]:
        return {}

    def explain(self) -> str:
        return "memory"


async def through(runner: Runner, count: int) -> None:
    task = asyncio.ensure_future(runner.run())
    async with asyncio.timeout(LIMIT):
        while runner.counts.acknowledged < count and not task.done():
            await asyncio.sleep(0.001)
    runner.stop()
    await task


class Client:
    """put() and get() move `count` messages of a queue; made() makes it, where that is needed."""

    def __init__(self, url: str) -> None:
        self.url = url

    def address(self, name: str) -> str:
        raise NotImplementedError

    async def made(self, name: str) -> None:
        pass


class RedisClient(Client):
    def address(self, name: str) -> str:
        return f"{self.url}?stream={name}"

    async def put(self, name: str, body: bytes, count: int) -> None:
        import redis.asyncio
        async with redis.asyncio.Redis.from_url(self.url) as client:
            for _ in range(0, count, BATCH):
                async with client.pipeline(transaction=False) as batch:
                    for _ in range(BATCH):
                        batch.xadd(name, {"body": body})
                    await batch.execute()

    async def get(self, name: str, count: int) -> None:
        import redis.asyncio
        async with redis.asyncio.Redis.from_url(self.url) as client:
            await client.xgroup_create(name, "g", "0", mkstream=True)
            while count > 0:
                answer: Any = await client.xreadgroup("g", "c", {name: ">"}, count=BATCH)
                rows = next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]
                await client.xack(name, "g", *(row[0] for row in rows))
                count -= len(rows)


class NatsClient(Client):
    def address(self, name: str) -> str:
        return f"{self.url}?stream={name}&subject={name}&create=true"

    async def made(self, name: str) -> None:
        import nats
        async with await nats.connect(self.url) as client:
            await client.jsm().add_stream(name=name, subjects=[name])

    async def put(self, name: str, body: bytes, count: int) -> None:
        import nats
        async with await nats.connect(self.url) as client:
            js = client.jetstream()
            for first in range(0, count, BATCH):
                await asyncio.gather(*[
                    await js.publish_async(name, body, headers={"Nats-Msg-Id": str(first + n)})
                    for n in range(BATCH)])

    async def get(self, name: str, count: int) -> None:
        import nats
        async with await nats.connect(self.url) as client:
            pulling = await client.jetstream().pull_subscribe(name, "c", stream=name)
            while count > 0:
                found = await pulling.fetch(BATCH)
                for one in found:
                    await one.ack()
                count -= len(found)
            await client.flush()


class AmqpClient(Client):
    def address(self, name: str) -> str:
        return f"{self.url}?queue={name}&create=true"

    @contextlib.asynccontextmanager
    async def channel(self, name: str) -> Any:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ended = asyncio.Event()
        connection = AsyncioConnection(
            pika.URLParameters(self.url), on_close_callback=lambda *_: ended.set(),
            on_open_callback=lambda it: it.channel(on_open_callback=opened.set_result))
        channel = await opened
        channel.queue_declare(name, durable=True)
        yield channel
        connection.close()
        await ended.wait()

    async def put(self, name: str, body: bytes, count: int) -> None:
        import pika
        how = pika.BasicProperties(delivery_mode=2)
        confirmed, news = 0, asyncio.Event()

        def confirm(frame: Any) -> None:
            nonlocal confirmed
            confirmed = max(confirmed, frame.method.delivery_tag) if frame.method.multiple \
                else confirmed + 1
            news.set()

        async with self.channel(name) as channel:
            channel.confirm_delivery(confirm)
            for first in range(0, count, BATCH):
                for _ in range(BATCH):
                    channel.basic_publish("", name, body, how)
                while confirmed < first + BATCH:
                    news.clear()
                    await news.wait()

    async def get(self, name: str, count: int) -> None:
        ended = asyncio.Event()
        left = count

        def take(channel: Any, method: Any, _: Any, __: bytes) -> None:
            nonlocal left
            left -= 1
            if left % BATCH == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if not left:
                ended.set()

        async with self.channel(name) as channel:
            channel.basic_qos(prefetch_count=1000)
            channel.basic_consume(name, take)
            await ended.wait()


CLIENTS = {"redis": RedisClient, "nats": NatsClient, "amqp": AmqpClient, **bridge_clients.CLIENTS}


async def measured(what: Any) -> float:
    started = time.perf_counter()
    await what
    return time.perf_counter() - started


async def one_round(client: Any, number: int, body: bytes, count: int) -> dict[str, float]:
    """Messages a second, by "client put" and so on."""
    mine, theirs = f"bridge{number}", f"client{number}"
    await client.made(theirs)
    work = {
        "client in": client.put(theirs, body, count),
        "bridge in": through(Runner(Feed(body, count), client.address(mine)), count),
        "client out": client.get(theirs, count),
        "bridge out": through(Runner(client.address(mine), Drain()), count),
    }
    order = list(work) if number % 2 else ["bridge in", "client in", "bridge out", "client out"]
    return {name: count / await measured(work[name]) for name in order}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--broker", action="append", choices=CLIENTS)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    count = max(BATCH, options.messages // BATCH * BATCH)
    print(f"{count} messages of {options.size} B, {options.rounds} rounds: messages a second, "
          "medians, and the ratio")
    for name in options.broker or CLIENTS:
        with tempfile.TemporaryDirectory() as folder:
            broker: Any = bridge_clients.Served(name, options.size, count) \
                if name in bridge_clients.SERVED else brokers.KINDS[name](Path(folder) / name)
            if name == "redis":
                broker.fsync = "everysec"
            try:
                client = CLIENTS[name](broker.start().url)
                rounds = [asyncio.run(one_round(client, n, bytes(options.size), count))
                          for n in range(options.rounds)]
            finally:
                broker.close()
        for way in ("in", "out"):
            mine, theirs = ([one[f"{who} {way}"] for one in rounds] for who in ("bridge", "client"))
            ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
            print(f"{name:12} {way:4} client {statistics.median(theirs):8,.0f}  "
                  f"bridge {statistics.median(mine):8,.0f}  {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
