"""The file `compacted` of a partition: when compaction had come how far.

A tombstone may go once every value that it hides is gone, and has been for so long that all readers
that have still seen one have come past the tombstone. The file says since when that is so: below
each of its offsets, no message was left, at its time, of which a later one has the key.

Without the file, or with one that does not fit, all tombstones stay for now.
"""

from __future__ import annotations

from pathlib import Path

from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import read_regular, replace

NAME = "compacted"
MOST = 64               # rows
Rows = list[tuple[int, int]]        # (offset, us since the epoch), both ascending


def read_horizon(folder: Path, journal: bytes) -> Rows:
    try:
        raw = read_regular(folder / NAME, 1 << 16) or b""
    except OSError:
        return []
    crc, _, rest = raw.partition(b"\n")
    if crc != b"%08x" % checksum(rest):
        return []
    try:
        whose, *lines = rest.decode("ascii").split()
        numbers = [int(one) for one in lines]
        found = list(zip(numbers[::2], numbers[1::2], strict=True))
    except ValueError:
        return []
    return found if whose == journal.hex() else []


def limit(rows: Rows, until: int) -> int:
    """Tombstones below this offset may go. until: us, when the values must have been gone."""
    return max((offset for offset, time in rows if time <= until), default=0)


def advance(folder: Path, journal: bytes, rows: Rows, offset: int, now: int, until: int) -> None:
    """Everything below `offset` is compacted now. Durable on return."""
    if offset <= max((known for known, _ in rows), default=0):
        return
    known = limit(rows, until)
    rows = [row for row in rows if row[0] >= known] + [(offset, now)]
    while len(rows) > MOST:     # the later ones say the same, later
        rows = [*rows[:-1:2], rows[-1]]
    rest = journal.hex() + "\n" + "".join(f"{at} {time}\n" for at, time in rows)
    replace(folder / NAME, b"%08x\n" % checksum(rest.encode()) + rest.encode())
