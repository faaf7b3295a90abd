"""PUSH, PULL and PAIR on the bench: who gets what, what happens at the mark, who may leave when."""

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqcore.protocols import pair, pull, push
from mqcore.testing.native.pattern_bench import Bench, Event, Refused, Status


def test_push_goes_round():
    with Bench(push.pattern) as b:
        assert b.send(b"x") is Status.AGAIN
        fars = [b.attach() for _ in range(3)]
        for i in range(9):
            assert b.send(b"%d" % i) is Status.OK
        got = [[m[0] for m in far.take_all()] for far in fars]
        assert sorted(len(g) for g in got) == [3, 3, 3]
        assert sorted(x for g in got for x in g) == [b"%d" % i for i in range(9)]
        assert all(b"%d" % i in got[i % 3] for i in range(9))
        b.check()


def test_push_skips_the_full_and_comes_back():
    with Bench(push.pattern) as b:
        slow, fast = b.attach(hwm=2), b.attach(hwm=100)
        for i in range(10):
            assert b.send(b"%d" % i) is Status.OK
        assert (slow.queued_out, fast.queued_out) == (2, 8)
        assert len(slow.take_all()) == 2
        for _ in range(4):
            assert b.send(b"y") is Status.OK
        assert (slow.queued_out, fast.queued_out) == (2, 10)
        b.check()


def test_push_full_everywhere_then_room():
    with Bench(push.pattern) as b:
        a = b.attach(hwm=1)
        assert b.query("can_send") == 1
        assert b.send(b"1") is Status.OK
        assert b.send(b"2") is Status.FULL
        assert b.query("can_send") == 0
        assert a.take() == [b"1"]
        assert b.send(b"2") is Status.OK
        a.hangup()
        assert b.send(b"3") is Status.AGAIN


def test_push_writable_after_the_end_changes_nothing():
    with Bench(push.pattern) as b:
        a = b.attach(hwm=1)
        b.send(b"1")
        assert b.send(b"2") is Status.FULL
        a.hangup()
        assert a.take() == [b"1"]
        assert b.send(b"2") is Status.AGAIN


def test_push_bytes_mark_lets_one_large_message_in():
    with Bench(push.pattern) as b:
        a = b.attach(hwm=None, hwm_bytes=100)
        assert b.send(b"x" * 1000) is Status.OK
        assert b.send(b"y") is Status.FULL
        assert a.take() == [b"x" * 1000]
        assert b.send(b"y") is Status.OK


def test_push_priorities_and_their_events():
    with Bench(push.pattern) as b:
        back = b.attach(prio=9)
        best, best2 = b.attach(prio=1, hwm=2), b.attach(prio=1, hwm=2)
        assert b.events == [(Event.FAILED_BACK, best.id, pack("4I", back.id, 9, 1, 0))]
        for _ in range(6):
            assert b.send(b"x") is Status.OK
        assert (best.queued_out, best2.queued_out, back.queued_out) == (2, 2, 2)
        best.take()
        assert b.send(b"y") is Status.OK
        assert best.queued_out == 2
        best.detach()
        best2.hangup()
        assert b.events[-1] == (Event.FAILED_OVER, best2.id, pack("4I", back.id, 1, 9, 0))
        assert len(b.events) == 2
        b.send(b"z")
        assert back.queued_out == 3
        best2.detach()


@pytest.mark.parametrize("prio", [-3, 0, 1, 16, 17, 1000])
def test_priorities_outside_the_range_are_the_nearest(prio):
    with Bench(push.pattern) as b:
        a = b.attach(prio=prio)
        assert b.send(b"x") is Status.OK
        assert a.take() == [b"x"]


def test_push_multipart_is_one_message():
    with Bench(push.pattern) as b:
        a, c = b.attach(hwm=1), b.attach(hwm=1)
        assert b.send(b"1", b"", b"3" * 100) is Status.OK
        assert b.send(b"4", b"5") is Status.OK
        assert b.send(b"6", b"7") is Status.FULL
        assert a.take_all() + c.take_all() == [[b"1", b"", b"3" * 100], [b"4", b"5"]]


def test_push_counts_what_nobody_wants():
    with Bench(push.pattern) as b:
        a = b.attach()
        a.put(b"hello")
        a.put(b"x" * 100, b"y")
        assert a.in_dropped == {"unexpected": 2}
        assert b.recv() is Status.UNSUPPORTED
        assert b.query("can_recv") == 0
        assert b.query_raw(99) == -1
        b.check()


def test_push_conflate_keeps_the_newest():
    with Bench(push.pattern) as b:
        a = b.attach(conflate=True)
        for i in range(5):
            assert b.send(b"%d" % i) is Status.OK
        assert b.send(b"a", b"b") is Status.INVALID
        assert a.take_all() == [[b"4"]]
        assert a.out_dropped == {"conflated": 4}
        b.check()


