"""Repair: killed at any point it loses nothing, gives no offset out again, and is started again.

MQ_REPAIR_KILLS=1000 kills at so many points instead of at the few dozen of an ordinary run.
"""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import journal_reference as ref
import pytest
from journal_case import segment_files

from mqcore import journal
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.store.exclusive import Lock
from mqcore.journal.store.scan import parse_segment

MODULE = sys.modules["mqcore.journal.store.repair"]
KILLS = int(os.environ.get("MQ_REPAIR_KILLS", "48"))
# Forks for each line "folder point", repairs there, and kills itself before or after the point-th
# call of anything written in C; point -1 counts them. Answers with how the child ended.
REPAIRS = """
import os, signal, sys
from pathlib import Path
from mqcore import journal

def run(folder, point):
    seen = 0
    def step(frame, event, what):
        nonlocal seen
        if event in ("c_call", "c_return"):
            seen += 1
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(step)
    journal.store.repair.repair(Path(folder))
    sys.setprofile(None)
    return seen

for line in sys.stdin:
    folder, point = line.rsplit(None, 1)
    back, there = os.pipe()
    child = os.fork()
    if child == 0:
        seen = run(folder, int(point))
        os.write(there, b"%d" % seen)
        os._exit(0)
    os.close(there)
    number = os.read(back, 20).decode()
    os.close(back)
    _, status = os.waitpid(child, 0)
    print("killed" if os.WIFSIGNALED(status) else number, flush=True)
"""


@pytest.fixture
def tmp_path(memory):
    return memory


def flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x40
    path.write_bytes(raw)


def blocks_of(path):
    raw = path.read_bytes()
    return [i for i in range(512, len(raw), 64) if raw[i:i + 4] == b"MQB1"]


def filled(where):
    """Three segments of 20 messages in two blocks; the first and the last are damaged, the last in
    its second block, which a checkpoint calls durable."""
    with journal.open(where, "a", stamps=True, deduplicate=True) as writer:
        for i in range(6):
            writer.append_many([journal.stamp(1, 10 * i + k) + b"%d" % (10 * i + k)
                                for k in range(10)])
            writer.commit()
            if i in (1, 3):
                writer.rotate()
    paths = segment_files(where)
    flip(paths[0], blocks_of(paths[0])[0] + 150)
    flip(paths[2], blocks_of(paths[2])[1] + 150)
    return where / "default" / "0"


LOST = [*range(10), *range(50, 60)]


def check_repaired(where):
    with journal.open(where) as reader:
        assert reader.end == 60
        for offset in range(60):
            if offset in LOST:
                with pytest.raises(journal.OffsetGone):
                    reader.read(offset)
            else:
                assert reader.read(offset)[0] == b"%d" % offset
    assert journal.store.recovery.verify(where / "default" / "0").findings == []
    with journal.open(where, "a", stamps=True, deduplicate=True) as writer:
        assert writer.recovered == () and writer.next == 60
        # a lost number may come again; a stored one is a duplicate
        assert writer.append(journal.stamp(1, 59) + b"59") == 60
        assert writer.append(journal.stamp(1, 45) + b"45") == -1
    for left in (where / "default" / "0").iterdir():
        assert left.suffix not in (".new", ".copy")


