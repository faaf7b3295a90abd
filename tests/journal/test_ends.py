"""Every call of a writer against close(), a fork and the end of the process. A returned offset is
never lost.

MQCORE_ROUNDS=1000 makes the races of close() long; an ordinary run makes a few dozen rounds.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from journal_case import arrays, contents
from mqcore.testing.native.journal_disk import Disk, Handles

import mqcore as mq
from mqcore import journal
from mqcore.errors import Forked
from mqcore.journal.errors import JournalClosed, JournalLocked
from mqcore.journal.store import exclusive

LIMIT = 100.0
ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "20"))


def one(writer, text):
    offset = writer.append(text)
    return range(offset, offset + 1)


def many(writer, text):
    return writer.append_many([text, text])


def batch(writer, text):
    return writer.append_batch(*arrays([text, text, text]))


def large(writer, text):
    """Written from where it lies."""
    return writer.append_batch(*arrays([text.ljust(40_000)] * 2))


def handed(writer, text):
    """As a device does."""
    handles = Handles()
    handles.put(text)
    before = writer.next
    status, done = handles.give(writer)
    if done == 0:
        raise JournalClosed(f"status {status}")
    return range(before, before)    # other threads append, too: the place is not known


# -- close -----------------------------------------------------------------------------------------

def appending(writer, call, name, returned):
    """Until the writer is closed: what was returned."""
    try:
        for i in itertools.count():
            text = (b"%s %d" % (name, i)).ljust(2000)
            for offset in call(writer, text):
                returned.append((offset, text))
    except JournalClosed:
        pass


def raced(where, writer, calls):
    returned = []
    gang = [threading.Thread(target=appending, args=(writer, call, b"%d" % i, returned))
            for i, call in enumerate(calls)]
    for thread in gang:
        thread.start()
    while len(returned) < 1500:         # some MB: a flush is under way much of the time
        time.sleep(0)
    end = writer.close()
    for thread in gang:
        thread.join()
    found = contents(where)
    assert len(found) == end == writer.next == writer.durable
    lost = [place for place in returned
            if place[0] >= end or not found[place[0]].startswith(place[1])]
    assert lost == []


@pytest.mark.timeout(300 + ROUNDS)
@pytest.mark.parametrize("threads", [2, 8])
def test_append_against_close(tmp_path, threads):
    for i in range(ROUNDS // 2):
        raced(tmp_path / str(i), journal.open(tmp_path / str(i), "a"), [one] * threads)


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_every_call_that_appends_against_close(tmp_path, fsync):
    for i in range(3):
        writer = journal.open(tmp_path / str(i), "a", fsync=fsync, fsync_interval=0.001,
                              block_bytes=1024, segment_bytes=1 << 16)
        raced(tmp_path / str(i), writer, [one, many, batch, large])


def test_handles_against_close(tmp_path):
    """What a sink has taken is in the file, and what it has not taken is not."""
    for i in range(10):
        writer = journal.open(tmp_path / str(i), "a")
        taken = []

        def give(writer=writer, taken=taken):
            try:
                for k in itertools.count():
                    handed(writer, b"%d" % k)
                    taken.append(b"%d" % k)
            except JournalClosed:
                pass
        thread = threading.Thread(target=give)
        thread.start()
        while len(taken) < 20:
            time.sleep(0)
        writer.close()
        thread.join()
        assert contents(tmp_path / str(i)) == taken


def test_a_thread_that_waited_for_the_lock_of_a_closing_writer_is_refused(tmp_path):
    """close() holds the lock through its fsync; a thread that waits for it must not append."""
    disk = Disk()
    writer = journal.open(tmp_path, "a", fsync="never")
    writer.append(b"first")
    disk.attach(writer)
    waiting, results = threading.Event(), []

    def append():
        waiting.set()
        for call in (one, many, batch):
            try:
                results.append(call(writer, b"late"))
            except JournalClosed as error:
                results.append(error)

    def before():
        disk.before(None)
        thread.start()
        waiting.wait(LIMIT)
        time.sleep(0.05)        # it is in the lock by now, or will be refused all the same
    thread = threading.Thread(target=append)
    disk.before(before)
    assert writer.close() == 1
    thread.join()
    assert [type(result) for result in results] == [JournalClosed] * 3
    assert contents(tmp_path) == [b"first"]


def test_a_device_whose_writer_is_closed_ends_with_the_reason(ctx, tmp_path):
    for pattern, sender in ((mq.Pull, mq.Push), (mq.Rep, mq.Dealer)):
        writer = journal.open(tmp_path / pattern.__name__, "a")
        with pattern(context=ctx, bind="tcp://127.0.0.1:0") as front, \
                sender(context=ctx, connect=front.endpoints[0].url) as back:
            device = mq.device(front, writer)
            back.send_parts([b"", b"x"] if sender is mq.Dealer else [b"x"])
            while writer.next < 1:
                time.sleep(0.001)
            writer.close()
            with pytest.raises(JournalClosed):
                device.wait_stopped(LIMIT)
            assert not device.running and isinstance(device.error, JournalClosed)
            with pytest.raises(JournalClosed):
                device.stop()


def test_writers_closed_under_a_device_end_it(ctx, tmp_path):
    writers = journal.open(tmp_path, "a", topic_from="first-part")
    with mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.Push(context=ctx, connect=front.endpoints[0].url) as back:
        device = mq.device(front, writers)
        back.send_parts([b"t", b"x"])
        while not [writer for writer in writers if writer.next]:
            time.sleep(0.001)
        writers.close()
        with pytest.raises(JournalClosed):
            device.wait_stopped(LIMIT)
        with pytest.raises(JournalClosed):
            device.stop()
    with pytest.raises(JournalClosed):
        writers.append(b"x", topic="t")


@pytest.mark.parametrize("name", ["commit", "flush", "rotate", "retain", "close"])
def test_other_calls_against_close(tmp_path, name):
    """They succeed, or raise JournalClosed; the journal opens again."""
    wrong = []
    for i in range(20):
        writer = journal.open(tmp_path / str(i), "a", retain_bytes=0, fsync="never")
        writer.append(b"x")
        call = getattr(writer, name)

        def work(call=call, writer=writer):
            try:
                while not writer.closed:
                    call()
            except JournalClosed:
                pass
            except BaseException as error:
                wrong.append(error)
        gang = [threading.Thread(target=work) for _ in range(2)]
        for thread in gang:
            thread.start()
        writer.close()
        for thread in gang:
            thread.join()
        journal.open(tmp_path / str(i), "a").close()
    assert wrong == []


# -- fork ------------------------------------------------------------------------------------------

def in_child(work, limit=LIMIT):
    """The exit status of a forked child that does this, or None if it hangs."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = work() or 0
        finally:
            os._exit(status)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


