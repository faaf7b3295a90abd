"""AMQP 1.0 brokers as a side of a bridge: amqp10://host?address=/queue/NAME.

Proton is used as an engine that turns bytes into events; its bytes come and go over asyncio. A
source accepts and settles what the target has. A target sends durable messages, unsettled, and
waits for the outcome of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mqcore.bridge.address import Address
from mqcore.bridge.errors import BridgeLost
from mqcore.bridge.message import Message, text_of
from mqcore.bridge.spi import Plugin, Setting, Side, Source, Target, arrived, need
from mqcore.errors import UsageError

PORT, SECURE_PORT = 5672, 5671
TICK = 1.0              # seconds between looks at idle time-outs
IDLE = 30.0             # seconds of silence until the connection counts as lost
LEAVING = 1.0           # seconds for the broker to answer a close
FULL = "amqp:resource-limit-exceeded"
DENIED = ("amqp:unauthorized-access", "amqp:not-allowed")
# names of a bridge's headers, and of proton's fields; those of AMQP 0-9-1 have the same names
PROPERTIES = {"amqp-content_type": "content_type", "amqp-content_encoding": "content_encoding",
              "amqp-correlation_id": "correlation_id", "amqp-reply_to": "reply_to",
              "amqp-message_id": "id", "amqp-subject": "subject", "amqp-group_id": "group_id"}


class Wire(asyncio.Protocol):
    """Moves bytes between a socket and proton's transport; hands its events to `take`."""

    def __init__(self, proton: Any, connection: Any, take: Callable[[Any], None],
                 lost: asyncio.Future[str], user: bool) -> None:
        self.connection, self.take, self.lost = connection, take, lost
        self.error = proton.ProtonException
        self.events = proton.Collector()
        connection.collect(self.events)
        self.engine = proton.Transport()
        self.engine.idle_timeout = IDLE
        sasl = self.engine.sasl()
        sasl.allow_insecure_mechs = True        # without TLS, the user has chosen that
        sasl.allowed_mechs("PLAIN" if user else "ANONYMOUS")
        self.engine.bind(connection)
        self.socket: Any = None
        self.writable = True

    def connection_made(self, transport: Any) -> None:
        self.socket = transport
        self.tick()

    def connection_lost(self, error: Exception | None) -> None:
        self.end(f"the connection was lost: {error or 'the broker closed it'}")

    def end(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)
        if self.socket is not None:
            self.socket.abort()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.run()

    def data_received(self, data: bytes) -> None:
        try:
            while data:
                room = self.engine.capacity()
                if room <= 0:
                    raise ConnectionError("the engine takes no more bytes")
                self.engine.push(data[:room])
                data = data[room:]
                self.run()
        except (self.error, ConnectionError) as error:
            self.run()                  # the event that says why
            self.end(str(error))

    def run(self) -> None:
        """Handle events, and write what they led to."""
        try:
            while True:
                while (event := self.events.peek()) is not None:
                    self.take(event)
                    self.events.pop()
                room = self.engine.pending() if self.writable and self.socket else 0
                if room <= 0:
                    return
                self.socket.write(self.engine.peek(room))
                self.engine.pop(room)
        except self.error as error:
            self.end(str(error))

    def tick(self) -> None:
        if not self.lost.done():
            self.engine.tick(time.monotonic())
            self.run()
            self.ticking = asyncio.get_running_loop().call_later(TICK, self.tick)


