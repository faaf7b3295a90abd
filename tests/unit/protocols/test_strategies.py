"""Strategies and silent peers on the bench, and what the registry says of strategies."""

import re
from collections import Counter
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.protocols.routing import strategies
from mqcore.testing.native.balance_bench import altered, nobody, pattern
from mqcore.testing.native.pattern_bench import Bench, Event, Status

import mqcore as mq
from mqcore.spi import registry
from mqcore.spi.python.strategy import PYTHON_STRATEGY_ABI, Strategy
from mqcore.spi.python.strategy_ops import plugin
from mqcore.testing import installed

BUILT_IN = ("priority", "round_robin", "least_loaded", "two_choices")
every = pytest.mark.parametrize("name", BUILT_IN)


class Last(Strategy):
    """the peer with the highest number"""

    abi = 1
    name = "last"
    seen: list = []

    def choose(self, peers):
        Last.seen[:] = [(p.id, p.prio, p.load, p.owed, p.connected, p.routing_id) for p in peers]
        return max(range(len(peers)), key=lambda i: peers[i].id)


class Sulky(Strategy):
    """gives what the test tells it"""

    abi = 1
    name = "sulky"
    answer = None

    def choose(self, peers):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def bench(name, **options):
    which = getattr(strategies, name) if isinstance(name, str) else plugin(name)
    return Bench(pattern, strategy=which.address, **options)


def number(far):
    return pack("I", far.id)


def owe(b, far, n):
    assert b.set_option("owed", far.id << 32 | n) is Status.OK


# -- who gets it -----------------------------------------------------------------------------------

def test_round_robin_ignores_priorities():
    with bench("round_robin") as b:
        fars = [b.attach(prio=p) for p in (1, 16, 8)]
        for _ in range(9):
            assert b.send(b"x") is Status.OK
        assert [far.queued_out for far in fars] == [3, 3, 3]
        fars[0].hangup()
        assert b.events == []           # nobody was better than the others


def test_least_loaded_counts_what_is_queued_and_what_is_owed():
    with bench("least_loaded") as b:
        a, c, d = (b.attach() for _ in range(3))
        for _ in range(6):
            b.send(b"x")
        assert [far.queued_out for far in (a, c, d)] == [2, 2, 2]
        c.take_all()
        b.send(b"x")
        b.send(b"x")
        assert c.queued_out == 2        # both to the one that had nothing
        owe(b, a, 5)
        owe(b, d, 3)
        c.take_all()
        for _ in range(5):
            b.send(b"x")
        assert (a.queued_out, c.queued_out, d.queued_out) == (2, 5, 2)


def test_two_choices_never_takes_the_most_loaded():
    with bench("two_choices") as b:
        worst, *rest = (b.attach() for _ in range(4))
        owe(b, worst, 1_000_000)
        for _ in range(300):
            assert b.send(b"x") is Status.OK
        assert worst.queued_out == 0
        assert min(far.queued_out for far in rest) > 80     # the less loaded of two evens out


@every
def test_a_full_peer_is_skipped_and_only_all_full_is_full(name):
    with bench(name) as b:
        assert b.send(b"x") is Status.AGAIN and b.query("can_send") == 0
        fars = [b.attach(hwm=2, prio=1 + i) for i in range(3)]
        for _ in range(6):
            assert b.query("can_send") == 1
            assert b.send(b"x", b"y") is Status.OK
        assert [far.queued_out for far in fars] == [2, 2, 2]
        assert b.send(b"x") is Status.FULL and b.query("can_send") == 0
        fars[1].take()
        assert b.query("can_send") == 1
        assert b.send(b"new") is Status.OK and b.send(b"x") is Status.FULL
        assert fars[1].queued_out == 2
        assert b.events == []           # full for a moment is no fail-over
        b.check()


