"""Readers and their ends: close in another thread, a forked child."""

import os
import threading
import time

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.errors import Forked
from mqcore.journal.errors import JournalClosed

LIMIT = 20.0


def in_child(call):
    """What the call returns or raises in a forked child, as text."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = repr(call())
        except BaseException as error:
            text = type(error).__name__
        os.write(into, text.encode())
        os._exit(0)
    os.close(into)
    end = time.monotonic() + LIMIT
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(out)
            return "it hangs"
        time.sleep(0.001)
    with open(out, "rb") as file:
        return file.read().decode()


class Holding:
    """Another thread holds these locks, as in the middle of a call."""

    def __init__(self, *locks):
        self.locks = locks
        self.held, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        for lock in self.locks:
            lock.acquire()
        self.held.set()
        self.go.wait(LIMIT)
        for lock in self.locks:
            lock.release()

    def __enter__(self):
        self.thread.start()
        assert self.held.wait(LIMIT)

    def __exit__(self, *_):
        self.go.set()
        self.thread.join()


@pytest.fixture
def where(tmp_path):
    with journal.open(tmp_path / "j", "a") as writer:
        writer.append_many([b"0", b"1"])
    return tmp_path / "j"


CALLS = {
    "read": (lambda reader: reader.read(0).to_list(), "[b'0', b'1']"),
    "end": (lambda reader: reader.end, "2"),
    "durable": (lambda reader: reader.durable, "2"),
    "at": (lambda reader: reader.at(0), "0"),
    "commit": (lambda reader: reader.commit_offset("g", 1), "None"),
    "follow": (lambda reader: next(reader.follow(1, timeout=LIMIT)).to_list(), "[b'1']"),
    "release": (lambda reader: reader.release(), "None"),
    "close": (lambda reader: reader.close(), "None"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_child_that_was_forked_while_a_thread_reads(where, name):
    call, expected = CALLS[name]
    with journal.open(where) as reader:
        reader.read(0)
        with Holding(reader._use):
            assert in_child(lambda: call(reader)) == expected
        assert reader.read(0).to_list() == [b"0", b"1"]


def test_a_child_that_closes_a_reader_does_not_wake_the_parents(where, ctx):
    """Nor does one that follows take their events."""
    with journal.open(where) as reader, journal.open(where, "a") as writer:
        found = []
        follower = threading.Thread(target=lambda: found.extend(
            message for records in reader.follow(0) for message in records.to_list()))
        follower.start()
        end = time.monotonic() + LIMIT
        while len(found) < 2 or reader._closing < 0:
            assert time.monotonic() < end
            time.sleep(0.001)
        closing = reader._closing
        assert in_child(lambda: reader.close()) == "None"
        with pytest.raises(BlockingIOError):
            os.eventfd_read(closing)
        writer.append(b"2")
        writer.flush()
        while len(found) < 3:
            assert time.monotonic() < end
            time.sleep(0.001)
        reader.close()
        follower.join()


def test_a_child_does_not_take_the_events_of_its_parents_followers(where):
    with journal.open(where) as reader, journal.open(where, "a") as writer:
        watch = reader._watch()
        assert in_child(lambda: (os.eventfd_write(watch.fd, 1), watch.drain())) == "(None, True)"
        assert not watch.drain()
        writer.append(b"2")
        writer.flush()
        watch.wait_change(LIMIT)
        reader._unwatch(watch)


@pytest.mark.parametrize("locked", [False, True])
def test_a_reader_of_a_server_in_a_forked_child(where, ctx, locked):
    with journal.serve(where, f"ipc://{where}.server", context=ctx) as server, \
            journal.open(server.urls[0], topic="default", context=ctx) as reader:
        held = Holding(*[reader._lock] if locked else [])
        with held:
            for call in ("read", "end", "durable", "at", "follow"):
                assert in_child(lambda call=call: CALLS[call][0](reader)) == Forked.__name__
            assert in_child(lambda: reader.close()) == "None"
        reader.release()
        assert reader.read(0).to_list() == [b"0", b"1"]


@pytest.mark.parametrize("kind", ["mirror", "recorder"])
def test_a_forked_child_has_no_device(where, ctx, kind):
    """It ends there at once, also while the parent is stopping it."""
    with journal.open(where) as reader, journal.open(f"{where}.copy", "a") as writer, \
            mq.Pull(bind=f"ipc://{where}.front", context=ctx) as pull, \
            mq.device(reader if kind == "mirror" else pull, writer) as device:
        with Holding(device._lock):
            assert in_child(lambda: device.running) == "False"
            assert in_child(lambda: device.stop()) == "()"
            assert in_child(lambda: device.wait_stopped()) == Forked.__name__
            assert in_child(lambda: (device.pause(), device.resume())) == "(None, None)"
        assert device.running and device.error is None


@pytest.mark.parametrize("name", ["read", "end", "durable", "at", "batches", "commit", "stored"])
def test_calls_against_close(where, name):
    """They end as if close() had come before or after them, never with a descriptor that is another
    file's by now."""
    call = {**{key: value[0] for key, value in CALLS.items()},
            "batches": lambda reader: [len(records) for records in reader.batches(0, 2)],
            "stored": lambda reader: reader.stored_bytes(0, 2)}[name]
    wrong = []
    for _ in range(60):
        reader = journal.open(where)
        ready = threading.Barrier(3)

        def calls(reader=reader, ready=ready):
            ready.wait()
            try:
                for _ in range(50):
                    call(reader)
            except JournalClosed:
                pass
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=calls) for _ in range(2)]
        for thread in threads:
            thread.start()
        ready.wait()
        reader.close()
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive()
    assert not wrong
