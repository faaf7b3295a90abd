"""STOMP 1.2 brokers as a side of a bridge: stomp://host?destination=/queue/NAME.

A source acknowledges cumulatively. A target sends persistent messages and waits for the receipt of
each. ActiveMQ and RabbitMQ were tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

from mqcore.bridge.address import Address
from mqcore.bridge.message import Message, text_of
from mqcore.bridge.spi import Plugin, Setting, Source, Target, arrived, need
from mqcore.bridge.threaded import BlockingSide
from mqcore.errors import UsageError

PORT, SECURE_PORT = 61613, 61614
BEAT = 10_000           # ms between heart-beats
GATHER = 0.002          # seconds between two looks at what the client's thread has read
LEAVING = 2.0           # seconds for a DISCONNECT that the broker does not read
SUBSCRIBED = "subscribed"
# headers of a SEND that are orders to the broker, and of a MESSAGE that are the broker's
RESERVED = {"destination", "receipt", "transaction", "content-length", "persistent", "message-id",
            "subscription", "ack", "redelivered", "receipt-id"}
OWN = {"content-type", "correlation-id", "reply-to", "type"}    # called stomp-... in a bridge
LEFT_OUT = {*RESERVED, "expires", "priority", "timestamp"}
DENIED = ("denied", "refused", "invalid", "authoriz", "not allowed", "authenticat")
MILLISECONDS = 1e11     # ActiveMQ counts time in them; RabbitMQ in seconds


class StompSide(BlockingSide):
    def __init__(self, at: Address) -> None:
        at.want("destination")
        self.at = at
        self.stomp = need("stomp", "stomp")
        self.errors = need("stomp.exception", "stomp")
        self.transient = (OSError, self.errors.StompException)
        logging.getLogger("stomp.py").addHandler(logging.NullHandler())     # not to stderr
        self.client: Any = None

    @property
    def where(self) -> tuple[str, int]:
        return self.at.host, self.at.port(SECURE_PORT if self.at.name == "stomps" else PORT)

    async def open(self) -> None:
        await self.close()
        self.loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self.welcome: asyncio.Future[None] = self.loop.create_future()
        self.receipts: dict[str, asyncio.Future[None]] = {}
        self.why: Exception | None = None
        self.client = client = self.stomp.Connection12(
            [self.where], prefer_localhost=False, try_loopback_connect=False, timeout=10,
            reconnect_attempts_max=1, heartbeats=(BEAT, BEAT), auto_decode=False,
            vhost=self.at["vhost"] or self.at.host)
        if self.at.name == "stomps":
            client.set_ssl([self.where])
        client.set_listener("bridge", Listener(self, client))
        try:
            await self.in_thread(client.connect, self.at.user or None, self.at.password or None)
        except self.errors.ConnectFailedException:
            raise ConnectionError(f"{self.at.shown}: nothing answers there") from None
        await self.answer(self.welcome)

    async def close(self) -> None:
        client, self.client = self.client, None
        if client is None:
            return
        try:
            if not self.busy and client.is_connected():
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(LEAVING):
                        await self.in_thread(client.disconnect)     # with a receipt
                        await asyncio.wait([self.lost])
        finally:
            _cut(client)        # ends the threads that read and write
        await self.finished()
        _cut(client)            # a connection that has come about since
        if client.transport.io_thread is not None:
            await asyncio.to_thread(client.transport.io_thread.join)
        if client.transport.socket is not None:     # no thread began to read from it
            client.transport.socket.close()

    # -- what the client's threads report, in the event loop --

    def told(self, client: Any, frame: Any) -> None:
        if client is not self.client:       # it is closed
            if frame is None and self.client is None:
                self._set(self.lost)
            return
        kind = frame.cmd if frame is not None else "DISCONNECTED"
        if kind == "MESSAGE":
            self.take(frame)
        elif kind == "RECEIPT":
            self._set(self.receipts.pop(frame.headers.get("receipt-id", ""), None))
        elif kind == "CONNECTED":
            self._set(self.welcome)
        elif kind == "ERROR":
            self.refused(frame)
        else:
            self.why = self.why or ConnectionError(f"{self.at.shown} has ended the connection")
            self._set(self.lost)

    @staticmethod
    def _set(future: asyncio.Future[None] | None) -> None:
        if future is not None and not future.done():
            future.set_result(None)

    def refused(self, frame: Any) -> None:
        """An ERROR frame. It ends the connection."""
        text = " ".join(f"{frame.headers.get('message', '')} "
                        f"{(frame.body or b'').decode(errors='replace')[:300]}".split())
        opening = not self.welcome.done() or SUBSCRIBED in self.receipts
        if opening and any(word in text.lower() for word in DENIED):
            self.why = UsageError(f"{self.at.shown} refuses this user or destination: {text}")
        else:
            self.why = ConnectionError(f"{self.at.shown}: {text}")
        self._set(self.lost)

    def take(self, frame: Any) -> None:
        """A message, of which a target gets none."""

    async def answer(self, future: asyncio.Future[None]) -> None:
        """Until it is done. Raises what has ended the connection before."""
        if not await arrived(future, self.lost):
            self.connected()

    def receipt(self, name: str) -> asyncio.Future[None]:
        future = self.receipts[name] = self.loop.create_future()
        return future

    def connected(self) -> Any:
        if self.client is None:
            raise ConnectionError("the connection to the STOMP broker is closed")
        if self.lost.done():
            raise self.why or ConnectionError("the connection to the STOMP broker is lost")
        return self.client

    def explain(self) -> str:
        return f"STOMP {self.at['destination']} at {self.at.shown}"

    def place(self) -> tuple[object, ...]:
        return "stomp", *self.where, self.at["vhost"], self.at["destination"]


class Listener:
    """Hands frames from the client's thread to the event loop, which it wakes once for many. After
    several at once it looks again by itself: two threads that wake each other all the time would
    spend it on taking turns."""

    def __init__(self, side: StompSide, client: Any) -> None:
        self.side, self.client, self.loop = side, client, side.loop
        self.frames: deque[Any] = deque()
        self.woken = False

    def told(self, frame: Any = None) -> None:
        self.frames.append(frame)
        if not self.woken:
            self.woken = True
            with contextlib.suppress(RuntimeError):         # the loop has ended
                self.loop.call_soon_threadsafe(self.hand_over)

    def hand_over(self) -> None:
        self.woken = False      # first: what comes from now on wakes the loop again
        count = len(self.frames)
        while self.frames:
            self.side.told(self.client, self.frames.popleft())
        if count > 1 and not self.woken:
            self.woken = True
            self.loop.call_later(GATHER, self.hand_over)

    on_message = on_receipt = on_error = on_connected = on_disconnected = told


def _cut(client: Any) -> None:
    sock = client.transport.socket
    client.transport.running = False
    if sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class StompSource(StompSide, Source):
    async def open(self) -> None:
        self.waiting: list[Message] = []
        self.came = asyncio.Event()
        await super().open()
        self.lost.add_done_callback(lambda _: self.came.set())
        done = self.receipt(SUBSCRIBED)
        prefetch = str(self.at["prefetch"])
        await self.in_thread(
            self.client.subscribe, self.at["destination"], "1", "client",
            {"receipt": SUBSCRIBED, "prefetch-count": prefetch, "activemq.prefetchSize": prefetch})
        await self.answer(done)

    def take(self, frame: Any) -> None:
        """The prefetch count bounds `waiting`."""
        told = frame.headers
        headers = [(f"stomp-{name}" if name in OWN else name, value.encode())
                   for name, value in told.items() if name not in LEFT_OUT]
        number, when = told.get("message-id", ""), told.get("timestamp", "")
        seconds = float(when) if when.isdecimal() else None
        if seconds is not None and seconds > MILLISECONDS:
            seconds /= 1000
        self.waiting.append(Message(
            frame.body or b"", headers=headers, address=told.get("destination", ""),
            # RabbitMQ's are numbers of the session
            id=f"{self.at.shown} {number}" if number and "@@" not in number else None,
            redelivered=told.get("redelivered") == "true", time=seconds, token=told.get("ack")))
        self.came.set()

    async def receive(self, most: int) -> list[Message]:
        while not self.waiting:
            self.connected()
            self.came.clear()
            await self.came.wait()
        some, self.waiting = self.waiting[:most], self.waiting[most:]
        return some

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """They are in order and none is left out, so the last one stands for all. A receipt would
        come behind all that the broker sends meanwhile, and the bridge's window would be full."""
        await self.in_thread(self.connected().ack, messages[-1].token)
        self.connected()


