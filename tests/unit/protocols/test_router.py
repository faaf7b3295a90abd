"""ROUTER on the bench: ids given and made, mandatory, handover; a machine against a dict."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from mqcore.protocols import router
from mqcore.testing.native.pattern_bench import Bench, Event, Refused, Status

MORE, ROUTING_ID = 1, 16


def test_made_ids_count_up():
    with Bench(router.pattern) as b:
        fars = [b.attach() for _ in range(3)]
        ids = []
        for far in fars:
            far.put(b"x")
            ids.append(b.recv()[0])
        assert all(len(i) == 5 and i[0] == 0 for i in ids)
        numbers = [int.from_bytes(i[1:], "big") for i in ids]
        assert numbers == [(numbers[0] + k) % 2**32 for k in range(3)]
        for i, far in zip(ids, fars, strict=True):
            assert b.send(i, b"to", b"you") is Status.OK
            assert far.take() == [b"to", b"you"]


@pytest.mark.parametrize("name", [b"a", b"\x00zero", b"x" * 56, b"x" * 57, b"x" * 300])
def test_announced_ids(name):
    with Bench(router.pattern) as b:
        a = b.attach(name)
        a.put(b"m", b"n")
        assert b.recv_flags() == [(name, ROUTING_ID | MORE), (b"m", MORE), (b"n", 0)]
        assert b.send(name, b"y") is Status.OK
        assert a.take() == [b"y"]
        assert b.send_to(a.id, b"", b"z") is Status.OK
        assert a.take() == [b"", b"z"]
        b.check()


def test_mandatory_is_the_default():
    with Bench(router.pattern) as b:
        assert b.send(b"nobody", b"x") is Status.NO_PEER
        assert b.send_to(77, b"x") is Status.NO_PEER
        assert b.send(b"alone") is Status.INVALID
        a = b.attach(b"a", hwm=1)
        assert b.send(b"alone") is Status.INVALID
        b.send(b"a", b"1")
        assert b.send(b"a", b"2") is Status.FULL
        assert b.send_to(a.id, b"2") is Status.FULL
        a.take()
        assert b.send(b"a", b"2") is Status.OK
        a.hangup()
        assert b.send(b"a", b"3") is Status.NO_PEER
        assert b.send_to(a.id, b"3") is Status.NO_PEER
        assert b.dropped == {}


def test_not_mandatory_drops_and_counts():
    with Bench(router.pattern, mandatory=False) as b:
        assert b.send(b"nobody", b"x" * 100) is Status.DROPPED
        assert b.dropped == {"no_peer": 1}
        a = b.attach(b"a", hwm=1)
        b.send(b"a", b"1" * 100)
        assert b.send(b"a", b"2" * 100, b"3" * 100) is Status.DROPPED
        assert a.out_dropped == {"full": 1}
        b.check()


def test_handover_is_the_default():
    with Bench(router.pattern) as b:
        old = b.attach(b"same")
        old.put(b"from the old one")
        new = b.attach(b"same")
        assert (old.resets, new.resets) == (1, 0)
        assert [e[:2] for e in b.events] == [(Event.REFUSED, old.id)]
        b.send(b"same", b"x")
        assert (old.take(), new.take()) == (None, [b"x"])
        assert b.send_to(old.id, b"x") is Status.NO_PEER
        assert b.recv() == [b"same", b"from the old one"]
        old.detach()
        b.send(b"same", b"y")
        assert new.take() == [b"y"]


def test_a_peer_with_two_links_does_not_take_its_id_from_itself_for_ever():
    with Bench(router.pattern) as b:
        first = b.attach(b"same")
        second = b.attach(b"same")
        first.hangup()
        again = b.attach(b"same")
        assert (first.resets, second.resets, again.resets) == (1, 0, 0)
        assert [e[:2] for e in b.events] == [(Event.REFUSED, first.id), (Event.REFUSED, again.id)]
        second.put(b"2")
        again.put(b"3")
        assert sorted([b.recv(), b.recv()]) == [[b"same", b"2"], [b"same", b"3"]]
        b.send(b"same", b"x")
        assert (second.take(), again.take()) == ([b"x"], None)
        b.send_to(again.id, b"y")
        assert again.take() == [b"y"]
        second.hangup()
        b.send(b"same", b"z")
        assert again.take() == [b"z"]
        newest = b.attach(b"same")              # the id was free when `again` got it
        assert (again.resets, newest.resets) == (1, 0)


def test_no_handover_refuses_the_newer():
    with Bench(router.pattern, handover=False) as b:
        old = b.attach(b"same")
        with pytest.raises(Refused):
            b.attach(b"same")
        assert [e[0] for e in b.events] == [Event.REFUSED]
        b.send(b"same", b"x")
        assert old.take() == [b"x"] and old.resets == 0
        old.hangup()
        new = b.attach(b"same")
        b.send(b"same", b"y")
        assert new.take() == [b"y"]


def test_probe_and_options():
    with Bench(router.pattern, probe=True) as b:
        a = b.attach(b"a")
        assert a.take() == [b""]
        a.put(b"")
        assert b.recv() == [b"a", b""]
        assert b.set_option("nonsense", 1) is Status.UNSUPPORTED
        assert b.query("can_send") == 1 and b.query("can_recv") == 0


def test_a_made_id_that_somebody_announced_is_passed_over():
    with Bench(router.pattern) as b:
        a = b.attach()
        a.put(b"x")
        made = b.recv()[0]
        following = b"\0" + ((int.from_bytes(made[1:], "big") + 1) % 2**32).to_bytes(4, "big")
        thief = b.attach(following)
        c = b.attach()
        c.put(b"y")
        assert b.recv()[0] not in (made, following)
        assert thief.resets == 0


def test_a_thousand_peers():
    with Bench(router.pattern) as b:
        fars = {b"%d" % i: b.attach(b"%d" % i) for i in range(1000)}
        for i in range(0, 1000, 3):
            fars.pop(b"%d" % i).detach()
        for name, far in fars.items():
            assert b.send(name, name) is Status.OK
            assert far.take() == [name]
            assert b.send_to(far.id, b"2") is Status.OK
        assert b.send(b"0", b"x") is Status.NO_PEER


NAMES = [None, b"a", b"b", b"c" * 60]


class RouterMachine(RuleBasedStateMachine):
    handover, mandatory = True, True

    def __init__(self):
        super().__init__()
        self.b = Bench(router.pattern, handover=self.handover, mandatory=self.mandatory)
        self.fars, self.ids, self.named, self.put = [], {}, {}, {}
        self.lost = 0
        self.took = set()            # of those that took their name from another
        self.seconds = {}            # name: links that wait for it

    def teardown(self):
        self.b.close()

    @rule(name=st.sampled_from(NAMES), hwm=st.integers(1, 3))
    def attach(self, name, hwm):
        old = self.named.get(name)
        try:
            far = self.b.attach(name, hwm=hwm)
        except Refused:
            assert old is not None and not self.handover
            return
        second = old is not None and old.id in self.took
        assert old is None or self.handover and old.resets == (not second)
        far.put(b"hello")
        self.put[far.id] = [[b"hello"]]
        self.fars.append(far)
        self.ids[far.id] = name
        if second:
            self.seconds.setdefault(name, []).append(far)
        elif name:
            self.named[name] = far
            if old is not None:
                self.took.add(far.id)

    @rule(i=st.integers(0, 9))
    def recv(self, i):
        waiting = sum(f.queued_in for f in self.fars)
        assert self.b.query("can_recv") == (waiting > 0)
        got = self.b.recv()
        assert (got is Status.AGAIN) == (waiting == 0)
        if waiting:
            peer = self.b.peer
            assert got[1:] == self.put[peer].pop(0)
            if self.ids[peer] is None:           # now its name is known
                self.ids[peer] = got[0]
                far, = [f for f in self.fars if f.id == peer]
                if not far.hung_up:
                    self.named[got[0]] = far
            assert got[0] == self.ids[peer]

    @rule(i=st.integers(0, 9), n=st.integers(1, 3))
    def peer_sends(self, i, n):
        if i < len(self.fars) and not self.fars[i].hung_up:
            self.put[self.fars[i].id].append([b"m"] * n)
            self.fars[i].put(*[b"m"] * n)

    def answer(self, rc, far):
        if far is None:
            assert rc is (Status.NO_PEER if self.mandatory else Status.DROPPED)
            self.lost += not self.mandatory
        else:
            full = Status.FULL if self.mandatory else Status.DROPPED
            assert rc in (Status.OK, full)

    @rule(name=st.sampled_from([*NAMES[1:], b"?"]), n=st.integers(1, 3))
    def send(self, name, n):
        self.answer(self.b.send(name, *[b"x" * 70] * n), self.named.get(name))

    @rule(i=st.integers(0, 9))
    def send_to(self, i):
        if i < len(self.fars):
            far = self.fars[i]
            dead = far.hung_up or far.resets
            self.answer(self.b.send_to(far.id, b"y"), None if dead else far)

    @rule(i=st.integers(0, 9))
    def peer_reads(self, i):
        if i < len(self.fars):
            self.fars[i].take_all()

    def forget(self, far):
        for waiting in self.seconds.values():
            waiting[:] = [other for other in waiting if other is not far]
        for name, holder in list(self.named.items()):
            if holder is far:
                del self.named[name]
                if self.seconds.get(name):
                    self.named[name] = self.seconds[name].pop(0)

    @rule(i=st.integers(0, 9))
    def hangup(self, i):
        if i < len(self.fars):
            self.fars[i].hangup()
            self.forget(self.fars[i])

    @rule(i=st.integers(0, 9))
    def detach(self, i):
        if i < len(self.fars):
            far = self.fars.pop(i)
            self.forget(far)
            far.detach()

    @invariant()
    def laws(self):
        self.b.check()
        assert self.b.dropped.get("no_peer", 0) == self.lost


class RouterStrictMachine(RouterMachine):
    handover, mandatory = False, False


TestRouter = RouterMachine.TestCase
TestRouterOther = RouterStrictMachine.TestCase
TestRouter.settings = TestRouterOther.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None)
