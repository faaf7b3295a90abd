"""The turnstile of request() and survey(): its places where threads and tasks meet, give up, are
cancelled and are interrupted."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import mqcore as mq
from mqcore.api import exchanges, survey, turnstile
from mqcore.api.turnstile import await_, wait
from mqcore.base.virtual import monotonic
from mqcore.binding.tickets import BESIDE, FIRST, NONE, Ticket, Turnstile
from mqcore.testing import until

LIMIT = 60


class Watched:
    """A turnstile, and who is inside."""

    def __init__(self, beside):
        self.turnstile = Turnstile(beside)
        self.lock = threading.Lock()
        self.inside = []
        self.wrong = []

    def enter(self, place):
        with self.lock:
            self.inside.append(place)
            if len(self.inside) > self.turnstile.beside + 1 or self.inside.count(FIRST) > 1:
                self.wrong.append(list(self.inside))

    def leave(self, place):
        with self.lock:
            self.inside.remove(place)

    def thread(self, rng):
        for _ in range(200):
            limit = rng.choice([None, 0, monotonic() + rng.random() * 2e-3])
            with Ticket(self.turnstile) as ticket:
                if ticket.place != NONE or wait(ticket, limit):
                    self.enter(ticket.place)
                    time.sleep(rng.random() * 2e-4)
                    self.leave(ticket.place)

    async def visit(self, limit):
        with Ticket(self.turnstile) as ticket:
            if ticket.place != NONE or await await_(ticket, limit):
                self.enter(ticket.place)
                try:
                    await asyncio.sleep(0)
                finally:
                    self.leave(ticket.place)

    def loop(self, rng):
        async def task(rng):
            for _ in range(40):
                visit = self.visit(rng.choice([None, 0, monotonic() + 1e-3]))
                try:
                    await asyncio.wait_for(visit, rng.choice([None, rng.random() * 3e-3]))
                except TimeoutError:
                    continue

        async def all_of_them():
            await asyncio.gather(*(task(random.Random(rng.random())) for _ in range(8)))

        asyncio.run(all_of_them())


def places(turnstile):
    """Those that are free."""
    tickets = []
    while not tickets or tickets[-1].place != NONE:
        tickets.append(Ticket(turnstile))
        tickets[-1].take()
    return [ticket.place for ticket in tickets[:-1]]


def answering(s):
    while True:
        try:
            s.send(s.recv())
        except mq.SocketClosed:
            return
        except mq.Error:        # the request was abandoned
            pass


@pytest.fixture
def surveyor(linked):
    """Its surveys are answered."""
    respondent, surveyor = linked("respondent", "surveyor", deadline=LIMIT)
    server = threading.Thread(target=answering, args=(respondent,))
    server.start()
    yield surveyor
    respondent.close(0)
    server.join()


@pytest.mark.parametrize("beside", [0, 1, 3])
def test_no_place_is_lost_or_given_twice(rng, beside):
    it = Watched(beside)
    threads = [threading.Thread(target=target, args=(random.Random(rng.random()),))
               for target in [it.thread] * 4 + [it.loop] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    assert it.inside == it.wrong == []
    assert places(it.turnstile) == [FIRST] + [BESIDE] * beside


def test_each_place_that_is_given_back_goes_to_the_first_in_line():
    turnstile = Turnstile(1)
    first, beside, *waiting = (Ticket(turnstile) for _ in range(5))
    assert first.take() and beside.take() and (first.place, beside.place) == (FIRST, BESIDE)
    came = []
    for n, ticket in enumerate(waiting):
        ticket.join(lambda n=n: came.append((n, waiting[n].place)))
    assert places(turnstile) == came == []          # nobody overtakes,
    for ticket in (first, beside, waiting[0]):
        ticket.leave()
        ticket.leave()                              # a second time has no effect,
        assert places(turnstile) == []              # nor where a place has just become free
    assert came == [(0, FIRST), (1, BESIDE), (2, FIRST)]


def test_a_ticket_that_nobody_holds_any_more_gives_its_place_to_the_next():
    turnstile = Turnstile()
    ticket, following = Ticket(turnstile), Ticket(turnstile)
    assert ticket.take()
    woken = []
    following.join(lambda: woken.append(following.place))
    ticket = None
    gc.collect()
    assert woken == [FIRST] and ticket is None


def test_a_handler_that_raises_as_the_next_one_is_woken_does_not_keep_it_from_waking():
    turnstile = Turnstile()
    woken = []

    def wake():
        woken.append(following.place)
        if len(woken) == 1:
            raise Interrupt

    following = Ticket(turnstile)
    with pytest.raises(Interrupt), Ticket(turnstile):
        following.join(wake)
    assert woken == [FIRST, FIRST]


def test_a_turn_that_has_ended_goes_to_the_first_in_line():
    turnstile = Turnstile()
    held, first, second = (Ticket(turnstile) for _ in range(3))
    came = []
    assert held.take() and first.join(lambda: came.append("first")) and first.turn_ends is None
    assert second.join(lambda: came.append("second"))
    held.ends(moment := monotonic() + 0.05)
    assert came == ["first"] and (first.turn_ends, second.turn_ends) == (moment, None)
    first.leave()               # the next one looks when the turn ends
    assert came == ["first", "second"] and second.turn_ends == moment
    until(lambda: monotonic() >= moment)
    assert second.join(lambda: came.append("again")) is False and second.place == FIRST
    held.leave()
    held.ends(0.0)              # its turn is over
    assert places(turnstile) == [] and second.take()
    second.ends(0.0)
    assert places(turnstile) == [FIRST]


class Interrupt(Exception):
    """What a signal handler raises."""


FILES = {exchanges.__file__, turnstile.__file__}


def interrupted(call, at, error=Interrupt, files=FILES):
    """Whether call() was interrupted at the at-th line, call or return of these modules."""
    left = at

    def trace(frame, event, arg):
        nonlocal left
        if frame.f_code.co_filename not in files or "__del__" in (
                frame.f_code.co_name, frame.f_back.f_code.co_name):
            return None     # what is raised in a __del__ ends there
        if event == "exception":
            return trace
        left -= 1
        if left == 0:
            raise error("by a handler")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except error:
        return True
    finally:
        sys.settrace(before)
    return False


def test_more_places_are_for_those_in_line():
    turnstile = Turnstile()
    first, following = Ticket(turnstile), Ticket(turnstile)
    assert first.take()
    woken = []
    following.join(lambda: woken.append(following.place))
    turnstile.beside = 1
    assert woken == [BESIDE] and places(turnstile) == []


def test_in_a_forked_child_a_place_that_a_thread_has_is_no_reason_to_wait(linked):
    rep, req = linked("rep", "req", recv_timeout=LIMIT, correlate=False)
    asking = threading.Thread(target=req.request, args=(b"it",))
    asking.start()
    request = rep.recv_msg(timeout=LIMIT)
    pid = os.fork()
    if not pid:
        signal.alarm(LIMIT)
        status = 1
        try:
            for _ in range(2):
                with pytest.raises(mq.Forked):
                    req.request(b"child", timeout=None)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    request.reply(b"re")
    asking.join()


def test_a_survey_that_is_closed_in_line_is_over(surveyor):
    running, closed = surveyor.survey(b"first"), surveyor.survey(b"second")
    assert next(running) == b"first"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list, closed)
        assert until(lambda: closed._ticket.waits, LIMIT)
        closed.close()
        assert waiting.result(LIMIT) == [] and list(closed) == []

        closed = surveyor.survey(b"third")
        waiting = pool.submit(list, closed)
        assert until(lambda: closed._ticket.waits, LIMIT)
        running.close()         # now it has a place, and perhaps its thread does not know yet
        closed.close()
        assert waiting.result(LIMIT) in ([], [b"third"])
    with contextlib.closing(surveyor.survey(b"next")) as following:
        assert next(following) == b"next"
    assert places(surveyor._turnstile) == [FIRST]


def test_an_interrupted_close_of_a_survey_gives_its_place_back(surveyor):
    at = 1
    while True:
        survey = surveyor.survey(b"it")
        assert next(survey) == b"it"
        if not interrupted(survey.close, at):
            break
        survey.close()
        with contextlib.closing(surveyor.survey(b"next")) as following:
            assert next(following) == b"next"
        at += 1
    assert at > 5 and places(surveyor._turnstile) == [FIRST]


@pytest.mark.parametrize("correlate", [None, False])
def test_an_interrupted_request_leaves_the_socket_to_the_next_one(linked, correlate):
    rep, req = linked("rep", "req", recv_timeout=LIMIT, correlate=correlate)
    server = threading.Thread(target=answering, args=(rep,))
    server.start()
    at = 1
    while interrupted(lambda: req.request(b"it"), at):
        at += 1
        assert req.request(b"next") == b"next"
    assert at > 10
    assert len(places(req._turnstile)) == req._turnstile.beside + 1
    rep.close(0)
    server.join()


def test_an_interrupted_request_that_waits_for_its_turn_leaves_the_line(linked):
    rep, req = linked("rep", "req", recv_timeout=LIMIT, correlate=False)
    at = 1
    with Ticket(req._turnstile) as held:
        held.leave()
        with ThreadPoolExecutor(1) as pool:     # its own thread would be refused
            assert pool.submit(held.take).result()
        while True:
            with pytest.raises((Interrupt, mq.RecvTimeout)) as caught:
                if not interrupted(lambda: req.request(b"it", timeout=0.001), at):
                    raise mq.RecvTimeout("not interrupted")
                raise Interrupt
            if caught.type is mq.RecvTimeout:
                break
            at += 1
        assert at > 10 and held.place == FIRST
    assert places(req._turnstile) == [FIRST]


def test_an_interrupted_survey_leaves_the_socket_to_the_next_one(surveyor):
    at = 1
    while interrupted(lambda: next(surveyor.survey(b"it")), at):
        at += 1
        gc.collect()
        with_answer = surveyor.survey(b"next")
        assert next(with_answer) == b"next"
        with_answer.close()
    assert at > 10
    gc.collect()
    assert places(surveyor._turnstile) == [FIRST]


@pytest.mark.parametrize("error", [mq.StateError, mq.RecvTimeout])
def test_an_error_of_a_handler_anywhere_in_a_survey_is_no_normal_end(surveyor, error):
    """These are what a context raises when it is closed, or its survey over."""
    at = 1
    files = FILES | {survey.__file__}
    while interrupted(lambda: next(surveyor.survey(b"it")), at, error, files):
        at += 1
    assert at > 20
