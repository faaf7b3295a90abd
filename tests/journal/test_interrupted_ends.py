"""Ends that an exception of a signal handler interrupts: a writer's `with` block leaves its folder
free, and a thread that still runs is waited for."""

import collections
import threading

import pytest
from journal_case import contents

import mqcore as mq
from mqcore import journal
from mqcore.journal.flusher import FLUSHER

LIMIT = 60


class Ends(collections.deque):
    """Ctrl-C once, right behind pop()."""

    def __init__(self):
        super().__init__(["once"])
        self.interrupts = 0

    def pop(self):
        found = super().pop()
        if not self.interrupts:
            self.interrupts += 1
            raise KeyboardInterrupt
        return found


def writers(opened):
    return list(opened) if isinstance(opened, journal.MultiWriter) else [opened]


@pytest.mark.parametrize("options", [{}, {"partitions": 3}])
def test_an_interrupted_with_block_leaves_the_folder_free(tmp_path, options):
    opened = journal.open(tmp_path, "a", fsync="never", **options)
    ends = Ends()
    with pytest.raises(KeyboardInterrupt):
        with opened:
            writers(opened)[0]._ends = ends
            opened.append(b"x", key=b"k")
    assert opened.closed
    assert ends.interrupts == 1
    with journal.open(tmp_path, "a", **options) as again:      # while the former one is held
        again.append(b"y", key=b"k")
    found = [message for n in range(options.get("partitions", 1))
             for message in contents(tmp_path, partition=n)]
    assert found == [b"x", b"y"]


def test_an_interrupted_with_block_ends_the_flusher(tmp_path, monkeypatch):
    writer, remove, times = journal.open(tmp_path, "a"), FLUSHER.remove, []

    def interrupted(*args):
        times.append(args)
        if len(times) == 1:
            raise KeyboardInterrupt
        remove(*args)

    monkeypatch.setattr(FLUSHER, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        with writer:
            writer.append(b"x")
    assert writer not in FLUSHER.writers()
    assert contents(tmp_path) == [b"x"]


# -- threads ---------------------------------------------------------------------------------------
# CPython 3.11 takes a thread for ended when an exception interrupts its join(): the next one
# returns at once.


@pytest.fixture
def mirror(tmp_path):
    with journal.open(tmp_path / "a", "a") as writer:
        writer.append(b"x")
    with journal.open(tmp_path / "a") as reader, journal.open(tmp_path / "b", "a") as copy:
        made = mq.device(reader, copy)
        yield made, "_move", made._stopping, made.stop
        made.stop()


@pytest.fixture
def server(tmp_path, ctx):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x")
    with journal.serve(tmp_path, "inproc://ends", context=ctx) as made:
        yield made, "_turn", made._stopping, made.stop


@pytest.fixture
def queues(tmp_path, ctx):
    with journal.serve_queues(tmp_path, "inproc://ends", context=ctx) as made:
        yield made, "_turn", made._stopping, made.stop


@pytest.mark.parametrize("kind", ["mirror", "server", "queues"])
def test_stop_waits_also_after_an_interrupted_join(kind, request, monkeypatch):
    made, step, stopping, stop = request.getfixturevalue(kind)
    seen, over = threading.Event(), threading.Event()

    def busy():
        seen.set()
        stopping.wait(LIMIT)
        over.wait(0.2)          # the thread is busy for a while
        over.set()

    monkeypatch.setattr(made, step, busy)
    assert seen.wait(LIMIT)
    monkeypatch.setattr(made._thread._thread, "join", lambda *_: None)
    stop()
    assert over.is_set() and made.error is None and not made.running
    monkeypatch.undo()
    made._thread.join()


def test_the_last_writer_waits_for_the_flusher(tmp_path, monkeypatch):
    seen, over, go = threading.Event(), threading.Event(), threading.Event()
    assert not FLUSHER.writers()

    def busy(syncers):
        seen.set()
        go.wait(LIMIT)
        over.wait(0.2)
        over.set()
        return 0

    monkeypatch.setattr(FLUSHER, "_round", busy)
    writer = journal.open(tmp_path, "a")
    thread = FLUSHER._run.thread
    assert seen.wait(LIMIT)
    monkeypatch.setattr(thread._thread, "join", lambda *_: None)
    monkeypatch.setattr(thread._thread, "is_alive", lambda: False)
    go.set()
    writer.close()
    assert over.is_set()
    monkeypatch.undo()
    thread.join()


def test_a_signal_handler_may_close_inside_a_retention(tmp_path, monkeypatch):
    """Whose lock it then holds, and the flusher's threads wait for."""
    writer, seen = journal.open(tmp_path, "a", fsync_interval=0.01), threading.Event()

    def look():
        seen.set()
        with writer._retaining:
            return 0

    monkeypatch.setattr(writer, "_look_around", look)
    with writer._retaining:
        writer.append(b"x")
        assert seen.wait(LIMIT)
        writer.close()
    assert writer.closed and contents(tmp_path) == [b"x"]
