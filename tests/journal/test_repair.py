"""Repair: killed at any point it loses nothing, gives no offset out again, and is started again.

MQ_REPAIR_KILLS=1000 kills at so many points instead of at the few dozen of an ordinary run.
"""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from journal_case import segment_files

from mqcore import journal
from mqcore.journal import place
from mqcore.journal.errors import JournalCorrupt

MODULE = sys.modules["mqcore.journal.repair"]       # in the package, the function has its name
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
    journal.repair(Path(folder))
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
    assert journal.verify(where / "default" / "0").findings == []
    with journal.open(where, "a", stamps=True, deduplicate=True) as writer:
        assert writer.recovered == () and writer.next == 60
        # what was lost is no duplicate, what is there is one
        assert writer.append(journal.stamp(1, 59) + b"59") == 60
        assert writer.append(journal.stamp(1, 45) + b"45") == -1
    for left in (where / "default" / "0").iterdir():
        assert left.suffix not in (".new", ".copy")


@pytest.mark.timeout(60 + KILLS)
def test_killed_at_any_point(tmp_path, rng, request):
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
    chosen = range(1, points + 1) if points <= KILLS else sorted(
        rng.sample(range(1, points + 1), KILLS))
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
        assert journal.repair(inside).findings is not None
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
    journal.repair(folder)
    one = ["fsync", "link", "sync_folder", "fsync", "replace", "sync_folder", "fsync"]
    assert steps == ["sync_folder", "fsync", *one, *one]


@pytest.mark.parametrize("which", [0, 2])
def test_a_gap_that_an_older_version_left(tmp_path, which):
    """It moved the damaged file away, and died before it put the new one in its place: readers
    refuse, a writer and a repair complete it."""
    folder = filled(tmp_path)
    kept = journal.repair(folder).kept
    path = segment_files(tmp_path)[which]
    os.rename(path, path.with_suffix(".new"))
    assert len(kept) == 2
    with pytest.raises(JournalCorrupt, match="interrupted"), journal.open(tmp_path) as reader:
        reader.read(40)
    check_repaired_by = journal.open(tmp_path, "a") if which else journal.repair(folder)
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
            journal.repair(folder)
    assert [path.read_bytes() for path in segment_files(tmp_path)] == before
    assert not list(folder.glob("*.new"))
    journal.repair(folder)
    check_repaired(tmp_path)


def test_without_hard_links(tmp_path, monkeypatch):
    folder = filled(tmp_path)

    def refused(*args):
        raise OSError(errno.EPERM, "Operation not permitted")

    before = [path.read_bytes() for path in segment_files(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        kept = journal.repair(folder).kept
    assert [Path(path).read_bytes() for path in kept] == [before[0], before[2]]
    check_repaired(tmp_path)


def test_a_rotten_header_of_the_last_segment_gives_no_offset_out_again(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b"%d" % i for i in range(20)])
        writer.rotate()
        writer.append_many([b"%d" % i for i in range(20, 40)])
    flip(segment_files(tmp_path)[1], 50)
    journal.repair(tmp_path / "default" / "0")
    with journal.open(tmp_path, "a") as writer:
        assert writer.next >= 40
        new = writer.append(b"new")
    with journal.open(tmp_path) as reader:
        assert reader.read(19).to_list() == [b"19"] and reader.read(new).to_list() == [b"new"]
        with pytest.raises(journal.OffsetGone):
            reader.read(20)


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
    journal.repair(path.parent)
    with journal.open(tmp_path / "k", "a") as writer:
        assert writer.next == 30


def test_locked_while_it_is_written(tmp_path):
    folder = filled(tmp_path)
    held = place.lock(folder)
    with pytest.raises(journal.JournalLocked):
        journal.repair(folder)
    place.unlock(held)
    assert len(journal.repair(folder).kept) == 2