@every
def test_silent_peers_are_last_in_every_strategy(name):
    with bench(name) as b:
        a, c, d = (b.attach(prio=1 + i, hwm=10) for i in range(3))
        b.subscribe(number(a))
        for _ in range(12):
            b.send(b"x")
        assert a.queued_out == 0 and c.queued_out + d.queued_out == 12
        for _ in range(8):
            b.send(b"x")
        assert a.queued_out == 0
        b.send(b"x")                    # the others are full: better than to wait
        assert a.queued_out == 1
        b.subscribe(number(c))
        b.subscribe(number(d))
        for far in (c, d):
            far.take_all()
        assert b.send(b"y") is Status.OK
        before = [far.queued_out for far in (a, c, d)]
        b.unsubscribe(number(d))
        b.send(b"z")
        assert [far.queued_out for far in (a, c, d)] == [*before[:2], before[2] + 1]
        b.check()


def test_silence_and_its_events():
    with bench("priority") as b:
        a, c = b.attach(prio=1), b.attach(prio=2)
        b.unsubscribe(number(a))        # was never silent
        b.subscribe(number(c))          # not the one that is used
        b.unsubscribe(number(c))
        assert b.events == []
        b.subscribe(number(a))
        assert b.events == [(Event.FAILED_OVER, a.id, pack("4I", c.id, 1, 2, 1))]
        b.subscribe(number(a))          # still silent
        b.unsubscribe(number(a))
        assert b.events[1:] == [(Event.FAILED_BACK, a.id, pack("4I", c.id, 2, 1, 1))]
        b.send(b"x")
        assert a.queued_out == 1
        b.subscribe(number(a))
        a.hangup()                      # behind all others already
        assert [e[0] for e in b.events[2:]] == [Event.FAILED_OVER]


def test_the_last_to_fall_silent_is_asked_last():
    """So a request that is sent again goes from one to the next, even if nobody answers."""
    with bench("priority") as b:
        fars = [b.attach(prio=1 + i) for i in range(3)]
        for far in fars:
            b.subscribe(number(far))
        for i in range(6):
            b.send(b"x")
            assert fars[i % 3].take() == [b"x"]
            b.subscribe(number(fars[i % 3]))
        assert len(b.events) == 2       # from 1 to 2, from 2 to 3, and then nobody else was left


def test_a_silent_peer_gets_company():
    with bench("priority") as b:
        a = b.attach(prio=1)
        b.subscribe(number(a))
        c = b.attach(prio=2)
        for _ in range(3):
            b.send(b"x")
        assert (a.queued_out, c.queued_out) == (0, 3)


def test_assigned_live():
    with bench("priority") as b:
        a, c, d = (b.attach(prio=p, hwm=100) for p in (3, 1, 2))
        quiet = b.attach(prio=1)
        b.subscribe(number(quiet))
        turns = {"priority": (0, 12, 0), "round_robin": (4, 4, 4), "least_loaded": (4, 4, 4),
                 "last": (0, 0, 12)}
        last = plugin(Last)
        for before in (*BUILT_IN, "last"):
            for after in turns:
                for name in (before, after):
                    which = last if name == "last" else getattr(strategies, name)
                    assert b.set_option("strategy", which.address) is Status.OK
                for far in (a, c, d):
                    far.take_all()
                for _ in range(12):
                    assert b.send(b"x") is Status.OK
                assert (a.queued_out, c.queued_out, d.queued_out) == turns[after], (before, after)
        assert quiet.queued_out == 0
        b.unsubscribe(number(quiet))
        b.set_option("strategy", strategies.priority.address)
        b.send(b"x")
        b.send(b"x")
        assert quiet.queued_out == 1    # its place was kept all the time
        b.check()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 7)), max_size=80))
