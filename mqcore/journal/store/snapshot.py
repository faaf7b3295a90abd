"""The file `producers`: who has stored what, as of an offset, so that a writer opened with
deduplicate=True need not read the stamps of its whole journal. FORMAT.md has the bytes.

It is written after a rotation and at a clean close, once everything below its offset is durable;
messages behind that are read from the segments. Without the file, or with one that does not fit,
all segments are read, which only takes longer.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import replace, segments
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.scan import FAULTS
from mqcore.journal.store.segment import Segment

NAME = "producers"
_HEAD = struct.Struct("<8sII16sqq")
MAGIC, VERSION = b"MQPROD\r\n", 2
SHORT = next(number for number, words in FAULTS.items() if words.startswith("the file ends"))


def save(folder: Path, journal: bytes, offset: int, rows: bytes) -> None:
    """Durable on return, and never half. All below offset must be durable."""
    rest = journal + struct.pack("<qq", offset, len(rows)) + rows
    replace(folder / NAME, MAGIC + struct.pack("<II", VERSION, checksum(rest)) + rest)


def forget(folder: Path) -> None:
    """What is stored has changed otherwise than by appending."""
    (folder / NAME).unlink(missing_ok=True)


def recall(folder: Path, journal: bytes, end: int, into: ProducerTable) -> int:
    """Learn the producers of all messages of a recovered journal; the offset that the file was good
    for. With the writer's lock. JournalCorrupt: a segment that must be read is damaged."""
    for half in folder.glob(f".{NAME}.*"):      # of a writer that was killed meanwhile
        half.unlink()
    at, rows = _load(folder, journal)
    if at > end:
        at, rows = 0, b""       # the disk has lost what it had called durable
    into.load(rows)
    firsts = segments(folder)
    for first, following in zip(firsts, [*firsts[1:], end], strict=True):
        if following > at:
            _learn(folder, first, into)
    return at


def _load(folder: Path, journal: bytes) -> tuple[int, bytes]:
    try:
        raw = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return 0, b""
    if len(raw) < _HEAD.size:
        return 0, b""
    magic, version, crc, whose, offset, size = _HEAD.unpack_from(raw)
    rows = raw[_HEAD.size:]
    if (magic, version, whose) != (MAGIC, VERSION, journal) or crc != checksum(raw[16:]) \
            or size != len(rows):
        return 0, b""
    return offset, rows


def _learn(folder: Path, first: int, into: ProducerTable) -> None:
    segment = Segment(folder, first)
    try:
        size = os.fstat(segment.fd).st_size
        walk = segment.scan(size, verify=True, into=into)
        if walk.why != SHORT or walk.pos != size:
            raise segment.corrupt(walk.pos, walk.next, walk.why,
                                  "deduplicate=True must know what it holds")
    finally:
        segment.close()
