"""The file `durable`: up to where the writer has synced its partition, for readers that hand out
nothing else. FORMAT.md has the bytes.

The writer overwrites it in place after each sync (`log_show()`), and does not sync it: what it says
was true before it was written. If it is missing, torn or of another journal, the blocks' headers
say the same, one block later.
"""

from __future__ import annotations

import struct
from pathlib import Path

from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import at_once

NAME = "durable"
_FORM = struct.Struct("<16sqII")
TRIES = 3               # the writer may be writing it


def read_durable(folder: Path, journal: bytes | None = None) -> int:
    """The offset below which all is durable; 0: the file does not say. journal: its id, if the file
    may be another's."""
    whose, offset, _ = _read(folder)
    return offset if journal is None or whose == journal else 0


def closed_at(folder: Path, journal: bytes | None = None) -> int:
    """The offset at which the last writer closed the journal; 0: it did not, or nothing says so."""
    whose, offset, closed = _read(folder)
    return offset if closed and (journal is None or whose == journal) else 0


def durable_id(folder: Path) -> bytes:
    """The journal's id in the file; b"" without a valid file."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[bytes, int, bool]:
    """(id, offset, whether the writer has closed the journal)"""
    try:
        with open(folder / NAME, "rb", buffering=0, opener=at_once) as file:
            for _ in range(TRIES):
                file.seek(0)
                raw = file.read(_FORM.size)
                if len(raw) < _FORM.size:
                    break
                whose, offset, crc, closed = _FORM.unpack(raw)
                if crc == checksum(raw[:24]):
                    return whose, int(offset), closed == 1
    except OSError:
        pass
    return b"", 0, False
