"""Crashes: a tail cut at every byte, a power cut that reorders pages, kill -9, a rotten middle."""

import concurrent.futures
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from journal_case import contents, numbered, segment_files
from mqcore.testing.native.journal_disk import Disk

from mqcore import journal
from mqcore.journal.errors import JournalCorrupt

PAGE = 4096
SECTOR = 512


def test_cut_at_every_byte(memory):
    """However much of the last block is there: the synced ones are whole, and it goes on."""
    writer = journal.open(memory / "j", "a", fsync="never")
    writer.append_many([b"one", b"two"])
    writer.commit()
    [path] = segment_files(memory / "j")
    kept = path.stat().st_size
    writer.append_many([b"three", b"four"])
    writer.flush()
    whole = path.read_bytes()
    where = memory / "copy"
    shutil.copytree(memory / "j", where, ignore=shutil.ignore_patterns(".*"))
    writer.close()
    [path] = segment_files(where)
    shown = (path.parent / "durable").read_bytes()
    for size in range(kept, len(whole) + 1):
        path.write_bytes(whole[:size])
        (path.parent / "durable").write_bytes(shown)
        with journal.open(where) as reader:
            assert reader.end == (4 if size == len(whole) else 2), size
        with journal.open(where, "a") as again:
            if size in (kept, len(whole)):
                assert again.recovered == ()
            else:
                [dropped] = again.recovered
                assert (dropped.position, dropped.bytes, dropped.offset) == (kept, size - kept, 2)
                assert str(size - kept) in str(dropped)
            assert again.append(b"next") == again.durable
        expected = [b"one", b"two", b"three", b"four"][:4 if size == len(whole) else 2]
        assert contents(where) == [*expected, b"next"]


@pytest.mark.parametrize("size", [0, 1, 511, 512])
def test_cut_in_the_header_of_a_new_segment(tmp_path, size):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"one")
        writer.rotate()
    [first, second] = segment_files(tmp_path)
    os.truncate(second, size)
    with journal.open(tmp_path) as reader:
        assert reader.end == 1 and reader.read(1).to_list() == []
    with journal.open(tmp_path, "a") as writer:
        assert [d.bytes for d in writer.recovered] == ([] if size == 512 else [size])
        assert writer.append(b"two") == 1
    assert contents(tmp_path) == [b"one", b"two"]


def power_cut(raw, synced, rng):
    """What may be found of a file afterwards: up to `synced` all; of what is behind, each page or
    the beginning of it, or zeroes, or what another page should have; and then it may be cut."""
    pages = range(synced - synced % PAGE, len(raw), PAGE)
    whole = [start for start in pages if start >= synced and start + PAGE <= len(raw)]
    after = bytearray(raw)
    for start in pages:
        low, high = max(start, synced), min(start + PAGE, len(raw))
        kind = rng.random()
        if kind < 0.3:
            after[low:high] = bytes(high - low)
        elif kind < 0.4:
            torn = min(high, low + rng.randrange(1, 8) * SECTOR)
            after[torn:high] = bytes(high - torn)
        elif kind < 0.6 and start in whole:
            other = rng.choice(whole)
            after[start:start + PAGE] = raw[other:other + PAGE]
    return bytes(after[:rng.choice((len(raw), rng.randint(synced, len(raw))))])


