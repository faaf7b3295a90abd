"""One thread flushes, syncs and applies retention for all writers; only their end ends it."""

import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from journal_case import contents, segment_files
from mqcore.testing.native.journal_disk import Disk

from mqcore import journal
from mqcore.base import threads
from mqcore.base.waits import start
from mqcore.journal import flusher, syncers
from mqcore.journal.errors import JournalFull

LIMIT = 20.0


def flushers():
    return [t for t in threading.enumerate() if t.name == "mqcore-journal"]


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_one_thread_for_all_writers_and_none_afterwards(tmp_path):
    assert flushers() == []
    with journal.open(tmp_path, "a", topic_from="first-part", partitions=8,
                      fsync_interval=0.01) as writers:
        for i in range(10):
            writers.append(b"x", topic=str(i))
        [thread] = flushers()
        every = list(writers)
        until(lambda: all(writer.durable == writer.next for writer in every))
        assert flushers() == [thread] and len(every) == 80
    assert flushers() == []
    with journal.open(tmp_path / "again", "a", fsync_interval=0.01) as writer:
        writer.append(b"x")
        until(lambda: writer.durable == 1)
    assert flushers() == []


def test_a_quiet_writer_wakes_nobody(tmp_path):
    """Without messages the thread sleeps: its context switches stand still."""
    with journal.open(tmp_path, "a", topic_from="first-part", partitions=20,
                      fsync_interval=0.001) as writers:
        for i in range(5):
            writers.append(b"x", topic=str(i))
        until(lambda: all(writer.durable == writer.next for writer in writers))
        [thread] = flushers()

        def switches():
            with open(f"/proc/self/task/{thread.native_id}/status") as file:
                return sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
        last = -1
        while last != switches():       # a round may still be under way
            last = switches()
            time.sleep(0.05)
        time.sleep(0.3)
        assert switches() - last <= 3
        writers.append(b"y", topic="3")     # and this wakes it
        writer = writers.writer("3")
        until(lambda: writer.durable == 2)


@pytest.mark.parametrize("way", ["append", "many", "batch", "large batch", "rotate"])
def test_whatever_comes_after_a_rest_is_flushed_and_synced(tmp_path, way):
    with journal.open(tmp_path, "a", fsync_interval=0.001) as writer:
        for _ in range(3):
            if way == "append":
                writer.append(b"x")
            elif way == "many":
                writer.append_many([b"x"] * 3)
            elif way == "batch":
                writer.append_batch(b"xyz", [0, 1, 3])
            elif way == "large batch":
                writer.append_batch(bytes(200_000), [0, 100_000, 200_000])
            else:
                writer.append(b"x")
                writer.rotate()
            until(lambda: writer.durable == writer.next)
            time.sleep(0.01)            # it rests


def test_a_segment_grows_old_while_nothing_comes(tmp_path):
    with journal.open(tmp_path, "a", segment_age=0.05, fsync="never",
                      fsync_interval=0.001) as writer:
        writer.append(b"x")
        until(lambda: len(segment_files(tmp_path)) == 2)
        time.sleep(0.2)
        assert len(segment_files(tmp_path)) == 2        # an empty one does not


def test_retention_follows_a_rotation(tmp_path):
    with journal.open(tmp_path, "a", retain_bytes=0, fsync_interval=0.001) as writer:
        for _ in range(3):
            writer.append(b"x")
            writer.rotate()
            until(lambda: len(segment_files(tmp_path)) == 1)


@pytest.mark.parametrize("error", [ValueError("no number"), OSError(5, "I/O"), MemoryError(),
                                   SystemExit(1), KeyboardInterrupt(), RecursionError()])
