"""DamagedReader: what is whole of a damaged partition, without a repair and without a change to it.

To read what damage has taken raises OffsetGone, as after a repair, and its `first` is the next
message that is whole. So everything that passes over gaps passes over damage.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from mqcore.errors import UsageError
from mqcore.journal.errors import JournalCorrupt, OffsetGone
from mqcore.journal.later import np
from mqcore.journal.reader import Reader
from mqcore.journal.records import Records
from mqcore.journal.store.recovery import whole_blocks
from mqcore.journal.store.salvage import salvaged
from mqcore.journal.store.scan import Block
from mqcore.journal.store.segment import FOREIGN, Segment

Run = tuple[int, int, int]      # blocks that are whole and follow each other: first, end, position


class DamagedReader(Reader):
    """Made by `mqcore.journal.open(salvage=True)`."""

    def __init__(self, folder: Path, topic: str, partition: int, *, durable: bool = False,
                 verify: bool = True) -> None:
        super().__init__(folder, topic, partition, durable=durable, verify=verify)
        self._runs: dict[int, tuple[Any, int, list[Run]]] = {}     # by first offset

    @property
    def end(self) -> int:
        """Behind the last message that is whole."""
        with self._reading():
            try:
                end = super().end
            except JournalCorrupt:
                return self._end_behind_damage()
            # what looks like a torn tail may have whole blocks
            segment = self._segment
            if segment is not None and segment.index.tail[0] < segment.size():
                return max(end, self._end_behind_damage())
            return end

    def _end_behind_damage(self) -> int:
        firsts = self._segments()
        try:
            segment = self._open(firsts[-1], firsts)
        except JournalCorrupt:
            return firsts[-1]
        runs = self._whole_runs(segment, None)
        return runs[-1][1] if runs else segment.first

    def _at(self, us: int) -> int:
        for records in self.batches(durable=False, gaps="skip"):
            late = records._microseconds >= us
            if late.any():
                return records.offset(int(np.argmax(late)))
        return self.end

    def _next(self, offset: int, room: int, beyond: bool) -> Records | None:
        for again in (False, True):
            trouble: JournalCorrupt | UsageError | None = None
            found = None
            try:
                found = super()._next(offset, room, beyond)
            except (JournalCorrupt, UsageError) as error:
                trouble = error
            if found is not None and len(found) or again or not self._passes(trouble, offset):
                break
        if trouble is not None and (again or isinstance(trouble, UsageError)):
            raise trouble
        return found

    def _passes(self, trouble: JournalCorrupt | UsageError | None, offset: int) -> bool:
        """Whether the message is whole: there is a way to it now. OffsetGone: it is not, and
        another one follows."""
        segment = self._segment
        path = Path(trouble.path) if isinstance(trouble, JournalCorrupt) else None
        if path is None and segment is not None and segment.index.recent[0] < segment.size():
            path = segment.path         # it may only look like a torn tail
        if path is None or not path.stem.isdecimal():
            return False
        following = self._behind(int(path.stem))
        if segment is not None and segment.path == path:
            for first, end, _ in self._whole_runs(segment, following[0] if following else None):
                if first > offset:
                    raise _taken(trouble, offset, first)
                if offset < end:
                    segment.index.forget_ends()     # which may lie in the damage
                    return True
        if following and following[0] > offset:
            raise _taken(trouble, offset, following[0])
        return False

    def _whole_runs(self, segment: Segment, following: int | None) -> list[Run]:
        """As a repair finds them. find() begins at each run from now on, as headers alone may lead
        past some."""
        size = segment.size()
        known = self._runs.get(segment.first)
        if known is None or known[:2] != (segment.index.file, size):
            runs = _runs_of(segment, size, following)
            known = self._runs[segment.first] = segment.index.file, size, runs
        for first, _, pos in known[2]:
            segment.index.begin_at(pos, first)
        return known[2]

    def _open(self, first: int, firsts: list[int]) -> Segment:
        try:
            return super()._open(first, firsts)
        except JournalCorrupt as error:
            found = None
            if error.fault != FOREIGN and Path(error.path).is_file():
                with contextlib.suppress(FileNotFoundError):    # retention was faster
                    found = salvaged(self.path, first)
            if found is None:
                raise
            self._segment = found
            return found

    def _mq_mirror(self, writer: Any) -> Any:
        raise JournalCorrupt(f"{self.path} is read past its damage, and a copy would keep that",
                             path=str(self.path), hint="repair it, then mirror it")


def _runs_of(segment: Segment, size: int, following: int | None) -> list[Run]:
    """A run ends behind its last message: what compaction has removed in front of damage may have
    been removed for a message that is lost."""
    runs: list[Run] = []
    ahead = -1                      # where the last run leads; -1: into damage
    for block in whole_blocks(segment, size):
        if not isinstance(block, Block):
            ahead = -1
            continue
        if following is not None and block.first >= following:
            continue                # a copy of something else
        if ahead < 0 or block.first != ahead and not block.compacted:
            runs.append((block.first, block.first, block.pos))
        ahead = block.end
        if block.count:
            runs[-1] = runs[-1][0], ahead, runs[-1][2]
    if ahead >= 0:
        runs[-1] = runs[-1][0], ahead, runs[-1][2]
    return runs


def _taken(trouble: Exception | None, offset: int, first: int) -> OffsetGone:
    why = f": {trouble.text}" if isinstance(trouble, JournalCorrupt) else ""
    return OffsetGone(f"message {offset} is lost to damage{why}", offset=offset, first=first,
                      hint=f"the next one that is whole is {first}")
