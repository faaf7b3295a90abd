"""RADIO and DISH on the bench: who gets what, once, and what is counted."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from mqcore.protocols import dish, radio
from mqcore.testing.native.pattern_bench import Bench, Event, Status

MORE, ENVELOPE, GROUP = 1, 8, 32
HIDDEN = MORE | ENVELOPE | GROUP


def joined(bench, *groups, **kw):
    far = bench.attach(**kw)
    for group in groups:
        far.put_subscribe(group)
    return far


# -- radio -----------------------------------------------------------------------------------------

def test_groups_match_whole():
    with Bench(radio.pattern) as b:
        a, c = joined(b, b"ab"), joined(b, b"a", b"abc", b"")
        for group in (b"ab", b"a", b"abc", b"abcd", b"", b"b"):
            assert b.send_group(group, b"to " + group) is Status.OK
        assert a.take_all() == [[b"ab", b"to ab"]]
        assert c.take_all() == [[b"a", b"to a"], [b"abc", b"to abc"], [b"", b"to "]]
        assert b.unmatched == 2
        assert [b.query("subscribers", g) for g in (b"ab", b"a", b"", b"x")] == [1, 1, 1, 0]
        b.check()


def test_one_part_alone_is_for_the_empty_group():
    with Bench(radio.pattern) as b:
        a = joined(b, b"")
        assert b.send(b"body") is Status.OK
        assert a.take() == [b"", b"body"]


@pytest.mark.parametrize("parts", [
    (b"a", b"b"),                                 # not said to be a group
    (b"a", b"b", b"c"),
])
def test_multipart_is_refused(parts):
    with Bench(radio.pattern) as b:
        joined(b, b"a")
        assert b.send(*parts) is Status.INVALID
        assert b.unmatched == 0


def test_groups_of_more_than_255_bytes_are_refused():
    with Bench(radio.pattern) as b:
        a = joined(b, b"g" * 255, b"g" * 256)
        assert b.send_group(b"g" * 256, b"x") is Status.INVALID
        assert b.send_group(b"x", b"y", b"z") is Status.INVALID
        assert b.send_group(b"g" * 255, b"x") is Status.OK
        assert a.take() == [b"g" * 255, b"x"]
        assert b.query("subscribers", b"g" * 256) == 0


def test_join_is_a_set_and_large_bodies_are_shared():
    with Bench(radio.pattern) as b:
        a, c = joined(b, b"g", b"g"), joined(b, b"g")
        b.send_group(b"g", b"x" * 9999)
        assert b.live_bodies == 1
        assert [a.take_all(), c.take_all()] == [[[b"g", b"x" * 9999]]] * 2
        a.put_cancel(b"g")
        a.put_cancel(b"never")
        b.send_group(b"g", b"y")
        assert [a.take_all(), c.take_all()] == [[], [[b"g", b"y"]]]
        b.check()


def test_who_never_says_what_it_wants_gets_everything_once():
    with Bench(radio.pattern) as b:
        a, c = b.attach(unversioned=True), joined(b, b"g")
        a.put_subscribe(b"g")
        assert b.send_group(b"g", b"1") is Status.OK
        assert b.send_group(b"h", b"2") is Status.OK
        assert a.take_all() == [[b"g", b"1"], [b"h", b"2"]]
        assert c.take_all() == [[b"g", b"1"]]
        assert [b.query("subscribers", g) for g in (b"g", b"h")] == [2, 1]
        a.hangup()
        assert b.send_group(b"h", b"3") is Status.OK
        assert b.unmatched == 1
        b.check()


def test_full_dishes_lose_it():
    with Bench(radio.pattern) as b:
        slow, fast = joined(b, b"g", hwm=2), joined(b, b"g")
        for _ in range(5):
            assert b.send_group(b"g", b"x" * 99) is Status.OK
        assert slow.out_dropped == {"full": 3}
        assert (slow.queued_out, fast.queued_out) == (2, 5)
        b.check()


def test_nodrop():
    with Bench(radio.pattern, nodrop=True) as b:
        slow, fast = joined(b, b"s", hwm=1), joined(b, b"s", b"f")
        assert b.send_group(b"s", b"1") is Status.OK
        assert b.send_group(b"s", b"2") is Status.FULL
        assert b.send_group(b"f", b"3") is Status.OK
        assert slow.take() == [b"s", b"1"]
        assert b.send_group(b"s", b"2") is Status.OK
        assert fast.take_all() == [[b"s", b"1"], [b"f", b"3"], [b"s", b"2"]]
        b.check()


def test_slow_dishes_can_be_cut_off():
    with Bench(radio.pattern) as b:
        assert b.set_option("disconnect", True) is Status.OK
        slow = joined(b, b"g", hwm=1)
        for _ in range(3):
            b.send_group(b"g", b"x")
        assert slow.resets == 1
        assert (Event.TOO_SLOW, slow.id, b"") in b.events
        b.check()


def test_events_and_what_a_dish_has_no_business_to_say():
    with Bench(radio.pattern) as b:
        a = joined(b, b"t", b"t", b"u")
        a.put_cancel(b"u")
        for m in ([b"\1news"], [b"x"], [b"a", b"b"]):
            a.put(*m)
        assert a.in_dropped == {"unexpected": 3}
        a.hangup()
        assert [e for e in b.events if e[0] != Event.DROPPED] == [
            (Event.SUBSCRIBED, a.id, b"t"), (Event.SUBSCRIBED, a.id, b"u"),
            (Event.UNSUBSCRIBED, a.id, b"u"), (Event.UNSUBSCRIBED, a.id, b"t")]
        b.check()


# -- dish ------------------------------------------------------------------------------------------

def test_a_dish_tells_every_radio_its_groups():
    with Bench(dish.pattern) as b:
        assert b.subscribe(b"early") is Status.OK
        a = b.attach()
        assert a.take_control() == ("subscribe", b"early")
        b.subscribe(b"late")
        b.subscribe(b"late")
        b.unsubscribe(b"late")
        b.unsubscribe(b"late")
        assert [a.take_control() for _ in range(4)] == [
            ("subscribe", b"late"), ("subscribe", b"late"), ("cancel", b"late"), None]
        assert b.unsubscribe(b"late") is Status.INVALID
        assert b.subscribe(b"g" * 256) is Status.INVALID
        assert b.query("topics") == 1


def test_the_group_is_in_front_and_hidden():
    with Bench(dish.pattern) as b:
        b.subscribe(b"g")
        a = b.attach()
        a.put(b"g", b"body")
        assert b.query("can_recv") == 1
        assert b.recv_flags() == [(b"g", HIDDEN), (b"body", 0)]
        assert (b.peer, a.delivered) == (a.id, 1)
        b.check()


WRONG = [[b"g"], [b"g", b"b", b"c"], [b"h" * 256, b"x"], [b""]]


@pytest.mark.parametrize("ask", [False, True])
def test_what_is_not_joined_or_malformed_is_dropped(ask):
    with Bench(dish.pattern) as b:
        b.subscribe(b"g")
        a = b.attach()
        for m in WRONG:
            a.put(*m)
        a.put(b"gg", b"no prefix")
        a.put(b"", b"nor less")
        if ask:
            assert b.query("can_recv") == 0
        assert b.recv() is Status.AGAIN
        assert a.in_dropped == {"malformed": 4, "unsubscribed": 2}
        a.put(b"g", b"after")
        assert b.recv() == [b"g", b"after"]
        b.check()


def test_a_group_left_is_left_at_once():
    with Bench(dish.pattern) as b:
        b.subscribe(b"g")
        a = b.attach()
        a.put(b"g", b"on its way")
        assert b.query("can_recv") == 1
        b.unsubscribe(b"g")
        assert b.query("can_recv") == 0
        assert b.recv() is Status.AGAIN
        assert a.in_dropped == {"unsubscribed": 1}
        b.check()


def test_radios_are_read_in_turn():
    with Bench(dish.pattern) as b:
        b.subscribe(b"g")
        a, c = b.attach(), b.attach()
        for i in range(3):
            a.put(b"g", b"a%d" % i)
            c.put(b"g", b"c%d" % i)
        assert [m[1] for m in b.recv_all()] == [b"a0", b"c0", b"a1", b"c1", b"a2", b"c2"]


def test_a_message_over_the_end_of_a_chunk():
    """The second part may lie in another chunk of the queue than the first."""
    with Bench(dish.pattern) as b:
        b.subscribe(b"g")
        a = b.attach()
        for i in range(1000):
            a.put(b"g", b"%d" % i)
            if i % 3 == 0:                        # single parts shift the pairs by one
                a.put(b"odd")
        got = []
        while b.query("can_recv"):
            got.append(b.recv()[1])
        assert got == [b"%d" % i for i in range(1000)]
        assert a.in_dropped == {"malformed": 334}
        b.check()


# -- anything in any order -------------------------------------------------------------------------

GROUPS = st.sampled_from([b"", b"a", b"ab", b"b", b"g" * 255])


class RadioMachine(RuleBasedStateMachine):
    """A model of sets against the pattern."""

    def __init__(self):
        super().__init__()
        self.b = Bench(radio.pattern)
        self.groups = {}                          # far: what it joined, None: everything
        self.want = {}
        self.unmatched = 0

    @rule(open=st.booleans())
    def attach(self, open):
        far = self.b.attach(unversioned=open, hwm=None)
        self.groups[far] = None if open else set()
        self.want[far] = []

    @rule(group=GROUPS, pick=st.integers(0, 99), on=st.booleans())
    def join(self, group, pick, on):
        if not self.groups:
            return
        far = list(self.groups)[pick % len(self.groups)]
        (far.put_subscribe if on else far.put_cancel)(group)
        if self.groups[far] is not None:
            (self.groups[far].add if on else self.groups[far].discard)(group)

    @rule(group=GROUPS, size=st.sampled_from([0, 3, 99]))
    def send(self, group, size):
        assert self.b.send_group(group, b"x" * size) is Status.OK
        hit = [far for far, has in self.groups.items() if has is None or group in has]
        for far in hit:
            self.want[far].append([group, b"x" * size])
        self.unmatched += not hit
        assert self.b.query("subscribers", group) == len(hit)

    @rule(pick=st.integers(0, 99))
    def leave(self, pick):
        if self.groups:
            far = list(self.groups)[pick % len(self.groups)]
            self.read(far)
            far.detach()
            del self.groups[far], self.want[far]

    def read(self, far):
        assert far.take_all() == self.want[far]
        self.want[far].clear()

    @invariant()
    def laws(self):
        self.b.check()
        assert self.b.unmatched == self.unmatched

    def teardown(self):
        for far in self.groups:
            self.read(far)
        self.b.close()


TestRadio = RadioMachine.TestCase
TestRadio.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
