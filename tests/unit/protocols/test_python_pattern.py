"""A pattern as one Python class, on the bench: what its methods see and what their answers do."""

import gc

import pytest
from mqcore.testing.native.pattern_bench import Bench, Event, Refused, Status

from mqcore.errors import UsageError
from mqcore.spi.python.pattern import WAIT, Drop, Pattern
from mqcore.spi.python.pattern_ops import plugin


class Base(Pattern):
    """One of the test's."""

    abi = 1
    name = "mine"
    zmtp = "MINE"
    peers = ("mine",)


class First(Base):
    sends = receives = waits = True

    def route(self, parts):
        return self.live[0] if self.live else WAIT


@pytest.fixture
def bench():
    made = []

    def make(cls, **options):
        made.append(Bench(plugin(cls), **options))
        return made[-1]

    yield make
    for one in made:
        one.check()
        one.close()


def having(base=First, **members):
    return type("Made", (base,), members)


def test_sends_where_it_says(bench):
    b = bench(First)
    assert b.send(b"x") is Status.AGAIN
    one, two = b.attach(), b.attach()
    assert b.send(b"a", b"b" * 99) is Status.OK
    assert one.take() == [b"a", b"b" * 99] and two.take() is None
    one.hangup()
    assert b.send(b"c") is Status.OK and two.take() == [b"c"]
    two.hangup()
    assert b.send(b"d") is Status.AGAIN


def test_a_full_peer_is_waited_for(bench):
    b = bench(First)
    far = b.attach(hwm=1)
    assert b.query("can_send") == 1
    assert b.send(b"1") is Status.OK
    assert b.query("can_send") == 0
    assert b.send(b"2") is Status.FULL
    assert far.take() == [b"1"] and b.query("can_send") == 1
    assert b.send(b"2") is Status.OK


def test_what_parts_show(bench):
    seen = []

    def route(self, parts):
        seen.append((len(parts), list(parts), parts[-1], parts[:1], parts.head(2, 1),
                     parts.size_of(1), parts.size))
        with pytest.raises(IndexError):
            parts[2]
        seen.append(parts)
        return self.live[0]

    b = bench(having(route=route))
    b.attach()
    b.send(b"ab", b"cde" * 40)
    assert seen[0] == (2, [b"ab", b"cde" * 40], b"cde" * 40, [b"ab"], b"cd", 120, 122)
    with pytest.raises(RuntimeError, match="only within the call"):
        seen[1][0]


def test_a_peer_has_what_the_pattern_needs(bench):
    def route(self, parts):
        return next((p for p in self.live if p.has_room(parts)), WAIT)

    met = []
    b = bench(having(route=route, attach=lambda self, peer: met.append(peer)))
    b.attach(b"id", hwm=1, prio=3, connected=True)
    peer, = met
    assert (peer.routing_id, peer.prio, peer.connected, peer.gone) == (b"id", 3, True, False)
    peer.data = [1]
    assert b.send(b"1") is Status.OK and b.send(b"2") is Status.FULL
    with pytest.raises(RuntimeError, match="methods of the pattern"):
        peer.has_room()


def test_refused_peers(bench):
    b = bench(having(attach=lambda self, peer: len(self.live) < 2 or "two are too many"))
    b.attach()
    with pytest.raises(Refused):
        b.attach()
    assert (Event.REFUSED, b"two are too many") in [(e[0], e[2]) for e in b.events]
    assert b.send(b"x") is Status.OK


def test_life_of_a_peer(bench):
    calls = []
    b = bench(having(attach=lambda self, p: calls.append(("attach", p.id, len(self.live))),
                     hangup=lambda self, p: calls.append(("hangup", p.gone, len(self.live))),
                     detach=lambda self, p: calls.append(("detach", p.gone, len(self.live)))))
    far = b.attach()
    far.put(b"last words")
    far.hangup()
    assert calls[-1] == ("hangup", True, 0)
    assert b.recv() == [b"last words"]
    far.detach()
    assert [c[0] for c in calls] == ["attach", "hangup", "detach"]


def test_dropping_what_is_sent(bench):
    b = bench(having(route=lambda self, parts: Drop("no_peer")))
    assert b.send(b"x") is Status.DROPPED and b.send(b"y" * 99) is Status.DROPPED
    assert b.dropped == {"no_peer": 2}
    assert len([e for e in b.events if e[0] == Event.DROPPED]) == 1    # the first of a run
    with pytest.raises(ValueError, match="no reason 'dull' to drop a message; there are full"):
        Drop("dull")


