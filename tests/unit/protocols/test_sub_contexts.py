"""SUB's contexts on the bench: topics and queues of their own over the same publishers."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.protocols import sub
from mqcore.testing.native.pattern_bench import Bench, Event, Status


def told(far):
    out = []
    while (found := far.take_control()) is not None:
        out.append(found)
    return out


def test_each_gets_what_it_wants():
    with Bench(sub.pattern) as b:
        a, c = b.attach(), b.attach()
        b.subscribe(b"x")
        assert b.open(1) is Status.OK and b.open(2) is Status.OK
        b.subscribe(b"xy", context=1)
        b.subscribe(b"z", context=2)
        a.put(b"x1")
        c.put(b"xy2", b"more" * 50)
        a.put(b"z3")
        a.put(b"none")
        assert b.query("can_recv", context=2) == 1
        assert b.recv_all(context=1) == [[b"xy2", b"more" * 50]]
        assert b.recv_all(context=2) == [[b"z3"]]
        assert sorted(b.recv_all()) == [[b"x1"], [b"xy2", b"more" * 50]]
        assert [b.query("can_recv", context=i) for i in range(3)] == [0, 0, 0]
        assert [b.query("topics", context=i) for i in range(3)] == [1, 1, 1]
        assert a.in_dropped == {"unsubscribed": 1}
        assert a.delivered == 2 and c.delivered == 1
        assert b.events == [(Event.DROPPED, a.id, b"\x09")]
        b.shut(1)
        b.shut(2)
        b.check()


def test_publishers_are_told_the_union():
    with Bench(sub.pattern) as b:
        a = b.attach()
        b.subscribe(b"t")
        b.open(1)
        b.open(2)
        b.subscribe(b"t", context=1)
        b.subscribe(b"t", context=1)
        b.subscribe(b"u", context=2)
        assert told(a) == [("subscribe", b"t")] * 3 + [("subscribe", b"u")]
        assert b.subscribe(b"u", False, context=1) is Status.INVALID    # another's
        assert b.subscribe(b"t", False) is Status.OK
        assert told(a) == []
        late = b.attach()
        assert sorted(told(late)) == [("subscribe", b"t"), ("subscribe", b"u")]
        b.shut(1)               # its two references, the last ones
        assert told(a) == [("cancel", b"t")]
        b.shut(2)
        assert told(a) == [("cancel", b"u")]
        assert b.query("topics") == 0
        assert b.subscribe(b"t", False) is Status.INVALID


def test_the_socket_is_as_before_when_it_is_alone_again():
    with Bench(sub.pattern) as b:
        a = b.attach()
        b.subscribe(b"")
        b.open(1)
        b.subscribe(b"", context=1)
        a.put(b"1")
        a.put(b"2")
        assert b.recv(context=1) == [b"1"]
        b.shut(1)
        assert b.dropped == {}
        a.put(b"3")
        assert b.recv_all() == [[b"1"], [b"2"], [b"3"]]
        b.check()


def test_what_is_queued_survives_the_last_context():
    with Bench(sub.pattern) as b:
        a = b.attach()
        b.subscribe(b"")
        b.open(1)
        b.subscribe(b"", context=1)
        for i in range(3):
            a.put(b"%d" % i)
        assert b.recv_all(context=1) == [[b"0"], [b"1"], [b"2"]]
        b.shut(1)
        assert b.recv_all() == [[b"0"], [b"1"], [b"2"]]
        a.put(b"3")
        assert b.recv_all() == [[b"3"]]
        b.check()


def test_a_full_queue_loses_the_oldest():
    with Bench(sub.pattern) as b:
        a = b.attach(hwm_in=3)
        b.open(1)
        b.subscribe(b"", context=1)
        b.subscribe(b"")
        for i in range(3):
            a.put(b"%d" % i)
        assert b.recv() == [b"0"]           # context 1 has it too
        assert b.recv_all() == [[b"1"], [b"2"]]
        for i in range(3, 5):
            a.put(b"%d" % i, b"second")
        assert b.recv_all() == [[b"3", b"second"], [b"4", b"second"]]
        assert b.dropped == {"full": 2}
        assert b.events == [(Event.DROPPED, 0, b"\0")]       # once a run
        assert b.recv_all(context=1) == [[b"2"], [b"3", b"second"], [b"4", b"second"]]
        a.put(b"last")
        b.recv()
        b.shut(1)
        assert b.dropped == {"full": 2, "closed": 1}
        b.check()


def test_conflated_queues_keep_the_newest():
    with Bench(sub.pattern) as b:
        a = b.attach(conflate_in=True)
        b.subscribe(b"")
        b.open(1)
        b.subscribe(b"", context=1)
        for body in (b"0", b"1"):           # the socket's own queue gets both
            a.put(body)
            assert b.recv_all(context=1) == [[body]]
        assert b.recv_all() == [[b"1"]]
        assert b.dropped == {"conflated": 1}
        b.check()


def test_who_is_never_told_is_filtered_in_silence():
    for facts in ({"unversioned": True}, {"sp": True}):
        with Bench(sub.pattern) as b:
            a = b.attach(**facts)
            b.subscribe(b"yes")
            for i in range(5):
                a.put(b"no%d" % i)
            a.put(b"yes")
            assert b.query("can_recv") == 1
            assert b.recv_all() == [[b"yes"]]
            assert a.in_dropped == {"unsubscribed": 5} and b.events == []
            b.check()


TOPICS = (b"", b"a", b"ab", b"b")
steps = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)), max_size=60)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_against_a_model(script):
    """Every context gets, in order, what matched when the pipes were read, whoever read them."""
    with Bench(sub.pattern) as b:
        a = b.attach()
        wants, queues = {0: []}, {0: deque()}
        pipe, last = deque(), 0

        def pump(asked):
            while pipe and not queues[asked]:
                body = pipe.popleft()
                for name, topics in wants.items():
                    if any(body.startswith(topic) for topic in topics):
                        queues[name].append(body)

        for step, which, what in script:
            name = sorted(wants)[which % len(wants)]
            topic = TOPICS[what]
            if step == 0:
                last += 1
                b.open(last)
                wants[last], queues[last] = [], deque()
            elif step == 1 and name:
                b.shut(name)
                del wants[name], queues[name]
            elif step == 2:
                b.subscribe(topic, context=name)
                wants[name].append(topic)
            elif step == 3:
                known = topic in wants[name]
                assert b.subscribe(topic, False, context=name) is \
                    (Status.OK if known else Status.INVALID)
                if known:
                    wants[name].remove(topic)
            elif step == 4:
                body = b"abc"[which:which + 2] + b"%d" % len(pipe)
                a.put(body)
                pipe.append(body)
            else:
                pump(name)
                got = b.recv(context=name)
                assert got == ([queues[name].popleft()] if queues[name] else Status.AGAIN)
            b.check()
