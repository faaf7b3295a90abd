"""Operations that make, remove and replace files: topics, retention, removal, repair, members."""

import time

from crash_states.facts import Facts, check_partition, value_of
from crash_states.scenario import SMALL, Scenario, append, commit, fill
from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal.groups.rosters import Coordinated
from mqcore.journal.store.place import make_folder, partition_folder, segment_name


class Creating(Scenario):
    """A topic of several partitions, in a folder that is made, too; or one that gets more."""

    name = "partitions"
    count = 3

    def prepare(self, where, rng):
        if rng.random() < 0.3:
            fill(where / "new" / "home", [2], topic="t")

    def run(self, where, mark, rng):
        with journal.open(where / "new" / "home", "a", topic="t", partitions=self.count,
                          fsync="never", **SMALL) as writers:
            for number in range(self.count):
                mark("made:", [number, None])
                mark("durable:", [number, writers.writer("t", number).next])
            for number in range(self.count):
                append(writers.writer("t", number), 2, mark, partition=number)

    def check(self, where, marks):
        home = where / "new" / "home"
        facts = [Facts.of(marks, number) for number in range(self.count)]
        for one in facts:
            one.sent = max(one.sent, 2)         # of before
        if all(one.made for one in facts):
            try:
                journal.open(home, "a", topic="t", partitions=2, fsync="never").close()
            except UsageError:
                pass
            else:
                raise AssertionError("a partition of the topic is gone")
        journal.open(home, "a", topic="t", partitions=self.count, fsync="never").close()
        for number, one in enumerate(facts):
            check_partition(home, one, "t", number)


class Retaining(Scenario):
    """A group commits, and a writer removes what it has read."""

    name = "retention"

    def prepare(self, where, rng):
        fill(where, [3, 3, 3, 3], groups={"g": 0})

    def run(self, where, mark, rng):
        mark("durable", 12)
        mark("committing", ["g", 0])
        to = rng.randint(3, 12)
        mark("cutting", to)
        commit(where, mark, "g", to)
        self._retain(where, mark)

    def again(self, where, mark, rng):
        self._retain(where, mark)

    def _retain(self, where, mark):
        with journal.open(where, "a", fsync="never", retain_for="g") as writer:
            removed = writer.retain()
            mark("cut", 3 * len(removed))
            append(writer, 2, mark)

    def check(self, where, marks):
        facts = Facts.of(marks)
        with journal.open(where) as reader:
            at = reader.committed_offset("g")
            assert at >= reader.first, f"group g is at {at}, and messages to {reader.first} gone"
        check_partition(where, facts)