def test_to_many(bench):
    b = bench(having(fanout=True, waits=False,
                     route=lambda self, parts: [p for p in self.live if p.routing_id > parts[0]]))
    fars = [b.attach(name, hwm=1) for name in (b"a", b"b", b"c")]
    assert b.send(b"a", b"z" * 99) is Status.OK
    assert [far.queued_out for far in fars] == [0, 1, 1]
    assert b.send(b"b") is Status.OK
    assert fars[2].out_dropped == {"full": 1}
    assert b.send(b"z") is Status.OK and b.unmatched == 1
    assert fars[1].take() == [b"a", b"z" * 99]
    assert b.query("can_send") == 1


def test_several_peers_need_fanout(bench):
    b = bench(having(route=lambda self, parts: self.live))
    b.attach()
    with pytest.raises(TypeError, match="fanout = True"):
        b.send(b"x")


def test_turns_without_pick(bench):
    b = bench(First)
    fars = [b.attach() for _ in range(3)]
    for far in fars:
        for i in range(3):
            far.put(b"%d" % far.id)
    assert b.query("can_recv") == 1
    assert b.recv_all() == [[b"1"], [b"2"], [b"3"]] * 3
    assert b.query("can_recv") == 0 and b.recv() is Status.AGAIN


def test_pick_chooses_among_those_that_have_some(bench):
    b = bench(having(pick=lambda self, ready: min(ready, key=lambda p: p.prio)))
    low, high = b.attach(prio=9), b.attach(prio=2)
    for word in (b"1", b"2"):
        low.put(b"low" + word)
        high.put(b"high" + word)
    assert b.recv_all() == [[b"high1"], [b"high2"], [b"low1"], [b"low2"]]
    b2 = bench(having(pick=lambda self, ready: WAIT))
    b2.attach().put(b"x")
    assert b2.recv() is Status.AGAIN and b2.query("can_recv") == 0


ACCEPT = {
    "as it is": (lambda self, peer, parts: True, [b"a", b"b" * 99], {}),
    "dropped": (lambda self, peer, parts: False, None, {"unexpected": 1}),
    "for a reason": (lambda self, peer, parts: Drop("malformed"), None, {"malformed": 1}),
    "rewritten": (lambda self, peer, parts: [b"x" * 70, *parts[1:], b""],
                  [b"x" * 70, b"b" * 99, b""], {}),
}


@pytest.mark.parametrize("conflate", [False, True])
@pytest.mark.parametrize("case", ACCEPT)
def test_accept(bench, case, conflate):
    accept, want, dropped = ACCEPT[case]
    b = bench(having(accept=accept))
    far = b.attach(conflate=conflate)
    if conflate:
        far.put(b"a")
        if case == "rewritten":
            want = [b"x" * 70, b""]
        elif want:
            want = [b"a"]
    else:
        assert b.query("can_recv") == 0
        far.put(b"a", b"b" * 99)
        assert b.query("can_recv") == (want is not None)
    assert b.recv() == (want or Status.AGAIN)
    assert far.in_dropped == dropped
    if want:
        assert b.peer == far.id


def test_parts_are_seen_across_the_chunks_of_the_queue(bench):
    seen = []

    def accept(self, peer, parts):
        seen.append(list(parts))
        return True

    b = bench(having(accept=accept))
    far = b.attach()
    sent = [[b"%d.%d" % (i, j) for j in range(i % 40 + 1)] for i in range(60)]
    for message in sent:
        far.put(*message)
    assert b.recv_all() == sent and seen == sent


def test_a_sender_drops_what_it_is_sent(bench):
    b = bench(having(receives=False))
    far = b.attach()
    far.put(b"why?")
    assert far.in_dropped == {"unexpected": 1}
    assert b.recv() is Status.UNSUPPORTED and b.query("can_recv") == 0


def test_answers_by_peer(bench):
    b = bench(having(replies=True))
    one, two = b.attach(), b.attach(hwm=1)
    assert b.send_to(two.id, b"x") is Status.OK and two.queued_out == 1
    assert b.send_to(two.id, b"y") is Status.FULL
    assert b.send_to(77, b"x") is Status.NO_PEER
    one.hangup()
    assert b.send_to(one.id, b"x") is Status.NO_PEER


def test_options_become_attributes(bench):
    rows = (("weight", "int", 3, "w"), ("loud", "bool", False, "l"), ("key", "bytes", b"", "k"))

    def set_option(self, name, value):
        if value == 13:
            raise ValueError("unlucky")
        First.set_option(self, name, value)
        told.append((name, getattr(self, name)))

    told = []
    b = bench(having(options=rows, set_option=set_option))
    assert b.set_option("weight", 5) is Status.OK
    assert b.set_option("loud", True) is Status.OK and b.set_option("key", b"k") is Status.OK
    assert told == [("weight", 5), ("loud", True), ("key", b"k")]
    assert b.set_option("weight", 13) is Status.INVALID
    assert b.set_option("height", 1) is Status.UNSUPPORTED


