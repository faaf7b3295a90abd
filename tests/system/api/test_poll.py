"""poll(), apoll() and fileno(): exact, level-triggered, mixed with ordinary descriptors."""

import os
import select
import socket
import threading
import time

import pytest

import mqcore as mq

R, W = mq.Ready.READ, mq.Ready.WRITE


def readable(fd, seconds=0.0):
    return bool(select.select([fd], [], [], seconds)[0])


def settles(fd, want, seconds=2.0):
    end = time.monotonic() + seconds
    while readable(fd) != want:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def test_poll_mixes_everything(linked):
    pull, push = linked("pull", "push")
    a, b = socket.socketpair()
    with a, b:
        assert mq.poll([pull, a, b.fileno()], 0) == []
        assert mq.poll([pull, (push, R | W), (a, W)], 0) == [(push, W), (a, W)]
        started = time.monotonic()
        assert mq.poll([pull, a], 0.05) == []
        assert time.monotonic() - started > 0.04
        push.send(b"x")
        assert mq.poll([pull, a], 5) == [(pull, R)]
        b.send(b"y")
        assert mq.poll([a], 5) == [(a, R)]
        assert mq.poll([pull, (a.fileno(), R)], 5) == [(pull, R), (a.fileno(), R)]
        assert pull.recv() == b"x"
        b.close()
        assert mq.poll([(a, W)], 0)[0][1] & W
    for bad in ("x", object(), True, -1):
        with pytest.raises(mq.UsageError):
            mq.poll([bad], 0)


def test_poll_wakes(linked):
    pull, push = linked("pull", "push")
    r, w = os.pipe()
    try:
        for act, want in ((lambda: push.send(b"x"), pull), (lambda: os.write(w, b"x"), r)):
            timer = threading.Timer(0.03, act)
            timer.start()
            assert mq.poll([pull, r], 5) == [(want, R)]
            timer.join()
            pull.recv() if want is pull else os.read(r, 1)
        timer = threading.Timer(0.03, pull.close)
        timer.start()
        with pytest.raises(mq.SocketClosed):
            mq.poll([pull, r], 5)
        timer.join()
    finally:
        os.close(r)
        os.close(w)


def test_apoll(linked, loop):
    pull, push = linked("pull", "push")
    r, w = os.pipe()

    async def main():
        assert await mq.apoll([pull, r], 0) == []
        assert await mq.apoll([pull, r], 0.02) == []
        assert await mq.apoll([pull, (push, W)], 5) == [(push, W)]

        async def act():
            await loop.sleep(0.02)
            await push.asend(b"x")
            await loop.sleep(0.02)
            os.write(w, b"x")

        async def look():
            assert await mq.apoll([pull, r], 5) == [(pull, R)]
            await pull.arecv()
            assert await mq.apoll([pull, r], 5) == [(r, R)]

        await loop.both(act, look)

    try:
        loop.run(main)
    finally:
        os.close(r)
        os.close(w)


@pytest.mark.parametrize("take", [
    lambda s: [s.recv(timeout=0)], lambda s: s.recv_parts(timeout=0),
    lambda s: [s.recv_msg(timeout=0).body], lambda s: s.recv_many(1, timeout=0),
    lambda s: s.recv_batch(1, timeout=0).to_list()])
def test_fileno_is_exact(linked, take):
    """After each receive, at once; after an arrival, in a moment. Never readable for nothing."""
    pull, push = linked("pull", "push")
    fd = pull.fileno()
    assert fd == pull.fileno() and not readable(fd)
    for n in (1, 2, 5):
        for i in range(n):
            push.send(b"%d" % i)
        end = time.monotonic() + 5
        for i in range(n):
            assert settles(fd, True)
            while True:
                try:
                    assert take(pull) == [b"%d" % i]
                    break
                except mq.RecvTimeout:
                    assert time.monotonic() < end
        assert not readable(fd)
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=0.01)
        assert not readable(fd)


def test_fileno_counts_what_is_held(linked):
    pull, push = linked("pull", "push")
    fd = pull.fileno()
    push.send(b"12345")
    with pytest.raises(mq.MessageTooLarge):
        pull.recv_into(bytearray(1), timeout=5)
    assert readable(fd)
    assert pull.recv_into(bytearray(5)) == 5
    assert not readable(fd)


def test_fileno_under_threads(linked):
    """Two receivers and a sender: at rest the level is right."""
    pull, push = linked("pull", "push")
    fd = pull.fileno()
    total, got = 2000, []

    def take():
        while len(got) < total:
            if readable(fd, 0.01):
                try:
                    got.append(pull.recv(timeout=0))
                except mq.RecvTimeout:
                    pass

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(total):
        push.send(b"x")
    for thread in threads:
        thread.join(20)
    assert len(got) == total and not readable(fd)
    push.send(b"last")
    assert settles(fd, True)


def test_fileno_ends_with_the_socket(linked):
    pull, _ = linked("pull", "push")
    fd = pull.fileno()
    pull.close()
    with pytest.raises(OSError):
        os.fstat(fd)
    with pytest.raises(mq.SocketClosed):
        pull.fileno()
