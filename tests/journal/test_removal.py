"""Messages, partitions and topics that are removed on purpose."""

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest
from journal_case import contents

from mqcore import journal
from mqcore.errors import OptionError, UsageError
from mqcore.journal import removal
from mqcore.journal.store import commits, topic_names


def fill(where, n=30, **options):
    """Segments of a few messages each."""
    with journal.open(where, "a", segment_bytes=4096, block_bytes=1024, **options) as log:
        for i in range(n):
            log.append(b"%d" % i + bytes(700))
    return where


def numbers(where, **which):
    return [int(message.split(b"\0")[0]) for message in contents(where, **which)]


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


@pytest.mark.parametrize("to", [0, 1, 7, 15, 29])
def test_whole_segments_in_front_of_an_offset_go(where, to):
    fill(where)
    with journal.open(where, "a", segment_bytes=4096) as log:
        removed = log.stats().removed
        first = log.truncate_before(to)
        assert first <= to and (to - first) < 8 and log.truncate_before(to) == first
        assert (log.stats().removed > removed) == (first > 0)
        assert log.append(b"30") == 30
    assert numbers(where) == list(range(first, 31))
    assert journal.verify(where).findings == []


def test_all_messages_go(where):
    fill(where)
    with journal.open(where, "a") as log:
        assert log.truncate_before(log.next) == 30 == log.truncate_before(30)
        with journal.open(where) as reader:
            assert (reader.first, reader.end) == (30, 30)
            with pytest.raises(journal.OffsetGone):
                reader.read(5)
        assert log.append(b"30") == 30
    assert numbers(where) == [30]
    assert journal.truncate_before(where, 31) == 31 == journal.truncate_before(where, 0)
    with journal.open(where, "a") as log:
        assert log.append(b"31") == 31


def test_a_reader_beside_it(where):
    fill(where)
    with journal.open(where) as reader, journal.open(where, "a") as log:
        assert reader.read(0).first == 0
        first = log.truncate_before(20)
        with pytest.raises(journal.OffsetGone) as caught:
            reader.read(0)
        assert caught.value.first == first == reader.first


def test_a_writer_that_deduplicates_still_knows_its_producers(where):
    """What goes was all that told of them."""
    with journal.open(where, "a", stamps=True, deduplicate=True) as log:
        for i in range(10):
            log.append(journal.stamp(7, i) + b"%d" % i)
    journal.truncate_before(where, 10)
    with journal.open(where, "a", stamps=True, deduplicate=True) as log:
        for i in range(12):
            log.append(journal.stamp(7, i) + b"%d" % i)
        assert log.duplicates == 10
        log.truncate_before(log.next)
        log.append(journal.stamp(7, 3) + b"3")
        assert log.duplicates == 11
    assert contents(where) == []


def test_producers_of_a_writer_that_was_killed(where):
    """Nothing but the segments tells of them."""
    done = subprocess.run([sys.executable, "-c", """
import os, sys
from mqcore import journal
log = journal.open(sys.argv[1], "a", stamps=True, deduplicate=True, fsync="always")
log.append(journal.stamp(7, 0) + b"0")
os.kill(os.getpid(), 9)
""", where], check=False)
    assert done.returncode == -signal.SIGKILL
    assert journal.truncate_before(where, 1) == 1
    with journal.open(where, "a", stamps=True, deduplicate=True) as log:
        log.append(journal.stamp(7, 0) + b"0")
        assert log.duplicates == 1 and log.next == 1


def test_offsets_that_cannot_be(where):
    fill(where, 3)
    with journal.open(where, "a") as log:
        for wrong in (4, 1 << 62, "3", None):
            with pytest.raises(UsageError):
                log.truncate_before(wrong)
        assert log.truncate_before(-5) == 0
    with pytest.raises(journal.JournalClosed):
        log.truncate_before(0)
    with pytest.raises(UsageError, match="above"):
        journal.truncate_before(where, 4)
    with pytest.raises(journal.JournalNotFound):
        journal.truncate_before(where, 0, topic="other")
    assert numbers(where) == [0, 1, 2]


