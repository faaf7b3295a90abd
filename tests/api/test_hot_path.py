"""What the way of a small message must not cost."""

import asyncio
import time

import pytest

import mqcore as mq

COUNT = 20_000


def exchange(push, pull, count):
    for start in range(0, count, 500):
        for n in range(start, start + 500):
            push.send(b"%016d" % n)
        for n in range(start, start + 500):
            assert pull.recv(timeout=10) == b"%016d" % n


@pytest.mark.parametrize("url", ["inproc://hot", "tcp://127.0.0.1:0"])
def test_a_steady_stream_of_small_messages_allocates_nothing(url):
    with mq.Context() as context:
        pull = context.socket("pull", bind=url)
        push = context.socket("push", connect=pull.endpoints[0].url)
        push.wait_peers(1, 10)
        exchange(push, pull, COUNT)  # queues and slabs grow to what they need
        before = context._hub.plane.allocations
        exchange(push, pull, COUNT)
        assert context._hub.plane.allocations - before <= 2  # a read slab of a new size, at most


def test_a_blocked_receive_sleeps():
    with mq.Context() as context:
        pull = context.socket("pull", bind="tcp://127.0.0.1:0")
        used = time.process_time()
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=1.0)
        assert time.process_time() - used < 0.1


def test_loops_in_a_row_share_the_room_for_loops():
    """asyncio.run() again and again on one socket: each leaves nothing behind for the next."""
    with mq.Context() as context:
        pull = context.socket("pull", bind="inproc://loops")

        async def nothing():
            with pytest.raises(mq.RecvTimeout):
                await pull.arecv(timeout=0.001)

        for _ in range(40):
            asyncio.run(nothing())
