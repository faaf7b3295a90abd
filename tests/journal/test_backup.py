"""Copies of journals whose writers go on: what is in them, what they share with the original."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest
from copies import epochs, files_in, fill, mirror
from journal_case import contents, numbered, segment_files
from waiting import until

from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal import backups
from mqcore.journal.errors import (
    JournalBusy,
    JournalFull,
    JournalNotFound,
    JournalWriteError,
)

PLACE = "default", "0"


@pytest.fixture
def where(tmp_path):
    return tmp_path / "original"


@pytest.fixture
def to(tmp_path):
    return tmp_path / "saved"


def whole(folder, **how):
    """Its messages, if nothing is wrong with it."""
    assert journal.verify(folder, **how).findings == []
    return contents(folder, **how)


def test_it_has_what_is_durable(where, to):
    with journal.open(where, "a", fsync="never") as log:
        log.append_many([b"0", b"1"])
        log.commit()
        log.append_many([b"2", b"3"])
        log.flush()             # readers see it
        log.append(b"4")
        [row] = journal.backup(where, to)
        assert (row.topic, row.partition, row.first, row.end) == ("default", 0, 0, 2)
        assert log.append(b"5") == 5
    assert whole(to) == [b"0", b"1"]
    assert fill(to, b"two") == [2]
    assert whole(to) == [b"0", b"1", b"two"]
    assert whole(where) == [b"%d" % i for i in range(6)]


@pytest.mark.parametrize("links", [True, False])
def test_complete_segments_are_links_and_the_last_is_not(where, to, links, monkeypatch):
    """No writer of one changes a file of the other."""
    def refuse(*_):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    with journal.open(where, "a") as log:
        for text in (b"0", b"1"):
            log.append(text)
            log.rotate()
    [row] = journal.backup(where, to)
    assert (row.segments, row.linked, row.end) == (2, 1 if links else 0, 2)
    same = [os.path.samefile(*paths) for paths in zip(segment_files(where), segment_files(to),
                                                      strict=False)]
    assert same == [links, False]
    fill(to, b"of the copy")
    fill(where, b"of the original")
    assert whole(to) == [b"0", b"1", b"of the copy"]
    assert whole(where) == [b"0", b"1", b"of the original"]


def test_a_link_that_becomes_the_last_segment_again_is_not_written_to(where, to):
    """The original loses what follows it, and what tells that there was more."""
    with journal.open(where, "a") as log:
        for text in (b"0", b"1"):
            log.append(text)
            log.rotate()
    journal.backup(where, to)
    assert segment_files(to)[0].stat().st_nlink == 2
    for path in segment_files(where)[1:]:
        path.unlink()
    where.joinpath(*PLACE, "durable").unlink()
    assert fill(where, b"new") == [1]
    assert whole(where) == [b"0", b"new"]
    assert whole(to) == [b"0", b"1"]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("follow", [True, False])
def test_a_reader_sees_that_a_link_was_replaced(where, to, durable, follow):
    """It had the file open that the writer leaves to the backup."""
    fill(where, b"0")
    shutil.copytree(where, to, copy_function=os.link)
    with journal.open(where, durable=durable) as reader:
        assert reader.read(0).to_list() == [b"0"] and reader.end == 1
        with journal.open(where, "a") as log:
            log.append(b"1")
            log.commit()
            got = next(reader.follow(1, timeout=60)) if follow else reader.read(1)
            assert got.to_list() == [b"1"] and reader.end == reader.durable == 2
            assert reader.at(0) == 0


def test_no_room_for_a_copy_of_a_link(where, tmp_path, monkeypatch):
    fill(where, b"0")
    os.link(segment_files(where)[0], tmp_path / "link")
    before = files_in(where)

    real = os.fsync

    def fail(fd):
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".new"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(JournalFull):
            journal.open(where, "a")
    assert files_in(where) == before
    assert fill(where, b"1") == [1] and whole(where) == [b"0", b"1"]


def test_it_is_whole_while_a_writer_appends_rotates_and_retains(where, tmp_path, rng):
    texts = numbered(0, 400, rng)
    over = threading.Event()
    with journal.open(where, "a", fsync="interval", fsync_interval=0.001, segment_bytes=1 << 16,
                      block_bytes=1 << 12, retain_bytes=1 << 19) as log:
        def write():
            for turn in range(1_000_000):
                if over.is_set():
                    return
                log.append_many([texts[(log.next + i) % len(texts)] for i in range(7)])
                if turn % 50 == 0:
                    log.commit()
        thread = threading.Thread(target=write)
        thread.start()
        try:
            for number in range(30):
                before = log.durable
                [row] = journal.backup(where, tmp_path / str(number))
                assert before <= row.end <= log.durable
                copy = journal.open(tmp_path / str(number))
                with copy:
                    assert (copy.first, copy.end) == (row.first, row.end)
                found = whole(tmp_path / str(number))
                assert found == [texts[i % len(texts)] for i in range(row.first, row.end)]
        finally:
            over.set()
            thread.join()


def test_what_never_stands_still_is_given_up(where, to, monkeypatch):
    fill(where, b"x")
    tried = []

    def changes(*args):
        tried.append(args)
        raise backups._Changed

    monkeypatch.setattr(backups, "_copy", changes)
    monkeypatch.setattr(backups, "PATIENCE", 0.0)
    with pytest.raises(JournalBusy, match=f"changed during each of {backups.TRIES} attempts"):
        journal.backup(where, to)
    assert len(tried) == backups.TRIES
    assert [path.name for path in to.rglob("*") if path.is_file()] == []


def test_all_topics_and_partitions_or_some(where, to, tmp_path):
    with journal.open(where, "a", topic="t", partitions=3) as logs:
        for i in range(30):
            logs.append(b"%d" % i, key=b"%d" % i)
    fill(where, b"x", topic="a/b")
    rows = journal.backup(where, to)
    assert [row[:2] for row in journal.list_partitions(to)] == [
        ("a/b", 0), ("t", 0), ("t", 1), ("t", 2)] == [(row.topic, row.partition) for row in rows]
    for row in rows:
        how = {"topic": row.topic, "partition": row.partition}
        assert whole(to, **how) == contents(where, **how)
    [row] = journal.backup(where, tmp_path / "one", topic="t", partition=1)
    assert journal.list_partitions(tmp_path / "one") == journal.list_partitions(to)[2:3]
    for wrong in ({"topic": "u"}, {"topic": "t", "partition": 3}, {"partition": 9}):
        with pytest.raises(JournalNotFound, match="has no"):
            journal.backup(where, tmp_path / "none", **wrong)


def test_groups_are_never_ahead_of_the_messages(where, to):
    with journal.open(where, "a", fsync="never") as log, journal.open(where) as reader:
        log.append_many([b"0", b"1", b"2"])
        log.commit()
        log.append(b"3")
        log.flush()
        reader.commit_offset("behind", 1)
        reader.commit_offset("ahead", 4)
        journal.backup(where, to)
    with journal.open(to) as copy:
        assert copy.groups() == {"ahead": 3, "behind": 1}


def test_producers_are_known(where, to):
    texts = [journal.stamp(7, i) + b"%d" % i for i in range(4)]
    how = {"stamps": True, "deduplicate": True, "retain_bytes": 1}
    with journal.open(where, "a", **how) as log:
        log.append_many(texts[:2])
        log.rotate()
        log.append(texts[2])
        log.commit()
        until(lambda: log.retain() or len(segment_files(where)) == 1)   # only the file knows 0, 1
        journal.backup(where, to)
    with journal.open(to, "a", **how) as log:
        log.append_many(texts)
        assert (log.duplicates, log.next) == (3, 4)


def test_epochs_are_kept(where, to, tmp_path):
    fill(where, b"0")
    mirror(where, tmp_path / "mirror")
    journal.promote(tmp_path / "mirror")
    journal.backup(tmp_path / "mirror", to)
    assert epochs(to) == epochs(tmp_path / "mirror") and epochs(to).number == 1


def test_a_promotion_meanwhile_begins_it_again(where, to, tmp_path, monkeypatch):
    fill(where, b"0")
    mirror(where, tmp_path / "mirror")
    real, calls = backups._until, []

    def until_(*args):
        calls.append(args)
        if len(calls) == 1:
            journal.promote(tmp_path / "mirror")
        return real(*args)
    monkeypatch.setattr(backups, "_until", until_)
    journal.backup(tmp_path / "mirror", to)
    assert len(calls) == 2 and epochs(to).number == 1


def test_retention_meanwhile_begins_it_again(where, to, monkeypatch):
    """What groups and producers know of must be in the copy, as it was in the journal."""
    real, calls = backups.groups, []
    with journal.open(where, "a", stamps=True, deduplicate=True, retain_for=("g",)) as log, \
            journal.open(where) as reader:
        messages = [journal.stamp(7, n) + b"%d" % n for n in range(6)]
        log.append_many(messages[:2])
        log.commit()
        reader.commit_offset("g", 0)

        def groups(folder, bad=None):
            found = real(folder, bad)
            calls.append(found)
            if len(calls) == 1:         # the backup knows the group, and then the messages go
                log.rotate()
                log.append_many(messages[2:])
                log.commit()
                reader.commit_offset("g", 2)
                assert log.retain() == [0]
            return found
        monkeypatch.setattr(backups, "groups", groups)
        [row] = journal.backup(where, to)
    assert len(calls) == 2 and (row.first, row.end) == (2, 6)
    with journal.open(to) as copy:
        assert copy.committed_offset("g") == copy.first == 2
    with journal.open(to, "a", stamps=True, deduplicate=True) as copy:
        for message in messages:
            copy.append(message)
        assert copy.next == 6 and copy.duplicates == 6


def test_a_repaired_gap_at_the_end(where, to):
    """The messages behind the gap come at the same offsets."""
    with journal.open(where, "a") as log:
        log.append_many([b"0", b"1"])
        log.commit()
    with journal.open(where, "a", mirror=True) as log:
        log.skip(10)
    [row] = journal.backup(where, to)
    assert row.end == 10
    assert fill(to, b"ten") == [10]
    with journal.open(to) as reader:
        assert [records.to_list() for records in reader.batches(0, gaps="skip")] == [
            [b"0", b"1"], [b"ten"]]


@pytest.mark.parametrize("begun", [False, True])
def test_an_empty_journal(where, to, begun):
    (where.joinpath(*PLACE)).mkdir(parents=True)
    if begun:
        journal.open(where, "a").close()
    [row] = journal.backup(where, to)
    assert row.end == 0
    assert fill(to, b"0") == [0] and whole(to) == [b"0"]


def test_it_replaces_nothing(where, to):
    fill(where, b"0")
    fill(to, b"other")
    before = files_in(to)
    with pytest.raises(UsageError, match="is there already"):
        journal.backup(where, to)
    assert contents(to) == [b"other"] and files_in(to) == before


def test_what_a_killed_backup_left_is_swept(where, to):
    fill(where, b"0")
    folder = to / "default"
    folder.mkdir(parents=True)
    for name, age in ((".0.0123456789abcdef", 2 * 86400), (".0.fedcba9876543210", 60),
                      (".1.0123456789abcdef", 2 * 86400)):
        (folder / name).mkdir()
        (folder / name / "00000000000000000000.mqj").touch()
        os.utime(folder / name, times=(time.time() - age,) * 2)
    journal.backup(where, to)
    assert sorted(path.name for path in folder.iterdir()) == [
        ".0.fedcba9876543210", ".1.0123456789abcdef", "0"]


def test_a_copy_can_be_read_by_those_who_could_read_the_original(where, to):
    with journal.open(where, "a") as log:
        log.append(b"0")
        log.rotate()
        log.append(b"1")
    for path in segment_files(where):
        path.chmod(0o600)
    journal.backup(where, to)
    assert {stat.S_IMODE(path.stat().st_mode) for path in segment_files(to)} == {0o600}
    shutil.copytree(to, to.parent / "links", copy_function=os.link)
    with journal.open(to, "a") as log:      # which writes to a copy of the last one
        log.append(b"2")
    assert {stat.S_IMODE(path.stat().st_mode) for path in segment_files(to)} == {0o600}


def test_another_backup_into_the_same_folder_at_the_same_time(where, to, monkeypatch):
    fill(where, b"0")
    real = backups._rename

    def rename(making, target):
        fill(to, b"faster")
        real(making, target)
    monkeypatch.setattr(backups, "_rename", rename)
    with pytest.raises(UsageError, match="is there already"):
        journal.backup(where, to)
    assert contents(to) == [b"faster"] and not any("/." in name for name in files_in(to))


def test_a_segment_that_is_a_symbolic_link(where, to, tmp_path):
    """The backup does not need what it leads to."""
    with journal.open(where, "a") as log:
        for text in (b"0", b"1"):
            log.append(text)
            log.rotate()
    path = segment_files(where)[0]
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    journal.backup(where, to)
    (tmp_path / "moved").unlink()
    assert not any(path.is_symlink() for path in segment_files(to))
    assert whole(to) == [b"0", b"1"]


def test_relative_paths_and_a_target_inside_its_source(tmp_path, monkeypatch):
    """What the system says of a file of the target is an error of the target."""
    monkeypatch.chdir(tmp_path)
    fill("data", b"0")

    def fail(folder, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "durable"))
    with monkeypatch.context() as patch:
        patch.setattr(backups, "write_durable", fail)
        with pytest.raises(JournalFull):
            journal.backup("data", "saved/data")
    assert journal.backup("data", "data/saved")[0].end == 1     # inside it
    assert contents("data/saved") == [b"0"] == contents("data")
    assert len(journal.list_partitions("data")) == 1


KILLED = """
import os, sys
from mqcore import journal
from mqcore.journal import backups
setattr(backups, sys.argv[3], lambda *_: os.kill(os.getpid(), 9))
journal.backup(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("place", ["_link", "write_durable", "set_group_offset", "_rename"])
def test_kill_9(where, to, place):
    """What is half made is no journal, and the next backup is whole."""
    with journal.open(where, "a") as log, journal.open(where) as reader:
        for text in (b"0", b"1"):
            log.append(text)
            log.rotate()
        reader.commit_offset("g", 1)
    done = subprocess.run([sys.executable, "-c", KILLED, where, to, place], check=False)
    assert done.returncode == -signal.SIGKILL
    assert journal.list_partitions(to) == []
    journal.backup(where, to)
    assert whole(to) == [b"0", b"1"]


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, JournalFull),
                                               (errno.EIO, JournalWriteError)])
