"""Compaction: of the messages with the same key, only the newest stays.

It works beside a running writer, in segments that no writer comes back to. It reads all messages
for their keys and notes which of them are superseded. If the table of keys is full, the rest needs
another table, and what is in front of that is read once more. Then each segment that gets smaller
is written anew, the oldest first, as `.OFFSET.compact`:

1. the new file; fsync
2. its index goes, and the new file takes the old one's place; not while a writer removes segments
3. fsync of the folder, before the next segment: a tombstone never goes before what it hides
4. when all are done, the file `compacted`; see store/horizon.py

A crash leaves each segment as it was, or whole and compacted. The next call goes on.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from errno import EIO
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.journal.errors import JournalLocked, write_error
from mqcore.journal.later import np
from mqcore.journal.listing import not_found
from mqcore.journal.reader import Reader
from mqcore.journal.records import bits, of_block
from mqcore.journal.rewriting import KEYS, MERGED, NULLS, STAMPS, Rewriter
from mqcore.journal.store.exclusive import CompactionLock, TopicLock, missing
from mqcore.journal.store.horizon import advance, limit, read_horizon
from mqcore.journal.store.indexing import index_segment
from mqcore.journal.store.place import (
    HALF,
    partition_folder,
    partition_numbers,
    segment_name,
    settled_segments,
    sync_folder,
)
from mqcore.journal.store.recovery import ORDER, SHORT, check_chain, own_segment, owner_of
from mqcore.journal.store.scan import HEADER_SIZE, Block
from mqcore.journal.store.segment import Segment
from mqcore.journal.store.snapshot import MOST_BYTES, MOST_PRODUCERS, covered
from mqcore.journal.store.sparse import forget_index
from mqcore.journal.writer import Writer
from mqcore.journal.writer_options import check_limit

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENTRY = 200             # bytes that a key takes in the table
DIGEST = 16             # bytes of a key's hash
CHUNK = 1 << 16         # offsets
GAPS = 16               # of a mirror's segment, say, which are worth to be put together
FAR = 1 << 62
LIMITS: dict[str, tuple[float, float]] = {
    "keep_tombstones": (0, 1e9), "min_share": (0, 1), "max_memory": (1 << 16, 1 << 40)}


@dataclass(frozen=True)
class Compacted:
    """What was done to a partition. Of its `segments` that are complete, `rewritten` were written
    anew, which removed `removed` messages and freed `freed` bytes. `left` of them have messages
    that could go, and were left as they are."""

    topic: str
    partition: int
    segments: int = 0
    rewritten: int = 0
    removed: int = 0
    freed: int = 0
    left: int = 0


@dataclass(frozen=True)
class _How:
    keep_tombstones: float
    min_share: float
    most: int               # keys in the table


class _NotSmaller(Exception):
    """The new file would free too little."""


def compact(where: str | os.PathLike[str], topic: str, partition: int | None,
            keep_tombstones: float, min_share: float, max_memory: int) -> list[Compacted]:
    """See mqcore.journal.compact."""
    for name, value in (("keep_tombstones", keep_tombstones), ("min_share", min_share)):
        check_limit(name, value, float, LIMITS)
    check_limit("max_memory", max_memory, int, LIMITS)
    how = _How(keep_tombstones, min_share, max_memory // ENTRY)
    home = partition_folder(where, topic, partition or 0).parent
    if not home.is_dir():
        raise not_found(where, topic, partition)
    with TopicLock(home, shared=True):      # it is not renamed meanwhile
        numbers = [one for one in partition_numbers(home) if partition in (None, one)]
        if not numbers:
            raise not_found(where, topic, partition)
        return [_Compaction(home / str(number), topic, number, how).run() for number in numbers]


class _Compaction:
    """Of one partition."""

    def __init__(self, folder: Path, topic: str, partition: int, how: _How) -> None:
        self.folder, self.how = folder, how
        self.done = Compacted(topic, partition)
        self.gone = _Offsets()  # of the messages of which a later one has the key
        self.left = 0           # segments
        self.reach = FAR        # below, none of those is left
        self.last = -1          # the newest message, which stays

    def run(self) -> Compacted:
        with CompactionLock(self.folder) as self.lock:
            if not self.lock.is_of(self.folder):
                raise missing(self.folder)
            self.lock.sweep(self.folder)
            self._look()
            if self.closed:
                self._compact()
        return replace(self.done, segments=len(self.closed), left=self.left)

    def _look(self) -> None:
        """What there is: `firsts`, of which `closed` are complete, and `durable`."""
        with Reader(self.folder, self.done.topic, self.done.partition) as reader:
            self.durable = reader.durable
        while True:
            self.firsts = settled_segments(self.folder)
            try:
                check_chain(self.folder, self.firsts)
                while self.firsts and not self._is_begun(self.firsts[-1]):
                    self.firsts.pop()
                break
            except FileNotFoundError:       # retention was faster
                continue
        self.rows = list(zip(self.firsts, [*self.firsts[1:], None], strict=False))
        self.closed = [(first, following) for first, following in self.rows
                       if following is not None and following <= self.durable]
        self.owner = owner_of(self.folder, self.firsts) or b""

    def _is_begun(self, first: int) -> bool:
        """Whether it has a block: then no writer comes back to the segments before it."""
        path = self.folder / segment_name(first)
        if path.stat().st_size <= HEADER_SIZE:
            return False
        segment = own_segment(self.folder, first, None)
        try:
            return isinstance(segment.block(HEADER_SIZE, segment.size(), verify=False), Block)
        finally:
            segment.close()

    def _compact(self) -> None:
        until = time.time_ns() // 1000 - round(self.how.keep_tombstones * 1e6)
        rows = read_horizon(self.folder, self.owner)
        self.covered, self.unsure = covered(self.folder, self.owner), True
        sync_folder(self.folder)        # what a killed compaction or writer has renamed
        self.horizon = FAR if not self.how.keep_tombstones else limit(rows, until)
        self._find()
        for first, following in self.closed:
            self._clean(first, following)
        advance(self.folder, self.owner, rows, min(self.reach, self.closed[-1][1]),
                time.time_ns() // 1000, until)

    # -- reading --

    def _blocks(self, first: int, following: int | None, verify: bool,
                opened: Segment | None = None) -> Iterator[Block]:
        """Of a segment; of the last one, those that are durable. Nothing, if retention has removed
        it. JournalCorrupt."""
        try:
            segment = opened or own_segment(self.folder, first, self.owner)
        except FileNotFoundError:
            return
        try:
            size, pos, at = segment.size(), HEADER_SIZE, first
            while pos < size and (following is not None or at < self.durable):
                block = segment.readable(pos, size, verify)
                if isinstance(block, int):
                    raise segment.corrupt(pos, at, block, "nothing is compacted")
                if block.first != at and (block.count or block.first < at):
                    raise segment.corrupt(pos, at, ORDER, "nothing is compacted")
                yield block
                pos, at = pos + block.size, block.end
            if following is not None and at != following:
                raise segment.corrupt(pos, at, SHORT, f"the next segment begins at {following}")
        finally:
            if opened is None:
                segment.close()

    def _find(self) -> None:
        """Note the messages of which a later one has the key. Reads, and verifies, everything."""
        start = self.firsts[0]
        while start < FAR:
            table: dict[bytes, int] = {}
            begun, start = start, self._learn(table, start, verify=self.last < 0)
            if begun > self.firsts[0]:
                for block in self._until(begun):
                    for offset, digest in _keyed(block):
                        if digest in table and offset < begun:
                            self.gone.add(offset)

    def _until(self, offset: int) -> Iterator[Block]:
        """Complete blocks with messages in front of this offset."""
        for first, following in self.closed:
            if first < offset:
                yield from (block for block in self._blocks(first, following, False)
                            if block.count and block.first < offset)

    def _learn(self, table: dict[bytes, int], start: int, verify: bool) -> int:
        """The newest offset of each key of the messages from `start` on; where the table is full,
        or FAR."""
        full = FAR
        for first, following in self.rows:
            if following is not None and following <= start:
                continue
            for block in self._blocks(first, following, verify):
                if not block.count:
                    continue
                self.last = max(self.last, min(block.end, self.durable) - 1)
                if full == FAR and block.end > start:
                    full = self._take(table, block, start)
            if full < FAR and not verify:
                break
        return full

    def _take(self, table: dict[bytes, int], block: Block, start: int) -> int:
        durable, most, gone = self.durable, self.how.most, self.gone
        for offset, digest in _keyed(block):
            if not start <= offset < durable:
                continue
            known = table.get(digest)
            if known is not None:
                gone.add(known)
            elif len(table) >= most:
                return offset
            table[digest] = offset
        return FAR

    # -- what goes --

    def _goes(self, block: Block) -> NDArray[Any] | None:
        """Which messages go: one byte for each; None: all stay. A block that may have tombstones
        must be readable."""
        if not block.count:
            return None
        below = min(self.reach, self.horizon, self.last)
        tombs = block.flags & NULLS and block.flags & KEYS and block.first < below
        if tombs or block.compacted:
            records = of_block(block, "", 0)
            offsets = records._all_offsets()
        found = self.gone.of(offsets) if block.compacted else \
            self.gone.among(block.first, block.count)
        if tombs:
            valid, keys = (bits(records._columns[name], 0, block.count)
                           for name in ("value_valid", "key_valid"))
            buried = (keys > valid) & (offsets < below)
            found = buried if found is None else found | buried
        return found if found is not None and found.any() else None

    def _clean(self, first: int, following: int) -> None:
        older = self.gone.has(first, following)
        found = stamped = False
        gaps, size = 0, 0
        for block in self._blocks(first, following, False):
            gaps, size = gaps + (block.compacted and not block.count), size + block.size
            if self._goes(block) is not None:
                found = True
                stamped = stamped or bool(block.flags & STAMPS)
        if not found and gaps <= GAPS + size // MERGED:
            return
        path = self.folder / segment_name(first)
        try:
            fits = stat.S_ISREG(os.lstat(path).st_mode)
        except FileNotFoundError:       # retention was faster
            return
        if fits and (not stamped or self._is_covered(following)) \
                and self._rewrite(path, following, found):
            return
        self.left += found
        if older:
            self.reach = min(self.reach, first)

    def _is_covered(self, following: int) -> bool:
        """Whether a writer that deduplicates needs no stamps in front of this offset. If no writer
        runs, one remembers its producers now."""
        if following > self.covered and self.unsure:
            self.unsure = False
            with contextlib.suppress(JournalLocked), \
                    Writer(self.folder, self.done.topic, self.done.partition, fsync="never",
                           stamps=True, deduplicate=True, mirror=True,
                           max_producers=MOST_PRODUCERS, max_producer_bytes=MOST_BYTES):
                pass
            self.covered = covered(self.folder, self.owner)
            sync_folder(self.folder)
        return following <= self.covered

    def _rewrite(self, path: Path, following: int, goes: bool) -> bool:
        """goes: some messages do. False: it would get larger. A segment that retention has removed
        needs nothing."""
        try:
            segment = own_segment(self.folder, int(path.stem), self.owner)
        except FileNotFoundError:
            return True
        new = self.folder / f".{path.stem}{HALF}"
        try:
            removed = self._write(new, segment, following, goes)
            freed = segment.size() - new.stat().st_size
            with self.lock.changing():
                if segment.is_replaced():
                    return True
                forget_index(path)
                os.replace(new, path)
            sync_folder(self.folder)
        except _NotSmaller:
            return False
        except OSError as error:
            raise write_error(error.errno or EIO, path, hint="make room, and compact again; this "
                              "segment is as it was") from error
        finally:
            segment.close()
            new.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            index_segment(self.folder, segment.first)
        done = self.done
        self.done = replace(done, rewritten=done.rewritten + 1, removed=done.removed + removed,
                            freed=done.freed + freed)
        return True

    def _write(self, new: Path, segment: Segment, following: int, goes: bool) -> int:
        """How many messages are gone in the new file. It is durable on return, its name is not."""
        old = os.fstat(segment.fd)
        room = old.st_size * (1 - self.how.min_share) if goes else old.st_size - 1
        removed = written = 0
        with open(new, "xb") as stream:
            os.fchmod(stream.fileno(), stat.S_IMODE(old.st_mode))
            with contextlib.suppress(OSError):
                os.fchown(stream.fileno(), old.st_uid, old.st_gid)

            def put(raw: bytes) -> None:
                nonlocal written
                written += len(raw)
                if written > room:
                    raise _NotSmaller
                stream.write(raw)

            rewriter = Rewriter(segment, following, put)
            for block in self._blocks(segment.first, following, True, segment):
                rows = self._goes(block)
                rewriter.add(block, None if rows is None else ~rows)
                removed += 0 if rows is None else int(rows.sum())
            rewriter.finish()
            stream.flush()
            os.utime(stream.fileno(), ns=(old.st_atime_ns, old.st_mtime_ns))    # for retain_age
            os.fsync(stream.fileno())
        return removed


class _Offsets:
    """A set of offsets, a bit for each. Far apart, they take no memory in between."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    def add(self, offset: int) -> None:
        at = offset // CHUNK
        if at not in self._chunks:
            self._chunks[at] = bytearray(CHUNK // 8)
        self._chunks[at][offset % CHUNK >> 3] |= 1 << (offset & 7)

    def among(self, first: int, n: int) -> NDArray[Any] | None:
        """Which of the n offsets from `first` on are in it; None: none of them."""
        found = None
        for at in range(first // CHUNK, (first + n - 1) // CHUNK + 1):
            if at in self._chunks:
                low, high = max(first, at * CHUNK), min(first + n, (at + 1) * CHUNK)
                some = bits(np.frombuffer(self._chunks[at], np.uint8), low - at * CHUNK,
                            high - at * CHUNK)
                found = np.zeros(n, bool) if found is None else found
                found[low - first:high - first] = some
        return found

    def of(self, offsets: NDArray[Any]) -> NDArray[Any]:
        """Which of these offsets, that ascend and may be far apart, are in it."""
        found = np.zeros(len(offsets), bool)
        ends = [*np.flatnonzero(np.diff(offsets // CHUNK)) + 1, len(offsets)]
        for low, high in pairwise([0, *ends]):
            start = int(offsets[low])
            if (some := self.among(start, int(offsets[high - 1]) - start + 1)) is not None:
                found[low:high] = some[offsets[low:high] - start]
        return found

    def has(self, first: int, end: int) -> bool:
        """Whether one from `first` to `end` - 1 is in it."""
        for at in self._chunks:
            low, high = max(first, at * CHUNK), min(end, (at + 1) * CHUNK)
            if low < high and (found := self.among(low, high - low)) is not None and found.any():
                return True
        return False


def _keyed(block: Block) -> Iterator[tuple[int, bytes]]:
    """Of each message that has a key: its offset, and the key's hash."""
    if not block.flags & KEYS:
        return
    records = of_block(block, "", 0)
    columns = records._columns
    rows = np.flatnonzero(bits(columns["key_valid"], 0, block.count))
    raw, at = columns["keys"].tobytes(), columns["key_ends"].tolist()
    for row, offset in zip(rows.tolist(), records._all_offsets()[rows].tolist(), strict=True):
        yield offset, blake2b(raw[at[row]:at[row + 1]], digest_size=DIGEST).digest()
