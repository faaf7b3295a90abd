"""A journal against a model of it in plain Python: random calls, and what may happen to them.

The model is a list: the messages taken, by offset, and how many of them are durable. After a crash
the journal may hold any number of them from `durable` to all, in order, and the model is cut there.
A message's text tells its offset and the life of the journal that it was taken in, so one that
comes back from an earlier life is found.

MQCORE_ROUNDS=5000 for long runs; MQCORE_SEED repeats one. Each round prints its own seed first.
"""

import contextlib
import os
import random
import select
import shutil
import signal
import struct
import time
import traceback

import pytest
from journal_case import arrays, segment_files
from mqcore.testing.native.journal_disk import Disk

from mqcore import journal
from mqcore.errors import Forked
from mqcore.journal.errors import JournalCorrupt, JournalFull, JournalWriteError, OffsetGone

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "12"))
STEPS = 40
SECTOR = 512
GROUPS = ("a", "b")


@pytest.fixture
def tmp_path(memory):
    return memory


def text_of(offset, life, size):
    """size None: a tombstone, whose key tells what others tell themselves."""
    return None if size is None else b"%d %d " % (offset, life) + bytes([offset % 251]) * size


def key_of(offset, life):
    return b"%d %d" % (offset, life)


class Model:
    def __init__(self, where, rng):
        self.where, self.rng = where, rng
        self.messages = []          # (life, size)
        self.first = 0              # retention has removed what is before
        self.durable = 0
        self.life = 0
        self.groups = {}
        self.copies = 0
        self.images = {}            # inode: the file as it was last synced
        self.syncs = 0              # counted once an image is in place
        self.open()

    # -- the writer --

    def open(self):
        rng = self.rng
        self.writer = journal.open(
            self.where, "a", fsync=rng.choice(("always", "interval", "never")),
            fsync_interval=rng.choice((0.001, 1.0)), block_bytes=rng.choice((1024, 8192)),
            segment_bytes=rng.choice((4096, 30_000, 1 << 20)),
            retain_bytes=rng.choice((None, 20_000)))
        self.settle()
        self.disk = Disk()
        self.disk.attach(self.writer)
        self.disk.after_sync(self.synced)

    def settle(self):
        """After opening: what is there is durable, and is what it may be."""
        end = self.writer.next
        assert self.durable <= end <= len(self.messages), (self.durable, end, len(self.messages))
        del self.messages[end:]
        self.durable = end
        self.life += 1
        self.images = {inode: raw for inode, _, raw in self.inodes()}
        self.groups = {name: min(at, end) for name, at in self.groups.items()}
        with journal.open(self.where) as reader:
            assert reader.groups() == self.groups
        self.check()

    def files(self, where=None):
        return segment_files(where or self.where)

    def inodes(self):
        found = []
        for path in self.files():
            with contextlib.suppress(FileNotFoundError):        # retention
                found.append((path.stat().st_ino, path.name, path.read_bytes()))
        return found

    def synced(self, inode):
        for number, _, raw in self.inodes():
            if number == inode:
                self.images[inode] = raw
        self.syncs += 1

    def text(self, offset):
        life, size = self.messages[offset]
        return text_of(offset, life, size)

    def fresh(self, n, sizes=(0, 1, 30, 700, 5000)):
        """n messages that come next, not yet taken."""
        end = len(self.messages)
        sizes = [self.rng.choice(sizes) for _ in range(n)]
        self.coming = [(self.life, size) for size in sizes]
        return [text_of(end + i, self.life, size) for i, size in enumerate(sizes)]

    def took(self, offsets):
        assert list(offsets) == list(range(len(self.messages), len(self.messages) + len(offsets)))
        self.messages += self.coming[:len(offsets)]
        self.coming = []
        if self.writer.fsync == "always" and len(offsets):
            assert self.writer.durable >= len(self.messages)
        self.note()

    def note(self):
        assert self.writer.next == len(self.messages)
        durable = self.writer.durable
        assert self.durable <= durable <= self.writer.written <= len(self.messages)
        self.durable = durable

    def failed(self, error):
        """taken of the coming messages are kept; a broken writer is closed, and opened again."""
        taken = getattr(error, "taken", 0)
        self.messages += self.coming[:taken]
        self.coming = []
        self.disk.fail(room=-1, bad_syncs=0)
        if isinstance(self.writer.error, JournalWriteError) and not isinstance(self.writer.error,
                                                                               JournalFull):
            self.durable = max(self.durable, self.writer.durable)
            with contextlib.suppress(JournalWriteError):
                self.writer.close()
            self.open()

    # -- reading --

    def check(self):
        """Every message that is written, in order and unchanged. The flusher may write more
        meanwhile, and remove segments."""
        with journal.open(self.where, durable=False) as reader:
            found, written = None, self.writer.written
            while found is None:
                self.first, end = reader.first, reader.end
                with contextlib.suppress(OffsetGone):
                    found = [(message, records.key(i))
                             for records in reader.batches(self.first, end)
                             for i, message in enumerate(records.to_list())]
            assert written <= end == self.first + len(found) <= len(self.messages)
            for at, (message, key) in enumerate(found, self.first):
                assert message == self.text(at)
                assert message is not None or key == key_of(at, self.messages[at][0])
            if self.first:
                with pytest.raises(OffsetGone):
                    reader.read(self.first - 1)

    def follow(self):
        self.writer.flush()
        with journal.open(self.where, durable=False) as reader, contextlib.suppress(OffsetGone):
            at = self.rng.randint(reader.first, len(self.messages))
            for records in reader.follow(at, timeout=20) if at < len(self.messages) else ():
                for message in records.to_list():
                    assert message == self.text(at)
                    at += 1
                if at == len(self.messages):
                    break
        self.note()

    # -- calls --

    def append(self):
        [message] = self.fresh(1)
        offset = self.writer.append(message)
        self.took(range(offset, offset + 1))

    def append_tombstones(self):
        values = self.fresh(self.rng.choice((1, 3, 40)), (None, None, 1, 700))
        keys = [key_of(len(self.messages) + i, self.life) for i in range(len(values))]
        if len(values) == 1:
            self.writer.append(values[0], key=keys[0])
            self.took(range(len(self.messages), len(self.messages) + 1))
        else:
            self.took(self.writer.append_many(values, keys=keys))

    def append_many(self):
        self.took(self.writer.append_many(self.fresh(self.rng.choice((0, 1, 7, 40)))))

    def append_batch(self):
        batch = self.fresh(self.rng.choice((1, 5, 60)))
        keys = arrays([b"k"] * len(batch)) if self.rng.random() < 0.3 else None
        self.took(self.writer.append_batch(*arrays(batch), keys=keys))

    def commit(self):
        assert self.writer.commit() == len(self.messages)
        self.note()

    def rotate(self):
        self.writer.rotate()
        self.note()

    def retain(self):
        removed = self.writer.retain()
        assert all(first < len(self.messages) for first in removed)
        self.check()

    def group(self):
        with journal.open(self.where) as reader:
            name, at = self.rng.choice(GROUPS), self.rng.randint(0, reader.end)
            reader.commit_offset(name, at)
            self.groups[name] = at
            assert reader.groups() == self.groups

    # -- what happens to a program --

    def fork(self):
        child = os.fork()
        if child == 0:
            wrong = 0
            for call in (lambda: self.writer.append(b"child"), self.writer.commit,
                         lambda: self.writer.append_batch(b"child", [0, 5]), self.writer.retain):
                with contextlib.suppress(Forked):
                    call()
                    wrong += 1
            self.writer.close()
            os._exit(wrong)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def close(self):
        assert self.writer.close() == len(self.messages) == self.writer.durable
        self.durable = len(self.messages)
        self.open()

    def kill(self):
        """Another process writes, says what it has been told, and is killed at any moment."""
        self.writer.close()
        self.durable = len(self.messages)
        policy, sizes = self.rng.choice(("always", "interval")), self.rng.choice((3, 900))
        out, inward = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with journal.open(self.where, "a", fsync=policy, fsync_interval=0.001,
                                  block_bytes=2048, segment_bytes=1 << 14) as writer:
                    while True:
                        offset = writer.append(text_of(writer.next, self.life, sizes))
                        os.write(inward, struct.pack("<qq", offset, writer.durable))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(inward)
        assert select.select([out], [], [], 20)[0], "the child hangs"
        time.sleep(self.rng.random() * 0.01)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        raw = b"".join(iter(lambda: os.read(out, 1 << 16), b""))
        os.close(out)
        for offset, durable in struct.iter_unpack("<qq", raw):
            self.durable = max(self.durable, durable, offset + 1 if policy == "always" else 0)
            last = offset
        if raw:         # the next one may have been taken, too
            n = last + 2 - len(self.messages)
        else:
            n = 2
        self.messages += [(self.life, sizes)] * n
        self.open()

    def power_cut(self):
        """Of what was not synced any sector may be on the disk, or not; the length is between."""
        self.durable = max(self.durable, self.writer.durable)
        images, inodes, after = self.at_one_moment()
        for path in self.files(after):
            image = images.get(inodes.get(path.name))
            if image is None:           # not even its header was synced
                path.unlink()
            else:
                path.write_bytes(self.cut(image, path.read_bytes()))
        self.move(after)

    def at_one_moment(self):
        """What is synced, and a copy of what is written, with no sync in between: a block written
        after that sync would say of an older one that it is durable, and the images would not."""
        while True:
            syncs = self.syncs
            images = dict(self.images)
            inodes = {name: inode for inode, name, _ in self.inodes()}
            after = self.copy()
            if syncs == self.syncs:
                return images, inodes, after
            shutil.rmtree(after)

    def cut(self, old, new):
        size = self.rng.choice((len(new), self.rng.randint(len(old), len(new))))
        found = bytearray(old.ljust(len(new), b"\0"))
        odds = self.rng.choice((0.0, 0.2, 0.8, 1.0))
        for at in range(0, len(new), SECTOR):
            if self.rng.random() < odds:
                found[at:at + SECTOR] = new[at:at + SECTOR]
        return bytes(found[:size])

    def killed(self):
        """As kill -9 leaves it: everything that is written is there."""
        self.durable = max(self.durable, self.writer.written)
        self.move(self.at_one_moment()[2])

    def copy(self):
        while True:
            self.copies += 1
            after = self.where.with_name(f"{self.where.name}.{self.copies}")
            try:
                shutil.copytree(self.where, after, ignore=shutil.ignore_patterns(".*"))
                return after
            except (shutil.Error, FileNotFoundError):       # a segment was removed meanwhile
                shutil.rmtree(after)

    def move(self, after):
        """Go on in the copy; the old writer and its folder are gone."""
        messages = list(self.messages)
        self.writer.close()
        shutil.rmtree(self.where)
        self.messages, self.where = messages, after
        self.open()

    def repair(self):
        """A copy with a flipped byte: refused with its place, and repaired, keeps all but that.
        Then it is written to, damaged and repaired again; no offset is given out twice."""
        self.writer.commit()
        self.note()
        if self.first == len(self.messages):
            return
        self.writer.close()
        self.durable = len(self.messages)
        after = self.copy()
        first = int(self.files(after)[0].stem)      # the flusher may have removed more
        texts = {at: self.text(at) for at in range(first, len(self.messages))}
        end = len(self.messages)
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            header = self.damage(after)
            with contextlib.suppress(JournalCorrupt):
                journal.open(after, "a").close()
            journal.store.repair.repair(after / "default" / "0")
            with journal.open(after, "a", block_bytes=1024, segment_bytes=self.rng.choice(
                    (4096, 1 << 20))) as writer:
                assert writer.next == end
                self.left(after, texts, header)
                for i in range(self.rng.choice((0, 1, 30))):
                    texts[end] = b"later %d" % i
                    assert writer.append(texts[end]) == end
                    end += 1
        self.left(after, texts, True)
        shutil.rmtree(after)
        self.open()

    def damage(self, where):
        """Whether it is the header of a segment."""
        path = self.rng.choice(self.files(where))
        raw = bytearray(path.read_bytes())
        at = self.rng.randrange(512 if self.rng.random() < 0.3 else len(raw))
        raw[at] ^= 0x40
        path.write_bytes(raw)
        return at < 512

    def left(self, where, texts, everything):
        """What can be read of these; forget the others, if any may be lost."""
        lost = dict(texts)
        with journal.open(where, durable=False) as reader:
            at = reader.first
            while at < reader.end:
                try:
                    for message in reader.read(at).to_list():
                        assert message == lost.pop(at)
                        at += 1
                except OffsetGone as error:
                    assert error.first > at
                    at = error.first
        assert not (lost and everything), lost
        for offset in lost:
            del texts[offset]

    def full(self):
        self.disk.fail(room=self.rng.choice((0, 1, 100, 700, 4000, 20_000)))

    def room(self):
        self.disk.fail(room=-1)

    def bad_sync(self):
        self.disk.fail(bad_syncs=1)

    CALLS = (append, append_many, append_batch, append_tombstones, commit, rotate, retain, group,
             follow)
    EVENTS = (fork, close, kill, power_cut, killed, repair, full, room, bad_sync)

    def step(self):
        call = self.rng.choice(self.CALLS if self.rng.random() < 0.7 else self.EVENTS)
        if call in (Model.close, Model.kill, Model.killed, Model.power_cut, Model.repair):
            self.disk.fail(room=-1, bad_syncs=0)
            if self.broken():
                return
        self.coming = []
        try:
            call(self)
        except JournalWriteError as error:
            self.failed(error)

    def broken(self):
        """The flusher may have met the failing sync: then nothing but closing is left."""
        if isinstance(self.writer.error, JournalWriteError) and not isinstance(
                self.writer.error, JournalFull):
            self.failed(self.writer.error)
            return True
        return False

    def end(self):
        self.disk.fail(room=-1, bad_syncs=0)
        self.broken()
        self.writer.close()
        self.durable = len(self.messages)
        self.check()
        assert journal.store.recovery.verify(self.where / "default" / "0").findings == []


@pytest.mark.timeout(300 + 2 * ROUNDS)
@pytest.mark.parametrize("rounds", [4, pytest.param(ROUNDS, marks=pytest.mark.slow)])
def test_against_the_model(tmp_path, seed, rounds):
    for i in range(rounds):
        print(f"round {i}: MQCORE_SEED={seed + i}")
        model = Model(tmp_path / f"j{i}", random.Random(seed + i))
        try:
            for _ in range(STEPS):
                model.step()
            model.end()
        finally:
            with contextlib.suppress(JournalWriteError):
                model.writer.close()
        shutil.rmtree(model.where)
