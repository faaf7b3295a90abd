"""Copies of a journal: mirrors, promotions, backups."""

import copies

from crash_states.facts import Facts, check_partition, look
from crash_states.scenario import SMALL, Scenario, append, fill, sometimes
from mqcore import journal
from mqcore.errors import UsageError


class Mirroring(Scenario):
    """A journal and its consumer groups are copied into another folder."""

    name = "mirror"

    def prepare(self, where, rng):
        fill(where / "a", [3, rng.randint(1, 5)], groups={"g": 2, "h": 4})

    def run(self, where, mark, rng):
        with journal.open(where / "a") as reader:
            end = reader.end
        mark("sent", end)
        for group in ("g", "h"):
            for offset in range(5):
                mark("committing", [group, offset])
        copies.mirror(where / "a", where / "b")
        mark("durable", end)
        for group in ("g", "h"):
            mark("committing", [group, end])

    def check(self, where, marks):
        facts = Facts.of(marks)
        if sometimes(marks, 30):
            copies.mirror(where / "a", where / "b")
            assert copies.read_all(where / "a") == copies.read_all(where / "b")
            return
        check_partition(where / "b", facts)


class Promoting(Scenario):
    """A mirror becomes the primary; the former one cannot be reached."""

    name = "promote"

    def prepare(self, where, rng):
        fill(where / "a", [2, 2], groups={"g": 3})
        copies.mirror(where / "a", where / "b")
        with journal.open(where / "a", "a", fsync="never") as writer:
            append(writer, rng.randint(1, 3), lambda *mark: None)
        with journal.open(where / "a") as reader:
            reader.commit_offset("g", 5)

    def promote(self, where):
        try:
            return journal.promote(where / "b")
        except UsageError as error:
            if "is no mirror" not in str(error):
                raise
            return None

    def run(self, where, mark, rng):
        mark("durable", 4)
        mark("sent", 9)
        for offset in range(8):
            mark("committing", ["g", offset])
        self.promote(where)
        mark("did", "promote")
        with journal.open(where / "b", "a", fsync="never", **SMALL) as writer:
            mark("durable", writer.next)
            append(writer, 1, mark)

    def check(self, where, marks):
        facts = Facts.of(marks)
        if "promote" in facts.done:
            self.check_promoted(where)
        self.promote(where)
        self.check_promoted(where)
        check_partition(where / "b", facts)

    def check_promoted(self, where):
        found = copies.epochs(where / "b")
        assert found.number == 1 and not found.mirror and not found.intent, found
        assert found.own[0].start == 4


class TakingOver(Promoting):
    """A mirror becomes the primary, and the former one gives what it lacks, and is fenced."""

    name = "take over"

    def promote(self, where):
        return journal.promote(where / "b", old=where / "a")

    def check_promoted(self, where):
        found = copies.epochs(where / "b")
        end = look(where / "a", "default", 0).end
        assert found.number == 1 and not found.mirror and found.own[0].start == end, found
        try:
            journal.open(where / "a", "a").close()
        except journal.JournalFenced:
            return
        raise AssertionError("the former primary takes messages")


class BackingUp(Scenario):
    """A backup beside a running writer, which goes on."""

    name = "backup"

    def prepare(self, where, rng):
        fill(where / "a", [2, 3, rng.randint(1, 3)], groups={"g": 3})

    def run(self, where, mark, rng):
        for number in (0, 1):
            mark("committing:", [number, ["g", 3]])
        mark("committed:", [0, ["g", 3]])
        with journal.open(where / "a") as reader:
            mark("durable:", [0, reader.durable])
        with journal.open(where / "a", "a", fsync="never", **SMALL) as writer:
            mark("durable:", [0, writer.next])
            append(writer, 2, mark)
            mark("sent:", [1, writer.next])
            journal.backup(where / "a", where / "new" / "b")
            mark("durable:", [1, writer.next])
            mark("committed:", [1, ["g", 3]])
            append(writer, 2, mark)
            writer.rotate()
            append(writer, 1, mark)

    def again(self, where, mark, rng):
        try:
            journal.backup(where / "a", where / "new" / "b")
        except UsageError as error:
            assert "is there already" in str(error)
            return
        with journal.open(where / "a") as reader:
            mark("sent:", [1, reader.durable])
            mark("durable:", [1, reader.durable])

    def check(self, where, marks):
        facts, theirs = Facts.of(marks, 0), Facts.of(marks, 1)
        theirs.sent = max(theirs.sent, facts.sent)      # one that is made again has more
        check_partition(where / "new" / "b", theirs)
        check_partition(where / "a", facts)
        journal.backup(where / "a", where / "c")
        seen, copy = look(where / "a", "default", 0), look(where / "c", "default", 0)
        assert copy.messages == seen.messages and copy.groups == seen.groups


COPIES = Mirroring, Promoting, TakingOver, BackingUp
