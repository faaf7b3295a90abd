"""Repair: a damaged segment written anew out of its whole blocks; the old file is kept.

At every moment each segment's name is there, with the damaged file or with the whole new one, so
after a crash a repair is simply started again:

1. the new file, as *.new; fdatasync
2. a second name for the damaged file, *.damaged; fsync of the folder
3. the new file takes the place of the damaged one; fsync of the folder

`finish_repair()` in place.py removes a *.new that a crash has left.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqcore.journal.errors import JournalCorrupt, JournalNotFound
from mqcore.journal.store.core import checksum
from mqcore.journal.store.durable import durable_id, read_durable
from mqcore.journal.store.exclusive import CompactionLock, Lock
from mqcore.journal.store.place import (
    copy_file,
    finish_repair,
    groups,
    partition_numbers,
    segment_name,
    segments,
    sync_folder,
    topic_folder,
)
from mqcore.journal.store.recovery import (
    Finding,
    blocks_behind,
    check_begun,
    is_torn_tail,
    own_segment,
    owner_of,
    verify,
    whole_blocks,
)
from mqcore.journal.store.salvage import salvaged
from mqcore.journal.store.scan import COMPRESSED_VERSION, HEADER_SIZE, PLAIN_VERSION, Block
from mqcore.journal.store.segment import FOREIGN, Segment
from mqcore.journal.store.snapshot import forget_numbers
from mqcore.journal.store.sparse import forget_index
from mqcore.journal.store.topic_names import headers, names_of, topic_of, write_names

NEVER = (1 << 63) - 1, -(1 << 63)
ID_AT = 32              # in a segment's header
SMALLEST = 12           # bytes that a message has in a block at least: its time and its end


@dataclass
class Repaired:
    """What was wrong; `kept`: the damaged files, renamed to *.damaged; `lives`: how many producers
    have kept their life from the file `producers`, while their numbers were forgotten, so that what
    is lost may be sent again."""

    findings: list[Finding]
    kept: list[str] = field(default_factory=list)
    lives: int = 0


def repair(folder: Path, topic: str | None = None) -> Repaired:
    """Make a damaged partition readable again. Takes the writer's lock and deletes nothing. topic:
    its name, which a folder with a long one does not tell.

    Intact blocks keep their offsets. A checkpoint that skips their offsets replaces lost blocks:
    reading a lost offset raises OffsetGone, which says where to continue. No offset is reused. A
    torn tail is not damage: the next writer truncates it. An interrupted repair, at any point,
    loses nothing: start it again.
    """
    folder = Path(folder)
    if not (folder / "lock").exists() and not segments(folder):
        raise JournalNotFound(f"there is no journal at {folder}",
                              hint="partition_folder() gives the folder of a partition")
    held = Lock(folder)
    try:
        alone = CompactionLock(folder)
    except BaseException:
        held.release()
        raise
    try:
        finish_repair(folder)
        sync_folder(folder)     # a repair that was killed may have just put a file in its place
        if not segments(folder):
            check_begun(folder, 0)
        named = _mend_names(folder, topic)
        findings = verify(folder, alone=True).findings
        done = Repaired(named + findings)
        damaged = [path for path in sorted({Path(finding.path) for finding in findings})
                   if not is_torn_tail(folder, int(path.stem))]
        for path in damaged:
            if not path.is_file():
                raise JournalCorrupt(f"{path} is not a file, so it cannot be repaired",
                                     path=str(path), offset=int(path.stem), fault="not a file",
                                     hint="move it out of the folder, and repair again")
        if damaged:         # first: what is lost may be sent again, and must be taken then
            owner = owner_of(folder, segments(folder)) or durable_id(folder) or b""
            done.lives = forget_numbers(folder, owner)
            sync_folder(folder)
        for path in damaged:
            done.kept.append(str(_repair(folder, path, topic)))
        return done
    finally:
        alone.release()
        held.release()


def _mend_names(folder: Path, topic: str | None) -> list[Finding]:
    """The file `names` of a renamed topic, of what its segments' headers say. It may be missing,
    where a partition was copied without it: what the file `durable` calls the partition's own
    belongs here, whatever its topic was called."""
    home, first = folder.parent, min(segments(folder), default=0)
    try:
        if not names_of(home):
            former = _names_of_own(folder, durable_id(folder))
            if any(topic_folder(name) != home.name for name in former):
                write_names(home, sorted({_topic(folder, first, topic), *former}))
        return []
    except JournalCorrupt as error:
        found = {_topic(folder, first, topic)}
        for number in partition_numbers(home):
            at = home / str(number)
            ids = Counter(header.journal for header in headers(at) if header is not None)
            found |= _names_of_own(at, durable_id(at) or max(ids, key=ids.__getitem__, default=b""))
        if not os.path.isfile(error.path):      # a folder, say
            os.rename(error.path, f"{error.path}.{time.time_ns()}.damaged")
        write_names(home, sorted(found))
        return [Finding(error.path, 0, 0, 0, error.fault)]


def _names_of_own(folder: Path, owner: bytes | None) -> set[str]:
    """The topics that the partition's own segments name."""
    return {header.topic.decode() for header in headers(folder)
            if header is not None and header.journal == owner
            and header.partition == int(folder.name)}


