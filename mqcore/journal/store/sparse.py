"""The file *.index beside a segment that is complete: where in it about every mebibyte begins, so
that who looks for an offset or a time need not follow all blocks before it. indexing.py makes it.

Nothing depends on it: one that is missing, torn or of another file is passed over, and the blocks
are followed. FORMAT.md has the bytes.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import read_regular

SUFFIX = ".index"
MAGIC, VERSION = b"MQINDEX\n", 1
MOST = 1 << 16          # rows
_HEAD = struct.Struct("<8sIIQqq")
Columns = tuple[list[int], list[int], list[int]]    # positions, offsets, largest times before


def index_file(segment: Path) -> Path:
    return segment.with_suffix(SUFFIX)


def save_index(segment: Path, salt: int, size: int, columns: Columns) -> None:
    """Of a segment with so many bytes. It is not synced: a torn one is noticed."""
    step = -(-len(columns[0]) // MOST)
    thin = [column[::step] for column in columns]
    rest = struct.pack("<Qqq", salt, size, len(thin[0])) + b"".join(
        struct.pack(f"<{len(column)}q", *column) for column in thin)
    new = segment.with_name(f".{segment.stem}{SUFFIX}")
    try:
        new.write_bytes(MAGIC + struct.pack("<II", VERSION, checksum(rest)) + rest)
        os.replace(new, index_file(segment))
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def load_index(segment: Path, salt: int, size: int) -> Columns | None:
    """None: there is none that fits."""
    try:
        raw = read_regular(index_file(segment), _HEAD.size + 24 * MOST) or b""
    except OSError:
        return None
    if len(raw) < _HEAD.size:
        return None
    magic, version, crc, salted, sized, n = _HEAD.unpack_from(raw)
    if (magic, version, salted, sized) != (MAGIC, VERSION, salt, size) \
            or len(raw) != _HEAD.size + 24 * n or n == 0 or crc != checksum(raw[16:]):
        return None
    return tuple(list(struct.unpack_from(f"<{n}q", raw, _HEAD.size + 8 * n * i))
                 for i in range(3))     # type: ignore[return-value]


def forget_index(segment: Path) -> None:
    index_file(segment).unlink(missing_ok=True)
