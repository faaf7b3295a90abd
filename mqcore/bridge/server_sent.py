"""Server-Sent Events as a source of a bridge. Acknowledging an event means that its id is in the
file `state`; a bridge that begins asks the server for what follows it (Last-Event-ID).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqcore.bridge.address import Address
from mqcore.bridge.message import Message
from mqcore.bridge.spi import Source, need
from mqcore.bridge.webhook import HttpSide
from mqcore.errors import UsageError

EVENTS = "text/event-stream"
CONNECTING = 10.0
DENIED = (401, 403, 407)
LOST, END = "lost", "end"       # events of `mq http`
LAST = "Last-Event-ID"


@dataclass(slots=True)
class Event:
    data: bytes
    kind: str           # of the field `event`
    last: str           # the last event id, of this event or an earlier one
    own: bool           # it is of this one


class Parser:
    """Bytes in, events out: the event stream of the HTML standard, with a bound."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rest = b""
        self.last = ""
        self.begin = True
        self._new()

    def _new(self) -> None:
        self.data: list[bytes] = []
        self.size = 0
        self.kind, self.own = "", False

    def feed(self, chunk: bytes) -> list[Event]:
        """ConnectionError, if an event is too large."""
        found = []
        text = self.rest + chunk
        if self.begin and len(text) >= 3:
            text = text.removeprefix(b"\xef\xbb\xbf")
            self.begin = False
        # a CR at the end may be half a line's end
        lines = text.replace(b"\r\n", b"\n") if not text.endswith(b"\r") else \
            text[:-1].replace(b"\r\n", b"\n") + b"\r"
        *whole, self.rest = _split(lines)
        for line in whole:
            if line:
                self._field(line)
            elif self.data:
                found.append(Event(b"\n".join(self.data), self.kind, self.last, self.own))
                self._new()
            else:
                self.kind, self.own = "", False
        if self.size + len(self.rest) > self.most:
            raise ConnectionError(f"an event of more than {self.most} bytes; max_bytes allows more")
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self.data.append(value)
            self.size += len(value)
        elif name == b"event":
            self.kind = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self.last, self.own = value.decode(errors="replace"), True


def _split(text: bytes) -> list[bytes]:
    """Lines that end with LF or CR. The last one has not ended yet."""
    if b"\r" not in text:
        return text.split(b"\n")
    rest = b"\r" if text.endswith(b"\r") else b""
    lines = text.removesuffix(b"\r").replace(b"\r", b"\n").split(b"\n")
    lines[-1] += rest
    return lines


class EventSource(HttpSide, Source):
    """`last`: the id behind which the next connection goes on: that of the last event received. The
    bridge holds what the target does not have yet. `kept`: the id in the file."""

    def __init__(self, at: Address) -> None:
        super().__init__(at)
        self.headers()
        self.acknowledges = bool(at["state"])       # type: ignore[misc]
        self.file = Path(at["state"]) if at["state"] else None
        self.envelopes: Any = None
        if at["form"] == "mqcore":
            self.envelopes = _decoder()
        self.last: str | None = None
        self.missed = 0

    async def open(self) -> None:
        await self.close()
        if self.last is None:
            self.last = await asyncio.to_thread(self._stored)
        self.waiting: deque[Message] = deque()
        self.parser = Parser(self.at["max_bytes"])
        self.parser.last, self.newest = self.last, ""
        self.connect(1, total=None, connect=CONNECTING, sock_read=self.at["idle"])
        headers = {"Accept": EVENTS, "Cache-Control": "no-store", "Accept-Encoding": "identity"}
        if self.last:
            headers[LAST] = self.last
        self.answer = await self.session.get(self.at.url, headers=headers, allow_redirects=False)
        status, kind = self.answer.status, self.answer.content_type
        if status in DENIED:
            raise UsageError(f"{self.shown} refuses this client: it answers {status}",
                             hint="bearer= has its token")
        if status != 200 or kind != EVENTS:
            raise ConnectionError(f"{self.shown} answers {status} with {kind}, no event stream")

    def _stored(self) -> str:
        try:
            return self.file.read_text() if self.file is not None else ""
        except FileNotFoundError:
            return ""

    async def receive(self, most: int) -> list[Message]:
        while not self.waiting:
            self.connected()
            chunk = await self.answer.content.readany()
            if not chunk:
                raise ConnectionError(f"{self.shown} has ended the event stream")
            self.waiting.extend(filter(None, map(self.message, self.parser.feed(chunk))))
        some = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        self.last = some[-1].token
        return some

    def message(self, event: Event) -> Message | None:
        unique = event.own and event.last not in ("", self.newest)
        self.newest = event.last
        found = Message(event.data, address=event.kind, token=event.last,
                        id=f"{self.shown} {event.last}" if unique else None)
        if self.envelopes is not None:
            if event.kind in (LOST, END):
                self.missed += event.kind == LOST
                return None
            self._open_up(found)
        elif event.kind:
            found.headers.append(("sse-event", event.kind.encode()))
        return found

    def _open_up(self, message: Message) -> None:
        try:
            told = self.envelopes(message.body)
        except ValueError as error:         # msgspec's
            message.fault = f"the event is no envelope of mq http: {error}"
            return
        message.body = told.text.encode() if told.text is not None else told.base64 or b""
        message.address = told.topic or ""
        message.key = told.key.encode() if told.key is not None else None
        message.headers = [(name, value.encode()) for name, value in told.headers.items()]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        if self.file is not None:
            await asyncio.to_thread(_replaced, self.file, messages[-1].token)

    def explain(self) -> str:
        return f"events of {self.shown}" + (
            f", {self.missed} gaps: the server had dropped events" if self.missed else "")


def _replaced(path: Path, text: str) -> None:
    """In a thread: the file has the old text or the new one, whatever dies."""
    fresh = path.with_name(f"{path.name}.new")
    with open(fresh, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _decoder() -> Any:
    msgspec = need("msgspec", "webhook")

    class Envelope(msgspec.Struct):         # type: ignore[name-defined, misc]
        text: str | None = None
        base64: bytes | None = None
        topic: str | None = None
        key: str | None = None
        headers: dict[str, str] = {}

    return msgspec.json.Decoder(Envelope).decode
