"""Two writers of one partition: the locks keep the second one out, and where they cannot, a writer
notices that its files are not as it left them. What was acknowledged stays."""

import contextlib
import errno
import os
import random
import shutil

import pytest
from journal_case import contents, segment_files
from programs import run

from mqcore import journal
from mqcore.journal import JournalLocked
from mqcore.journal import writer as writer_module
from mqcore.journal.store import exclusive, recovery

FOLDER = "default/0"


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


def opened(where, **options):
    return journal.open(where, "a", fsync="always", **options)


SECOND = """
import sys
from mqcore import journal
from mqcore.journal.store import exclusive
for name in sys.argv[2:]:
    setattr(exclusive.fcntl, name, lambda *args: 0)
try:
    with journal.open(sys.argv[1], "a") as writer:
        print("next", writer.next)
except journal.JournalLocked as error:
    print("locked by", error.pid)
"""


@pytest.mark.parametrize("without, removed", [
    ((), False), (("flock",), False), (("fcntl",), False), ((), True), (("fcntl",), True)])
def test_a_second_process_is_kept_out(where, without, removed):
    """Where somebody removes the file `lock`, and where flock or record locks are each machine's
    own."""
    with opened(where) as writer:
        writer.append(b"ours")
        if removed:
            os.unlink(where / FOLDER / "lock")
        status, out, err = run("-c", SECOND, where, *without)
        assert (status, out.decode()) == (0, f"locked by {0 if removed else os.getpid()}\n"), err
        writer.append(b"ours again")
    assert contents(where) == [b"ours", b"ours again"]


def test_the_lock_names_the_other_machine(where):
    with opened(where):
        name = where / FOLDER / "lock"
        assert name.read_text() == f"{os.getpid()} {os.uname().nodename}\n"
        name.write_text(f"{os.getpid()} far\n")
        with pytest.raises(journal.JournalLocked, match=f"process {os.getpid()} of 'far' writes"):
            opened(where)
    opened(where).close()


@pytest.fixture
def no_locks(monkeypatch):
    monkeypatch.setattr(exclusive.fcntl, "flock", lambda *args: None)
    monkeypatch.setattr(exclusive.fcntl, "fcntl", lambda *args: None)


@pytest.mark.parametrize("seed", range(30))
def test_what_was_acknowledged_stays(where, no_locks, seed):
    """Without any lock, in random turns."""
    rng = random.Random(seed)
    first = opened(where)
    kept = {first.append(b"first %d" % i): b"first %d" % i for i in range(rng.randrange(3))}
    writers = [first, opened(where)]
    refused = 0
    for turn in range(20):
        message = b"%d of turn %d" % (turn, seed) * rng.choice((1, 1, 400))
        try:
            kept[rng.choice(writers).append(message)] = message
        except journal.JournalWriteError as error:
            assert error.errno == errno.ESTALE and "another process" in error.hint
            refused += 1
    for writer in writers:
        try:
            writer.close()
        except journal.JournalWriteError:
            refused += 1
    assert refused
    there = dict(enumerate(contents(where)))
    assert {offset: there.get(offset) for offset in kept} == kept


@pytest.mark.parametrize("what", ["removed", "replaced", "cut", "restored", "overwritten"])
def test_files_that_are_not_as_they_were_left(where, what):
    """Nothing is acknowledged any more."""
    writer = opened(where)
    writer.append(b"one")
    [path] = segment_files(where)
    raw = path.read_bytes()
    writer.append(b"two")
    if what == "removed":
        shutil.rmtree(where)
    elif what == "replaced":
        shutil.copy(path, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)
    elif what == "cut":
        os.truncate(path, 512)
    elif what == "restored":
        path.write_bytes(raw)
    else:
        with open(path, "r+b") as file:
            file.seek(len(raw))
            file.write(raw[512:])
    with pytest.raises(journal.JournalWriteError, match="not as this writer left them") as caught:
        writer.append(b"three")
    assert caught.value.errno == errno.ESTALE
    assert isinstance(writer.error, journal.JournalWriteError)
    with pytest.raises(journal.JournalWriteError):
        writer.append(b"four")
    with pytest.raises(journal.JournalWriteError):
        writer.close()