def test_any_order_of_events(steps):
    """Nothing is lost or sent twice, and a send says FULL only if all are, whatever happens."""
    names = [*(getattr(strategies, n) for n in BUILT_IN), plugin(Last)]
    with Bench(pattern) as b:
        fars = []
        for step, which in steps:
            far = fars[which % len(fars)] if fars else None
            if step == 0 and len(fars) < 6:
                fars.append(b.attach(prio=1 + which % 3, hwm=2))
            elif step == 1 and far:
                fars.remove(far)
                far.hangup()
                if which % 2:
                    far.detach()
            elif step == 2 and far:
                far.take()
            elif step == 3:
                b.set_option("strategy", names[which % len(names)].address)
            elif step == 4 and far:
                b.subscribe(number(far))
            elif step == 5 and far:
                b.unsubscribe(number(far))
            else:
                room = any(f.queued_out < 2 for f in fars)
                assert b.query("can_send") == room
                before = Counter({f.id: f.queued_out for f in fars})
                rc = b.send(b"x")
                assert rc is (Status.OK if room else Status.FULL if fars else Status.AGAIN)
                assert sum(f.queued_out for f in fars) == before.total() + (rc is Status.OK)
            b.check()


# -- Python's --------------------------------------------------------------------------------------

def test_what_a_class_sees():
    Last.seen.clear()
    with bench(Last) as b:
        a = b.attach(b"one", prio=3)
        b.send(b"alone")                # there is nothing to choose
        assert Last.seen == [] and a.queued_out == 1
        c = b.attach(prio=4, connected=True)
        owe(b, a, 7)
        b.send(b"x")
        assert sorted(Last.seen) == [(a.id, 3, 8, 7, False, b"one"), (c.id, 4, 0, 0, True, b"")]
        assert c.queued_out == 1


@pytest.mark.parametrize(("answer", "says"), [
    (None, "gave None"), (2, "gave 2, not an index from 0 to 1"), (-1, "gave -1"),
    (True, "gave True"), ("0", "gave '0'"), (10**30, "gave 1000"),
    (RuntimeError("no mood"), "RuntimeError: no mood"),
])
def test_nonsense_is_told_once_and_loses_nothing(answer, says, monkeypatch):
    monkeypatch.setattr(Sulky, "answer", answer)
    with bench(Sulky) as b:
        fars = [b.attach(), b.attach()]
        for _ in range(6):
            assert b.send(b"x") is Status.OK
        assert [far.queued_out for far in fars] == [3, 3]       # in turn
        (kind, peer, text), = b.events
        assert (kind, peer) == (Event.FAILED, 0)
        assert "Sulky.choose()" in text.decode() and says in text.decode()
        Sulky.answer = 0
        b.send(b"x")
        Sulky.answer = 99
        b.send(b"x")
        assert len(b.events) == 2       # a new run
        b.check()


def test_native_nonsense_is_told_once():
    with Bench(pattern, strategy=nobody.address) as b:
        fars = [b.attach() for _ in range(3)]
        for _ in range(6):
            assert b.send(b"x") is Status.OK
        assert [far.queued_out for far in fars] == [2, 2, 2]
        assert b.events == [(Event.FAILED, 0, b"the strategy chose a peer that is not there")]


def test_a_class_that_cannot_be_made_leaves_the_old_one():
    class Broken(Last):
        def __init__(self):
            raise OSError("no table")

    with mq.Context(linger=0) as context, installed("strategy", type("B", (Broken,), {
            "name": "broken"})):
        sock = context.socket("push", strategy="two_choices")
        with pytest.raises(OSError, match="no table"):
            sock.strategy = "broken"
        assert sock.strategy == "two_choices"


def test_it_cannot_call_sockets():
    raised = []

    class Meddler(Strategy):
        abi, name = 1, "meddler"

        def choose(self, peers):
            for call in (lambda: push.send(b"again"), lambda: other.stats()):
                try:
                    call()
                except mq.Error as error:
                    raised.append(type(error))
            return 0

    with mq.Context(linger=0) as context, installed("strategy", Meddler):
        other, *pulls = (context.socket("pull", bind=f"inproc://m{i}") for i in range(3))
        push = context.socket("push", strategy="meddler")
        for pull in pulls:
            push.connect(pull.endpoints[0].url)
        push.wait_peers(2, 5)
        push.send(b"x")
        assert raised == [mq.StateError] * 2


