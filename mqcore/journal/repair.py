"""Repair: a damaged segment written anew out of its whole blocks; the old file is kept.

At every moment each segment's name is there, with the damaged file or with the whole new one, so
after a crash a repair is simply started again:

1. the new file, as *.new; fdatasync
2. a second name for the damaged file, *.damaged; fsync of the folder
3. the new file takes the place of the damaged one; fsync of the folder

`finish_repair()` in place.py removes a *.new that a crash has left.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqcore.journal.core import checksum
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.place import finish_repair, lock, segments, sync_folder, topic_of, unlock
from mqcore.journal.recovery import (
    Finding,
    blocks_behind,
    is_torn_tail,
    verify,
    whole_blocks,
)
from mqcore.journal.scan import HEADER_SIZE, Block
from mqcore.journal.segment import Segment
from mqcore.journal.snapshot import forget

NEVER = (1 << 63) - 1, -(1 << 63)
SMALLEST = 12           # bytes that a message has in a block at least: its time and its end


@dataclass
class Repaired:
    """What was wrong; `kept`: the damaged files, renamed to *.damaged."""

    findings: list[Finding]
    kept: list[str] = field(default_factory=list)


def repair(folder: Path) -> Repaired:
    """Make a damaged partition readable again, with the writer's lock; nothing is deleted.

    Whole blocks keep their offsets. Where blocks are lost, a checkpoint that jumps over their
    offsets takes their place: reading one of them raises OffsetGone, which says where to go on. No
    offset is given out again. A torn tail is no damage: the next writer cuts it off. A repair that
    is interrupted, at any point, loses nothing: start it again.
    """
    held = lock(folder)
    try:
        finish_repair(folder)
        done = Repaired(verify(folder).findings)
        damaged = [path for path in sorted({Path(finding.path) for finding in done.findings})
                   if not is_torn_tail(folder, int(path.stem))]
        if damaged:         # first: what is lost may be sent again, and must be taken then
            forget(folder)
            sync_folder(folder)
        for path in damaged:
            done.kept.append(str(_repair(folder, path)))
        return done
    finally:
        unlock(held)


def _repair(folder: Path, path: Path) -> Path:
    """The name that the damaged file has now."""
    new = path.with_suffix(".new")
    try:
        with open(new, "wb") as stream:
            for piece in _rewritten(folder, int(path.stem)):
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        aside = _set_aside(path)
        sync_folder(folder)
        os.replace(new, path)
    except OSError:             # no room, say
        new.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    return aside


def _set_aside(path: Path) -> Path:
    """Another name for the damaged file; the one that an interrupted repair gave it, if it did."""
    for old in path.parent.glob(f"{path.stem}.*.damaged"):
        if old.samefile(path):
            return old
    aside = path.with_suffix(f".{time.time_ns()}.damaged")
    try:
        os.link(path, aside)
    except OSError:             # a file system without hard links
        half = aside.with_suffix(".copy")
        shutil.copyfile(path, half)
        with open(half, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(half, aside)
    return aside


def _rewritten(folder: Path, first: int) -> Iterator[bytes]:
    """The bytes of the segment without what is damaged."""
    following = next((other for other in segments(folder) if other > first), None)
    try:
        segment = Segment(folder, first)
    except JournalCorrupt as error:     # without its salt no block can be told from noise
        header, salt = _new_header(folder, first)
        yield header
        if following is None:           # the offsets that it may have given out
            following = first + os.path.getsize(error.path) // SMALLEST
        yield _checkpoint(following, salt, *NEVER)
        return
    try:
        yield os.pread(segment.fd, HEADER_SIZE, 0)
        at, (low, high) = first, NEVER
        given: int | None = None        # offsets below have been given out, as far as can be seen
        size = segment.size()
        for block in whole_blocks(segment, size):
            if not isinstance(block, Block):
                if given is None:
                    given = max((other.first + other.count
                                 for other in blocks_behind(segment, block[0], size)), default=0)
                continue
            if block.first > at:
                yield _checkpoint(block.first, segment.salt, low, high)
            if block.count:
                low, high = min(low, block.low), max(high, block.high)
            yield os.pread(segment.fd, block.size, block.pos)
            at = block.first + block.count
        end = max(at, given or 0) if following is None else following
        yield _checkpoint(end, segment.salt, low, high)
    finally:
        segment.close()


def _checkpoint(offset: int, salt: int, low: int, high: int) -> bytes:
    rest = struct.pack("<qQIIqqqIIQQQQ32x", offset, 128, 0, 0, offset, low, high, 0, 0, 0, 0, 0, 0)
    return b"MQB1" + struct.pack("<I", checksum(struct.pack("<Q", salt) + rest)) + rest


def _new_header(folder: Path, first: int) -> tuple[bytes, int]:
    salt = int.from_bytes(os.urandom(8), "little")
    topic = (topic_of(folder) or "").encode()
    rest = struct.pack("<qq16sQII256s192x", first, time.time_ns() // 1000, _journal_id(folder),
                       salt, int(folder.name), len(topic), topic)
    return b"MQJSEG\r\n" + struct.pack("<II", 1, checksum(rest)) + rest, salt


def _journal_id(folder: Path) -> bytes:
    for first in segments(folder):
        try:
            segment = Segment(folder, first)
        except JournalCorrupt:
            continue
        segment.close()
        return bytes(segment.header.journal)
    return os.urandom(16)
