"""Durable means durable: errors that the system reports once, reopening after a failed sync, new
folders, a full disk under readers."""

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading

import pytest
from journal_case import contents, numbered, segment_files
from mqcore.testing.native.journal_disk import Disk
from preload import shared_library

from mqcore import journal
from mqcore.journal.errors import JournalFull, JournalWriteError
from mqcore.journal.store import place, recovery
from mqcore.testing import until

LIMIT = 20.0


# -- an error that one fsync gets, and the next one does not ---------------------------------------

def test_an_error_of_a_commit_is_not_lost_on_a_rotation(tmp_path):
    """The commit's fsync gets it, while a rotation waits to sync the same file."""
    disk = Disk()
    writer = journal.open(tmp_path, "a", fsync="never")
    disk.attach(writer)
    writer.append(b"lost")
    errors = []

    def rotate():
        try:
            writer.rotate()
        except JournalWriteError as error:
            errors.append(error)
    thread = threading.Thread(target=rotate)

    def before():
        """Twice: before the commit's write, and before its sync, which fails."""
        if disk.happened():
            disk.before(None)
            disk.fail(bad_syncs=1)
            thread.start()
            thread.join(0.1)            # it is in its own sync, or waits for ours
    disk.before(before)
    with pytest.raises(JournalWriteError):
        writer.commit()
    thread.join(LIMIT)
    assert [error.errno for error in errors] == [errno.EIO] and writer.durable == 0
    with pytest.raises(JournalWriteError):
        writer.close()
    assert writer.durable == 0


def test_an_error_of_a_rotation_is_not_lost_on_a_commit(tmp_path):
    """A rotation's fsync fails while a commit's, begun before, succeeds: nothing is promised."""
    disk = Disk()
    writer = journal.open(tmp_path, "a", fsync="never")
    disk.attach(writer)
    writer.append(b"lost")
    writer.flush()
    disk.fail(bad_syncs=1)
    with pytest.raises(JournalWriteError):
        writer.rotate()
    for call in (writer.commit, writer.flush, writer.rotate, lambda: writer.append(b"x")):
        with pytest.raises(JournalWriteError):
            call()
    assert writer.durable == 0
    with pytest.raises(JournalWriteError):
        writer.close()


# -- after a failed sync the page cache proves nothing ---------------------------------------------

class Pages:
    """Which bytes recovery writes before it syncs: after a failed sync the system takes what it
    could not write for written, so that only these reach the disk."""

    def __init__(self, monkeypatch):
        self.dirty = {}         # inode: positions of 64 bytes
        self.certain = {}
        self.fails = False
        self.write, self.sync = os.pwrite, os.fsync
        monkeypatch.setattr(recovery.os, "pwrite", self.pwrite)
        monkeypatch.setattr(recovery.os, "fsync", self.fsync)

    def pwrite(self, fd, raw, at):
        done = self.write(fd, raw, at)
        span = range(at // 64, -(-(at + done) // 64))
        self.dirty.setdefault(os.fstat(fd).st_ino, set()).update(span)
        return done

    def fsync(self, fd):
        if self.fails and stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, "I/O error")
        inode = os.fstat(fd).st_ino
        self.certain.setdefault(inode, set()).update(self.dirty.pop(inode, ()))
        return self.sync(fd)


