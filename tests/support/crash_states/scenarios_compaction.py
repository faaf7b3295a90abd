"""Compaction, alone and beside a writer, and a copy that skips what compaction has removed."""

import hashlib
import random

from crash_states.facts import Facts, check_verify, value_of
from crash_states.scenario import SMALL, Scenario, sometimes
from mqcore import journal

FIXED = {1: b"z", 9: b"z", 8: b"y", 10: b"y", 15: b"y"}    # 9 hides 1, in another segment
PARTS = range(4, 8)     # messages of a segment


def key_of(offset):
    """One of nine keys, or none."""
    number = hashlib.md5(b"%d" % offset).digest()[0] % 10
    return FIXED.get(offset, b"%d" % number if number else None)


def told(offset):
    """Every third message with a key is a tombstone."""
    if offset in FIXED:
        return None if offset == 9 else value_of(offset) + bytes(1000)
    buried = hashlib.md5(b"%d" % offset).digest()[1] % 3 == 0
    return None if key_of(offset) and buried else value_of(offset)


def state_of(messages):
    """What a reader makes of {offset: value}: the value of each key, and all that has none."""
    found = {}
    for offset, value in sorted(messages.items()):
        key = key_of(offset)
        if value is None:
            found.pop(key, None)
        else:
            found[offset if key is None else key] = offset
    return found


def add(writer, n, mark=None):
    first = writer.next
    if mark is not None:
        mark("sent:", [0, first + n])
    for offset in range(first, first + n):
        assert writer.append(told(offset), key=key_of(offset)) == offset
        if offset % 2:
            writer.flush()
    writer.commit()
    if mark is not None:
        mark("durable:", [0, first + n])


def seen(where):
    """({offset: value}, the offset behind the last one). Also what is not known to be durable."""
    found = {}
    with journal.open(where) as reader:
        assert reader.first == 0
        for durable in (True, False):
            for records in reader.batches(max(found, default=-1) + 1, durable=durable):
                for row, value in enumerate(records.to_list()):
                    at = records.offset(row)
                    assert value == told(at), f"message {at} is {value!r:.30}"
                    assert records.key(row) == key_of(at)
                    found[at] = value
    return found, max(found, default=-1) + 1


class Compacting(Scenario):
    """The oldest values go before the tombstones that hide them, whatever is cut off."""

    name = "compact"

    def prepare(self, where, rng):
        with journal.open(where, "a", fsync="never") as writer:
            for n in rng.choices(PARTS, k=4):
                if writer.next:
                    writer.rotate()
                add(writer, n)
        if rng.random() < 0.3:          # once more, of what it has left
            journal.compact(where, keep_tombstones=0)
            with journal.open(where, "a", fsync="never") as writer:
                writer.rotate()
                add(writer, 5)

    def run(self, where, mark, rng):
        with journal.open(where) as reader:
            mark("durable", reader.end)
        if rng.random() < 0.5:
            with journal.open(where, "a", fsync="never", **SMALL) as writer:
                writer.rotate()
                add(writer, 3, mark)
                self._compact(where, mark)
                add(writer, 2, mark)
        else:
            self._compact(where, mark)

    def again(self, where, mark, rng):
        self._compact(where, mark)

    def _compact(self, where, mark):
        mark("doing", "compact")
        journal.compact(where, keep_tombstones=0)
        mark("did", "compact")

    def check(self, where, marks):
        facts = Facts.of(marks)
        found, end = seen(where)
        assert facts.durable <= end <= facts.sent, f"{facts.durable} <= {end} <= {facts.sent}"
        whole = state_of({at: told(at) for at in range(end)})
        assert state_of(found) == whole
        check_verify(where, "default", 0, facts.durable, clean=False)
        if sometimes(marks, 3):
            journal.compact(where, keep_tombstones=0)
            assert state_of(seen(where)[0]) == whole
        with journal.open(where, "a", fsync="never") as writer:
            assert writer.next >= end
            end = writer.next
            add(writer, 1)
        found, after = seen(where)
        assert after == end + 1
        assert state_of(found) == state_of({at: told(at) for at in range(after)})
        check_verify(where, "default", 0, after, clean=True)