def test_no_error_ends_the_thread(tmp_path, caplog, monkeypatch, error):
    with journal.open(tmp_path / "a", "a", fsync_interval=0.001) as bad, \
            journal.open(tmp_path / "b", "a", fsync_interval=0.001) as good:
        def fail():
            raise error
        monkeypatch.setattr(bad, "_look_around", fail)
        bad.append(b"x")
        until(lambda: bad.error is not None)
        assert bad.error is error
        assert str(bad.path) in caplog.text
        for i in range(3):
            good.append(b"x")
            until(lambda n=i + 1: good.durable == n)
        assert good.error is None
        until(lambda: bad.durable == 1)     # what failed is not its flushing
        reported = caplog.text.count("mqcore.journal")
        bad.append(b"y")
        bad.commit()
        assert caplog.text.count("mqcore.journal") == reported
    assert contents(tmp_path / "a") == [b"x", b"y"]


def test_a_foreign_group_file_neither_ends_the_thread_nor_the_flushing(tmp_path):
    with journal.open(tmp_path, "a", retain_for="g", fsync_interval=0.001) as writer:
        writer.append(b"x")
        groups = tmp_path / "default" / "0" / "groups"
        groups.mkdir()
        (groups / "g").write_bytes(b"no number\n")
        for i in range(3):
            writer.append(b"y")
            writer.rotate()
            until(lambda n=i + 2: writer.durable == n)
    assert len(contents(tmp_path)) == 4


def test_a_full_disk_is_logged_once_and_tried_again(tmp_path, caplog):
    disk = Disk()
    with journal.open(tmp_path, "a", fsync_interval=0.001) as writer:
        disk.attach(writer)
        disk.fail(room=10)
        with caplog.at_level(logging.ERROR, "mqcore.journal"):
            writer.append(b"x")
            until(lambda: caplog.records)
            assert isinstance(writer.error, JournalFull)
            time.sleep(0.1)
        disk.fail(room=-1)
        until(lambda: writer.durable == 1)
        until(lambda: writer.error is None)
        assert len(caplog.records) == 1


def test_a_thread_that_cannot_start_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(
        RuntimeError("can't start new thread")))
    with pytest.raises(RuntimeError):
        journal.open(tmp_path, "a")
    monkeypatch.undo()
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x")


def test_forgotten_writers_end_the_thread(tmp_path):
    writer = journal.open(tmp_path, "a")
    [thread] = flushers()
    writer.append(b"x")
    with pytest.warns(ResourceWarning):
        del writer
    thread.join(LIMIT)
    assert not thread.is_alive() and contents(tmp_path) == [b"x"]


MANY = """
import os, sys, threading, time
from mqcore import journal
from mqcore.journal import syncers
with journal.open(sys.argv[1], "a", topic_from="first-part", partitions=4) as writers:
    for i in range(50):
        writers.append(b"x", topic=str(i))
    assert threading.active_count() <= 2 + syncers.THREADS, threading.enumerate()
    while any(writer.durable < writer.next for writer in writers):
        time.sleep(0.01)
    while threading.active_count() > 2:
        time.sleep(0.01)
    before = os.times()
    time.sleep(1)
    after = os.times()
    print(after.user + after.system - before.user - before.system)
"""


