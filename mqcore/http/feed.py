"""Messages that any number of clients read at their own pace: a ring in memory, or a journal topic.

Each client has a position, not a queue, so a slow client costs nothing. A client that falls behind
the oldest message that is held goes on with that one, and learns how many it has lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import Any, NamedTuple, Protocol

from mqcore import journal
from mqcore.http import envelope
from mqcore.http.problem import Problem

OVERHEAD = 400      # bytes of a message's objects, about
MOST_BYTES = 256 << 10      # read from a journal at a time


class Item(NamedTuple):
    id: str
    body: bytes
    json: bytes


class Feed(Protocol):
    """Positions are numbers. `name` makes an id of one, `position` reads it."""

    first_default: bool     #: without ?from=, a client starts at the oldest message

    def name(self, position: int) -> str: ...
    def position(self, text: str) -> tuple[int, int]: ...
    def first(self) -> int: ...
    def end(self) -> int: ...
    def read(self, position: int, most: int) -> tuple[list[Item], int, int]: ...
    async def changed(self, position: int) -> None: ...


def bad_position(text: str) -> Problem:
    return Problem(400, "position", f"{text[:80]!r} is no position of this route",
                   "use first, end, or the `next` or `id` of an earlier answer")


def number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_position(text)
    return int(text)


class Bell:
    """Wakes everybody who waits."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def ring(self) -> None:
        self.event.set()
        self.event = asyncio.Event()


class Ring:
    """The newest messages of a socket, in memory. Ids name this ring's life, so that a client that
    resumes after a restart of the gateway is not given wrong messages."""

    first_default = False

    def __init__(self, most: int, most_bytes: int) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.life = secrets.token_hex(4)
        self.items: deque[Item] = deque()
        self.next, self.bytes = 0, 0
        self.bell = Bell()

    def put(self, body: bytes, topic: str = "") -> None:
        id = self.name(self.next)
        item = Item(id, body, envelope.encode(body, id, topic=topic))
        self.items.append(item)
        self.next += 1
        self.bytes += self._size(item)
        while len(self.items) > self.most or self.bytes > self.most_bytes and len(self.items) > 1:
            self.bytes -= self._size(self.items.popleft())
        self.bell.ring()

    @staticmethod
    def _size(item: Item) -> int:
        return len(item.body) + len(item.json) + OVERHEAD

    def name(self, position: int) -> str:
        return f"{self.life}-{position}"

    def position(self, text: str) -> tuple[int, int]:
        """(position, lost). From an earlier life: the oldest message, and the number that was lost
        is not known; -1 stands for it."""
        life, dash, rest = text.partition("-")
        if not dash:
            raise bad_position(text)
        found = number(rest)
        if life != self.life:
            return self.first(), -1
        if found > self.next:
            raise bad_position(text)
        return found, 0

    def first(self) -> int:
        return self.next - len(self.items)

    def end(self) -> int:
        return self.next

    def read(self, position: int, most: int) -> tuple[list[Item], int, int]:
        """(messages, the position after them, how many were lost before them)"""
        first = self.first()
        lost = max(0, first - position)
        at = position + lost - first
        stop = min(len(self.items), at + most)
        return [self.items[n] for n in range(at, stop)], first + stop, lost

    async def changed(self, position: int) -> None:
        """Return when there is something after this position."""
        while self.next <= position:
            await self.bell.event.wait()


class Topic:
    """The messages of a journal topic that survive a power cut. Ids are offsets."""

    first_default = True

    def __init__(self, reader: journal.Reader) -> None:
        self.reader = reader
        self.bell = Bell()

    async def watch(self) -> None:
        """Rings when the topic grows, until it is cancelled."""
        self.bell.ring()        # it may have grown before
        async for _ in self.reader.afollow(self.reader.durable, max_bytes=MOST_BYTES,
                                            durable=True):
            self.bell.ring()

    def name(self, position: int) -> str:
        return str(position)

    def position(self, text: str) -> tuple[int, int]:
        return self._known(number(text)), 0

    def _known(self, position: int) -> int:
        if position > self.reader.durable:
            raise Problem(400, "position", f"offset {position} is beyond the end of the topic, "
                          f"{self.reader.durable}", "use from=end for new messages only")
        return position

    def first(self) -> int:
        return self.reader.first

    def end(self) -> int:
        return self.reader.durable

    def read(self, position: int, most: int) -> tuple[list[Item], int, int]:
        lost = max(0, self.reader.first - position)
        position = self._known(position + lost)
        found: list[Item] = []
        try:
            records = self.reader.read(position, max_bytes=MOST_BYTES, durable=True).slice(0, most)
        except journal.OffsetGone:      # retention was faster
            return [], self.reader.first, lost + max(0, self.reader.first - position)
        times = records.times.tolist()
        for index, body in enumerate(records.to_list()):
            id = str(records.offset(index))
            more: dict[str, Any] = {"time": times[index]}
            key = records.key(index)
            if key is not None:
                more["key"] = key.decode(errors="backslashreplace")
            more["headers"] = {name: value.decode(errors="backslashreplace")
                               for name, value in records.headers(index)}
            found.append(Item(id, body or b"", envelope.encode(body, id, **more)))
        return found, records.next, lost

    async def changed(self, position: int) -> None:
        while True:
            event = self.bell.event
            if self.reader.durable > position:
                return
            await event.wait()