class Amqp10Side(Side):
    def __init__(self, at: Address) -> None:
        at.want("address")
        self.at = at
        self.proton = need("proton", "amqp10")
        self.transient = (OSError, self.proton.ProtonException)
        self.types = self.proton.Event
        self.wire: Wire | None = None
        self.link: Any = None

    @property
    def where(self) -> tuple[str, int]:
        return self.at.host, self.at.port(SECURE_PORT if self.at.name == "amqps10" else PORT)

    async def open(self) -> None:
        await self.close()
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = loop.create_future()
        self.attached: asyncio.Future[None] = loop.create_future()
        self.final: UsageError | None = None
        self.changed = asyncio.Event()
        self.lost.add_done_callback(lambda _: self.changed.set())
        connection = self.proton.Connection()
        connection.container = f"mqcore-{secrets.token_hex(8)}"
        connection.hostname = self.at["vhost"] or self.at.host
        if self.at.user:
            connection.user, connection.password = self.at.user, self.at.password
        secure = ssl.create_default_context() if self.at.name == "amqps10" else None
        _, self.wire = await loop.create_connection(
            lambda: Wire(self.proton, connection, self.take, self.lost, bool(self.at.user)),
            *self.where, ssl=secure)
        connection.open()
        session = connection.session()
        session.open()
        self.link = self.linked(session)
        self.link.open()
        self.wire.run()
        either: list[asyncio.Future[Any]] = [self.attached, self.lost]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self.connected()

    def linked(self, session: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        wire, self.wire, self.link = self.wire, None, None
        if wire is None:
            return
        if not self.lost.done():
            with contextlib.suppress(self.proton.ProtonException):
                wire.connection.close()
                wire.run()
                await asyncio.wait([self.lost], timeout=LEAVING)
        wire.end("the bridge has closed it")
        wire.ticking.cancel()
        self.changed.set()

    def take(self, event: Any) -> None:
        """One of proton's events. Only those of this connection come here."""
        kind, types = event.type, self.types
        if kind == types.DELIVERY:
            self.delivery(event.delivery)
        elif kind == types.LINK_FLOW:
            self.changed.set()
        elif kind == types.LINK_REMOTE_OPEN:
            # a link that the broker refuses is opened without an address, and closed at once
            if not self.attached.done() and self.present(event.link):
                self.attached.set_result(None)
        elif kind == types.LINK_REMOTE_CLOSE or kind == types.LINK_REMOTE_DETACH:
            self.gone(event.link.remote_condition, "the broker has closed the link")
        elif kind == types.SESSION_REMOTE_CLOSE:
            self.gone(event.session.remote_condition, "the broker has closed the session")
        elif kind == types.CONNECTION_REMOTE_CLOSE:
            self.gone(event.connection.remote_condition, "the broker has closed the connection")
        elif kind == types.TRANSPORT_ERROR:
            self.gone(event.transport.condition, "the connection failed")

    def present(self, link: Any) -> bool:
        raise NotImplementedError

    def gone(self, condition: Any, what: str) -> None:
        name = getattr(condition, "name", None) or ""
        why = f"{what}: {name} {getattr(condition, 'description', None) or ''}".strip(": ")
        if name in DENIED and not self.attached.done():
            self.final = UsageError(f"{self.at.shown} refuses this user or address: {why}")
        if not self.lost.done():
            self.lost.set_result(why)

    def delivery(self, delivery: Any) -> None:
        raise NotImplementedError

    def connected(self) -> Wire:
        if self.wire is None:
            raise ConnectionError("the connection to the AMQP broker is closed")
        if self.lost.done():
            raise self.final or ConnectionError(f"{self.at.shown}: {self.lost.result()}")
        return self.wire

    def explain(self) -> str:
        return f"AMQP 1.0 {self.at['address']} at {self.at.shown}"

    def place(self) -> tuple[object, ...]:
        return "amqp10", *self.where, self.at["vhost"], self.at["address"]


class Amqp10Source(Amqp10Side, Source):
    async def open(self) -> None:
        self.waiting: deque[Message] = deque()
        await super().open()

    def linked(self, session: Any) -> Any:
        link = session.receiver("bridge")
        link.source.address = link.target.address = self.at["address"]
        link.flow(self.at["prefetch"])
        return link

    def present(self, link: Any) -> bool:
        return link.remote_source.address is not None

    def delivery(self, delivery: Any) -> None:
        """The credit, which acknowledge() renews, bounds `waiting`."""
        if not delivery.readable or delivery.partial:
            return
        raw = delivery.link.recv(delivery.pending) or b""
        delivery.link.advance()
        self.waiting.append(self.message(raw, delivery))
        self.changed.set()

    def message(self, raw: bytes, delivery: Any) -> Message:
        found = self.proton.Message()
        try:
            found.decode(raw)
            body = found.body
        except (self.proton.ProtonException, ValueError) as error:      # the raw bytes are kept
            return Message(raw, token=delivery, fault=f"no AMQP 1.0 message: {error}")
        if isinstance(body, str):
            body = body.encode()
        elif body is None:
            body = b""
        elif not isinstance(body, bytes | bytearray | memoryview):
            return Message(raw, token=delivery, fault=f"the body is a {type(body).__name__}, not "
                           "bytes or text")
        headers = [(name, bytes_of(value)) for name, value in (found.properties or {}).items()]
        for name, own in PROPERTIES.items():
            value = getattr(found, own)
            if value is not None and value not in ("", "None"):      # proton's for no symbol
                headers.append((name, bytes_of(value)))
        return Message(
            bytes(body), headers=headers, address=found.address or self.at["address"],
            redelivered=found.delivery_count > 0 or not found.first_acquirer,
            time=found.creation_time or None, token=delivery)

    async def receive(self, most: int) -> list[Message]:
        while not self.waiting:
            self.connected()
            self.changed.clear()
            await self.changed.wait()
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        wire = self.connected()
        for message in messages:
            message.token.update(self.proton.Delivery.ACCEPTED)
            message.token.settle()
        self.link.flow(len(messages))
        wire.run()


def bytes_of(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class Amqp10Target(Amqp10Side, Target):
    async def open(self) -> None:
        self.sent: dict[str, asyncio.Future[Any]] = {}      # by delivery tags
        self.number = 0
        await super().open()

    def linked(self, session: Any) -> Any:
        link = session.sender("bridge")
        link.source.address = link.target.address = self.at["address"]
        return link

    def present(self, link: Any) -> bool:
        return link.remote_target.address is not None

    def delivery(self, delivery: Any) -> None:
        if not delivery.updated:
            return
        future = self.sent.pop(delivery.tag, None)
        if future is not None and not future.done():
            remote = delivery.remote
            future.set_result((remote.type, remote.undeliverable, remote.condition))
        delivery.settle()

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        wire, link = self.connected(), self.link
        refused: dict[int, Exception] = {}
        waiting: dict[int, asyncio.Future[Any]] = {}
        try:
            for index, message in enumerate(messages):
                try:
                    raw = self.prepared(message)
                except ValueError as error:
                    refused[index] = error
                    continue
                while link.credit <= 0:
                    wire.run()
                    self.changed.clear()
                    await self.changed.wait()
                    self.connected()
                self.number += 1
                tag = str(self.number)
                waiting[index] = self.sent[tag] = asyncio.get_running_loop().create_future()
                link.delivery(tag)
                link.stream(raw)
                link.advance()
            wire.run()
            for index, future in waiting.items():
                if not await arrived(future, self.lost):
                    self.connected()
                self.outcome(index, refused, *future.result())
        except (BridgeLost, ConnectionError) as lost:
            open_ones = [index for index in range(len(messages))
                         if not _accepted(waiting.get(index), self.proton)]
            lost.taken = min([*refused, *open_ones])    # type: ignore[union-attr]
            raise
        finally:
            self.sent.clear()
        return refused

    def outcome(self, index: int, refused: dict[int, Exception], kind: int, final: bool,
                condition: Any) -> None:
        outcomes = self.proton.Delivery
        if kind == outcomes.ACCEPTED:
            return
        name = getattr(condition, "name", None) or ""
        text = f"{name} {getattr(condition, 'description', None) or ''}".strip()
        if kind == outcomes.REJECTED and name != FULL or kind == outcomes.MODIFIED and final:
            refused[index] = ValueError(f"{self.explain()} refuses it: {text or 'no reason given'}")
            return
        raise BridgeLost(f"{self.explain()} has not taken a message: {text or 'released'}")

    def prepared(self, message: Message) -> bytes:
        """ValueError, if AMQP 1.0 or this broker cannot carry it."""
        most = self.link.remote_max_message_size if self.link is not None else 0
        if len(message.body) > min(most or self.at["max_bytes"], self.at["max_bytes"]):
            raise ValueError(f"a body of {len(message.body)} bytes; max_bytes is "
                             f"{self.at['max_bytes']}, the broker takes {most or 'any'}")
        own: dict[str, str] = {}
        properties: dict[str, str] = {}
        for name, value in message.headers:
            if name in PROPERTIES:
                own[PROPERTIES[name]] = text_of(value)
            else:
                properties[name] = text_of(value)
        if "id" not in own and message.id is not None:
            own["id"] = message.id
        found = self.proton.Message(
            message.body, inferred=True, durable=True, properties=properties or None, **own)
        if message.time is not None:
            found.creation_time = max(0.0, message.time)
        try:
            return bytes(found.encode())
        except self.proton.ProtonException as error:
            raise ValueError(f"AMQP 1.0 cannot carry it: {error}") from None


def _accepted(future: asyncio.Future[Any] | None, proton: Any) -> bool:
    return future is not None and future.done() and not future.cancelled() \
        and bool(future.result()[0] == proton.Delivery.ACCEPTED)


class Amqp10(Plugin):
    doc = "AMQP 1.0 brokers: queues and topics"
    settings = (
        Setting("address", "text", "", "the node, as the broker names it; RabbitMQ 3: "
                "/queue/NAME"),
        Setting("vhost", "text", "", "the host name in the open frame; left out: the host"),
        Setting("prefetch", "int", 1000, "source: unsettled messages at most, up to 65535"),
        Setting("max_bytes", "int", 100 << 20, "target: the largest body"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://user:password@host:5672?address=NAME"

    def source(self, at: Address) -> Source:
        if not 1 <= at["prefetch"] <= 65535:
            raise UsageError(f"prefetch={at['prefetch']}: it is a number from 1 to 65535")
        return Amqp10Source(at)

    def target(self, at: Address) -> Target:
        return Amqp10Target(at)


plugin = Amqp10("amqp10")
secure = Amqp10("amqps10")
