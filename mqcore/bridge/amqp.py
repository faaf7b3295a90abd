"""RabbitMQ as a side of a bridge, over AMQP 0-9-1: amqp://host/vhost?queue=NAME.

A source consumes from a queue and acknowledges one message or many. A target publishes persistent
messages, to a queue or an exchange, and waits for the publisher confirms.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Any
from urllib.parse import quote, urlsplit

from mqcore.bridge.address import Address
from mqcore.bridge.errors import BridgeLost
from mqcore.bridge.message import Message, text_of
from mqcore.bridge.spi import Plugin, Setting, Side, Source, Target, arrived, need
from mqcore.errors import UsageError

PERSISTENT = 2
SHORT = 255             # bytes of a routing key or a header's name
PRECONDITION_FAILED = 406       # declared otherwise; or a message larger than the broker takes
FINAL = (403, PRECONDITION_FAILED)      # when the bridge opens; 403 is access refused
LIMIT = 128 << 20       # bytes of a body that RabbitMQ takes by default


class AmqpSide(Side):
    def __init__(self, at: Address) -> None:
        self.at = at
        self.pika = need("pika", "amqp")
        self.adapter = need("pika.adapters.asyncio_connection", "amqp").AsyncioConnection
        self.errors = need("pika.exceptions", "amqp")
        self.transient = (OSError, self.errors.AMQPConnectionError, self.errors.AMQPChannelError,
                          self.errors.AMQPError)
        self.connection: Any = None
        self.channel: Any = None

    async def open(self) -> None:
        await self.close()
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[Any] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        opened: asyncio.Future[None] = loop.create_future()
        self.blocked = False
        self.connection = self.adapter(
            self.parameters(), on_open_callback=lambda _: _set(opened),
            on_open_error_callback=lambda _, error: self._refused(opened, error),
            on_close_callback=self._ended, custom_ioloop=loop)
        await opened
        self.connection.add_on_connection_blocked_callback(self._blocked)
        self.connection.add_on_connection_unblocked_callback(self._unblocked)
        self.channel = await self.call(
            lambda done: self.connection.channel(on_open_callback=done))
        self.channel.add_on_close_callback(self._gone)
        if self.at["queue"]:
            await self.call(lambda done: self.channel.queue_declare(
                self.at["queue"], durable=True, passive=not self.at["create"], callback=done))

    def parameters(self) -> Any:
        parts = urlsplit(self.at.url)
        vhost = parts.path.removeprefix("/") or quote("/", safe="")
        query = "heartbeat=30&blocked_connection_timeout=3600&connection_attempts=1" \
            "&socket_timeout=10&stack_timeout=15"
        return self.pika.URLParameters(
            f"{parts.scheme}://{parts.netloc}/{vhost}?{query}")

    async def call(self, start: Any) -> Any:
        """The answer to a method of AMQP while the side opens."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        start(lambda frame: _set(done, frame))
        if not await arrived(done, self.lost):
            error = self.lost.exception()
            if getattr(error, "reply_code", 0) in FINAL:
                raise UsageError(f"{self.explain()}: {getattr(error, 'reply_text', error)}",
                                 hint="create=true declares a durable queue without arguments")
            self.check()
        return done.result()

    def check(self) -> Any:
        """The channel. Raises what has ended it."""
        if self.channel is None and self.connection is None:
            raise ConnectionError("the connection to RabbitMQ is closed")
        if self.lost.done():
            error = self.lost.exception()
            assert error is not None
            if getattr(error, "reply_code", 0) == PRECONDITION_FAILED:
                raise ConnectionError(str(error))       # a message may be the reason
            raise error
        return self.channel

    def _refused(self, opened: asyncio.Future[None], error: BaseException) -> None:
        _set(self.closed)
        texts = f"{error!r} {error.__cause__!r}"
        wrong = ("AuthenticationError", "AccessDenied", "ACCESS_REFUSED", "NOT_ALLOWED")
        if not opened.done():
            opened.set_exception(
                UsageError(f"{self.at.shown} refuses this user or virtual host: {error}")
                if any(text in texts for text in wrong) else
                ConnectionError(f"{self.at.shown}: {error!r}"))

    def _ended(self, connection: Any, error: BaseException) -> None:
        _set(self.closed)
        self._gone(connection, error)

    def _gone(self, _: Any, error: BaseException) -> None:
        """The channel or the connection has ended."""
        if not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()       # perhaps no call reads it

    def _blocked(self, *_: Any) -> None:
        self.blocked = True

    def _unblocked(self, *_: Any) -> None:
        self.blocked = False

    async def close(self) -> None:
        connection, self.connection, self.channel = self.connection, None, None
        if connection is None:
            return
        with contextlib.suppress(self.errors.AMQPError):
            connection.close()
        if not connection.is_closed:
            async with asyncio.timeout(3):
                await self.closed

    def explain(self) -> str:
        where = f"queue {self.at['queue']}" if self.at["queue"] else \
            f"exchange {self.at['exchange']}"
        blocked = ", blocked by the broker's flow control" if getattr(self, "blocked", False) \
            else ""
        return f"RabbitMQ {where} at {self.at.shown}{blocked}"

    def place(self) -> tuple[object, ...]:
        return "amqp", self.at.host, self.at.port(5672), self.at.path or "/", \
            self.at["queue"], self.at["exchange"]


