"""REQ, REP and DEALER on the bench: envelopes, order, late answers, peers that leave."""

from struct import pack

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mqcore.protocols import dealer, rep, req
from mqcore.testing.native.pattern_bench import Bench, Event, Status

MORE, ENVELOPE = 1, 8


# -- REQ -------------------------------------------------------------------------------------------

def test_req_envelope_out_and_in():
    with Bench(req.pattern) as b:
        assert b.recv() is Status.STATE
        assert b.send(b"hi") is Status.AGAIN
        a = b.attach()
        assert b.send(b"hi", b"there") is Status.OK
        assert a.take() == [b"", b"hi", b"there"]
        assert b.recv() is Status.AGAIN
        assert b.query("can_recv") == 0
        a.put(b"", b"x", b"y")
        assert b.query("can_recv") == 1
        assert b.recv_flags() == [(b"x", MORE), (b"y", 0)]
        assert b.recv() is Status.STATE
        assert b.query("can_recv") == 0
        b.check()


def test_req_goes_round():
    with Bench(req.pattern) as b:
        fars = [b.attach() for _ in range(3)]
        for i in range(6):
            assert b.send(b"q") is Status.OK
            far = next(f for f in fars if f.queued_out)
            assert far is fars[i % 3]
            far.take()
            far.put(b"", b"a%d" % i)
            assert b.recv() == [b"a%d" % i]


def test_req_superseded_resets_the_link():
    with Bench(req.pattern) as b:
        a = b.attach()
        b.send(b"1")
        assert b.send(b"2") is Status.AGAIN      # the only link is to be reopened
        assert a.resets == 1
        assert b.recv() is Status.STATE
        a.put(b"", b"late")
        c = b.attach()
        assert b.send(b"2") is Status.OK
        assert c.take() == [b"", b"2"]
        a.put(b"", b"later")
        assert b.recv() is Status.AGAIN
        assert a.in_dropped == {"late_answer": 2}
        c.put(b"", b"two")
        assert b.recv() == [b"two"]
        assert c.resets == 0
        b.check()


def test_req_strict():
    with Bench(req.pattern, strict=True) as b:
        a = b.attach()
        b.send(b"1")
        assert b.query("can_send") == -1     # nor may it wait in line
        assert b.send(b"2") is Status.STATE
        a.put(b"", b"one")
        assert b.recv() == [b"one"]
        assert b.query("can_send") == 1
        assert b.send(b"2") is Status.OK
        b.abandon()
        assert a.resets == 1
        assert b.send(b"3") is Status.AGAIN


def test_req_an_answer_that_is_there_costs_no_link():
    with Bench(req.pattern) as b:
        a = b.attach()
        b.send(b"1")
        a.put(b"", b"one")
        assert b.send(b"2") is Status.OK
        assert (a.resets, a.in_dropped) == (0, {"late_answer": 1})
        a.put(b"", b"two")
        assert b.recv() == [b"two"]
        b.send(b"3")
        a.put(b"", b"three")
        assert b.query("can_recv") == 1          # reads it
        b.abandon()
        assert (a.resets, a.in_dropped) == (0, {"late_answer": 2})
        b.check()


def test_req_answered_twice():
    with Bench(req.pattern) as b:
        a = b.attach()
        b.send(b"1")
        a.put(b"", b"one")
        a.put(b"", b"one again")
        assert b.recv() == [b"one"]
        b.send(b"2")
        assert b.recv() is Status.AGAIN
        assert a.in_dropped == {"late_answer": 1}


def test_req_correlate_keeps_the_link():
    with Bench(req.pattern, correlate=True) as b:
        a = b.attach()
        b.send(b"1")
        first = a.take()
        assert b.send(b"2") is Status.OK
        second = a.take()
        assert a.resets == 0
        assert len(first[0]) == len(second[0]) == 4 and first[0] != second[0]
        assert first[1:] == [b"", b"1"]
        a.put(first[0], b"", b"one")
        assert b.recv() is Status.AGAIN
        a.put(b"", b"no id")
        a.put(second[0], b"two")
        a.put(second[0], b"")
        a.put(second[0], b"", b"two")
        a.put(second[0], b"", b"two again")
        assert b.recv() == [b"two"]
        b.send(b"3")
        assert b.recv() is Status.AGAIN
        assert a.in_dropped == {"late_answer": 2, "malformed": 3}
        b.check()


@pytest.mark.parametrize(
    "bad", [[b"x"], [b""], [b"x", b""], [b"x", b"", b"y"], [b"1234", b"", b"y"]])
def test_req_malformed_answers_are_dropped(bad):
    with Bench(req.pattern) as b:
        a = b.attach()
        b.send(b"1")
        a.put(*bad)
        assert b.recv() is Status.AGAIN
        assert a.in_dropped == {"malformed": 1}
        a.put(b"", b"good")
        assert b.recv() == [b"good"]


def test_req_only_who_was_asked_answers():
    with Bench(req.pattern) as b:
        a, c = b.attach(), b.attach()
        b.send(b"1")
        c.put(b"", b"not you")
        assert b.recv() is Status.AGAIN
        assert c.in_dropped == {"unexpected": 1}
        a.put(b"", b"me")
        assert b.recv() == [b"me"]