def _repair(folder: Path, path: Path, topic: str | None) -> Path:
    """The name that the damaged file has now."""
    new = path.with_suffix(".new")
    try:
        with open(new, "wb") as stream:
            for piece in _rewritten(folder, int(path.stem), topic):
                stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        forget_index(path)
        aside = _set_aside(path)
        sync_folder(folder)
        os.replace(new, path)
    except (OSError, JournalCorrupt):       # a full disk, for example
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
        try:
            with open(path, "rb") as stream:
                copy_file(stream.fileno(), path, half, os.fstat(stream.fileno()).st_size)
            os.replace(half, aside)
        finally:
            half.unlink(missing_ok=True)
    return aside


def _rewritten(folder: Path, first: int, topic: str | None) -> Iterator[bytes]:
    """The bytes of the segment without what is damaged."""
    following = next((other for other in segments(folder) if other > first), None)
    left: Segment | None = None
    ours, salt = True, 0
    try:
        try:
            left = own_segment(folder, first, owner_of(folder, segments(folder)))
            header = os.pread(left.fd, HEADER_SIZE, 0)
        except JournalCorrupt as error:
            ours = error.fault != FOREIGN
            left = salvaged(folder, first) if ours else None
            header, salt = _new_header(folder, first, left, topic)
        yield header
        if left is not None:
            yield from _whole(left, following)
        else:
            yield _checkpoint(following or _given_out(folder, first, ours), salt, *NEVER)
    finally:
        if left is not None:
            left.close()


def _whole(segment: Segment, following: int | None) -> Iterator[bytes]:
    """What stands behind the header."""
    at, (low, high) = segment.first, NEVER
    given: int | None = None        # offsets below have been given out, as far as can be seen
    broken = False                  # something is lost in front of the next block
    size = segment.size()
    for block in whole_blocks(segment, size, following):
        if not isinstance(block, Block):
            broken = True
            if given is None:
                given = max((other.end
                             for other in blocks_behind(segment, block[0], size)), default=0)
            continue
        if block.first > at and (broken or not block.compacted):
            yield _checkpoint(block.first, segment.salt, low, high)
        if block.count:
            low, high = min(low, block.low), max(high, block.high)
        yield os.pread(segment.fd, block.size, block.pos)
        at, broken = block.end, False
    if following is None:
        ours = segment.header.journal if any(segment.header.journal) else None
        following = max(at, given or 0, read_durable(segment.path.parent, ours))
    yield _checkpoint(following, segment.salt, low, high)


def _given_out(folder: Path, first: int, ours: bool) -> int:
    """The last segment has no whole block: no offset from here on has been given out. ours: if it
    was this journal's, its size bounds how many there were."""
    size = os.path.getsize(folder / segment_name(first)) if ours else 0
    return max(first + size // SMALLEST, read_durable(folder), *groups(folder).values())


def _checkpoint(offset: int, salt: int, low: int, high: int) -> bytes:
    rest = struct.pack("<qQIIqqqIIQQQQ32x", offset, 128, 0, 0, offset, low, high, 0, 0, 0, 0, 0, 0)
    return b"MQB1" + struct.pack("<I", checksum(struct.pack("<Q", salt) + rest)) + rest


def _new_header(folder: Path, first: int, left: Segment | None,
                topic: str | None) -> tuple[bytes, int]:
    salt = int.from_bytes(os.urandom(8), "little") if left is None else left.salt
    modern = left is not None and any(
        isinstance(block, Block) and block.modern for block in whole_blocks(left, left.size()))
    version = COMPRESSED_VERSION if modern else PLAIN_VERSION
    name = _topic(folder, first, topic).encode()
    rest = struct.pack("<qq16sQII256sq184x", first, time.time_ns() // 1000,
                       _journal_id(folder, first), salt, int(folder.name), len(name), name,
                       _begin(folder, first))
    return b"MQJSEG\r\n" + struct.pack("<II", version, checksum(rest)) + rest, salt


def _topic(folder: Path, first: int, given: str | None) -> str:
    """The name for a new header."""
    if given is not None and topic_folder(given) == folder.parent.name:
        return given
    found = topic_of(folder)
    if found is None:
        raise JournalCorrupt(
            f"{folder} is a topic whose name is unknown: no segment's header tells it",
            path=str(folder / segment_name(first)), offset=first,
            fault="no header tells the topic", hint="name the topic, and repair again")
    return found


def _begin(folder: Path, first: int) -> int:
    """The journal's first offset of all, as other segments tell."""
    for other in segments(folder):
        with contextlib.suppress(JournalCorrupt, FileNotFoundError):
            segment = Segment(folder, other)
            segment.close()
            return min(segment.header.begin, first)
    return 0


def _journal_id(folder: Path, damaged: int) -> bytes:
    owner = owner_of(folder, segments(folder))
    if owner is not None:
        return owner
    left = b""
    with open(folder / segment_name(damaged), "rb") as file, contextlib.suppress(OSError):
        left = os.pread(file.fileno(), 16, ID_AT)       # the disk may not give it
    known = durable_id(folder) or left      # the damage may lie elsewhere
    return known if len(known) == 16 and any(known) else os.urandom(16)
