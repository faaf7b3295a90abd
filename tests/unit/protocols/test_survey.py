"""SURVEYOR and RESPONDENT on the bench: ids, deadlines, late answers, contexts, raw modes, hops."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mqcore.protocols import rep, respondent, router, surveyor
from mqcore.testing.native.pattern_bench import Bench, Status

ENVELOPE, ROUTING_ID = 8, 16
LONG = 10**15      # ns
HOP = b"\0\0\0\0\7"


def asked(far):
    """The id of the survey that this peer was sent last, and its body."""
    number, empty, *body = far.take()
    assert len(number) == 4 and number[0] & 0x80 and empty == b""
    return number, body


@pytest.fixture
def bench():
    with Bench(surveyor.pattern, deadline=LONG) as b:
        yield b
        b.check()


# -- SURVEYOR --------------------------------------------------------------------------------------

def test_a_survey_goes_to_all_and_all_answer(bench):
    fars = [bench.attach() for _ in range(3)]
    assert bench.recv() is Status.STATE and bench.query("can_recv") == 0
    assert bench.send(b"who", b"?") is Status.OK
    for i, far in enumerate(fars):
        number, body = asked(far)
        assert body == [b"who", b"?"]
        far.put(number, b"", b"%d" % i, b"x")
    assert sorted(bench.recv_all()) == [[b"%d" % i, b"x"] for i in range(3)]
    assert bench.recv() is Status.AGAIN


def test_a_full_peer_misses_it_and_nobody_is_counted(bench):
    assert bench.send(b"0") is Status.OK and bench.unmatched == 1
    slow, quick = bench.attach(hwm=1), bench.attach()
    for n in range(3):
        bench.send(b"%d" % n)
    assert (slow.queued_out, slow.out_dropped) == (1, {"full": 2})
    assert quick.queued_out == 3


def test_late_unknown_and_malformed_answers(bench):
    a, b = bench.attach(), bench.attach()
    bench.send(b"1")
    first, _ = asked(a)
    bench.send(b"2")
    second, _ = asked(a)
    assert first != second
    a.put(first, b"", b"late")
    b.put(b"\xff\xff\xff\xff", b"", b"unknown")
    a.put(second, b"", b"in time")
    b.put(b"\x7f\0\0\0", b"", b"no id")
    b.put(second, b"")
    b.put(b"alone")
    assert bench.recv_all() == [[b"in time"]]
    assert a.in_dropped == {"late_answer": 1}
    assert b.in_dropped == {"late_answer": 1, "malformed": 3}


def test_the_deadline_is_told_once(bench):
    a = bench.attach()
    bench.send(b"q")
    number, _ = asked(a)
    a.put(number, b"", b"1")
    a.put(number, b"", b"2")
    assert bench.recv() == [b"1"]
    when = bench.alarm()
    assert bench.ring(when - 1) == when     # not yet
    assert bench.ring(when) == 0
    a.put(number, b"", b"3")                # after the deadline, dropped without a receive
    assert a.in_dropped == {"late_answer": 1}
    assert bench.query("can_recv") == 1
    assert bench.recv() == [b"2"]           # came in time
    assert bench.query("can_recv") == 1
    assert bench.recv() is Status.OVER
    assert bench.recv() is Status.STATE and bench.query("can_recv") == 0


def test_a_receive_looks_at_the_clock_itself(bench):
    a = bench.attach()
    assert bench.set_option("deadline", 0) is Status.OK
    bench.send(b"q")
    number, _ = asked(a)
    a.put(number, b"", b"there already")
    assert bench.recv() == [b"there already"]
    assert bench.recv() is Status.OVER


def test_abandoned(bench):
    a = bench.attach()
    bench.send(b"q")
    number, _ = asked(a)
    a.put(number, b"", b"1")
    bench.abandon()
    assert bench.recv() is Status.STATE
    a.put(number, b"", b"2")
    assert a.in_dropped == {"late_answer": 2}


def test_contexts_survey_at_once(bench):
    a, b = bench.attach(), bench.attach()
    for c in (1, 2):
        assert bench.open(c) is Status.OK
    numbers = []
    for c in (0, 1, 2):
        assert bench.send(b"q%d" % c, context=c) is Status.OK
        numbers.append(asked(a)[0])
        assert asked(b)[0] == numbers[-1]
    assert len(set(numbers)) == 3
    for far in (a, b):
        for c in (2, 1, 0, 1):
            far.put(numbers[c], b"", b"%d" % c, b"x")
    assert bench.recv_all(context=1) == [[b"1", b"x"]] * 4
    assert bench.query("can_recv", context=2) == 1
    assert bench.recv(context=0) == [b"0", b"x"]
    bench.check()
    bench.send(b"again", context=0)         # cancels the socket's own alone
    bench.shut(2)
    assert bench.recv(context=0) is Status.AGAIN
    assert bench.recv(context=2) is Status.STATE
    assert bench.send(b"q", context=2) is Status.STATE
    a.put(numbers[2], b"", b"2")
    assert bench.recv(context=1) is Status.AGAIN
    dropped = sum(far.in_dropped["late_answer"] for far in (a, b))
    assert dropped == 1 + 2 + 1             # own, context 2's queue, what came for it after


def test_each_context_has_its_deadline(bench):
    bench.attach()
    bench.open(1)
    bench.send(b"q")
    bench.set_option("deadline", LONG // 2)
    bench.send(b"q", context=1)
    first = bench.alarm()
    later = bench.ring(first)
    assert later > first
    assert bench.recv(context=1) is Status.OVER
    assert bench.recv() is Status.AGAIN
    assert bench.ring(later) == 0
    assert bench.recv() is Status.OVER


def test_a_queue_has_an_end(bench):
    """Answers of a survey that nobody reads, beside one that is read: as many as its marks say."""
    bench.open(1)
    a = bench.attach(hwm_in=3)
    bench.send(b"q", context=1)
    number, _ = asked(a)
    bench.send(b"q")
    for n in range(5):
        a.put(number, b"", b"%d" % n)
    assert bench.recv() is Status.AGAIN     # has read them all
    assert a.in_dropped == {"full": 2}
    assert bench.recv_all(context=1) == [[b"0"], [b"1"], [b"2"]]


def test_who_left_has_answered(bench):
    a, b = bench.attach(), bench.attach()
    bench.open(1)
    bench.send(b"q", context=1)
    bench.send(b"r")
    for far in (a, b):
        number, _ = asked(far)
        far.put(number, b"", b"1")
        far.hangup()
    assert bench.recv() is Status.AGAIN     # both are in the other's queue now
    a.detach()
    bench.shut(1)
    assert b.in_dropped == {"late_answer": 1}
    assert bench.dropped == {"late_answer": 1}


# -- RESPONDENT ------------------------------------------------------------------------------------

def test_respondent_is_a_rep():
    with Bench(respondent.pattern) as b:
        a, c = b.attach(), b.attach()
        assert b.send(b"x") is Status.STATE
        a.put(b"\x80\0\0\1", b"", b"q", b"2")
        assert b.recv_flags() == [(b"\x80\0\0\1", 9), (b"", 9), (b"q", 1), (b"2", 0)]
        assert b.send(b"answer") is Status.OK
        assert a.take() == [b"\x80\0\0\1", b"", b"answer"]
        c.put(HOP, b"\x80\0\0\2", b"", b"q")
        b.recv()
        assert b.send_to(c.id, HOP, b"\x80\0\0\2", b"", b"later", envelope=3) is Status.OK
        assert c.take() == [HOP, b"\x80\0\0\2", b"", b"later"]
        b.check()


@pytest.mark.parametrize("pattern", [rep.pattern, respondent.pattern, router.pattern],
                         ids=lambda p: p.name)
def test_hop_limit(pattern):
    """So many words, the id included, and no more; a ROUTER minds it with SP peers alone."""
    with Bench(pattern, max_hops=3) as b:
        a = b.attach(sp=True)
        front = 1 if pattern.name == "router" else 0
        a.put(HOP, HOP, HOP, b"\x80\0\0\1", b"", b"too far")
        a.put(HOP, HOP, b"\x80\0\0\1", b"", b"fits")
        assert b.query("can_recv") == 1
        assert b.recv()[front:] == [HOP, HOP, b"\x80\0\0\1", b"", b"fits"]
        a.put(HOP, HOP, HOP, b"\x80\0\0\1", b"", b"too far")
        assert b.query("can_recv") == 0 and b.recv() is Status.AGAIN
        assert a.in_dropped == {"hop_limit": 2}
        if front:
            z = b.attach()
            z.put(*[HOP] * 9, b"", b"fits")
            assert len(b.recv()) == 12
        b.check()


# -- raw -------------------------------------------------------------------------------------------

def test_raw_surveyor_changes_nothing(bench):
    fars = [bench.attach() for _ in range(2)]
    bench.send(b"cancelled")
    number, _ = asked(fars[0])
    assert bench.set_option("raw", 1) is Status.OK
    assert bench.send(HOP, b"\x80\0\0\1", b"", b"q") is Status.OK
    fars[1].take()
    assert [far.take() for far in fars] == [[HOP, b"\x80\0\0\1", b"", b"q"]] * 2
    fars[0].put(number, b"", b"as it is")
    fars[1].put(b"whatever")
    assert bench.query("can_recv") == 1
    assert sorted(bench.recv_all()) == sorted([[number, b"", b"as it is"], [b"whatever"]])
    bench.set_option("raw", 0)
    assert bench.recv() is Status.STATE


def test_raw_respondent_puts_a_hop_in_front():
    with Bench(respondent.pattern, max_hops=3) as b:
        a, c = b.attach(), b.attach()
        a.put(b"\x80\0\0\1", b"", b"read before")
        assert b.query("can_recv") == 1
        b.set_option("raw", 1)
        hop = b"\0\0\0\0\1"
        assert b.recv_flags() == [(hop, ROUTING_ID | 1), (b"\x80\0\0\1", 1), (b"", 1),
                                  (b"read before", 0)]
        c.put(HOP, b"\x80\0\0\2", b"", b"q")
        c.put(HOP, HOP, HOP, b"\x80\0\0\2", b"", b"too far")
        got = b.recv()
        assert got == [b"\0\0\0\0\2", HOP, b"\x80\0\0\2", b"", b"q"]
        assert b.recv() is Status.AGAIN and c.in_dropped == {"hop_limit": 1}
        assert b.send(*got[:-1], b"answer") is Status.OK
        assert c.take() == [HOP, b"\x80\0\0\2", b"", b"answer"] and a.take() is None
        assert b.send(b"\0\0\0\0\x63", b"\x80\0\0\2", b"", b"x") is Status.DROPPED
        assert b.dropped == {"peer_gone": 1}
        for bad in ((b"\x80\0\0\1", b"", b"x"), (HOP,), (b"\0\x80\0\0\1", b"", b"x")):
            assert b.send(*bad) is Status.INVALID
        b.check()


def test_the_other_raw_ones_refuse():
    with Bench(rep.pattern) as b:
        assert b.set_option("raw", 1) is Status.UNSUPPORTED


# -- anything at any time --------------------------------------------------------------------------

class Surveys(RuleBasedStateMachine):
    """Each answer goes to the survey it was given to, as long as that is open."""

    def __init__(self):
        super().__init__()
        self.b = Bench(surveyor.pattern, deadline=LONG)
        self.contexts = [0]
        self.open = {}             # context: (id, answers it must still give)
        self.seen = []             # all ids
        self.n = 0

    @rule()
    @precondition(lambda self: len(self.b.fars) < 4)
    def come(self):
        self.b.attach()

    @rule(i=st.integers(0, 9), gently=st.booleans())
    @precondition(lambda self: self.b.fars)
    def leave(self, i, gently):
        far = list(self.b.fars.values())[i % len(self.b.fars)]
        far.hangup()
        if not gently and far.queued_in == 0:
            far.detach()

    @rule()
    @precondition(lambda self: len(self.contexts) < 4)
    def begin(self):
        self.contexts.append(max(self.contexts) + 1 if len(self.contexts) > 1 else self.n + 1)
        self.n = max(self.n, self.contexts[-1])
        assert self.b.open(self.contexts[-1]) is Status.OK

    @rule(i=st.integers(0, 9))
    @precondition(lambda self: len(self.contexts) > 1)
    def end(self, i):
        context = self.contexts.pop(1 + i % (len(self.contexts) - 1))
        self.b.shut(context)
        self.open.pop(context, None)

    @rule(i=st.integers(0, 9))
    def ask(self, i):
        context = self.contexts[i % len(self.contexts)]
        there = [far for far in self.b.fars.values() if not far.hung_up]
        assert self.b.send(b"%d" % context, context=context) is Status.OK
        self.open.pop(context, None)
        for far in there:
            number, body = asked(far)
            assert body == [b"%d" % context]
            self.open[context] = (number, [])
            self.seen.append(number)

    @rule(i=st.integers(0, 9), which=st.integers(0, 30))
    @precondition(lambda self: self.seen and any(not f.hung_up for f in self.b.fars.values()))
    def answer(self, i, which):
        there = [far for far in self.b.fars.values() if not far.hung_up]
        number = self.seen[which % len(self.seen)]
        self.n += 1
        body = b"%d" % self.n
        there[i % len(there)].put(number, b"", body)
        for known, wanted in self.open.values():
            if known == number:
                wanted.append(body)

    @rule(i=st.integers(0, 9))
    def hear(self, i):
        context = self.contexts[i % len(self.contexts)]
        got = self.b.recv(context=context)
        if context in self.open:
            _, wanted = self.open[context]
            if wanted:
                wanted.remove(got[0])
            else:
                assert got is Status.AGAIN

    @rule()
    def over(self):
        """Everything's deadline: what is there is still given, then that it is over."""
        self.b.ring(1 << 62)
        for context, (_, wanted) in self.open.items():
            got = [parts[0] for parts in self.b.recv_all(context=context)]
            assert sorted(got) == sorted(wanted)
            assert self.b.recv(context=context) is Status.STATE
        self.open = {}
        for context in self.contexts:      # those that nobody was there for
            self.b.recv(context=context)

    @invariant()
    def accounts(self):
        self.b.check()

    def teardown(self):
        self.b.close()


TestSurveys = Surveys.TestCase
TestSurveys.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
