"""Threads of blocking clients: kept for the next call, one for each call at a time."""

import asyncio
import threading

import pytest
from waiting import until

from mqcore.bridge import threaded


class Side(threaded.BlockingSide):
    def explain(self):
        return "a client whose calls block"


def names():
    return [one for one in threading.enumerate() if one.name == "mqcore-bridge"]


def test_calls_one_after_the_other_share_a_thread():
    async def main():
        side = Side()
        return {await side.in_thread(threading.get_ident) for _ in range(50)}

    assert len(asyncio.run(main())) == 1


def test_calls_at_once_have_a_thread_each_and_those_of_another_side_their_own():
    async def main():
        side, other = Side(), Side()
        meeting = threading.Barrier(3, timeout=20)

        def meet():
            meeting.wait()
            return threading.get_ident()

        first = await asyncio.gather(*[side.in_thread(meet) for _ in range(3)])
        again = await asyncio.gather(*[side.in_thread(meet) for _ in range(3)])
        assert set(again) == set(first) and len(set(first)) == 3
        assert await other.in_thread(threading.get_ident) not in first

    asyncio.run(main())


def test_a_call_that_never_returns_keeps_no_other_waiting():
    async def main():
        side, release = Side(), threading.Event()
        stuck = asyncio.ensure_future(side.in_thread(release.wait))
        for n in range(5):
            assert await side.in_thread(lambda n=n: n) == n
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert side.busy
        release.set()
        await side.finished()

    asyncio.run(main())


def test_errors_are_the_callers_and_the_thread_goes_on():
    async def main():
        side = Side()
        for error in (OSError("lost"), SystemExit(3)):
            with pytest.raises(type(error)):
                await side.in_thread(_raise, error)
        assert await side.in_thread(len, "four") == 4

    asyncio.run(main())


def _raise(error):
    raise error


def test_a_thread_without_calls_ends_and_the_next_call_has_a_new_one(monkeypatch):
    monkeypatch.setattr(threaded, "IDLE", 0.01)

    async def main():
        side = Side()
        for _ in range(20):
            assert await side.in_thread(len, "four") == 4
            until(lambda: not names())

    until(lambda: not names())
    asyncio.run(main())


def test_threads_end_after_their_loop_has():
    async def main():
        release = threading.Event()
        side = Side()
        asyncio.ensure_future(side.in_thread(release.wait))
        await asyncio.sleep(0)
        return release

    release = asyncio.run(main())
    release.set()           # its loop is closed now
    until(lambda: not names())
