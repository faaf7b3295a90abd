"""BUS and PAIR1 on the bench: fan-out without a way back, counted links, many peers at one pair."""

import pytest
from mqcore.protocols import bus, pair1
from mqcore.testing.native.pattern_bench import Bench, Event, Refused, Status

ROUTING_ID = 16


# -- BUS -------------------------------------------------------------------------------------------

def test_bus_to_all_from_all():
    with Bench(bus.pattern) as b:
        assert b.send(b"nobody") is Status.OK and b.unmatched == 1
        fars = [b.attach() for _ in range(3)]
        assert b.send(b"x", b"y" * 99) is Status.OK
        assert [far.take() for far in fars] == [[b"x", b"y" * 99]] * 3
        for k in range(2):
            for i, far in enumerate(fars):
                far.put(b"%d %d" % (i, k))
        got = [parts[0] for parts in b.recv_all()]
        assert [m[2:] for m in got] == [b"0"] * 3 + [b"1"] * 3     # in turn
        assert all(far.take() is None for far in fars)              # nothing is forwarded
        b.check()


def test_bus_at_a_mark():
    with Bench(bus.pattern) as b:
        slow, quick = b.attach(hwm=2), b.attach()
        for n in range(4):
            assert b.send(b"%d" % n) is Status.OK
        assert (slow.out_dropped, quick.queued_out) == ({"full": 2}, 4)
        assert b.set_option("nodrop", 1) is Status.OK
        assert b.send(b"waits") is Status.FULL
        assert quick.queued_out == 4
        b.set_option("nodrop", 0)
        b.set_option("disconnect", 1)
        b.send(b"5")
        assert (slow.resets, quick.resets) == (1, 0)
        assert (Event.TOO_SLOW, slow.id, b"") in b.events
        b.check()


def test_raw_bus_does_not_send_back():
    with Bench(bus.pattern, raw=True) as b:
        fars = [b.attach() for _ in range(3)]
        fars[1].put(b"m", b"n")
        got = b.recv_flags()
        hop = got[0][0]
        assert len(hop) == 5 and hop[0] == 0 and not hop[1] & 0x80
        assert got == [(hop, ROUTING_ID | 1), (b"m", 1), (b"n", 0)] and b.peer == fars[1].id
        assert b.send(hop, b"m", b"n") is Status.OK
        assert [far.take() for far in fars] == [[b"m", b"n"], None, [b"m", b"n"]]
        assert b.send(hop[:-1] + bytes([hop[-1] ^ 0x55]), b"m") is Status.OK   # of another bus
        assert [far.take() for far in fars] == [[b"m"]] * 3
        assert b.send(b"of one's own") is Status.OK
        assert [far.take() for far in fars] == [[b"of one's own"]] * 3
        b.check()


def test_two_buses_number_their_peers_differently():
    with Bench(bus.pattern, raw=True) as b, Bench(bus.pattern, raw=True) as c:
        b.attach().put(b"m")
        far = c.attach()
        assert c.send(*b.recv()) is Status.OK
        assert far.take() == [b"m"]


# -- PAIR1 -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("sp, hops", [(True, 3), (False, 2)])
def test_hop_limit(sp, hops):
    """A codec has counted the link already; within the process the receiver does."""
    with Bench(pair1.pattern, max_hops=3) as b:
        a = b.attach(sp=sp)
        a.put(b"too far", hops=hops + 1)
        assert b.query("can_recv") == 0
        a.put(b"too", b"far", hops=hops + 1)
        a.put(b"fits", hops=hops)
        assert b.recv() == [b"fits"] and b.recv() is Status.AGAIN
        assert a.in_dropped == {"hop_limit": 2}
        b.check()


@pytest.mark.parametrize("raw", [False, True])
def test_what_is_sent_has_passed_nothing_unless_raw(raw):
    """Through one pair into the next, as a device does it."""
    with Bench(pair1.pattern, raw=raw) as b:
        a = b.attach(sp=True)
        assert b.send(b"m", hops=5) is Status.OK
        assert a.take() == [b"m"] and a.hops == (5 if raw else 0)
        a.put(b"m", hops=4)
        b.recv()
        assert b.hops == 4


def test_one_peer_unless_poly():
    with Bench(pair1.pattern) as b:
        a = b.attach()
        with pytest.raises(Refused):
            b.attach()
        assert b.set_option("poly", 1) is Status.OK
        c = b.attach()
        assert b.set_option("poly", 0) is Status.INVALID
        c.put(b"hi")
        assert b.recv() == [b"hi"] and b.peer == c.id
        assert b.send_to(c.id, b"for you") is Status.OK and c.take() == [b"for you"]
        assert b.send(b"first") is Status.OK and a.take() == [b"first"]
        a.detach()
        assert b.send(b"next") is Status.OK and c.take() == [b"next"]
        assert b.send_to(a.id, b"gone") is Status.NO_PEER
        assert b.set_option("poly", 0) is Status.OK


def test_poly_drops_at_a_mark():
    with Bench(pair1.pattern, poly=True) as b:
        assert b.send(b"nobody") is Status.AGAIN and b.query("can_send") == 0
        a, c = b.attach(hwm=1), b.attach(hwm=1)
        assert [b.send(b"x"), b.send(b"x")] == [Status.OK, Status.DROPPED]
        assert [b.send_to(c.id, b"x"), b.send_to(c.id, b"x")] == [Status.OK, Status.DROPPED]
        assert a.out_dropped == c.out_dropped == {"full": 1} and b.query("can_send") == 1
        b.check()
    with Bench(pair1.pattern) as b:
        a = b.attach(hwm=1)
        assert [b.send(b"x"), b.send(b"x")] == [Status.OK, Status.FULL] and not a.out_dropped
