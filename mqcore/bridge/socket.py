"""Our own sockets as sides of a bridge: PATTERN+bind:URL or PATTERN+connect:URL.

REP answers a request, and REQ has its reply, only after the other side of the bridge has the
message: these two acknowledge. The others do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import mqcore as mq
from mqcore.bridge.address import Address
from mqcore.bridge.message import Message
from mqcore.bridge.spi import Plugin, Setting, Side, Source, Target

SOURCES = ("pull", "sub", "rep", "pair", "dish", "gather", "bus")
TARGETS = ("push", "pub", "req", "pair", "radio", "scatter", "bus")
REFUSALS = (ValueError, TypeError)     # what a socket raises for a message that it cannot take


class SocketSide(Side):
    """The socket of one side. It reconnects by itself."""

    transient: tuple[type[BaseException], ...] = (
        mq.Timeout, mq.SocketClosed, mq.PeerError, OSError)
    headed = False
    keyed = False

    def __init__(self, at: Address) -> None:
        self.at = at
        self.socket: Any = None

    async def open(self) -> None:
        await self.close()
        options: dict[str, Any] = {"linger": self.at["linger"]}
        if self.at.name == "sub":
            options["topics"] = self.at["topic"] or [""]
        elif self.at.name == "dish":
            options["groups"] = self.at["group"]
        elif self.at.name == "req":
            options["resend"] = self.at["resend"]
        self.socket = mq.socket(self.at.name, **options)
        if self.at.mode == "bind":
            await self.socket.abind(self.at.url)
        else:
            await self.socket.aconnect(self.at.url)

    async def close(self) -> None:
        if self.socket is not None:
            socket, self.socket = self.socket, None
            await socket.aclose()

    def explain(self) -> str:
        return f"{self.at.name}+{self.at.mode}:{self.at.url}"

    def place(self) -> tuple[object, ...] | None:
        return None if self.at.url.endswith((":0", ":*")) else ("socket", self.at.url)


class SocketSource(SocketSide, Source):
    acknowledges = False

    async def receive(self, most: int) -> list[Message]:
        if self.at.name in ("sub", "dish", "bus"):
            found = await self.socket.arecv_msg()
            parts = [bytes(part) for part in found.parts]
            topic = (found.group or "") if self.at.name == "dish" else \
                parts[0].decode(errors="backslashreplace") if len(parts) > 1 else ""
            return [Message(b"".join(parts[1:] if len(parts) > 1 else parts), address=topic)]
        return [Message(body) for body in await self.socket.arecv_many(most)]


class RepSource(SocketSide, Source):
    """Requests, answered with an empty reply once the target has them."""

    async def receive(self, most: int) -> list[Message]:
        found = await self.socket.arecv_msg()
        return [Message(b"".join(map(bytes, found.parts)), token=found)]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        for message in messages:
            try:
                await message.token.areply(b"")
            except mq.PeerError:        # the requester is gone; it asks again if it is unsure
                continue


class SocketTarget(SocketSide, Target):
    confirms = False

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        refused: dict[int, Exception] = {}
        for index, message in enumerate(messages):
            try:
                await self._put(message)
            except REFUSALS as error:
                refused[index] = error
            except self.transient as error:
                error.taken = min([index, *refused])    # type: ignore[attr-defined]
                raise
        return refused

    async def _put(self, message: Message) -> None:
        if self.at.name == "radio":
            await self.socket.asend(message.body, group=self.at["send"] or message.address)
        elif self.at.name == "pub" and (self.at["send"] or message.address):
            topic = (self.at["send"] or message.address).encode()
            await self.socket.asend_parts([topic, message.body])
        else:
            await self.socket.asend(message.body)


class ReqTarget(SocketSide, Target):
    """Requests; a reply confirms the message. A batch is under way together, so workers that share
    the requests may handle them in another order."""

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        answers = await asyncio.gather(
            *(self.socket.arequest(message.body) for message in messages), return_exceptions=True)
        refused: dict[int, Exception] = {}
        for index, answer in enumerate(answers):
            if isinstance(answer, REFUSALS):
                refused[index] = answer
            elif isinstance(answer, BaseException):
                raise answer
        return refused


class SocketBridge(Plugin):
    modes = ("connect", "bind")
    passes = True
    settings = (
        Setting("topic", "list", (), "sub: what to subscribe to; all, if left out"),
        Setting("group", "list", (), "dish: groups to join"),
        Setting("send", "text", "", "pub, radio: the topic or group; else the message's address"),
        Setting("linger", "float", 5.0, "seconds for unsent messages at the end"),
        Setting("resend", "float", 5.0, "req: seconds until an unanswered request is repeated"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.doc = f"a {name.upper()} socket of ours"
        self.form = f"{name}+bind:tcp://*:5555, {name}+connect:tcp://host:5555"

    def source(self, at: Address) -> Source:
        if self.name not in SOURCES:
            return super().source(at)
        return RepSource(at) if self.name == "rep" else SocketSource(at)

    def target(self, at: Address) -> Target:
        if self.name not in TARGETS:
            return super().target(at)
        return ReqTarget(at) if self.name == "req" else SocketTarget(at)


pull, sub, rep, dish, gather = map(SocketBridge, ("pull", "sub", "rep", "dish", "gather"))
push, pub, req, radio, scatter = map(SocketBridge, ("push", "pub", "req", "radio", "scatter"))
pair, bus = map(SocketBridge, ("pair", "bus"))
