"""Consumer groups: commits of many at once, foreign files, kills, a full disk."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from journal_case import contents

import mqcore as mq
from mqcore import journal
from mqcore.journal.store import place


@pytest.fixture
def tmp_path(memory):
    return memory


@pytest.fixture
def folder(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b"%d" % i for i in range(100)])
    return tmp_path / "default" / "0"


def test_commits_of_many_threads(tmp_path, folder):
    """None fails, no reader sees a half file, and the last one stays."""
    errors, done = [], threading.Event()

    def commit(first):
        try:
            with journal.open(tmp_path) as reader:
                for i in range(40):
                    reader.commit_offset("g", first + i)
        except BaseException as error:
            errors.append(error)

    def look():
        try:
            while not done.is_set():
                assert place.group_offset(folder, "g") in {None, *range(100)}
                assert set(place.groups(folder)) <= {"g"}
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=commit, args=(10 * i,)) for i in range(6)]
    looking = threading.Thread(target=look)
    looking.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    looking.join()
    assert errors == []
    assert os.listdir(folder / "groups") == ["g"]


COMMITS = """
import os, sys
from mqcore import journal
with journal.open(sys.argv[1]) as reader:
    print("go", flush=True)
    i = 0
    while i < int(sys.argv[2]):
        reader.commit_offset("g", i % 100)
        i += 1