class PowerCuts:
    """Copies of a journal as power cuts would leave it, each the moment before its writer calls the
    system, and what comes of them: all that was durable is there, and once those who were not
    told send again, everything, once and in order."""

    def __init__(self, where, writer, copy, rng):
        self.where, self.writer, self.copy, self.rng = where, writer, copy, rng
        self.sent = []
        self.disk = Disk()
        self.disk.attach(writer)
        self.disk.before(self.perhaps)
        self.cuts = self.lost = 0

    def perhaps(self):
        if threading.current_thread() is threading.main_thread() and self.rng.random() < 0.1:
            self.cuts += 1
            durable = self.writer.durable
            synced = {path.name: self.disk.synced(path) for path in segment_files(self.where)}
            # on a thread of its own, which holds no lock of the writer that writes just now
            with concurrent.futures.ThreadPoolExecutor(1) as other:
                other.submit(self.check, self.copy(self.where), synced, durable).result()

    def cut(self, after, synced):
        for path in segment_files(after):
            raw = path.read_bytes()
            if len(raw) > 512:
                path.write_bytes(power_cut(raw, max(512, synced[path.name]), self.rng))
            elif self.rng.random() < 0.5:
                path.unlink()           # not even the folder was synced
            else:
                path.write_bytes(raw[:self.rng.choice((0, 100, 512))])
        if self.rng.random() < 0.5:
            (after / "default" / "0" / "producers").unlink(missing_ok=True)

    def check(self, after, synced, durable):
        self.cut(after, synced)
        with journal.open(after, "a", stamps=True, deduplicate=True) as again:
            assert again.next >= durable
            self.lost += again.next < len(self.sent)
            found = contents(after)
            assert found == [value for _, value in self.sent[:len(found)]]
            for message, value in self.sent[self.rng.randint(0, durable):]:
                again.append(message + value)
        assert contents(after) == [value for _, value in self.sent]
        shutil.rmtree(after)


def test_power_cut(tmp_path, copy, rng):
    where = tmp_path / "j"
    sequences = [0, 0, 0]
    with journal.open(where, "a", fsync="never", block_bytes=8192, segment_bytes=1 << 16,
                      stamps=True, deduplicate=True) as writer:
        power = PowerCuts(where, writer, copy, rng)
        rounds = itertools.count()
        while next(rounds) < 60 or power.cuts < 6 or power.lost < 2:
            batch = []
            for value in numbered(len(power.sent), rng.choice((0, 1, 3, 40)), rng):
                who = rng.randrange(3)
                batch.append((journal.stamp(who + 1, sequences[who]), value))
                sequences[who] += 1
            power.sent += batch
            writer.append_many([message + value for message, value in batch])
            rng.choice((writer.flush, writer.flush, writer.commit, writer.retain))()
        power.disk.before(None)
        assert writer._counters()["rotations"] > 2


def test_power_cut_at_a_rotation(tmp_path, rng):
    """A segment is synced before the next exists, and the checkpoint comes after that sync."""
    disk = Disk()
    with journal.open(tmp_path, "a", fsync="never") as writer:
        disk.attach(writer)
        writer.append(b"x" * 100)
        writer.rotate()
    kinds = [what for what, _ in disk.happened()]
    assert kinds[:5] == ["write", "sync", "write", "sync", "write"] and kinds[5] == "sync"


def test_durable_means_synced(tmp_path):
    """`durable` moves with an fsync behind the write and never otherwise."""
    disk = Disk()
    with journal.open(tmp_path, "a", fsync="never") as writer:
        disk.attach(writer)
        writer.append(b"one")
        writer.flush()
        assert (writer.written, writer.durable) == (1, 0)
        assert [what for what, _ in disk.happened()] == ["write"]
        assert writer.commit() == 1 == writer.durable
        assert [what for what, _ in disk.happened()] == ["write", "sync"]
    disk = Disk()
    with journal.open(tmp_path, "a", fsync="always") as writer:
        disk.attach(writer)
        writer.append(b"two")
        assert [what for what, _ in disk.happened()] == ["write", "sync"] and writer.durable == 2


KILLED = """
import sys
from mqcore import journal
where, policy = sys.argv[1:]
writer = journal.open(where, "a", fsync=policy, fsync_interval=0.002, segment_bytes=1 << 16,
                      block_bytes=4096)
n = writer.next
out = sys.stdout
while True:
    batch = [b"%08d" % i + bytes(i % 300) for i in range(n, n + 1 + n % 50)]
    if n % 3:
        writer.append_many(batch)
    else:
        for message in batch:
            writer.append(message)
    n += len(batch)
    out.write(f"{writer.durable}\\n")
    out.flush()
"""


