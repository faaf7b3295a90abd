"""PUB, XPUB, SUB and XSUB on the bench: who gets what, once, and what is said about it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from mqcore.protocols import pub, sub, xpub, xsub
from mqcore.testing.native.pattern_bench import Bench, Event, Status

both = pytest.mark.parametrize("plugin", [pub.pattern, xpub.pattern])


# -- publishers ------------------------------------------------------------------------------------

@both
def test_topics_are_prefixes_of_the_first_part(plugin):
    with Bench(plugin) as b:
        a, c = b.attach(), b.attach()
        a.put_subscribe(b"ab")
        c.put_subscribe(b"")
        for m in ([b"ab"], [b"abc", b"x"], [b"a"], [b"x", b"ab"], [b""]):
            assert b.send(*m) is Status.OK
        assert a.take_all() == [[b"ab"], [b"abc", b"x"]]
        assert len(c.take_all()) == 5
        assert b.query("subscribers", b"abc") == 2
        assert b.query("subscribers", b"a") == 1
        b.check()


@both
def test_both_styles_of_subscription(plugin):
    with Bench(plugin) as b:
        a = b.attach()
        a.put(b"\1old")
        a.put_subscribe(b"new")
        assert [b.query("subscribers", t) for t in (b"old", b"new")] == [1, 1]
        a.put_cancel(b"old")
        a.put(b"\0new")
        assert [b.query("subscribers", t) for t in (b"old", b"new")] == [0, 0]
        b.check()


@both
def test_once_to_each_and_unmatched(plugin):
    with Bench(plugin) as b:
        a, c = b.attach(), b.attach()
        for topic in (b"", b"a", b"ab", b"ab"):
            a.put_subscribe(topic)
            c.put_subscribe(topic)
        b.send(b"abc" * 100)
        assert [a.take_all(), c.take_all()] == [[[b"abc" * 100]]] * 2
        assert b.live_bodies == 0
        a.put_cancel(b"ab")               # a set: once is enough
        a.put_cancel(b"a")
        a.put_cancel(b"")
        assert b.query("subscribers", b"abc") == 1
        c.detach()
        assert b.send(b"abc") is Status.OK
        assert b.unmatched == 1


@both
def test_full_subscribers_lose_it(plugin):
    with Bench(plugin) as b:
        slow, fast = b.attach(hwm=2), b.attach()
        slow.put_subscribe(b"")
        fast.put_subscribe(b"")
        for _ in range(5):
            assert b.send(b"x" * 99, b"y") is Status.OK
        assert slow.out_dropped == {"full": 3}
        assert (slow.queued_out, fast.queued_out) == (2, 5)
        b.check()


@both
def test_nodrop(plugin):
    with Bench(plugin, nodrop=True) as b:
        slow, fast = b.attach(hwm=1), b.attach()
        slow.put_subscribe(b"s")
        fast.put_subscribe(b"")
        assert b.send(b"s1") is Status.OK
        assert b.send(b"s2") is Status.FULL
        assert b.send(b"f") is Status.OK
        assert slow.take() == [b"s1"]
        assert b.send(b"s2") is Status.OK
        assert fast.take_all() == [[b"s1"], [b"f"], [b"s2"]]
        b.check()


@both
def test_unversioned_peers_get_everything(plugin):
    with Bench(plugin) as b:
        a = b.attach(unversioned=True)
        b.send(b"x")
        assert a.take() == [b"x"]


@both
def test_events(plugin):
    with Bench(plugin) as b:
        a = b.attach()
        a.put_subscribe(b"t")
        a.put_subscribe(b"t")
        a.put_subscribe(b"u")
        a.put_cancel(b"u")
        a.put_cancel(b"never")
        a.hangup()
        assert b.events == [(Event.SUBSCRIBED, a.id, b"t"), (Event.SUBSCRIBED, a.id, b"u"),
                            (Event.UNSUBSCRIBED, a.id, b"u"), (Event.UNSUBSCRIBED, a.id, b"t")]


@both
def test_a_gone_peer_subscribes_no_more(plugin):
    with Bench(plugin) as b:
        a = b.attach()
        b.quiet = True
        a.put_subscribe(b"late")
        a.hangup()
        b.wake()
        assert b.query("subscribers", b"late") == 0
        assert b.send(b"late") is Status.OK
        assert b.unmatched == 1


@both
def test_large_topics(plugin):
    big = b"t" * 70_000
    with Bench(plugin) as b:
        a = b.attach()
        a.put_subscribe(big)
        b.send(big[:-1])
        b.send(big + b"x")
        assert a.take_all() == [[big + b"x"]]


def test_pub_drops_what_is_no_subscription():
    with Bench(pub.pattern) as b:
        a = b.attach()
        for m in ([b""], [b"hello"], [b"\1a", b"b"], [b"\2"]):
            a.put(*m)
        assert a.in_dropped == {"unexpected": 4}
        assert b.recv() is Status.UNSUPPORTED
        assert b.query("subscribers", b"a") == 0
        b.check()


def test_pub_conflate():
    with Bench(pub.pattern) as b:
        a = b.attach(conflate=True, conflate_in=False)
        a.put_subscribe(b"")
        for i in range(3):
            b.send(b"%d" % i)
        assert b.send(b"a", b"b") is Status.INVALID
        assert a.take_all() == [[b"2"]]
        b.check()


@both
def test_retain(plugin):
    with Bench(plugin, retain=2) as b:
        for i in range(3):
            b.send(b"ab", b"%d" % i)
            b.send(b"ac", b"x" * 100)
            b.send(b"b", b"y")
        a = b.attach()
        a.put_subscribe(b"a")
        got = a.take_all()
        assert [m for m in got if m[0] == b"ab"] == [[b"ab", b"1"], [b"ab", b"2"]]
        assert [m for m in got if m[0] == b"ac"] == [[b"ac", b"x" * 100]] * 2
        assert len(got) == 4
        a.put_subscribe(b"a")             # not new
        assert a.take() is None
        b.send(b"ab", b"live")
        assert a.take() == [b"ab", b"live"]
        c = b.attach(hwm=3)
        c.put_subscribe(b"")
        assert c.out_dropped == {"full": 3}
        b.check()
        assert b.set_option("retain", -1) is Status.INVALID
        assert b.set_option("retain", 0) is Status.OK
        b.attach().put_subscribe(b"a")
        assert b.set_option("nonsense", 0) is Status.UNSUPPORTED


def notes(b):
    return [m[0] for m in b.recv_all()]


def test_xpub_first_and_last():
    with Bench(xpub.pattern) as b:
        a, c = b.attach(), b.attach()
        a.put_subscribe(b"t")
        c.put_subscribe(b"t")
        c.put_subscribe(b"t")
        c.put(b"\1" + b"u" * 80)
        assert b.query("can_recv") == 1
        assert notes(b) == [b"\1t", b"\1" + b"u" * 80]
        a.put_cancel(b"t")
        assert b.query("can_recv") == 0
        c.put_cancel(b"never")
        c.hangup()
        assert sorted(notes(b)) == [b"\0t", b"\0" + b"u" * 80]
        b.check()


def test_xpub_one_of_two_vanishes():
    with Bench(xpub.pattern) as b:
        a, c = b.attach(), b.attach()
        a.put_subscribe(b"t")
        c.put_subscribe(b"t")
        a.detach()
        assert notes(b) == [b"\1t"]
        c.detach()
        assert notes(b) == [b"\0t"]


def test_xpub_verbose():
    with Bench(xpub.pattern, verbose=True) as b:
        a, c = b.attach(), b.attach()
        for far in (a, a, c):
            far.put_subscribe(b"t")
        a.put_cancel(b"t")
        c.put_cancel(b"t")
        assert notes(b) == [b"\1t"] * 3 + [b"\0t"]


def test_xpub_verboser():
    with Bench(xpub.pattern, verboser=True) as b:
        a, c = b.attach(), b.attach()
        for far in (a, a, c):
            far.put_subscribe(b"t")
        a.put_cancel(b"t")
        a.put_cancel(b"t")
        c.hangup()
        assert notes(b) == [b"\1t"] * 3 + [b"\0t"] * 3


def test_xpub_manual():
    with Bench(xpub.pattern, manual=True) as b:
        assert b.subscribe(b"x") is Status.STATE
        a, c = b.attach(), b.attach()
        a.put_subscribe(b"t")
        c.put_subscribe(b"t")
        assert b.query("subscribers", b"t") == 0
        assert b.recv() == [b"\1t"]
        assert b.subscribe(b"A") is Status.OK
        assert b.recv() == [b"\1t"]
        assert b.subscribe(b"C") is Status.OK
        for topic in (b"A", b"C", b"t"):
            b.send(topic)
        assert (a.take_all(), c.take_all()) == ([[b"A"]], [[b"C"]])
        c.put_cancel(b"t")
        assert b.recv() == [b"\0t"]
        assert b.unsubscribe(b"C") is Status.OK
        assert b.query("subscribers", b"C") == 0
        c.hangup()
        assert b.subscribe(b"C") is Status.OK       # it has left: no effect
        assert b.query("subscribers", b"C") == 0
    with Bench(xpub.pattern) as b:
        assert b.subscribe(b"x") is Status.UNSUPPORTED


def test_xpub_welcome():
    with Bench(xpub.pattern, welcome=b"hi") as b:
        a = b.attach(unversioned=True)
        b.send(b"x")
        assert a.take_all() == [[b"hi"], [b"x"]]
        assert notes(b) == [b"\1"]


def test_xpub_delivers_other_messages_fairly():
    with Bench(xpub.pattern) as b:
        a, c = b.attach(), b.attach()
        for m in ([b"a0"], [b"\1x", b"two parts"], [b""]):
            a.put(*m)
        a.put_subscribe(b"late")
        c.put(b"c0")
        assert b.query("subscribers", b"late") == 0      # behind what was not received
        assert b.recv() == [b"a0"]
        assert b.recv() == [b"c0"]
        assert b.recv() == [b"\1x", b"two parts"]
        assert b.recv() == [b""]
        assert b.recv() == [b"\1late"]
        assert b.query("can_recv") == 0
        b.check()


def test_xpub_notes_left_behind_are_freed():
    with Bench(xpub.pattern) as b:
        a = b.attach()
        for i in range(20):
            a.put_subscribe(b"%d" % i + b"x" * 100)
            if i % 3 == 0:
                b.recv()


TOPICS = st.sampled_from([b"", b"a", b"ab", b"abb", b"b"])


class PubMachine(RuleBasedStateMachine):
    """Against a set of (peer, topic)."""

    plugin = pub.pattern

    def __init__(self):
        super().__init__()
        self.b = Bench(self.plugin)
        self.fars, self.want, self.got, self.told = [], {}, {}, set()
        self.unmatched = 0

    def teardown(self):
        self.b.close()

    @rule()
    def attach(self):
        if len(self.fars) < 6:
            self.fars.append(self.b.attach(hwm=None))
            self.want[self.fars[-1].id] = set()

    @rule(i=st.integers(0, 5), topic=TOPICS, on=st.booleans(), old=st.booleans())
    def subscribe(self, i, topic, on, old):
        live = [f for f in self.fars if not f.hung_up]
        if live:
            far = live[i % len(live)]
            if old:
                far.put(bytes([on]) + topic)
            elif on:
                far.put_subscribe(topic)
            else:
                far.put_cancel(topic)
            (self.want[far.id].add if on else self.want[far.id].discard)(topic)

    @rule(topic=TOPICS, more=st.integers(0, 2))
    def publish(self, topic, more):
        message = [topic, *[b"x" * 80] * more]
        assert self.b.send(*message) is Status.OK
        hits = 0
        for far in self.fars:
            wanted = any(topic.startswith(t) for t in self.want[far.id])
            assert far.take_all() == ([message] if wanted else [])
            hits += wanted
        self.unmatched += hits == 0
        assert self.b.query("subscribers", topic) == hits

    @rule(i=st.integers(0, 5), forget=st.booleans())
    def leave(self, i, forget):
        if self.fars:
            far = self.fars[i % len(self.fars)]
            far.hangup()
            self.want[far.id] = set()
            if forget:
                self.fars.remove(far)
                far.detach()

    @invariant()
    def laws(self):
        self.b.check()
        assert self.b.unmatched == self.unmatched


class XPubMachine(PubMachine):
    plugin = xpub.pattern

    @invariant()
    def notifications(self):
        """First and last of each topic, in order, whoever they were."""
        if not hasattr(self, "b"):
            return
        for note, in self.b.recv_all():
            if note[:1] == b"\1":
                assert note[1:] not in self.told
                self.told.add(note[1:])
            else:
                self.told.remove(note[1:])
        assert self.told == set().union(*self.want.values())


TestPub = PubMachine.TestCase
TestXPub = XPubMachine.TestCase
TestPub.settings = TestXPub.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None)


# -- subscribers -----------------------------------------------------------------------------------

def test_sub_tells_publishers():
    with Bench(sub.pattern) as b:
        b.subscribe(b"a")
        b.subscribe(b"b" * 100)
        b.subscribe(b"a")
        assert b.query("topics") == 2
        far = b.attach(hwm=1)
        assert sorted([far.take_control(), far.take_control()]) == [
            ("subscribe", b"a"), ("subscribe", b"b" * 100)]
        b.subscribe(b"a")
        assert far.take_control() == ("subscribe", b"a")
        assert b.unsubscribe(b"a") is Status.OK
        assert b.unsubscribe(b"a") is Status.OK
        assert far.take_control() is None
        b.unsubscribe(b"a")
        assert far.take_control() == ("cancel", b"a")
        assert b.unsubscribe(b"a") is Status.INVALID
        assert b.query("topics") == 1
        far.hangup()
        b.subscribe(b"c")
        assert far.take_control() is None
        assert far.offered == 0
        b.check()


def test_sub_filters_and_is_fair():
    with Bench(sub.pattern) as b:
        a, c = b.attach(), b.attach()
        b.subscribe(b"ab")
        for m in ([b"ab1"], [b"x", b"ab"], [b"ab2", b"x" * 100]):
            a.put(*m)
        c.put(b"ab3")
        assert b.query("can_recv") == 1
        assert b.recv_all() == [[b"ab1"], [b"ab3"], [b"ab2", b"x" * 100]]
        assert a.in_dropped == {"unsubscribed": 1}
        a.put(b"no" * 50)
        a.put_subscribe(b"?")
        assert b.query("can_recv") == 0
        assert a.in_dropped == {"unsubscribed": 2}
        b.unsubscribe(b"ab")
        a.put(b"ab4")
        assert b.recv() is Status.AGAIN
        assert b.send(b"x") is Status.UNSUPPORTED
        b.check()


def test_sub_conflating():
    with Bench(sub.pattern) as b:
        a = b.attach(conflate_in=True)    # subscriptions must not replace each other
        b.subscribe(b"")
        a.put(b"1" * 100)
        a.put(b"2" * 100)
        assert b.query("can_recv") == 1
        assert b.query("can_recv") == 1
        a.put(b"3")
        assert b.recv_all() == [[b"3"]]     # a query takes nothing: the newer one replaced it
        b.unsubscribe(b"")
        a.put(b"4")
        assert b.query("can_recv") == 0
        b.check()


def test_xsub_subscribes_by_message():
    with Bench(xsub.pattern) as b:
        assert b.send(b"\1early") is Status.OK
        far = b.attach()
        assert far.take_control() == ("subscribe", b"early")
        assert b.send(b"\1t") is Status.OK
        assert b.send(b"\1t") is Status.OK
        assert b.send(b"\0t") is Status.OK
        assert far.take_all() == [[b"\1t"], [b"\1t"]]
        assert b.send(b"\0t") is Status.OK
        assert b.send(b"\0never") is Status.OK
        assert far.take_all() == [[b"\0t"]]
        assert b.query("topics") == 1
        b.subscribe(b"u")
        assert far.take_control() == ("subscribe", b"u")
        b.check()


def test_xsub_talks_back_and_does_not_filter():
    with Bench(xsub.pattern) as b:
        assert b.send(b"nobody") is Status.OK
        assert b.unmatched == 1
        a, c = b.attach(hwm=1), b.attach()
        for _ in range(2):
            assert b.send(b"\1not", b"a topic" * 20) is Status.OK
        assert a.out_dropped == {"full": 1}
        assert len(c.take_all()) == 2
        assert b.query("topics") == 0
        c.put(b"anything")
        assert b.query("can_recv") == 1
        assert b.recv() == [b"anything"]
        b.check()


def test_many_subscribers_of_one_topic():
    with Bench(pub.pattern, watched=False) as b:
        fars = [b.attach() for _ in range(300)]
        for far in fars:
            far.put_subscribe(b"t")
        b.send(b"t" * 100)
        assert all(far.queued_out == 1 for far in fars)
        for far in fars[::2]:
            far.hangup()
        assert b.query("subscribers", b"t") == 150
        b.send(b"t")
        assert [far.queued_out for far in fars] == [1, 2] * 150
