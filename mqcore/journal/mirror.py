"""Mirror: what one journal holds and gets, into another, offset by offset."""

from __future__ import annotations

import bisect
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.api.running import Running
from mqcore.base.waits import Event
from mqcore.errors import RecvTimeout, UsageError
from mqcore.journal.errors import (
    BROKEN,
    NO_FILES,
    JournalClosed,
    JournalDiverged,
    JournalFenced,
    OffsetGone,
)
from mqcore.journal.reader import Reader
from mqcore.journal.remembered import Remembered, reachable
from mqcore.journal.replicas import separate
from mqcore.journal.server.failover import mark
from mqcore.journal.store.epoch import Epochs, EpochsOf, newer, parting
from mqcore.journal.store.place import set_group_offset
from mqcore.journal.store.segment import journal_id
from mqcore.journal.writer import Writer

if TYPE_CHECKING:
    from mqcore.journal.records import Records

_log = logging.getLogger("mqcore.journal")

GROUPS = 1.0            # seconds between two looks at the source's consumer groups
MOST_GROUPS = 1000      # that are copied
LOOK = 0.2              # seconds between two looks at whether to end
SHORTAGE = 0.5          # seconds between two attempts while there are no descriptors
SILENCE = 60.0          # and between two lines of the log about that


@dataclass(frozen=True)
class MirrorStats:
    """gone: offsets that the source has no messages of any more. compacted: those whose messages
    compaction has removed there."""

    messages: int = 0
    bytes: int = 0
    gone: int = 0
    compacted: int = 0