def expected(i):
    return b"%08d" % i + bytes(i % 300)


@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", ["always", "interval"])
def test_kill_9_at_random_moments(tmp_path, policy, kills, rng):
    """Whatever a writer has called durable is there, once and in order."""
    durable = 0
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path, policy],
                                   stdout=subprocess.PIPE)
        assert process.stdout.readline()
        time.sleep(rng.random() * 0.15)
        os.kill(process.pid, signal.SIGKILL)
        lines = process.communicate()[0].split(b"\n")[:-1]
        durable = max([durable, *map(int, lines)])
        with journal.open(tmp_path, durable=False) as reader:
            found = [m for records in reader.batches() for m in records.to_list()]
        assert len(found) >= durable
        assert all(m == expected(i) for i, m in enumerate(found))
    assert durable > 0
    with journal.open(tmp_path, "a") as writer:
        assert writer.next == len(found)
    assert journal.store.recovery.verify(tmp_path / "default" / "0").findings == []


def damaged(where, block, at, copy):
    """A copy in which a byte of the n-th block of the first segment is flipped."""
    there = copy(where)
    path = segment_files(there)[0]
    raw = bytearray(path.read_bytes())
    starts = [i for i in range(512, len(raw), 64) if raw[i:i + 4] == b"MQB1"]
    raw[starts[block] + at] ^= 0x40
    path.write_bytes(raw)
    return there, path, starts[block]


@pytest.mark.parametrize("at", [0, 5, 9, 20, 60, 100, 128, 250])
def test_a_rotten_middle_is_refused_with_its_place(tmp_path, copy, at):
    with journal.open(tmp_path / "j", "a") as writer:
        for i in range(3):
            writer.append_many([b"%d" % i] * 10)
            writer.commit()
    where, path, position = damaged(tmp_path / "j", 1, at, copy)
    with journal.open(where) as reader:
        assert reader.read(0).to_list()[:10] == [b"0"] * 10
        with pytest.raises(JournalCorrupt) as caught:
            reader.read(10)
    assert (caught.value.path, caught.value.position, caught.value.offset) == \
        (str(path), position, 10)
    assert str(position) in str(caught.value) and "repair" in str(caught.value)
    before = path.read_bytes()
    with pytest.raises(JournalCorrupt):
        journal.open(where, "a")
    assert path.read_bytes() == before          # nothing was cut off
    [finding] = journal.store.recovery.verify(path.parent).findings
    assert (finding.position, finding.offset, finding.lost) == (position, 10, 10)

    done = journal.store.repair.repair(path.parent)
    assert done.findings == [finding] and len(done.kept) == 1
    with journal.open(where, "a") as writer:
        assert writer.append(b"new") == 30
    with journal.open(where) as reader:
        assert reader.read(0).to_list() == [b"0"] * 10
        for lost in range(10, 20):
            with pytest.raises(journal.OffsetGone) as caught:
                reader.read(lost)
            assert caught.value.first == 20
        assert reader.read(20).to_list() == [b"2"] * 10 + [b"new"] or len(reader.read(20)) == 10
        assert reader.read(30).to_list() == [b"new"]
    assert journal.store.recovery.verify(path.parent).findings == []


@pytest.mark.parametrize("at", [0, 20, 50])
def test_a_rotten_header_is_repaired(tmp_path, at):
    with journal.open(tmp_path, "a") as writer:
        for i in range(3):
            writer.append(b"%d" % i)
            writer.rotate()
    path = segment_files(tmp_path)[1]
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    with journal.open(tmp_path) as reader, pytest.raises(JournalCorrupt):
        reader.read(1)
    [finding] = journal.store.repair.repair(path.parent).findings
    assert (finding.offset, finding.lost) == (1, 0)
    assert contents(tmp_path) == [b"0", b"1", b"2"]
    journal.open(tmp_path, "a").close()


