"""REQ on the bench: contexts, numbers, requests that are sent again."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from mqcore.protocols import req
from mqcore.testing.native.pattern_bench import Bench, Event, Status

SECOND = 10**9


def bench(**options):
    b = Bench(req.pattern, **options)
    for context in (1, 2):
        assert b.open(context) is Status.OK
    return b


def test_contexts_ask_at_once():
    with bench() as b:
        a = b.attach()
        assert b.send(b"x", context=3) is Status.INVALID
        assert b.recv(1) is Status.STATE
        for context in (1, 2):
            assert b.send(b"q%d" % context, context=context) is Status.OK
        one, two = a.take_all()
        assert (one[1:], two[1:]) == ([b"", b"q1"], [b"", b"q2"])
        assert one[0] != two[0] and all(len(id) == 4 and id[0] & 0x80 for id in (one[0], two[0]))
        assert a.owed == 2 and b.recv(1) is b.recv(2) is Status.AGAIN
        a.put(two[0], b"", b"a2")
        assert (b.query("can_recv", context=1), b.query("can_recv", context=2)) == (0, 1)
        assert b.recv() is Status.STATE
        a.put(one[0], b"", b"a1")
        assert (b.recv(1), b.recv(2)) == ([b"a1"], [b"a2"])
        assert a.owed == 0
        b.check()


def test_what_a_context_gives_up_is_its_own():
    with bench() as b:
        a = b.attach()
        for context in (1, 2):
            b.send(b"q", context=context)
        one, two = a.take_all()
        b.abandon(1)
        assert b.recv(1) is Status.STATE and a.owed == 1
        a.put(one[0], b"", b"late")
        a.put(two[0], b"", b"x" * 100)
        assert b.recv(2) == [b"x" * 100]
        b.send(b"q", context=2)
        a.put(a.take()[0], b"", b"y" * 100)
        assert b.query("can_recv", context=2) == 1
        b.shut(2)                                # with its answer in hand
        assert b.send(b"q", context=2) is Status.INVALID
        assert a.in_dropped == {"late_answer": 2} and a.resets == 0 and b.live_bodies == 0


def test_the_sockets_own_requests_are_numbered_once_there_is_a_context():
    with Bench(req.pattern) as b:
        a = b.attach()
        b.send(b"q")
        assert len(a.take()) == 2
        b.open(1)
        b.send(b"q")                             # the first one was not
        assert a.resets == 1
        a = b.attach()
        b.send(b"q")
        assert len(a.take()) == 3
        b.abandon()
        assert a.resets == 0
    with Bench(req.pattern, correlate=False) as b:
        b.open(1)
        a = b.attach()
        b.send(b"q")
        assert len(a.take()) == 2


def test_sp_peers_are_sent_numbers():
    with Bench(req.pattern, correlate=False) as b:
        a = b.attach(sp=True)
        b.send(b"q")
        first = a.take()
        assert len(first) == 3
        a.detach()                               # at once to the next peer, by default
        c = b.attach()
        assert c.take() == first
        assert b.query("resent") == 1 and b.recv() is Status.AGAIN
        c.put(*first[:2], b"a")
        assert b.recv() == [b"a"]
        b.send(b"q")
        assert len(c.take()) == 2                # nobody is SP any more


def test_resent_in_time_to_another():
    with Bench(req.pattern, resend=10 * SECOND) as b:
        a, c = b.attach(), b.attach()
        assert b.alarm() == 0
        b.send(b"q", b"2")
        first = a.take()
        due = b.alarm()
        assert due and b.ring(due - SECOND) == due and c.take() is None
        assert b.ring() > due
        assert c.take() == first and b.query("resent") == 1
        assert (a.owed, c.owed) == (0, 1)
        assert (Event.FAILED_OVER, a.id) in [event[:2] for event in b.events]
        a.put(*first[:2], b"from a")             # who was silent may still be first
        assert b.recv() == [b"from a"]
        assert (Event.FAILED_BACK, a.id) in [event[:2] for event in b.events]
        c.put(*first[:2], b"from c")
        assert b.recv() is Status.STATE and c.owed == 0
        b.send(b"next")
        assert c.in_dropped == {"late_answer": 1}
        b.check()


def test_an_answer_that_nobody_took_yet_is_one():
    with Bench(req.pattern, resend=SECOND) as b:
        a = b.attach()
        b.send(b"q")
        b.quiet = True
        a.put(*a.take()[:2], b"a")
        b.wake()
        assert b.ring() == 0 and a.take() is None
        assert b.recv() == [b"a"] and b.query("resent") == 0


def test_resent_when_the_link_dies_and_when_somebody_comes():
    with Bench(req.pattern, resend=SECOND) as b:
        a, c = b.attach(), b.attach(hwm=1)
        b.send(b"1" * 100)
        first = a.take()
        c.put(b"", b"unasked")
        b.open(1)
        b.send(b"2", context=1)                  # c is full now
        a.hangup()
        assert b.query("can_recv") == 0 and b.recv() is Status.AGAIN
        assert c.take()[2] == b"2"
        assert c.take() == first                 # there was room
        c.detach()
        a.detach()
        assert b.recv() is b.recv(1) is Status.AGAIN
        assert b.alarm() == 0 or b.ring() == 0   # nobody to ask: no hurry
        d = b.attach()
        second = [(int.from_bytes(first[0], "big") + 1 | 1 << 31).to_bytes(4, "big"), b"", b"2"]
        assert sorted(d.take_all()) == sorted([first, second])
        d.put(*first[:2], b"a")
        assert b.recv() == [b"a"]
        b.abandon(1)
        assert b.live_bodies == 0 and d.owed == 0


def test_never_resent():
    with bench(resend=0) as b:
        a = b.attach(sp=True)
        b.send(b"q", context=1)
        assert b.alarm() == 0
        a.detach()
        assert b.recv(1) is Status.GONE
        b.send(b"q", context=2)
        assert b.attach().take() is None         # waiting for a peer is the socket's business


class Asks(RuleBasedStateMachine):
    """Contexts that ask, peers that answer: late, twice, out of order, from the grave. Whoever asks
    sees the answer to his last request, once, and while anybody may have it nothing is lost."""

    contexts = (0, 1, 2)

    @initialize(resend=st.sampled_from([0, SECOND]))
    def start(self, resend):
        self.b = bench(resend=resend, correlate=True)
        self.resends = resend != 0
        self.fars, self.todo, self.n = [], {}, 0
        self.asked = dict.fromkeys(self.contexts)

    def teardown(self):
        if hasattr(self, "b"):
            self.b.close()

    @rule(hwm=st.sampled_from([1, 3, 1000]), sp=st.booleans())
    def attach(self, hwm, sp):
        if len(self.fars) < 4:
            far = self.b.attach(hwm=hwm, sp=sp)
            self.fars.append(far)
            self.todo[far.id] = []

    @rule(c=st.sampled_from(contexts))
    def send(self, c):
        self.n += 1
        body = b"%d" % self.n + b"x" * 60
        rc = self.b.send(body, context=c)
        assert rc in (Status.OK, Status.AGAIN, Status.FULL)
        self.asked[c] = body if rc is Status.OK else None

    @rule(i=st.integers(0, 3))
    def peer_reads(self, i):
        if i < len(self.fars):
            self.todo[self.fars[i].id] += self.fars[i].take_all()

    @rule(i=st.integers(0, 3), k=st.integers(0, 5), again=st.booleans())
    def peer_answers(self, i, k, again):
        if i < len(self.fars) and not self.fars[i].hung_up:
            todo = self.todo[self.fars[i].id]
            if k < len(todo):
                self.fars[i].put(*(todo[k] if again else todo.pop(k)))

    @rule(c=st.sampled_from(contexts))
    def recv(self, c):
        ready = self.b.query("can_recv", context=c)
        got = self.b.recv(c)
        if isinstance(got, list):
            assert got == [self.asked[c]]
            self.asked[c] = None
        elif got is Status.GONE:
            assert self.asked[c] and not self.resends
            self.asked[c] = None
        else:
            assert got is (Status.AGAIN if self.asked[c] else Status.STATE)
        assert ready == (isinstance(got, list) or got is Status.GONE)

    @rule(c=st.sampled_from(contexts))
    def abandon(self, c):
        self.b.abandon(c)
        self.asked[c] = None

    @rule(c=st.sampled_from(contexts[1:]))
    def reopen(self, c):
        self.b.shut(c)
        self.b.open(c)
        self.asked[c] = None

    @rule()
    def ring(self):
        if self.b.alarm():
            self.b.ring()

    @rule(i=st.integers(0, 3))
    def hangup(self, i):
        if i < len(self.fars):
            self.fars[i].hangup()

    @rule(i=st.integers(0, 3))
    def detach(self, i):
        if i < len(self.fars):
            self.fars.pop(i).detach()

    @rule()
    def everybody_answers(self):
        """A good peer comes: whatever may be resent is answered in the end."""
        if not self.resends:
            return
        while self.fars:
            self.fars.pop().detach()
        far = self.b.attach()
        self.fars.append(far)
        for request in far.take_all():
            far.put(*request)
        self.todo[far.id] = []
        for c, body in self.asked.items():
            if body:
                assert self.b.recv(c) == [body]
                self.asked[c] = None

    @invariant()
    def laws(self):
        if hasattr(self, "b"):
            self.b.check()
            assert all(f.resets == 0 for f in self.fars)
            assert all(0 <= f.owed <= len(self.contexts) for f in self.fars)


TestAsks = Asks.TestCase
TestAsks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
