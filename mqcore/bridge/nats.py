"""NATS as a side of a bridge: nats://host?subject=NAME, with &stream=NAME over JetStream.

Core NATS acknowledges nothing. JetStream does: a source is a durable pull consumer, a target waits
for the stream's acknowledgment and gives each message an id, by which the stream stores it once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from mqcore.bridge.address import Address, matches
from mqcore.bridge.errors import BridgeLost
from mqcore.bridge.message import Message, text_of
from mqcore.bridge.spi import Plugin, Setting, Side, Source, Target, arrived, need
from mqcore.errors import UsageError

_log = logging.getLogger("mqcore.bridge")

BLOCK = 0.5             # seconds that a fetch waits at the server
ROOM = 1000             # messages of a core subscription that wait for the bridge
SHARE = 0.4             # of ack_wait: so often does a source tell the stream that it still works
TOO_LARGE = 10054       # JetStream's err_code: larger than the stream's max_msg_size
RESERVED = "nats-"      # headers of that name are orders to the server


class NatsSide(Side):
    def __init__(self, at: Address) -> None:
        self.at = at
        self.nats = need("nats", "nats")
        self.js_errors = need("nats.js.errors", "nats")
        self.errors = need("nats.errors", "nats")
        self.transient = (OSError, TimeoutError, self.errors.Error)
        self.client: Any = None

    async def open(self) -> None:
        await self.close()
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.client = self.nats.NATS()
        try:
            await self.client.connect(
                self.at.url.replace("natss:", "tls:", 1), name="mqcore bridge",
                allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
                connect_timeout=10, error_cb=self.failed, disconnected_cb=self.gone,
                closed_cb=self.gone)
        except self.errors.Error as error:
            if isinstance(error, self.errors.AuthorizationError) or "uthoriz" in str(error):
                raise UsageError(f"{self.at.shown} refuses this user: {error}",
                                 hint="give user and password in the URL") from None
            raise

    async def close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await client.close()

    async def gone(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    async def failed(self, error: Exception) -> None:
        _log.info("%s: %s: %s", self.at.shown, type(error).__name__, error)

    def connected(self) -> Any:
        if self.client is None or self.lost.done():
            raise ConnectionError("the connection to NATS is closed")
        return self.client

    async def stream(self) -> None:
        """Make the stream, if that is wanted and there is none."""
        if self.at["create"]:
            manager = self.client.jsm()
            try:
                await manager.stream_info(self.at["stream"])
            except self.js_errors.NotFoundError:
                await manager.add_stream(name=self.at["stream"], subjects=[self.at["subject"]])

    def explain(self) -> str:
        stream = f", stream {self.at['stream']}" if self.at["stream"] else ""
        return f"NATS {self.at['subject'] or 'subjects of messages'}{stream} at {self.at.shown}"

    def place(self) -> tuple[object, ...]:
        return "nats", self.at.host, self.at.port(4222)

    def reads(self, target: Target) -> bool:
        """A stream may have other subjects than `subject`; the bridge cannot see them here."""
        return isinstance(target, NatsTarget) and self.place() == target.place() and (
            target.follows or matches(self.at["subject"].split("."),
                                      target.at["subject"].split("."), "*", ">"))


def headers_of(found: Any) -> list[tuple[str, bytes]]:
    """Those of a NATS message. Nats-... are between its publisher and the server."""
    return [(name, value.encode()) for name, value in (found or {}).items()
            if not name.lower().startswith(RESERVED)]


class SubjectSource(NatsSide, Source):
    """A core subscription. What it cannot hold is dropped by the client, and counted."""

    acknowledges = False

    def __init__(self, at: Address) -> None:
        at.want("subject")
        super().__init__(at)
        self.dropped = 0

    async def open(self) -> None:
        await super().open()
        self.waiting: deque[Any] = deque()
        self.came, self.space = asyncio.Event(), asyncio.Event()
        self.lost.add_done_callback(lambda _: self.came.set())
        await self.client.subscribe(self.at["subject"], queue=self.at["queue"], cb=self.take)
        await self.client.flush()

    async def take(self, found: Any) -> None:
        """While this waits, the client holds what comes, up to its own bounds."""
        while len(self.waiting) >= ROOM:
            self.space.clear()
            await self.space.wait()
        self.waiting.append(found)
        self.came.set()

    async def failed(self, error: Exception) -> None:
        self.dropped += isinstance(error, self.errors.SlowConsumerError)
        await super().failed(error)

    async def receive(self, most: int) -> list[Message]:
        while not self.waiting:
            self.connected()
            self.came.clear()
            await self.came.wait()
        some = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        self.space.set()
        return [Message(one.data, headers=headers_of(one.headers), address=one.subject)
                for one in some]

    def explain(self) -> str:
        return super().explain() + (f", {self.dropped} messages dropped: the bridge was too slow"
                                    if self.dropped else "")


class StreamSource(NatsSide, Source):
    """A durable pull consumer. It reports to the server that it still works on what the bridge
    holds, so the server does not deliver that again while the target is away.

    After a lost connection, the server delivers what was not acknowledged only after `ack_wait`,
    and newer messages before it. So the source waits for that long, and order is kept.
    """

    async def open(self) -> None:
        await super().open()
        self.held: dict[int, Any] = {}
        await self.stream()
        config = self.nats.js.api.ConsumerConfig(
            ack_wait=self.at["ack_wait"], max_ack_pending=self.at["max_pending"])
        js = self.client.jetstream()
        self.pulling = await js.pull_subscribe(
            self.at["subject"], durable=self.at["consumer"], stream=self.at["stream"],
            config=config)
        info = await self.pulling.consumer_info()
        self.wait = info.config.ack_wait or self.at["ack_wait"]
        self.begin = time.monotonic() + (1.1 * self.wait if info.num_ack_pending else 0.0)
        self.working = asyncio.ensure_future(self.work())

    async def close(self) -> None:
        working: Any = getattr(self, "working", None)
        if working is not None:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
        if self.client is not None and not self.lost.done():
            with contextlib.suppress(self.errors.Error):
                for found in self.held.values():
                    await found.nak()
        self.held = {}
        await super().close()

    async def work(self) -> None:
        while True:
            await asyncio.sleep(self.wait * SHARE)
            with contextlib.suppress(self.errors.Error, OSError):
                for found in list(self.held.values()):
                    await found.in_progress()

    async def receive(self, most: int) -> list[Message]:
        while True:
            self.connected()
            await asyncio.sleep(max(0.0, self.begin - time.monotonic()))
            try:
                some = await self.pulling.fetch(most, timeout=BLOCK)
            except TimeoutError:
                continue
            for one in some:
                self.held[one.metadata.sequence.stream] = one
            return [self.message(one) for one in some]

    def message(self, one: Any) -> Message:
        told = one.metadata
        number = told.sequence.stream
        return Message(
            one.data, headers=headers_of(one.headers), address=one.subject,
            id=f"{self.at.shown} {self.at['stream']} {number}",
            redelivered=told.num_delivered > 1, time=told.timestamp.timestamp(), token=number)

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        client = self.connected()
        for message in messages:
            found = self.held.pop(message.token, None)
            if found is not None:
                await found.ack()
        await client.flush(10)

    def explain(self) -> str:
        return f"{super().explain()}, consumer {self.at['consumer']}"


class NatsTarget(NatsSide, Target):
    def __init__(self, at: Address) -> None:
        super().__init__(at)
        self.follows = not at["subject"]

    def prepared(self, message: Message) -> tuple[str, dict[str, str] | None]:
        """(subject, headers). ValueError, if NATS cannot carry them."""
        subject = self.at["subject"] or message.address
        if not subject or any(c in subject for c in " \t\r\n*>") or ".." in f".{subject}.":
            raise ValueError(f"{subject!r} is no subject to publish to")
        headers = {}
        for name, value in message.headers:
            if name.lower().startswith(RESERVED) or not name.isascii() or not name.isprintable() \
                    or ":" in name or " " in name or not name:
                raise ValueError(f"NATS cannot carry the header {name!r}; rename or remove it with "
                                 "headers=")
            headers[name] = text_of(value)
        return subject, headers or None

    def check(self, message: Message) -> None:
        limit = self.client.max_payload
        if len(message.body) > limit:
            raise ValueError(f"a body of {len(message.body)} bytes; this server takes {limit}")


class SubjectTarget(NatsTarget):
    """Core NATS: the server has the messages when it answers the flush. Whether anybody has
    subscribed is unknown."""

    confirms = False

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        client = self.connected()
        refused: dict[int, Exception] = {}
        for index, message in enumerate(messages):
            try:
                self.check(message)
                subject, headers = self.prepared(message)
                await client.publish(subject, message.body, headers=headers)
            except (ValueError, self.errors.BadSubjectError, self.errors.MaxPayloadError) as error:
                refused[index] = error
        await client.flush(10)
        return refused


class StreamTarget(NatsTarget):
    """The stream's answers come to an inbox of the bridge's own: nats-py's publish_async() (2.16)
    never ends if the stream refuses."""

    deduplicates = True

    async def open(self) -> None:
        await super().open()
        await self.stream()
        self.answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.count = 0
        self.inbox = self.client.new_inbox()
        await self.client.subscribe(f"{self.inbox}.*", cb=self.answered)

    async def answered(self, found: Any) -> None:
        future = self.answers.pop(found.subject, None)
        if future is None or future.done():
            return
        try:
            told = json.loads(found.data) if found.data else \
                {"error": {"description": f"no stream has the subject {self.at['subject']!r}"}}
            future.set_result(told.get("error") or {})
        except (ValueError, AttributeError) as error:
            future.set_exception(ConnectionError(f"an answer that cannot be read: {error}"))

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        client = self.connected()
        refused: dict[int, Exception] = {}
        waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        try:
            for index, message in enumerate(messages):
                try:
                    self.check(message)
                    subject, headers = self.prepared(message)
                except ValueError as error:
                    refused[index] = error
                    continue
                headers = {**(headers or {}), "Nats-Expected-Stream": self.at["stream"]}
                if message.id is not None:
                    headers["Nats-Msg-Id"] = text_of(message.id.encode())
                self.count += 1
                reply = f"{self.inbox}.{self.count}"
                waiting[index] = self.answers[reply] = asyncio.get_running_loop().create_future()
                await client.publish(subject, message.body, reply=reply, headers=headers)
            await self.confirmed(waiting, refused)
        finally:
            self.answers.clear()
        return refused

    async def confirmed(self, waiting: dict[int, asyncio.Future[dict[str, Any]]],
                        refused: dict[int, Exception]) -> None:
        for index, future in waiting.items():
            if not await arrived(future, self.lost):
                self.connected()
            error = future.result()
            if error.get("err_code") == TOO_LARGE:
                refused[index] = ValueError(f"the stream refuses it: {error.get('description')}")
            elif error:                     # it is full, say: wait, and send again
                lost = BridgeLost(f"the stream {self.at['stream']} has not taken a message: "
                                  f"{error.get('description', error)}")
                lost.taken = min([index, *refused])     # type: ignore[attr-defined]
                raise lost


class Nats(Plugin):
    doc = "NATS subjects and JetStream streams"
    settings = (
        Setting("subject", "text", "", "the subject; as a source, with * and >; as a target, left "
                "out: the message's address"),
        Setting("stream", "text", "", "the JetStream stream; left out: core NATS"),
        Setting("create", "bool", False, "make the stream, of `subject`, if there is none"),
        Setting("consumer", "text", "mqcore", "stream, source: the durable consumer, which is "
                "made"),
        Setting("ack_wait", "float", 10.0, "stream, source: seconds until the server delivers "
                "again what a dead bridge held"),
        Setting("max_pending", "int", 10_000, "stream, source: unacknowledged messages at most"),
        Setting("queue", "text", "", "core, source: the queue group"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://user:password@host:4222?subject=NAME&stream=NAME"

    def source(self, at: Address) -> Source:
        _check(at)
        return StreamSource(at) if at["stream"] else SubjectSource(at)

    def target(self, at: Address) -> Target:
        _check(at)
        return StreamTarget(at) if at["stream"] else SubjectTarget(at)


def _check(at: Address) -> None:
    if at["create"] and not (at["stream"] and at["subject"]):
        raise UsageError(f"{at.shown}: create=true needs stream= and subject=")
    if not 0 < at["ack_wait"] <= 3600 or at["max_pending"] < 1:
        raise UsageError(f"{at.shown}: ack_wait is above 0 and up to 3600 seconds, max_pending "
                         "above 0")


plugin = Nats("nats")
secure = Nats("natss")
