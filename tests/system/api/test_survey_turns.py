"""Turns of surveys on one socket: when they end, who may wait for one, and who is refused."""

import asyncio
import contextlib
import math
import threading
import warnings

import pytest
from answering import LIMIT, Answering, begun, in_line

import mqcore as mq
from mqcore.api import survey as survey_module
from mqcore.base.virtual import monotonic
from mqcore.testing import until

SOON = 0.05


def test_a_survey_that_nobody_reads_has_its_turn_until_its_deadline(asking, loop, pool):
    line, answering = asking
    never = answering.never
    for _ in range(3):
        held = line.survey(never, deadline=SOON)
        pool.submit(held._start).result(LIMIT)
        with contextlib.closing(line.survey(b"thread")) as survey:
            assert begun(survey) == b"thread"
        again = line.survey(never, deadline=SOON)
        again._start()

        async def main():
            async with contextlib.aclosing(line.asurvey(b"task")) as survey:
                return await anext(survey)

        assert loop.run(main) == b"task"
        held.close()                # it has no turn to give back
        assert list(again) == []
    assert answering.seen == [never, b"thread", never, b"task"] * 3


def test_a_survey_keeps_its_answers_when_its_turn_is_over(ctx):
    surveyor = ctx.socket("surveyor", bind="inproc://kept", deadline=LIMIT)
    crowd = [Answering(ctx.socket("respondent", connect="inproc://kept")) for _ in range(4)]
    surveyor.wait_peers(4, LIMIT)
    with contextlib.closing(surveyor.survey(b"held")) as held:
        assert next(held) == b"held"
        held._ticket.ends(monotonic())
        with contextlib.closing(surveyor.survey(b"next")) as following:
            assert [next(following) for _ in range(4)] == [b"next"] * 4
            assert [next(held) for _ in range(3)] == [b"held"] * 3
            held.close()
            with pytest.raises(mq.StateError):      # the turn of `following` has no end yet
                following._ticket.ends(math.inf)
                next(surveyor.survey(b"waits"))
    for one in crowd:
        one.close()


def test_an_answer_that_comes_in_the_last_moment_is_read(ctx, monkeypatch):
    surveyor = ctx.socket("surveyor", bind="inproc://moment")
    respondent = ctx.socket("respondent", connect="inproc://moment")
    surveyor.wait_peers(1, LIMIT)

    def over(_):        # between a look for an answer and one at the clock
        if mq.poll([respondent], 0):
            respondent.recv()
            respondent.send(b"just in time")
        return True

    monkeypatch.setattr(survey_module, "passed", over)
    assert list(surveyor.survey(b"?", deadline=LIMIT)) == [b"just in time"]


@pytest.mark.parametrize("deadline", [None, LIMIT])
def test_an_abandoned_survey_gives_its_turn_back(ctx, deadline):
    surveyor = ctx.socket("surveyor", bind="inproc://left")
    crowd = Answering(ctx.socket("respondent", connect="inproc://left"))
    surveyor.wait_peers(1, LIMIT)
    with surveyor.new_context() as own:
        abandoned = own.survey(b"first", deadline=deadline)
        assert next(abandoned) == b"first"
        own.abandon()
        assert next(own.survey(b"second", deadline=None)) == b"second"
        assert list(abandoned) == []
    crowd.close()


@pytest.mark.parametrize("leaves", [False, True])
def test_all_in_line_get_their_turns_though_nobody_gives_one_back(asking, loop, pool, leaves):
    """Also if those in line sleep before a deadline is known, and if the first of them leaves."""
    line, answering = asking
    running = line.survey(b"first", deadline=None)
    assert begun(running) == b"first"
    surveys = [line.survey(b"%d" % n, deadline=SOON) for n in range(6)]
    calls = []
    for survey in surveys[:4]:
        calls.append(pool.submit(next, survey, None))
        until(lambda survey=survey: in_line(survey), LIMIT)

    async def task(survey):
        return await anext(survey, None)

    async def end():
        while not all(map(in_line, surveys)):
            await loop.sleep(0.001)
        running._ticket.ends(monotonic() + SOON)
        if leaves:
            surveys[0].close()

    loop.run(loop.both, lambda: task(surveys[4]), lambda: task(surveys[5]), end)
    got = [call.result(LIMIT) for call in calls]
    assert all(answer in (None, b"%d" % n) for n, answer in enumerate(got))
    assert answering.seen[:5 - leaves] == [b"first", *(b"%d" % n for n in range(leaves, 4))]
    running.close()


def test_a_task_that_hands_its_survey_on_waits_for_its_turn(asking, loop):
    line, answering = asking

    async def main():
        survey = line.asurvey(b"handed on", deadline=10 * SOON)
        await anext(survey, None)

        async def first():
            return [answer async for answer in survey]

        async def second():
            async with contextlib.aclosing(line.asurvey(b"next")) as following:
                return await anext(following)

        return (await loop.both(second, first))[0]

    assert loop.run(main) == b"next"


def test_a_task_that_is_done_has_the_survey_no_more(asking):
    """Such as one that asyncio.gather() makes, or asyncio.wait_for() before Python 3.12."""
    line, _ = asking

    async def main():
        endless = line.asurvey(b"endless", deadline=None)
        assert await asyncio.gather(anext(endless)) == [b"endless"]
        with pytest.raises(mq.StateError, match="this task"):
            await anext(line.asurvey(b"inside"))
        await endless.aclose()
        assert await anext(line.asurvey(b"after")) == b"after"

    asyncio.run(main())


def test_a_survey_without_a_deadline_belongs_to_the_one_who_asked_it_last(asking, loop, pool):
    """Who asks it cannot wait for its end; who has handed it on can."""
    line, answering = asking
    shared, asked = line.survey(b"shared", deadline=None), threading.Event()
    assert next(shared) == b"shared"
    with pytest.raises(mq.StateError, match="this thread"):
        next(line.survey(b"inside"))

    async def task():
        with pytest.raises(mq.StateError, match="this task"):
            await anext(line.asurvey(b"inside"))
        return True

    assert loop.run(task)           # begun by a thread that waits for the loop

    async def main():
        async def taking():
            asked.set()
            assert await anext(shared, None) is None

        async def waiting():
            while not asked.is_set():
                await loop.sleep(0.001)
            following = line.asurvey(b"next")

            async def closing():
                while not in_line(following):
                    await loop.sleep(0.001)
                shared.close()

            async def one():
                return await anext(following)

            got = (await loop.both(one, closing))[0]
            following.close()
            return got

        return (await loop.both(taking, waiting))[1]

    assert loop.run(main) == b"next"
    assert answering.seen == [b"shared", b"next"]


def test_a_blocking_call_in_a_task_is_that_of_the_task(asking, loop):
    line, _ = asking

    async def main():
        shared, following = line.survey(b"shared", deadline=None), line.asurvey(b"next")

        async def asking():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", mq.BlockingCallWarning)
                assert next(shared) == b"shared"
            while not in_line(following):
                await loop.sleep(0.001)
            shared.close()

        async def waiting():
            while not shared._begun:
                await loop.sleep(0.001)
            async with contextlib.aclosing(following):
                return await anext(following)

        return (await loop.both(asking, waiting))[1]

    assert loop.run(main) == b"next"
