"""Bounds on what subscribers make a publisher keep: unread notifications, topics."""

import pytest
from rawzmtp import RawPeer, frame
from waiting import until

import mqcore as mq
from mqcore.spi.drop import DROP_REASONS

FULL = [name for name, _ in DROP_REASONS].index("full")


def subscriber(s, kind: str = "SUB") -> RawPeer:
    peer = RawPeer.connect(s.endpoints[0].url)
    peer.shake(kind)
    s.wait_peers(1, 10)
    return peer


def dropped(s) -> int:
    return s._accounts()["dropped"][FULL]


def notes_of(s) -> int:
    """Receives all that waits; how many."""
    n = 0
    while True:
        try:
            s.recv(timeout=0)
        except mq.RecvTimeout:
            return n
        n += 1


def test_notifications_that_nobody_receives_are_bounded_and_counted(ctx):
    topic = bytes(60_000)
    rounds = 400                              # 46 MiB of notifications
    with ctx.socket("xpub", bind="tcp://127.0.0.1:0") as xpub, xpub.events() as events:
        peer = subscriber(xpub)
        peer.say((frame(b"\1" + topic) + frame(b"\0" + topic)) * rounds)
        peer.say(frame(b"\1last"))
        xpub.wait_subscribers(b"last", timeout=20)
        assert dropped(xpub) > 0
        kept = notes_of(xpub)
        assert kept + dropped(xpub) == 2 * rounds + 1
        assert 15 << 20 < (kept - 1) * len(topic) <= 16 << 20   # and the small one
        peer.say(frame(b"\1again"))
        assert xpub.recv(timeout=5) == b"\1again"
        peer.close()
        while (event := events.get(5)).kind != "Dropped":
            pass
        assert "full" in event.reason


@pytest.mark.parametrize("pattern", ["pub", "xpub"])
def test_a_peer_that_subscribes_to_too_much_is_disconnected(ctx, pattern):
    with ctx.socket(pattern, bind="tcp://127.0.0.1:0", max_subscription_bytes=1000) as pub:
        good, bad = subscriber(pub), subscriber(pub)
        pub.wait_peers(2, 10)
        with pub.events() as events:
            for n in range(10):               # 10 times 64 + 7 bytes
                bad.say(frame(b"\1topic %d" % n))
            good.say(frame(b"\1" + bytes(900)))
            pub.wait_subscribers(b"topic 9", timeout=10)
            pub.wait_subscribers(bytes(900), timeout=10)
            bad.say(frame(b"\0topic 0") + frame(b"\1topic 0") * 30)      # as many as before
            until(lambda: pub._query(1, b"topic 0") == 1)
            bad.say(frame(b"\1" + bytes(300)))
            until(lambda: pub._attached() == 1)
            until(lambda: pub._query(1, b"topic 9") == 0)
            assert pub._query(1, bytes(900)) == 1
            while (event := events.get(5)).kind != "Refused":
                pass
            assert "max_subscription_bytes" in event.reason
        good.close()
        bad.close()


def test_a_dish_that_joins_too_many_groups_is_disconnected(ctx):
    with ctx.socket("radio", bind="inproc://radio", max_subscription_bytes=300) as radio:
        with ctx.socket("dish", connect="inproc://radio") as dish:
            for n in range(4):
                dish.join(f"g{n}")
            radio.wait_subscribers("g3", timeout=5)
            dish.join("too many")
            until(lambda: radio._query(1, b"g3") == 0)


def test_no_limit_of_ordinary_size_is_met(ctx):
    with ctx.socket("pub", bind="tcp://127.0.0.1:0") as pub, ctx.socket(
            "sub", connect=pub.endpoints[0].url) as sub:
        for n in range(5000):
            sub.subscribe(b"an ordinary topic/%d" % n)
        pub.wait_subscribers(b"an ordinary topic/4999", timeout=10)
        assert pub._attached() == 1
