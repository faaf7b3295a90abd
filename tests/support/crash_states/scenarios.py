"""What is run, recorded and cut: each operation of a journal.

A scenario has prepare(where, rng), before the recording, run(where, mark, rng), again(...), what
the next process does if run() was killed, and check(where, marks). Marks say what is about to be
done before it is done, and what was acknowledged once it was.
"""

from mqcore import journal
from crash_states.facts import Facts, check_partition, value_of

SMALL = {"segment_bytes": 8192, "block_bytes": 2048}


def append(writer, n, mark, durable=True):
    """n messages, and what is promised of them."""
    first = writer.next
    mark("sent", first + n)
    for offset in range(first, first + n):
        assert writer.append(value_of(offset)) == offset
    if durable:
        writer.commit()
        mark("durable", first + n)
    else:
        writer.flush()


def commit(where, mark, group, offset, **how):
    mark("committing", [group, offset])
    with journal.open(where) as reader:
        reader.commit_offset(group, offset, **how)
    mark("committed", [group, offset])


class Scenario:
    kills = True
    options = {}

    def prepare(self, where, rng):
        pass

    def again(self, where, mark, rng):
        """By default: open, and append what is missing."""
        self.append_more(where, mark, 3)

    def append_more(self, where, mark, n):
        with journal.open(where, "a", fsync="never", **SMALL, **self.options) as writer:
            mark("durable", writer.next)
            append(writer, n, mark)
        mark("durable", writer.next)

    def check(self, where, marks):
        check_partition(where, Facts.of(marks), **self.options)


class Appending(Scenario):
    """A writer, group commits and rotations."""

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


SCENARIOS = {one.name: one() for one in (Appending,)}
