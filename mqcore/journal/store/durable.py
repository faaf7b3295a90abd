"""The file `durable`: up to where the writer has synced its partition, for readers that hand out
nothing else. FORMAT.md has the bytes.

The writer overwrites it in place after each sync (`log_show()`), and does not sync it: what it says
was true before it was written. So a journal that ends before that offset has lost its end. If the
file is missing, torn or of another journal, the blocks' headers say the same, one block later.
"""

from __future__ import annotations

import os
import struct
from errno import ESPIPE
from pathlib import Path
from stat import S_ISREG

from mqcore.journal.errors import JournalCorrupt, write_error
from mqcore.journal.store.core import checksum
from mqcore.journal.store.place import at_once, replace

NAME = "durable"
MISSING = "the end is missing: the file `durable` says that there were more messages"
HINT = ("bring back the segment files as they were, from a backup or a mirror; or run `mq journal "
        "repair`, which gives up what is missing and gives none of its offsets out again. A copy "
        "that was made with cp while a writer was running may lack its end, too")
_FORM = struct.Struct("<16sqII")
TRIES = 3               # the writer may be writing it


def open_shown(folder: int, path: Path) -> int:
    """The file, for the writer, in a folder that is open. JournalWriteError, JournalFull: without
    it, readers would not see what is durable."""
    try:
        fd = os.open(NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=folder)
        if os.fstat(fd).st_nlink > 1:       # a copy of the folder by hard links has it, too
            fd = _own(fd, folder, path)
    except OSError as error:
        raise write_error(error.errno or 0, path / NAME) from error
    if S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise write_error(ESPIPE, path / NAME)


def _own(shared: int, folder: int, path: Path) -> int:
    """Another file with the same bytes, in its place. OSError."""
    try:
        replace(path / NAME, os.pread(shared, _FORM.size, 0))
    finally:
        os.close(shared)
    return os.open(NAME, os.O_RDWR | os.O_CLOEXEC, dir_fd=folder)


def read_durable(folder: Path, journal: bytes | None = None) -> int:
    """The offset below which all is durable; 0: the file does not say. journal: its id, if the file
    may be another's."""
    whose, offset, _ = _read(folder)
    return offset if journal is None or whose == journal else 0


def write_durable(folder: Path, journal: bytes, offset: int) -> None:
    """For a copy that has no writer. Durable on return."""
    crc = checksum(_FORM.pack(journal, offset, 0, 0)[:24])
    replace(folder / NAME, _FORM.pack(journal, offset, crc, 1))


def missing_end(path: Path, journal: bytes | None, pos: int, end: int, known: tuple[bytes, int],
                fault: str = "") -> None:
    """JournalCorrupt if messages behind the last whole one, `end` - 1, were durable. known: what
    told() said before the segment was looked at, since a running writer adds to the segment first.
    journal: its id, None if the segment does not tell. fault: of what follows the last whole block,
    if anything does."""
    whose, durable = known
    if journal in (None, whose) and end < durable:
        raise JournalCorrupt(
            f"{path} at byte {pos} (message {end}): {fault or 'the file ends here'}, and "
            f"the messages up to {durable - 1} were durable",
            path=str(path), position=pos, offset=end, fault=fault or MISSING, hint=HINT)


def told(folder: Path) -> tuple[bytes, int]:
    """(the journal's id, the offset below which all is durable), for missing_end()."""
    return _read(folder)[:2]


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
