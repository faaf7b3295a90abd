"""DamagedReader: what is whole of a damaged partition, without a repair and without a change to it.

To read what damage has taken raises OffsetGone, as after a repair, and its `first` is the next
message that is whole. So everything that passes over gaps passes over damage.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from mqcore.journal.errors import JournalCorrupt, OffsetGone
from mqcore.journal.later import np
from mqcore.journal.reader import Reader
from mqcore.journal.records import Records
from mqcore.journal.store.recovery import next_whole
from mqcore.journal.store.salvage import salvaged
from mqcore.journal.store.segment import EVERYTHING, FOREIGN, Segment


class DamagedReader(Reader):
    """Made by `mqcore.journal.open(salvage=True)`."""

    def __init__(self, folder: Path, topic: str, partition: int, *, durable: bool = False,
                 verify: bool = True) -> None:
        super().__init__(folder, topic, partition, durable=durable, verify=verify)

    @property
    def end(self) -> int:
        """Behind the last message that is whole."""
        with self._reading():
            try:
                return super().end
            except JournalCorrupt:
                return self._end_behind_damage()

    def _end_behind_damage(self) -> int:
        firsts = self._segments()
        try:
            segment = self._open(firsts[-1], firsts)
        except JournalCorrupt:
            return firsts[-1]
        size = segment.size()
        while True:
            walk = segment.find(EVERYTHING, size)
            later = next_whole(segment, walk.pos, walk.next, size) if walk.pos < size else None
            if later is None:
                return walk.next
            segment.index.begin_at(later.pos, later.first)

    def _at(self, us: int) -> int:
        for records in self.batches(durable=False, gaps="skip"):
            late = records._microseconds >= us
            if late.any():
                return records.first + int(np.argmax(late))
        return self.end

    def _next(self, offset: int, beyond: bool) -> Records | None:
        while True:
            try:
                return super()._next(offset, beyond)
            except JournalCorrupt as error:
                if not self._pass(error, offset):
                    return None

    def _pass(self, error: JournalCorrupt, offset: int) -> bool:
        """Whether the message can be looked for again, behind the damage. OffsetGone: the damage
        has taken it."""
        path = Path(error.path)
        segment = self._segment
        later = None
        following = self._behind(int(path.stem)) if path.stem.isdecimal() else []
        if segment is not None and segment.path == path:
            later = next_whole(segment, error.position, error.offset, segment.size())
        if later is not None and following and later.first >= following[0]:
            later = None                # it is a copy of something else
        if segment is not None and later is not None:
            segment.index.begin_at(later.pos, later.first)
            if later.first <= offset:
                return True
            raise _taken(error, offset, later.first)
        if following and following[0] > offset:
            raise _taken(error, offset, following[0])
        return False

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


def _taken(error: JournalCorrupt, offset: int, first: int) -> OffsetGone:
    return OffsetGone(f"message {offset} is lost to damage: {error.text}", offset=offset,
                      first=first, hint=f"the next one that is whole is {first}")
