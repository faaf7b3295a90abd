"""MQTT brokers as a side of a bridge: mqtt://host?topic=NAME, at QoS 1.

A source is a session that the broker keeps under the name `client`. It acknowledges a message when
the target has it. A target waits for the broker's acknowledgments.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from typing import Any

from mqcore.bridge.address import Address, matches
from mqcore.bridge.errors import BridgeLost
from mqcore.bridge.message import Message, text_of
from mqcore.bridge.spi import Plugin, Setting, Side, Source, Target, arrived, need
from mqcore.errors import UsageError

ROOM = 10_000           # messages of QoS 0, which the broker sends without being asked, that wait
TICK = 1.0              # seconds between looks at the keep-alive
KEEPALIVE = 30
FAREWELL = 2.0          # seconds that a broker has to read what was written last
LONGEST = 65535         # bytes of a topic, or of a header's name or value
FAILED = 0x80           # reason codes from here on
NO_SUBSCRIBER = 0x10
FINAL = (0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C)    # of a connection: version, client, user, banned
REFUSED = (0x87, 0x90, 0x95, 0x99)      # of a message: not authorized, topic, size, format
PROPERTIES = {"mqtt-content-type": "ContentType", "mqtt-response-topic": "ResponseTopic",
              "mqtt-correlation-data": "CorrelationData"}


class MqttSide(Side):
    def __init__(self, at: Address) -> None:
        self.at = at
        self.mqtt = need("paho.mqtt.client", "mqtt")
        self.packets = need("paho.mqtt.packettypes", "mqtt").PacketTypes
        self.properties = need("paho.mqtt.properties", "mqtt").Properties
        self.malformed = need("paho.mqtt", "mqtt").MQTTException
        self.v5 = at["version"] == 5
        self.client: Any = None

    @property
    def headed(self) -> bool:       # type: ignore[override]
        return bool(self.v5)

    async def open(self) -> None:
        await self.close()
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[Any] = loop.create_future()
        self.welcome: asyncio.Future[Any] = loop.create_future()
        self.client = client = self.mqtt.Client(
            self.mqtt.CallbackAPIVersion.VERSION2, client_id=self.name(), manual_ack=True,
            protocol=self.mqtt.MQTTv5 if self.v5 else self.mqtt.MQTTv311,
            reconnect_on_failure=False, **({} if self.v5 else {"clean_session": not self.keeps}))
        client.connect_timeout = 10
        client.max_inflight_messages_set(self.at["inflight"])
        if self.at.user:
            client.username_pw_set(self.at.user, self.at.password)
        if self.at.name == "mqtts":
            client.tls_set()
        client.on_connect, client.on_disconnect = self._welcomed, self._gone
        how = {"clean_start": not self.keeps, "properties": self._session()} if self.v5 else {}
        port = self.at.port(8883 if self.at.name == "mqtts" else 1883)
        await asyncio.to_thread(client.connect, self.at.host, port, KEEPALIVE, **how)
        self._watch(loop, client)
        await self.answer(self.welcome)

    keeps = False           # whether the broker keeps the session

    def name(self) -> str:
        return self.at["client"] or f"mqcore-{secrets.token_hex(8)}"

    def _session(self) -> Any:
        found = self.properties(self.packets.CONNECT)
        found.SessionExpiryInterval = self.at["expiry"] if self.keeps else 0
        found.ReceiveMaximum = self.at["inflight"]
        return found

    def _watch(self, loop: asyncio.AbstractEventLoop, client: Any) -> None:
        """Let the event loop read and write the client's socket."""
        sock = client.socket()
        if sock is None:
            raise ConnectionError(f"{self.at.shown} closed the connection")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.on_socket_close = lambda *_: (loop.remove_reader(sock), loop.remove_writer(sock))
        client.on_socket_register_write = lambda *_: loop.add_writer(sock, client.loop_write)
        client.on_socket_unregister_write = lambda *_: loop.remove_writer(sock)
        loop.add_reader(sock, self._read, client)
        if client.want_write():
            loop.add_writer(sock, client.loop_write)
        self.ticking = loop.call_later(TICK, self._tick, client)

    def _read(self, client: Any) -> None:
        client.loop_read()
        while client is self.client and getattr(client.socket(), "pending", int)():     # TLS
            client.loop_read()

    def _tick(self, client: Any) -> None:
        if client is self.client and not self.lost.done():
            client.loop_misc()
            self.ticking = asyncio.get_running_loop().call_later(TICK, self._tick, client)

    def _welcomed(self, _: Any, __: Any, ___: Any, reason: Any, properties: Any) -> None:
        if self.welcome.done():
            return
        if reason.value in FINAL:
            self.welcome.set_exception(UsageError(f"{self.at.shown} refuses this client: {reason}"))
        elif reason.value >= FAILED:
            self.welcome.set_exception(ConnectionError(f"{self.at.shown}: {reason}"))
        else:
            self.welcome.set_result(properties)

    def _gone(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any = None) -> None:
        if not self.lost.done():
            self.why = str(reason)
            self.lost.set_result(None)

    async def answer(self, future: asyncio.Future[Any]) -> Any:
        """Its result, or ConnectionError if the connection is lost before."""
        if not await arrived(future, self.lost):
            self.connected()
        return future.result()

    def connected(self) -> Any:
        if self.client is None:
            raise ConnectionError("the connection to the MQTT broker is closed")
        if self.lost.done():
            raise ConnectionError(f"the MQTT broker has ended the connection: {self.why}")
        return self.client

    async def close(self) -> None:
        client, self.client = self.client, None
        if client is None:
            return
        if ticking := getattr(self, "ticking", None):
            ticking.cancel()
        if self.welcome.done() and not self.welcome.cancelled():
            self.welcome.exception()        # perhaps no call reads it
        client.on_socket_register_write = None      # what follows is written at once
        kept = _kept(client.socket())
        client.disconnect()
        sock = client.socket()
        if sock is not None:                # the broker does not read
            with contextlib.suppress(ValueError, OSError):
                asyncio.get_running_loop().remove_reader(sock)
                asyncio.get_running_loop().remove_writer(sock)
            sock.close()
        if kept is not None:
            await _read_by_broker(kept, FAREWELL if sock is None else 0.0)

    def explain(self) -> str:
        topic = ", ".join(self.at["topic"]) or "topics of messages"
        return f"MQTT {topic} at {self.at.shown}"

    def place(self) -> tuple[object, ...]:
        return "mqtt", self.at.host, self.at.port(1883)

    def reads(self, target: Target) -> bool:
        return isinstance(target, MqttTarget) and self.place() == target.place() and (
            target.follows or any(matches(read.split("/"), topic.split("/"), "+", "#")
                                  for read in self.at["topic"] for topic in target.at["topic"]))


