"""RabbitMQ over AMQP 0-9-1, by pika's asyncio adapter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from systems.system import BATCH, WINDOW, Started, System, Take


class RabbitMQ(System):
    name = "rabbitmq"
    group = "broker"
    durability = "none: transient messages, a queue that is not durable"
    path = f"pika on asyncio, confirms, {WINDOW} in flight, deliveries are not acknowledged"
    modules = ("pika",)
    packages = ("rabbitmq-server", "erlang-base")
    distributions = ("pika",)
    programs = ("usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server",)
    durable = False

    def __init__(self, url: str = "") -> None:
        super().__init__(url)
        self.loop = asyncio.new_event_loop()
        self.take: Take | None = None
        self.sent = self.confirmed = self.got = 0

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        from systems import started

        with started.running(started.RabbitMQ, folder) as found:
            yield found

    async def opened(self) -> Any:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        ready: asyncio.Future[Any] = self.loop.create_future()

        def ended(_: Any, reason: Any) -> None:
            if not ready.done():
                ready.set_exception(reason)

        AsyncioConnection(
            pika.URLParameters(self.url), custom_ioloop=self.loop, on_open_error_callback=ended,
            on_open_callback=lambda it: it.channel(on_open_callback=ready.set_result),
            on_close_callback=ended)
        channel = await ready
        declared: asyncio.Future[Any] = self.loop.create_future()
        channel.queue_declare("bench", durable=self.durable, callback=declared.set_result)
        await declared
        return channel

    def listen(self) -> str:
        self.channel = self.loop.run_until_complete(self.opened())
        if self.durable:
            self.channel.basic_qos(prefetch_count=WINDOW)
        self.channel.basic_consume("bench", self.come, auto_ack=not self.durable)
        return self.url

    def come(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        assert self.take is not None
        over = self.take(body)
        self.got += 1
        if self.durable and (over or self.got % BATCH == 0):
            channel.basic_ack(method.delivery_tag, multiple=True)
        if over:
            self.loop.stop()

    def consume(self, take: Take) -> None:
        self.take = take
        self.loop.run_forever()

    def connect(self) -> None:
        import pika

        self.channel = self.loop.run_until_complete(self.opened())
        self.channel.confirm_delivery(self.confirm)
        self.how = pika.BasicProperties(delivery_mode=2 if self.durable else 1)

    def confirm(self, frame: Any) -> None:
        """The broker has taken over messages; those before it too, if it says `multiple`."""
        if frame.method.multiple:
            self.confirmed = max(self.confirmed, frame.method.delivery_tag)
        else:
            self.confirmed += 1
        if self.confirmed >= self.awaited:
            self.loop.stop()

    def until(self, confirmed: int) -> None:
        self.awaited = confirmed
        while self.confirmed < confirmed:
            self.loop.run_forever()
        self.awaited = 1 << 62

    awaited = 1 << 62

    def send(self, bodies: list[bytes]) -> None:
        publish = self.channel.basic_publish
        for body in bodies:
            publish("", "bench", body, self.how)
        self.sent += len(bodies)
        self.until(self.sent - WINDOW)

    def push(self) -> None:
        """One turn of the loop writes what was published."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def finish(self) -> None:
        self.until(self.sent)


class DurableRabbitMQ(RabbitMQ):
    name = "rabbitmq-durable"
    group = "stored"
    durability = "a durable queue, persistent messages, confirmed when they are on disk"
    path = f"pika on asyncio, confirms, {WINDOW} in flight, one ack for {BATCH} deliveries"
    durable = True
