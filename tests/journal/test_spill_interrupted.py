"""A spill whose stop() an exception interrupts, one whose thread does not start, and
tasks beside one that has always room; bounds of small messages, and of those that are kept but not
durable."""

import asyncio
import threading

import pytest
import trio
from mqcore.testing.native.journal_disk import Disk
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.base import threads
from mqcore.journal import spilling

LIMIT = 60
HWM = 10


@pytest.fixture
def pull(ctx, push):
    with mq.Pull(context=ctx, recv_hwm=HWM, recv_timeout=LIMIT) as pull:
        yield pull


def test_a_stop_that_was_interrupted_repeats_nothing(tmp_path, push, pull, monkeypatch):
    """The exception comes where a signal handler's may: on the main thread."""
    monkeypatch.setattr(spilling, "SAVE", 10 * LIMIT)
    out = journal.spill(push, tmp_path)
    for n in range(1000):
        out.send(b"%d" % n)
    pull.connect(push.endpoints[0].url)
    got = [int(pull.recv()) for _ in range(100)]
    save, interrupts = out._reader.commit_offset, []

    def interrupted(*args):
        if threading.current_thread() is threading.main_thread() and not interrupts:
            interrupts.append(True)
            raise KeyboardInterrupt
        save(*args)

    monkeypatch.setattr(out._reader, "commit_offset", interrupted, raising=False)
    try:
        out.stop()
    except KeyboardInterrupt:
        out.stop()
    sent = out.stats().forwarded
    with journal.spill(push, tmp_path) as again:
        got += [int(pull.recv()) for _ in range(900)]
        again.wait_empty(LIMIT)
        assert again.stats().forwarded == 1000 - sent
    assert got == list(range(1000))


def test_stop_waits_for_the_thread_also_after_an_interrupted_join(tmp_path, push, monkeypatch):
    """CPython 3.11 takes a thread for ended when an exception interrupts its join()."""
    out = journal.spill(push, tmp_path)
    seen, over = threading.Event(), threading.Event()

    def give(messages):
        seen.set()
        out._stopping.wait(LIMIT)
        over.wait(0.2)          # the thread is busy for a while
        over.set()
        return 0

    monkeypatch.setattr(out, "_give", give)
    out.send(b"x")
    out.send(b"y")
    assert seen.wait(LIMIT)
    thread = out._thread
    monkeypatch.setattr(thread._thread, "join", lambda: None)
    out.stop()
    assert over.is_set() and out.error is None
    monkeypatch.undo()
    thread.join()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_a_thread_that_does_not_start_leaves_the_folder_free(tmp_path, push, monkeypatch, error):
    def fail(thread):
        raise error

    monkeypatch.setattr(threads, "start", fail)
    with pytest.raises(type(error)) as caught:
        journal.spill(push, tmp_path)
    monkeypatch.undo()
    with journal.spill(push, tmp_path) as out:
        out.send(b"x")
    assert caught.value is error        # which keeps what was half made


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_other_tasks_have_their_turn_while_there_is_room(tmp_path, push, library):
    async def main():
        ran = []

        async def other():
            ran.append(True)

        async def send():
            for _ in range(100_000):
                await out.asend(b"x")
                if ran:
                    return

        if library == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                await trio.lowlevel.checkpoint()
                nursery.start_soon(other)
        else:
            task = asyncio.ensure_future(other())
            await send()
            assert ran
            await task
        assert ran

    with journal.spill(push, tmp_path) as out:
        trio.run(main) if library == "trio" else asyncio.run(main())
        assert out.stats().waiting < 100_000


def test_a_cancelled_task_sends_nothing_more(tmp_path, push):
    async def main():
        with trio.CancelScope() as scope:
            scope.cancel()
            await out.asend(b"x")
        assert scope.cancelled_caught

    with journal.spill(push, tmp_path) as out:
        trio.run(main)
        assert out.stats().waiting == 0
        out.send(b"y")
        until(lambda: out.stats().waiting == 1)


@pytest.mark.parametrize("parts", [[b""], [b"", b""], [b"a", b"", b"bc"]])
def test_messages_of_few_bytes_are_bounded_as_well(tmp_path, push, pull, parts):
    """Each takes space in the files. The account ends at nothing, however they are sent."""
    with journal.spill(push, tmp_path, max_bytes=3000) as out:
        with pytest.raises(mq.SendTimeout):
            for _ in range(1000):
                out.send_parts(parts, timeout=0)
        spilled = out.stats().spilled
        assert spilled == 3000 // (12 * len(parts) + len(b"".join(parts)))
        pull.connect(push.endpoints[0].url)
        for _ in range(spilled):
            assert pull.recv_parts() == parts
        out.wait_empty(LIMIT)
        assert (out.stats().waiting, out.stats().waiting_bytes) == (0, 0)


def test_a_message_that_is_kept_but_not_durable_counts(tmp_path, push, pull):
    """With fsync="always" a full disk may refuse to sync what the writer keeps, and that is sent:
    the error says so, and max_bytes bounds it."""
    disk = Disk()
    with journal.spill(push, tmp_path, fsync="always", max_bytes=1120) as out:
        disk.attach(out._writer)
        disk.fail(room=0)
        for n in range(10):
            with pytest.raises(journal.JournalFull) as caught:
                out.send(b"%0100d" % n)
            assert caught.value.taken == 1
        with pytest.raises(mq.SendTimeout, match="max_bytes"):
            out.send(b"x", timeout=0)
        stats = out.stats()
        assert (stats.spilled, stats.waiting, stats.waiting_bytes) == (10, 10, 1120)
        disk.fail(room=-1)
        pull.connect(push.endpoints[0].url)
        assert [int(pull.recv()) for _ in range(10)] == list(range(10))
        out.wait_empty(LIMIT)
        stats = out.stats()
        assert (stats.forwarded, stats.waiting, stats.waiting_bytes) == (10, 0, 0)
