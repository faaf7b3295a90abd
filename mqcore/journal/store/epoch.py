"""The file `epoch`: which promotions a journal has been through, and whether a newer one has made
another copy the primary. FORMAT.md has the bytes.

A journal without the file is in epoch 0. `promote()` in promotion.py adds an entry: a mirror that
becomes the primary begins a new epoch at its next offset. Two copies of a journal hold the same
messages up to where the first entry begins that only one of them has.

The file is replaced as a whole, with the writer's lock held or by a mirror that holds it.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from mqcore.errors import UsageError
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.store import place
from mqcore.journal.store.core import checksum
from mqcore.journal.store.segment import journal_id

NAME = "epoch"
MAGIC, VERSION = b"MQEPOC\r\n", 1
MOST = 4096             # entries; each is a promotion
_HEAD = struct.Struct("<8sII16s16s16sIIII")
_ENTRY = struct.Struct("<qqq16s")
PRIMARY, MIRROR = 0, 1


@dataclass(frozen=True)
class Entry:
    """A promotion: `epoch` began at the offset `start`. `token`: tells it from another promotion
    with the same number. `time`: when, in microseconds since 1970; it decides nothing."""

    epoch: int
    start: int
    token: bytes
    time: int = field(default=0, compare=False)


History = tuple[Entry, ...]


@dataclass(frozen=True)
class Epochs:
    """`own`: the promotions that this copy has been through. `newer`: those of another copy that
    have fenced this one; () if none have. `mirror`: a mirror wrote to this copy last. `origin`: the
    id of the journal that all copies come from; b"": this one's own. `intent`: the token of a
    promotion that has begun and may have been interrupted."""

    own: History = ()
    newer: History = ()
    mirror: bool = False
    origin: bytes = b""
    intent: bytes = b""

    @property
    def number(self) -> int:
        return self.own[-1].epoch if self.own else 0

    @property
    def fenced(self) -> bool:
        return bool(self.newer)

    def fenced_by(self, theirs: History) -> Epochs:
        """The same copy, fenced by another one that has this history."""
        return replace(self, newer=theirs[len(common(self.own, theirs)):])

    def promoted(self, offset: int, token: bytes) -> Epochs:
        if len(self.own) >= MOST:
            raise UsageError(f"the journal has been promoted {MOST} times, the limit",
                             hint="begin a new journal")
        entry = Entry(self.number + 1, offset, token, time.time_ns() // 1000)
        return Epochs((*self.own, entry), origin=self.origin)


def common(one: History, other: History) -> History:
    """The promotions that both have been through."""
    n = 0
    while n < min(len(one), len(other)) and one[n] == other[n]:
        n += 1
    return one[:n]


def parting(one: History, other: History) -> int | None:
    """The offset from which on two copies with these histories may differ; None: they have the
    same history."""
    n = len(common(one, other))
    return min((entry.start for entry in (*one[n:], *other[n:])), default=None)


def newer(one: History, other: History) -> bool:
    """Whether the second has been through promotions that the first has not, and otherwise through
    the same ones."""
    return len(other) > len(one) == len(common(one, other))


# -- the file --------------------------------------------------------------------------------------


def read_epochs(folder: Path, journal: bytes | None = None) -> Epochs:
    """journal: the id of the journal there; a file of another journal says nothing about it.
    JournalCorrupt: the file is damaged, so it is unknown whether the journal may be written."""
    path = folder / NAME
    try:
        raw = place.read_regular(path, _HEAD.size + 2 * MOST * _ENTRY.size + 1)
    except FileNotFoundError:
        return Epochs()
    found = _parsed(raw or b"")
    if found is None:
        raise JournalCorrupt(
            f"{path} is damaged, so it is unknown whether this journal was replaced by a promoted "
            "mirror", path=str(path), fault="no valid file of epochs",
            hint="compare the journal with its mirrors; if none was promoted, delete the file")
    whose, epochs = found
    return epochs if journal is None or whose == journal else Epochs()


def _parsed(raw: bytes) -> tuple[bytes, Epochs] | None:
    if len(raw) < _HEAD.size:
        return None
    magic, version, crc, journal, origin, intent, role, own, newer_, zero = _HEAD.unpack_from(raw)
    rest = raw[_HEAD.size:]
    if (magic, version, zero) != (MAGIC, VERSION, 0) or crc != checksum(raw[16:]) \
            or role not in (PRIMARY, MIRROR) or max(own, newer_) > MOST \
            or len(rest) != (own + newer_) * _ENTRY.size:
        return None
    entries = tuple(Entry(epoch, start, token, when)
                    for epoch, start, when, token in _ENTRY.iter_unpack(rest))
    return journal, Epochs(entries[:own], entries[own:], role == MIRROR,
                           origin if any(origin) else b"", intent if any(intent) else b"")


def write_epochs(folder: Path, journal: bytes, epochs: Epochs) -> None:
    """Durable on return, and never half."""
    rest = struct.pack("<16s16s16sIIII", journal, epochs.origin, epochs.intent,
                       MIRROR if epochs.mirror else PRIMARY, len(epochs.own), len(epochs.newer), 0)
    for entry in (*epochs.own, *epochs.newer):
        rest += _ENTRY.pack(entry.epoch, entry.start, entry.time, entry.token)
    place.replace(folder / NAME, MAGIC + struct.pack("<II", VERSION, checksum(rest)) + rest)


def new_token() -> bytes:
    return os.urandom(16)


class EpochsOf:
    """What the file of a folder says, read again only if it was replaced. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int] | None = None
        self._known = Epochs()

    def look(self) -> Epochs:
        try:
            found = os.stat(self._folder / NAME)
            seen = found.st_ino, found.st_mtime_ns
        except FileNotFoundError:
            seen = 0, 0
        if seen != self._seen:
            self._known = Epochs() if seen == (0, 0) else read_epochs(
                self._folder, bytes.fromhex(journal_id(self._folder) or "") or None)
            self._seen = seen
        return self._known
