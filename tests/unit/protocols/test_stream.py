"""STREAM on the bench: notes and their order, ends, ids that come again."""

import pytest
from mqcore.protocols import stream
from mqcore.testing.native.pattern_bench import Bench, Event, Refused, Status

MORE, ROUTING_ID = 1, 16


def test_notes_stand_around_what_a_connection_brought():
    with Bench(stream.pattern, notify=True) as b:
        a, c = b.attach(), b.attach()
        a.put(b"x")
        a.put(b"y")
        (first, flags), (empty, last) = b.recv_flags()
        assert (flags, empty, last) == (ROUTING_ID | MORE, b"", 0)
        second = b.recv()[0]
        a.hangup()
        assert [b.recv() for _ in range(2)] == [[first, b"x"], [first, b"y"]]
        assert a.delivered == 2 and c.delivered == 0
        a.detach()
        assert b.recv() == [first, b""] and second != first
        assert b.query("can_recv") == 0 and b.recv() is Status.AGAIN
        b.check()


def test_an_empty_message_is_the_end_and_nobody_is_told():
    with Bench(stream.pattern, notify=True) as b:
        a = b.attach(hwm=1)
        name = b.recv()[0]
        assert b.send(name, b"", b"x", b"") is Status.OK  # of several parts some may be empty
        assert b.send(name, b"y") is Status.FULL
        assert b.send(name, b"", b"") is Status.OK        # which no mark stops
        assert b.send(name, b"y") is b.send_to(a.id, b"y") is Status.NO_PEER
        assert [a.take(), a.take(), a.take()] == [[b"", b"x", b""], [b""], None]
        a.put(b"came before")
        a.hangup()
        assert b.recv() == [name, b"came before"]
        a.detach()
        assert b.recv() is Status.AGAIN
        b.check()


def test_an_id_that_comes_again_waits_for_its_turn():
    with Bench(stream.pattern, notify=True) as b:
        old = b.attach(b"it")
        with pytest.raises(Refused):
            b.attach(b"it")
        assert b.events[-1][0] == Event.REFUSED
        old.put(b"1")
        old.hangup()
        lost = b.attach(b"it")          # comes and goes while the first is being read
        lost.hangup()
        lost.detach()
        new = b.attach(b"it")
        new.put(b"2")
        assert b.send(b"it", b"to the new one") is Status.OK
        assert new.take() == [b"to the new one"]
        assert [b.recv() for _ in range(2)] == [[b"it", b""], [b"it", b"1"]]
        assert b.recv() is Status.AGAIN
        old.detach()
        assert [b.recv() for _ in range(3)] == [[b"it", b""], [b"it", b""], [b"it", b"2"]]
        b.check()


def test_who_comes_and_goes_unnoticed_is_sent_away_in_the_end():
    with Bench(stream.pattern, notify=True) as b:
        with pytest.raises(Refused):
            for _ in range(1 << 16):
                far = b.attach()
                far.hangup()
                far.detach()
        assert b.events[-1][0] == Event.REFUSED
        for _ in range(2):
            b.recv()
        b.attach()


def test_not_mandatory_drops_what_is_for_nobody_and_waits_for_who_is_full():
    with Bench(stream.pattern, mandatory=False) as b:
        a = b.attach(b"a", hwm=1)
        assert b.send(b"a", b"1") is Status.OK
        assert b.send(b"a", b"2") is b.send_to(a.id, b"2") is Status.FULL
        assert b.send(b"nobody", b"x") is b.send(b"nobody", b"") is Status.DROPPED
        assert b.dropped == {"no_peer": 2} and a.out_dropped == {}
        b.check()