CALLS = {
    "append": lambda w: w.append(b"child"),
    "append with a key": lambda w: w.append(b"child", key=b"k"),
    "append_many": lambda w: w.append_many([b"child"]),
    "append_many of none": lambda w: w.append_many([]),
    "append_batch": lambda w: w.append_batch(b"child", [0, 5]),
    "append_batch of none": lambda w: w.append_batch(b"", [0]),
    "commit": lambda w: w.commit(),
    "flush": lambda w: w.flush(),
    "rotate": lambda w: w.rotate(),
    "retain": lambda w: w.retain(),
    "_mq_sink": lambda w: w._mq_sink(),
}


def refusals(writer, calls):
    """How many of these calls do anything but raise Forked."""
    wrong = 0
    for call in calls:
        try:
            call(writer)
            wrong += 1
        except Forked:
            pass
    return wrong


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_a_forked_child_is_refused_by_every_call(tmp_path, fsync):
    with journal.open(tmp_path / "other", "a", stamps=True) as other:
        other.append(journal.stamp(1, 0) + b"x")
    with journal.open(tmp_path / "other") as reader:
        records = reader.read(0)
    calls = [*CALLS.values(), lambda w: w.append_records(records)]
    writer = journal.open(tmp_path / "j", "a", fsync=fsync, retain_bytes=0)
    writer.append(b"parent")

    def child():
        wrong = refusals(writer, calls)
        writer.close()
        return wrong + refusals(writer, calls) + (writer.closed is not True)
    assert in_child(child) == 0
    writer.append(b"again")
    writer.close()
    assert contents(tmp_path / "j") == [b"parent", b"again"]


@pytest.mark.timeout(300 + ROUNDS)
def test_children_of_a_busy_parent_never_hang(tmp_path):
    """Another thread may hold any lock of the writer at the moment of the fork."""
    writer = journal.open(tmp_path, "a", fsync_interval=0.001, block_bytes=1024,
                          segment_bytes=1 << 15, retain_bytes=1 << 16)
    stop = threading.Event()

    def busy(call):
        while not stop.is_set():
            call()
    gang = [threading.Thread(target=busy, args=(call,)) for call in (
        lambda: writer.append(b"x" * 300), writer.commit, lambda: writer.append_many([b"y"] * 9),
        writer.retain)]
    for thread in gang:
        thread.start()
    try:
        def child():
            wrong = refusals(writer, [CALLS["append"], CALLS["commit"], CALLS["retain"]])
            writer.close()
            return wrong
        results = [in_child(child) for _ in range(ROUNDS)]
    finally:
        stop.set()
        for thread in gang:
            thread.join()
        writer.close()
    assert results == [0] * ROUNDS
    assert journal.store.recovery.verify(tmp_path / "default" / "0").findings == []


def test_writers_in_a_forked_child(tmp_path):
    with journal.open(tmp_path, "a", topic_from="first-part", partitions=2) as writers:
        writers.append(b"x", topic="t")
        calls = [lambda w: w.append(b"c", topic="t"), lambda w: w.append(b"c", topic="new"),
                 lambda w: w.append_parts([b"t", b"c"]), lambda w: w.commit(), lambda w: w.flush(),
                 lambda w: w.writer("t"), lambda w: w._mq_sink()]

        def child():
            wrong = refusals(writers, calls)
            writers.close()
            return wrong
        held = threading.Lock()
        entered, leave = threading.Event(), threading.Event()

        def hold():
            with writers._open_lock, held:
                entered.set()
                leave.wait(LIMIT)
        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait(LIMIT)
        assert in_child(child) == 0
        leave.set()
        thread.join()
        writers.append(b"y", topic="t")
    assert contents(tmp_path, topic="t") == [b"x", b"y"]


