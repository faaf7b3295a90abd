"""The file `producers`: who has stored what, as of an offset, so that a writer opened with
deduplicate=True need not read the stamps of its whole journal. FORMAT.md has the bytes.

It is written after a rotation and at a clean close, once everything below its offset is durable;
messages behind that are read from the segments. Without the file, or with one that does not fit, of
which the log warns, all segments are read. That takes longer, and what retention has removed is not
known any more.
"""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import at_once, read_regular, replace, segments
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.scan import FAULTS
from mqcore.journal.store.segment import Segment

_log = logging.getLogger("mqcore.journal")
NAME = "producers"
_HEAD = struct.Struct("<8sII16sqq")
MAGIC, VERSION = b"MQPROD\r\n", 3
LIFELESS = 2            # the version before, whose rows have no lives
SHORT = next(number for number, words in FAULTS.items() if words.startswith("the file ends"))


class Version(NamedTuple):
    """Which file it is: another one differs in this."""

    offset: int
    size: int
    crc: int


NOTHING = Version(0, 0, 0)


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
    at, rows, why, lives = load(folder, journal)
    if at > end:                # the disk has lost what it had called durable
        at, rows, why = 0, b"", f"tells of {at} messages, of which there are {end}"
    if why:
        _log.warning("%s %s. The stamps of all messages are read instead: a message that is sent "
                     "again is recognized only while the journal still has it", folder / NAME, why)
    into.load(rows, lives=lives)
    firsts = segments(folder)
    for first, following in zip(firsts, [*firsts[1:], end], strict=True):
        if following > at:
            _learn(folder, first, into)
    return at


def covered(folder: Path, journal: bytes) -> int:
    """The offset below which a writer that deduplicates needs no stamps of the segments. The file
    may not be durable yet: sync the folder."""
    return load(folder, journal)[0]


def piece(folder: Path, journal: bytes, at: int, most: int) -> tuple[Version, bytes]:
    """Bytes of the file from `at` on. NOTHING: there is none, or another journal's. It is not
    checked: who puts the pieces together calls parsed()."""
    try:
        with open(folder / NAME, "rb", opener=at_once, buffering=0) as file:
            facts, raw = os.fstat(file.fileno()), file.read(_HEAD.size) or b""
            if S_ISREG(facts.st_mode) and len(raw) == _HEAD.size:
                magic, _, crc, whose, offset, size = _HEAD.unpack(raw)
                if (magic, whose, size + _HEAD.size) == (MAGIC, journal, facts.st_size):
                    return Version(offset, facts.st_size, crc), os.pread(file.fileno(), most, at)
    except (FileNotFoundError, IsADirectoryError):
        pass
    return NOTHING, b""


def load(folder: Path, journal: bytes) -> tuple[int, bytes, str, bool]:
    """Offset, rows, why the file is not believed, and whether rows have lives."""
    try:
        raw = read_regular(folder / NAME)
    except FileNotFoundError:
        return 0, b"", "", True
    if raw is None:
        return 0, b"", "is not a regular file", True
    return parsed(raw, journal)


def parsed(raw: bytes, journal: bytes | None) -> tuple[int, bytes, str, bool]:
    """load() of a file with these bytes. journal: None if it may be any."""
    if len(raw) < _HEAD.size:
        return 0, b"", f"has {len(raw)} bytes, fewer than its head", True
    magic, version, crc, whose, offset, size = _HEAD.unpack_from(raw)
    rows = raw[_HEAD.size:]
    if magic != MAGIC or version not in (LIFELESS, VERSION):
        return 0, b"", "is of another kind or version", True
    if crc != checksum(raw[16:]) or size != len(rows):
        return 0, b"", "does not match its CRC", True
    if journal not in (None, whose):
        return 0, b"", "is another journal's", True
    return offset, rows, "", version == VERSION


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
