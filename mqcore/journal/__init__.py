"""An append-only log of messages in files: written once, read by offset, by time, or as it grows.

    from mqcore import journal

    with journal.open("data", "a", topic="flights") as log:
        log.append(b"hello")
    with journal.open("data", topic="flights") as log:
        for records in log.batches():
            print(records.first, records.to_list())

README.md beside this file is the guide, FORMAT.md the bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, overload

from mqcore.errors import OptionError
from mqcore.journal.core import checksum
from mqcore.journal.errors import (
    JournalBusy,
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalNotFound,
    JournalRefused,
    JournalWriteError,
    OffsetGone,
    StampRefused,
)
from mqcore.journal.limits import Limits
from mqcore.journal.listing import PartitionInfo, list_partitions
from mqcore.journal.place import partition_folder, partitions
from mqcore.journal.reader import Reader
from mqcore.journal.records import Records
from mqcore.journal.recovery import Dropped, verify
from mqcore.journal.repair import Repaired, repair
from mqcore.journal.replay import replay
from mqcore.journal.stamp import (
    Sequences,
    partition_for,
    partition_of,
    read_key,
    read_stamp,
    stamp,
    stored_at,
)
from mqcore.journal.waiting import in_thread
from mqcore.journal.writer import Writer
from mqcore.journal.writers import Writers

if TYPE_CHECKING:
    from mqcore.journal.server import Server

__all__ = [
    "Dropped", "JournalBusy", "JournalClosed", "JournalCorrupt", "JournalError", "JournalFull",
    "JournalLocked", "JournalNotFound", "JournalRefused", "JournalWriteError", "Limits",
    "OffsetGone", "PartitionInfo", "Reader", "Records", "Repaired", "Sequences", "StampRefused",
    "Writer", "Writers", "aopen", "checksum",
    "list_partitions", "open", "partition_for", "partition_of", "partitions", "read_key",
    "read_stamp", "repair", "replay", "serve", "stamp", "stored_at", "verify",
]


@overload
def open(where: str | os.PathLike[str], mode: Literal["r"] = "r", *, topic: str = "default",
         partition: int = 0, verify: bool = True, durable: bool | None = None,
         **remote: Any) -> Reader: ...
@overload
def open(where: str | os.PathLike[str], mode: Literal["a"], *, topic: str = "default",
         partition: int = 0, fsync: Literal["always", "interval", "never"] = "interval",
         fsync_interval: float = 0.1, segment_bytes: int = 256 << 20,
         segment_age: float | None = None, block_bytes: int = 1 << 20,
         retain_bytes: int | None = None, retain_age: float | None = None,
         retain_for: tuple[str, ...] = (), stamps: bool = False, deduplicate: bool = False,
         max_producers: int = 100_000, begin: int = 0) -> Writer: ...
@overload
def open(where: str | os.PathLike[str], mode: Literal["a"], *, topic: str | None = None,
         partitions: int = 1, topic_from: Literal["first-part"] | None = None,
         max_topics: int = 100, fsync: Literal["always", "interval", "never"] = "interval",
         fsync_interval: float = 0.1, segment_bytes: int = 256 << 20,
         segment_age: float | None = None, block_bytes: int = 1 << 20,
         retain_bytes: int | None = None, retain_age: float | None = None,
         retain_for: tuple[str, ...] = (), stamps: bool = False, deduplicate: bool = False,
         max_producers: int = 100_000) -> Writers: ...
def open(where: str | os.PathLike[str], mode: str = "r", *, topic: str | None = None,
         partition: int | None = None, **options: Any) -> Reader | Writer | Writers:
    """One partition of a journal: to read ("r"), or to append, as its only writer ("a").

    fsync: "always": what is appended is durable when the call returns. "interval": it is durable
    within about fsync_interval seconds. "never": when the segment ends, at commit() and at close().
    segment_bytes, segment_age: when a new file is begun. block_bytes: messages gathered at most.
    retain_bytes, retain_age: old segments are removed beyond; retain_for: but none that these
    consumer groups have not read (alone: as soon as they have). stamps: see `stamp`.
    deduplicate: a stamped message that is stored already is not stored again, and counted; the last
    max_producers producers are remembered. README.md says what that takes of them.
    begin: the offset that a new journal begins at, for a mirror of one whose beginning is gone.
    partitions: how many there are, as one `Writers`; topic_from="first-part": those of whatever
    topics come, at most max_topics.
    verify: check every block before it is handed out. durable: read only what survives a power cut
    (None: what is written; mirrors, what is durable).

    where: a folder, or the address of a journal server ("tcp://host:port/topic", and any other of a
    socket, with topic=), which is read by the same calls: see `serve`. Its options are timeout=,
    window= and those of a socket.

    Raises JournalNotFound ("r"), JournalLocked, JournalCorrupt, OSError, OptionError.
    """
    if "://" in os.fspath(where):
        from mqcore.journal.remote import open_remote

        return open_remote(os.fspath(where), mode, topic, partition, options)
    if mode == "a" and not {"partitions", "topic_from", "max_topics"}.isdisjoint(options):
        return _writers(where, topic, partition, options)
    topic = "default" if topic is None else topic
    partition = 0 if partition is None else partition
    folder = partition_folder(where, topic, partition)
    if mode == "r":
        return Reader(folder, topic, partition, **options)
    if mode == "a":
        return Writer(folder, topic, partition, **options)
    raise OptionError(f"mode {mode!r}", hint='"r" reads, "a" appends')


async def aopen(where: str | os.PathLike[str], mode: str = "r", *, topic: str | None = None,
                partition: int | None = None, **options: Any) -> Any:
    """open(), awaitable, for asyncio and trio. The event loop goes on while a journal server
    answers, or a writer recovers its journal in a worker thread."""
    if "://" in os.fspath(where):
        from mqcore.journal.remote import aopen_remote

        return await aopen_remote(os.fspath(where), mode, topic, partition, options)
    return await in_thread(lambda: open(  # type: ignore[call-overload]
        where, mode, topic=topic, partition=partition, **options))


def _writers(where: str | os.PathLike[str], topic: str | None, partition: int | None,
             options: dict[str, Any]) -> Writers:
    first_part = options.get("topic_from") is not None
    if partition is not None:
        raise OptionError("partition= and partitions= (or topic_from=) exclude each other",
                          hint="`Writers` write all partitions; leave partition out")
    if first_part and topic is not None:
        raise OptionError("topic= and topic_from= exclude each other",
                          hint="with topic_from the message itself says its topic")
    return Writers(where, None if first_part else topic or "default", **options)


def serve(where: str | os.PathLike[str], bind: Any, *, groups: bool = False,
          insecure: bool = False, limits: Limits | None = None, **options: Any) -> Server:
    """Let other processes and machines read the journals of a folder, until stop().

    bind: one address or several. Addresses that other machines reach need keys (security=) or TLS;
    insecure=True serves them without. groups: readers may commit consumer groups, which retention
    obeys. limits: what the server refuses beyond. options: those of a socket.

    Raises FileNotFoundError, UsageError (an address is exposed), NotSupported (msgspec is missing).
    """
    from mqcore.journal.server import Server

    return Server(where, bind, groups=groups, insecure=insecure, limits=limits, **options)
