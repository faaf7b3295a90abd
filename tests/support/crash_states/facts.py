"""What the marks of a run say was promised before the cut, and the checks of one partition."""

import hashlib
from dataclasses import dataclass, field

from mqcore import journal
from mqcore.journal.store.place import partition_folder

NEW = b"after the cut"


def value_of(offset):
    """The message that a run gives this offset: another size and other bytes for each."""
    seed = hashlib.blake2b(b"%d" % offset, digest_size=8).digest()
    size = (0, 20, 60, 300, 900, 2500)[seed[0] % 6]
    return b"%08d" % offset + (seed * (size // 8 + 1))[:size]


def is_buried(offset):
    """Whether a run with tombstones gives this offset one."""
    return hashlib.blake2b(b"%d" % offset, digest_size=8).digest()[1] % 3 == 0


@dataclass
class Facts:
    """Of one partition. sent: messages that may be there. durable: that must be. cut: the first
    message that may be removed up to, and must. groups: {name: [acknowledged or None, offsets that
    were asked for]}. begun, made: the journal may, and must, be there. going, gone: likewise of its
    removal. done: names of operations that were acknowledged; tried: that were begun. buried: some
    messages are tombstones."""

    sent: int = 0
    durable: int = 0
    cutting: int = 0
    cut: int = 0
    groups: dict = field(default_factory=dict)
    made: bool = False
    going: bool = False
    gone: bool = False
    tried: set = field(default_factory=set)
    done: set = field(default_factory=set)
    buried: bool = False

    @classmethod
    def of(cls, marks, partition=0):
        """Marks are [kind, value], or [kind, [partition, value]] if its name ends with a colon."""
        facts = cls()
        for kind, value in marks:
            if kind.endswith(":"):
                number, value = value
                if number != partition:
                    continue
            facts._learn(kind.rstrip(":"), value)
        return facts

    def _learn(self, kind, value):
        if kind == "sent":
            self.sent = max(self.sent, value)
        elif kind == "durable":
            self.durable = max(self.durable, value)
            self.sent = max(self.sent, value)
            self.made = True
        elif kind == "cutting":
            self.cutting = max(self.cutting, value)
        elif kind == "cut":
            self.cut = max(self.cut, value)
        elif kind == "committing":
            self.groups.setdefault(value[0], [None, set()])[1].add(value[1])
        elif kind == "committed":
            self.groups[value[0]][0] = value[1]
        elif kind in ("made", "going", "gone"):
            setattr(self, kind, True)
        elif kind == "doing":
            self.tried.add(value)
        elif kind == "did":
            self.done.add(value)


@dataclass
class Seen:
    """What a reader finds. messages: {offset: value}, of which it hands out those below durable."""

    first: int = 0
    durable: int = 0
    messages: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)

    @property
    def end(self):          # reader.end looks at headers only, and may be behind a torn block
        return self.first + len(self.messages)


def look(where, topic, partition):
    with journal.open(where, topic=topic, partition=partition) as reader:
        seen = Seen(reader.first, reader.durable, groups=reader.groups())
        for durable in (True, False):
            for records in reader.batches(seen.end, durable=durable):
                for at, value in enumerate(records.to_list()):
                    assert records.offset(at) == seen.end, f"{records.offset(at)} for {seen.end}"
                    seen.messages[seen.end] = value
            if durable:
                assert seen.end == seen.durable, f"{seen.end} of {seen.durable} can be read"
        return seen


def check_content(seen, facts, fresh=None):
    """fresh: the offset of the message that was appended after the cut."""
    for offset, value in seen.messages.items():
        wanted = NEW if offset == fresh else value_of(offset)
        if facts.buried and is_buried(offset) and offset != fresh:
            wanted = None
        assert value == wanted, f"message {offset} is {value!r:.30}, not {wanted!r:.30}"
    assert seen.first <= facts.cutting, f"messages up to {seen.first} are gone"
    assert seen.first >= facts.cut, f"{seen.first} is below {facts.cut}, where it was cut off"


def check_groups(found, facts, end):
    for name, (least, asked) in facts.groups.items():
        at = found.get(name)
        if least is not None:
            assert at is not None and at >= least, f"group {name} is at {at}, behind {least}"
        if at is not None:
            assert at <= end, f"group {name} is at {at}, and the journal ends at {end}"
            assert at in asked or at == end, f"group {name} is at {at}, not in {asked}"
    assert not found.keys() - facts.groups.keys()


def check_verify(where, topic, partition, durable, clean):
    """clean: nothing at all may be wrong. Else a torn tail may."""
    findings = journal.verify(where, topic=topic, partition=partition).findings
    wrong = findings if clean else [one for one in findings if one.offset < durable]
    assert not wrong, f"{wrong}"


def check_partition(where, facts, topic="default", partition=0, **options):
    """Reading, verifying, writing, reading again. Whether there was a journal."""
    folder = partition_folder(where, topic, partition)
    if facts.gone:
        assert not folder.exists(), "what was deleted is back"
    try:
        seen = look(where, topic, partition)
    except journal.JournalNotFound:
        assert facts.going or not facts.made, "the journal is gone"
        check_writing(where, facts, topic, partition, None, options)
        return False
    assert seen.durable <= facts.sent and facts.durable <= seen.end <= facts.sent, \
        f"{seen.durable}, {facts.durable} <= {seen.end} <= {facts.sent}"
    check_content(seen, facts)
    check_groups(seen.groups, facts, facts.sent)
    check_verify(where, topic, partition, facts.durable, clean=False)
    check_writing(where, facts, topic, partition, seen, options)
    return True


def check_writing(where, facts, topic, partition, before, options):
    """before: what a reader has found; None: no journal."""
    with journal.open(where, "a", topic=topic, partition=partition, fsync="never",
                      **options) as writer:
        begun = writer.next
        if before is None:
            assert begun == 0
        else:
            least = max(before.durable, facts.durable)
            assert least <= begun <= facts.sent, f"{least} <= {begun} <= {facts.sent}"
        assert writer.append(NEW) == begun
        writer.commit()
    seen = look(where, topic, partition)
    assert seen.end == seen.durable == begun + 1
    if before is not None:
        check_content(seen, facts, begun)
        check_groups(seen.groups, facts, begun)
    check_verify(where, topic, partition, seen.end, clean=True)
