"""A complete segment, written anew without the messages that compaction removes.

Every offset stays. What is left of several blocks shares one, which is sparse if messages between
were removed. A checkpoint with the flag `compacted` stands where whole blocks are gone, and what a
repair has declared lost stays lost. Large blocks of which everything stays are copied as they are,
with a new CRC of their header.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from mqcore.journal.later import np
from mqcore.journal.records import LAYOUT, Records, joined, of_block
from mqcore.journal.store.compressors import codec
from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import CHUNK
from mqcore.journal.store.scan import (
    ALIGNMENT,
    BLOCK_HEADER_SIZE,
    COMPRESSED_VERSION,
    HEADER_SIZE,
    Block,
)
from mqcore.journal.store.segment import Segment, checkpoint

if TYPE_CHECKING:
    from numpy.typing import NDArray

# flags of a block; FORMAT.md
KEYS, HEADERS, STAMPS, ZSTD, LZ4, NULLS, COMPACTED, LIVES = 1, 2, 4, 8, 16, 32, 64, 128
PACKED = ZSTD | LZ4
WHOLE = 64 << 10        # bytes of a block that is copied as it is
MERGED = 1 << 20        # bytes of messages that are put into one block
UNPACKED_MAX = 256 << 20
SPAN_MAX = (1 << 31) - 1
NEVER = (1 << 63) - 1, -(1 << 63)
COLUMNS_OF = {KEYS: ("key_ends", "key_valid", "keys"), NULLS: ("value_valid",),
              HEADERS: ("header_ends", "name_ends", "names", "datum_ends", "data"),
              STAMPS: ("producers", "sequences", "sent"), LIVES: ("lives",)}


class Rewriter:
    """`put` takes the bytes, in order. following: where the next segment begins."""

    def __init__(self, segment: Segment, following: int, put: Callable[[bytes], object]) -> None:
        self._segment, self._following, self._put = segment, following, put
        self._salt = os.urandom(8)
        self._source = self._at = segment.first     # what was read, and what was written, leads to
        self._low, self._high = NEVER
        self._parts: list[Records] = []             # not written yet
        self._bytes = self._packing = 0             # of them; how they are compressed
        put(self._header())

    def _header(self) -> bytes:
        raw = os.pread(self._segment.fd, HEADER_SIZE, 0)
        rest = raw[16:48] + self._salt + raw[56:]
        return raw[:8] + struct.pack("<II", COMPRESSED_VERSION, checksum(rest)) + rest

    def add(self, block: Block, keep: NDArray[Any] | None) -> None:
        """The next block of the segment. keep: which messages stay; None: all."""
        if not block.count:
            if block.first > self._source and not block.compacted:
                self._lost(block.first)
        elif keep is None and block.size >= WHOLE:
            self._copy(block)
        else:
            records = of_block(block, "", 0)
            for start, stop in _runs(keep, block.count):
                self._add(records.slice(start, stop), block.flags & PACKED)
        self._source = block.end

    def finish(self) -> None:
        self._flush()
        self._checkpoint(self._following, COMPACTED if self._at < self._following else 0)

    def _lost(self, offset: int) -> None:
        self._flush()
        self._gap(self._source)
        self._checkpoint(offset)

    def _gap(self, offset: int) -> None:
        if offset > self._at:
            self._checkpoint(offset, COMPACTED)

    def _checkpoint(self, offset: int, flags: int = 0) -> None:
        salt = int.from_bytes(self._salt, "little")
        self._put(checkpoint(offset, offset, salt, self._low, self._high, flags))
        self._at = offset

    def _copy(self, block: Block) -> None:
        self._flush()
        self._gap(block.first)
        fd, pos, end = self._segment.fd, block.pos + BLOCK_HEADER_SIZE, block.pos + block.size
        self._put(self._sealed(os.pread(fd, BLOCK_HEADER_SIZE, block.pos)[8:]))
        while pos < end:
            raw = os.pread(fd, min(CHUNK, end - pos), pos)
            if not raw:
                raise self._segment.corrupt(pos, block.first, 1)
            self._put(raw)
            pos += len(raw)
        self._wrote(block.end, block.low, block.high)

    def _sealed(self, rest: bytes) -> bytes:
        return b"MQB1" + struct.pack("<I", checksum(self._salt + rest)) + rest

    def _wrote(self, offset: int, low: int, high: int) -> None:
        self._at = offset
        self._low, self._high = min(self._low, low), max(self._high, high)

    def _add(self, part: Records, packing: int) -> None:
        if self._parts and (packing != self._packing or self._bytes + part.size > MERGED
                            or part.next - self._parts[0].first > SPAN_MAX):
            self._flush()
        self._parts.append(part)
        self._packing = packing
        self._bytes += part.size

    def _flush(self) -> None:
        if self._parts:
            records = joined(self._parts)
            self._parts, self._bytes = [], 0
            self._gap(records.first)
            rest, body = encoded(records, self._packing)
            self._put(self._sealed(rest) + body)
            times = records._microseconds
            self._wrote(records.next, int(times.min()), int(times.max()))


def _runs(keep: NDArray[Any] | None, n: int) -> Iterator[tuple[int, int]]:
    """Of those that stay: from, to."""
    if keep is None:
        return iter([(0, n)])
    edges = np.flatnonzero(np.diff(np.concatenate(([0], keep.astype(np.int8), [0])))).tolist()
    return zip(edges[::2], edges[1::2], strict=True)


def encoded(records: Records, packing: int) -> tuple[bytes, bytes]:
    """A block: its header behind the CRC, and its columns. records: as joined() makes them."""
    columns = dict(records._columns)
    first, span = records.first, records.next - records.first
    flags = COMPACTED if span > len(records) else 0
    for flag, names in COLUMNS_OF.items():
        if names[0] in columns and (flag == STAMPS or _used(columns, flag, len(records))):
            flags |= flag
        else:
            for name in names:
                columns.pop(name, None)
    pieces = []
    for name, dtype in LAYOUT:
        if name in columns:
            raw = np.ascontiguousarray(columns[name], dtype).tobytes()
            pieces += [raw, bytes(-len(raw) % ALIGNMENT)]
    if flags & COMPACTED:
        raw = (records._all_offsets() - first).astype(np.uint32).tobytes()
        pieces += [raw, bytes(-len(raw) % ALIGNMENT)]
    body, packed = b"".join(pieces), 0
    if packing and len(body) <= UNPACKED_MAX:
        done = codec("zstd" if packing == ZSTD else "lz4").compress(body, asbytes=True)
        padding = -len(done) % ALIGNMENT
        if len(done) + padding < len(body):
            body, packed, flags = done + bytes(padding), len(done), flags | packing
    sizes = [len(columns.get(name, b"")) for name in ("values", "keys", "names", "data")]
    times = records._microseconds
    return struct.pack("<qQIIqqqIIQQQQQQ16x", first, BLOCK_HEADER_SIZE + len(body),
                       len(records), flags, first, int(times.min()), int(times.max()),
                       checksum(body), len(columns.get("name_ends", b" ")) - 1, *sizes, packed,
                       span if flags & COMPACTED else 0), body


def _used(columns: dict[str, Any], flag: int, n: int) -> bool:
    """Whether the optional columns say anything."""
    if flag == HEADERS:
        return len(columns["name_ends"]) > 1
    if flag == LIVES:
        return bool(columns["lives"].any())
    column = columns["value_valid" if flag == NULLS else "key_valid"]
    found = np.unpackbits(column, count=n, bitorder="little")
    return not found.all() if flag == NULLS else bool(found.any())
