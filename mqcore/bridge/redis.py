"""Redis as a side of a bridge: redis://host?stream=NAME, or ?channel=NAME for publish/subscribe.

A stream is read by a consumer group. After a lost connection the consumer first reads what it had
not acknowledged. What other, dead consumers of the group hold is claimed after `claim` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from mqcore.bridge.address import Address
from mqcore.bridge.message import Message
from mqcore.bridge.spi import Plugin, Setting, Side, Source, Target, need

BLOCK = 500         # ms that a read waits at the server
BODY = b"body"      # the field of the body; the others are headers


class RedisSide(Side):
    def __init__(self, at: Address) -> None:
        at.want("stream", "channel")
        self.at = at
        self.redis = need("redis.asyncio", "redis")
        errors = need("redis.exceptions", "redis")
        # a server that loads its file, has no space or is not the master any more is away
        self.transient = (OSError, errors.ConnectionError, errors.TimeoutError,
                          errors.BusyLoadingError, errors.ReadOnlyError, errors.OutOfMemoryError)
        self.refusal = errors.ResponseError
        self.client: Any = None

    async def open(self) -> None:
        await self.close()
        self.client = self.redis.Redis.from_url(self.at.url, socket_timeout=10,
                                                socket_connect_timeout=10, retry=None)
        await self.client.ping()

    async def close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()

    def connected(self) -> Any:
        if self.client is None:
            raise ConnectionError("the connection to Redis is closed")
        return self.client

    def explain(self) -> str:
        what = f"stream {self.at['stream']}" if self.at["stream"] else \
            f"channel {self.at['channel']}"
        return f"Redis {what} at {self.at.shown}"

    def server(self) -> tuple[object, ...]:
        return self.at.host, self.at.port(6379)

    def place(self) -> tuple[object, ...]:
        return "redis", *self.server(), self.at.path or "0", self.at["stream"], self.at["channel"]


class StreamSource(RedisSide, Source):
    """A group's consumer. Entries that it was given before come first, from `old` on."""

    async def open(self) -> None:
        await super().open()
        self.old: str | None = "0"
        self.next_claim = 0.0
        try:
            await self.client.xgroup_create(self.at["stream"], self.at["group"], id="0",
                                            mkstream=True)
        except self.refusal as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def receive(self, most: int) -> list[Message]:
        while True:
            client = self.connected()
            if self.old is None and time.monotonic() >= self.next_claim:
                found = await self._claimed(client, most)
                if found:
                    return found
            answer = await client.xreadgroup(
                self.at["group"], self.at["consumer"], {self.at["stream"]: self.old or ">"},
                count=most, block=None if self.old else BLOCK)
            rows = self._rows(answer)
            if rows:
                again = self.old is not None
                if again:
                    self.old = rows[-1][0].decode()
                return [self._message(number, fields, again) for number, fields in rows]
            self.old = None

    def _rows(self, answer: Any) -> list[Any]:
        if isinstance(answer, dict):        # RESP 3
            return [row for part in next(iter(answer.values()), []) for row in part]
        return list(answer[0][1]) if answer else []

    async def _claimed(self, client: Any, most: int) -> list[Message]:
        """Entries that dead consumers hold."""
        self.next_claim = time.monotonic() + self.at["claim"] / 2
        answer = await client.xautoclaim(self.at["stream"], self.at["group"], self.at["consumer"],
                                         int(self.at["claim"] * 1000), "0", count=most)
        return [self._message(number, fields, True) for number, fields in answer[1] if fields]

    def _message(self, number: bytes, fields: dict[bytes, bytes] | None, again: bool) -> Message:
        name = f"{self.at.shown} {self.at['stream']} {number.decode()}"
        when = int(number.partition(b"-")[0]) / 1000
        if fields is None:
            return Message(b"", id=name, token=number, time=when,
                           fault="the entry was removed from the stream before it was read")
        body = fields.pop(BODY, None)
        headers = [(key.decode(errors="backslashreplace"), value) for key, value in fields.items()]
        return Message(body or b"", None, headers, self.at["stream"], name, None, again, when,
                       "" if body is not None else "the entry has no field `body`", number)

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        numbers = [message.token for message in messages]
        client = self.connected()
        if not self.at["delete"]:
            await client.xack(self.at["stream"], self.at["group"], *numbers)
            return
        async with client.pipeline(transaction=True) as batch:
            batch.xack(self.at["stream"], self.at["group"], *numbers)
            batch.xdel(self.at["stream"], *numbers)
            await batch.execute()


class ChannelSource(RedisSide, Source):
    acknowledges = False
    headed = False

    def reads(self, target: Target) -> bool:
        return isinstance(target, ChannelTarget) and self.server() == target.server() and \
            fnmatchcase(target.at["channel"], self.at["channel"])

    async def open(self) -> None:
        await super().open()
        self.channel = self.client.pubsub(ignore_subscribe_messages=True)
        await self.channel.psubscribe(self.at["channel"])

    async def receive(self, most: int) -> list[Message]:
        while True:
            self.connected()
            found = await self.channel.get_message(timeout=BLOCK / 1000)
            if found is not None:
                return [Message(found["data"], address=found["channel"].decode(
                    errors="backslashreplace"))]


class RedisTarget(RedisSide, Target):
    """One pipeline per batch: a round trip."""

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        refused: dict[int, Exception] = {}
        sent: list[int] = []
        async with self.connected().pipeline(transaction=False) as batch:
            for index, message in enumerate(messages):
                if self.headed and any(name.encode() == BODY for name, _ in message.headers):
                    refused[index] = ValueError("a header is called `body`, as the field of the "
                                                "body is; rename it with headers=")
                else:
                    self.put(batch, message)
                    sent.append(index)
            answers = await batch.execute(raise_on_error=False)
        for index, answer in zip(sent, answers, strict=True):
            if not isinstance(answer, Exception):
                continue
            if isinstance(answer, self.transient):      # it has no space left, say
                answer.taken = min([index, *refused])   # type: ignore[attr-defined]
                raise answer
            refused[index] = answer
        return refused

    def put(self, batch: Any, message: Message) -> None:
        fields: dict[Any, bytes] = dict(message.headers)
        fields[BODY] = message.body
        limit = self.at["max_length"] or None
        batch.xadd(self.at["stream"], fields, maxlen=limit)


class ChannelTarget(RedisTarget):
    headed = False

    def put(self, batch: Any, message: Message) -> None:
        batch.publish(self.at["channel"], message.body)


class Redis(Plugin):
    doc = "Redis streams and publish/subscribe"
    settings = (
        Setting("stream", "text", "", "the stream"),
        Setting("channel", "text", "", "the channel; as a source, a pattern like news.*"),
        Setting("group", "text", "mqcore", "stream, source: the consumer group, which is made"),
        Setting("consumer", "text", "bridge", "stream, source: this bridge's name in the group; "
                "two bridges need two"),
        Setting("claim", "float", 60.0, "stream, source: seconds after which entries that other "
                "consumers hold are taken over"),
        Setting("delete", "bool", False, "stream, source: remove what was acknowledged"),
        Setting("max_length", "int", 0, "stream, target: entries to keep; 0: all"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://user:password@host:6379/0?stream=NAME"

    def source(self, at: Address) -> Source:
        return StreamSource(at) if at["stream"] else ChannelSource(at)

    def target(self, at: Address) -> Target:
        return RedisTarget(at) if at["stream"] else ChannelTarget(at)


plugin = Redis("redis")
secure = Redis("rediss")
