"""Poller: the same answers as poll(), at the cost of what is ready."""

import asyncio
import gc
import os
import random
import resource
import signal
import socket
import threading

import lock_order
import pytest

import mqcore as mq

R, W = mq.Ready.READ, mq.Ready.WRITE


@pytest.fixture
def poller():
    with mq.Poller() as made:
        yield made


def test_sockets_and_descriptors_are_level_triggered(linked, poller):
    pull, push = linked("pull", "push")
    a, b = socket.socketpair()
    with a, b:
        poller.register(pull)
        poller.register(a)
        assert len(poller) == 2 and pull in poller and a in poller and push not in poller
        assert poller.poll(0) == []
        push.send(b"1")
        push.send(b"2")
        assert poller.poll(5) == [(pull, R)]
        assert poller.poll(5) == [(pull, R)]    # as long as it is ready
        assert pull.recv() == b"1"
        assert poller.poll(5) == [(pull, R)]    # the second one may just be arriving
        assert pull.recv() == b"2"
        assert poller.poll(0) == []
        b.send(b"x")
        assert poller.poll(5) == [(a, R)]
        push.send(b"3")
        while len(found := poller.poll(5)) < 2:
            assert found
        assert sorted(map(repr, found)) == sorted(map(repr, [(a, R), (pull, R)]))
        assert pull.recv() == b"3"
        poller.unregister(a)
        assert poller.poll(0) == []
        poller.unregister(pull)
        assert len(poller) == 0


def test_what_is_wanted_may_change(linked, poller):
    pull, push = linked("pull", "push")
    poller.register(push, R | W)
    assert poller.poll(0) == [(push, W)]
    poller.modify(push, R)
    assert poller.poll(0) == []
    poller.register(push, W)
    assert poller.poll(0) == [(push, W)]
    with pytest.raises(KeyError):
        poller.modify(pull, R)
    with pytest.raises(KeyError):
        poller.unregister(pull)
    for bad in ("x", True, -1, object()):
        with pytest.raises(mq.UsageError):
            poller.register(bad)
    with pytest.raises(mq.UsageError, match="Ready"):
        poller.register(pull, 1)
    for bad in ("1", -1, float("nan")):
        with pytest.raises(mq.UsageError):
            poller.poll(bad)


def test_a_message_wakes_a_poll_that_sleeps(linked, poller):
    pull, push = linked("pull", "push")
    poller.register(pull)
    for n in range(50):
        timer = threading.Timer(random.random() / 500, push.send, [b"%d" % n])
        timer.start()
        assert poller.poll(30) == [(pull, R)]
        assert pull.recv(timeout=0) == b"%d" % n
        timer.join()


def test_what_another_thread_registers_counts_at_once(linked, poller):
    pull, push = linked("pull", "push")
    push.send(b"x")
    found = []
    thread = threading.Thread(target=lambda: found.append(poller.poll(30)))
    thread.start()
    poller.register(pull)
    thread.join()
    assert found == [[(pull, R)]]


def test_one_active_socket_among_many(ctx):
    """The poller finds each socket's message, in any order, however many others are registered."""
    pulls = [ctx.socket("pull", bind=f"inproc://{n}") for n in range(60)]
    pushes = [ctx.socket("push", connect=f"inproc://{n}") for n in range(60)]
    dice = random.Random(5)
    with mq.Poller() as poller:
        for pull in pulls:
            poller.register(pull)
        for n in range(300):
            at = dice.randrange(60)
            pushes[at].send(b"%d" % n)
            assert poller.poll(30) == [(pulls[at], R)]
            assert pulls[at].recv(timeout=0) == b"%d" % n


def test_apoll_under_asyncio(linked):
    pull, push = linked("pull", "push")

    async def main():
        with mq.Poller() as poller:
            poller.register(pull)
            assert await poller.apoll(0) == []
            assert await poller.apoll(0.01) == []
            for n in range(20):
                asyncio.get_running_loop().call_later(0.001, push.send, b"x")
                assert await poller.apoll(30) == [(pull, R)]
                assert pull.recv(timeout=0) == b"x"
            waits = asyncio.ensure_future(poller.apoll())
            await asyncio.sleep(0.01)
            with pytest.raises(mq.UsageError, match="another call"):
                poller.poll(0)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            push.send(b"y")
            assert await poller.apoll(30) == [(pull, R)]
    asyncio.run(main())


def test_apoll_under_trio(linked):
    trio = pytest.importorskip("trio")
    pull, push = linked("pull", "push")

    async def main():
        with mq.Poller() as poller:
            poller.register(pull)
            assert await poller.apoll(0.01) == []
            later = threading.Timer(0.01, push.send, [b"x"])
            later.start()
            assert await poller.apoll(30) == [(pull, R)]
            later.join()
    trio.run(main)


def test_a_closed_socket_is_named(linked, poller):
    pull, push = linked("pull", "push")
    poller.register(pull)
    pull.close()
    with pytest.raises(mq.SocketClosed, match="unregister"):
        poller.poll(1)
    poller.unregister(pull)
    assert poller.poll(0) == []


def test_a_socket_that_closes_wakes_the_poll(linked, poller):
    pull, push = linked("pull", "push")
    poller.register(pull)
    timer = threading.Timer(0.02, pull.close)
    timer.start()
    with pytest.raises(mq.SocketClosed):
        poller.poll(30)
    timer.join()


