"""What a socket has no room for waits in a journal, and is sent from there in order."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading

import pytest
import trio
from mqcore.testing.native.journal_disk import Disk
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal.store.place import set_group_offset

LIMIT = 60
HWM = 10


@pytest.fixture
def pull(ctx, push):
    """pull() -> one that is connected to push and takes little at a time."""
    made = []

    def make(**options):
        made.append(mq.Pull(context=ctx, connect=push.endpoints[0].url, recv_hwm=HWM,
                            recv_timeout=LIMIT, **options))
        return made[-1]
    yield make
    for one in made:
        one.close()


def numbers(pull, count):
    return [int(pull.recv()) for _ in range(count)]


def test_in_order_through_the_journal_and_directly_again(tmp_path, push, pull):
    with journal.spill(push, tmp_path) as out:
        for n in range(1000):
            out.send(b"%d" % n)
        stats = out.stats()
        assert (stats.direct, stats.spilled, stats.forwarded) == (0, 1000, 0)     # nobody is there
        assert (stats.waiting, stats.waiting_bytes) == (1000, 12_000 + 10 + 90 * 2 + 900 * 3)
        one = pull()
        assert numbers(one, 500) == list(range(500))
        for n in range(1000, 1500):
            out.send(b"%d" % n)
        assert numbers(one, 1000) == list(range(500, 1500))
        out.wait_empty(LIMIT)
        before = out.stats()
        assert (before.waiting, before.waiting_bytes, before.lost) == (0, 0, 0)
        assert before.forwarded == before.spilled
        until(lambda: push.stats().total.queued_out == 0)
        out.send(b"1500")
        assert out.stats().direct == before.direct + 1
        assert numbers(one, 1) == [1500]


def test_what_is_left_is_sent_first_by_the_next_one(tmp_path, push, pull):
    with journal.spill(push, tmp_path) as out:
        for n in range(100):
            out.send(b"%d" % n)
        with pytest.raises(mq.WaitTimeout):
            out.wait_empty(0)
    with journal.spill(push, tmp_path) as out:
        assert out.stats().waiting == 100
        out.send(b"100")
        assert numbers(pull(), 101) == list(range(101))
    with journal.spill(push, tmp_path) as out:
        assert out.stats().waiting == 0


def test_files_are_removed_as_they_are_sent(tmp_path, push, pull):
    with journal.spill(push, tmp_path, segment_bytes=4096, block_bytes=1024) as out:
        for n in range(1000):
            out.send(b"%06d" % n * 10)
        assert len(list(tmp_path.rglob("*.mqj"))) > 5
        one = pull()
        for _ in range(1000):
            one.recv()
        out.wait_empty(LIMIT)
    assert len(list(tmp_path.rglob("*.mqj"))) == 1


KILLED = """
import sys
import mqcore as mq
from mqcore import journal
push = mq.Push(bind="tcp://127.0.0.1:0", send_hwm=10)
out = journal.spill(push, sys.argv[1], fsync_interval=0.01)
for n in range(1000):
    out.send(b"%d" % n)
