"""Sends that leave together: what a thread owes is written before it waits, whoever else is stuck,
and nothing is lost, doubled or out of order when a batching socket, its thread or its process ends.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest
from programs import Program
from rawzmtp import RawPeer

import mqcore as mq
from mqcore.spi import registry
from mqcore.spi.python.pattern import Pattern
from mqcore.testing import until
from mqcore.testing.keeper import Keeper

LIMIT = 20


class Blocker(Pattern):
    """Whoever attaches a peer, the I/O thread, stays in there until it is let go."""

    abi = 1
    name = "blocker"
    zmtp, number, peers = "PULL", 7, ("push",)
    receives = True
    entered = threading.Event()
    go_on = threading.Event()

    def attach(self, peer):
        self.entered.set()
        self.go_on.wait()


@contextlib.contextmanager
def a_stuck_io_thread(ctx):
    """Nothing that an I/O thread of the context has to do happens meanwhile."""
    from mqcore.api.patterns import CLASSES

    Blocker.entered.clear()
    Blocker.go_on.clear()
    with registry.lend("pattern", Blocker, "the test"):
        with ctx.socket("blocker", bind="tcp://127.0.0.1:0") as blocker:
            try:
                with RawPeer.connect(blocker.endpoints[0].url) as peer:
                    peer.shake("PUSH")
                    assert Blocker.entered.wait(LIMIT)
                    yield
            finally:
                Blocker.go_on.set()
        CLASSES.pop("blocker", None)


def batches(push):
    """Send until the socket batches. How many."""
    sent = 0
    while not push._accounts()["batching"]:
        for _ in range(50):
            push.send(b"%d" % sent)
            sent += 1
    return sent


@pytest.fixture
def far():
    other = Keeper(linger=0.2)
    yield other
    other.finish()


@pytest.fixture
def pair(ctx, far):
    """(pull, push): the pull has a context, and an I/O thread, of its own."""
    pull = far.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=None)
    push = ctx.socket("push", connect=pull.endpoints[0].url, send_hwm=None)
    push.wait_peers(1, LIMIT)
    return pull, push


def first_come(pull, count):
    for n in range(count):
        assert pull.recv(timeout=LIMIT) == b"%d" % n


def recv(sock):
    with pytest.raises(mq.RecvTimeout):
        sock.recv(timeout=0.001)


def poll(sock):
    assert mq.poll([sock], 0.001) == []


def poller(sock):
    with mq.Poller() as made:
        made.register(sock)
        for _ in range(2):
            assert made.poll(0.001) == []




def arecv(sock):
    async def main():
        with pytest.raises(mq.RecvTimeout):
            await sock.arecv(timeout=0.001)
    asyncio.run(main())


def apoll(sock):
    assert asyncio.run(mq.apoll([sock], 0.001)) == []


def poller_apoll(sock):
    async def main():
        with mq.Poller() as made:
            made.register(sock)
            assert await made.apoll(0.001) == []
    asyncio.run(main())


def wait_peers(sock):
    with pytest.raises(mq.WaitTimeout):
        sock.wait_peers(1, 0.001)


WAITS = [recv, poll, poller, arecv, apoll, poller_apoll, wait_peers]


def test_traffic_in_bursts_batches_early(pair):
    """Eight messages begin to batch where the socket has batched a moment ago, and only there."""
    pull, push = pair
    eight = [b"%d" % n for n in range(8)]
    for body in eight:
        push.send(body)
    assert push._accounts()["batching"] == 0
    first_come(pull, 8)
    end = time.monotonic() + LIMIT
    batched = False
    while not batched:  # it does not if the thread loses its core between two sends
        assert time.monotonic() < end, "no burst of eight batched"
        first_come(pull, batches(push))
        until(lambda: not push._accounts()["batching"], LIMIT)
        for body in eight:
            push.send(body)
        batched = push._accounts()["batching"]
        first_come(pull, 8)


@pytest.mark.filterwarnings("ignore::mqcore.errors.BlockingCallWarning")
@pytest.mark.parametrize("wait", WAITS, ids=lambda wait: wait.__name__)
def test_what_a_thread_owes_is_written_before_it_waits(ctx, pair, wait):
    """At any other socket of the same context, and with no I/O thread that could do it."""
    pull, push = pair
    other = ctx.socket("pull", bind="inproc://other")
    with a_stuck_io_thread(ctx):
        sent = batches(push)
        first_come(pull, sent)
        push.send(b"owed")
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=0.05)
        wait(other)
        assert pull.recv(timeout=LIMIT) == b"owed"


def test_a_poller_that_polls_again_and_again_settles_each_time(ctx, pair):
    """Its sockets are armed from one poll to the next."""
    pull, push = pair
    other = ctx.socket("pull", bind="inproc://other")
    with a_stuck_io_thread(ctx), mq.Poller() as made:
        made.register(other)
        assert made.poll(0.001) == []
        first_come(pull, batches(push))
        for n in range(3):
            push.send(b"owed %d" % n)
            with pytest.raises(mq.RecvTimeout):
                pull.recv(timeout=0.05)
            assert made.poll(0.001) == []
            assert pull.recv(timeout=LIMIT) == b"owed %d" % n


def test_a_thread_settles_however_many_sockets_it_sent_on(ctx, far):
    pulls = [far.socket("pull", bind="tcp://127.0.0.1:0") for _ in range(40)]
    pushes = [ctx.socket("push", connect=pull.endpoints[0].url) for pull in pulls]
    for push in pushes:
        push.wait_peers(1, LIMIT)
    other = ctx.socket("pull", bind="inproc://other")
    with a_stuck_io_thread(ctx):
        for pull, push in zip(pulls, pushes, strict=True):
            first_come(pull, batches(push))
        for push in pushes:
            push.send(b"owed")
        recv(other)
        assert [pull.recv(timeout=LIMIT) for pull in pulls] == [b"owed"] * 40


def test_without_a_wait_the_io_thread_writes(pair):
    """The thread computes, or sleeps somewhere else."""
    pull, push = pair
    sent = batches(push)
    for n in range(sent, sent + 1000):
        push.send(b"%d" % n)
        if n % 100 == 0:
            first_come_from(pull, n)


def first_come_from(pull, upto):
    while int(pull.recv(timeout=LIMIT)) != upto:
        pass


# -- ends ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "ipc://*", "ws://127.0.0.1:0", "shm://*"])
def test_close_delivers_what_is_owed(ctx, far, url):
    for _ in range(40):                          # the end of the connection is no byte of a message
        with far.socket("pull", bind=url, recv_hwm=None) as pull:
            push = ctx.socket("push", connect=pull.endpoints[0].url, send_hwm=None)
            push.wait_peers(1, LIMIT)
            for n in range(5000):
                push.send(b"%d" % n)
            report = push.close(LIMIT)
            assert report and report.written == 5000
            first_come(pull, 5000)


def test_threads_that_send_beside_a_close_lose_nothing_that_was_taken(ctx, far):
    """Each send either returned, and was written or is in the report, or raised."""
    for _ in range(10):
        with far.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=None,
                        recv_hwm_bytes=None) as pull:    # it takes all, however much they send
            push = ctx.socket("push", connect=pull.endpoints[0].url, send_hwm=None)
            push.wait_peers(1, LIMIT)
            sent = [0] * 3

            def pour(me, push=push, sent=sent):
                with contextlib.suppress(mq.SocketClosed):
                    while True:
                        push.send(b"%d %d" % (me, sent[me]))
                        sent[me] += 1
            threads = [threading.Thread(target=pour, args=(me,)) for me in range(3)]
            for thread in threads:
                thread.start()
            while min(sent) < 300:
                pull.recv_many(1, timeout=LIMIT)
            report = push.close(LIMIT)
            for thread in threads:
                thread.join()
            assert report.written == sum(sent) and report.undelivered == 0


def test_a_fork_between_two_sends_neither_loses_nor_doubles_any(pair):
    pull, push = pair
    sent = batches(push)
    for n in range(sent, sent + 60):
        push.send(b"%d" % n)
        if n % 20 == 0:
            pid = os.fork()
            if not pid:
                signal.alarm(LIMIT)
                status = 1
                try:
                    with pytest.raises(mq.Forked):
                        push.send(b"child")
                    with pytest.raises(mq.Forked):
                        mq.poll([push], 0.01)
                    push.close()
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0
    first_come(pull, sent + 60)
    with pytest.raises(mq.RecvTimeout):
        pull.recv(timeout=0.02)


SOURCE = """
import sys, mqcore as mq
push = mq.Push(connect=sys.argv[1], send_hwm=None)
push.wait_peers(1, 30)
for n in range(5000):
    push.send(b"%d" % n)
