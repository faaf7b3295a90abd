"""The file `producers`: who has stored what, as of an offset, so that a writer opened with
deduplicate=True need not read the stamps of its whole journal. FORMAT.md has the bytes.

It is written after a rotation and at a clean close, once everything below its offset is durable;
messages behind that are read from the segments. A writer without deduplicate=True writes it before
it removes messages with stamps. After a repair it has lives alone. Without the file, or with one
that does not fit, of which the log warns, all segments are read. That takes longer, and what
retention has removed is not known any more.
"""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import at_once, read_regular, replace, segments
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.scan import FAULTS
from mqcore.journal.store.segment import Segment, journal_id

_log = logging.getLogger("mqcore.journal")
NAME = "producers"
_HEAD = struct.Struct("<8sII16sqq")
MAGIC, VERSION = b"MQPROD\r\n", 3
LIFELESS = 2            # the version before, whose rows have no lives
HEAD = _HEAD.size
EVERY = (1 << 63) - 1   # an offset behind all messages
MOST_PRODUCERS, MOST_BYTES = 1 << 24, 1 << 40       # the limits of a writer's options
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
    replace(folder / NAME, MAGIC + struct.pack("<II", VERSION, _crc(VERSION, rest)) + rest)


def _crc(version: int, rest: bytes) -> int:
    """From version 3 on it covers the version, which says how rows are read."""
    return checksum(rest, 0 if version == LIFELESS else checksum(struct.pack("<I", version)))


def forget_numbers(folder: Path, journal: bytes) -> int:
    """What is stored has changed otherwise than by appending, and what is lost may be sent again.
    Which producers were replaced stays known; how many have a life. journal: b"" for unknown."""
    table = ProducerTable(MOST_PRODUCERS, MOST_BYTES)
    why = load(folder, journal, table)[1]
    if why:
        _warn(folder, why)
    lives = table.forget_numbers()
    if lives:
        save(folder, journal, 0, table.dump())
    else:
        (folder / NAME).unlink(missing_ok=True)     # the caller syncs the folder
    return lives


def sweep_halves(folder: Path) -> None:
    """Of writers that were killed while they saved. With the writer's lock."""
    for half in folder.glob(f".{NAME}.*"):
        half.unlink()


def recall(folder: Path, journal: bytes, end: int, into: ProducerTable) -> int:
    """Learn the producers of all messages of a recovered journal; the offset that the file was good
    for. With the writer's lock. JournalCorrupt: a segment that must be read is damaged."""
    at, why = load(folder, journal, into, end)
    firsts = segments(folder)
    lost = not at and not (folder / NAME).exists()
    if lost and firsts[0] > _begin(folder, firsts[0]):
        why = f"is missing, and the messages below {firsts[0]} were removed"
    if why:
        _warn(folder, why)
    for first, following in zip(firsts, [*firsts[1:], end], strict=True):
        if following > at:
            _learn(folder, first, into)
    if lost and not why and into.compacted:
        _warn(folder, "is missing, and compaction has removed messages")
    return at


def kept(folder: Path, journal: bytes, end: int, of: int, most: int,
         most_bytes: int) -> bytes | None:
    """The segments below `end` are about to go: the rows to save() first, as of `end`. None: their
    stamps tell nothing that is not in the file. Reads no other segments, and of these only blocks
    with stamps. of: the next offset of the journal; most, most_bytes: limits of what is kept,
    unless the file has more. With the writer's lock."""
    table = ProducerTable(MOST_PRODUCERS, MOST_BYTES)
    at, why = load(folder, journal, table, of)
    if at >= end:
        return None
    table.bound_to(most, most_bytes)
    firsts = segments(folder)
    for first, following in zip(firsts, firsts[1:], strict=False):
        if at < following <= end:
            try:
                _learn(folder, first, table, verify=False)
            except JournalCorrupt as error:
                _log.warning("%s; it is removed, and the producers of the messages behind that are "
                             "not remembered", error)
    if not table.learned:
        return None
    if why:
        _warn(folder, why)
    return table.dump()