out._writer.commit()
print("committed", flush=True)
sys.stdin.read()
"""


def test_a_killed_sender_leaves_what_was_spilled(tmp_path, push, pull):
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"committed\n"
        with pytest.raises(journal.JournalLocked):
            journal.spill(push, tmp_path)
        child.kill()
    with journal.spill(push, tmp_path) as out:
        out.send(b"1000")
        assert numbers(pull(), 1001) == list(range(1001))


def test_the_limit(tmp_path, push, pull):
    with journal.spill(push, tmp_path, max_bytes=1120) as out:
        for n in range(10):
            out.send(b"%0100d" % n)
        with pytest.raises(mq.SendTimeout, match="1120 bytes wait.*max_bytes=1120") as caught:
            out.send(b"x", timeout=0)
        assert caught.value.why == "full" and out.stats().spilled == 10
        with pytest.raises(mq.SendTimeout):
            out.send(b"x", timeout=0.01)
        waiting = threading.Thread(target=out.send, args=(b"%0100d" % 10,))
        waiting.start()
        assert numbers(pull(), 11) == list(range(11))
        waiting.join()


def test_one_that_does_not_fit_beside_others(tmp_path, push, pull):
    with journal.spill(push, tmp_path, max_bytes=1000) as out:
        out.send(b"0".rjust(888))
        with pytest.raises(mq.SendTimeout):
            out.send(b"1".rjust(89), timeout=0.01)
        out.send(b"1".rjust(88))
        assert numbers(pull(), 2) == [0, 1]


def test_a_message_beyond_the_limit_waits_alone(tmp_path, push, pull):
    with journal.spill(push, tmp_path, max_bytes=10) as out:
        out.send(b"0".rjust(100))
        with pytest.raises(mq.SendTimeout):
            out.send(b"1", timeout=0)
        one = pull()
        out.wait_empty(LIMIT)
        out.send(b"1")
        assert numbers(one, 2) == [0, 1]


@pytest.mark.parametrize("run", [lambda main: asyncio.run(main()), trio.run],
                         ids=["asyncio", "trio"])
def test_awaitable(tmp_path, push, pull, run):
    async def main():
        async with journal.spill(push, tmp_path, max_bytes=100) as out:
            with pytest.raises(mq.SendTimeout):
                for n in range(1000):
                    await out.asend(b"%d" % n, timeout=0)
            sent = out.stats().direct + out.stats().spilled
            with pytest.raises(mq.WaitTimeout):
                await out.await_empty(0)
            one = pull()
            for n in range(sent, sent + 100):
                await out.asend_parts([b"%d" % n])
                assert int(await one.arecv()) == n - sent
            for n in range(100, sent + 100):
                assert int(await one.arecv()) == n
            await out.await_empty(LIMIT)
    run(main)


def test_parts(tmp_path, push, pull):
    sent = [[b"%d" % n, b"", bytearray(b"x")][:1 + n % 3] for n in range(100)]
    with journal.spill(push, tmp_path) as out:
        for parts in sent:
            out.send_parts(parts)
        one = pull()
        assert [one.recv_parts() for _ in sent] == [[bytes(part) for part in parts]
                                                    for parts in sent]


def test_many_threads(tmp_path, push, pull, rng):
    """Each one's messages arrive in order and once, however often it turns to the journal and
    back."""
    threads, count = 4, 2000

    def produce(which):
        for n in range(count):
            out.send(b"%d %d" % (which, n))

    with journal.spill(push, tmp_path, segment_bytes=16384, max_bytes=20_000) as out:
        crew = [threading.Thread(target=produce, args=(which,)) for which in range(threads)]
        for one in crew:
            one.start()
        one, found = pull(), [[] for _ in range(threads)]
        for _ in range(threads * count):
            which, n = one.recv().split()
            found[int(which)].append(int(n))
            if rng.random() < 0.002:
                until(lambda: out.stats().waiting > rng.randrange(50) or
                      out.stats().direct + out.stats().spilled == threads * count)
        for one in crew:
            one.join()
        out.wait_empty(LIMIT)
        stats = out.stats()
    assert found == [list(range(count))] * threads
    assert stats.direct + stats.spilled == threads * count
    assert stats.forwarded == stats.spilled > 0


@pytest.mark.parametrize("name", ["dealer", "pair", "client", "scatter", "channel", "pub"])
def test_other_patterns(ctx, tmp_path, name):
    ours, theirs = {"dealer": (mq.Dealer, mq.Dealer), "pair": (mq.Pair, mq.Pair),
                    "client": (mq.Client, mq.Server), "scatter": (mq.Scatter, mq.Gather),
                    "channel": (mq.Channel, mq.Channel), "pub": (mq.Pub, mq.Sub)}[name]
    more = {"nodrop": True} if name == "pub" else {}
    with ours(context=ctx, bind="tcp://127.0.0.1:0", send_hwm=HWM, **more) as sock, \
            journal.spill(sock, tmp_path) as out:
        more = {"topics": [b""]} if name == "pub" else {}
        with theirs(context=ctx, connect=sock.endpoints[0].url, recv_timeout=LIMIT, recv_hwm=1,
                    recv_buffer=4096, **more) as other:
            sock.wait_peers(timeout=LIMIT)
            if name == "pub":
                sock.wait_subscribers(timeout=LIMIT)
            for n in range(1000):
                out.send(b"%d" % n)
            received = [other.recv() for _ in range(1000)]
        if name == "client":
            received = [getattr(one, "data", one) for one in received]
        assert [int(one) for one in received] == list(range(1000))


@pytest.mark.parametrize(("kind", "options", "error"), [
    (mq.Req, {}, mq.UsageError), (mq.Router, {}, mq.UsageError), (mq.Pull, {}, mq.UsageError),
    (mq.Bus, {}, mq.UsageError), (mq.Pub, {}, mq.OptionError),
    (mq.Push, {"on_full": "drop_new"}, mq.OptionError),
    (mq.Push, {"conflate": True}, mq.OptionError),
    (mq.Pub, {"nodrop": True, "conflate": True}, mq.OptionError)])
def test_sockets_that_cannot(ctx, tmp_path, kind, options, error):
    with kind(context=ctx, bind="tcp://127.0.0.1:0", **options) as sock, \
            pytest.raises(error, match="spill"):
        journal.spill(sock, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_bad_input(tmp_path, push):
    for wrong in (0, -1, 1.5, "1"):
        with pytest.raises(mq.OptionError, match="max_bytes"):
            journal.spill(push, tmp_path, max_bytes=wrong)
    with journal.spill(push, tmp_path) as out:
        for _ in range(2):                          # tried with the socket, and behind others
            for parts in ([], b"x", None):
                with pytest.raises(mq.UsageError):
                    out.send_parts(parts)
            for data in ("text", 5, None):
                with pytest.raises(TypeError):
                    out.send(data)
                with pytest.raises(TypeError):
                    out.send_parts([b"", data, b""])
            out.send(b"x")
        assert (out.stats().direct, out.stats().spilled) == (0, 2)
    with pytest.raises(mq.UsageError, match="stopped"):
        out.send(b"x")


def until_full(out, disk):
    """How many messages it has taken when the disk refuses one."""
    disk.attach(out._writer)
    disk.fail(room=10_000)
    sent = 0
    with pytest.raises(journal.JournalFull):
        while True:
            out.send(b"%0100d" % sent)
            sent += 1
    return sent


def test_a_full_disk(tmp_path, push, pull):
    """A message that finds no room is not taken; those that were are sent, and make room."""
    disk = Disk()
    with journal.spill(push, tmp_path, block_bytes=1024, segment_bytes=4096) as out:
        sent = until_full(out, disk)
        disk.fail(room=-1)
        one = pull()
        out.send(b"%0100d" % sent)
        assert numbers(one, sent + 1) == list(range(sent + 1))


@pytest.mark.parametrize("end", ["drained", "stopped"])
def test_a_disk_that_stays_full(tmp_path, push, pull, end):
    """What is written is sent. That removes it, and so makes room for what is not."""
    disk = Disk()
    out = journal.spill(push, tmp_path, block_bytes=1024, segment_bytes=4096)
    sent = until_full(out, disk)
    written = out._writer.written
    assert 0 < written < sent
    one = pull()
    assert numbers(one, written) == list(range(written))
    if end == "drained":
        disk.fail(room=-1)
        assert numbers(one, sent - written) == list(range(written, sent))
        out.stop()
        return
    with pytest.raises(journal.JournalWriteError, match="not durable"):
        out.stop()
    with contextlib.suppress(journal.JournalWriteError):
        out.stop()


def test_a_gap_at_the_end(tmp_path, push, pull):
    """As a repair may leave it: what is lost is counted, and is waited for by nobody."""
    with journal.spill(push, tmp_path) as out:
        for n in range(100):
            out.send(b"%d" % n)
        where = out._writer.path
    with journal.open(tmp_path, "a", topic="spill") as writer:
        writer.skip(150)
        assert where == writer.path
    with journal.spill(push, tmp_path) as out:
        one = pull()
        assert numbers(one, 100) == list(range(100))
        out.wait_empty(LIMIT)
        assert out.stats().lost == 50
        out.send(b"100")
        assert numbers(one, 1) == [100]


@pytest.mark.parametrize("kind", [mq.Client, mq.Scatter, mq.Channel])
def test_messages_that_the_pattern_cannot_send(ctx, tmp_path, kind):
    with kind(context=ctx, bind="tcp://127.0.0.1:0") as sock, journal.spill(sock, tmp_path) as out:
        out.send(b"x")
        with pytest.raises(mq.UsageError, match="one part"):
            out.send_parts([b"a", b"b"])
        assert out.stats().waiting == 1


def test_what_waits_is_counted_exactly(tmp_path, push, pull):
    size, count = 20_000, 1000
    with journal.spill(push, tmp_path, max_bytes=(size + 12) * count) as out:
        for n in range(count):
            out.send(b"%d" % n + bytes(size - len(str(n))))
        one = pull()
        for _ in range(200):
            one.recv()
            stats = out.stats()
            assert stats.waiting_bytes == (size + 12) * stats.waiting
        assert 0 < stats.forwarded == count - stats.waiting


def test_a_signal_handler_stops_it(tmp_path):
    """In the middle of a send, where it has the lock."""
    program = """
