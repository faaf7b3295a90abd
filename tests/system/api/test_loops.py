"""Who runs a socket that a loop waits on, and which of its tasks is woken."""

import asyncio
import contextlib
import threading
import time
from collections import deque

import pytest
import trio

import mqcore as mq
from mqcore.api import aio
from mqcore.binding import pace

TCP = "tcp://127.0.0.1:0"


def led_by_loop(sock):
    return sock._leader() >= 2


def waker(sock):
    """Of the one loop that uses it."""
    return next(iter(sock._wakers.values()), None)


async def until_waiting(loop, sock, count):
    """So many tasks stand in line there."""
    while waker(sock) is None or len(waker(sock).line) < count:
        await loop.sleep(0)


class Looks(mq.Pull):
    """Counts the attempts to receive."""

    __slots__ = ("looks",)

    def _try_recv(self, *args):
        self.looks += 1
        return super()._try_recv(*args)


def of_class(ctx, cls, **options):
    """A bound socket of that class and a push that is connected to it."""
    pull = cls(bind=TCP, context=ctx, **options)
    ctx.kept.append(pull)
    push = ctx.socket("push", connect=pull.endpoints[0])
    push.wait_peers(1, 5)
    return pull, push


def test_a_loop_that_waits_alone_leads(linked_at, loop):
    a, b = linked_at(TCP, "pair", "pair")

    async def main():
        led = 0

        async def ask():
            while led < 100:  # for ever, if no loop led
                await a.asend(b"x")
                assert await a.arecv(timeout=10) == b"x"
            await a.asend(b"")

        async def answer():
            nonlocal led
            while body := await b.arecv(timeout=10):
                led += led_by_loop(a)
                await b.asend(body)

        await loop.both(ask, answer)
        assert not led_by_loop(a) and not led_by_loop(b)

    loop.run(main)


def test_a_thread_that_waits_takes_the_lead_of_a_busy_loop(linked_at, loop):
    pull, push = linked_at(TCP, "pull", "push")
    got = []

    async def main():
        async def task():
            with pytest.raises(mq.SocketClosed):
                await pull.arecv()

        async def busy():
            while not led_by_loop(pull):
                await loop.sleep(0)
            thread = threading.Thread(target=lambda: got.append(pull.recv(timeout=10)))
            thread.start()
            while pull._leader() != 1:
                time.sleep(0)
            push.send(b"x")
            thread.join(10)  # the loop is busy with this
            pull.close()

        await loop.both(task, busy)

    loop.run(main)
    assert got == [b"x"]


@pytest.mark.filterwarnings("ignore::mqcore.BlockingCallWarning")
def test_a_poll_takes_the_lead_of_a_busy_loop(linked_at, loop):
    pull, push = linked_at(TCP, "pull", "push")

    async def main():
        async def task():
            return await pull.arecv(timeout=10)

        async def busy():
            while not led_by_loop(pull):
                await loop.sleep(0)
            push.send(b"x")
            assert mq.poll([pull], timeout=10)

        return await loop.both(task, busy)

    assert loop.run(main)[0] == b"x"


def test_what_was_sent_goes_out_while_close_blocks_the_loop(linked_at, loop):
    """close() in the loop's own thread lingers while a task waits on that socket."""
    a, b = linked_at(TCP, "pair", "pair", send_hwm_bytes=None)
    body = bytes(1 << 20)
    count = 64  # far more than the kernel holds
    reader = threading.Thread(target=lambda: [a.recv(timeout=30) for _ in range(count)])

    async def main():
        async def task():
            with pytest.raises(mq.SocketClosed):
                await b.arecv()

        async def close():
            while not led_by_loop(b):
                await loop.sleep(0)
            for _ in range(count):
                b.send(body)
            reader.start()
            return b.close(linger=30)

        return await loop.both(task, close)

    assert loop.run(main)[1].undelivered == 0
    reader.join()


@pytest.mark.filterwarnings("ignore::mqcore.BlockingCallWarning")
def test_a_busy_loop_still_hears_its_peer(ctx):
    """A loop that computes while a task waits leaves the descriptors alone for as long as an
    engine's period; heartbeats are read and answered all the same."""
    a = ctx.socket("pair", bind=TCP, heartbeat=0.05, heartbeat_timeout=0.5)
    b = ctx.socket("pair", connect=a.endpoints[0], heartbeat=0.05, heartbeat_timeout=0.5)
    a.wait_peers(1, 5)
    b.wait_peers(1, 5)
    lost = a.events()

    async def main():
        task = asyncio.ensure_future(b.arecv(timeout=10))
        while not led_by_loop(b):
            await asyncio.sleep(0)
        with pytest.raises(mq.RecvTimeout):
            a.recv(timeout=1.5)  # the loop is busy with this
        a.send(b"there")
        assert await task == b"there"

    asyncio.run(main())
    assert "Disconnected" not in [lost.get(0).kind for _ in range(len(lost))]


