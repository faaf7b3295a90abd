"""HTTP as a side of a bridge: http://host/path, and https://.

A target POSTs each message; a status 2xx acknowledges it. A source reads Server-Sent Events, see
`server_sent.py`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from mqcore.bridge.address import Address
from mqcore.bridge.errors import BridgeLost
from mqcore.bridge.message import Message, text_of
from mqcore.bridge.spi import Plugin, Setting, Side, Source, Target, need
from mqcore.errors import UsageError

# 4xx that pass: wrong or expired credentials, time-outs, an earlier attempt that is still under way
# (409, of Idempotency-Key), locks, rates
PASSING = {401, 403, 407, 408, 409, 421, 423, 425, 429}
# headers of the connection, of the transfer, and credentials
RESERVED = {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade",
            "te", "trailer", "expect", "authorization", "cookie", "idempotency-key",
            "proxy-authorization", "proxy-connection"}
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
READ = 64 << 10         # bytes of an answer that are read, so the connection can be used again
SHOWN = 200
LONGEST_WAIT = 3600.0   # seconds of a Retry-After
NAP = 20.0              # seconds that open() waits at a time
BUDGET = 5.0            # seconds of one send(): less than the bridge's confirm_timeout
MOST = 100              # messages for each lane in one send()


class HttpSide(Side):
    def __init__(self, at: Address) -> None:
        if not urlsplit(at.url).hostname:
            raise UsageError(f"{at.shown} names no host", hint="write http://host/path")
        self.at = at
        self.aiohttp = need("aiohttp", "webhook")
        self.transient: tuple[type[BaseException], ...] = (OSError, self.aiohttp.ClientError)
        self.session: Any = None
        self.answer: Any = None         # an event stream that is open

    def headers(self) -> dict[str, str]:
        found = {"User-Agent": "mqcore-bridge"}
        if self.at["bearer"]:
            found["Authorization"] = f"Bearer {self.at['bearer']}"
        for text in self.at["header"]:
            name, colon, value = text.partition(":")
            if not colon or not TOKEN.fullmatch(name) or not value.isprintable():
                raise UsageError(f"header={name!r}... is no header", hint="write header=NAME:VALUE")
            found[name] = value.strip()
        return found

    def connect(self, limit: int, **timeouts: Any) -> None:
        """Make the session. It keeps no cookies, follows no redirection, and uses no proxy."""
        self.session = self.aiohttp.ClientSession(
            connector=self.aiohttp.TCPConnector(limit=limit), auto_decompress=False,
            cookie_jar=self.aiohttp.DummyCookieJar(), headers=self.headers(),
            timeout=self.aiohttp.ClientTimeout(**timeouts))

    async def close(self) -> None:
        session, self.session = self.session, None
        if self.answer is not None:
            self.answer.close()
            self.answer = None
        if session is not None:
            await session.close()

    def connected(self) -> Any:
        if self.session is None:
            raise ConnectionError("the HTTP session is closed")
        return self.session

    @property
    def shown(self) -> str:
        """Without the query, which may hold secrets."""
        return self.at.shown.partition("?")[0]

    def place(self) -> tuple[object, ...]:
        parts = urlsplit(self.at.url)
        return "http", parts.hostname, parts.port, parts.path, parts.query


class WebhookTarget(HttpSide, Target):
    """`had`: ids of messages that were acknowledged behind one that was not."""

    def __init__(self, at: Address) -> None:
        super().__init__(at)
        self.headers()          # mistakes in it are found here
        self.at_once: int = at["lanes"]        # as many as the server takes in half of BUDGET
        self.had: set[str | None] = set()
        self.trouble = ""
        self.not_before = 0.0

    async def open(self) -> None:
        await self.close()
        left = self.not_before - time.monotonic()
        if left > 0:            # Retry-After
            await asyncio.sleep(min(left, NAP))
            if left > NAP:
                raise BridgeLost(f"{self.shown} has asked to wait {left:.0f} s")
        self.connect(self.at["lanes"], total=self.at["timeout"])

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        """Messages of one key are in one lane, so they stay in order."""
        self.connected()
        refused: dict[int, Exception] = {}
        lost: dict[int, BaseException] = {}
        passing: tuple[type[BaseException], ...] = (BridgeLost, *self.transient)
        lanes: list[list[int]] = [[] for _ in range(self.at["lanes"])]
        for index, message in enumerate(messages):
            number = index if message.key is None else hash(message.key)
            lanes[number % len(lanes)].append(index)
        done: set[int] = set()
        began = time.monotonic()

        async def run(lane: list[int]) -> None:
            for index in lane:
                try:
                    if time.monotonic() - began > BUDGET:
                        raise BridgeLost(f"{self.shown} has become slow")
                    if messages[index].id not in self.had:
                        await self.post(messages[index])
                except ValueError as error:
                    refused[index] = error
                except passing as error:
                    lost[index] = error
                    return
                else:
                    done.add(index)
        if len(lanes) == 1:
            await run(lanes[0])
        else:
            await asyncio.gather(*(run(lane) for lane in lanes if lane))
        each = (time.monotonic() - began) / len(messages)
        self.at_once = max(1, min(MOST * len(lanes), int(BUDGET / 2 / max(each, 1e-6))))
        if not lost:
            self.had.difference_update(message.id for message in messages)
            return refused
        self.had.update(message.id for index in done if (message := messages[index]).id is not None)
        first = min(lost)
        error = BridgeLost(f"{self.shown}: {lost[first]!r}" if not isinstance(
            lost[first], BridgeLost) else str(lost[first]))
        error.taken = next(index for index in range(len(messages))  # type: ignore[attr-defined]
                           if index not in done)
        self.trouble = str(error)
        raise error

    async def post(self, message: Message) -> None:
        """ValueError: it is refused for good. BridgeLost: later, perhaps."""
        headers = self.prepared(message)
        async with self.connected().request(
                self.at["method"], self.at.url, data=message.body, headers=headers,
                allow_redirects=False) as answer:
            text = (await answer.content.read(READ)).decode(errors="replace")[:SHOWN]
            status = answer.status
            if 200 <= status < 300:
                return
            what = f"{self.shown} answers {status} {answer.reason or ''}: {' '.join(text.split())}"
            if status in PASSING or status >= 500:
                self.wait(answer.headers.get("Retry-After", ""))
            elif status >= 400:
                raise ValueError(what)
            elif status >= 300:
                what += f"it redirects to {answer.headers.get('Location', 'nowhere')[:SHOWN]}; " \
                    "give the bridge that address"
            raise BridgeLost(what)

    def wait(self, told: str) -> None:
        """Retry-After: seconds, or a date."""
        try:
            seconds = float(told) if told.isdecimal() else \
                parsedate_to_datetime(told).timestamp() - time.time() if told else 0.0
        except (ValueError, OverflowError):
            seconds = 0.0
        until = time.monotonic() + min(max(0.0, seconds), LONGEST_WAIT)
        self.not_before = max(self.not_before, until)

    def prepared(self, message: Message) -> dict[str, str]:
        """ValueError, if HTTP cannot carry them."""
        headers = {"Content-Type": self.at["type"]}
        for name, value in message.headers:
            if not TOKEN.fullmatch(name) or name.lower() in RESERVED:
                raise ValueError(f"HTTP cannot carry the header {name[:40]!r}; rename or remove it "
                                 "with headers=")
            if name.lower() == "content-type":
                name = "Content-Type"
            headers[name] = text_of(value)
        if message.id is not None:
            headers["Idempotency-Key"] = text_of(message.id.encode())
        return headers

    def explain(self) -> str:
        return f"webhook {self.shown}" + (f", last trouble: {self.trouble}" if self.trouble else "")


class Http(Plugin):
    doc = "HTTP: a webhook as a target, Server-Sent Events as a source"
    passes = True           # the rest of the query is the server's
    settings = (
        Setting("lanes", "int", 1, "target: requests under way at most; messages of one key stay "
                "in order"),
        Setting("method", "text", "POST", "target: or PUT"),
        Setting("type", "text", "application/octet-stream", "target: the Content-Type of messages "
                "without that header"),
        Setting("timeout", "float", 20.0, "target: seconds for an answer"),
        Setting("state", "text", "", "source: the file that keeps the id of the last event that "
                "the target has"),
        Setting("form", "text", "raw", "source: raw, or mqcore for envelopes of `mq http`"),
        Setting("idle", "float", 60.0, "source: seconds of silence until the connection counts as "
                "lost"),
        Setting("max_bytes", "int", 16 << 20, "source: the largest event"),
        Setting("bearer", "text", "", "the token of the header Authorization"),
        Setting("header", "list", (), "NAME:VALUE, another header"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form = f"{name}://host/path"

    def _whole(self, at: Address) -> Address:
        if at["lanes"] < 1 or at["lanes"] > 1000 or not at["timeout"] > 0 or not at["idle"] > 0 \
                or at["max_bytes"] < 1:
            raise UsageError(f"lanes={at['lanes']}, timeout={at['timeout']}, idle={at['idle']}, "
                             f"max_bytes={at['max_bytes']}: they are above 0, lanes up to 1000")
        if at["method"] not in ("POST", "PUT") or at["form"] not in ("raw", "mqcore"):
            raise UsageError(f"method={at['method']} is POST or PUT, form={at['form']} raw or "
                             "mqcore")
        return replace(at, url=f"{self.name}:{at.url}")

    def source(self, at: Address) -> Source:
        from mqcore.bridge.server_sent import EventSource
        return EventSource(self._whole(at))

    def target(self, at: Address) -> Target:
        return WebhookTarget(self._whole(at))


plugin = Http("http")
secure = Http("https")
