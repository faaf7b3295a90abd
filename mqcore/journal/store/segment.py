"""One segment file, read only: its header, windows on it, the way to a message in it."""

from __future__ import annotations

import bisect
import math
import mmap
import os
import stat
import struct
import time
from errno import ENOENT
from pathlib import Path

from mqcore.journal.errors import JournalBusy, JournalCorrupt, JournalNotFound
from mqcore.journal.store.core import checksum
from mqcore.journal.store.durable import missing_end
from mqcore.journal.store.place import read_regular, segment_name, segments
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.scan import (
    BLOCK_HEADER_SIZE,
    FAULTS,
    HEADER_SIZE,
    LIMIT,
    NEWER,
    PLAIN_VERSION,
    WINDOW,
    Block,
    Header,
    Walk,
    Window,
    parse_segment,
)
from mqcore.journal.store.sparse import load_index
from mqcore.journal.store.topic_names import is_place_of

MAPPED = 32 << 20       # bytes mapped at a time; more only for a larger block
STRIDE = 1 << 20        # bytes of blocks between two entries of the index
INDEXES = 16            # segments of which a reader keeps one
EARLIEST = -(1 << 63)
FOREIGN = "the segment belongs elsewhere"
ANEW = "a journal made anew in its place has offsets of its own; open it again"
EVERYTHING = 1 << 62    # an offset beyond all: find() goes to the end
SAMPLE = 64             # blocks that tell how well a segment is compressed
UPDATE = "install the version of mqcore that wrote it, or a newer one; nothing is damaged"


NONSENSE = "the block's header contradicts itself"


class Unfinished(JournalBusy):
    """A look was not over when its time was. The index keeps what it came to: look again."""


class Index:
    """What looks into a segment have come to know, in memory only: about every STRIDE bytes, the
    offset of a block and the largest time before it, and where the last two looks ended. `durable`:
    what is below was synced, as far as the blocks passed say."""

    def __init__(self, file: os.stat_result, salt: int, first: int) -> None:
        self.file = file.st_dev, file.st_ino, salt
        self.positions = [HEADER_SIZE]
        self.offsets = [first]
        self.highs = [EARLIEST]
        self.durable = first
        self.forget_ends()

    def forget_ends(self) -> None:
        """The next look begins at one of the positions."""
        self.recent = self.tail = HEADER_SIZE, self.offsets[0], EARLIEST

    def keep(self, pos: int, offset: int, high: int) -> None:
        """A look has come so far: the next one that ends unfinished has begun behind it."""
        at = bisect.bisect_right(self.positions, pos)
        if pos - self.positions[at - 1] >= STRIDE // 2:
            self._insert(at, pos, offset, high)

    def begin_at(self, pos: int, offset: int) -> None:
        """A block that find() may begin at, where those before it lead nowhere."""
        at = bisect.bisect_right(self.positions, pos)
        if self.positions[at - 1] != pos:
            self._insert(at, pos, offset, self.highs[at - 1])

    def _insert(self, at: int, pos: int, offset: int, high: int) -> None:
        self.positions.insert(at, pos)
        self.offsets.insert(at, offset)
        self.highs.insert(at, high)