def _set(future: asyncio.Future[Any], result: Any = None) -> None:
    if not future.done():
        future.set_result(result)


class AmqpSource(AmqpSide, Source):
    def __init__(self, at: Address) -> None:
        at.want("queue")
        super().__init__(at)

    async def open(self) -> None:
        await super().open()
        self.waiting: list[Message] = []
        self.came = asyncio.Event()
        self.lost.add_done_callback(lambda _: self.came.set())
        await self.call(lambda done: self.channel.basic_qos(
            prefetch_count=self.at["prefetch"], callback=done))
        await self.call(lambda done: self.channel.basic_consume(
            self.at["queue"], self.take, callback=done))
        self.channel.add_on_cancel_callback(self._cancelled)

    def _cancelled(self, _: Any) -> None:
        self._gone(None, ConnectionResetError(f"the queue {self.at['queue']} was deleted"))

    def take(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        """The prefetch count bounds `waiting`."""
        headers = [(name, bytes_of(value)) for name, value in properties.headers.items()] \
            if properties.headers else []
        for name, value in zip(NAMES, _all(properties), strict=True):
            if value is not None:
                headers.append((name, bytes_of(value)))
        self.waiting.append(Message(
            body, headers=headers, address=method.routing_key, redelivered=method.redelivered,
            time=properties.timestamp, token=method.delivery_tag))
        self.came.set()

    async def receive(self, most: int) -> list[Message]:
        while not self.waiting:
            self.check()
            self.came.clear()
            await self.came.wait()
        some, self.waiting = self.waiting[:most], self.waiting[most:]
        return some

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """They are in order and none is left out, so the last number stands for all."""
        self.check().basic_ack(messages[-1].token, multiple=True)


PROPERTIES = ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id",
              "type", "app_id")
NAMES = tuple(f"amqp-{name}" for name in PROPERTIES)
_all = attrgetter(*PROPERTIES)


