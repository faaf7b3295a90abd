"""Surveys and requests of one socket that several threads, tasks or signal handlers use: one survey
that is shared, closed while others are inside, a socket that is closed with calls in line."""

import contextlib
import signal
import threading

import pytest
from answering import LIMIT, Answering, begun, in_line

import mqcore as mq
from mqcore.testing import until

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
