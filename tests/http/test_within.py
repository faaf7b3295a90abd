"""within() is asyncio.timeout(), but for what does not wait it makes no timer."""

import asyncio

import pytest
import uvloop

from mqcore.http.within import within


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request):
    return request.param


class Counted:
    """The event loop's timers, counted."""

    def __init__(self, monkeypatch):
        self.made = 0
        plain = asyncio.timeout

        def counted(seconds):
            self.made += 1
            return plain(seconds)

        monkeypatch.setattr(asyncio, "timeout", counted)


async def after(turns, result=None):
    for _ in range(turns):
        await asyncio.sleep(0)
    return result


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_the_result_and_a_timer_only_for_what_waits(run, monkeypatch, turns):
    counted = Counted(monkeypatch)
    assert run(within(20, after(turns, "found"))) == "found"
    assert counted.made == bool(turns)


def test_real_waits(run):
    async def main():
        came, going = asyncio.Event(), asyncio.Queue()

        async def work():
            await came.wait()
            return [await going.get() for _ in range(3)]

        task = asyncio.ensure_future(within(20, work()))
        await asyncio.sleep(0)
        came.set()
        for n in range(3):
            await asyncio.sleep(0.001)
            going.put_nowait(n)
        assert await task == [0, 1, 2]

    run(main())


def test_what_waits_too_long(run):
    async def main():
        cleaned = []

        async def work():
            try:
                await asyncio.sleep(0)
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(1)

        with pytest.raises(TimeoutError):
            await within(0.01, work())
        assert cleaned == [1] and asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0)      # and this task goes on

    run(main())


def test_a_cancellation_from_outside_stays_one(run):
    async def main():
        seen = []

        async def work():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("work")
                raise

        task = asyncio.ensure_future(within(20, work()))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["work"]

    run(main())


def test_work_that_catches_the_cancellation_ends_as_with_timeout(run):
    async def stubborn():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await after(3, "anyway")

    async def plain():
        async with asyncio.timeout(0.01):
            return await stubborn()

    async def outcome(one):
        try:
            return await one
        except TimeoutError as error:
            return type(error)

    async def main():
        assert await outcome(within(0.01, stubborn())) == await outcome(plain())

    run(main())


@pytest.mark.parametrize("turns", [0, 2])
def test_errors_pass(run, turns):
    async def work():
        await after(turns)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(within(20, work()))


def test_an_abandoned_call_closes_its_work():
    closed = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(1)

    async def main():
        steps = within(20, work())
        steps.send(None)
        steps.close()

    asyncio.run(main())
    assert closed == [1]
