"""After a crash: what may be truncated, what must stay, and what can be recovered.

A writer syncs a segment and ends it with a checkpoint before it begins the next, so damage in any
but the last segment is damage to durable data. In the last one every block records the offset below
which everything was durable when it was written. Damage before such a block has hit durable
messages and is refused. Other damage is a torn tail: blocks that were never acknowledged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from errno import EIO
from pathlib import Path
from typing import Any

from mqcore.journal.errors import NO_ROOM, JournalCorrupt, write_error
from mqcore.journal.store.durable import MISSING, durable_id, read_durable, told
from mqcore.journal.store.exclusive import is_written, sweep_compaction
from mqcore.journal.store.place import (
    CHUNK,
    copy_file,
    finish_repair,
    groups,
    segment_name,
    segments,
    set_group_offset,
    settled_segments,
    sweep_groups,
    sync_folder,
)
from mqcore.journal.store.salvage import salvaged
from mqcore.journal.store.scan import (
    ALIGNMENT,
    BLOCK_HEADER_SIZE,
    FAULTS,
    FOUND,
    HEADER_SIZE,
    NEWER,
    UNREADABLE,
    Block,
    Walk,
)
from mqcore.journal.store.segment import FOREIGN, Segment, checkpoint, home_of, settled_home
from mqcore.journal.store.topic_names import names_of

SHORT = next(number for number, words in FAULTS.items() if words.startswith("the file ends"))
QUIET = 0.3             # seconds in which a writer that is at work makes its file longer
LOOK = 0.01             # seconds between two looks at a file that is written
ORDER = next(number for number, words in FAULTS.items() if "does not continue" in words)


@dataclass(frozen=True)
class Dropped:
    """What opening dropped: `bytes` from `position` of the file `path` on, with messages from
    `offset` on. Nothing behind them says that they were durable."""

    path: str
    position: int
    bytes: int
    offset: int
    fault: str

    def __str__(self) -> str:
        return (f"{self.path}: {self.bytes} bytes dropped from byte {self.position} on (message "
                f"{self.offset}): {self.fault}; nothing behind it says that it was durable")


def blocks_behind(segment: Segment, pos: int, size: int) -> Iterator[Block]:
    """Intact headers behind pos, wherever they are."""
    while pos + BLOCK_HEADER_SIZE <= size:
        window = segment.window(pos, BLOCK_HEADER_SIZE)
        found = window.seek_block(pos, size, segment.salt)
        if found < 0:
            pos = window.start + window.length - window.length % ALIGNMENT
            if pos + BLOCK_HEADER_SIZE <= size:     # one may lie across the window's end
                pos -= BLOCK_HEADER_SIZE - ALIGNMENT
            continue
        block = segment.block(found, size, verify=False)
        if isinstance(block, Block):
            yield block
        pos = found + ALIGNMENT


def witness(segment: Segment, pos: int, offset: int, size: int) -> Block | None:
    """A block behind pos that says that the message at `offset` was durable. A reader that waits at
    the same place asks again and again, and only what has come meanwhile is searched: a writer that
    holds blocks back may have written all but the headers of a whole segment there."""
    at, looked_for, end = segment.searched
    begin = pos + ALIGNMENT
    if (at, looked_for) == (pos, offset) and end <= size:
        begin = max(begin, end - BLOCK_HEADER_SIZE)
    found = next((block for block in blocks_behind(segment, begin, size)
                  if block.durable > offset), None)
    segment.searched = (pos, offset, size) if found is None else (-1, -1, 0)
    return found


def judge(segment: Segment, pos: int, offset: int, fault: int, size: int, last: bool) -> None:
    """JournalCorrupt unless what begins at pos is a torn tail."""
    if not last:
        raise segment.corrupt(pos, offset, fault, "and later segments follow")
    if fault in (UNREADABLE, NEWER):
        raise segment.corrupt(pos, offset, fault)
    seen = witness(segment, pos, offset, size)
    if seen is not None:
        raise segment.corrupt(pos, offset, fault,
                              f"and byte {seen.pos} says that it was durable")


@dataclass
class Recovered:
    """`last`: the state to go on from, as WriterCore._attach takes it."""

    last: Any
    journal: bytes
    dropped: list[Dropped] = field(default_factory=list)
    segment: Segment | None = None


def recover(folder: Path) -> Recovered:
    """Make the journal fit to be written, or raise JournalCorrupt. With the writer's lock."""
    finish_repair(folder)
    sweep_compaction(folder)
    sweep_groups(folder)
    firsts = segments(folder)
    dropped: list[Dropped] = []
    at = 0
    while firsts:
        path = folder / segment_name(firsts[-1])
        try:
            segment = own_segment(folder, firsts[-1], owner_of(folder, firsts))
            if os.fstat(segment.fd).st_nlink > 1:
                segment.close()
                _unshare(path)
                segment = own_segment(folder, firsts[-1], owner_of(folder, firsts))
            break
        except JournalCorrupt as error:
            # blocks are written only once the header is durable
            if not path.is_file() or path.stat().st_size > HEADER_SIZE:
                raise
            size = path.stat().st_size
            at = firsts.pop()
            path.unlink()
            sync_folder(folder)
            dropped.append(Dropped(str(path), 0, size, at, error.fault))
    else:
        check_begun(folder, at)
        return Recovered(at, os.urandom(16), dropped)
    try:
        check_chain(folder, firsts)
        return _recover_last(folder, segment, dropped)
    except BaseException:
        segment.close()
        raise