class Segment:
    """`salt` and `first` are the header's. header: takes the place of a damaged one. indexes: by
    first offset, those of before, of which INDEXES are kept. `until`: when looks end unfinished, by
    the monotonic clock."""

    def __init__(self, folder: Path, first: int, header: Header | None = None,
                 indexes: dict[int, Index] | None = None, until: float = math.inf) -> None:
        self.path = folder / segment_name(first)
        try:        # O_NONBLOCK: if this is a pipe, do not wait for its writer
            self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            if self.path.is_symlink():      # else it has just been removed
                raise self._unfit(first, "a link that leads nowhere") from None
            raise
        try:
            self._file = os.fstat(self.fd)
            self.header = header or self._read_header(first)
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise
        self.first: int = self.header.first
        self.salt: int = self.header.salt
        self._window: Window | None = None
        self.until = until
        self.index = Index(self._file, self.salt, first)
        if indexes is not None:
            self._take_index(first, indexes)
        self.searched = -1, -1, 0       # see recovery.witness()
        self._unpacked: Block | None = None     # read last, if it is compressed

    @property
    def durable(self) -> int:
        return self.index.durable

    def _take_index(self, first: int, indexes: dict[int, Index]) -> None:
        known = indexes.pop(first, None)
        if known is not None and known.file == self.index.file:
            self.index = known
        else:
            self._load_index()
        indexes[first] = self.index
        if len(indexes) > INDEXES:
            del indexes[next(iter(indexes))]

    def _load_index(self) -> None:
        found = load_index(self.path, self.salt, self._file.st_size)
        if found is not None and found[0][0] == HEADER_SIZE and found[1][0] == self.first:
            self.index.positions, self.index.offsets, self.index.highs = found

    def _read_header(self, first: int) -> Header:
        if not stat.S_ISREG(self._file.st_mode):
            found: Header | str = "not a file"
        else:
            try:
                found = parse_segment(os.pread(self.fd, HEADER_SIZE, 0))
            except OSError as error:
                found = f"the disk cannot read the segment's header ({error.strerror})"
        if not isinstance(found, str) and found.first != first:
            found = "named for another offset"
        if isinstance(found, str):
            raise self._unfit(first, found)
        if not is_place_of(self.path.parent, found.topic, found.partition):
            if self.is_replaced():      # by a rename, between the two looks at the folder
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(self.path))
            raise self.foreign(f"topic {found.topic.decode(errors='replace')!r}, partition "
                               f"{found.partition}")
        return found

    def foreign(self, whose: str) -> JournalCorrupt:
        return JournalCorrupt(
            f"{self.path} is a segment of {whose}", path=str(self.path),
            offset=int(self.path.stem), fault=FOREIGN,
            hint="put the files back to where they were; `mq journal repair` sets this one aside "
                 "and gives up the messages that should be here")

    def _unfit(self, first: int, fault: str) -> JournalCorrupt:
        return JournalCorrupt(f"{self.path}: {fault}", path=str(self.path), offset=first,
                              fault=fault)

    def close(self) -> None:
        self._window = self._unpacked = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def is_replaced(self) -> bool:
        """Whether its name is another file's by now, or no file's: a writer makes a copy of a file
        that a backup shares, and a repair a new one."""
        try:
            return not os.path.samestat(self._file, os.stat(self.path))
        except FileNotFoundError:
            return True

    def window(self, pos: int, need: int) -> Window:
        """One that holds [pos, pos + need)."""
        have = self._window
        if have is None or pos < have.start or pos + need > have.start + have.length:
            start = pos - pos % mmap.ALLOCATIONGRANULARITY
            self._window = have = Window(self.fd, start, max(MAPPED, pos + need - start))
        return have

    def block(self, pos: int, size: int, verify: bool = True) -> Block | int:
        """The block at pos, or a fault; size: the file's."""
        window = self.window(pos, BLOCK_HEADER_SIZE)
        need = window.reach(pos, size, self.salt)
        if pos + need <= size:
            window = self.window(pos, need)
        return window.block(pos, size, self.salt, verify)

    def readable(self, pos: int, size: int, verify: bool) -> Block | int:
        """block(), and its columns can be touched also if they are not verified. A compressed block
        or a sparse one is kept, for who reads it piece by piece: a whole block never changes."""
        kept = self._unpacked
        if kept is not None and kept.pos == pos:
            return kept
        block = self.block(pos, size, verify)
        if isinstance(block, int):
            return block
        fault: int = 0 if verify else block.window.fetch_block(block, size)
        self._unpacked = block if (block.packed or block.compacted) and not fault else None
        return fault or block

    def together(self, pos: int, size: int, room: int, verify: bool) -> Block | int:
        """readable(), or small blocks from pos on as one, of about `room` bytes at most."""
        found = verify and self.window(pos, BLOCK_HEADER_SIZE).joined(pos, size, self.salt, room)
        if not found:
            return self.readable(pos, size, verify)
        high = max(self.index.recent[2], found.high)
        self.index.recent = pos + found.size, found.first + found.count, high
        return found

    def expansion(self, size: int) -> float:
        """How many times larger the segment would be if it were plain, by its first blocks."""
        pos, stored, plain = HEADER_SIZE, 0, 0
        for _ in range(SAMPLE):
            block = self.block(pos, size, verify=False)
            if isinstance(block, int):
                break
            pos += block.size
            stored += block.size
            plain += block.unpacked
        return plain / stored if stored else 1.0

    def find(self, offset: int, size: int) -> Walk:
        """Walk to the block that holds the message: why is FOUND, or the fault that is in the way
        (BLOCK_SHORT at the end of the file: not there yet)."""
        index = self.index
        at = bisect.bisect_right(index.offsets, offset) - 1
        start = index.positions[at], index.offsets[at], index.highs[at]
        for near in (index.recent, index.tail):
            if start[0] < near[0] and near[1] <= offset:
                start = near
        walk, end = self._look(start, size, {"offset": offset})
        if offset == EVERYTHING:
            index.tail = end
        else:
            index.recent = end
        return walk

    def find_time(self, us: int, size: int) -> Walk:
        """find() of the first block with a message that is not before this time."""
        index = self.index
        at = max(bisect.bisect_left(index.highs, us) - 1, 0)
        start = index.positions[at], index.offsets[at], index.highs[at]
        for near in (index.recent, index.tail):
            if start[0] < near[0] and near[2] < us:
                start = near
        walk, index.recent = self._look(start, size, {"time": us})
        return walk

    def _look(self, start: tuple[int, int, int], size: int,
              sought: dict[str, int]) -> tuple[Walk, tuple[int, int, int]]:
        """The walk's last stretch, and its end as Index keeps it."""
        pos, next, high = start
        while True:
            window = self.window(pos, BLOCK_HEADER_SIZE)
            walk = window.walk(pos, next, size, self.salt, limit=pos + STRIDE,
                               **sought)    # type: ignore[arg-type]
            self.index.durable = max(self.index.durable, walk.durable)
            pos, next, high = walk.pos, walk.next, max(high, walk.high)
            if walk.why not in (LIMIT, WINDOW):
                return walk, (pos, next, high)
            self.index.keep(pos, next, high)
            if time.monotonic() > self.until:
                raise Unfinished(f"{self.path} was not searched to its end in time")

    def scan(self, size: int, *, verify: bool = False, time: int | None = None,
             into: ProducerTable | None = None) -> Walk:
        """Walk all of it: to the end, which is a fault like any other, or to the first block with a
        message not before `time`. The rest of the Walk is about the whole way. into: learns the
        stamps, of blocks that are checked for that."""
        pos, next, need = HEADER_SIZE, self.first, BLOCK_HEADER_SIZE
        blocks, low, high, marked, durable = 0, (1 << 63) - 1, -(1 << 63), False, 0
        more = {} if time is None else {"time": time}
        while True:
            window = self.window(pos, need)
            walk = window.walk(pos, next, size, self.salt, verify=verify, into=into,
                               **more)
            blocks += walk.blocks
            low, high = min(low, walk.low), max(high, walk.high)
            if walk.blocks:
                marked, durable = walk.marked, walk.durable
            pos, next = walk.pos, walk.next
            if walk.why != WINDOW:
                return Walk(pos, next, walk.why, blocks, low, high, marked, durable)
            need = self.window(pos, BLOCK_HEADER_SIZE).reach(pos, size, self.salt)

    def checkpoint(self, size: int) -> Block | None:
        """The one that ends a segment which was ended in order: times of the whole of it."""
        pos = size - BLOCK_HEADER_SIZE
        if pos < HEADER_SIZE:
            return None
        block = self.block(pos, size, verify=False)
        return block if isinstance(block, Block) and block.count == 0 else None

    def check_end(self, walk: Walk, size: int, known: tuple[bytes, int]) -> None:
        """missing_end(), of a walk to the end of the last segment."""
        missing_end(self.path, self.header.journal, walk.pos, walk.next, known,
                    FAULTS[walk.why] if walk.pos < size else "")

    def corrupt(self, pos: int, offset: int, fault: int, why: str = "") -> JournalCorrupt:
        words = FAULTS.get(fault, NONSENSE) + (f"; {why}" if why else "")
        return JournalCorrupt(f"{self.path} at byte {pos} (message {offset}): {words}",
                              path=str(self.path), position=pos, offset=offset, fault=words,
                              hint=UPDATE if fault == NEWER else JournalCorrupt.hint)