def test_the_end(linked):
    pull, push = linked("pull", "push")
    before = len(os.listdir("/proc/self/fd"))
    poller = mq.Poller()
    poller.register(pull)
    poller.close()
    poller.close()
    assert poller.closed
    for call in (lambda: poller.poll(0), lambda: poller.register(pull),
                 lambda: poller.unregister(pull)):
        with pytest.raises(mq.UsageError, match="closed"):
            call()
    mq.Poller().register(pull)      # forgotten, and collected
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_forked_child_makes_its_own(linked, poller):
    pull, push = linked("pull", "push")
    poller.register(pull)
    child = os.fork()
    if not child:
        status = 1
        try:
            try:
                poller.poll(0)
            except mq.Forked:
                poller.close()
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    push.send(b"x")
    assert poller.poll(30) == [(pull, R)]


# -- what happens beside it ------------------------------------------------------------------------

class Torn(Exception):
    pass


def test_a_poll_that_signals_tear_finds_every_message(ctx):
    """A handler may raise anywhere in the call."""
    pull = ctx.socket("pull", bind="inproc://torn")
    push = ctx.socket("push", connect="inproc://torn")
    with lock_order.unwatched():
        poller = mq.Poller()
    poller.register(pull)
    turn = threading.Semaphore(0)

    def feed():
        for _ in range(200):
            turn.acquire()
            push.send(b"x")
    thread = threading.Thread(target=feed)
    thread.start()

    def tear(*_):
        raise Torn
    before = signal.signal(signal.SIGALRM, tear)
    try:
        for n in range(200):
            turn.release()
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 2e-5 + n * 1e-6)
                    poller.poll(30)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Torn:
                poller._set.release()      # it may come just before the call is sure to do so
            assert poller.poll(30) == [(pull, R)]
            assert pull.recv(timeout=0) == b"x"
    finally:
        signal.signal(signal.SIGALRM, before)
        turn.release(200)
        thread.join()
        poller.close()


def test_a_child_never_waits_for_a_thread_of_the_parent(linked, poller):
    """Which held the poller's lock when the child came."""
    pull, push = linked("pull", "push")
    poller.register(pull)
    held, let_go = threading.Event(), threading.Event()

    def hold():
        with poller._lock:
            held.set()
            let_go.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)
        status = 1
        try:
            for call in (lambda: poller.poll(0), lambda: poller.register(push),
                         lambda: poller.modify(pull, W), lambda: poller.unregister(pull)):
                with pytest.raises(mq.Forked):
                    call()
            with mq.Poller() as own, pytest.raises(mq.Forked):
                own.register(pull)
            poller.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    let_go.set()
    thread.join()


def test_close_in_another_thread_ends_a_poll_and_an_apoll(ctx):
    """Of any of the sockets, at any moment."""
    for n in range(30):
        pulls = [ctx.socket("pull", bind=f"inproc://{n}-{k}") for k in range(3)]
        with mq.Poller() as poller:
            for pull in pulls:
                poller.register(pull)
            timer = threading.Timer(random.random() / 200, random.choice(pulls).close)
            timer.start()
            with pytest.raises(mq.SocketClosed):
                poller.poll(30) if n % 2 else asyncio.run(poller.apoll(30))
            timer.join()
        for pull in pulls:
            pull.close()


def test_threads_register_and_unregister_while_one_polls(ctx, poller):
    pulls = [ctx.socket("pull", bind=f"inproc://{n}") for n in range(8)]
    pushes = [ctx.socket("push", connect=f"inproc://{n}") for n in range(8)]
    poller.register(pulls[0])
    over = threading.Event()

    def change():
        dice = random.Random()
        while not over.is_set():
            pull = dice.choice(pulls[1:])
            if pull in poller:
                poller.unregister(pull)
            else:
                poller.register(pull, dice.choice((R, W, R | W)))
    thread = threading.Thread(target=change)
    thread.start()
    try:
        for n in range(200):
            pushes[0].send(b"%d" % n)
            pushes[1 + n % 7].send(b"x")
            while pulls[0] not in dict(found := poller.poll(30)):
                assert found
            assert pulls[0].recv(timeout=0) == b"%d" % n
    finally:
        over.set()
        thread.join()


def test_a_descriptor_that_was_closed_before_gives_way_to_the_next(poller):
    a, b = socket.socketpair()
    poller.register(a)
    number = a.fileno()
    a.close()
    c, d = socket.socketpair()
    with b, c, d:
        if c.fileno() != number:
            os.dup2(c.fileno(), number)
            c.close()
            c = socket.socket(fileno=number)
        poller.register(c)
        d.send(b"x")
        assert poller.poll(5) == [(c, R)] and len(poller) == 1
        poller.unregister(c)
        c.close()


def test_what_is_always_ready_is_refused(poller):
    with open(__file__) as file, pytest.raises(mq.UsageError, match="always ready"):
        poller.register(file)
    assert len(poller) == 0


class Unhashable:
    __hash__ = None

    def __init__(self, sock):
        self.fileno = sock.fileno


def test_an_object_needs_no_hash(poller):
    a, b = socket.socketpair()
    with a, b:
        one = Unhashable(a)
        poller.register(one)
        assert one in poller and a in poller
        b.send(b"x")
        assert poller.poll(5) == [(one, R)]
        poller.unregister(one)
        assert one not in poller


def test_without_descriptors_nothing_is_left_behind(ctx):
    pull = ctx.socket("pull", bind="inproc://x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(fd) for fd in os.listdir("/proc/self/fd")}
    full = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(used) + 4, hard))
        with pytest.raises(OSError):
            while True:
                full.append(os.dup(0))
        for _ in range(2):        # of what a poller needs for its first descriptor
            with mq.Poller() as poller:
                poller.register(pull)     # a socket needs none
                with pytest.raises(OSError):
                    poller.register(0)
                assert poller.poll(0) == [] and len(poller) == 1
            gc.collect()
            os.close(full.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in full:
            os.close(fd)