def bytes_of(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def short(text: str) -> str:
    """The end of it, which is where ids differ."""
    return text.encode()[-SHORT:].decode(errors="ignore")


class AmqpTarget(AmqpSide, Target):
    async def open(self) -> None:
        await super().open()
        self.sent: dict[int, asyncio.Future[str]] = {}      # by delivery tags
        self.returned: dict[str, str] = {}
        self.number = 0
        self.lost.add_done_callback(lambda _: self._fail())
        self.channel.add_on_return_callback(self._returned)
        await self.call(lambda done: self.channel.confirm_delivery(self._confirmed, done))

    def _fail(self) -> None:
        for future in self.sent.values():
            future.cancel()

    def _returned(self, _: Any, method: Any, properties: Any, __: bytes) -> None:
        """It comes before the confirm of the same message."""
        self.returned[properties.message_id] = method.reply_text

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        last = method.delivery_tag
        if method.multiple:
            tags = [tag for tag in self.sent if tag <= last]
        else:
            tags = [last] if last in self.sent else []
        answer = "" if method.NAME == "Basic.Ack" else "nack"
        for tag in tags:
            future = self.sent.pop(tag)
            if not future.done():
                future.set_result(answer)

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        channel = self.check()
        refused: dict[int, Exception] = {}
        waiting: dict[int, asyncio.Future[str]] = {}
        names: dict[int, str] = {}
        for index, message in enumerate(messages):
            try:
                key, properties = self.prepared(message)
            except ValueError as error:
                refused[index] = error
                continue
            self.number += 1
            names[index] = properties.message_id = properties.message_id or \
                short(message.id or f"mq-{self.number}")
            waiting[index] = self.sent[self.number] = \
                asyncio.get_running_loop().create_future()
            channel.basic_publish(self.at["exchange"], key, message.body, properties,
                                  mandatory=True)
        try:
            for index, future in waiting.items():
                if not await arrived(future, self.lost) or future.cancelled():
                    self.check()
                if future.result():
                    full = BridgeLost(f"{self.explain()} is full, or cannot store a message")
                    full.taken = min([index, *refused])     # type: ignore[attr-defined]
                    raise full
                if names[index] in self.returned:
                    refused[index] = ValueError(f"no queue takes it from {self.explain()}: "
                                                f"{self.returned[names[index]]}")
        finally:
            self.returned.clear()
        return refused

    def prepared(self, message: Message) -> tuple[str, Any]:
        """(routing key, properties). ValueError, if AMQP cannot carry them."""
        key = self.at["key"] or message.address if self.at["exchange"] else self.at["queue"]
        if len(key.encode()) > SHORT:
            raise ValueError(f"a routing key of {len(key.encode())} bytes; AMQP allows {SHORT}")
        if len(message.body) > self.at["max_bytes"]:
            raise ValueError(f"a body of {len(message.body)} bytes; max_bytes is "
                             f"{self.at['max_bytes']}")
        headers: dict[str, str] = {}
        known: dict[str, str] = {}
        for name, value in message.headers:
            own = name.removeprefix("amqp-")
            if name.startswith("amqp-") and own in PROPERTIES:
                known[own] = text_of(value)
            else:
                headers[name] = text_of(value)
            if len(name.encode()) > SHORT or own in known and len(value) > SHORT:
                raise ValueError(f"the header {name[:40]!r} is too long for AMQP")
        when = None if message.time is None else int(message.time)
        return key, self.pika.BasicProperties(
            headers=headers or None, delivery_mode=PERSISTENT, timestamp=when, **known)


class Amqp(Plugin):
    doc = "RabbitMQ queues and exchanges (AMQP 0-9-1)"
    settings = (
        Setting("queue", "text", "", "the queue"),
        Setting("exchange", "text", "", "target: the exchange, instead of a queue"),
        Setting("key", "text", "", "target: the exchange's routing key; left out: the message's "
                "address"),
        Setting("create", "bool", False, "declare the queue, as a durable one"),
        Setting("prefetch", "int", 1000, "source: unacknowledged messages at most, up to 65535"),
        Setting("max_bytes", "int", LIMIT, "target: the largest body; RabbitMQ's max_message_size"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://user:password@host:5672/vhost?queue=NAME"

    def source(self, at: Address) -> Source:
        if not 1 <= at["prefetch"] <= 65535:
            raise UsageError(f"prefetch={at['prefetch']}: it is a number from 1 to 65535")
        return AmqpSource(at)

    def target(self, at: Address) -> Target:
        at.want("queue", "exchange")
        if at["queue"] and at["exchange"]:
            raise UsageError(f"{at.shown} names both a queue and an exchange",
                             hint="give one of them; an exchange routes by key=")
        return AmqpTarget(at)


plugin = Amqp("amqp")
secure = Amqp("amqps")