class Boom(Exception):
    pass


def boom(*args):
    raise Boom("in the class")


def test_what_route_raises_the_sender_gets_and_keeps_the_message(bench):
    b = bench(having(route=boom))
    b.attach()
    with pytest.raises(Boom):
        b.send(b"x", b"y" * 99)     # the bench looks whether the message is as it was


@pytest.mark.parametrize("method", ["accept", "pick"])
def test_what_accept_raises_leaves_the_message(bench, method):
    b = bench(having(**{method: boom}))
    far = b.attach()
    far.put(b"x")
    for _ in range(2):
        with pytest.raises(Boom):
            b.recv()
    assert b.query("can_recv") == 1 and far.queued_in == 1     # recv() raises, it does not wait


WRONG = {
    "a number": (lambda self, parts: 7, TypeError, "not iterable"),
    "no peers": (lambda self, parts: [7], TypeError, "a Peer was expected"),
    "refusal": (lambda self, parts: UsageError, TypeError, "not iterable"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_answers_of_route(bench, case):
    route, kind, text = WRONG[case]
    b = bench(having(route=route))
    b.attach()
    with pytest.raises(kind, match=text):
        b.send(b"x")


@pytest.mark.parametrize(("answer", "text"), [
    (None, "True, a Drop or a list"), ([], "True, a Drop or a list"), (["text"], "a part is bytes"),
    (b"bytes", "True, a Drop or a list")])
def test_wrong_answers_of_accept(bench, answer, text):
    b = bench(having(accept=lambda self, peer, parts: answer))
    b.attach().put(b"x")
    with pytest.raises(TypeError, match=text):
        b.recv()


def test_a_peer_that_has_left_is_no_answer(bench):
    kept = []
    b = bench(having(attach=lambda self, peer: kept.append(peer),
                     route=lambda self, parts: kept[0]))
    other = bench(having(route=lambda self, parts: kept[0]))
    other.attach()
    far = b.attach()
    with pytest.raises(ValueError, match="not a peer of this socket"):
        other.send(b"x")
    far.hangup()
    with pytest.raises(ValueError, match="has ended"):
        b.send(b"x")
    far.detach()
    with pytest.raises(ValueError, match="not a peer of this socket any more"):
        b.send(b"x")


def test_a_failing_attach_is_undone_and_told_once(bench):
    undone = []

    def attach(self, peer):
        peer.data = "half"
        raise Boom("attach")

    b = bench(having(attach=attach, detach=lambda self, peer: undone.append(peer.data)))
    for _ in range(2):
        with pytest.raises(Refused):
            b.attach()
    assert undone == ["half"] * 2
    told = [e for e in b.events if e[0] == Event.FAILED]
    assert len(told) == 1 and told[0][2].startswith(b"attach() raised Boom: attach (")
    assert b.send(b"x") is Status.AGAIN


def test_a_failing_hangup_changes_nothing_of_ours(bench):
    b = bench(having(hangup=boom, detach=boom))
    far = b.attach()
    far.put(b"x")
    far.hangup()
    assert b.send(b"x") is Status.AGAIN and b.recv() == [b"x"]
    far.detach()


def test_no_collection_starts_inside(bench):
    """A finalizer might call the very socket whose lock is held."""
    class Knot:
        def __init__(self):
            self.me = self

        def __del__(self):
            inside.append(now)

    now = None
    inside = []

    def route(self, parts):
        nonlocal now
        now = "inside"
        for _ in range(20000):
            Knot()
        assert not gc.isenabled()
        now = None
        return self.live[0]

    b = bench(having(route=route))
    b.attach()
    assert gc.isenabled()
    b.send(b"x")
    assert gc.isenabled() and "inside" not in inside
    gc.collect()
    gc.disable()
    try:
        b.send(b"y")
        assert not gc.isenabled()
    finally:
        gc.enable()
    gc.collect()


def test_an_instance_goes_with_its_socket(bench):
    import weakref

    instances = weakref.WeakSet()

    def __init__(self):
        First.__init__(self)
        instances.add(self)

    b = Bench(plugin(having(__init__=__init__)))
    b.attach()
    assert len(instances) == 1
    b.close()
    del b
    gc.collect()
    assert not instances