import signal, sys
import mqcore as mq
from mqcore import journal
out = journal.spill(mq.Push(bind="inproc://signal"), sys.argv[1])
signal.signal(signal.SIGALRM, lambda *_: out.stop())
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    while True:
        out.send(b"x" * 1000)
except (mq.UsageError, journal.JournalClosed):
    print("ended", out.stop())
"""
    for n in range(5):
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path / str(n))],
                              timeout=LIMIT, capture_output=True, check=True)
        assert done.stdout == b"ended ()\n"


EXIT = """
import sys
import mqcore as mq
from mqcore import journal
push = mq.Push(connect=sys.argv[1], send_hwm=10)
push.wait_peers(timeout=60)
out = journal.spill(push, sys.argv[2])
for n in range(*map(int, sys.argv[3:])):
    out.send(b"%d" % n + bytes(10_000))
print(out.stats().spilled, flush=True)
sys.stdin.readline()
"""


def test_a_program_that_ends_without_stop_repeats_nothing(ctx, tmp_path):
    got = []

    def receive(timeout):
        with contextlib.suppress(mq.RecvTimeout):
            while True:
                got.append(int(pull.recv(timeout=timeout).rstrip(b"\0")))
                if len(got) == 1500:
                    return

    with mq.Pull(context=ctx, bind="tcp://127.0.0.1:0", recv_hwm=1) as pull:
        for stretch in ("0", "2000"), ("2000", "2001"):
            args = [sys.executable, "-c", EXIT, pull.endpoints[0].url, str(tmp_path), *stretch]
            with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
                assert int(child.stdout.readline()) or got
                receive(LIMIT if len(got) < 1500 else 1)
                child.stdin.close()
                while child.poll() is None:
                    receive(0.1)
            assert child.returncode == 0
        receive(0.1)
    assert len(got) > 1500 and len(set(got)) == len(got)


def test_a_thread_that_waits_for_the_end_learns_of_the_stop(tmp_path, push):
    with journal.spill(push, tmp_path) as out:
        out.send(b"x")
        caught = []

        def wait():
            with pytest.raises(mq.UsageError, match="1 messages wait"):
                out.wait_empty()
            caught.append(True)
        waiting = threading.Thread(target=wait)
        waiting.start()
        out.stop()
        waiting.join()
        assert caught


def test_an_offset_that_cannot_be_saved_ends_nothing(tmp_path, push, pull, monkeypatch, caplog):
    def fail(*args, **options):
        raise OSError(28, os.strerror(28))

    with journal.spill(push, tmp_path) as out:
        monkeypatch.setattr(out._reader, "commit_offset", fail, raising=False)
        for n in range(100):
            out.send(b"%d" % n)
        assert numbers(pull(), 100) == list(range(100))
        until(lambda: caplog.records)
        out.send(b"100")
    assert len(caplog.records) == 1 and "No space left" in caplog.text


def test_offsets_that_a_power_cut_took_back(tmp_path, push, pull):
    """The offset that was saved may be above what the disk has: what comes then is sent."""
    with journal.spill(push, tmp_path) as out:
        out.send(b"sent, and saved")
        where = out._writer.path
    set_group_offset(where, "spill", 1000)
    with journal.spill(push, tmp_path) as out:
        assert out.stats().waiting == 0
        for n in range(20):
            out.send(b"%d" % n)
    with journal.spill(push, tmp_path) as out:
        assert numbers(pull(), 20) == list(range(20))


def test_the_socket_ends_first(tmp_path, push):
    with journal.spill(push, tmp_path) as out:
        for n in range(100):
            out.send(b"%d" % n)
        push.close()
        with pytest.raises(mq.SocketClosed):
            out.wait_empty(LIMIT)
        assert not out.running
        with pytest.raises(mq.SocketClosed):
            out.send(b"x")
    with journal.open(tmp_path, topic="spill") as left:
        assert left.end == 100


def test_in_a_forked_child(tmp_path, push):
    with journal.spill(push, tmp_path) as out:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                out.send(b"x")
            except mq.Forked:
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        out.send(b"y")


def test_a_waiting_send_ends_with_the_spill(tmp_path, push):
    with journal.spill(push, tmp_path, max_bytes=1) as out:
        out.send(b"x")
        caught = []

        def wait():
            with pytest.raises(mq.UsageError, match="stopped"):
                out.send(b"x")
            caught.append(True)
        waiting = threading.Thread(target=wait)
        waiting.start()
        out.stop()
        waiting.join()
        assert caught
