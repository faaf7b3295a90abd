"""A writer makes the index of each segment that it has ended, once another one follows it. It does
so behind its back, after a rotation: see sparse.py."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from mqcore.journal.errors import JournalError
from mqcore.journal.store.place import segment_name, segments
from mqcore.journal.store.segment import EVERYTHING, STRIDE, Segment
from mqcore.journal.store.sparse import SUFFIX, forget_index, index_file, load_index, save_index

SMALLEST = 4 * STRIDE   # bytes of a segment that gets one


def index_ended(folder: Path, since: int) -> int:
    """Of the segments from the one in front of `since` on, as far as they have none; what to give
    the next time. What cannot be read or written gets none. With the writer's lock."""
    firsts = segments(folder)
    _sweep(folder, firsts)
    for first, following in zip(firsts, firsts[1:], strict=False):
        if following >= since:
            with contextlib.suppress(OSError, JournalError):
                index_segment(folder, first)
    return firsts[-1] if firsts else since


def remove_ended(folder: Path, first: int) -> None:
    """The segment and its index."""
    os.unlink(folder / segment_name(first))
    with contextlib.suppress(OSError):
        forget_index(folder / segment_name(first))


def index_segment(folder: Path, first: int) -> None:
    """Unless it is small, or has one."""
    segment = Segment(folder, first)
    try:
        size = segment.size()
        if size >= SMALLEST and load_index(segment.path, segment.salt, size) is None:
            segment.find(EVERYTHING, size)
            found = segment.index
            save_index(segment.path, segment.salt, size,
                       (found.positions, found.offsets, found.highs))
    finally:
        segment.close()


def _sweep(folder: Path, firsts: list[int]) -> None:
    """Remove those of segments that are gone, and what a killed writer has left half written."""
    names = {index_file(folder / segment_name(first)).name for first in firsts}
    for name in os.listdir(folder):
        if name.endswith(SUFFIX) and name not in names:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)