@pytest.mark.parametrize("at", [0, 20, 50])
def test_a_rotten_header_with_a_rotten_block_behind_it(tmp_path, at):
    with journal.open(tmp_path, "a") as writer:
        for i in range(3):
            writer.append(b"%d" % i)
            writer.rotate()
    path = segment_files(tmp_path)[1]
    raw = bytearray(path.read_bytes())
    for place in (at, 512 + 9, len(raw) - 100):     # and the checkpoint
        raw[place] ^= 1
    path.write_bytes(raw)
    [finding] = journal.store.repair.repair(path.parent).findings
    assert (finding.offset, finding.lost) == (1, 1)
    with journal.open(tmp_path) as reader:
        assert (reader.read(0)[0], reader.read(2)[0], reader.end) == (b"0", b"2", 3)
        with pytest.raises(journal.OffsetGone):
            reader.read(1)
    journal.open(tmp_path, "a").close()


def test_repair_of_a_good_journal_changes_nothing(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x")
        with pytest.raises(journal.JournalLocked):
            journal.store.repair.repair(tmp_path / "default" / "0")
    before = segment_files(tmp_path)[0].read_bytes()
    assert journal.store.repair.repair(tmp_path / "default" / "0").kept == []
    assert segment_files(tmp_path)[0].read_bytes() == before


def test_the_last_durable_block_is_protected_by_the_checkpoint(tmp_path, copy):
    with journal.open(tmp_path / "j", "a") as writer:
        writer.append(b"only")
    where, _, _ = damaged(tmp_path / "j", 0, 130, copy)
    with pytest.raises(JournalCorrupt):
        journal.open(where, "a")


def test_damage_in_an_old_segment_is_refused(tmp_path, copy):
    with journal.open(tmp_path / "j", "a") as writer:
        for i in range(3):
            writer.append(b"%d" % i)
            writer.rotate()
    where, path, position = damaged(tmp_path / "j", 0, 130, copy)
    with journal.open(where) as reader, pytest.raises(JournalCorrupt) as caught:
        reader.read(0)
    assert caught.value.position == position
    os.unlink(segment_files(where)[1])
    with pytest.raises(JournalCorrupt):         # a segment is missing
        journal.open(where, "a")


def test_unsynced_blocks_behind_a_torn_one_are_dropped(tmp_path, copy):
    """Writes reach the disk in another order: a later block is whole, an earlier one torn."""
    with journal.open(tmp_path / "j", "a", fsync="never") as writer:
        for i in range(3):
            writer.append(b"%d" % i)
            writer.flush()
        where, _, position = damaged(tmp_path / "j", 1, 130, copy)
    with journal.open(where, "a") as again:
        [dropped] = again.recovered
        assert (dropped.offset, dropped.position, again.next) == (1, position, 1)


def test_groups_do_not_skip_what_takes_the_place_of_lost_messages(tmp_path, copy):
    with journal.open(tmp_path / "j", "a", fsync="never") as writer:
        writer.append(b"one")
        writer.commit()
        size = segment_files(tmp_path / "j")[0].stat().st_size
        writer.append_many([b"two", b"three"])
        writer.flush()
        with journal.open(tmp_path / "j") as reader:
            reader.commit_offset("g", reader.end)
        where = copy(tmp_path / "j")
    os.truncate(segment_files(where)[0], size)
    journal.open(where, "a").close()
    with journal.open(where) as reader:
        assert reader.committed_offset("g") == 1


def test_policies_lose_no_more_than_they_say(tmp_path):
    """A writer that just ends delivers everything: its own exit closes it."""
    program = ("import sys\nfrom mqcore import journal\n"
               "w = journal.open(sys.argv[1], 'a', fsync=sys.argv[2])\nw.append(b'x')\n")
    for i, policy in enumerate(itertools.chain(["always", "interval", "never"])):
        subprocess.run([sys.executable, "-c", program, tmp_path, policy], check=True)
        assert contents(tmp_path) == [b"x"] * (i + 1)