def test_it_may_let_go_of_a_context():
    class Careless(Strategy):
        abi, name = 1, "careless"

        def choose(self, peers):
            kept.clear()      # the last reference: its end would wait for the lock that we hold
            return 0

    with mq.Context(linger=0) as context, installed("strategy", Careless):
        reps = [context.socket("rep", bind=f"inproc://c{i}") for i in range(2)]
        req = context.socket("req", strategy="careless", connect=[rep.endpoints[0] for rep in reps])
        req.wait_peers(2, 5)
        kept = [req.new_context()]
        req.send(b"x")
        assert kept == [] and sum(rep._readable() for rep in reps) == 1


def test_the_example_of_the_readme():
    text = (Path(__file__).parents[3] / "protocols/README.md").read_text()
    code, = re.findall(r"```python\n(from mqcore.spi.python.strategy.+?)```", text, re.S)
    space = {"__name__": "example"}
    exec(code, space)
    with installed("strategy", space["Sticky"]), bench(space["Sticky"]) as b:
        fars = [b.attach() for _ in range(3)]
        for _ in range(250):
            assert b.send(b"x") is Status.OK
        assert [far.queued_out for far in fars] == [100, 100, 50] and b.events == []


# -- the registry ----------------------------------------------------------------------------------

def test_abi_numbers():
    assert registry.STRATEGY_ABI == strategies.priority.abi
    assert registry.PYTHON_STRATEGY_ABI == PYTHON_STRATEGY_ABI
    assert [info.name for info in mq.strategies()] == sorted(BUILT_IN)
    assert all(info.doc and not info.refused for info in mq.strategies())


@pytest.mark.parametrize(("given", "says"), [
    (altered(strategies.two_choices, abi=7), "ABI 7"),
    (altered(strategies.two_choices, size=4), "must start with a Strategy"),
    (altered(strategies.two_choices, choose=False), "lacks the operation choose"),
    (altered(strategies.two_choices, flags=1), "both choose and a flag"),
    (altered(strategies.two_choices, flags=64), "flags that this mqcore does not know"),
    (altered(strategies.two_choices, name="Two!"), "has the name 'Two!'"),
    (type("Empty", (Strategy,), {"abi": 1, "name": "empty"}), "has no choose"),
    (type("Foreign", (), {"abi": 1, "name": "foreign"}), "neither a class derived from"),
    (type("Old", (Last,), {"abi": 0, "name": "old"}), "ABI 0, this mqcore has 1"),
    (type("Same", (Last,), {"name": "priority"}), "is claimed by mqcore and a test"),
])
def test_refusals_name_the_reason(given, says):
    with pytest.raises(mq.PluginError, match=says), installed("strategy", given):
        pass


@pytest.mark.parametrize(("value", "error", "says"), [
    ("fastest", mq.OptionError, "no strategy 'fastest' is installed; installed: least_loaded"),
    ("no.such_module:Name", mq.PluginError, "does not import"),
    ("os:no_such_name", mq.PluginError, "does not import"),
    ("os:getcwd", mq.PluginError, "has no attribute 'abi'"),
    ("os: getcwd", mq.OptionError, "package.module:Name"),
    (":x", mq.OptionError, "package.module:Name"),
    (7, mq.OptionError, "must be text"),
])
def test_clear_errors(value, error, says):
    with mq.Context() as context:
        with pytest.raises(error) as caught:
            context.socket("push", strategy=value)
        assert says in str(caught.value)
        push = context.socket("push")
        with pytest.raises(error):
            push.strategy = value
        assert push.strategy == "priority"
        with pytest.raises(mq.OptionError, match="does not apply to pull"):
            context.socket("pull", strategy="priority")


def test_by_its_place():
    with mq.Context(linger=0) as context:
        sock = context.socket("dealer", strategy="mqcore.protocols.routing.strategies:two_choices")
        sock.strategy = "priority"
        assert sock.strategy == "priority"
