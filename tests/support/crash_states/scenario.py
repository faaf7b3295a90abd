"""What scenarios share."""

import zlib

from crash_states.facts import Facts, check_partition, is_buried, value_of
from mqcore import journal

SMALL = {"segment_bytes": 8192, "block_bytes": 2048}


def append(writer, n, mark, durable=True, partition=0, buried=False):
    """n messages, and what is promised of them. buried: some are tombstones."""
    first = writer.next
    mark("sent:", [partition, first + n])
    for offset in range(first, first + n):
        value = None if buried and is_buried(offset) else value_of(offset)
        assert writer.append(value, key=b"k" if buried else None) == offset
    if durable:
        writer.commit()
        mark("durable:", [partition, first + n])
    else:
        writer.flush()


def commit(where, mark, group, offset, **how):
    mark("committing", [group, offset])
    with journal.open(where) as reader:
        reader.commit_offset(group, offset, **how)
    mark("committed", [group, offset])


def fill(where, parts, topic="default", partition=0, groups=None):
    """A journal that is durable, with a segment of so many messages for each part."""
    with journal.open(where, "a", topic=topic, partition=partition, fsync="never") as writer:
        for n in parts:
            if writer.next:
                writer.rotate()
            for _ in range(n):
                writer.append(value_of(writer.next))
        writer.commit()
    with journal.open(where, topic=topic, partition=partition) as reader:
        for group, offset in (groups or {}).items():
            reader.commit_offset(group, offset)


def sometimes(marks, one_in):
    """For what takes long: by chance, and the same each time."""
    return zlib.crc32(repr(marks).encode()) % one_in == 0


class Scenario:
    def prepare(self, where, rng):
        pass

    def again(self, where, mark, rng):
        """By default the same once more, as after an error."""
        self.run(where, mark, rng)

    def append_more(self, where, mark, n, **how):
        with journal.open(where, "a", fsync="never", **SMALL, **how) as writer:
            mark("durable", writer.next)
            append(writer, n, mark)

    def check(self, where, marks):
        check_partition(where, Facts.of(marks))