@pytest.mark.parametrize("synced", [0, 1, 2])
def test_reopening_writes_again_what_a_failed_sync_left_in_the_page_cache(tmp_path, monkeypatch,
                                                                          synced):
    disk = Disk()
    writer = journal.open(tmp_path, "a", fsync="never")
    disk.attach(writer)
    [path] = segment_files(tmp_path)
    for i in range(synced):
        writer.append(b"synced %d" % i)
        writer.commit()
    certain = path.stat().st_size if synced else 512
    writer.append_many([b"one", b"two" * 1000])
    disk.fail(bad_syncs=1)
    with pytest.raises(JournalWriteError):
        writer.commit()
    with pytest.raises(JournalWriteError):
        writer.close()
    size = path.stat().st_size
    pages = Pages(monkeypatch)
    inode = path.stat().st_ino
    with journal.open(tmp_path, "a") as again:
        assert again.durable == synced + 2
        assert set(range(certain // 64, size // 64)) <= pages.certain[inode]
    assert contents(tmp_path)[synced:] == [b"one", b"two" * 1000]


def test_a_clean_journal_is_not_written_again(tmp_path, monkeypatch):
    """But for the checkpoint, and the header of the segment."""
    with journal.open(tmp_path, "a") as writer:
        writer.append_batch(bytes(1 << 20), [0, 1 << 19, 1 << 20])
    [path] = segment_files(tmp_path)
    pages = Pages(monkeypatch)
    with journal.open(tmp_path, "a"):
        assert len(pages.certain[path.stat().st_ino]) == (512 + 128) // 64


def test_reopening_on_a_disk_that_still_fails_is_refused(tmp_path, monkeypatch):
    with journal.open(tmp_path, "a", fsync="never") as writer:
        writer.append(b"x")
    pages = Pages(monkeypatch)
    pages.fails = True
    with pytest.raises(JournalWriteError) as caught:
        journal.open(tmp_path, "a")
    assert caught.value.errno == errno.EIO
    pages.fails = False
    with journal.open(tmp_path, "a") as writer:     # and lets go of the lock
        assert writer.next == 1


# -- folders ---------------------------------------------------------------------------------------

def test_every_new_folder_is_in_a_synced_parent(tmp_path, monkeypatch):
    synced = []
    sync = os.fsync

    def note(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        return sync(fd)
    monkeypatch.setattr(place.os, "fsync", note)
    where = tmp_path / "a" / "b" / "c"
    with journal.open(where, "a", topic="t") as writer:
        writer.append(b"x")
        assert {str(p) for p in (tmp_path, tmp_path / "a", tmp_path / "a" / "b", where,
                                 where / "t")} <= set(synced)
        synced.clear()
        with journal.open(where, topic="t") as reader:
            writer.flush()
            reader.commit_offset("g", 1)
        folder = where / "t" / "0"
        assert {str(folder), str(folder / "groups")} <= set(synced)


# -- a number that is an errno and nothing else ----------------------------------------------------

def test_a_file_in_the_way_is_no_duplicate(tmp_path):
    """EEXIST of the next segment's file is an error, and stored messages are not dropped."""
    with journal.open(tmp_path, "a", stamps=True, deduplicate=True, fsync="never") as writer:
        writer.append(journal.stamp(1, 0) + b"one")
        (writer.path / f"{1:020d}.mqj").write_bytes(b"")
        for _ in range(2):
            with pytest.raises(JournalWriteError) as caught:
                writer.rotate()
            assert caught.value.errno == errno.EEXIST
        assert writer.duplicates == 0
        os.unlink(writer.path / f"{1:020d}.mqj")
        writer.rotate()
        assert writer.append(journal.stamp(1, 1) + b"two") == 1
    assert contents(tmp_path) == [b"one", b"two"]


# -- a full disk -----------------------------------------------------------------------------------

@pytest.mark.parametrize("verify", [True, False])
def test_what_a_failed_write_left_is_written_over(tmp_path, rng, verify):
    """The file never gets shorter, readers never see half a block, and it stays in order through
    rotation, close, and opening again."""
    disk = Disk()
    kept = []
    with journal.open(tmp_path, "a", fsync="never", block_bytes=4096,
                      segment_bytes=100_000) as writer, \
            journal.open(tmp_path, verify=verify, durable=False) as reader:
        disk.attach(writer)
        sizes = {}
        for i in range(60):
            if i % 3 == 0:
                disk.fail(room=rng.choice((0, 1, 63, 64, 127, 128, 200, 1000, 5000, 30_000)))
            batch = numbered(len(kept), rng.choice((1, 3, 40)), rng)
            try:
                writer.append_many(batch)
                kept += batch
            except JournalFull as error:
                kept += batch[:error.taken]
            # the flusher may write what waited at any moment
            start, least = writer.written // 2, writer.written
            assert least <= reader.end <= writer.written
            found = [m for r in reader.batches(start) for m in r.to_list()]
            assert found == kept[start:start + len(found)]
            assert least <= start + len(found) <= writer.written
            for path in segment_files(tmp_path):
                size = path.stat().st_size
                assert size >= sizes.get(path, 0)
                sizes[path] = size
            if i % 3 == 2:
                disk.fail(room=-1)
                rng.choice((writer.commit, writer.rotate, writer.flush))()
        disk.fail(room=-1)
    assert contents(tmp_path) == kept
    assert journal.store.recovery.verify(tmp_path / "default" / "0").findings == []
    with journal.open(tmp_path, "a") as writer:
        assert writer.recovered == () and writer.next == len(kept)


@pytest.mark.parametrize("by", ["commit", "flusher"])
def test_while_the_disk_is_full_what_is_written_becomes_durable(tmp_path, by):
    disk = Disk()
    policy = {"fsync": "never"} if by == "commit" else {"fsync": "interval", "fsync_interval": 0.05}
    with journal.open(tmp_path, "a", block_bytes=4096, **policy) as writer:
        disk.attach(writer)
        writer.append(b"first")
        writer.commit()
        disk.fail(room=20_000)
        with pytest.raises(JournalFull):
            for _ in range(1000):
                writer.append(b"x" * 100)
        written, held = writer.written, writer.next
        assert 1 < written < held
        if by == "commit":
            with pytest.raises(JournalFull):
                writer.commit()
        until(lambda: writer.durable == written, LIMIT)
        disk.fail(room=-1)
        writer.commit()
        assert writer.durable == held


def test_a_torn_tail_is_covered_and_not_cut(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x")
    [path] = segment_files(tmp_path)
    whole = path.stat().st_size
    for n in (1, 127, 128, 129, 5000):
        size = path.stat().st_size
        with open(path, "ab") as stream:
            stream.write(b"\xff" * n)
        with journal.open(tmp_path, "a") as writer:
            assert [dropped.bytes for dropped in writer.recovered] == [n]
            assert path.stat().st_size >= size + n and writer.next == 1
    assert path.stat().st_size > whole
    with journal.open(tmp_path, "a") as writer:
        assert writer.recovered == () and writer.append(b"y") == 1
        writer.rotate()
    assert contents(tmp_path) == [b"x", b"y"]
    assert journal.store.recovery.verify(tmp_path / "default" / "0").findings == []


@pytest.mark.parametrize("n", [1, 127, 128, 129, 5000])
def test_a_torn_tail_on_a_full_disk_is_covered_at_the_first_attempt(tmp_path, monkeypatch, n):
    """As after a writer that was killed there. What lies in the file can be overwritten; a write
    behind its end is cut short, and the next one fails."""
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x")
    [path] = segment_files(tmp_path)
    with open(path, "ab") as stream:
        stream.write(b"\xff" * n)
    real, refused = os.pwrite, []

    def full(fd, raw, at):
        room = os.fstat(fd).st_size - at
        if room <= 0:
            refused.append(at)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, raw[:room], at)

    monkeypatch.setattr(os, "pwrite", full)
    with journal.open(tmp_path, "a") as writer:
        monkeypatch.undo()
        assert bool(refused) == bool(n % 128)       # the size of a checkpoint
        assert [dropped.bytes for dropped in writer.recovered] == [n] and writer.append(b"y") == 1
    with journal.open(tmp_path, "a") as writer:
        assert writer.recovered == ()
    assert contents(tmp_path) == [b"x", b"y"]


FOLLOWER = """
import sys
from mqcore import journal
reader = journal.open(sys.argv[1])
print("ready", flush=True)
for records in reader.follow(0):
    if b"end" in records.to_list():
        break
"""


def test_readers_live_through_a_file_that_may_not_grow(tmp_path):
    """RLIMIT_FSIZE cuts writes short at any byte; each time a part of a block is left, while four
    readers look at it."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("files are limited here already")
    with journal.open(tmp_path, "a", block_bytes=8192, fsync="never") as writer:
        gang = [subprocess.Popen([sys.executable, "-c", FOLLOWER, tmp_path],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
        for process in gang:
            assert process.stdout.readline()
        [path] = segment_files(tmp_path)
        for i in range(300):
            limit = path.stat().st_size + (4096 - path.stat().st_size) % 4096 + 64 * (i % 3)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                writer.append(bytes(100 + 7 * i))
                writer.commit()
            except JournalFull:
                pass
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            if i % 2:
                writer.commit()
        writer.append(b"end")
        writer.commit()
        for process in gang:
            _, text = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, text


# -- the file `durable` ----------------------------------------------------------------------------

SLOW_WRITE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite64");
    usleep(300000);
    return real(fd, bytes, n, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }
"""
ACKNOWLEDGED = """
import sys, threading
from mqcore import journal
with journal.open(sys.argv[1], "a", fsync="always") as log, journal.open(sys.argv[1]) as reader:
    for n in range(3):
        thread = threading.Thread(target=log.append, args=(b"%d" % n,))
        thread.start()
        while log.durable == n:     # not for append(), which returns later
            pass
        print(reader.durable - log.durable)
        thread.join()
"""


def test_readers_see_what_is_durable_before_an_appender_is_told(tmp_path):
    """The disk takes its time over the file `durable`."""
    library = shared_library(SLOW_WRITE, tmp_path / "slow.so")
    run = subprocess.run([sys.executable, "-c", ACKNOWLEDGED, tmp_path / "journal"], text=True,
                         env={**os.environ, "LD_PRELOAD": library}, capture_output=True)
    assert run.stdout.split() == ["0", "0", "0"], run.stderr


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_writer_that_cannot_say_what_is_durable_is_not_opened(tmp_path, make):
    """Readers would never see what it acknowledges."""
    journal.open(tmp_path, "a").close()
    shown = tmp_path / "default" / "0" / "durable"
    shown.unlink()
    make(shown)
    with pytest.raises(JournalWriteError, match=f"cannot write to {shown}"):
        journal.open(tmp_path, "a")
    shutil.rmtree(shown) if shown.is_dir() else shown.unlink()
    with journal.open(tmp_path, "a", fsync="always") as log:
        log.append(b"0")
        assert contents(tmp_path) == [b"0"]
