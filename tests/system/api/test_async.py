"""The async twins, on asyncio and trio, over inproc and tcp; cancelling loses nothing."""

import asyncio
import contextlib
import sys
import threading
import types

import numpy as np
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import mqcore as mq
from mqcore import journal
from mqcore.binding.pace import TURNS


def test_every_way_to_send_and_receive(ctx, url, loop):
    async def main():
        async with ctx.socket("pull") as pull, ctx.socket("push") as push:
            end = await pull.abind(url)
            assert (await push.aconnect(end, wait=5)).state == "connected"
            await push.await_peers(1, 5)
            await push.asend(b"1")
            await push.asend_parts([b"2", b"3"])
            assert await push.asend_many([b"4", [b"5", b"6"]]) == 2
            offsets = np.arange(0, 5001, 1)
            assert await push.asend_batch(np.zeros(5000, np.uint8), offsets) == 5000
            pinned = await push.asend_ref(bytearray(b"x" * 100_000))
            assert await pull.arecv(timeout=5) == b"1"
            assert await pull.arecv_parts(timeout=5) == [b"2", b"3"]
            assert (await pull.arecv_msg(timeout=5)).body == b"4"
            buffer = bytearray(2)
            assert await pull.arecv_into(buffer, timeout=5) == 2 and buffer == b"56"
            count = 0
            while count < 2000:
                count += len(await pull.arecv_many(100, timeout=5))
            while count < 5000:
                count += len(await pull.arecv_batch(5000 - count, timeout=5))
            assert count == 5000
            assert len(await pull.arecv(timeout=5)) == 100_000
            await pinned.await_done(5)
            await push.adisconnect(end)
            await pull.aunbind(end)
            assert pull.endpoints == push.endpoints == ()

    loop.run(main)


def test_timeouts(linked, loop):
    pull, push = linked("pull", "push")

    async def main():
        with pytest.raises(mq.RecvTimeout, match="at once"):
            await pull.arecv(timeout=0)
        with pytest.raises(TimeoutError, match="within 0.05 s"):
            await pull.arecv(timeout=0.05)
        with pytest.raises(mq.WaitTimeout, match="1 of 2 peers"):
            await pull.await_peers(2, 0.05)
        with pytest.raises(mq.UsageError):
            await pull.arecv(timeout=-1)
        lonely = pull.context.socket("push")
        with pytest.raises(mq.SendTimeout, match="no peer"):
            await lonely.asend_many([b"", b""], timeout=0.02)
        with pytest.raises(mq.ConnectTimeout):
            await lonely.aconnect("inproc://nobody", wait=0.05)
        assert lonely.endpoints == ()

    loop.run(main)


