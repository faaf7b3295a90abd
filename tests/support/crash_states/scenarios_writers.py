"""Writers, what they find when they open, and consumer groups."""

import os

from crash_states.facts import (
    NEW,
    Facts,
    check_content,
    check_partition,
    check_verify,
    look,
    value_of,
)
from crash_states.scenario import SMALL, Scenario, append, commit, fill
from mqcore import journal
from mqcore.journal.store.place import partition_folder, segment_name, segments


class Writing(Scenario):
    """Commits of a writer and of groups, rotations, an orderly end, and another writer."""

    name = "writer"

    def run(self, where, mark, rng):
        with journal.open(where, "a", fsync="never", **SMALL) as writer:
            mark("made")
            append(writer, rng.randint(1, 4), mark)
            append(writer, rng.randint(2, 8), mark, durable=False)
            commit(where, mark, "g", writer.durable)
            append(writer, rng.randint(1, 4), mark)
            writer.rotate()
            append(writer, rng.randint(2, 8), mark, durable=False)
            commit(where, mark, "g", writer.durable)
            commit(where, mark, "other", rng.randint(0, writer.durable))
            append(writer, rng.randint(1, 8), mark, durable=False)
        mark("durable", writer.next)
        with journal.open(where, "a", fsync="always", **SMALL) as writer:
            append(writer, 2, mark)
            commit(where, mark, "g", writer.durable)
        mark("durable", writer.next)

    def again(self, where, mark, rng):
        self.append_more(where, mark, 3)


class Recovering(Scenario):
    """A writer opens what a power cut has left: a torn block, a page of zeroes, a torn header."""

    name = "recovery"

    def prepare(self, where, rng):
        self.left_open = writer = journal.open(where, "a", fsync="never", **SMALL)
        append(writer, rng.randint(1, 5), lambda *mark: None)
        if rng.random() < 0.3:
            writer.rotate()
        before, size = self._last(where), self._last(where).stat().st_size
        append(writer, rng.randint(1, 4), lambda *mark: None, durable=False)
        append(writer, rng.randint(1, 4), lambda *mark: None, durable=False)
        with journal.open(where, durable=False) as reader:
            reader.commit_offset("g", rng.choice((reader.durable, reader.end)))
        last = self._last(where)
        size = size if last == before else 512      # a full segment was synced
        how = rng.randrange(4)
        with open(last, "r+b") as file:
            if how == 0:
                file.truncate(rng.randint(size, last.stat().st_size))
            elif how == 1:
                file.seek(rng.randint(size, last.stat().st_size))
                file.write(bytes(300))
            elif how == 2:
                (last.parent / "durable").write_bytes(b"")
        if how == 3:
            append(writer, 1, lambda *mark: None)       # all is durable, and the next one begun
            (last.parent / segment_name(writer.next)).write_bytes(bytes(rng.choice((0, 77, 512))))

    def _last(self, where):
        folder = partition_folder(where, "default", 0)
        return folder / segment_name(segments(folder)[-1])

    def run(self, where, mark, rng):
        with journal.open(where, durable=False) as reader:
            seen = reader.durable
            mark("durable", seen)
            at = reader.committed_offset("g")
            mark("sent", reader.end + 9)
            mark("committing", ["g", at])
        with journal.open(where, "a", fsync="never", **SMALL) as writer:
            mark("durable", writer.next)
            append(writer, 2, mark)
        with journal.open(where) as reader:
            mark("committing", ["g", reader.committed_offset("g")])

    def again(self, where, mark, rng):
        self.append_more(where, mark, 2)

    def check(self, where, marks):
        facts = Facts.of(marks)
        facts.groups["g"][1].update(range(facts.sent))      # it may be set back to any end
        check_partition(where, facts)


class Unsharing(Scenario):
    """The last segment has another name, which a backup gave it."""

    name = "shared segment"

    def prepare(self, where, rng):
        fill(where, [2, rng.randint(1, 5)])
        folder = partition_folder(where, "default", 0)
        os.link(folder / segment_name(2), where / "elsewhere")

    def run(self, where, mark, rng):
        with journal.open(where) as reader:
            mark("durable", reader.durable)
        self.append_more(where, mark, 3)


class Committing(Scenario):
    """Groups whose commits expect each other, as consumers that fail over do."""

    name = "groups"
    steps = 2, 5, 9

    def prepare(self, where, rng):
        fill(where, [4, 6], groups={"g": self.steps[0]})

    def run(self, where, mark, rng):
        mark("durable", 10)
        mark("committing", ["g", self.steps[0]])
        mark("committed", ["g", self.steps[0]])
        self._go_on(where, mark, 1)
        commit(where, mark, "a group whose name is long: " + 50 * "%", 3)
        commit(where, mark, "g", 1)

    def again(self, where, mark, rng):
        with journal.open(where) as reader:
            at = reader.committed_offset("g")
        if at in self.steps:            # its last step may not have been acknowledged
            self._go_on(where, mark, max(1, self.steps.index(at)))

    def _go_on(self, where, mark, step):
        for before, offset in zip(self.steps[step - 1:], self.steps[step:], strict=False):
            commit(where, mark, "g", offset, expected=before)

    def check(self, where, marks):
        facts = Facts.of(marks)
        if ["committing", ["g", 1]] in marks and ["committed", ["g", 1]] not in marks:
            facts.groups["g"][0] = 1    # it is being set back
        check_partition(where, facts)