def test_a_segment_that_cannot_be_removed(where, monkeypatch):
    fill(where)

    def fail(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
    with journal.open(where, "a") as log:
        with monkeypatch.context() as patch:
            patch.setattr("mqcore.journal.writer.os.unlink", fail)
            with pytest.raises(OSError, match="Input/output"):
                log.truncate_before(20)
        log.append(b"30")
        assert log.truncate_before(20) > 0
    assert journal.verify(where).findings == []


@pytest.mark.parametrize("call", [lambda where: journal.truncate_before(where, 3),
                                  lambda where: journal.delete(where, topic="default")])
def test_nothing_is_removed_under_a_writer(where, call):
    with journal.open(fill(where), "a") as log:
        with pytest.raises(journal.JournalLocked):
            call(where)
        assert log.append(b"30") == 30
    assert numbers(where) == list(range(31))


def test_a_topic_is_deleted(where):
    with journal.open(where, "a", topic="t", partitions=3) as logs:
        for i in range(9):
            logs.writer("t", i % 3).append(b"%d" % i)
    fill(where, topic="u")
    with journal.open(where, topic="t") as reader:
        reader.commit_offset("g", 1)
        assert journal.delete(where, topic="t") == 3
        with pytest.raises(journal.JournalNotFound):
            journal.open(where, topic="t")
    assert [row.topic for row in journal.list_partitions(where)] == ["u"]
    assert [path.name for path in where.iterdir()] == ["u"]
    with journal.open(where, "a", topic="t") as log:
        assert log.append(b"new") == 0
    with journal.open(where, topic="t") as reader:
        assert reader.groups() == {}
    with pytest.raises(journal.JournalNotFound):
        journal.delete(where, topic="v")


def test_a_partition_is_deleted(where):
    with journal.open(where, "a", topic="t", partitions=2) as logs:
        for number in range(2):
            logs.writer("t", number).append(b"%d" % number)
    assert journal.delete(where, topic="t", partition=1) == 1
    assert contents(where, topic="t") == [b"0"]
    with pytest.raises(journal.JournalNotFound):
        journal.delete(where, topic="t", partition=1)
    assert journal.delete(where, topic="t", partition=0) == 1
    assert list(where.iterdir()) == []


def test_one_open_partition_keeps_all_of_the_topic(where):
    with journal.open(where, "a", topic="t", partitions=3):
        pass
    with journal.open(where, "a", topic="t", partition=1):
        with pytest.raises(journal.JournalLocked):
            journal.delete(where, topic="t")
        assert len(journal.list_partitions(where)) == 3
    assert journal.delete(where, topic="t") == 3


def test_kill_9_in_the_middle(where):
    """What is half deleted is no journal, and goes with the next call."""
    with journal.open(where, "a", topic="t", partitions=3) as logs:
        for number in range(3):
            logs.writer("t", number).append(b"%d" % number)
    done = subprocess.run([sys.executable, "-c", """
import os, shutil, sys
from mqcore import journal
shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), 9)
journal.delete(sys.argv[1], topic="t")
""", where], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [row.partition for row in journal.list_partitions(where)] == [0, 1]
    with journal.open(where, "a", topic="t", partition=2) as log:
        assert log.append(b"new") == 0
    assert journal.delete(where, topic="t") == 3
    assert list(where.iterdir()) == []


def test_what_a_killed_call_left_of_a_topic_is_swept(where):
    fill(where, topic="t")
    os.rename(where / "t" / "0", where / "t" / f"{removal.GONE}0.x")
    with pytest.raises(journal.JournalNotFound):
        journal.delete(where, topic="t")
    assert list(where.iterdir()) == []


def test_a_partition_on_another_disk(where, tmp_path):
    fill(where, topic="t")
    os.rename(where / "t" / "0", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", where / "t" / "0")
    assert journal.delete(where, topic="t") == 1
    assert list(where.iterdir()) == [] and not (tmp_path / "elsewhere").exists()


def test_a_file_that_cannot_be_removed(where, monkeypatch):
    fill(where, topic="t")

    def fail(path):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
    with monkeypatch.context() as patch:
        patch.setattr(removal.shutil, "rmtree", fail)
        with pytest.raises(OSError, match="busy"):
            journal.delete(where, topic="t")
    assert journal.list_partitions(where) == []
    with pytest.raises(journal.JournalNotFound):
        journal.delete(where, topic="t")
    assert list(where.iterdir()) == []


def test_more_partitions_than_descriptors(where):
    done = subprocess.run([sys.executable, "-c", """
import resource, sys
from mqcore import journal
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with journal.open(sys.argv[1], "a", topic="t", partitions=60):
    pass
print(journal.delete(sys.argv[1], topic="t"))
""", where], capture_output=True, check=False)
    assert done.stdout == b"60\n", done.stderr


def test_writers_that_open_meanwhile(where):
    """They get the old partition, a new one, or JournalLocked; what they write is there."""
    stop, errors, kept = threading.Event(), [], []

    def write():
        while not stop.is_set():
            try:
                with journal.open(where, "a", topic="t", fsync="never") as log:
                    log.append(b"1")
                    kept.append(log.path)
            except (journal.JournalLocked, journal.JournalNotFound, FileNotFoundError):
                pass
            except BaseException as error:
                errors.append(error)
                return
    thread = threading.Thread(target=write)
    thread.start()
    deleted = 0
    while deleted < 20 or len(kept) < 20:
        try:
            deleted += journal.delete(where, topic="t")
        except (journal.JournalLocked, journal.JournalNotFound):
            pass
        assert errors == []
    stop.set()
    thread.join()
    assert errors == []


def test_the_number_of_partitions_can_grow_and_not_shrink(where):
    with journal.open(where, "a", topic="t", partitions=3):
        pass
    for options in ({"topic": "t", "partitions": 2}, {"topic": "t", "partitions": 1}):
        with pytest.raises(UsageError, match="has 3 partitions") as caught:
            journal.open(where, "a", **options)
        assert "partitions=3" in caught.value.hint
    with journal.open(where, "a", topic_from="first-part", partitions=2) as logs:
        with pytest.raises(UsageError):
            logs.append(b"", topic="t")
        assert logs.append(b"", topic="u") == (0, 0)
    with journal.open(where, "a", topic="t", partitions=5):
        pass
    assert [n for name, n, _ in topic_names.partitions(where) if name == "t"] == list(range(5))
    journal.delete(where, topic="t", partition=4)
    with journal.open(where, "a", topic="t", partition=4000):       # made by itself
        pass
    with journal.open(where, "a", topic="t", partitions=4):
        pass


@pytest.mark.parametrize("wrong", [{"topic": 5}, {"topic": ""}, {"topic": "t", "partition": "0"},
                                   {"topic": "t", "partition": -1}])
def test_what_cannot_be_deleted(where, wrong):
    with pytest.raises(OptionError):
        journal.delete(where, **wrong)
    assert removal.GONE.startswith(".")


@pytest.mark.parametrize("first", [False, True], ids=["its folder is there", "the first commit"])
def test_a_commit_under_way_does_not_go_on_in_a_new_journal(tmp_path, monkeypatch, first):
    """Whose messages the group would never read."""
    def fill():
        with journal.open(tmp_path, "a") as log:
            log.append_many([b"x"] * 5)

    def anew():
        journal.delete(tmp_path, topic="default")
        fill()
        with journal.open(tmp_path) as reader:
            reader.commit_offset("other", 1)
        done.set()

    def late(*args):
        monkeypatch.undo()
        thread.start()
        done.wait(0.5)
        real(*args)

    fill()
    real, done, thread = commits.set_group_offset, threading.Event(), threading.Thread(target=anew)
    with journal.open(tmp_path) as reader:
        if not first:
            reader.commit_offset("g", 3)
        monkeypatch.setattr(commits, "set_group_offset", late)
        reader.commit_offset("g", 4)
    thread.join()
    assert done.is_set()
    with journal.open(tmp_path) as reader:
        assert reader.groups() == {"other": 1}