def test_one_socket_in_many_loops(linked, loop):
    """No loop is remembered."""
    pull, push = linked("pull", "push")

    async def one():
        with pytest.raises(mq.RecvTimeout):
            await pull.arecv(timeout=0.01)
        await push.asend(b"x")
        return await pull.arecv(timeout=5)

    for _ in range(30):
        assert loop.run(one) == b"x"

    async def two():
        for _ in range(100):
            await push.asend(b"x")
            await pull.arecv(timeout=5)

    threads = [threading.Thread(target=loop.run, args=(two,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_many_tasks_on_one_socket(linked, loop):
    """More tasks than a socket has places for loops."""
    pull, push = linked("pull", "push")
    got = []

    async def main():
        async def take():
            got.append(await pull.arecv(timeout=10))

        async def give():
            await loop.sleep(0.01)
            for i in range(50):
                await push.asend(b"%d" % i)

        await loop.both(*[take] * 50, give)

    loop.run(main)
    assert sorted(got) == sorted(b"%d" % i for i in range(50))


def test_iteration_ends_by_close(linked, loop):
    pull, push = linked("pull", "push")
    got = []

    async def main():
        async def read():
            async for body in pull:
                got.append(body)

        async def close():
            await push.asend_many([b"a", b"b"])
            while len(got) < 2:
                await loop.sleep(0.001)
            await pull.aclose()

        await loop.both(read, close)
        assert [m async for m in pull.messages()] == []
        with pytest.raises(mq.SocketClosed):
            await pull.arecv()

    loop.run(main)
    assert got == [b"a", b"b"]


def test_while_another_thread_imports_trio(linked, tmp_path, monkeypatch):
    """sys.modules has a module before its parts are there."""
    pull, push = linked("pull", "push")
    with journal.open(tmp_path / "j", "a") as writer:
        writer.append(b"kept")

    async def main():
        with monkeypatch.context() as change:
            change.setitem(sys.modules, "trio", types.ModuleType("trio"))
            await push.asend(b"hello")
            assert await pull.arecv(timeout=5) == b"hello"
            async with await journal.aopen(tmp_path / "j") as reader:
                async for records in reader.afollow(0, timeout=5):
                    return records[0]

    assert asyncio.run(main()) == b"kept"


def test_requests(linked, loop):
    rep, req = linked("rep", "req")

    async def main():
        async def serve():
            async for message in rep.messages():
                with contextlib.suppress(mq.NoSuchPeer):  # who gave up has left
                    await message.areply(b"re ", message.body)

        async def asks():
            async def ask(i):
                assert await req.arequest(b"%d" % i, timeout=10) == b"re %d" % i

            await loop.both(*[lambda i=i: ask(i) for i in range(40)])
            message = await req.arequest_msg([b"a", b"b"], timeout=5)
            assert message.parts == (b"re ", b"b")
            assert await loop.cut(0.0, lambda: req.arequest(b"given up")) in (None, b"re given up")
            assert await req.arequest(b"next", timeout=10) == b"re next"
            await rep.aclose()

        await loop.both(serve, serve, asks)

    loop.run(main)


def test_threads_and_tasks_share_a_req(linked, loop):
    rep, req = linked("rep", "req")

    def serve():
        for message in rep.messages():
            message.reply(message.body)

    server = threading.Thread(target=serve)
    server.start()
    wrong = []

    def ask(name):
        for i in range(50):
            text = b"%s %d" % (name, i)
            if req.request(text, timeout=10) != text:
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(b"t%d" % i,)) for i in range(2)]
    for thread in threads:
        thread.start()

    async def main():
        async def one(name):
            for i in range(50):
                text = b"%s %d" % (name, i)
                if await req.arequest(text, timeout=10) != text:
                    wrong.append(text)

        await loop.both(lambda: one(b"a"), lambda: one(b"b"))

    loop.run(main)
    for thread in threads:
        thread.join(20)
    rep.close()
    server.join(10)
    assert wrong == []


def test_router_pub_and_events(ctx, url, loop):
    async def main():
        router = ctx.socket("router", bind=url)
        stream = router.events()
        dealer = ctx.socket("dealer", connect=router.endpoints[0], routing_id=b"bob")
        assert [(await stream.aget(5)).kind for _ in range(2)] == ["Accepted", "Connected"]
        await router.await_peers(1, 5)
        await router.asend_to(b"bob", b"1")
        await router.asend_to(router.peers()[0], b"2")
        assert [await dealer.arecv(timeout=5) for _ in range(2)] == [b"1", b"2"]
        with pytest.raises(mq.NoSuchPeer):
            await router.asend_to(b"nobody", b"x")
        await dealer.aclose()
        assert (await stream.aget(5)).kind == "Disconnected"
        await router.aclose()
        assert [event.kind async for event in stream][-1] == "Closed"
        async with ctx.socket("pub") as pub, ctx.socket("sub", topics="a") as sub:
            await sub.aconnect(await pub.abind(url))
            await pub.await_subscribers("abc", 1, 5)
            with pytest.raises(mq.WaitTimeout, match="0 of 1 subscribers"):
                await pub.await_subscribers("b", 1, 0.01)

    loop.run(main)


def test_a_busy_socket_lets_others_run(linked, loop):
    """Law of fairness: calls that never have to wait let other tasks run all the same."""
    pull, push = linked("pull", "push", send_hwm=None, server_options={"recv_hwm": None})
    turns = []

    async def main():
        done = []

        async def busy():
            for _ in range(1000):
                await push.asend(b"x")
            for _ in range(1000):
                await pull.arecv(timeout=5)
            done.append(True)

        async def other():
            while not done:
                turns.append(1)
                await loop.sleep(0)

        await loop.both(busy, other)

    loop.run(main)
    assert len(turns) > 1000 // TURNS


def test_cancelled_close_is_linger_0(ctx, loop):
    push = ctx.socket("push", connect="inproc://nobody", linger=None)
    push.send(b"x")
    loop.run(lambda: loop.cut(0.05, push.aclose))     # a linger of None would wait for ever
    assert push.closed
    assert push.close().undelivered == 1


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 0.0005, 0.002])), max_size=12),
       st.integers(0, 60))
def test_cancelling_loses_no_message(cuts, total):
    """Whatever is cancelled whenever: each message is received exactly once, in order."""
    for run in (asyncio.run, trio.run):
        with mq.Context(linger=0) as context:
            run(_cancelling, context, cuts, total) if run is trio.run else run(
                _cancelling(context, cuts, total))


async def _cancelling(context, cuts, total):
    from mqcore.binding.sleep import in_trio

    pull = context.socket("pull", bind="inproc://x")
    push = context.socket("push", connect="inproc://x")
    got = []

    async def take(kind):
        if kind == 0:
            got.append(await pull.arecv())
        elif kind == 1:
            got.append((await pull.arecv_msg()).body)
        elif kind == 2:
            got.extend(await pull.arecv_many(5))
        else:
            got.extend((await pull.arecv_batch(5)).to_list())

    async def feed():
        for i in range(total):
            await push.asend(b"%d" % i)
            if i % 7 == 0:
                await (trio.sleep(0.0003) if in_trio() else asyncio.sleep(0.0003))

    async def reads():
        for kind, after in cuts:
            if in_trio():
                with trio.move_on_after(after):
                    await take(kind)
            else:
                task = asyncio.ensure_future(take(kind))
                await asyncio.sleep(after)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        while len(got) < total:
            got.append(await pull.arecv(timeout=10))

    if in_trio():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            nursery.start_soon(reads)
    else:
        await asyncio.gather(feed(), reads())
    assert got == [b"%d" % i for i in range(total)]
    push.close(0)
    pull.close(0)
