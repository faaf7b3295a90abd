"""What the way of a small message must not cost."""

import asyncio
import time

import pytest
from programs import Program

import mqcore as mq

COUNT = 20_000
STREAM = 200_000
CALLS = 0.02  # system calls a message, each side, when messages come as fast as Python makes them
SOURCE = """
import sys, mqcore as mq
with mq.Push(connect=sys.argv[1]) as push:
    push.wait_peers(1, 30)
    for n in range(int(sys.argv[2])):
        push.send(b"%016d" % n)
    sys.stdin.readline()  # the other end has everything
    print(sum(peer.writes for peer in push.stats().peers.values()), flush=True)
"""


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


def test_a_stream_of_small_messages_makes_few_system_calls():
    """By the engines' own counts of reads and writes."""
    with mq.Context() as context:
        pull = context.socket("pull", bind="tcp://127.0.0.1:0")
        source = Program("-c", SOURCE, pull.endpoints[0].url, STREAM, stdin=True)
        for n in range(STREAM):
            assert pull.recv(timeout=30) == b"%016d" % n
        reads = sum(peer.reads for peer in pull.stats().peers.values())
        source.send(b"\n")
        writes = int(source.line())
        assert source.result()[0] == 0
    assert 0 < writes <= CALLS * STREAM
    assert 0 < reads <= CALLS * STREAM


def test_a_blocked_receive_sleeps():
    """Less than 1 % of a core; four times that is allowed for."""
    with mq.Context() as context:
        pull = context.socket("pull", bind="tcp://127.0.0.1:0")
        push = context.socket("push", connect=pull.endpoints[0].url)
        push.wait_peers(1, 10)
        used = time.process_time()
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=2.0)
        used = time.process_time() - used
    assert used < 0.08


def test_loops_in_a_row_share_the_room_for_loops():
    """asyncio.run() again and again on one socket: each leaves nothing behind for the next."""
    with mq.Context() as context:
        pull = context.socket("pull", bind="inproc://loops")

        async def nothing():
            with pytest.raises(mq.RecvTimeout):
                await pull.arecv(timeout=0.001)

        for _ in range(40):
            asyncio.run(nothing())
