"""The disk says no: every refusal reaches the caller, and nothing durable or taken is lost."""

import errno
import resource
import subprocess
import sys

import pytest
from journal_case import arrays, contents, numbered
from mqcore.testing.native.journal_disk import Disk, Handles

from mqcore import journal
from mqcore.journal.errors import JournalFull, JournalWriteError


@pytest.fixture
def disk():
    return Disk()


def test_full_disk_and_then_room(tmp_path, disk, rng):
    with journal.open(tmp_path, "a", fsync="never", block_bytes=4096) as writer:
        disk.attach(writer)
        disk.fail(room=10_000)
        kept = []
        with pytest.raises(JournalFull) as caught:
            while True:
                message = numbered(len(kept), 1, rng)[0]
                writer.append(message)
                kept.append(message)
        assert caught.value.errno == errno.ENOSPC and caught.value.taken == 0
        assert writer.next == len(kept) and isinstance(writer.error, JournalFull)
        with pytest.raises(JournalFull):
            writer.commit()
        with journal.open(tmp_path) as reader:      # whole blocks only
            assert reader.end == writer.written < len(kept)
        disk.fail(room=-1)
        writer.append(b"after")
        assert writer.commit() == len(kept) + 1
        assert writer.error is None
    assert contents(tmp_path) == [*kept, b"after"]


@pytest.mark.parametrize("keyed", [False, True])
def test_full_disk_in_the_middle_of_a_batch(tmp_path, disk, keyed):
    data, ends = arrays([b"%06d" % i for i in range(30_000)])
    with journal.open(tmp_path, "a", fsync="never", block_bytes=16384) as writer:
        disk.attach(writer)
        disk.fail(room=100_000)
        with pytest.raises(JournalFull) as caught:
            writer.append_batch(data, ends, keys=(data, ends) if keyed else None)
        taken = caught.value.taken
        assert 0 < taken < 30_000 and writer.next == taken
        disk.fail(room=-1)
        writer.append_batch(data, ends[taken:])
    assert contents(tmp_path) == [b"%06d" % i for i in range(30_000)]


def test_always_keeps_what_it_could_not_write(tmp_path, disk):
    with journal.open(tmp_path, "a", fsync="always") as writer:
        disk.attach(writer)
        disk.fail(room=10)
        with pytest.raises(JournalFull) as caught:
            writer.append(b"one")
        assert caught.value.taken == 1 and writer.durable == 0
        disk.fail(room=-1)
        assert writer.commit() == 1
    assert contents(tmp_path) == [b"one"]


def test_a_failed_sync_is_for_good(tmp_path, disk):
    writer = journal.open(tmp_path, "a", fsync="never")
    disk.attach(writer)
    writer.append(b"one")
    assert writer.commit() == 1
    writer.append(b"two")
    disk.fail(syncs_left=0)
    with pytest.raises(JournalWriteError) as caught:
        writer.commit()
    assert caught.value.errno == errno.EIO and "open it again" in str(caught.value)
    disk.fail(syncs_left=-1)
    for call in (lambda: writer.append(b"three"), writer.commit, writer.flush,
                 lambda: writer.append_many([b"x"]), lambda: writer.append_batch(b"abc", [0, 3])):
        with pytest.raises(JournalWriteError):
            call()
    assert writer.durable == 1
    with pytest.raises(JournalWriteError):
        writer.close()
    assert writer.closed
    assert contents(tmp_path)[:1] == [b"one"]


def test_short_writes_are_continued(tmp_path, disk, rng):
    messages = numbered(0, 300, rng)
    with journal.open(tmp_path, "a", block_bytes=2048) as writer:
        disk.attach(writer)
        disk.fail(partial=True)
        writer.append_many(messages)
    assert contents(tmp_path) == messages


def test_a_device_is_told_to_wait(tmp_path, disk):
    """A sink on a full disk takes nothing, says that it is not ready, and drops nothing."""
    handles = Handles()
    with journal.open(tmp_path, "a", fsync="never", block_bytes=1024) as writer:
        disk.attach(writer)
        disk.fail(room=0)
        handles.put(*[b"%03d" % i * 30 for i in range(50)])
        rc, done = handles.give(writer)
        assert rc != 0 and 0 < done < 50
        assert handles.sink_state(writer) == (False, 0)
        disk.fail(room=-1)
        writer.flush()
        assert handles.sink_state(writer)[0]
        assert handles.give(writer) == (0, 50 - done)
        writer.commit()
        assert handles.sink_state(writer) == (True, 50)
    assert contents(tmp_path) == [b"%03d" % i * 30 for i in range(50)]


def test_parts_of_a_message_are_one_value(tmp_path):
    handles = Handles()
    handles.put([b"a", b"", b"bc"], b"single", [b"", b"x" * 100, b"y" * 200])
    with journal.open(tmp_path, "a", fsync="always") as writer:
        assert handles.give(writer) == (0, 7)
        assert writer.durable == 3
    assert contents(tmp_path) == [b"abc", b"single", b"x" * 100 + b"y" * 200]


def test_stamps_are_taken_off_handles(tmp_path):
    handles = Handles()
    handles.put([journal.stamp(5, 0), b"a"], journal.stamp(5, 1) + b"b", b"none")
    with journal.open(tmp_path, "a", stamps=True) as writer:
        handles.give(writer)
    with journal.open(tmp_path) as reader:
        records = reader.read(0)
        assert records.to_list() == [b"a", b"b", b"none"]
        assert records.producers.tolist() == [5, 5, 0] and records.sequences.tolist() == [0, 1, 0]


LIMITED = """
import resource, signal, sys
from mqcore import journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = journal.open(sys.argv[1], "a", fsync="interval", fsync_interval=0.01, block_bytes=8192)
resource.setrlimit(resource.RLIMIT_FSIZE, (60000, resource.RLIM_INFINITY))
n = 0
try:
    while True:
        writer.append(b"%08d" % n * 10)
        n += 1
except journal.JournalFull as error:
    durable = writer.durable
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    writer.close()
    print(n, durable, error.errno)
"""


def test_a_real_refusal_of_the_system(tmp_path):
    if resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY:
        pytest.skip("files are limited here already")
    answer = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True,
                            text=True)
    assert answer.returncode == 0, answer.stderr
    n, durable, number = map(int, answer.stdout.split())
    assert number == errno.EFBIG and 0 <= durable <= n
    assert contents(tmp_path) == [b"%08d" % i * 10 for i in range(n)]