class Mirror(Running):
    """A running mirror, made by `mqcore.device(reader, writer)`. Every message keeps its offset,
    time, key, headers and stamp. It goes on at `writer.next`, so after a crash nothing is there
    twice. What the source has lost, or has removed before it was copied, is skipped here too, which
    is counted and logged. It copies what is durable in the source, unless the reader was opened
    with durable=False: an offset that a power cut takes back may be given to another message.
    `with` stops it and makes everything durable. Reader and writer stay open; use them for nothing
    else meanwhile."""

    _kind = "mirror"

    def __init__(self, reader: Reader, writer: Writer) -> None:
        if not isinstance(writer, Writer):
            raise UsageError(f"a mirror writes one partition, not {type(writer).__name__}",
                             hint="open the writer without partitions= and topic_from=")
        if writer.deduplicates:
            raise UsageError("a mirror keeps every message of its source, duplicates too",
                             hint="open its writer without deduplicate=")
        if reader.closed or writer.closed:
            raise JournalClosed(f"the {'reader' if reader.closed else 'writer'} of the mirror is "
                                "closed", hint="open it again, and keep it open while it is used")
        if "://" not in str(reader.path) and os.path.samefile(reader.path, writer.path):
            raise UsageError(f"{reader.path} would be its own mirror",
                             hint="mirror it into another folder")
        import numpy  # noqa: F401  which cannot be loaded in a shortage of descriptors

        self.reader, self.writer = reader, writer
        self._source = EpochsOf(Path(reader.path)) if "://" not in str(reader.path) else None
        self._remembered = Remembered(reader, writer)
        found = self._aligned()
        end = reader.end
        if end < writer.next:
            raise UsageError(f"{writer.path} has messages up to {writer.next} and {reader.path} "
                             f"only up to {end}: it is no mirror of it",
                             hint="begin a new mirror in an empty folder, or find the journal that "
                                  "this one was copied from")
        check_same(writer, reader)
        self._take(found)
        self._messages = self._bytes = self._gone = self._compacted = 0
        self._groups: dict[str, int] = {}       # as they were copied
        self._looked = 0.0
        self._silent = 0.0                      # no warning of a shortage before that
        self._begun = False                     # messages have come
        self._many = False                      # more groups than are copied, which the log says
        self._stopping = Event()
        self._going = Event()
        self._going.set()
        self._begin("mqcore-mirror")

    def _loop(self) -> None:
        while not self._stopping.is_set() and not self.reader.closed:
            if not self._going.wait(LOOK):
                continue
            try:
                self._copy_facts()
                self._move()
            except RecvTimeout:
                continue
            except OSError as error:
                if error.errno not in NO_FILES or getattr(error, "hint", None) == BROKEN:
                    raise
                self._wait_for_files(error)

    def _wait_for_files(self, error: OSError) -> None:
        """Others have all descriptors at the moment. It goes on where the copy ends: what was
        taken is not read again, and what could not be stored is not believed to be."""
        now = time.monotonic()
        if now >= self._silent:
            self._silent = now + SILENCE
            _log.warning("the mirror of %s waits: %s", self.reader.path, error)
        self._stopping.wait(SHORTAGE)

    # -- epochs --

    def _aligned(self, anew: bool = False) -> Epochs:
        """The source's history, which this copy takes over if it can follow it: it must not have
        been promoted itself, and it must have no message from where a newer epoch began. Raises
        JournalFenced, JournalDiverged. anew: not as the server said that sent the last records."""
        ours = self.writer._epochs
        known = None if anew else getattr(self.reader, "_known", None)
        theirs = known.epochs if known is not None and known.epochs else self.reader.epochs()
        where = self.writer.path
        if theirs.fenced:
            raise JournalFenced(
                f"{self.reader.path} is continued in epoch {theirs.newer[-1].epoch} by a mirror "
                "that was promoted", epoch=theirs.newer[-1].epoch,
                hint="mirror the promoted one instead")
        origin = theirs.origin or self._source_id()
        if b"" not in (ours.origin, origin) and ours.origin != origin and self.writer.next:
            raise UsageError(f"{where} is a copy of another journal than {self.reader.path}",
                             hint="mirror it into an empty folder")
        apart = parting(ours.own, theirs.own)
        primary = not ours.mirror and self.writer.next and (
            ours.own or theirs.origin == self.writer._journal)
        if newer(theirs.own, ours.own) or apart is None and theirs.mirror and primary:
            raise JournalFenced(
                f"{where} is the primary in epoch {ours.number}, and {self.reader.path} a copy of "
                f"it in epoch {theirs.number}: a mirror never overwrites the newer one",
                epoch=ours.number, hint=f"mirror {where} into the other folder instead")
        if apart is not None and not newer(ours.own, theirs.own):
            raise separate(str(self.reader.path), ours.own, theirs.own, apart)
        if apart is not None and self.writer.next > apart:
            raise JournalDiverged(
                f"messages {apart} to {self.writer.next - 1} of {where} are not in "
                f"{self.reader.path}, whose epoch {theirs.number} began at {apart}",
                epoch=theirs.number, first=apart, end=self.writer.next)
        return Epochs(theirs.own, (), True, origin or ours.origin)

    def _take(self, found: Epochs) -> None:
        if found != self.writer._epochs:
            self.writer._set_epochs(found)
        self._theirs = mark(found.own)
        self._remembered.forget()

    def _source_id(self) -> bytes:
        found = journal_id(Path(self.reader.path)) if self._source is not None else None
        return bytes.fromhex(found) if found else b""

    def _changed(self) -> bool:
        """Whether the source has come into a newer epoch, as far as the last records say."""
        if self._source is None:
            known = getattr(self.reader, "_known", None)
            return known is not None and known.mark not in (None, self._theirs)
        found = self._source.look()
        return found.fenced or mark(found.own) != self._theirs

    # -- consumer groups, and producers --

    def _copy_facts(self) -> None:
        self._copy_groups()
        self._remembered.look()

    def _copy_groups(self) -> None:
        """Offsets of the source's groups, so that they go on where they were after a
        promotion."""
        now = time.monotonic()
        if now - self._looked < GROUPS or not reachable(self.reader):
            return
        self._looked = now
        have = self.writer.durable
        found = self.reader.groups()
        if len(found) > MOST_GROUPS and not self._many:
            self._many = True
            _log.warning("%s has %d consumer groups, and a mirror copies the offsets of %d",
                         self.reader.path, len(found), MOST_GROUPS)
        for name, offset in list(found.items())[:MOST_GROUPS]:
            at = min(offset, have)
            if self._groups.get(name) != at:
                self.writer._check_open()       # its folder may have been moved
                set_group_offset(self.writer.path, name, at)
                self._groups[name] = at

    def _move(self) -> None:
        at = self.writer.next
        try:
            self._follow(at)
        except OffsetGone as gone:      # the gap may be the end of the source
            if self.writer.next >= gone.first:
                raise
            self._skip(self.writer.next, gone.first)

    def _follow(self, at: int) -> None:
        for records in self.reader.follow(at, timeout=LOOK):
            self._realign()
            if not follows(self.writer, records):
                raise UsageError(f"something else has appended to {self.writer.path}",
                                 hint="a mirror is its writer's only user")
            self._append(records)
            self._copy_facts()
            if self._stopping.is_set() or not self._going.is_set():
                return

    def _append(self, records: Records) -> None:
        before, taken = self.writer.next, 0
        if records.next - before > len(records):
            self._remembered.lacks(records.next)
        try:
            self.writer._append_in_place(records)
            taken = len(records)
        except Exception as error:
            taken = getattr(error, "taken", 0)
            raise
        finally:
            self._messages += taken
            self._bytes += records.nbytes if taken == len(records) else 0
            self._compacted += self.writer.next - before - taken

    def _realign(self) -> None:
        """An empty source may have become a mirror itself, since this one has begun."""
        changed = self._changed()
        if changed or not self._begun:
            found = self._aligned(anew=not self._begun)
            if changed or found != self.writer._epochs:
                self._take(found)
            self._begun = True

    def _skip(self, at: int, to: int) -> None:
        self._realign()
        self.writer.skip(to)
        _log.warning("messages %d to %d of %s are gone, so the mirror goes on without them", at,
                     to - 1, self.reader.path)
        self._gone += to - at
        self._remembered.lacks(to)

    def stats(self) -> MirrorStats:
        return MirrorStats(self._messages, self._bytes, self._gone, self._compacted)

    def _which(self) -> str:
        return f"{self.reader.path} into {self.writer.path}"

    def pause(self) -> None:
        """Stop copying. resume() goes on."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def _stop(self, linger: Any) -> tuple[()]:
        """`linger` is for sockets; there are none."""
        self._stopping.set()
        self._thread.join()
        if not self.writer.closed:
            self.writer.commit()
            if not self.reader.closed:
                self._remembered.finish()
        return ()

    def __repr__(self) -> str:
        return (f"<Mirror {self.reader.path} -> {self.writer.path} "
                f"{'running' if self.running else 'ended'}>")


def follows(writer: Writer, records: Records) -> bool:
    """Whether they are what a copy goes on with. What compaction has removed in front of them is
    a gap of the copy, too."""
    return writer.next in (records.first, records.since)


def check_same(writer: Writer, reader: Reader) -> None:
    """JournalDiverged: the last message that a copy has is another one in its source. Something
    else than a mirror has written it, or the source was set back and went on."""
    with Reader(writer.path, writer.topic, writer.partition, durable=False) as mine:
        if not _differ(mine, reader, writer.next - 1):
            return
        first, end = mine.first, writer.next
        same = bisect.bisect_left(range(first, end), True,
                                  key=lambda offset: _differ(mine, reader, offset))
    raise JournalDiverged(
        f"messages {first + same} to {end - 1} of {writer.path} are not those of {reader.path}, so "
        "it is no mirror of it", epoch=writer._epochs.number, first=first + same, end=end,
        hint="mirror it into an empty folder; what only this one has stays where it is")


def _differ(mine: Reader, theirs: Reader, offset: int) -> bool:
    """False, too, if one of them has no message there any more."""
    found = []
    for reader in (mine, theirs):
        try:
            records = reader.read(offset, max_bytes=1, durable=False)
        except OffsetGone:
            return False
        if not len(records) or records.first != offset:
            return False
        found.append((records[0] or b"", records.key(0), records._microseconds[0]))
    return found[0] != found[1]