def test_one_message_wakes_one_task(ctx, loop):
    """50 tasks wait; each message costs a few looks, not one of each task."""
    pull, push = of_class(ctx, Looks)
    pull.looks = 0
    got = []

    async def main():
        async def take():
            got.append(await pull.arecv(timeout=10))

        async def give():
            await until_waiting(loop, pull, 50)
            before = pull.looks
            for i in range(10):
                push.send(b"%d" % i)
                while len(got) <= i:
                    await loop.sleep(0)
            assert pull.looks - before <= 30
            push.send_many([b"x"] * 40)

        await loop.both(*[take] * 50, give)

    loop.run(main)
    assert sorted(got) == sorted([b"%d" % i for i in range(10)] + [b"x"] * 40)


def test_a_woken_task_that_is_cancelled_calls_the_next(linked_at, loop):
    """The task that was woken for the message is cancelled: the next task in line receives it."""
    if loop.name == "trio":
        pytest.skip("trio runs a task that was woken, cancelled or not: it takes the message")
    pull, push = linked_at("inproc://next", "pull", "push")
    got = []

    async def main():
        stop = []

        async def first():
            task = asyncio.ensure_future(pull.arecv())
            stop.append(task.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                got.append(await task)

        async def second():
            await until_waiting(loop, pull, 1)
            got.append(await pull.arecv(timeout=10))

        async def cut():
            await until_waiting(loop, pull, 2)
            push.send(b"x")
            waker(pull).look()
            assert len(waker(pull).line) == 1
            stop[0]()

        await loop.both(first, second, cut)

    loop.run(main)
    assert got == [b"x"]


def test_a_saturated_stream_lets_others_run(linked_at, loop):
    """Law of fairness, counted: no more than TURNS messages in one turn. (trio shuffles whom it
    runs: two turns of one task may come in a row.)"""
    pull, push = linked_at("inproc://stream", "pull", "push", send_hwm=None,
                         server_options={"recv_hwm": None})
    push.send_many([b"x"] * 5000)
    gaps = deque([0])

    async def main():
        done = []

        async def read():
            count = 0
            async for _ in pull:
                gaps[-1] += 1
                count += 1
                if count == 5000:
                    break
            done.append(True)

        async def tick():
            while not done:
                gaps.append(0)
                await loop.sleep(0)

        await loop.both(read, tick)

    loop.run(main)
    assert max(gaps) <= (pace.TURNS + 1) * (2 if loop.name == "trio" else 1)


def test_a_batch_leaves_room_for_others(linked_at, loop):
    """However many were asked for, a call takes what it can in about a millisecond."""
    count = 20_000
    pull, push = linked_at("inproc://batch", "pull", "push", send_hwm=None,
                           server_options={"recv_hwm": None})
    push.send_many([b"x"] * count)

    async def main():
        assert len(await pull.arecv_batch(count)) == aio.TAKE
        assert len(await pull.arecv_many(count)) == aio.TAKE
        assert len(await pull.arecv_many(count)) == count - 2 * aio.TAKE
        push.send_many([bytes(1 << 18)] * 8)
        assert len(await pull.arecv_batch()) == aio.TAKE_BYTES >> 18

    loop.run(main)


@pytest.mark.parametrize("queued", [0, 5000])
def test_a_receive_is_cancelled_at_once(linked_at, loop, queued):
    """Asleep or in the middle of a stream: counted in turns of the loop, for time would be the
    machine's."""
    pull, push = linked_at(TCP, "pull", "push", send_hwm=None,
                         server_options={"recv_hwm": None})

    async def main():
        over = []

        async def read():
            try:
                await loop.cut(0.005, drain)
            finally:
                over.append(True)

        async def drain():
            try:
                async for _ in pull:
                    pass
            finally:
                over.append(False)

        async def count():
            while not over:
                await loop.sleep(0)
            turns = 0
            while len(over) < 2:
                turns += 1
                await loop.sleep(0)
            return turns

        push.send_many([b"x"] * queued)
        return (await loop.both(read, count))[1]

    assert loop.run(main) <= 3


def test_aclose_ends_what_the_loop_had_for_the_socket(ctx, loop):
    async def main():
        pull = mq.Pull(bind=TCP, context=ctx)
        with pytest.raises(mq.Timeout):
            await pull.arecv(timeout=0.01)
        kept = waker(pull)
        assert kept.fd >= 0     # for a moment, else each receive would make one
        await pull.aclose()
        assert kept.fd < 0 and not pull._wakers

    loop.run(main)


def test_a_socket_that_is_closed_before_the_task_that_watches_it_has_begun(ctx):
    """trio chooses the order of tasks by chance: in a quarter of the rounds it has not begun."""
    async def main():
        for n in range(60):
            sock = ctx.socket("pull", bind=f"inproc://{n}")

            async def receive(sock=sock):
                with contextlib.suppress(mq.SocketClosed):
                    await sock.arecv()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
                sock.close(0)

    trio.run(main)