"""


def test_a_program_that_ends_delivers_what_it_owes(far):
    with far.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=None) as pull:
        program = Program("-c", SOURCE, pull.endpoints[0].url)
        first_come(pull, 5000)
        assert program.result()[0] == 0


def test_ctrl_c_in_send_many_is_felt_at_once(ctx):
    """It waits for room: the first signal ends it, and what went is counted."""
    with ctx.socket("pull", bind="inproc://full", recv_hwm=1) as pull:
        push = ctx.socket("push", connect="inproc://full", send_hwm=1)
        push.wait_peers(1, LIMIT)
        main = threading.main_thread().ident

        def interrupt():
            mq.poll([pull], timeout=LIMIT)     # the call has begun
            time.sleep(0.1)                     # it waits for room
            signal.pthread_kill(main, signal.SIGINT)
        guard = threading.Timer(LIMIT, pull.close)       # a second wait would end here
        interrupter = threading.Thread(target=interrupt)
        guard.start()
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            push.send_many([b"x"] * 2000)
        interrupter.join()
        assert not pull.closed
        guard.cancel()
        sent = push.stats().sent
        assert 0 < sent < 10 and len(pull.recv_many(timeout=LIMIT)) == sent


def test_what_comes_before_a_bad_item_is_sent(linked):
    pull, push = linked("pull", "push")
    with pytest.raises(mq.UsageError):
        push.send_many([b"a", b"b", 5, b"c"])
    assert pull.recv_many(timeout=LIMIT) == [b"a", b"b"]

    def stopped():
        yield b"c"
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        push.send_many(stopped())
    assert pull.recv(timeout=LIMIT) == b"c"