def test_a_child_writes_to_a_journal_of_its_own(tmp_path):
    """With a flusher of its own; the parent's goes on."""
    def child():
        with journal.open(tmp_path / "child", "a", fsync_interval=0.001) as mine:
            mine.append(b"c")
            while mine.durable < 1:
                time.sleep(0.001)
        return 0
    with journal.open(tmp_path / "parent", "a", fsync_interval=0.001) as writer:
        assert in_child(child) == 0
        writer.append(b"p")
        while writer.durable < 1:
            time.sleep(0.001)
    assert contents(tmp_path / "child") == [b"c"]


ORPHANED = """
import os, sys, time
from mqcore import journal
writer = journal.open(sys.argv[1], "a", fsync="always")
writer.append(b"parent")
if os.fork() == 0:
    print(os.getpid(), flush=True)      # by the child: its handlers of fork have let go of the lock
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_child_does_not_keep_the_lock_of_a_parent_that_was_killed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ORPHANED, tmp_path], stdout=subprocess.PIPE)
    child = int(process.stdout.readline())
    try:
        with pytest.raises(JournalLocked):
            journal.open(tmp_path, "a")
        process.kill()
        process.wait(LIMIT)
        with journal.open(tmp_path, "a") as writer:
            assert writer.append(b"next") == 1
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


# -- exit ------------------------------------------------------------------------------------------

EXIT = """
import os, sys, threading
from mqcore import journal
where, way = sys.argv[1:]
writers = [journal.open(where, "a", partition=i) for i in range(20)]
for writer in writers:
    writer.append(b"x")
if way == "thread":
    threading.Thread(target=lambda: [writer.append(b"y") for writer in writers]).start()
elif way == "daemon":
    def forever():
        while True:
            for writer in writers:
                writer.append(b"y")
    threading.Thread(target=forever, daemon=True).start()
elif way == "child":
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
"""


@pytest.mark.parametrize("way", ["plain", "thread", "daemon", "child"])
def test_the_end_of_a_program_makes_everything_durable(tmp_path, way):
    done = subprocess.run([sys.executable, "-c", EXIT, tmp_path, way], capture_output=True,
                          timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    for i in range(20):
        assert contents(tmp_path, partition=i)[:1] == [b"x"]
        assert journal.store.recovery.verify(tmp_path / "default" / str(i)).findings == []


ASLEEP = """
import atexit, sys, threading, time
from mqcore import journal
atexit.register(time.sleep, 0.3)        # after the writer has been closed: time to print
writer = journal.open(sys.argv[1], "a")
several = journal.open(sys.argv[1], "a", topic="several", partitions=2)
begun = threading.Event()
def call():
    while True:
        eval(sys.argv[2])
        begun.set()
threading.Thread(target=call, daemon=True).start()
begun.wait()
"""


@pytest.mark.parametrize("call", [
    "writer.append(b'x')", "writer.append_many([b'x'] * 10)", "writer.commit()", "writer.flush()",
    "writer.rotate()", "writer.truncate_before(writer.next)", "several.append(b'x')",
    "several.commit()"])
def test_a_daemon_thread_that_writes_says_nothing_at_exit(tmp_path, call):
    done = subprocess.run([sys.executable, "-c", ASLEEP, tmp_path, call], capture_output=True,
                          text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("at", ["_close", "_save_at_end", "_detach"])
@pytest.mark.parametrize("done", [True, False])
def test_a_close_that_was_interrupted_leaves_the_folder_free(tmp_path, monkeypatch, at, done):
    """The exception of a signal handler, in front of a call in close() or behind it. The next
    close() does the rest."""
    log = journal.open(tmp_path, "a", stamps=True, deduplicate=True)
    log.append(journal.stamp(7, 1) + b"x")
    call = getattr(log, at)

    def interrupted():
        if done:
            call()
        raise KeyboardInterrupt

    monkeypatch.setattr(log, at, interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt):
        log.close()
    monkeypatch.undo()
    assert log.close() == 1
    with journal.open(tmp_path, "a", stamps=True, deduplicate=True) as again:
        again.append(journal.stamp(7, 1) + b"x")
        assert (again.next, again.duplicates) == (1, 1)


@pytest.mark.parametrize("done", [True, False])
def test_an_interrupted_open_leaves_the_folder_free(tmp_path, monkeypatch, done):
    release = exclusive.TopicLock.release

    def interrupted(lock):
        if done:
            release(lock)
        raise KeyboardInterrupt

    monkeypatch.setattr(exclusive.TopicLock, "release", interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        journal.open(tmp_path, "a")
    monkeypatch.undo()
    with journal.open(tmp_path, "a") as log:
        log.append(b"x")
    assert journal.rename(tmp_path, topic="default", to="other") == 1