def test_a_disk_that_takes_no_more(where, to, monkeypatch, number, error):
    fill(where, b"0")

    def fail(fd):
        raise OSError(number, os.strerror(number))
    with monkeypatch.context() as patch:
        patch.setattr(backups.os, "fsync", fail)
        with pytest.raises(error, match="saved"):
            journal.backup(where, to)
    assert files_in(to) == []
    assert journal.backup(where, to)[0].end == 1


def test_ctrl_c(where, to, monkeypatch):
    fill(where, b"0")

    def interrupt(*_):
        raise KeyboardInterrupt
    monkeypatch.setattr(backups, "_rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        journal.backup(where, to)
    assert files_in(to) == []


def test_segments_that_are_removed_all_the_time(where, to, monkeypatch):
    with journal.open(where, "a") as log:
        for text in (b"0", b"1"):
            log.append(text)
            log.rotate()
    real = backups.segments
    monkeypatch.setattr(backups, "segments", lambda folder: [-1, *real(folder)])
    with pytest.raises(JournalBusy, match="changed during each"):
        journal.backup(where, to)
    assert files_in(to) == []


def test_a_backup_takes_the_place_of_a_lost_journal(where, to):
    with journal.open(where, "a") as log, journal.open(where) as reader:
        log.append_many([b"0", b"1"])
        log.commit()
        reader.commit_offset("g", 1)
    journal.backup(where, to)
    known = journal.list_partitions(where)
    shutil.rmtree(where)
    to.rename(where)
    assert journal.list_partitions(where) == known
    with journal.open(where, "a") as log, journal.open(where) as reader:
        assert log.append(b"2") == 2 and reader.committed_offset("g") == 1


def test_the_jobs_of_a_queue_server(where, to, ctx):
    with journal.serve_queues(where, "tcp://127.0.0.1:0", fsync="always",
                              context=ctx) as server, \
            journal.queue(server.urls[0], "work", context=ctx) as queue:
        for i in range(5):
            queue.put(b"%d" % i)
        queue.get(timeout=20).ack()
        until(lambda: queue.stats().acknowledged == 1)
        journal.backup(where, to)
    with journal.serve_queues(to, "tcp://127.0.0.1:0", context=ctx) as server, \
            journal.queue(server.urls[0], "work", context=ctx) as queue:
        for i in range(1, 5):
            job = queue.get(timeout=20)
            assert job.body == b"%d" % i
            job.ack()