def _unshare(path: Path) -> None:
    """A backup has a hard link to this file, and would get what is written to it: write to a copy.
    """
    new = path.with_suffix(".new")      # see finish_repair()
    try:
        with open(path, "rb") as source:
            copy_file(source.fileno(), path, new, os.fstat(source.fileno()).st_size)
        os.replace(new, path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(error.errno or EIO, path) from error
    finally:
        new.unlink(missing_ok=True)


def check_begun(folder: Path, at: int) -> None:
    """No segment is left: there was none, or the file `durable` knows of messages."""
    durable = read_durable(folder)
    if durable > at:
        raise JournalCorrupt(
            f"{folder} has no segments, and messages up to {durable - 1} were durable",
            path=str(folder), offset=at, fault=MISSING,
            hint="bring back the segment files, from a backup or a mirror; or remove the folder to "
                 "begin a new journal")


def owner_of(folder: Path, firsts: list[int]) -> bytes | None:
    """The id of the journal whose segments these are: the one in the file `durable`, unless none of
    them has it; else the last one's. None: no header tells."""
    ids = []
    for first in firsts:
        try:
            segment = Segment(folder, first)
        except (JournalCorrupt, FileNotFoundError):
            continue
        ids.append(segment.header.journal)
        segment.close()
    known = durable_id(folder)
    return known if known in ids else ids[-1] if ids else None


def own_segment(folder: Path, first: int, owner: bytes | None) -> Segment:
    """JournalCorrupt also if it is another journal's than owner_of() has found."""
    segment = Segment(folder, first)
    if owner is not None and segment.header.journal != owner:
        segment.close()
        raise segment.foreign("another journal")
    return segment


def check_chain(folder: Path, firsts: list[int]) -> None:
    """JournalCorrupt: a segment does not end where the next one begins, or is another journal's.
    """
    owner = owner_of(folder, firsts)
    for first, following in zip(firsts, firsts[1:], strict=False):
        segment = own_segment(folder, first, owner)
        try:
            size = segment.size()
            mark = segment.checkpoint(size)
            if mark is None or mark.first != following:
                walk = segment.scan(size)
                if walk.why != SHORT or walk.pos != size or walk.next != following:
                    raise segment.corrupt(walk.pos, walk.next, walk.why,
                                          f"the next segment begins at {following}")
        finally:
            segment.close()


def _recover_last(folder: Path, segment: Segment, dropped: list[Dropped]) -> Recovered:
    """Durable on return is all that is kept. What the page cache holds may never have reached the
    disk, and the error may have been reported already, to a writer that is gone: then a sync alone
    would succeed. So whatever is not known to be durable is written once more first."""
    size = segment.size()
    walk = segment.scan(size, verify=True)
    segment.check_end(walk, size, told(folder))
    if walk.pos < size:
        judge(segment, walk.pos, walk.next, walk.why, size, last=True)
        dropped.append(Dropped(str(segment.path), walk.pos, size - walk.pos, walk.next,
                               FAULTS[walk.why]))
    fd = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        _write_again(fd, 0, HEADER_SIZE)
        _write_again(fd, _certain(segment, walk), walk.pos)
        os.fsync(fd)
        sync_folder(folder)
        end = _cover(fd, segment, walk, size)
        header = os.pread(segment.fd, HEADER_SIZE, 0)
    except OSError as error:
        os.close(fd)
        raise write_error(error.errno or EIO, segment.path, broken=True) from error
    except BaseException:
        os.close(fd)
        raise
    try:
        for group, offset in groups(folder).items():
            if offset > walk.next:      # it had read what a power cut has taken
                set_group_offset(folder, group, walk.next)
    except BaseException:
        os.close(fd)
        raise
    state = (fd, header, end, walk.next, walk.low, walk.high, walk.marked or end > walk.pos)
    return Recovered(state, segment.header.journal, dropped, segment)


def _certain(segment: Segment, walk: Walk) -> int:
    """Every byte before this position is known to be durable: the blocks of messages below what a
    later block calls durable. The checkpoints that say so may not be durable themselves."""
    if walk.durable <= segment.first:
        return HEADER_SIZE
    last = segment.find(walk.durable - 1, walk.pos)
    block = segment.block(last.pos, walk.pos, verify=False)
    found = last.why == FOUND and isinstance(block, Block) and block.first < walk.durable
    return last.pos + (block.size if found else 0)      # type: ignore[union-attr]


def _write_again(fd: int, start: int, end: int) -> None:
    while start < end:
        raw = os.pread(fd, min(CHUNK, end - start), start)
        if not raw:
            raise OSError(EIO, os.strerror(EIO))
        start += _write(fd, raw, start)


def _write(fd: int, raw: bytes, at: int) -> int:
    done = 0
    while done < len(raw):
        done += os.pwrite(fd, raw[done:], at + done)
    return done


def _cover(fd: int, segment: Segment, walk: Walk, size: int) -> int:
    """Checkpoints in the place of a torn tail; where they end. The file is not cut: a reader may
    have mapped what would go. Nothing is written to it before they are durable."""
    pos = walk.pos
    if pos == size:
        return pos
    block = checkpoint(walk.next, walk.next, segment.salt, walk.low, walk.high)
    while some := min(size - pos, CHUNK) // len(block):     # over the tail, where room is
        pos += _write(fd, block * some, pos)
    if pos < size:
        try:
            pos += _write(fd, block, pos)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            os.ftruncate(fd, pos)   # less than a header, and no reader looks for one there
    os.fsync(fd)
    return pos


def is_torn_tail(folder: Path, first: int) -> bool:
    """What is wrong in this segment is nothing that opening to append would not cut off."""
    if first != segments(folder)[-1]:
        return False
    try:
        segment = own_segment(folder, first, owner_of(folder, segments(folder)))
    except JournalCorrupt as error:
        return os.path.isfile(error.path) and os.path.getsize(error.path) <= HEADER_SIZE \
            and read_durable(folder) <= first
    try:
        size = segment.size()
        walk = segment.scan(size, verify=True)
        judge(segment, walk.pos, walk.next, walk.why, size, last=True)
        return walk.next >= read_durable(folder, segment.header.journal)
    except JournalCorrupt:
        return False
    finally:
        segment.close()


@dataclass(frozen=True)
class Finding:
    """Damage in a segment. `lost`: number of lost messages, or None if unknown."""

    path: str
    position: int
    offset: int
    lost: int | None
    fault: str


@dataclass
class Checked:
    segments: int = 0
    bytes: int = 0
    blocks: int = 0
    messages: int = 0
    compacted: int = 0      # offsets whose messages compaction has removed
    findings: list[Finding] = field(default_factory=list)


def verify(folder: Path, progress: Any = None, alone: bool = False) -> Checked:
    """Read everything; what is wrong and where. progress(bytes) is called now and then. What a
    running writer is writing does not count as damage, nor does a segment that its retention
    removes. alone: the caller holds the writer's lock. JournalNotFound: deleted or renamed."""
    home = home_of(folder := Path(folder))
    try:
        return _verify(folder, progress, alone)
    finally:
        settled_home(folder, home, None)


def _verify(folder: Path, progress: Any, alone: bool) -> Checked:
    found = Checked()
    try:
        names_of(folder.parent)
    except JournalCorrupt as error:     # no segment's name can be judged
        return Checked(findings=[Finding(error.path, 0, 0, 0, error.fault)])
    whose, durable = told(folder)       # first: a running writer adds to the segment, and then here
    firsts = settled_segments(folder)
    owner = owner_of(folder, firsts)
    if not firsts and durable:
        found.findings.append(Finding(str(folder), 0, 0, durable, MISSING))
    for i, first in enumerate(firsts):
        following = firsts[i + 1] if i + 1 < len(firsts) else None
        found.segments += 1
        whole = None
        try:
            segment = _opened(folder, first, following is None, owner)
        except FileNotFoundError:
            if first in segments(folder):
                raise
            found.segments -= 1
            continue
        except JournalCorrupt as error:
            if os.path.isfile(error.path) and error.fault != FOREIGN:
                whole = salvaged(folder, first)
            if whole is None:
                lost = following - first if following else None
                found.findings.append(Finding(error.path, 0, first, lost, error.fault))
                continue
            found.findings.append(Finding(error.path, 0, first, 0, error.fault))
            segment = whole
        try:
            known = durable if whose == segment.header.journal or segment is whole else 0
            _verify_segment(segment, known if following is None else 0, following, found,
                            following is None and not alone)
            found.bytes += segment.size()
            if progress is not None:
                progress(segment.size())
        finally:
            segment.close()
    return found


def _opened(folder: Path, first: int, last: bool, owner: bytes | None) -> Segment:
    """A running writer may just be making the last one."""
    end = time.monotonic() + QUIET
    while True:
        try:
            return own_segment(folder, first, owner)
        except JournalCorrupt as error:
            half = last and os.path.isfile(error.path) \
                and os.path.getsize(error.path) <= HEADER_SIZE
            if not half or time.monotonic() > end:
                raise
            time.sleep(LOOK)


def whole_blocks(segment: Segment, size: int, following: int | None = None,
                 written: bool = False) -> Iterator[Block | tuple[int, int, int]]:
    """Every intact block in order, and (position, offset, fault) of what is in the way. following:
    what the next segment begins with. written: a writer may be at work behind the last block.
    JournalCorrupt: a newer version has written one, which no repair may take for damage."""
    end = following or 1 << 63
    pos, next = HEADER_SIZE, segment.first
    while pos < size:
        block = segment.block(pos, size)
        if isinstance(block, Block) and block.end <= end \
                and (block.first == next or block.count == 0 and block.first > next):
            yield block
            pos, next = pos + block.size, block.end
            continue
        fault = block if isinstance(block, int) else ORDER
        if fault == NEWER:
            raise segment.corrupt(pos, next, fault)
        later = _next_whole(segment, pos, (next, end), size)
        if written and fault != ORDER and (later is None or later.durable <= next):
            longer = _written_meanwhile(segment, pos, size)
            if longer:
                size = longer
                continue
        yield pos, next, fault
        if later is None:
            return
        pos, next = later.pos, later.first


def _next_whole(segment: Segment, pos: int, within: tuple[int, int], size: int) -> Block | None:
    """The first intact block behind pos that may follow."""
    for later in blocks_behind(segment, pos + ALIGNMENT, size):
        whole = segment.block(later.pos, size)
        if isinstance(whole, Block) and within[0] <= whole.first and whole.end <= within[1]:
            return whole
    return None


def _written_meanwhile(segment: Segment, pos: int, size: int) -> int:
    """The file's size when a writer has made a block of what begins at pos; 0 if none is at
    work."""
    end = time.monotonic() + QUIET
    while time.monotonic() < end:
        now = segment.size()
        if isinstance(segment.block(pos, now), Block):
            return now
        if now != size:
            size, end = now, time.monotonic() + QUIET
        time.sleep(LOOK)
    return 0


def _verify_segment(segment: Segment, durable: int, following: int | None,
                    found: Checked, written: bool) -> None:
    """durable: of the last segment, what the file of that name says. written: a writer may be at
    work behind its end, or hold blocks back there."""
    size, next = segment.size(), segment.first
    open_finding: tuple[int, int, int] | None = None
    for item in whole_blocks(segment, size, following, written):
        if isinstance(item, tuple):
            open_finding = item
            continue
        if open_finding is not None:
            pos, offset, fault = open_finding
            found.findings.append(Finding(str(segment.path), pos, offset, item.first - offset,
                                          FAULTS[fault]))
            open_finding = None
        elif item.compacted:
            found.compacted += item.end - next - item.count
        found.blocks += 1
        found.messages += item.count
        next = item.end
    end = durable if following is None else following
    if written and open_finding is not None and open_finding[1] >= end \
            and is_written(segment.path.parent):
        return
    if open_finding is not None or next < end or following is not None and next != following:
        pos, offset, fault = open_finding or (size, next, SHORT)
        lost = None if following is None and end <= offset else end - offset
        why = MISSING if open_finding is None and following is None else FAULTS[fault]
        found.findings.append(Finding(str(segment.path), pos, offset, lost, why))
