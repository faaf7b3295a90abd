"""Law of fairness: however often a call is made that need not wait, other tasks run all the same.
Counted in calls, since time would be the machine's."""

import os
from contextlib import aclosing

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.api import poll, wakers
from mqcore.binding.pace import TURNS

CALLS = 1000


async def longest(loop, call, count=CALLS):
    """The most calls that went by without a turn of another task."""
    gaps, done = [0], []

    async def busy():
        for _ in range(count):
            await call()
            gaps[-1] += 1
        done.append(True)

    async def tick():
        while not done:
            gaps.append(0)
            await loop.sleep(0)

    await loop.both(busy, tick)
    return max(gaps)


def limit(loop):
    """trio shuffles whom it runs: two turns of one task may come in a row."""
    return (TURNS + 1) * (2 if loop.name == "trio" else 1)


async def first(iterator):
    async with aclosing(iterator):
        async for _ in iterator:
            break


CASES = {
    "await_ready": lambda push, end: end.await_ready(5),
    "asend_many": lambda push, end: push.asend_many([]),
    "asend_batch": lambda push, end: push.asend_batch(b"", [0]),
    "await_peers": lambda push, end: push.await_peers(1, 5),
    "apoll": lambda push, end: mq.apoll([(push, mq.Ready.WRITE)]),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_that_need_not_wait_let_others_run(linked, loop, name):
    _, push = linked("pull", "push")
    end = push.endpoints[0]

    async def main():
        assert await longest(loop, lambda: CASES[name](push, end)) <= limit(loop)

    loop.run(main)


def test_connecting_without_waiting_lets_others_run(ctx, loop):
    sub = ctx.socket("sub")

    async def main():
        assert await longest(loop, lambda: sub.aconnect("inproc://same")) <= limit(loop)

    loop.run(main)
    assert len(sub.endpoints) == 1


def test_a_buffer_that_is_done_and_a_device_that_has_ended_let_others_run(linked, ctx, loop):
    pull, push = linked("pull", "push")
    pinned = push.send_ref(b"x")
    pull.recv(timeout=5)
    device = mq.device(ctx.socket("pull"), ctx.socket("push"))
    device.stop()

    async def main():
        await pinned.await_done(5)
        assert await longest(loop, pinned.await_done) <= limit(loop)
        assert await longest(loop, device.await_stopped) <= limit(loop)

    loop.run(main)


def test_polling_many_descriptors_that_are_ready_lets_others_run(loop):
    pipes = [os.pipe() for _ in range(poll.FEW + 1)]
    asked = [(write, mq.Ready.WRITE) for _, write in pipes]

    async def main():       # a new list each time: none is kept
        assert await longest(loop, lambda: mq.apoll(list(asked))) <= limit(loop)

    try:
        loop.run(main)
    finally:
        for fd in sum(pipes, ()):
            os.close(fd)


def test_calls_of_a_journal_let_others_run(linked, tmp_path, loop):
    _, push = linked("pull", "push")
    with journal.open(tmp_path / "j", "a") as writer:
        writer.append(b"x")
        writer.commit()
        with journal.open(tmp_path / "j") as reader, \
                journal.Spill(push, tmp_path / "spill") as spill:

            async def main():
                for call in (lambda: first(reader.abatches(0, 0)),
                             lambda: first(reader.afollow(0)), spill.await_empty):
                    assert await longest(loop, call, 200) <= limit(loop)

            loop.run(main)


def test_jobs_that_are_here_already_let_others_run(tmp_path, ctx, loop):
    with journal.serve_queues(tmp_path, "inproc://jobs", context=ctx), \
            journal.queue("inproc://jobs", "work", prefetch=CALLS, context=ctx) as queue:
        queue.put_many([b"x"] * CALLS)
        queue.get(5)

        async def main():
            assert await longest(loop, queue.aget, CALLS - 1) <= limit(loop)
            for call in (lambda: queue.aack_many([]), lambda: queue.areject_many([]),
                         lambda: queue.aextend_many([]), lambda: queue.aput_many([])):
                assert await longest(loop, call) <= limit(loop)

        loop.run(main)


def test_a_wait_that_finds_a_change_before_it_sleeps_is_no_turn_of_others(linked, loop,
                                                                          monkeypatch):
    """Between the attempt of arecv() and its sleep, as by another thread, there comes a message."""
    pull, push = linked("pull", "push")
    before = wakers.Waker.doze

    def doze(self, seen):
        push.send(b"x")
        return before(self, seen)

    async def main():
        monkeypatch.setattr(wakers.Waker, "doze", doze)
        assert await longest(loop, lambda: pull.arecv(timeout=5)) <= limit(loop)

    loop.run(main)


def test_a_time_out_passes_at_a_socket_that_changes_all_the_time(linked, loop, monkeypatch):
    """Each time that the call is about to sleep, something has changed that does not help it."""
    pull, _ = linked("pull", "push")
    monkeypatch.setattr(wakers.Waker, "doze", lambda self, seen: False)

    async def main():
        with pytest.raises(mq.RecvTimeout):
            await pull.arecv(timeout=0.05)

    loop.run(main)