def test_pull_is_fair_per_message():
    with Bench(pull.pattern) as b:
        loud, quiet = b.attach(), b.attach()
        for i in range(10):
            loud.put(b"l%d" % i, b"more")
        quiet.put(b"q0")
        quiet.put(b"q1")
        assert [m[0] for m in b.recv_all()] == [b"l0", b"q0", b"l1", b"q1"] + [
            b"l%d" % i for i in range(2, 10)]
        assert b.send(b"x") is Status.UNSUPPORTED
        assert b.recv() is Status.AGAIN
        b.check()


def test_pull_reads_what_a_gone_peer_left():
    with Bench(pull.pattern) as b:
        a = b.attach()
        a.put(b"1")
        a.put(b"2")
        a.hangup()
        assert b.query("can_recv") == 1
        assert b.recv() == [b"1"]
        assert b.peer == a.id
        a.detach()
        assert b.recv() is Status.AGAIN
        assert b.query("can_recv") == 0


def test_pull_passes_over_control():
    with Bench(pull.pattern) as b:
        a = b.attach()
        a.put_subscribe(b"topic")
        assert b.query("can_recv") == 0
        a.put_subscribe(b"topic")
        assert b.recv() is Status.AGAIN
        a.put_cancel(b"t")
        a.put(b"x")
        assert b.query("can_recv") == 1
        assert b.recv() == [b"x"]
        b.check()


def test_pull_conflating():
    with Bench(pull.pattern) as b:
        a = b.attach(conflate=True)
        a.put(b"1")
        a.put(b"2")
        assert b.query("can_recv") == 1
        assert b.recv() == [b"2"]
        assert b.recv() is Status.AGAIN
        b.check()


def test_pair_takes_one_peer():
    with Bench(pair.pattern) as b:
        assert b.send(b"x") is Status.AGAIN
        a = b.attach(hwm=1)
        with pytest.raises(Refused):
            b.attach()
        assert [e[0] for e in b.events] == [Event.REFUSED]
        assert b.send(b"x", b"y") is Status.OK
        assert b.send(b"z") is Status.FULL
        assert a.take() == [b"x", b"y"]
        a.put(b"answer")
        assert b.query("can_recv") == 1
        assert b.recv() == [b"answer"]
        b.check()


def test_pair_next_peer_while_the_last_one_is_read():
    with Bench(pair.pattern) as b:
        a = b.attach()
        a.put(b"1")
        a.put(b"2")
        a.hangup()
        assert b.send(b"x") is Status.AGAIN
        c = b.attach()
        assert b.send(b"x") is Status.OK
        assert c.take() == [b"x"]
        assert b.recv_all() == [[b"1"], [b"2"]]
        a.detach()
        assert b.send(b"y") is Status.OK
        assert c.take() == [b"y"]


def test_unwatched_hosts_hear_nothing():
    with Bench(pair.pattern, watched=False) as b:
        b.attach()
        with pytest.raises(Refused):
            b.attach()
        assert b.events == []


steps = st.lists(st.tuples(st.sampled_from(["attach", "send", "take", "hangup", "detach", "put"]),
                           st.integers(0, 7), st.integers(1, 4)), max_size=80)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_push_any_order_of_events(program):
    """Nothing is lost, doubled or torn, whatever peers do."""
    with Bench(push.pattern) as b:
        fars, seen, taken, lost = [], 0, [], 0
        for what, i, n in program:
            far = fars[i % len(fars)] if fars else None
            if what == "attach":
                fars.append(b.attach(hwm=n, prio=1 + i % 3))
            elif what == "send":
                rc = b.send(*[b"%d" % seen] * n)
                live = [f for f in fars if not f.hung_up]
                assert (rc is Status.AGAIN) == (not live)
                if rc is Status.OK:
                    seen += 1
                elif live:
                    assert rc is Status.FULL
            elif far is None:
                continue
            elif what == "take":
                taken += [m[0] for m in far.take_all()]
            elif what == "put" and not far.hung_up:
                far.put(b"?")
            elif what == "hangup":
                far.hangup()
            elif what == "detach":
                lost += far.queued_out
                far.detach()
                fars.remove(far)
            b.check()
        queued = sum(f.queued_out for f in fars)
        assert len(taken) == len(set(taken))
        assert len(taken) + queued + lost == seen


@settings(max_examples=60, deadline=None)
@given(steps)
def test_pull_any_order_of_events(program):
    with Bench(pull.pattern) as b:
        fars, put, got = [], {}, {}
        for k, (what, i, n) in enumerate(program):
            far = fars[i % len(fars)] if fars else None
            if what == "attach":
                fars.append(b.attach())
            elif what in ("send", "take"):
                waiting = sum(f.queued_in for f in fars)
                assert b.query("can_recv") == (waiting > 0)
                m = b.recv()
                assert (m is Status.AGAIN) == (waiting == 0)
                if waiting:
                    got.setdefault(b.peer, []).append(m)
            elif far is None:
                continue
            elif what == "put" and not far.hung_up:
                put.setdefault(far.id, []).append([b"%d" % k] * n)
                far.put(*put[far.id][-1])
            elif what == "hangup":
                far.hangup()
            elif what == "detach":
                far.detach()
                fars.remove(far)
            b.check()
        for peer, messages in got.items():
            assert messages == put[peer][:len(messages)]