def test_req_peer_leaves_owing():
    with Bench(req.pattern) as b:
        a = b.attach()
        b.send(b"1")
        a.hangup()
        assert b.query("can_recv") == 1
        assert b.recv() is Status.GONE
        assert b.recv() is Status.STATE
        a.detach()
        a = b.attach()
        b.send(b"2")
        a.detach()
        a = b.attach()
        assert b.send(b"3") is Status.OK         # nobody need hear of the loss first
        a.put(b"", b"three")
        assert b.recv() == [b"three"]


@pytest.mark.parametrize("quiet", [False, True])
def test_req_peer_answers_and_leaves(quiet):
    with Bench(req.pattern) as b:
        a = b.attach()
        b.send(b"1")
        b.quiet = quiet
        a.put(b"", b"x" * 100)
        a.detach()
        assert b.query("can_recv") == 1
        assert b.recv() == [b"x" * 100]
        assert b.recv() is Status.STATE
        b.quiet = False
        a = b.attach()
        b.send(b"2")
        a.put(b"", b"y" * 100)
        a.detach()
        b.abandon()
        assert b.live_bodies == 0


def test_req_at_the_mark():
    with Bench(req.pattern, correlate=True) as b:
        b.attach(hwm=1)
        assert b.send(b"1") is Status.OK
        assert b.send(b"2") is Status.FULL
        assert b.recv() is Status.STATE          # the first one was given up all the same


@pytest.mark.parametrize("plugin", [req.pattern, dealer.pattern])
def test_probe(plugin):
    with Bench(plugin, probe=True) as b:
        assert b.attach().take() == [b""]
        assert b.set_option("nonsense", 1) is Status.UNSUPPORTED


class ReqMachine(RuleBasedStateMachine):
    """Peers that answer what they were asked: late, twice, from the grave. The application must
    only ever see the answer to its last request."""

    correlate = False

    def __init__(self):
        super().__init__()
        self.b = Bench(req.pattern, correlate=self.correlate)
        self.fars, self.todo = [], {}
        self.n, self.state, self.owes = 0, "idle", None

    def teardown(self):
        self.b.close()

    @rule(hwm=st.sampled_from([1, 3, 1000]))
    @precondition(lambda self: len(self.fars) < 4)
    def attach(self, hwm):
        far = self.b.attach(hwm=hwm)
        self.fars.append(far)
        self.todo[far.id] = []

    @rule()
    def send(self):
        self.n += 1
        before = {f.id: f.offered for f in self.fars}
        rc = self.b.send(b"%d" % self.n, b"x" * 60)
        assert rc in (Status.OK, Status.AGAIN, Status.FULL)
        if rc is Status.OK:
            self.state = "asked"
            self.owes, = [f for f in self.fars if f.offered > before[f.id]]
            assert not self.owes.resets and not self.owes.hung_up
        else:
            self.state = "idle"
            if rc is Status.AGAIN:
                assert all(f.hung_up or f.resets for f in self.fars)

    @rule(i=st.integers(0, 3))
    def peer_reads(self, i):
        if i < len(self.fars):
            self.todo[self.fars[i].id] += self.fars[i].take_all()

    @rule(i=st.integers(0, 3), k=st.integers(0, 5), again=st.booleans())
    def peer_answers(self, i, k, again):
        if i < len(self.fars) and not self.fars[i].hung_up:
            todo = self.todo[self.fars[i].id]
            if k < len(todo):
                request = todo[k] if again and self.correlate else todo.pop(k)
                self.fars[i].put(*request)       # an echo, envelope and all

    @rule(i=st.integers(0, 3))
    def peer_errs(self, i):
        if i < len(self.fars) and not self.fars[i].hung_up:
            self.fars[i].put(b"rubbish", b"")

    @rule()
    def recv(self):
        ready = self.b.query("can_recv")
        got = self.b.recv()
        if isinstance(got, list):
            assert self.state == "asked" and got == [b"%d" % self.n, b"x" * 60]
            self.state = "idle"
        elif got is Status.GONE:
            assert self.state == "asked" and self.owes.hung_up
            self.state = "idle"
        elif got is Status.STATE:
            assert self.state == "idle"
        else:
            assert got is Status.AGAIN and self.state == "asked" and not self.owes.hung_up
        assert ready == (isinstance(got, list) or got is Status.GONE)

    @rule()
    def abandon(self):
        self.b.abandon()
        self.state = "idle"
        if self.correlate:
            assert not any(f.resets for f in self.fars)

    @rule(i=st.integers(0, 3))
    def hangup(self, i):
        if i < len(self.fars):
            self.fars[i].hangup()

    @rule(i=st.integers(0, 3))
    def detach(self, i):
        if i < len(self.fars):
            self.fars.pop(i).detach()

    @invariant()
    def laws(self):
        self.b.check()


class ReqCorrelateMachine(ReqMachine):
    correlate = True