class StompTarget(StompSide, Target):
    number = 0

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        client = self.connected()
        refused: dict[int, Exception] = {}
        waiting: dict[int, asyncio.Future[None]] = {}
        frames = []
        for index, message in enumerate(messages):
            try:
                headers = self.prepared(message)
            except ValueError as error:
                refused[index] = error
                continue
            self.number += 1
            headers["receipt"] = str(self.number)
            waiting[index] = self.receipt(headers["receipt"])
            frames.append((headers, message.body))

        def push() -> None:
            for headers, body in frames:
                client.send_frame("SEND", headers, body)
        try:
            await self.in_thread(push)
            for future in waiting.values():
                await self.answer(future)
        except (OSError, self.errors.StompException) as error:
            why = self.why or ConnectionError(f"{self.at.shown}: {error!r}")
            open_ones = [index for index, future in waiting.items() if not future.done()]
            why.taken = min([*refused, *open_ones], default=0)  # type: ignore[attr-defined]
            raise why from None
        finally:
            self.receipts.clear()
        return refused

    def prepared(self, message: Message) -> dict[str, str]:
        """Headers of the SEND. ValueError, if STOMP cannot carry them."""
        if len(message.body) > self.at["max_bytes"]:
            raise ValueError(f"a body of {len(message.body)} bytes; max_bytes is "
                             f"{self.at['max_bytes']}")
        headers: dict[str, str] = {}
        for name, value in message.headers:
            own = name.removeprefix("stomp-")
            if name in RESERVED or not name or not name.isprintable() or set(name) & set(":\\"):
                raise ValueError(f"STOMP cannot carry the header {name[:40]!r}; rename or remove "
                                 "it with headers=")
            headers.setdefault(own if own in OWN else name, text_of(value))
        headers |= {"destination": self.at["destination"], "persistent": "true",
                    "content-length": str(len(message.body))}
        return headers


class Stomp(Plugin):
    doc = "STOMP brokers: ActiveMQ, RabbitMQ's plug-in"
    settings = (
        Setting("destination", "text", "", "the queue or topic, as the broker names it"),
        Setting("vhost", "text", "", "the virtual host; left out: the host's name. RabbitMQ: /"),
        Setting("prefetch", "int", 1000, "source: unacknowledged messages at most, up to 65535"),
        Setting("max_bytes", "int", 100 << 20, "target: the largest body"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://user:password@host:61613?destination=/queue/NAME"

    def source(self, at: Address) -> Source:
        if not 1 <= at["prefetch"] <= 65535:
            raise UsageError(f"prefetch={at['prefetch']}: it is a number from 1 to 65535")
        return StompSource(at)

    def target(self, at: Address) -> Target:
        return StompTarget(at)


plugin = Stomp("stomp")
secure = Stomp("stomps")