def plain_bytes(folder: Path, firsts: list[int], start: int, stop: int) -> int:
    """Reader.stored_bytes()."""
    inside = [(a, b) for a, b in zip(firsts, [*firsts[1:], stop], strict=True)
              if a < stop and b > start]
    size = 0
    for first, _ in inside:
        try:
            size += _plain_size(folder, first)
        except FileNotFoundError:       # retention was faster
            continue
    return size * (stop - start) // max(1, inside[-1][1] - inside[0][0]) if inside else 0


def _plain_size(folder: Path, first: int) -> int:
    """About how many bytes the segment would have without compression. FileNotFoundError."""
    path = folder / segment_name(first)
    size = path.stat().st_size
    header = parse_segment(read_regular(path, HEADER_SIZE) or b"")
    if isinstance(header, str) or header.version == PLAIN_VERSION:
        return size
    segment = Segment(folder, first)
    try:
        return round(size * segment.expansion(size))
    finally:
        segment.close()


def refuse_other(segment: Segment, journal: bytes) -> None:
    """A reader of `journal` has opened a segment of another one. Raises JournalNotFound: the
    journal was made anew. JournalCorrupt: the segment does not belong here."""
    folder = segment.path.parent
    segment.close()
    if journal_id(folder) == journal.hex():
        raise segment.foreign("another journal")
    raise JournalNotFound(f"the journal {journal.hex()} at {folder} was deleted",
                          hint=ANEW)


