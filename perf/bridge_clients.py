"""The shortest loops over the clients of Kafka, STOMP, AMQP 1.0 and HTTP, for bridges.py."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

BATCH = 200
WAIT = 60.0


class BlockingClient:
    """put() and get() run in a thread."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def made(self, name: str) -> None:
        pass

    async def put(self, name: str, body: bytes, count: int) -> None:
        await asyncio.to_thread(self.send, name, body, count)

    async def get(self, name: str, count: int) -> None:
        await asyncio.to_thread(self.receive, name, count)

    def send(self, name: str, body: bytes, count: int) -> None:
        raise NotImplementedError

    def receive(self, name: str, count: int) -> None:
        raise NotImplementedError


class KafkaClient(BlockingClient):
    """librdkafka's mock cluster, in a process of its own, which keeps 5 MB of each partition."""

    @property
    def settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.url.removeprefix("kafka://"), "log_level": 0}

    def address(self, name: str) -> str:
        return f"{self.url}?topic={name}&group={name}"

    def send(self, name: str, body: bytes, count: int) -> None:
        from confluent_kafka import Producer
        producer = Producer({**self.settings, "enable.idempotence": True})
        for _ in range(0, count, BATCH):
            for _ in range(BATCH):
                producer.produce(name, body)
            producer.flush()

    def receive(self, name: str, count: int) -> None:
        from confluent_kafka import Consumer
        consumer = Consumer({**self.settings, "group.id": name, "enable.auto.commit": False,
                             "auto.offset.reset": "earliest"})
        consumer.subscribe([name])
        while count > 0:
            first = consumer.poll(WAIT)
            count -= len([first, *consumer.consume(BATCH - 1, 0.0)])
            consumer.commit(asynchronous=False)
        consumer.close()


class StompClient(BlockingClient):
    extra = ""

    def address(self, name: str) -> str:
        return f"{self.url}?destination=/queue/{name}{self.extra}"

    @contextlib.contextmanager
    def connected(self, **hooks: Any) -> Any:
        import stomp
        host, _, port = self.url.partition("//")[2].partition(":")
        client = stomp.Connection12([(host, int(port))], vhost="/", auto_decode=False)
        client.set_listener("", type("Hooks", (stomp.ConnectionListener,), hooks)())
        client.connect(wait=True)
        yield client
        client.disconnect()

    def send(self, name: str, body: bytes, count: int) -> None:
        left, done = BATCH, threading.Event()

        def receipt(*_: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        with self.connected(on_receipt=receipt) as client:
            for first in range(0, count, BATCH):
                for n in range(first, first + BATCH):
                    client.send(f"/queue/{name}", body, persistent="true", receipt=str(n))
                done.wait(WAIT)
                left = BATCH
                done.clear()

    def receive(self, name: str, count: int) -> None:
        left, done = count, threading.Event()

        def message(_: Any, frame: Any) -> None:
            nonlocal left
            left -= 1
            if left % BATCH == 0:
                client.ack(frame.headers["ack"])
            if not left:
                done.set()

        with self.connected(on_message=message) as client:
            client.subscribe(f"/queue/{name}", "1", "client",
                             {"prefetch-count": "1000", "activemq.prefetchSize": "1000"})
            done.wait(WAIT)


class RabbitStompClient(StompClient):
    extra = "&vhost=/"


class Amqp10Client(BlockingClient):
    def address(self, name: str) -> str:
        return f"{self.url}?address=/queue/{name}"

    def run(self, name: str, handler: Any) -> None:
        from proton.reactor import Container
        where = f"{self.url.replace('amqp10', 'amqp')}//queue/{name}"
        handler.on_start = lambda event: handler.start(event, where)
        Container(handler).run()

    def send(self, name: str, body: bytes, count: int) -> None:
        from proton import Message
        from proton.handlers import MessagingHandler
        sent = done = 0

        class Sender(MessagingHandler):
            def start(self, event: Any, where: str) -> None:
                event.container.create_sender(where)

            def on_sendable(self, event: Any) -> None:
                nonlocal sent
                while event.sender.credit and sent < min(count, done + BATCH):
                    event.sender.send(Message(body, inferred=True, durable=True))
                    sent += 1

            def on_accepted(self, event: Any) -> None:
                nonlocal done
                done += 1
                if done == count:
                    event.connection.close()
                else:
                    self.on_sendable(event)
        self.run(name, Sender())

    def receive(self, name: str, count: int) -> None:
        from proton.handlers import MessagingHandler
        left = count

        class Receiver(MessagingHandler):
            def start(self, event: Any, where: str) -> None:
                event.container.create_receiver(where)

            def on_message(self, event: Any) -> None:
                nonlocal left
                left -= 1
                if not left:
                    event.connection.close()
        self.run(name, Receiver(prefetch=1000))


class HttpClient(BlockingClient):
    """A server that answers 204 to each POST and streams events to each GET."""

    def address(self, name: str) -> str:
        return f"{self.url}/{name}"

    async def put(self, name: str, body: bytes, count: int) -> None:
        import aiohttp
        async with aiohttp.ClientSession() as session:
            for _ in range(count):
                async with session.post(self.address(name), data=body) as answer:
                    assert answer.status == 204

    async def get(self, name: str, count: int) -> None:
        import aiohttp
        async with aiohttp.ClientSession() as session, session.get(self.address(name)) as answer:
            async for line in answer.content:
                count -= line.startswith(b"data:")
                if not count:
                    return


class Served:
    """A server of HTTP, or of Kafka's mock cluster, as the brokers of tests/support are started."""

    def __init__(self, kind: str, size: int, count: int) -> None:
        self.kind, self.arguments = kind, [str(size), str(count)]
        self.url = ""
        self.cluster: Any = None
        self.process: Any = None

    def start(self) -> Served:
        if self.kind == "kafka":
            import kafka_mock
            self.cluster = kafka_mock.Cluster()
            self.url = f"kafka://{self.cluster.servers}"
            return self
        self.process = subprocess.Popen([sys.executable, __file__, *self.arguments],
                                        stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        return self

    def close(self) -> None:
        """Also what has started only in part."""
        if self.cluster is not None:
            self.cluster.kill()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


async def serve(size: int, count: int) -> None:
    from aiohttp import web

    async def take(request: Any) -> Any:
        await request.read()
        return web.Response(status=204)

    async def give(request: Any) -> Any:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for first in range(0, count, BATCH):
            await answer.write(b"".join(b"id: %d\ndata: %b\n\n" % (n, b"x" * size)
                                        for n in range(first, first + BATCH)))
        await asyncio.Event().wait()

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{name}", take)
    app.router.add_get("/{name}", give)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


CLIENTS: dict[str, Any] = {"kafka": KafkaClient, "activemq": StompClient,
                           "rabbit-stomp": RabbitStompClient, "amqp10": Amqp10Client,
                           "http": HttpClient}
SERVED = ("kafka", "http")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
