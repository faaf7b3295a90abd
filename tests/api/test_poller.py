"""Poller: the same answers as poll(), at the cost of what is ready."""

import asyncio
import gc
import os
import random
import socket
import threading

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
        assert poller.poll(0) == [(pull, R)]
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
    """Each socket's message is found, whoever else is registered, in any order."""
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