"""


def test_commits_of_many_processes(tmp_path, folder):
    processes = [subprocess.Popen([sys.executable, "-c", COMMITS, tmp_path, "100"],
                                  stdout=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate()[0] for process in processes] == [b"go\n"] * 3
    assert [process.returncode for process in processes] == [0] * 3
    assert place.groups(folder) == {"g": 99} and os.listdir(folder / "groups") == ["g"]


def test_commits_of_a_forked_child(tmp_path, folder):
    with journal.open(tmp_path) as reader:
        reader.commit_offset("g", 1)
        child = os.fork()
        if child == 0:
            try:
                reader.commit_offset("g", 2)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert reader.committed_offset("g") == 2


def test_killed_while_it_commits(tmp_path, folder, rng):
    """The group is where one of the commits put it; what is half written goes in time."""
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", COMMITS, tmp_path, "1000000"],
                                   stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"go\n"
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert place.group_offset(folder, "g") in {None, *range(100)}
    half = folder / "groups" / ".g.0123456789abcdef"
    half.parent.mkdir(exist_ok=True)
    half.write_bytes(b"4")
    journal.open(tmp_path, "a").close()
    assert half.exists()            # perhaps it is being written right now
    os.utime(half, (0, 0))
    journal.open(tmp_path, "a").close()
    assert not half.exists()


@pytest.mark.parametrize("raw", [b"", b"abc", b"-5\n", b" 7", b"1_000", b"9" * 30, b"\xff\xfe",
                                 b"\0" * 10, b"7\n", b"7\n00000000\n", None])
def test_what_is_no_groups_file_stops_nothing(tmp_path, folder, raw, caplog):
    """Who asks for this group gets an error. Opening, retention, which keeps everything for it, and
    other groups go on, with one warning."""
    with journal.open(tmp_path) as reader:
        reader.commit_offset("good", 50)
    if raw is None:
        (folder / "groups" / "bad").mkdir()
    else:
        (folder / "groups" / "bad").write_bytes(raw)
    with journal.open(tmp_path, "a", retain_for=("good", "bad"), segment_bytes=4096,
                      block_bytes=1024, fsync_interval=0.01) as writer:
        writer.append_many([b"x" * 500] * 20)
        writer.commit()
        assert writer.retain() == []        # for "bad" has read nothing
        with journal.open(tmp_path) as reader:
            if raw is None:
                assert reader.committed_offset("bad") is None
            else:
                with pytest.raises(journal.JournalCorrupt, match="how far this consumer group"):
                    reader.committed_offset("bad")
            assert reader.groups() == {"good": 50}
            reader.commit_offset("good", 60)
            writer.append(b"last")
            assert next(reader.follow(120, timeout=20))[0] == b"last"       # flushed by itself
            if raw is not None:     # and once it has committed, it counts
                reader.commit_offset("bad", 120)
                reader.commit_offset("good", 120)
                writer.retain()
                assert reader.first > 0
    warned = [r.message.count("passed over as the file of a consumer") for r in caplog.records]
    assert warned.count(1) == 1


@pytest.mark.parametrize("group", ["g", "é" * 100])
def test_a_bit_of_a_groups_file(tmp_path, folder, group):
    """Each of them: the offset that was committed, or an error; and retention keeps the rest."""
    with journal.open(tmp_path) as reader:
        reader.commit_offset(group, 50)
        [path] = (folder / "groups").iterdir()
        raw = path.read_bytes()
        for bit in range(8 * len(raw)):
            flipped = bytearray(raw)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            try:
                assert reader.committed_offset(group) == 50
            except journal.JournalCorrupt as error:
                assert error.path == str(path)
            assert place.floor_of(folder, (group,)) in (0, 50)


def test_a_file_of_another_group_is_none(tmp_path, folder):
    with journal.open(tmp_path) as reader:
        reader.commit_offset("a", 50)
        (folder / "groups" / "a").rename(folder / "groups" / "b")
        assert reader.committed_offset("a") is None
        with pytest.raises(journal.JournalCorrupt):
            reader.committed_offset("b")
        reader.commit_offset("b", 7)
        assert reader.groups() == {"b": 7}


def test_a_pipe_among_the_groups_is_not_waited_for(tmp_path, folder):
    (folder / "groups").mkdir()
    os.mkfifo(folder / "groups" / "pipe")
    assert place.groups(folder) == {} and place.group_offset(folder, "pipe") is None
    (folder / "groups" / "pipe").unlink()
    (folder / "groups").rmdir()
    (folder / "groups").write_bytes(b"a file")
    assert place.groups(folder) == {} and place.group_offset(folder, "g") is None
    journal.open(tmp_path, "a").close()


@pytest.mark.parametrize("group", [".x", ".", "..", "...", "a/b", "%41", "%~", ".g.0123", "é", "-"])
def test_names(tmp_path, folder, group):
    with journal.open(tmp_path) as reader:
        reader.commit_offset(group, 7)
        reader.commit_offset("other", 8)
        assert reader.committed_offset(group) == 7
        assert reader.groups() == {group: 7, "other": 8}
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        {path.name for path in folder.iterdir()} | {"groups"})
    assert len(os.listdir(folder / "groups")) == 2


@pytest.mark.parametrize("offset", [-1, -5, 101, 10**7, 1 << 61, "7", 7.0, None, b"7"])
def test_commits_that_cannot_be(tmp_path, folder, offset):
    with journal.open(tmp_path) as reader:
        with pytest.raises(mq.UsageError, match="offset|message"):
            reader.commit_offset("g", offset)
        assert reader.groups() == {}
        reader.commit_offset("g", np.int64(100))
        reader.commit_offset("g", 0)
        with pytest.raises(mq.OptionError, match="group"):
            reader.commit_offset("", 0)
        with pytest.raises(mq.UsageError, match="group"):
            reader.commit_offset(5, 0)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_commit_before(tmp_path, folder, monkeypatch, call):
    with journal.open(tmp_path) as reader:
        reader.commit_offset("g", 7)

        def full(*args):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(OSError, match="No space"):
                reader.commit_offset("g", 8)
        assert reader.committed_offset("g") == 7 and os.listdir(folder / "groups") == ["g"]


def test_the_folders_are_durable_when_the_commit_is(tmp_path, folder, monkeypatch):
    synced = []
    real = place.sync_folder
    monkeypatch.setattr(place, "sync_folder", lambda path: synced.append(path) or real(path))
    with journal.open(tmp_path) as reader:
        reader.commit_offset("g", 7)
        assert synced == [folder, folder / "groups"]
        reader.commit_offset("g", 8)
        assert synced[2:] == [folder / "groups"]
        (folder / "groups").rename(tmp_path / "away")       # deleted, and made by another process
        (folder / "groups").mkdir()
        reader.commit_offset("g", 9)
        assert synced[3:] == [folder, folder / "groups"]
    assert contents(tmp_path)[:1] == [b"0"]