def merged(folder: Path, journal: bytes, offset: int, rows: bytes, most: int,
           most_bytes: int) -> tuple[int, bytes]:
    """Offset and rows of the file, put together with those of the journal that this one copies. Of
    all messages of this journal below an offset, one of the tables tells whose offset is as high or
    higher. So the higher one holds for both, and stamps behind that are read from the segments.
    What the older table alone knows is forgotten first. most, most_bytes: limits of what is kept,
    unless one of the tables has more. All below `offset` must be durable here."""
    own = ProducerTable(MOST_PRODUCERS, MOST_BYTES)
    at, _ = load(folder, journal, own)      # one that is not believed is replaced
    other = ProducerTable(MOST_PRODUCERS, MOST_BYTES)
    other.load(rows)
    older, newer = (own, other) if at < offset else (other, own)
    into = ProducerTable(max(most, len(own), len(other)),
                         max(most_bytes, *(one.counters()["producer_bytes"]
                                           for one in (own, other))))
    for one in (older, newer):
        into.merge(one.dump())
    return max(at, offset), into.dump()


def _warn(folder: Path, why: str) -> None:
    _log.warning("%s %s. The stamps of all messages are read instead: a message that is sent again "
                 "is recognized, and an older life refused, only while the journal still has the "
                 "messages that tell of them", folder / NAME, why)


def covered(folder: Path, journal: bytes) -> int:
    """The offset below which a writer that deduplicates needs no stamps of the segments. The file
    may not be durable yet: sync the folder."""
    return load(folder, journal, ProducerTable(MOST_PRODUCERS, MOST_BYTES))[0]


def highest_of(folder: Path, producer: int) -> int:
    """The highest number of a producer that the file knows; -1: none. What retention or compaction
    has removed from the segments is in it."""
    table = ProducerTable(MOST_PRODUCERS, MOST_BYTES)
    ident = journal_id(folder)
    if ident is not None:
        load(folder, bytes.fromhex(ident), table)
    found = table.highest_of(producer)
    return -1 if found is None else found


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


def load(folder: Path, journal: bytes, into: ProducerTable, end: int = EVERY) -> tuple[int, str]:
    """The offset that the file is good for, and why it is not believed; then `into` is empty. end:
    the next offset of the journal."""
    try:
        raw = read_regular(folder / NAME)
    except FileNotFoundError:
        return 0, ""
    if raw is None:
        return 0, "is not a regular file"
    return parsed(raw, journal, into, end)


def parsed(raw: bytes, journal: bytes | None, into: ProducerTable,
           end: int = EVERY) -> tuple[int, str]:
    """load() of a file with these bytes. journal: None if it may be any."""
    if len(raw) < _HEAD.size:
        return 0, f"has {len(raw)} bytes, fewer than its head"
    magic, version, crc, whose, offset, size = _HEAD.unpack_from(raw)
    rows = raw[_HEAD.size:]
    if magic != MAGIC or version not in (LIFELESS, VERSION):
        return 0, "is of another kind or version"
    if crc != _crc(version, raw[16:]) or size != len(rows):
        return 0, "does not match its CRC"
    if journal not in (None, whose):
        return 0, "is another journal's"
    if not 0 <= offset <= end:      # the disk has lost what it had called durable
        return 0, f"tells of {offset} messages, of which there are {end}"
    try:
        into.load(rows, lives=version == VERSION)
    except ValueError as error:
        return 0, f"has {error}"
    return offset, ""


def _begin(folder: Path, first: int) -> int:
    """The journal's first offset of all."""
    segment = Segment(folder, first)
    segment.close()
    return segment.header.begin


def _learn(folder: Path, first: int, into: ProducerTable, *, verify: bool = True) -> None:
    segment = Segment(folder, first)
    try:
        size = os.fstat(segment.fd).st_size
        walk = segment.scan(size, verify=verify, into=into)
        if walk.why != SHORT or walk.pos != size:
            raise segment.corrupt(walk.pos, walk.next, walk.why,
                                  "deduplicate=True must know what it holds" if verify else "")
    finally:
        segment.close()