@pytest.mark.timeout(300 + KILLS)
@pytest.mark.parametrize("kills", [16, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_killed_at_any_point(tmp_path, rng, request, kills):
    filled(tmp_path / "j")
    before = {path.name: path.read_bytes() for path in segment_files(tmp_path / "j")}
    helper = subprocess.Popen([sys.executable, "-c", REPAIRS], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    request.addfinalizer(helper.stdout.close)
    request.addfinalizer(helper.wait)
    request.addfinalizer(helper.stdin.close)

    def killed(where, point):
        helper.stdin.write(f"{where / 'default' / '0'} {point}\n")
        helper.stdin.flush()
        return helper.stdout.readline().strip()

    shutil.copytree(tmp_path / "j", tmp_path / "count")
    points = int(killed(tmp_path / "count", -1))
    check_repaired(tmp_path / "count")
    chosen = range(1, points + 1) if points <= kills else sorted(
        rng.sample(range(1, points + 1), kills))
    refused = done = 0
    for point in chosen:
        where = tmp_path / f"at{point}"
        shutil.copytree(tmp_path / "j", where)
        assert killed(where, point) == "killed", point
        inside = where / "default" / "0"
        # each segment is there, as it was or repaired, and what was damaged has not been lost
        asides = [path.read_bytes() for path in inside.glob("*.damaged")]
        for name, raw in before.items():
            assert (inside / name).read_bytes() == raw or raw in asides, (point, name)
        try:        # a writer opens what is repaired, or refuses it; no offset is given out again
            with journal.open(where, "a") as writer:
                assert writer.next == 60 and writer.recovered == (), point
                done += 1
        except JournalCorrupt:
            refused += 1
        assert journal.store.repair.repair(inside).findings is not None
        check_repaired(where)
        shutil.rmtree(where)
    print(f"{len(chosen)} of {points} points; refused {refused}, opened {done}")
    assert refused


def test_the_order_of_its_steps(tmp_path, monkeypatch):
    """So that a power cut finds what a kill finds."""
    folder = filled(tmp_path)
    steps = []

    def noted(name, of=os):
        real = getattr(of, name)

        def call(*args, **kw):
            steps.append(name)
            return real(*args, **kw)
        monkeypatch.setattr(of, name, call)

    for name in ("link", "replace", "fsync"):
        noted(name)
    noted("sync_folder", MODULE)
    journal.store.repair.repair(folder)
    one = ["fsync", "link", "sync_folder", "fsync", "replace", "sync_folder", "fsync"]
    before = ["sync_folder", "fsync"]       # what a repair that was killed has left
    assert steps == [*before, "sync_folder", "fsync", *one, *one]


@pytest.mark.parametrize("which", [0, 2])
def test_a_gap_that_an_older_version_left(tmp_path, which):
    """It moved the damaged file away, and died before it put the new one in its place: readers
    refuse, a writer and a repair complete it."""
    folder = filled(tmp_path)
    kept = journal.store.repair.repair(folder).kept
    path = segment_files(tmp_path)[which]
    os.rename(path, path.with_suffix(".new"))
    assert len(kept) == 2
    with pytest.raises(JournalCorrupt, match="interrupted"), journal.open(tmp_path) as reader:
        reader.read(40)
    check_repaired_by = journal.open(tmp_path, "a") if which else journal.repair(tmp_path)
    if which:
        check_repaired_by.close()
    check_repaired(tmp_path)


def test_a_full_disk_leaves_everything_as_it_was(tmp_path, monkeypatch):
    folder = filled(tmp_path)
    before = [path.read_bytes() for path in segment_files(tmp_path)]

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(MODULE, "sync_folder", lambda folder: None)
        with pytest.raises(OSError, match="No space"):
            journal.store.repair.repair(folder)
    assert [path.read_bytes() for path in segment_files(tmp_path)] == before
    assert not list(folder.glob("*.new"))
    journal.store.repair.repair(folder)
    check_repaired(tmp_path)


def refused_copy(fd, path, target, size):
    target.write_bytes(b"half")
    raise OSError(errno.EIO, "Input/output error")


def test_without_hard_links(tmp_path, monkeypatch):
    folder = filled(tmp_path)

    def refused(*args):
        raise OSError(errno.EPERM, "Operation not permitted")

    before = [path.read_bytes() for path in segment_files(tmp_path)]
    for path in segment_files(tmp_path):
        path.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        with monkeypatch.context() as unreadable:
            unreadable.setattr(MODULE, "copy_file", refused_copy)
            with pytest.raises(OSError, match="Input/output"):
                journal.store.repair.repair(folder)
        assert not list(folder.glob("*.copy")) and not list(folder.glob("*.new"))
        kept = journal.store.repair.repair(folder).kept
    assert {os.stat(path).st_mode & 0o777 for path in kept} == {0o600}
    assert [Path(path).read_bytes() for path in kept] == [before[0], before[2]]
    check_repaired(tmp_path)


@pytest.fixture
def two(tmp_path):
    """Two segments of 20 messages in two blocks each; some hold what looks like a block."""
    where = tmp_path / "two"
    with journal.open(where, "a") as writer:
        for i in range(4):
            writer.append_many([b"%d" % k for k in range(10 * i, 10 * i + 10)])
            writer.commit()
            if i == 1:
                writer.rotate()
    return where


def hold(where, end, lost=()):
    """Every message that was given out up to `end` is there, but those."""
    with journal.open(where) as reader:
        for offset in range(end):
            if offset in lost:
                with pytest.raises(journal.OffsetGone):
                    reader.read(offset)
            else:
                assert reader.read(offset)[0] == b"%d" % offset
    assert journal.store.recovery.verify(where / "default" / "0").findings == []


@pytest.mark.parametrize("which", [0, 1])
def test_a_rotten_header_loses_nothing(tmp_path, two, copy, which):
    """Whichever byte it is: the blocks tell the salt."""
    with journal.open(two) as reader:
        ident = reader._open(0, [0]).header.journal
    for at in [0, 8, 12, 16, 24, 32, 40, *range(48, 56), 56, 60, 64, 70, 320, 511]:
        where = copy(two)
        path = segment_files(where)[which]
        flip(path, at)
        with pytest.raises(JournalCorrupt):
            journal.open(where, "a")
        [finding] = journal.store.recovery.verify(path.parent).findings
        assert (finding.position, finding.lost) == (0, 0)
        journal.store.repair.repair(path.parent)
        with journal.open(where, "a") as writer:
            assert writer.append(b"40") == 40, at
        hold(where, 41)
        with journal.open(where) as reader:
            header = reader._open(20 * which, [20 * which]).header
            assert (header.journal, header.topic, header.partition) == (ident, b"default", 0)


def test_a_header_that_is_gone_altogether(two, copy):
    for size in (1, 100, 512):
        where = copy(two)
        path = segment_files(where)[1]
        path.write_bytes(bytes(size) + path.read_bytes()[size:])
        journal.store.repair.repair(path.parent)
        hold(where, 40)
        with journal.open(where, "a") as writer:
            assert writer.next == 40


def test_a_header_and_the_block_behind_it(two, copy):
    """A message that looks like blocks is outvoted by the real ones."""
    with journal.open(two, "a") as writer:
        other = segment_files(two)[0].read_bytes()
        start = blocks_of(segment_files(two)[0])[0]
        writer.append(bytes(-(writer._counters()["pos"] + 128 + 64 + 64) % 64) + other[start:])
        for i in range(41, 44):
            writer.append(b"%d" % i)
            writer.commit()
    path = segment_files(two)[1]
    raw = bytearray(path.read_bytes())
    raw[:512] = bytes(512)
    raw[512 + 5] ^= 1
    path.write_bytes(raw)
    journal.store.repair.repair(path.parent)
    with journal.open(two) as reader:
        assert [reader.read(i)[0] for i in (30, 39, 41, 43)] == [b"30", b"39", b"41", b"43"]
        with pytest.raises(journal.OffsetGone):
            reader.read(20)
    with journal.open(two, "a") as writer:
        assert writer.next == 44


def test_no_offset_is_given_out_again_however_often_it_is_repaired(two, rng):
    """Repaired segments have blocks whose offsets jump: the size of the file tells nothing."""
    end = 40
    for _ in range(6):
        path = segment_files(two)[-1]
        raw = bytearray(path.read_bytes())
        for at in rng.choice(((10,), (50,), range(512), range(len(raw)), range(0, len(raw), 64))):
            raw[at] ^= 0x40
        path.write_bytes(raw)
        journal.store.repair.repair(path.parent)
        with journal.open(two, "a") as writer:
            assert writer.next >= end
            [new] = writer.append_many([b"new"])
            end = new + 1
        with journal.open(two) as reader:
            assert reader.read(new).to_list() == [b"new"] and reader.end == end


@pytest.mark.parametrize("n", [1, 7])
def test_a_block_that_reaches_into_the_next_segment(tmp_path, n):
    """Whose sum is right. Its messages have offsets that the next segment has, too."""
    with journal.open(tmp_path, "a") as writer:
        for _ in range(2):
            writer.append_many([b"x"] * 10)
            writer.commit()
        writer.rotate()
        writer.append(b"next")
    path, _ = segment_files(tmp_path)
    raw, at = path.read_bytes(), blocks_of(path)[1]
    salt = parse_segment(raw[:512]).salt
    path.write_bytes(raw[:at] + ref.block(10, 10, salt, [{"time": 1, "value": b"y"}] * (10 + n)))
    [finding] = journal.verify(tmp_path).findings
    assert (finding.position, finding.offset, finding.lost) == (at, 10, 10)
    assert len(journal.repair(tmp_path).findings) == 1
    assert not journal.verify(tmp_path).findings and not journal.repair(tmp_path).findings
    with journal.open(tmp_path) as reader:
        got = [(records.first, records.to_list()) for records in reader.batches(0, gaps="skip")]
        assert got == [(0, [b"x"] * 10), (20, [b"next"])]


def test_a_rotten_end_gives_no_offset_out_again(tmp_path):
    """The last two blocks; the header of the very last still says which messages it held."""
    with journal.open(tmp_path / "j", "a", fsync="never") as writer:
        for i in range(3):
            writer.append_many([b"%d" % i] * 10)
            writer.commit()
        shutil.copytree(tmp_path / "j", tmp_path / "k")
    [path] = segment_files(tmp_path / "k")
    starts = blocks_of(path)
    flip(path, starts[1] + 150)
    flip(path, starts[2] + 150)
    with pytest.raises(JournalCorrupt):
        journal.open(tmp_path / "k", "a")
    journal.store.repair.repair(path.parent)
    with journal.open(tmp_path / "k", "a") as writer:
        assert writer.next == 30


def test_locked_while_it_is_written(tmp_path):
    folder = filled(tmp_path)
    held = Lock(folder)
    with pytest.raises(journal.JournalLocked):
        journal.store.repair.repair(folder)
    held.release()
    assert len(journal.store.repair.repair(folder).kept) == 2


def test_a_partition_is_named_as_everywhere(tmp_path):
    """verify() and repair() take where, topic and partition, as open() does."""
    with journal.open(tmp_path, "a", topic="t", partition=2) as writer:
        writer.append(b"1")
    done = []
    checked = journal.verify(tmp_path, topic="t", partition=2, progress=done.append)
    assert (checked.messages, checked.findings, len(done)) == (1, [], 1)
    assert journal.repair(tmp_path, topic="t", partition=2).kept == []
    for call in (journal.verify, journal.repair):
        with pytest.raises(journal.JournalNotFound, match="list_partitions"):
            call(tmp_path, topic="t")


def test_the_name_of_a_topic_that_only_its_header_tells(tmp_path):
    """A new header must have it: the partition's folder has a part and a hash."""
    topic = "t" * 255
    with journal.open(tmp_path, "a", topic=topic) as writer:
        writer.append(b"1")
    [path] = tmp_path.rglob("*.mqj")
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(JournalCorrupt, match="name the topic"):
        journal.repair(path.parent)
    assert path.read_bytes() == damaged and not list(path.parent.glob("*.new"))
    journal.repair(tmp_path, topic=topic)
    with journal.open(tmp_path, topic=topic) as reader:
        assert reader.read(0).to_list() == [b"1"]
    assert journal.verify(path.parent).findings == []


def test_a_call_takes_the_folder_of_one_partition(tmp_path, monkeypatch):
    with journal.open(tmp_path, "a", topic="t", partition=2) as writer:
        writer.append(b"1")
    folder = tmp_path / "t" / "2"
    assert journal.verify(folder).messages == 1
    assert journal.repair(folder).kept == []
    monkeypatch.chdir(folder)
    assert journal.verify(".").messages == 1
    # not of a topic's folder, another topic below it, or a folder with nothing in it
    (tmp_path / "3").mkdir()
    for where, which in ((tmp_path / "t", {}), (folder, {"topic": "t"}),
                         (folder, {"partition": 2}), (tmp_path / "3", {})):
        for call in (journal.verify, journal.repair):
            with pytest.raises(journal.JournalNotFound, match="list_partitions"):
                call(where, **which)
    # a journal that is in a folder called 3 is a journal
    with journal.open(tmp_path / "3", "a") as writer:
        writer.append(b"1")
    assert journal.verify(tmp_path / "3").messages == 1
