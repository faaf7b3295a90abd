"""Requests behind a route: in runs, with one timer, each with its own answer."""

import asyncio

import pytest
import uvloop

import mqcore as mq
from mqcore.http.backend import backend
from mqcore.http.envelope import Envelope
from mqcore.http.problem import Problem
from mqcore.http.route import parse

LIMIT = 60
N = 50


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def served(request, url):
    """served(work, **settings): await work(requester, router), with the two connected."""
    def function(work, settings=""):
        async def main():
            one = backend(parse("/ask", f"req:{url}{settings}"))
            with mq.Router(bind=url) as router:
                await one.open()
                try:
                    async with asyncio.timeout(LIMIT):
                        await work(one, router)
                finally:
                    await one.close()
        request.param(main())
    return function


def asked(one, body):
    return asyncio.ensure_future(one.send(Envelope(base64=body), 0))


def test_answers_in_any_order(served):
    async def work(one, router):
        asking = [asked(one, b"%d" % n) for n in range(N)]
        taken = [await router.arecv_parts() for _ in range(N)]
        for who, number, empty, body in reversed(taken):
            await router.asend_parts([who, number, empty, b"re:", body])
        assert await asyncio.gather(*asking) == [b"re:%d" % n for n in range(N)]
        assert not one.waiting and not one.outgoing
    served(work)


def test_who_gives_up_before_the_run_goes_is_not_sent(served):
    async def work(one, router):
        first = asked(one, b"first")
        await router.arecv_parts()              # it waits: those that follow go in a run
        asking = [asked(one, b"%d" % n) for n in range(4)]
        await asyncio.sleep(0)
        asking[1].cancel()
        taken = [await router.arecv_parts() for _ in range(3)]
        assert [parts[-1] for parts in taken] == [b"0", b"2", b"3"]
        for task in (first, *asking):
            task.cancel()
        await asyncio.wait([first, *asking])
        assert not one.waiting
    served(work)


def test_each_request_has_its_own_time(served):
    async def work(one, router):
        first = asked(one, b"first")
        await asyncio.sleep(0.1)
        second = asked(one, b"second")
        for task in (first, second):
            with pytest.raises(Problem) as raised:
                await task
            assert (raised.value.status, raised.value.name) == (504, "no_reply")
            if task is first:
                assert not second.done()
        assert one.timer is None and not one.waiting
        third = asked(one, b"third")            # and the timer begins anew
        with pytest.raises(Problem, match="no reply"):
            await third
        await router.arecv_parts()
    served(work, "?timeout=0.2")


def test_a_run_that_does_not_fit(served):
    async def work(one, router):
        filling = [asked(one, b"x" * 100_000) for _ in range(N)]
        done, waiting = await asyncio.wait(filling, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with pytest.raises(Problem) as raised:
                await task
            assert raised.value.name == "full"
        for _ in waiting:                       # all others have been sent
            who, number, empty, _ = await router.arecv_parts()
            await router.asend_parts([who, number, empty, b"yes"])
        assert set(await asyncio.gather(*waiting)) == {b"yes"}
    served(work, "?send_hwm=1")


def test_a_requester_that_is_closed_lets_no_request_wait(served):
    """Their time limit is longer than the test. Some have been sent, some go in the next run, and
    some come while it closes."""
    async def work(one, router):
        sent = [asked(one, b"%d" % n) for n in range(3)]
        await router.arecv_parts()
        asking = [asked(one, b"%d" % n) for n in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(one.close())
        late = asked(one, b"late")
        await closing
        assert one.timer is None
        later = asked(one, b"later")
        for task in (*sent, *asking, late, later):
            with pytest.raises(mq.SocketClosed):
                await task
        assert not one.waiting
        await one.close()
    served(work, "?timeout=1000&linger=0")


def test_a_close_that_is_cancelled_lets_no_request_wait(served):
    async def work(one, router):
        asking = [asked(one, b"%d" % n) for n in range(3)]
        await router.arecv_parts()
        closing = asyncio.ensure_future(one.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        for task in asking:
            with pytest.raises(mq.SocketClosed):
                await task
        assert not one.waiting
    served(work, "?timeout=1000&linger=0")


@pytest.mark.parametrize("sent", [False, True])
def test_a_socket_that_is_closed(served, sent):
    async def work(one, router):
        asking = [asked(one, b"%d" % n) for n in range(3)]
        if sent:
            await router.arecv_parts()
        one.socket.close(0)
        for task in asking:
            with pytest.raises(mq.SocketClosed):
                await task
        assert not one.waiting
    served(work)