def test_two_hundred_idle_partitions_cost_next_to_nothing(tmp_path):
    if os.sysconf("SC_OPEN_MAX") < 2000:
        pytest.skip("needs more than a thousand descriptors")
    done = subprocess.run([sys.executable, "-c", MANY, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.1


@pytest.fixture
def stuck():
    """stuck(writer): a sync of this writer takes until the end of the block."""
    gate = threading.Event()
    disks = []
    entered = threading.Semaphore(0)

    def wait(file):
        entered.release()
        assert gate.wait(LIMIT)

    def stick(writer):
        disks.append(Disk())
        disks[-1].attach(writer)
        disks[-1].after_sync(wait)
        writer.append(b"x")

    stick.entered, stick.gate = entered, gate
    yield stick
    gate.set()


def opened(where, device=None):
    writer = journal.open(where, "a", fsync_interval=0.001)
    if device is not None:
        writer._device = device
    return writer


def test_a_sync_that_hangs_holds_up_its_own_writer_alone(tmp_path, stuck):
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        stuck(a)
        assert stuck.entered.acquire(timeout=LIMIT)
        for i in range(1, 4):
            b.append(b"y")
            until(lambda n=i: b.durable == n)
        assert a.durable == 0
        stuck.gate.set()
        until(lambda: a.durable == 1)


def test_a_device_that_hangs_leaves_threads_to_the_others(tmp_path, stuck):
    """More of its writers than there are threads have something to sync."""
    many = [opened(tmp_path / str(i), device=-1) for i in range(syncers.THREADS + 2)]
    with opened(tmp_path / "other") as other:
        for writer in many:
            stuck(writer)
        for _ in range(syncers.OF_A_DEVICE):
            assert stuck.entered.acquire(timeout=LIMIT)
        for i in range(1, 4):
            other.append(b"y")
            until(lambda n=i: other.durable == n)
        assert not stuck.entered.acquire(blocking=False)
        stuck.gate.set()
        until(lambda: all(writer.durable == 1 for writer in many))
    for writer in many:
        writer.close()


def test_a_thread_that_is_idle_is_not_counted_on_twice(tmp_path, stuck):
    """One rests when two writers come at once, and the first of them hangs."""
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        pool = syncers.Syncers(lambda writer, failed: writer._tick_sync())
        try:
            for writer in (a, b):
                writer._sync_at = 0
            pool.give(b, 0)
            until(lambda: pool._idle == 1)
            stuck(a)
            b.append(b"y")
            b.flush()
            with pool._changed:         # it wakes behind both
                pool.give(a, 0)
                pool.give(b, 0)
            until(lambda: b.durable == 1)
        finally:
            stuck.gate.set()
            pool.end()


def test_closing_the_last_writer_ends_the_threads(tmp_path, stuck):
    with opened(tmp_path) as writer:
        stuck(writer)
        assert stuck.entered.acquire(timeout=LIMIT)
        threading.Timer(0.1, stuck.gate.set).start()
    assert flushers() == []
    assert not [t for t in threading.enumerate() if t.name == "mqcore-journal-sync"]
    assert contents(tmp_path) == [b"x"]


def test_without_threads_the_flusher_syncs(tmp_path, monkeypatch):
    with opened(tmp_path) as writer:
        def none(thread):
            raise RuntimeError("can't start new thread")
        monkeypatch.setattr(threads, "start", none)
        for i in range(1, 4):
            writer.append(b"x")
            until(lambda n=i: writer.durable == n)


def test_an_interval_of_minutes_is_one(tmp_path):
    """Messages go to the kernel within a second, and are synced when the time has come."""
    disk = Disk()
    with journal.open(tmp_path, "a", fsync_interval=300) as writer:
        disk.attach(writer)
        writer.append(b"x")
        until(lambda: writer.written == 1)
        writer._sync_at = 0             # five minutes have passed
        until(lambda: writer.durable == 1)
        writer.append(b"y")
        until(lambda: writer.written == 2)
        assert [what for what, _ in disk.happened()].count("sync") == 1
        writer.commit()
        assert writer.durable == 2


class Stubborn(list):
    """A signal handler's exception comes in the middle of remove()."""

    def remove(self, one):
        raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["start", "stop", "bell"])
def test_an_interrupt_leaves_one_thread_that_goes_on(tmp_path, monkeypatch, where):
    """Two would share the bell, and the end of one would be waited for in vain; without any, no
    message would be written."""
    def fail(*thread):
        if thread:
            start(*thread)
        raise KeyboardInterrupt

    if where == "start":
        monkeypatch.setattr(threads, "start", fail)
    log = None
    with pytest.raises(KeyboardInterrupt):
        log = journal.open(tmp_path / "a", "a")
        if where == "stop":
            monkeypatch.setattr(flusher.FLUSHER, "_runs", Stubborn(flusher.FLUSHER._runs))
        else:
            monkeypatch.setattr(flusher, "ring", fail)
        log.close()
    monkeypatch.undo()
    for name in "bcd":
        with journal.open(tmp_path / name, "a", fsync_interval=0.001) as log:
            log.append(b"x")
            until(lambda log=log: log.durable == 1)
            until(lambda: len(flushers()) == 1)
    until(lambda: not flushers())