def _kept(sock: Any) -> socket.socket | None:
    """The same connection, which then outlives the client's socket."""
    if sock is None or sock.fileno() < 0:
        return None
    kept = socket.socket(fileno=os.dup(sock.fileno()))
    kept.setblocking(False)
    return kept


async def _read_by_broker(sock: socket.socket, wait: float) -> None:
    """The broker ends the connection when it has read our DISCONNECT, the last packet. If we closed
    it first, anything that the broker still sends would reset it, and acknowledgments that the
    broker has not read yet would be lost."""
    try:
        async with asyncio.timeout(wait):
            while await asyncio.get_running_loop().sock_recv(sock, 4096):
                pass
    except (TimeoutError, OSError):
        pass
    finally:
        sock.close()


class MqttSource(MqttSide, Source):
    keeps = True

    def __init__(self, at: Address) -> None:
        at.want("topic")
        at.want("client")
        super().__init__(at)
        self.dropped = 0

    async def open(self) -> None:
        self.waiting: list[Message] = []
        self.came = asyncio.Event()
        await super().open()
        self.lost.add_done_callback(lambda _: self.came.set())
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def subscribed(_: Any, __: Any, ___: Any, reasons: Any, ____: Any) -> None:
            if not done.done():
                done.set_result(reasons)
        self.client.on_subscribe = subscribed
        options = self.mqtt.SubscribeOptions
        self.client.subscribe([
            (topic, options(qos=1, retainHandling=options.RETAIN_SEND_IF_NEW_SUB) if self.v5 else 1)
            for topic in self.at["topic"]])
        for topic, reason in zip(self.at["topic"], await self.answer(done), strict=True):
            if reason.value >= FAILED:
                raise UsageError(f"{self.at.shown} refuses the subscription to {topic}: {reason}")

    def _watch(self, loop: asyncio.AbstractEventLoop, client: Any) -> None:
        client.on_message = self.take       # those of the session come before the subscription
        super()._watch(loop, client)

    def take(self, client: Any, _: Any, found: Any) -> None:
        """The broker sends `inflight` messages of QoS 1 that are not acknowledged, at most."""
        if found.qos == 0 and len(self.waiting) >= ROOM:
            self.dropped += 1
            return
        headers = []
        told = found.properties
        if told is not None:
            headers = [(name, value.encode()) for name, value in getattr(told, "UserProperty", ())]
            headers += [(name, value if isinstance(value, bytes) else value.encode())
                        for name, own in PROPERTIES.items()
                        if (value := getattr(told, own, None)) is not None]
        if found.retain:
            headers.append(("mqtt-retained", b"1"))
        try:
            topic, fault = found.topic, ""
        except UnicodeDecodeError:
            topic, fault = "", "the topic is not UTF-8"
        self.waiting.append(Message(bytes(found.payload), headers=headers, address=topic,
                                    redelivered=found.dup, fault=fault,
                                    token=(found.mid, found.qos)))
        self.came.set()

    async def receive(self, most: int) -> list[Message]:
        while not self.waiting:
            self.connected()
            self.came.clear()
            await self.came.wait()
        some, self.waiting = self.waiting[:most], self.waiting[most:]
        return some

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        client = self.connected()
        for message in messages:
            number, qos = message.token
            client.ack(number, qos)
        self.connected()

    def explain(self) -> str:
        text = f"{super().explain()}, client {self.at['client']}"
        return text + (f", {self.dropped} messages of QoS 0 dropped: the bridge was too slow"
                       if self.dropped else "")