def home_of(folder: Path) -> os.stat_result:
    """For settled_home(). JournalNotFound."""
    try:
        found = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        found = None
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise JournalNotFound(f"there is no journal at {folder}")
    return found


def settled_home(folder: Path, home: os.stat_result, journal: bytes | None) -> os.stat_result:
    """The partition's folder, which was `home` when it was opened. Raises JournalNotFound: it was
    deleted, or its topic renamed. journal: its id, if that is known."""
    try:
        now = os.stat(folder)
        if os.path.samestat(home, now):
            return home
        if journal is not None and journal_id(folder) == journal.hex():     # moved to another disk
            return now
    except FileNotFoundError:
        pass
    raise JournalNotFound(f"the journal at {folder} was deleted, or its topic was renamed",
                          hint="`mq journal ls` lists what a folder holds")


def check_removed(error: FileNotFoundError) -> None:
    """Return if retention was faster than the opening of a segment. Raises what refuse_other() has
    raised."""
    if isinstance(error, JournalNotFound):
        raise error


def journal_id(folder: Path) -> str | None:
    """What tells this journal from one that was deleted and made anew in its place, in hexadecimal;
    None: nothing has been written yet. JournalCorrupt: a segment is a pipe or a folder, say."""
    for first in segments(folder):
        try:
            raw = read_regular(folder / segment_name(first), HEADER_SIZE)
        except FileNotFoundError:       # retention was faster
            continue
        if raw is None:
            path = folder / segment_name(first)
            raise JournalCorrupt(f"{path} is not a file", path=str(path), offset=first,
                                 fault="not a file")
        header = parse_segment(raw)
        if not isinstance(header, str):
            return header.journal.hex()
    return None


def torn_header(error: JournalCorrupt, first: int) -> bool:
    """A segment that was being made when the power went: nothing in it yet."""
    return error.offset == first and os.path.isfile(error.path) \
        and os.path.getsize(error.path) <= 512


def checkpoint(offset: int, durable: int, salt: int, low: int, high: int, flags: int = 0) -> bytes:
    """A block of no messages. All below `durable` was synced before."""
    rest = struct.pack("<qQIIqqqIIQQQQ32x", offset, BLOCK_HEADER_SIZE, 0, flags, durable, low, high,
                       0, 0, 0, 0, 0, 0)
    return b"MQB1" + struct.pack("<I", checksum(struct.pack("<Q", salt) + rest)) + rest
