"""Kafka as a side of a bridge: kafka://host:9092,host2:9092?topic=NAME&group=NAME.

A source is a member of a consumer group, see `kafka_group.py`. A target is an idempotent producer
that waits for all in-sync replicas.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from mqcore.bridge.address import Address
from mqcore.bridge.errors import BridgeLost
from mqcore.bridge.message import TOMBSTONE, Message
from mqcore.bridge.spi import Plugin, Setting, Source, Target, need
from mqcore.bridge.threaded import BlockingSide
from mqcore.errors import UsageError

_log = logging.getLogger("mqcore.bridge")

PORT = 9092
ASKING = 5.0            # seconds for the metadata of a topic when a side opens
STEP = 0.1              # seconds that a thread waits in the client, so that it soon sees the end
# what a broker answers for one message and always will; its batch mates may be innocent
REFUSED = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD",
           "INVALID_TIMESTAMP", "RECORD_LIST_TOO_LARGE", "POLICY_VIOLATION", "TOPIC_EXCEPTION",
           "TOPIC_AUTHORIZATION_FAILED")
ABSENT = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
DENIED = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "GROUP_AUTHORIZATION_FAILED",
          "CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")


class KafkaSide(BlockingSide):
    keyed = True

    def __init__(self, at: Address) -> None:
        self.at = at
        self.kafka = need("confluent_kafka", "kafka")
        self.transient = (OSError, self.kafka.KafkaException)
        self.client: Any = None
        self.denied: Any = None
        self.trouble = ""           # the client's last report of lost brokers
        self.servers = servers(at)
        self.config({})             # mistakes in it are found here

    def codes(self, names: Sequence[str]) -> set[int]:
        return {getattr(self.kafka.KafkaError, name) for name in names
                if hasattr(self.kafka.KafkaError, name)}

    def config(self, own: dict[str, Any]) -> dict[str, Any]:
        """For librdkafka. Its log is off: `failed` hears what matters."""
        secure = self.at.name == "kafkas"
        found: dict[str, Any] = {"bootstrap.servers": ",".join(self.servers), "log_level": 0,
                                 "client.id": "mqcore-bridge", "error_cb": self.failed, **own}
        found["security.protocol"] = ("SASL_" if self.at.user else "") + \
            ("SSL" if secure else "PLAINTEXT")
        if self.at.user:
            found |= {"sasl.mechanism": self.at["sasl"], "sasl.username": self.at.user,
                      "sasl.password": self.at.password}
        for text in self.at["set"]:
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"set={text!r} is no setting of librdkafka",
                                 hint="write set=NAME%3DVALUE")
            if name in OURS:
                raise UsageError(f"set={text!r}: the bridge needs {name} as it is")
            found[name] = value
        return found

    def made(self, make: Callable[[dict[str, Any]], Any], own: dict[str, Any]) -> Any:
        try:
            return make(self.config(own))
        except self.kafka.KafkaException as error:
            raise UsageError(f"{self.at.shown}: {_text(error)}",
                             hint="set= has settings of librdkafka") from None

    def failed(self, error: Any) -> None:
        """The client's report. It connects to lost brokers by itself. Any of our threads."""
        _log.info("%s: %s", self.at.shown, error.str())
        self.trouble = error.str()
        if error.code() in self.codes(DENIED):
            self.denied = error

    def ask(self, topics: Sequence[str]) -> None:
        """In a thread. Raises if no broker answers, or if one of the topics is missing."""
        self.denied = None
        try:
            for topic in topics or ("",):
                found = self.client.list_topics(*[topic][:bool(topic)], timeout=ASKING)
                if topic and (error := found.topics[topic].error):
                    self.refuse(error, f"the topic {topic}: ")
                    raise self.kafka.KafkaException(error)
        except self.kafka.KafkaException as error:
            self.client.poll(0)             # failed() hears the reason
            self.refuse(self.denied)
            raise ConnectionError(f"{self.at.shown}: {_text(error)}") from None
        self.trouble = ""

    def refuse(self, error: Any, what: str = "") -> None:
        """UsageError, if waiting does not help."""
        if error is not None and error.code() in self.codes(DENIED):
            raise UsageError(f"{self.at.shown} refuses this user: {what}{error.str()}")

    def connected(self) -> Any:
        if self.client is None:
            raise ConnectionError("the connection to Kafka is closed")
        return self.client

    def explain(self) -> str:
        topic = ", ".join(self.at["topic"]) or "topics of messages"
        return f"Kafka {topic} at {self.at.shown}" + \
            (f", its last trouble: {self.trouble}" if self.trouble else "")

    def reads(self, target: Target) -> bool:
        return isinstance(target, KafkaTarget) and bool({*self.servers} & {*target.servers}) and (
            target.follows or bool({*self.at["topic"]} & {*target.at["topic"]}))


OURS = {"bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store",
        "enable.idempotence", "acks", "error_cb", "on_commit"}


def servers(at: Address) -> tuple[str, ...]:
    """HOST:PORT of each that the address names."""
    hosts = urlsplit(at.url).netloc.rpartition("@")[2].split(",")
    found = tuple(host if host.rpartition(":")[2].isdigit() and not host.endswith("]")
                  else f"{host}:{PORT}" for host in hosts if host)
    if not found:
        raise UsageError(f"{at.shown} names no host")
    return found


def _text(error: Any) -> str:
    return str(error.args[0].str() if hasattr(error.args[0], "str") else error)