class MqttTarget(MqttSide, Target):
    def __init__(self, at: Address) -> None:
        if len(at["topic"]) > 1:
            raise UsageError(f"{at.shown} names {len(at['topic'])} topics; a target has one")
        super().__init__(at)
        self.follows = not at["topic"]
        self.unmatched = 0

    async def open(self) -> None:
        self.sent: dict[int, asyncio.Future[int]] = {}
        await super().open()
        told = self.welcome.result()
        self.most = getattr(told, "MaximumPacketSize", 1 << 28)
        self.window = min(getattr(told, "ReceiveMaximum", LONGEST), self.at["inflight"])
        self.client.on_publish = self._published

    def _published(self, _: Any, __: Any, number: int, reason: Any, ___: Any) -> None:
        future = self.sent.pop(number, None)
        if future is not None and not future.done():
            future.set_result(reason.value)

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        client = self.connected()
        refused: dict[int, Exception] = {}
        waiting: dict[int, asyncio.Future[int]] = {}
        for index, message in enumerate(messages):
            if len(self.sent) >= self.window:
                await self.answer(next(iter(self.sent.values())))
            try:
                topic, properties = self.prepared(message)
                info = client.publish(topic, message.body, 1, self.at["retain"], properties)
            except (ValueError, self.malformed) as error:
                refused[index] = error
                continue
            waiting[index] = self.sent[info.mid] = asyncio.get_running_loop().create_future()
        for index, future in waiting.items():
            reason = await self.answer(future)
            if reason in REFUSED:
                refused[index] = ValueError(f"the broker refuses it, reason code {reason:#x}")
            elif reason >= FAILED:          # over its quota, say
                lost = BridgeLost(f"{self.explain()} has not taken a message, reason code "
                                  f"{reason:#x}")
                lost.taken = min([index, *refused])     # type: ignore[attr-defined]
                raise lost
            self.unmatched += reason == NO_SUBSCRIBER
        return refused

    def prepared(self, message: Message) -> tuple[str, Any]:
        """(topic, properties). ValueError, if MQTT cannot carry them."""
        topic = (self.at["topic"] or [message.address])[0]
        if not topic or len(topic.encode()) > LONGEST or set(topic) & set("+#\0"):
            raise ValueError(f"{topic[:100]!r} is no topic to publish to")
        size = len(message.body) + len(topic.encode()) + 64
        if not self.v5:
            self.fits(size)
            return topic, None
        found = self.properties(self.packets.PUBLISH)
        headers = []
        for name, value in message.headers:
            size += len(name.encode()) + len(value) + 5
            if max(len(name.encode()), len(value)) > LONGEST:
                raise ValueError(f"the header {name[:40]!r} is longer than MQTT allows")
            if name in PROPERTIES:
                setattr(found, PROPERTIES[name],
                        value if name == "mqtt-correlation-data" else text_of(value))
            else:
                headers.append((name, text_of(value)))
        if headers:
            found.UserProperty = headers
        self.fits(size)
        return topic, found

    def fits(self, size: int) -> None:
        if size > self.most:
            raise ValueError(f"a message of about {size} bytes; this broker takes {self.most}")

    def explain(self) -> str:
        return super().explain() + (f", {self.unmatched} messages had no subscriber"
                                    if self.unmatched else "")


class Mqtt(Plugin):
    doc = "MQTT topics, at QoS 1"
    settings = (
        Setting("topic", "list", (), "source: topics, with + and #; target: the topic; left out: "
                "the message's address"),
        Setting("client", "text", "", "source: the client id, under which the broker keeps what "
                "comes; two bridges need two"),
        Setting("version", "int", 5, "5, or 4 for MQTT 3.1.1, which has no headers"),
        Setting("inflight", "int", 1000, "unacknowledged messages at most, up to 65535"),
        Setting("expiry", "int", 7 * 86400, "source: seconds that the broker keeps the session "
                "of a bridge that is away"),
        Setting("retain", "bool", False, "target: the broker keeps the last message of each topic"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://user:password@host:1883?topic=NAME"

    def source(self, at: Address) -> Source:
        _check(at)
        return MqttSource(at)

    def target(self, at: Address) -> Target:
        _check(at)
        return MqttTarget(at)


def _check(at: Address) -> None:
    if at["version"] not in (4, 5):
        raise UsageError(f"version={at['version']}: it is 4 (MQTT 3.1.1) or 5")
    if not 1 <= at["inflight"] <= LONGEST or not 0 <= at["expiry"] < 1 << 32:
        raise UsageError(f"inflight={at['inflight']}, expiry={at['expiry']}: they are numbers from "
                         f"1 to {LONGEST}, and seconds below 2^32")


plugin = Mqtt("mqtt")
secure = Mqtt("mqtts")