def test_with_an_interval_the_flusher_notices(where):
    writer = journal.open(where, "a", fsync_interval=0.01)
    writer.append(b"one")
    writer.commit()
    shutil.rmtree(where)
    writer.append(b"two")
    with pytest.raises(journal.JournalWriteError):
        writer.commit()
    with pytest.raises(journal.JournalWriteError):
        writer.close()
    assert writer.durable == 1


def test_who_cannot_write_its_name_holds_the_lock_all_the_same(tmp_path, monkeypatch):
    """A full disk: no file becomes longer, and an empty one stays so."""
    journal.open(tmp_path, "a").close()
    name = tmp_path / "default" / "0" / "lock"
    assert name.read_text().startswith(f"{os.getpid()} ")
    name.write_text("1 " + "a-long-name" * 9 + "\n")
    real = os.pwrite

    def full(fd, data, at):
        if at + len(data) > os.fstat(fd).st_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with journal.open(tmp_path, "a"):       # in place there is room
        assert name.read_text() == f"{os.getpid()} {os.uname().nodename}\n"
        with pytest.raises(JournalLocked) as caught:
            journal.open(tmp_path, "a")
        assert caught.value.pid == os.getpid()
    name.write_text("")
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"1")
        assert name.read_text() == ""
        with pytest.raises(JournalLocked) as caught:
            journal.open(tmp_path, "a")
        assert caught.value.pid == 0


def test_a_fork_in_the_middle_of_opening(tmp_path, monkeypatch):
    """The child keeps neither the lock's file nor the folder, or no other process could write once
    its parent has ended."""
    out, into = os.pipe()
    real = writer_module.recover

    def forking(folder):
        child = os.fork()
        if child == 0:
            kept = []
            for fd in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):
                    kept.append(os.readlink(f"/proc/self/fd/{fd}"))
            os.write(into, repr([name for name in kept if str(tmp_path) in name]).encode())
            os._exit(0)
        os.waitpid(child, 0)
        return real(folder)

    monkeypatch.setattr(writer_module, "recover", forking)
    journal.open(tmp_path, "a").close()
    os.close(into)
    with open(out, "rb") as file:
        assert file.read() == b"[]"


def test_a_group_that_cannot_be_set_back_leaves_nothing_open(tmp_path, monkeypatch):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"1")
    with journal.open(tmp_path) as reader:
        reader.commit_offset("g", 1)
    [path] = (tmp_path / "default" / "0").glob("*.mqj")
    os.truncate(path, 512)
    (path.parent / "durable").unlink()

    def failing(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "set_group_offset", failing)
        for _ in range(3):
            with pytest.raises(OSError):
                journal.open(tmp_path, "a")
    assert len(os.listdir("/proc/self/fd")) == len(before)
    journal.open(tmp_path, "a").close()
    with journal.open(tmp_path) as reader:
        assert reader.committed_offset("g") == 0


@pytest.mark.parametrize("number, words", [(errno.ENOLCK, "no locks"), (errno.EIO, "error")])
def test_a_file_system_that_locks_nothing_is_named(tmp_path, monkeypatch, number, words):
    """With the folder: an application may have many."""
    def refused(fd, how):
        if os.fstat(fd).st_ino == os.stat(tmp_path / "t" / "0" / "lock").st_ino:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(exclusive.fcntl, "flock", refused)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=words) as error:
        journal.open(tmp_path, "a", topic="t")
    assert error.value.errno == number
    assert error.value.filename == str(tmp_path / "t" / "0" / "lock")
    assert len(os.listdir("/proc/self/fd")) == before
