"""The tables of REQ and SURVEYOR against the code: every state meets every call and event."""

from contextlib import contextmanager

import pytest
from mqcore.protocols import req, surveyor
from mqcore.testing.native.pattern_bench import Bench, Status

SECOND = 10**9
LATER = 1 << 62              # than any time that a request is to be sent again at


def returned(status):
    return status.name if isinstance(status, Status) else "OK"


class Case:
    """A bench and the peer that the request went to."""

    def __init__(self, bench, far=None):
        self.bench, self.far, self.id = bench, far, b""

    def send(self):
        return returned(self.bench.send(b"q"))

    def recv(self):
        return returned(self.bench.recv())

    def abandon(self):
        self.bench.abandon()
        return ""


# -- REQ -------------------------------------------------------------------------------------------

class Req(Case):
    NAMES = {number: name for name, number, _ in req.STATES}

    @property
    def state(self):
        self.bench.query("can_recv")             # replies are read by a call
        return self.NAMES[self.bench.request]

    def ask(self):
        """Ids count up by one: this one is known though the peer has not read the request."""
        self.bench.send(b"first")
        first = self.far.take()[0]
        self.far.put(first, b"", b"a")
        assert self.bench.recv() == [b"a"] and self.bench.send(b"q") is Status.OK
        self.id = (int.from_bytes(first, "big") + 1 | 1 << 31).to_bytes(4, "big")

    def the_reply_comes(self):
        self.far.put(self.id, b"", b"a")
        return ""

    def its_peer_leaves(self):
        self.far.hangup()
        return ""

    def its_time_is_up(self):
        self.bench.ring(LATER)
        return ""

    def a_peer_connects(self):
        self.bench.attach()
        return ""

    def a_peer_has_room(self):
        self.far.take_all()
        return ""


@contextmanager
def requesting(state, *, kept=False, alone=False):
    """`kept`: the request may be sent again; `alone`: there is no other peer."""
    with Bench(req.pattern, resend=SECOND if kept else 0, correlate=True) as bench:
        case = Req(bench, bench.attach(prio=1, hwm=1))
        if state == "IDLE":
            case.id = bytes([255] * 4)
        else:
            case.ask()
        if state == "WAITS":
            case.its_time_is_up()                # and the only peer is full
        elif state == "ANSWERED":
            case.the_reply_comes()
        if state not in ("WAITS", "LEFT") and not alone:
            bench.attach(prio=2)
        elif state == "LEFT":
            bench.attach(prio=2)
            case.its_peer_leaves()
        assert case.state == state
        yield case
        bench.check()
        for far in list(bench.fars.values()):
            far.take_all()


REQ = {(state, event): rest for state, event, *rest in req.TRANSITIONS}
REQ_EVENTS = ["send", "recv", "abandon", "the reply comes", "its peer leaves",
              "its peer leaves, kept, alone", "its time is up, kept, alone", "a peer connects",
              "a peer has room"]


NOT_THERE = {("LEFT", "the reply comes")} | {      # no peer has the request
    (state, event) for state in ("WAITS", "LEFT") for event in REQ_EVENTS if "leaves" in event}


@pytest.mark.parametrize(("state", "event"), [
    (state, event) for state, *_ in req.STATES for event in REQ_EVENTS
    if (state, event) not in NOT_THERE])
def test_a_request(state, event):
    what, *circumstances = event.split(", ")
    kept = "kept" in circumstances and state != "LEFT"
    with requesting(state, kept=state == "WAITS" or kept,
                    alone="alone" in circumstances) as case:
        answer = getattr(case, what.replace(" ", "_"))()
        assert [case.state, answer] == REQ.get((state, event), [state, ""])


def test_a_kept_request_goes_to_another_peer():
    """Within ASKED: its time is up, or its peer leaves."""
    for lose in (Req.its_time_is_up, Req.its_peer_leaves):
        with requesting("ASKED", kept=True) as case:
            lose(case)
            assert case.state == "ASKED" and case.bench.query("resent") == 1


@pytest.mark.parametrize("state", [name for name, *_ in req.STATES])
def test_a_strict_request_is_not_superseded(state):
    with requesting(state, kept=state == "WAITS") as case:
        case.bench.set_option("strict", 1)
        free = state in ("IDLE", "LEFT")
        assert case.send() == ("OK" if free else "STATE")
        assert case.state == ("ASKED" if free else state)


# -- SURVEYOR --------------------------------------------------------------------------------------

class Survey(Case):
    NAMES = {number: name for name, number, _ in surveyor.STATES}

    @property
    def state(self):
        return self.NAMES[self.bench.survey]

    def answer(self):
        self.far.put(self.id, b"", b"a")
        self.bench.query("can_recv")             # read, and queued where it belongs
        return ""

    def the_deadline_passes(self):
        if self.bench.alarm():
            self.bench.ring()
        return ""


@contextmanager
def surveying(state, *, answered=False):
    with Bench(surveyor.pattern, deadline=3600 * SECOND) as bench:
        case = Survey(bench, bench.attach())
        case.id = bytes([255] * 4)
        if state != "IDLE":
            assert bench.send(b"q") is Status.OK
            case.id = case.far.take()[0]
        if answered:
            case.answer()
        if state == "OVER":
            case.the_deadline_passes()
        assert case.state == state
        yield case
        bench.check()
        case.far.take_all()


SURVEY = {(state, event): rest for state, event, *rest in surveyor.TRANSITIONS}
SURVEY_EVENTS = ["send", "recv", "recv, answered", "abandon", "answer", "the deadline passes"]


@pytest.mark.parametrize("state", [name for name, *_ in surveyor.STATES])
@pytest.mark.parametrize("event", SURVEY_EVENTS)
def test_a_survey(state, event):
    what, _, circumstance = event.partition(", ")
    if circumstance == "answered" and state == "IDLE":
        event = "recv"                           # the answer is late
    with surveying(state, answered=circumstance == "answered") as case:
        answer = getattr(case, what.replace(" ", "_"))()
        assert [case.state, answer] == SURVEY.get((state, event), [state, ""])


# -- the tables ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("module", "table", "events"), [
    (req, REQ, REQ_EVENTS), (surveyor, SURVEY, SURVEY_EVENTS)], ids=["req", "surveyor"])
def test_a_table_speaks_of_what_is_driven(module, table, events):
    names = {name for name, *_ in module.STATES}
    assert len(table) == len(module.TRANSITIONS), "a pair is there twice"
    assert {state for state, _ in table} == names == {then for then, _ in table.values()}
    assert {event for _, event in table} <= set(events)