class Deduplicating(Scenario):
    """Stamped messages that are sent again after the cut, with retention."""

    name = "duplicates"
    how = {"stamps": True, "deduplicate": True, "fsync": "never", "segment_bytes": 4096,
           "block_bytes": 1024}

    def send(self, where, mark, first, parts, **how):
        with journal.open(where, "a", **self.how, **how) as writer:
            mark("made")
            for n in parts:
                mark("sent", first + n)
                writer.append_many([journal.stamp(7, i, 0.0) + value_of(i)
                                    for i in range(first, first + n)])
                first += n
                writer.commit()
                mark("durable", first)
                mark("cutting", first)
                writer.retain()
        return first

    def run(self, where, mark, rng):
        mark("cutting", 100)
        parts = [rng.randint(1, 6) for _ in range(4)]
        first = self.send(where, mark, 0, parts, retain_bytes=8192)
        self.send(where, mark, first, parts[:2], retain_bytes=4096)

    def again(self, where, mark, rng):
        mark("sent", 16)
        self.send(where, mark, 0, [8, 8])

    def check(self, where, marks):
        facts = Facts.of(marks)
        with journal.open(where, "a", **self.how) as writer:
            assert facts.durable <= writer.next <= facts.sent
            begun = writer.next
            for i in range(facts.sent):
                writer.append(journal.stamp(7, i, 1.0) + value_of(i))
            assert writer.next == facts.sent and writer.duplicates == begun
        if facts.sent:
            seen = look(where, "default", 0)
            assert seen.end == facts.sent
            check_content(seen, facts)
            check_verify(where, "default", 0, seen.end, clean=True)


class Withholding(Scenario):
    """Blocks that readers see only once they are committed, and that are taken back before. The
    end of a segment would show them."""

    name = "withheld"

    def run(self, where, mark, rng):
        with journal.open(where, "a", fsync="never", block_bytes=2048) as writer:
            append(writer, rng.randint(1, 3), mark)
            for _ in range(2):
                writer._hold()
                append(writer, rng.randint(2, 5), mark, durable=rng.random() < 0.7)
                writer.commit()
                mark("durable", writer.next)
                writer._hold()
                for _ in range(rng.randint(1, 4)):
                    writer.append(b"taken back" + bytes(rng.choice((0, 900, 2500))))
                    writer.flush()
                assert writer._undo()
        mark("durable", writer.next)

    def again(self, where, mark, rng):
        self.append_more(where, mark, 3)


class Burying(Scenario):
    """Tombstones: in an empty segment of version 1, in one that ends first, and in blocks that are
    held back."""

    name = "tombstones"

    def run(self, where, mark, rng):
        for held in rng.sample((False, False, True), 3):
            with journal.open(where, "a", fsync="never", **SMALL) as writer:
                mark("made")
                if held:
                    writer._hold()
                    append(writer, rng.randint(1, 4), mark, durable=False, buried=True)
                    assert writer._undo() or writer.written
                    writer._hold()
                append(writer, rng.randint(1, 4), mark, durable=False, buried=True)
                append(writer, rng.randint(1, 6), mark, durable=not held, buried=True)
                if rng.random() < 0.5:
                    writer.rotate()
            mark("durable", writer.next)

    def check(self, where, marks):
        facts = Facts.of(marks)
        facts.buried = True
        check_partition(where, facts)


class Skipping(Scenario):
    """Offsets that are left out, as the copy of a journal with a gap does."""

    name = "gap"
    gap = 4, 50

    def run(self, where, mark, rng):
        begin, end = self.gap
        with journal.open(where, "a", fsync="never", **SMALL) as writer:
            while writer.next < begin:
                mark("sent", writer.next + 1)
                writer.append(value_of(writer.next))
            if rng.random() < 0.5:
                writer.commit()
                mark("durable", begin)
            mark("doing", "skip")
            if writer.next < end:
                writer.skip(end)
            mark("durable", end)
            mark("sent", writer.next + 3)
            append(writer, 3, mark)
            writer.rotate()
        mark("durable", writer.next)

    def check(self, where, marks):
        facts, (begin, end) = Facts.of(marks), self.gap
        with journal.open(where, "a", fsync="never") as writer:
            assert facts.durable <= writer.next <= (end if facts.sent == begin and "skip"
                                                    in facts.tried else facts.sent)
            assert not begin < writer.next < end
            first = writer.append(NEW)
        with journal.open(where) as reader:
            found = {records.offset(at): value for records in reader.batches(0, gaps="skip")
                     for at, value in enumerate(records.to_list())}
        wanted = [number for number in range(first) if not begin <= number < end]
        assert found == {number: value_of(number) for number in wanted} | {first: NEW}
        check_verify(where, "default", 0, first + 1, clean=True)


WRITERS = (Writing, Recovering, Unsharing, Committing, Deduplicating, Withholding, Burying,
           Skipping)
