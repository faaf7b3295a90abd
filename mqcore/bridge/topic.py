"""Journal topics as sides of a bridge: journal:FOLDER?topic=NAME, or journal:tcp://host:5558?...

A source commits the offset of a consumer group after the target has the messages. A target appends
to a folder and commits; with deduplicate=true it stores a stamped message once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

import mqcore as mq
from mqcore import _unknown as unknown
from mqcore import journal
from mqcore.bridge.address import Address
from mqcore.bridge.message import TOMBSTONE, Message
from mqcore.bridge.spi import Plugin, Setting, Source, Target
from mqcore.journal.records import single
from mqcore.journal.store.core import checksum


class TopicSource(Source):
    keyed = True
    transient = (OSError, mq.Timeout, journal.JournalBusy, journal.JournalNotFound)

    def __init__(self, at: Address) -> None:
        at.want("group")
        self.at = at
        self.reader: Any = None
        self.records: Any = None
        self.stream: Any = None
        self.name = f"{at.url} {at['topic']} {at['partition']}"
        self.producer = checksum(self.name.encode()) + 1

    async def open(self) -> None:
        self.reader = await journal.aopen(self.at.url, topic=self.at["topic"],
                                          partition=self.at["partition"])
        start = await self.reader.acommitted_offset(self.at["group"])
        self.records = None
        self.stream = self.reader.afollow(await self.reader.afirst() if start is None else start,
                                          max_bytes=1 << 20, durable=True)
        self.pending: asyncio.Future[Any] | None = None

    async def close(self) -> None:
        pending, self.pending = getattr(self, "pending", None), None
        if pending is not None:
            pending.cancel()
            await asyncio.wait([pending])
        reader, self.reader, self.records = self.reader, None, None
        if reader is not None:
            await reader.aclose()

    async def receive(self, most: int) -> list[Message]:
        if self.records is None:
            if self.pending is None:
                self.pending = asyncio.ensure_future(anext(self.stream))
            pending = self.pending
            await asyncio.wait([pending])       # goes on if this call is cancelled
            if self.pending is not pending:     # close() came: an acknowledgment has failed, say
                raise ConnectionError("the journal was closed")
            self.pending = None
            self.records = pending.result()
        records = self.records
        some = records.slice(0, most)
        self.records = records.slice(len(some)) if len(some) < len(records) else None
        times, offsets = some.times.tolist(), some._all_offsets().tolist()
        return [Message(body or b"", some.key(i), _headers(some, i), self.at["topic"],
                        id=f"{self.name} {at}", stamp=(self.producer, at), time=times[i],
                        token=at + 1)
                for i, (body, at) in enumerate(zip(some.to_list(), offsets, strict=True))]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        if self.reader is None:
            raise ConnectionError("the journal is not open")
        await self.reader.acommit_offset(self.at["group"], messages[-1].token)

    def explain(self) -> str:
        return f"journal {self.name}, group {self.at['group']}"

    def place(self) -> tuple[object, ...]:
        return _place(self.at)


class TopicTarget(Target):
    keyed = True
    transient = (journal.JournalLocked, journal.JournalFull, journal.JournalWriteError,
                 journal.JournalClosed, OSError)

    def __init__(self, at: Address) -> None:
        if "://" in at.url:
            raise mq.AddressError(f"{at.url} is a journal server, which only reads", position=0,
                                  hint="write to its folder, or to a `mq journal record DIR rep` "
                                       "with req+connect:URL")
        self.at = at
        self.deduplicates = at["deduplicate"]
        self.writer: Any = None

    async def open(self) -> None:
        how = {"stamps": True, "deduplicate": True} if self.deduplicates else {}
        self.writer = await journal.aopen(self.at.url, "a", topic=self.at["topic"],
                                          partition=self.at["partition"], fsync="never", **how)

    async def close(self) -> None:
        writer, self.writer = self.writer, None
        if writer is not None:
            await writer.aclose()

    async def send(self, messages: Sequence[Message]) -> dict[int, Exception]:
        refused: dict[int, Exception] = {}
        for index, message in enumerate(messages):
            try:
                self._append(message)
            except (journal.JournalRefused, ValueError, TypeError) as error:
                refused[index] = error
        await self.writer.acommit()
        return refused

    def _append(self, message: Message) -> None:
        body, key = message.body, message.key
        stamp = message.stamp if self.deduplicates else None
        headers = [row for row in message.headers if row[0] != TOMBSTONE]
        gone = len(headers) < len(message.headers) and not body and key is not None
        value, headers = (None, headers) if gone else (body, message.headers)
        if stamp is None:
            self.writer.append(value, key=key, headers=headers or None)
        elif value is None or key == b"":       # a stamp has no word for these
            self.writer.append_records(single(value, key, headers, stamp, time.time()))
        else:
            self.writer.append(journal.stamp(*stamp, key=key or b"") + value,
                               headers=headers or None)

    def explain(self) -> str:
        return f"journal {self.at.url} {self.at['topic']} {self.at['partition']}"

    def place(self) -> tuple[object, ...]:
        return _place(self.at)


def _headers(records: Any, i: int) -> list[tuple[str, bytes]]:
    """A tombstone has the header that stands for it in a bridge."""
    found: list[tuple[str, bytes]] = records.headers(i)
    return [*found, (TOMBSTONE, b"1")] if records[i] is None else found


def _place(at: Address) -> tuple[object, ...]:
    where = at.url if "://" in at.url else os.path.realpath(at.url)
    return "journal", where, at["topic"], at["partition"]


class Topic(Plugin):
    name = "journal"
    doc = "a topic of a journal"
    form = "journal:FOLDER?topic=NAME, journal:tcp://host:5558?topic=NAME"
    passes = True
    settings = (
        Setting("topic", "text", "default", "the topic"),
        Setting("partition", "int", 0, "its partition"),
        Setting("group", "text", "", "source: the consumer group that remembers the offset"),
        Setting("deduplicate", "bool", False, "target: store a message that comes again once"),
    )

    def source(self, at: Address) -> Source:
        return TopicSource(self._checked(at))

    def target(self, at: Address) -> Target:
        return TopicTarget(self._checked(at))

    def _checked(self, at: Address) -> Address:
        """OptionError for settings of a transport where there is none."""
        folder, question, others = at.url.partition("?")
        if question and "://" not in folder:
            name = others.partition("=")[0]
            raise mq.OptionError(f"journal: has no setting {name!r}", hint=unknown.nearest(
                name, tuple(row.name for row in self.settings)))
        return at


plugin = Topic()
