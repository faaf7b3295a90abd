"""Surveys and requests of one socket that several threads, tasks or signal handlers use: one survey
that is shared, closed while others are inside, a socket that is closed with calls in line."""

import asyncio
import contextlib
import math
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import mqcore as mq
from mqcore.api import survey
from mqcore.base.virtual import monotonic
from mqcore.testing import until

LIMIT = 60


class Answering:
    """A respondent. It answers surveys with what they ask, `times` over, but for those of `never`;
    and it counts all of them."""

    def __init__(self, sock):
        self.sock = sock
        self.never = b"unanswered"
        self.seen = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        for message in self.sock.messages():
            self.seen.append(bytes(message))
            if self.seen[-1] != self.never:
                with contextlib.suppress(mq.Error):     # the surveyor has closed
                    message.reply(self.seen[-1])

    def close(self):
        self.sock.close(0)
        self.thread.join(LIMIT)


@pytest.fixture(params=["socket", "context"])
def asking(linked, request):
    """What asks, and the one that answers."""
    respondent, surveyor = linked("respondent", "surveyor", deadline=LIMIT)
    answering = Answering(respondent)
    yield surveyor if request.param == "socket" else surveyor.new_context(), answering
    answering.close()


def begun(survey):
    """The first answer, that another thread has received."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(next, survey).result(LIMIT)


@pytest.fixture
def pool():
    made = ThreadPoolExecutor(4)
    yield made
    made.shutdown(cancel_futures=True)


def in_line(survey):
    """Whether it waits for its turn."""
    return survey._ticket.waits


# -- a survey that is closed while others are inside -----------------------------------------------

def test_a_thread_inside_a_closed_survey_takes_no_answer_of_the_next_one(asking, pool):
    line, answering = asking
    for n in range(30):
        closed = line.survey(answering.never)
        inside = pool.submit(list, closed)
        until(lambda n=n: len(answering.seen) == 2 * n + 1, LIMIT)
        closed.close()
        with contextlib.closing(line.survey(b"%d" % n)) as following:
            assert next(following) == b"%d" % n
        assert inside.result(LIMIT) == []


def test_a_task_inside_a_closed_survey_takes_no_answer_of_the_next_one(asking, loop):
    line, answering = asking

    async def main():
        for n in range(20):
            closed = line.asurvey(answering.never)

            async def inside(closed=closed):
                return [answer async for answer in closed]

            async def other(n=n, closed=closed):
                while len(answering.seen) < 2 * n + 1:
                    await loop.sleep(0.001)
                closed.close()
                async with contextlib.aclosing(line.asurvey(b"%d" % n)) as following:
                    return await anext(following)

            assert await loop.both(inside, other) == [[], b"%d" % n]

    loop.run(main)


def test_a_closed_survey_is_not_sent_after_the_next_one(asking, pool):
    """It is closed at any moment of its beginning."""
    line, _ = asking
    for n in range(300):
        closed = line.survey(b"closed")
        beginning = pool.submit(next, closed, None)
        closed.close()
        with contextlib.closing(line.survey(b"%d" % n)) as following:
            assert next(following) == b"%d" % n
        assert beginning.result(LIMIT) in (None, b"closed")


def test_plain_calls_beside_a_survey_have_no_part_in_it(asking):
    line, _ = asking
    with contextlib.closing(line.survey(b"survey")) as survey:
        line.send(b"plain")
        assert next(survey) == b"survey"
        assert line.recv(timeout=LIMIT) == b"plain"


# -- a survey that is shared -----------------------------------------------------------------------

def test_each_answer_of_a_shared_survey_goes_to_one_thread(ctx, pool):
    surveyor = ctx.socket("surveyor", bind="inproc://shared", deadline=LIMIT)
    crowd = [Answering(ctx.socket("respondent", connect="inproc://shared")) for _ in range(8)]
    surveyor.wait_peers(8, LIMIT)
    for n in range(20):
        survey = surveyor.survey(b"%d" % n)
        calls = [pool.submit(next, survey) for _ in range(8)]
        assert [call.result(LIMIT) for call in calls] == [b"%d" % n] * 8
        survey.close()
    assert [one.seen for one in crowd] == [[b"%d" % n for n in range(20)]] * 8
    for one in crowd:
        one.close()


def test_threads_and_tasks_share_a_survey_that_waits_for_its_turn(asking, loop, pool):
    line, answering = asking
    running, shared = line.survey(b"first"), line.survey(b"second")
    assert begun(running) == b"first"
    calls = [pool.submit(list, shared)]
    until(lambda: in_line(shared), LIMIT)
    calls.append(pool.submit(list, shared))

    async def waiting():
        return [answer async for answer in shared]

    async def ending():
        running.close()
        while len(answering.seen) < 2:
            await loop.sleep(0.001)
        await loop.sleep(0.1)       # usually the answer has come, and all of them wait for more
        shared.close()
        return []

    found = loop.run(loop.both, waiting, waiting, ending)
    got = sum(found + [call.result(LIMIT) for call in calls], [])
    assert got in ([], [b"second"]) and answering.seen == [b"first", b"second"]


def test_all_who_share_a_survey_end_at_its_deadline(asking, pool, loop):
    line, answering = asking

    async def main():
        async def one():
            return [answer async for answer in shared]

        return await loop.both(one, one, one)

    for _ in range(5):
        shared = line.survey(answering.never, deadline=0.02)
        calls = [pool.submit(list, shared) for _ in range(4)]
        assert [call.result(LIMIT) for call in calls] == [[]] * 4
        shared = line.survey(answering.never, deadline=0.02)
        assert loop.run(main) == [[]] * 3


# -- a socket that is closed with calls in line ----------------------------------------------------

@pytest.mark.parametrize("first", ["the line", "the socket"])
def test_closing_ends_surveys_that_wait_for_their_turn(asking, pool, loop, first):
    line, _ = asking
    running = line.survey(b"first")
    assert begun(running) == b"first"
    surveys = [line.survey(b"never sent") for _ in range(4)]
    sock = getattr(line, "socket", line)
    closing, expected = (line, mq.StateError) if first == "the line" and sock is not line else \
        (sock, mq.SocketClosed)
    calls = [pool.submit(next, survey) for survey in surveys[:2]]
    calls.append(pool.submit(next, surveys[0]))

    async def waiting(survey):
        with pytest.raises(expected):
            await anext(survey)

    async def close():
        while not all(map(in_line, surveys)):
            await loop.sleep(0.001)
        closing.close(*[0] * (closing is sock))

    loop.run(loop.both, lambda: waiting(surveys[2]), lambda: waiting(surveys[3]), close)
    for call in calls[:2]:
        assert isinstance(call.exception(LIMIT), expected)
    assert isinstance(calls[2].exception(LIMIT), expected)
    assert [survey._ticket.place for survey in surveys] == [0] * 4


@pytest.mark.parametrize("at, closing, expected", [
    ("socket", "socket", mq.SocketClosed), ("context", "socket", mq.SocketClosed),
    ("context", "context", mq.StateError)])
def test_closing_ends_requests_that_wait_for_their_turn(linked, pool, loop, at, closing, expected):
    rep, req = linked("rep", "req", recv_timeout=LIMIT, correlate=False)
    ends = {"socket": req, "context": req.new_context()}
    line = ends[at]
    calls = [pool.submit(line.request, b"it")]
    assert rep.recv(timeout=LIMIT) == b"it"
    calls += [pool.submit(line.request, b"never sent", timeout=None) for _ in range(2)]

    async def waiting():
        with pytest.raises(expected):
            await line.arequest(b"never sent")

    async def close():
        while line._turnstile.in_line < 4:
            await loop.sleep(0.001)
        ends[closing].close(*[0] * (closing == "socket"))

    loop.run(loop.both, waiting, waiting, close)
    for call in calls:
        assert isinstance(call.exception(LIMIT), expected)
    assert line._turnstile.in_line == 0


# -- turns -----------------------------------------------------------------------------------------

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

    monkeypatch.setattr(survey, "passed", over)
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


# -- signal handlers -------------------------------------------------------------------------------

@contextlib.contextmanager
def handling(handler):
    """handler() runs once in the main thread, in the middle of what it does, when ring() is called.
    A signal that comes just before a thread sleeps is seen when it wakes, so ring() repeats it."""
    seen = []

    def once(*_):
        if not seen:
            seen.append(True)
            handler()

    before = signal.signal(signal.SIGUSR1, once)
    main = threading.main_thread().ident
    try:
        yield lambda: until(lambda: seen or signal.pthread_kill(main, signal.SIGUSR1), LIMIT)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("which", ["another", "the same"])
def test_a_handler_cannot_wait_for_the_turn_of_its_own_thread(asking, pool, which):
    line, _ = asking
    running, waiting = line.survey(b"first"), line.survey(b"second")
    assert begun(running) == b"first"
    refused = []

    def handler():
        with pytest.raises(mq.StateError, match="this thread .* take turns") as caught:
            next(waiting if which == "the same" else line.survey(b"inside"))
        refused.append(type(caught.value))
        running.close()

    def ring_when_it_waits(ring):
        until(lambda: in_line(waiting), LIMIT)
        ring()

    with handling(handler) as ring:
        pool.submit(ring_when_it_waits, ring)
        assert next(waiting) == b"second"
    assert refused == [mq.StateError]
    waiting.close()


@pytest.mark.parametrize("place", ["has", "waits"])
def test_an_error_of_a_handler_is_no_normal_end(asking, pool, place):
    line, answering = asking
    running, survey = line.survey(b"first"), line.survey(answering.never)
    if place == "waits":
        assert begun(running) == b"first"

    def handler():
        raise mq.StateError("the handler's")

    def ring_when_it_waits(ring):
        until(lambda: in_line(survey) or answering.never in answering.seen, LIMIT)
        ring()

    with handling(handler) as ring, pytest.raises(mq.StateError, match="the handler's"):
        pool.submit(ring_when_it_waits, ring)
        next(survey)
    running.close()
    assert list(survey) == []
    with contextlib.closing(line.survey(b"next")) as following:
        assert next(following) == b"next"


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("place", ["has", "waits"])
def test_a_request_of_a_handler_does_not_wait_for_its_own_thread(linked, pool, context, place):
    rep, req = linked("rep", "req", recv_timeout=LIMIT, correlate=None if context else False)
    line = req.new_context() if context else req
    if place == "waits":
        other = pool.submit(line.request, b"other")
        request = rep.recv_msg(timeout=LIMIT)
    refused = []

    def handler():
        with pytest.raises(mq.StateError, match="this thread .* take turns"):
            line.request(b"inside")
        refused.append(True)

    def ring_when_it_waits(ring):
        if place == "waits":
            until(lambda: line._turnstile.in_line, LIMIT)
            ring()
            until(lambda: refused, LIMIT)
            request.reply(b"other")
        message = rep.recv_msg(timeout=LIMIT)
        if place == "has":
            ring()
            until(lambda: refused, LIMIT)
        message.reply(b"mine")

    with handling(handler) as ring:
        serving = pool.submit(ring_when_it_waits, ring)
        assert line.request(b"main") == b"mine"
    serving.result()
    assert place == "has" or other.result() == b"other"