TestReq = ReqMachine.TestCase
TestReqCorrelate = ReqCorrelateMachine.TestCase
TestReq.settings = TestReqCorrelate.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None)


# -- REP -------------------------------------------------------------------------------------------

def test_rep_envelope():
    with Bench(rep.pattern) as b:
        a = b.attach()
        assert b.send(b"x") is Status.STATE
        assert b.query("can_send") == 0
        a.put(b"route", b"hop", b"", b"body", b"", b"tail")
        assert b.query("can_recv") == 1
        assert b.recv_flags() == [
            (b"route", MORE | ENVELOPE), (b"hop", MORE | ENVELOPE), (b"", MORE | ENVELOPE),
            (b"body", MORE), (b"", MORE), (b"tail", 0)]
        assert b.query("can_send") == 1
        assert b.send(b"answer", b"2") is Status.OK
        assert a.take_flags() == [(b"route", MORE), (b"hop", MORE), (b"", MORE), (b"answer", MORE),
                                  (b"2", 0)]
        assert b.send(b"x") is Status.STATE
        b.check()


def test_rep_answers_the_last_recv():
    with Bench(rep.pattern) as b:
        a, c = b.attach(), b.attach()
        a.put(b"", b"1")
        c.put(b"", b"2")
        assert b.recv() == [b"", b"1"]
        assert b.recv() == [b"", b"2"]
        assert b.send(b"two") is Status.OK
        assert c.take() == [b"", b"two"] and a.take() is None
        assert b.send_to(a.id, b"", b"one", envelope=1) is Status.OK
        assert a.take_flags() == [(b"", MORE), (b"one", 0)]   # the flag is ours alone


def test_rep_send_to_settles_the_plain_one():
    with Bench(rep.pattern) as b:
        a = b.attach()
        a.put(b"id", b"", b"1")
        b.recv()
        assert b.send_to(a.id, b"id", b"", b"one") is Status.OK
        assert b.send(b"twice") is Status.STATE
        a.put(b"id", b"", b"2")
        b.recv()
        b.send_to(a.id, b"other", b"", b"x")
        assert b.send(b"two") is Status.OK


@pytest.mark.parametrize("bad", [[b"x"], [b""], [b"x", b"y"], [b"x", b""]])
def test_rep_malformed_requests_are_dropped(bad):
    with Bench(rep.pattern) as b:
        a = b.attach()
        a.put(*bad)
        assert b.query("can_recv") == 0
        a.put(*bad)
        assert b.recv() is Status.AGAIN
        assert a.in_dropped == {"malformed": 2}
        b.check()


def test_rep_asker_is_gone():
    with Bench(rep.pattern) as b:
        a = b.attach()
        a.put(b"", b"1")
        a.put(b"", b"2" * 100)
        b.recv()
        a.hangup()
        assert b.send(b"one") is Status.DROPPED
        assert b.dropped == {"peer_gone": 1}
        assert b.query("can_recv") == 1
        assert b.recv() == [b"", b"2" * 100]
        a.detach()
        assert b.send_to(a.id, b"", b"two") is Status.NO_PEER
        assert b.dropped == {"peer_gone": 2}


def test_rep_asker_is_full():
    with Bench(rep.pattern) as b:
        a = b.attach(hwm=1)
        for _ in range(3):
            a.put(b"", b"q")
        for expected in (Status.OK, Status.DROPPED):
            b.recv()
            assert b.send(b"x" * 100) is expected
        b.recv()
        assert b.send_to(a.id, b"", b"x" * 100) is Status.DROPPED
        assert a.out_dropped == {"full": 2}
        b.check()


def test_rep_is_fair():
    with Bench(rep.pattern) as b:
        a, c = b.attach(), b.attach()
        for i in range(4):
            a.put(b"", b"a%d" % i)
        c.put(b"", b"c0")
        assert [m[1] for m in b.recv_all()] == [b"a0", b"c0", b"a1", b"a2", b"a3"]


# -- DEALER ----------------------------------------------------------------------------------------

def test_dealer_both_ways():
    with Bench(dealer.pattern) as b:
        assert b.send(b"x") is Status.AGAIN
        a, c = b.attach(hwm=2), b.attach(hwm=2)
        for i in range(4):
            assert b.send(b"", b"%d" % i) is Status.OK
        assert b.send(b"", b"4") is Status.FULL
        assert a.take_all() == [[b"", b"0"], [b"", b"2"]]
        assert c.take_all() == [[b"", b"1"], [b"", b"3"]]
        for i in range(3):
            a.put(b"a%d" % i)
        c.put(b"c0")
        assert [m[0] for m in b.recv_all()] == [b"a0", b"c0", b"a1", b"a2"]
        assert b.query("can_recv") == 0 and b.query("can_send") == 1
        b.check()


def test_dealer_failover_event():
    with Bench(dealer.pattern) as b:
        best = b.attach(prio=1)
        rest = b.attach(prio=2)
        best.hangup()
        assert b.events == [(Event.FAILED_OVER, best.id, pack("4I", rest.id, 1, 2, 0))]
        assert b.send(b"x") is Status.OK
        assert rest.queued_out == 1