class Cutting(Scenario):
    """The beginning of a journal is cut off, or all of it."""

    name = "truncate"

    def prepare(self, where, rng):
        fill(where, [3, 3, 3, 3], groups={"g": 4})

    def run(self, where, mark, rng):
        mark("durable", 12)
        mark("committing", ["g", 4])
        mark("committed", ["g", 4])
        to = rng.choice((5, 6, 9, 11, 12, 12))
        mark("cutting", to)
        mark("cut", journal.truncate_before(where, to))
        mark("cut", to // 3 * 3)


class Deleting(Scenario):
    """A topic, or one of its partitions."""

    name = "delete"
    count = 3
    partition = None

    def prepare(self, where, rng):
        for number in range(self.count):
            fill(where, [2, 2], topic="t", partition=number, groups={"g": number})

    def run(self, where, mark, rng):
        for number in range(self.count):
            mark("durable:", [number, 4])
            mark("committing:", [number, ["g", number]])
            mark("committed:", [number, ["g", number]])
        self._delete(where, mark)

    def again(self, where, mark, rng):
        self._delete(where, mark)

    def _delete(self, where, mark):
        numbers = range(self.count) if self.partition is None else [self.partition]
        for number in numbers:
            mark("going:", [number, None])
        try:
            journal.delete(where, topic="t", partition=self.partition)
        except journal.JournalNotFound:
            pass                                # it has been deleted
        for number in numbers:
            mark("gone:", [number, None])

    def check(self, where, marks):
        for number in range(self.count):
            check_partition(where, Facts.of(marks, number), "t", number)
        assert journal.delete(where, topic="t") == self.count
        assert list(where.iterdir()) == []


class DeletingOne(Deleting):
    name = "delete one"
    partition = 1


class Renaming(Scenario):
    """A topic of two partitions gets another name, and is written to."""

    name = "rename"

    def prepare(self, where, rng):
        for number in range(2):
            fill(where, [2, 2], topic="t", partition=number, groups={"g": number})

    def run(self, where, mark, rng):
        for number in range(2):
            mark("durable:", [number, 4])
            mark("committing:", [number, ["g", number]])
            mark("committed:", [number, ["g", number]])
        self._rename(where, mark)

    def again(self, where, mark, rng):
        self._rename(where, mark)

    def _rename(self, where, mark):
        mark("doing", "rename")
        try:
            assert journal.rename(where, topic="t", to="u") == 2
        except journal.JournalNotFound:
            pass                                # it has been renamed
        mark("did", "rename")
        with journal.open(where, "a", topic="u", fsync="never", **SMALL) as writer:
            append(writer, 2, mark)
            writer.rotate()
            append(writer, 2, mark)

    def check(self, where, marks):
        facts = [Facts.of(marks, number) for number in range(2)]
        [topic] = {row.topic for row in journal.list_partitions(where)}
        assert topic in ("u" if "rename" in facts[0].done else "tu")
        for number, one in enumerate(facts):
            check_partition(where, one, topic, number)


class Repairing(Scenario):
    """A block in the middle, a header or the end of a journal is damaged."""

    name = "repair"

    def prepare(self, where, rng):
        with journal.open(where, "a", fsync="never") as writer:
            for n in (2, 3, 4):
                if writer.next:
                    writer.rotate()
                for _ in range(n):
                    writer.append(value_of(writer.next))
                    writer.flush()
        for first in rng.sample((0, 2, 5), rng.choice((1, 1, 2))):
            path = partition_folder(where, "default", 0) / segment_name(first)
            raw = bytearray(path.read_bytes())
            starts = [at for at in range(512, len(raw), 64) if raw[at:at + 4] == b"MQB1"]
            raw[rng.choice((50, starts[0] + 9, starts[1] + 130, starts[1] + 9))] ^= 1
            path.write_bytes(raw)

    def run(self, where, mark, rng):
        lost = [number for one in journal.verify(where).findings
                for number in range(one.offset, one.offset + (one.lost or 0))]
        mark("lost", lost)
        journal.repair(where)
        mark("did", "repair")

    def again(self, where, mark, rng):
        journal.repair(where)
        mark("did", "repair")

    def check(self, where, marks):
        lost = set(next((value for kind, value in marks if kind == "lost"), ()))
        if not any(kind == "lost" for kind, _ in marks):
            return
        if ["did", "repair"] in marks:
            assert not journal.verify(where).findings, "what was repaired is damaged again"
        else:
            journal.repair(where)
        assert not journal.verify(where).findings
        with journal.open(where, "a", fsync="never") as writer:
            assert writer.next == 9
        with journal.open(where) as reader:
            found = {records.offset(at): value for records in reader.batches(0, gaps="skip")
                     for at, value in enumerate(records.to_list())}
        assert found == {number: value_of(number) for number in set(range(9)) - lost}


class Coordinating(Scenario):
    """The longest lease of a group's members, which the next server waits for."""

    name = "members"

    def prepare(self, where, rng):
        fill(where, [1], topic="t")

    def _path(self, where):
        return where / "t" / "groups" / "g"

    def run(self, where, mark, rng):
        path = self._path(where)
        make_folder(path.parent)
        one = Coordinated(path, time.monotonic())
        for session in (5.0, 12.5):
            one.roster.beat(time.monotonic(), "m", 1, session, 1.0, (), 0)
            one.keep()
            mark("lease", one.roster.session)
        one.close(over=False)

    def check(self, where, marks):
        least = max((value for kind, value in marks if kind == "lease"), default=0)
        make_folder(self._path(where).parent)
        one = Coordinated(self._path(where), time.monotonic())
        try:
            assert one._written >= least, f"the lease is {one._written}, less than {least}"
        finally:
            one.close(over=True)


FOLDERS = (Creating, Retaining, Cutting, Deleting, DeletingOne, Renaming, Repairing, Coordinating)