class KafkaTarget(KafkaSide, Target):
    def __init__(self, at: Address) -> None:
        if len(at["topic"]) > 1:
            raise UsageError(f"{at.shown} names {len(at['topic'])} topics; a target has one")
        super().__init__(at)
        self.follows = not at["topic"]
        self.final = self.codes(REFUSED + (ABSENT if self.follows else ()))

    async def open(self) -> None:
        await self.close()
        self.client = self.made(self.kafka.Producer, {
            "enable.idempotence": True, "acks": "all", "partitioner": self.at["partitioner"],
            "message.max.bytes": self.at["max_bytes"], "delivery.report.only.error": True})
        await self.in_thread(self.ask, self.at["topic"])

    async def close(self) -> None:
        """What is not confirmed must not arrive after what the next connection sends."""
        client, self.client = self.client, None
        if client is None:
            return
        await self.finished()
        ending = [client]
        del client
        await self.in_thread(_ended, ending)

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        self.connected()
        refused: dict[int, Exception] = {}
        errors: dict[int, Any] = {}
        for index, message in enumerate(messages):
            try:
                while not self.produced(message, partial(_note, errors, index)):
                    await self.flushed()        # the client's queue is full
            except (ValueError, TypeError, self.kafka.KafkaException) as error:
                code = getattr(error.args[0], "code", int)()
                if isinstance(error, self.kafka.KafkaException) and code not in self.final:
                    errors[index] = error.args[0]
                    break
                refused[index] = ValueError(str(error))
        await self.flushed()
        if len(messages) > 1 and any(error.code() in self.final for error in errors.values()):
            await self.singly(messages, errors)     # brokers refuse whole batches
        for index in sorted(errors):
            if errors[index].code() not in self.final:
                lost = BridgeLost(f"{self.explain()}: {errors[index].str()}")
                lost.taken = min([index, *refused])     # type: ignore[attr-defined]
                raise lost
            refused[index] = ValueError(f"{self.explain()} refuses it: {errors[index].str()}")
        return refused

    async def singly(self, messages: Sequence[Message], errors: dict[int, Any]) -> None:
        """Send those that failed again, one by one."""
        for index in sorted(errors):
            if errors[index].code() in self.final:
                del errors[index]
                self.produced(messages[index], partial(_note, errors, index))
                await self.flushed()

    def produced(self, message: Message, done: Any) -> bool:
        """Put it into the client's queue. False: that is full."""
        topic = (self.at["topic"] or [message.address])[0]
        if not topic:
            raise ValueError("the message has no address, and the target no topic")
        headers = [row for row in message.headers if row[0] != TOMBSTONE]
        body = None if len(headers) < len(message.headers) and not message.body else message.body
        try:
            self.connected().produce(
                topic, body, message.key, self.at["partition"], on_delivery=done,
                timestamp=0 if message.time is None else max(0, int(message.time * 1000)),
                headers=headers or None)
        except BufferError:
            return False
        return True

    async def flushed(self) -> None:
        """Until each message is confirmed or has failed. Cancelled: the thread soon ends too."""
        client, going = self.connected(), [True]

        def flush() -> None:
            while going and client.flush(STEP):
                continue
        try:
            await self.in_thread(flush)
        finally:
            going.clear()
        self.trouble = ""


def _note(errors: dict[int, Any], index: int, error: Any, _: Any) -> None:
    if error is not None:
        errors[index] = error


def _ended(clients: list[Any]) -> None:
    """In a thread: the end of a producer may wait for its own threads."""
    client = clients.pop()
    with contextlib.suppress(Exception):
        client.purge(in_queue=True, in_flight=True, blocking=True)
        client.flush(STEP)


class Kafka(Plugin):
    doc = "Kafka topics"
    settings = (
        Setting("topic", "list", (), "source: topics; target: the topic; left out: the message's "
                "address"),
        Setting("group", "text", "", "source: the consumer group"),
        Setting("start", "text", "earliest", "source: where a group without offsets begins, or "
                "latest"),
        Setting("handover", "float", 5.0, "source: seconds that a rebalance waits for what the "
                "bridge holds of the partitions that it gives away"),
        Setting("partition", "int", -1, "target: the partition; left out: by the key"),
        Setting("partitioner", "text", "murmur2_random", "target: as that of Java's clients"),
        Setting("max_bytes", "int", 1_000_000, "target: the largest message; the topic's "
                "max.message.bytes"),
        Setting("sasl", "text", "PLAIN", "the SASL mechanism, if the address has a user"),
        Setting("set", "list", (), "NAME=VALUE, a setting of librdkafka"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://user:password@host:9092?topic=NAME&group=NAME"

    def source(self, at: Address) -> Source:
        from mqcore.bridge.kafka_group import KafkaSource
        if at["start"] not in ("earliest", "latest"):
            raise UsageError(f"start={at['start']}: it is earliest or latest")
        if not 0 <= at["handover"] <= 60:
            raise UsageError(f"handover={at['handover']}: it is from 0 to 60 seconds")
        return KafkaSource(at)

    def target(self, at: Address) -> Target:
        if not 1000 <= at["max_bytes"] <= 1_000_000_000:
            raise UsageError(f"max_bytes={at['max_bytes']}: it is from 1000 to 1000000000")
        return KafkaTarget(at)


plugin = Kafka("kafka")
secure = Kafka("kafkas")
