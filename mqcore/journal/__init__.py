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
from typing import Any, Literal, overload

from mqcore.errors import OptionError
from mqcore.journal.core import checksum
from mqcore.journal.errors import (
    JournalClosed,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalNotFound,
    JournalWriteError,
    OffsetGone,
)
from mqcore.journal.place import partition_folder, partitions
from mqcore.journal.reader import Reader
from mqcore.journal.records import Records
from mqcore.journal.recovery import Dropped, verify
from mqcore.journal.repair import Repaired, repair
from mqcore.journal.stamp import Sequences, partition_of, read_stamp, stamp
from mqcore.journal.writer import Writer

__all__ = [
    "Dropped", "JournalClosed", "JournalCorrupt", "JournalError", "JournalFull", "JournalLocked",
    "JournalNotFound", "JournalWriteError", "OffsetGone", "Reader", "Records", "Repaired",
    "Sequences", "Writer", "checksum", "open", "partition_of", "partitions", "read_stamp", "repair",
    "stamp", "verify",
]


@overload
def open(where: str | os.PathLike[str], mode: Literal["r"] = "r", *, topic: str = "default",
         partition: int = 0, verify: bool = True) -> Reader: ...
@overload
def open(where: str | os.PathLike[str], mode: Literal["a"], *, topic: str = "default",
         partition: int = 0, fsync: Literal["always", "interval", "never"] = "interval",
         fsync_interval: float = 0.1, segment_bytes: int = 256 << 20,
         segment_age: float | None = None, block_bytes: int = 1 << 20,
         retain_bytes: int | None = None, retain_age: float | None = None,
         retain_for: tuple[str, ...] = (), stamps: bool = False) -> Writer: ...
def open(where: str | os.PathLike[str], mode: str = "r", *, topic: str = "default",
         partition: int = 0, **options: Any) -> Reader | Writer:
    """One partition of a journal: to read ("r"), or to append, as its only writer ("a").

    fsync: "always": what is appended is durable when the call returns. "interval": it is durable
    within about fsync_interval seconds. "never": when the segment ends, at commit() and at close().
    segment_bytes, segment_age: when a new file is begun. block_bytes: messages gathered at most.
    retain_bytes, retain_age: old segments are removed beyond; retain_for: but none that these
    consumer groups have not read (alone: as soon as they have). stamps: see `stamp`.
    verify: check every block before it is handed out.

    Raises JournalNotFound ("r"), JournalLocked, JournalCorrupt, OSError, OptionError.
    """
    folder = partition_folder(where, topic, partition)
    if mode == "r":
        return Reader(folder, topic, partition, **options)
    if mode == "a":
        return Writer(folder, topic, partition, **options)
    raise OptionError(f"mode {mode!r}", hint='"r" reads, "a" appends')
