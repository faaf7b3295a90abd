"""Repair: a damaged segment written anew out of its whole blocks; the old file is kept."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from mqcore.journal.core import checksum
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.place import lock, segments, sync_folder, unlock
from mqcore.journal.recovery import Finding, is_torn_tail, verify, whole_blocks
from mqcore.journal.scan import HEADER_SIZE, Block
from mqcore.journal.segment import Segment
from mqcore.journal.snapshot import forget

NEVER = (1 << 63) - 1, -(1 << 63)


@dataclass
class Repaired:
    """What was wrong; `kept`: the damaged files, renamed to *.damaged."""

    findings: list[Finding]
    kept: list[str] = field(default_factory=list)


def repair(folder: Path) -> Repaired:
    """Make a damaged partition readable again, with the writer's lock; nothing is deleted.

    Whole blocks keep their offsets. Where blocks are lost, a checkpoint that jumps over their
    offsets takes their place: reading one of them raises OffsetGone, which says where to go on.
    A torn tail is no damage: the next writer cuts it off.
    """
    held = lock(folder)
    try:
        done = Repaired(verify(folder).findings)
        for path in sorted({Path(finding.path) for finding in done.findings}):
            if is_torn_tail(folder, int(path.stem)):
                continue
            new = path.with_suffix(".new")
            with open(new, "wb") as stream:
                for piece in _rewritten(folder, int(path.stem)):
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            aside = path.with_suffix(f".{time.time_ns()}.damaged")
            os.rename(path, aside)
            os.rename(new, path)
            sync_folder(folder)
            done.kept.append(str(aside))
        if done.kept:
            forget(folder)      # what is lost may be sent again
        return done
    finally:
        unlock(held)


def _rewritten(folder: Path, first: int) -> Iterator[bytes]:
    """The bytes of the segment without what is damaged."""
    following = next((other for other in segments(folder) if other > first), None)
    try:
        segment = Segment(folder, first)
    except JournalCorrupt:      # without its salt no block can be told from noise
        header, salt = _new_header(folder, first)
        yield header
        yield _checkpoint(first if following is None else following, salt, *NEVER)
        return
    try:
        yield os.pread(segment.fd, HEADER_SIZE, 0)
        at, (low, high) = first, NEVER
        for block in whole_blocks(segment, segment.size()):
            if not isinstance(block, Block):
                continue
            if block.first > at:
                yield _checkpoint(block.first, segment.salt, low, high)
            if block.count:
                low, high = min(low, block.low), max(high, block.high)
            yield os.pread(segment.fd, block.size, block.pos)
            at = block.first + block.count
        yield _checkpoint(at if following is None else following, segment.salt, low, high)
    finally:
        segment.close()


def _checkpoint(offset: int, salt: int, low: int, high: int) -> bytes:
    rest = struct.pack("<qQIIqqqIIQQQQ32x", offset, 128, 0, 0, offset, low, high, 0, 0, 0, 0, 0, 0)
    return b"MQB1" + struct.pack("<I", checksum(struct.pack("<Q", salt) + rest)) + rest


def _new_header(folder: Path, first: int) -> tuple[bytes, int]:
    salt = int.from_bytes(os.urandom(8), "little")
    topic = unquote(folder.parent.name).encode()
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