class Skipping(Scenario):
    """A copy of a journal that was compacted, as a mirror makes it."""

    name = "compacted copy"
    there = (0, 1, 4, 5, 9, 14, 15, 16, 22, 23, 30)

    def prepare(self, where, rng):
        if rng.random() < 0.5:
            with journal.open(where, "a", fsync="never") as writer:
                self._copy(writer, rng.choice(self.there), lambda *_: None)

    def run(self, where, mark, rng):
        with journal.open(where, "a", fsync="never", **SMALL) as writer:
            mark("durable", writer.next)
            self._copy(writer, 31, mark)

    def _copy(self, writer, end, mark):
        for at in self.there:
            if writer.next <= at < end:
                mark("sent", at + 1)
                if at > writer.next:
                    writer.skip(at, compacted=True)
                assert writer.append(told(at), key=key_of(at)) == at
                if at % 3 == 0:
                    writer.commit()
                    mark("durable", writer.next)

    def check(self, where, marks):
        facts = Facts.of(marks)
        try:
            found, end = seen(where)
        except journal.JournalNotFound:
            assert not facts.made or facts.durable == 0
            found, end = {}, 0
        least = max((at + 1 for at in self.there if at < facts.durable), default=0)  # no gap
        assert least <= end <= (facts.sent or 31), f"{least} <= {end} <= {facts.sent}"
        assert sorted(found) == [at for at in self.there if at < end]
        with journal.open(where, "a", fsync="never", **SMALL) as writer:
            assert writer.next >= end
            self._copy(writer, 31, lambda *_: None)
        found, end = seen(where)
        assert (sorted(found), end) == (list(self.there), 31)
        assert journal.verify(where).compacted == 31 - len(self.there)
        check_verify(where, "default", 0, end, clean=True)


class Mirroring(Scenario):
    """A mirror of a compacted journal: what is left shares sparse blocks there."""

    name = "compacted mirror"

    def prepare(self, where, rng):
        with journal.open(where / "a", "a", fsync="never") as writer:
            for n in rng.choices(PARTS, k=5):
                if writer.next:
                    writer.rotate()
                add(writer, n)
        if rng.random() < 0.3:          # the mirror has some of it, which goes in the source
            self._copy(where, lambda *_: None)
            with journal.open(where / "a", "a", fsync="never") as writer:
                writer.rotate()
                add(writer, 9)
                writer.rotate()
                add(writer, 1)
        journal.compact(where / "a")

    def run(self, where, mark, rng):
        mark("sent", seen(where / "a")[1])
        self._copy(where, mark, 0.5, rng)

    def _copy(self, where, mark, often=0.0, rng=random):
        with journal.open(where / "a") as reader, \
                journal.open(where / "b", "a", mirror=True, **SMALL) as writer:
            mark("durable", writer.next)
            end = reader.end
            while writer.next < end:
                at = writer.next
                for records in reader.batches(at, min(at + 6, end)):
                    writer._append_in_place(records)
                if rng.random() < often:
                    writer.commit()
                    mark("durable", writer.next)
        mark("durable", end)

    def check(self, where, marks):
        facts = Facts.of(marks)
        whole, all_of_it = seen(where / "a")
        try:
            found, end = seen(where / "b")
            check_verify(where / "b", "default", 0, 0, clean=False)
        except journal.JournalNotFound:
            assert facts.durable == 0
            found, end = {}, 0
        least = max((at + 1 for at in whole if at < facts.durable), default=0)      # no gap
        assert least <= end <= all_of_it, f"{least} <= {end} <= {all_of_it}"
        assert {at for at in whole if at < end} <= found.keys()     # it may know more
        self._copy(where, lambda *_: None)
        after, end = seen(where / "b")
        assert (after, end) == (found | whole, all_of_it)
        check_verify(where / "b", "default", 0, end, clean=True)


COMPACTION = (Compacting, Skipping, Mirroring)
