"""The file `producers` of a mirror: what its source remembers of stamps whose messages have gone.

A mirror copies no message that compaction or retention has removed, so it cannot learn their stamps
from its segments. It takes the source's table instead. That tells of all messages below an offset,
so it becomes part of the mirror's own once everything below is durable there, and never before:
what is not durable is sent again after a power cut, and must be taken then. Compaction or retention
of the mirror may have made a table from its segments before that. What both know is merged.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mqcore.errors import Error, UsageError
from mqcore.journal.errors import JournalClosed, JournalError
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.segment import journal_id
from mqcore.journal.store.snapshot import (
    HEAD,
    MOST_BYTES,
    MOST_PRODUCERS,
    NAME,
    NOTHING,
    Version,
    load,
    parsed,
    piece,
)

if TYPE_CHECKING:
    from mqcore.journal.reader import Reader
    from mqcore.journal.writer import Writer

_log = logging.getLogger("mqcore.journal")
LOOK = 1.0              # seconds between two looks at the source's table
SOON = 0.1              # the same, while the mirror lacks stamps
PIECE = 8 << 20         # bytes that are asked for at a time
PATIENCE = 10.0         # seconds that the end of a mirror waits for the rest of a table
MOST = 256 << 20        # bytes of a table that is taken


class Remembered:
    """What the writer of a mirror remembers. `wanted`: the source has removed messages below this
    offset before they were copied."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader, self._writer = reader, writer
        self._wanted = self._has = 0    # _has: the offset of the last table of the source
        self._seen = NOTHING            # of the source's file, the version that was taken last
        self._next: tuple[int, bytes] | None = None     # offset and rows, not the mirror's own yet
        self._half: tuple[Version, bytearray] | None = None     # one on its way
        self._source = b""              # of a folder: its journal
        self._told = ""                 # what was warned of last
        self._looked = -LOOK
        self._old = False               # the server does not know the question

    def lacks(self, below: int) -> None:
        """The stamps of some messages below this offset, which are not there."""
        self._wanted = max(self._wanted, below)

    def forget(self) -> None:
        """The source is in another epoch: what was taken may tell of messages that are not in it.
        """
        self._next, self._half, self._seen = None, None, NOTHING

    def look(self, hurry: bool = False) -> None:
        """Now and then, if the source can be reached. hurry: now."""
        self._keep()
        now = time.monotonic()
        due = hurry or now - self._looked >= (SOON if self._wanted > self._has else LOOK)
        if due and reachable(self._reader):
            self._looked = now
            if self._next is None and not self._old:
                self._take()
                self._keep()

    def finish(self) -> None:
        """All that was copied is durable. Waits for a table that is on its way."""
        end = time.monotonic() + PATIENCE
        try:
            self.look(hurry=self._wanted > self._has)
            while self._half and reachable(self._reader) and time.monotonic() < end:
                self.look(hurry=True)
        except (Error, OSError) as error:
            self._warn(error)

    def _take(self) -> None:
        try:
            if self._half is None:
                version, _ = self._piece(0, 0)
                if version == self._seen or not _tells(version):
                    self._wanted = 0        # it has no more
                    return
                if version.size > MOST:
                    self._seen = version
                    raise ValueError(f"it has {version.size} bytes, more than {MOST}")
                self._half = version, bytearray()
            self._go_on(*self._half)
        except UsageError:              # a server that does not know the question
            self._old = True
        except JournalClosed:
            raise
        except (ValueError, OSError, JournalError) as error:    # messages are copied all the same
            self._half = None
            self._warn(error)

    def _go_on(self, version: Version, raw: bytearray) -> None:
        """A piece at a time: messages are copied meanwhile, and a mirror can be stopped."""
        now, some = self._piece(len(raw), PIECE)
        raw += some
        if now != version or not some and len(raw) < version.size:
            self._half = None           # it was replaced; the next look finds the new one
        elif len(raw) >= version.size:
            self._half, self._seen = None, version
            self._next = version.offset, _checked(bytes(raw), version)
        else:
            self._looked = -LOOK

    def _warn(self, error: Exception) -> None:
        """Not of the same one again and again."""
        if str(error) != self._told:
            self._told = str(error)
            _log.warning("the producers of %s are not copied: %s", self._reader.path, error)

    def _piece(self, at: int, most: int) -> tuple[Version, bytes]:
        remote = getattr(self._reader, "_producers_piece", None)
        if remote is not None:
            found: tuple[Version, bytes] = remote(at, most)
            return found
        path = Path(self._reader.path)
        # what takes the place of a source that was deleted is another one
        self._source = self._source or bytes.fromhex(journal_id(path) or "")
        return piece(path, self._source, at, most)

    def _keep(self) -> None:
        if self._next is None or self._next[0] > self._writer.durable:
            return
        offset, rows = self._next
        try:
            self._writer._adopt_producers(offset, rows)
        except OSError as error:        # a full disk; the next look tries again
            _log.warning("%s: %s", self._writer.path / NAME, error)
            return
        self._has, self._next = offset, None


def reachable(reader: Reader) -> bool:
    links = getattr(reader, "_linked", None)
    return links is None or bool(links())


def take_over(writer: Writer, last: Writer) -> None:
    """The table of a former primary, of which all was copied and is durable. Both locks are held.
    """
    table = ProducerTable(MOST_PRODUCERS, MOST_BYTES)
    offset, why = load(last.path, last._journal, table)
    rows = table.dump()
    if why:
        _log.warning("%s %s. The mirror that takes its place recognizes what is sent again, and "
                     "older lives, only by the messages that it has", last.path / NAME, why)
    elif (rows or offset) and offset <= writer.durable:
        writer._adopt_producers(offset, rows)


def _tells(version: Version) -> bool:
    """At 0 there may be lives: the source was repaired."""
    return version.offset > 0 or version.size > HEAD


def _checked(raw: bytes, version: Version) -> bytes:
    """Rows of the current version. ValueError: a server, or a damaged file, gave something else."""
    table = ProducerTable(MOST_PRODUCERS, MOST_BYTES)
    offset, why = parsed(raw, None, table)
    if why or offset != version.offset:
        raise ValueError(f"the table {why or 'is of another offset'}")
    return table.dump()
