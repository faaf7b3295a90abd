"""A segment whose header is damaged, read without it.

All that a header has for the blocks behind it is the salt, which enters the CRC of each block's
header. A CRC is a register of 32 bits, so what a block keeps of the salt is the register behind the
salt's 8 bytes. A CRC can be computed backwards: one block tells that register, and any salt that
leads to it reads all the others.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import segment_name
from mqcore.journal.store.scan import ALIGNMENT, BLOCK_HEADER_SIZE, HEADER_SIZE, Block, Header
from mqcore.journal.store.segment import Segment

POLYNOMIAL = 0x82F63B78     # CRC-32C's, reflected; see crc32c.hpp
ONES = 0xFFFFFFFF
SALT_AT = 48                # in the segment's header
MAGIC = b"MQB1"
CHUNK = 1 << 20
PAGE = 4096
VOTES = 1000                # maximum number of blocks to examine


def salvaged(folder: Path, first: int) -> Segment | None:
    """The segment, with a salt that is confirmed: by what is left of the header, or by several
    blocks. None: there is none. Its header tells nothing else."""
    written = _written(folder, first)
    votes: Counter[int] = Counter()
    for crc, salt in islice(_salts(folder, first, written), VOTES):
        votes[salt] += 1
        if crc in written:
            return Segment(folder, first, _header(first, salt))
    # a message may hold what looks like blocks: they are outvoted
    salt, most = votes.most_common(1)[0] if votes else (0, 0)
    return Segment(folder, first, _header(first, salt)) if most > 1 else None


def _written(folder: Path, first: int) -> dict[int, int]:
    """The salt in the header by its CRC, and all that differ from it in one byte."""
    try:
        with open(folder / segment_name(first), "rb") as file:
            raw = os.pread(file.fileno(), 8, SALT_AT)
    except OSError:     # the disk does not give it
        return {}
    found = {}
    for i in range(len(raw)):
        for byte in range(256):
            salt = raw[:i] + bytes([byte]) + raw[i + 1:]
            found[checksum(salt)] = int.from_bytes(salt, "little")
    return found


def _salts(folder: Path, first: int, written: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Of everything that looks like a block: the CRC of its salt, and a salt that has this CRC."""
    size = os.stat(folder / segment_name(first)).st_size
    if size < HEADER_SIZE + BLOCK_HEADER_SIZE:
        return
    known = dict(written)
    with open(folder / segment_name(first), "rb") as file:
        behind = 0
        for pos, raw in _headers(file.fileno(), size):
            if pos < behind:
                continue
            crc = salt_crc(raw)
            salt = known.get(crc)
            if salt is None:
                salt = salt_with(crc)
            block = _block(folder, first, salt, pos, size)
            if block is not None:
                known[crc] = salt
                yield crc, salt
                behind = pos + block.size


def _headers(fd: int, size: int) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of what may be a block's header. What the disk does not give is passed
    over, page by page."""
    pos = HEADER_SIZE
    while pos + BLOCK_HEADER_SIZE <= size:
        try:
            raw = os.pread(fd, CHUNK + BLOCK_HEADER_SIZE, pos)
        except OSError:
            try:
                raw = os.pread(fd, PAGE - pos % PAGE, pos)
            except OSError:
                pos += PAGE - pos % PAGE
                continue
        if len(raw) < BLOCK_HEADER_SIZE:
            pos += max(len(raw), 1)
            continue
        at = raw.find(MAGIC)
        while 0 <= at <= len(raw) - BLOCK_HEADER_SIZE:
            if (pos + at) % ALIGNMENT == 0:
                yield pos + at, raw[at:at + BLOCK_HEADER_SIZE]
            at = raw.find(MAGIC, at + 1)
        pos += len(raw) - BLOCK_HEADER_SIZE + ALIGNMENT


def _block(folder: Path, first: int, salt: int, pos: int, size: int) -> Block | None:
    segment = Segment(folder, first, _header(first, salt))
    try:
        block = segment.block(pos, size)
        return block if isinstance(block, Block) and block.first >= first else None
    finally:
        segment.close()


def _header(first: int, salt: int) -> Header:
    return Header(first, 0, bytes(16), salt, 0, b"", 0)


def salt_crc(block: bytes) -> int:
    """The CRC of the salt, by a block's header."""
    crc, rest = int.from_bytes(block[4:8], "little"), block[8:]
    behind = crc ^ checksum(rest, ONES)     # what the register before `rest` has become
    return _back(behind, len(rest)) ^ ONES


def salt_with(crc: int) -> int:
    """A salt that has this CRC."""
    front = os.urandom(4)
    register = checksum(front) ^ ONES ^ _back(crc ^ ONES, 4)
    return int.from_bytes(front + struct.pack("<I", register), "little")


def _back(register: int, zeros: int) -> int:
    """The CRC's register before so many zero bytes."""
    for _ in range(8 * zeros):
        register = (register ^ POLYNOMIAL) << 1 | 1 if register >> 31 else register << 1
    return register
