"""What options of the patterns do towards pyzmq peers: ROUTER's ids, XPUB's kinds, conflate,
retain."""

import pytest
from rawzmtp import RawListener, RawPeer, message
from waiting import until

import mqcore as mq

LIMIT = 60
HERE = "tcp://127.0.0.1:0"


@pytest.fixture
def bound(ctx):
    def make(pattern, **options):
        s = ctx.socket(pattern, recv_timeout=LIMIT, send_timeout=LIMIT, bind=HERE, **options)
        return s, s.endpoints[0].url
    return make


# -- ROUTER ----------------------------------------------------------------------------------------

def test_routing_ids(bound, zsock):
    s, url = bound("router")
    named = zsock("DEALER", connect=url, ROUTING_ID=b"name")
    plain = zsock("DEALER", connect=url)
    named.send(b"from named")
    assert s.recv_parts() == [b"name", b"from named"]
    plain.send(b"from plain")
    made, body = s.recv_parts()
    assert len(made) == 5 and made[0] == 0 and body == b"from plain"
    s.send_to(made, b"to plain")
    s.send_to(b"name", b"to", b"named")
    assert plain.recv_multipart() == [b"to plain"]
    assert named.recv_multipart() == [b"to", b"named"]


def test_our_routing_id_is_seen(bound, ctx, zsock, zurl):
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*")
    for pattern in ("dealer", "req", "router"):
        s = ctx.socket(pattern, routing_id=b"we-" + pattern.encode(), connect=zurl(z))
        s.wait_peers(1, LIMIT)
        if pattern == "router":
            s.send_to(s.peers()[0], b"x")
        else:
            s.send(b"x")
        assert z.recv_multipart()[0] == b"we-" + pattern.encode()


def test_mandatory(bound, zsock):
    s, url = bound("router")
    with pytest.raises(mq.NoSuchPeer):
        s.send_to(b"nobody", b"x")
    z = zsock("DEALER", connect=url, ROUTING_ID=b"z")
    s.wait_peers(1, LIMIT)
    s.send_to(b"z", b"x")
    assert z.recv() == b"x"
    z.close()
    until(lambda: not s.peers())
    with pytest.raises(mq.NoSuchPeer):
        s.send_to(b"z", b"x")


def test_not_mandatory(bound):
    s, _ = bound("router", mandatory=False)
    for _ in range(3):
        s.send_to(b"nobody", b"x")
    assert s.stats().dropped == {"no_peer": 3}


def test_mandatory_of_pyzmq(ctx, zsock, zurl):
    import zmq
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*", ROUTER_MANDATORY=1)
    s = ctx.socket("dealer", routing_id=b"ours", connect=zurl(z))
    s.wait_peers(1, LIMIT)
    s.send(b"hello")
    assert z.recv_multipart() == [b"ours", b"hello"]
    s.close()

    def unreachable():
        z.poll(0)
        try:
            z.send_multipart([b"ours", b"x"])
        except zmq.ZMQError as error:
            return error.errno == zmq.EHOSTUNREACH
    until(unreachable)


def test_handover(bound, zsock):
    """The newer one of two with the same id gets what is sent to it."""
    s, url = bound("router", handover=True)
    first = zsock("DEALER", connect=url, ROUTING_ID=b"same")
    first.send(b"1")
    assert s.recv_parts() == [b"same", b"1"]
    second = zsock("DEALER", connect=url, ROUTING_ID=b"same")
    second.send(b"2")
    assert s.recv_parts() == [b"same", b"2"]
    s.send_to(b"same", b"answer")
    assert second.recv() == b"answer"
    assert not first.poll(20)


def test_no_handover(bound):
    """The older one keeps the id; the newer is refused, with a reason."""
    s, url = bound("router", handover=False)
    with RawPeer.connect(url) as first, RawPeer.connect(url) as second, s.events() as events:
        first.shake("DEALER", identity=b"same")
        first.say(message(b"1"))
        assert s.recv_parts() == [b"same", b"1"]
        second.shake("DEALER", identity=b"same")
        second.say(message(b"2"))
        seen = []
        while not {"Refused", "Disconnected"} & set(seen):
            seen.append(events.get(LIMIT).kind)
        s.send_to(b"same", b"answer")
        assert first.parts() == [b"answer"]
        with pytest.raises(mq.RecvTimeout):
            s.recv_parts(timeout=0.05)


def test_handover_of_pyzmq(ctx, zsock, zurl):
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*", ROUTER_HANDOVER=1)
    for n in range(3):
        s = ctx.socket("dealer", routing_id=b"same", connect=zurl(z), recv_timeout=LIMIT)
        s.send(b"%d" % n)
        assert z.recv_multipart() == [b"same", b"%d" % n]
        z.send_multipart([b"same", b"re %d" % n])
        assert s.recv() == b"re %d" % n


@pytest.mark.parametrize("pattern", ["dealer", "req", "router"])
def test_our_probe(ctx, zsock, zurl, pattern):
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*")
    ctx.socket(pattern, routing_id=b"ours", probe=True, connect=zurl(z))
    assert z.recv_multipart() == [b"ours", b""]


def test_their_probe(bound, zsock):
    s, url = bound("router")
    zsock("DEALER", PROBE_ROUTER=1, ROUTING_ID=b"z", connect=url)
    assert s.recv_parts() == [b"z", b""]


def test_a_router_that_we_connect_to_a_router(ctx, zsock, zurl):
    """Who connects learns the other's id from its probe."""
    z = zsock("ROUTER", bind="tcp://127.0.0.1:*", ROUTING_ID=b"theirs", PROBE_ROUTER=1)
    s = ctx.socket("router", routing_id=b"ours", connect=zurl(z), recv_timeout=LIMIT)
    s.wait_peers(1, LIMIT)
    assert until(lambda: probed(z, s)) == [b"theirs", b""]
    s.send_to(b"theirs", b"x")
    assert z.recv_multipart() == [b"ours", b"x"]


def probed(z, s):
    """libzmq sends its probe when its socket is next used, if the peer is there by then."""
    z.poll(0)
    try:
        return s.recv_parts(timeout=0.02)
    except mq.RecvTimeout:
        return None


# -- publishers ------------------------------------------------------------------------------------

def heard(s, n=1):
    return [s.recv() for _ in range(n)]


def silent(s):
    with pytest.raises(mq.RecvTimeout):
        s.recv(timeout=0.05)


def test_xpub_tells_the_first_and_the_last(bound, zsock):
    s, url = bound("xpub")
    a, b = (zsock("SUB", connect=url) for _ in range(2))
    a.subscribe(b"t")
    assert heard(s) == [b"\1t"]
    b.subscribe(b"t")
    s.wait_subscribers(b"t", 2, LIMIT)
    a.unsubscribe(b"t")
    until(lambda: subscribers(s, b"t") == 1)
    silent(s)
    b.close()                               # a vanished peer's subscriptions end
    assert heard(s) == [b"\0t"]


def subscribers(s, topic):
    try:
        s.wait_subscribers(topic, 1 << 30, 0)
    except mq.WaitTimeout as error:
        return error.have


def test_xpub_verbose(bound, zsock):
    s, url = bound("xpub", verbose=True)
    for n in range(3):
        zsock("SUB", connect=url).subscribe(b"t")
        assert heard(s) == [b"\1t"]


def test_xpub_verboser(bound, zsock):
    s, url = bound("xpub", verboser=True)
    subs = [zsock("SUB", connect=url) for n in range(3)]
    for sub in subs:
        sub.subscribe(b"t")
        assert heard(s) == [b"\1t"]
    for sub in subs:
        sub.unsubscribe(b"t")
        assert heard(s) == [b"\0t"]


def test_xpub_manual(bound, zsock):
    """Nothing is applied by itself; the application may give other topics than were asked for."""
    s, url = bound("xpub", manual=True)
    with pytest.raises(mq.StateError):
        s.subscribe(b"x")                   # nobody has asked
    a, b = (zsock("SUB", connect=url) for _ in range(2))
    a.subscribe(b"a")
    assert heard(s) == [b"\1a"]
    s.subscribe(b"A", "AA")
    b.subscribe(b"b")
    assert heard(s) == [b"\1b"]
    s.subscribe(b"b")
    assert subscribers(s, b"a") == 0 and subscribers(s, b"A") == 1 == subscribers(s, b"b")
    s.send(b"b1")
    assert b.recv() == b"b1"
    b.unsubscribe(b"b")
    assert heard(s) == [b"\0b"]
    assert subscribers(s, b"b") == 1        # not before we say so
    s.unsubscribe(b"b")
    assert subscribers(s, b"b") == 0
    b.close()
    until(lambda: len(s.peers()) == 1)
    s.subscribe(b"b")       # for one that has gone: no error
    assert subscribers(s, b"b") == 0


def test_subscribe_is_for_manual_ones(bound):
    s, _ = bound("xpub")
    with pytest.raises(mq.UsageError, match="manual"):
        s.subscribe(b"x")


def test_xpub_welcome(bound, zsock):
    s, url = bound("xpub", welcome=b"hello there")
    z = zsock("SUB")
    z.subscribe(b"hello")
    z.connect(url)
    assert z.recv() == b"hello there"
    s.wait_subscribers(b"hello", 1, LIMIT)
    s.send(b"hello again")
    assert z.recv() == b"hello again"


def test_xpub_hears_other_messages(bound, zsock):
    s, url = bound("xpub")
    z = zsock("XSUB", connect=url)
    z.send_multipart([b"\1t"])
    z.send_multipart([b"\2not", b"a topic"])
    assert s.recv_parts() == [b"\1t"]
    assert s.recv_parts() == [b"\2not", b"a topic"]


def test_pub_drops_other_messages_and_goes_on(bound, zsock):
    s, url = bound("pub")
    z = zsock("XSUB", connect=url)
    z.send(b"\2not a topic")
    z.send(b"\1t")
    s.wait_subscribers(b"t", 1, LIMIT)
    s.send(b"t")
    assert z.recv() == b"t"
    [peer] = s.stats().peers.values()
    assert peer.dropped_in == {"unexpected": 1}


def test_subscriptions_change_while_messages_flow(bound, zsock):
    """Each publication after a change that the publisher has seen obeys it, none is lost or
    doubled."""
    s, url = bound("pub")
    z = zsock("SUB", connect=url)
    z.subscribe(b"x")
    s.wait_subscribers(b"x", 1, LIMIT)
    n = 0
    for round in range(20):
        topic = b"t%d" % (round % 3)
        z.subscribe(topic)
        s.wait_subscribers(topic, 1, LIMIT)
        for _ in range(10):
            for t in (b"t0", b"t1", b"t2", b"x"):
                s.send_parts([t, b"%d" % n])
                n += 1
        want = [[t, b"%d" % m] for m, t in zip(range(n - 40, n), [b"t0", b"t1", b"t2", b"x"] * 10,
                                               strict=True) if t in (topic, b"x")]
        assert [z.recv_multipart() for _ in want] == want
        z.unsubscribe(topic)
        until(lambda topic=topic: subscribers(s, topic) == 0)


def test_our_subscriptions_change_while_messages_flow(ctx, zsock, zurl):
    z = zsock("XPUB", bind="tcp://127.0.0.1:*")
    s = ctx.socket("sub", connect=zurl(z), recv_timeout=LIMIT)
    s.subscribe("x")
    assert z.recv() == b"\1x"
    for round in range(20):
        topic = b"t%d" % (round % 3)
        s.subscribe(topic, topic)            # counted: told once
        assert z.recv() == b"\1" + topic
        s.unsubscribe(topic)
        for t in (b"t0", b"t1", b"t2", b"x"):
            z.send_multipart([t, b"%d" % round])
        want = sorted([[topic, b"%d" % round], [b"x", b"%d" % round]])
        assert [s.recv_parts() for _ in want] == want
        s.unsubscribe(topic)
        assert z.recv() == b"\0" + topic
    assert not z.poll(0)


def test_retain(bound, zsock):
    """A late subscriber gets the latest of each topic that it wants, before live ones."""
    s, url = bound("pub", retain=1)
    for n in range(5):
        for topic in (b"a1", b"a2", b"b"):
            s.send_parts([topic, b"%d" % n])
    z = zsock("SUB", connect=url)
    z.subscribe(b"a")
    s.wait_subscribers(b"a", 1, LIMIT)
    s.send_parts([b"a1", b"live"])
    got = [z.recv_multipart() for _ in range(3)]
    assert sorted(got[:2]) == [[b"a1", b"4"], [b"a2", b"4"]] and got[2] == [b"a1", b"live"]


# -- conflate --------------------------------------------------------------------------------------

def test_conflate_at_our_receiver(bound, zsock):
    s, url = bound("pull", conflate=True)
    z = zsock("PUSH", connect=url)
    for n in range(1000):
        z.send(b"%d" % n)
    got = []
    while not got or got[-1] != b"999":
        got.append(s.recv())
    assert got == sorted(got, key=int)
    [peer] = s.stats().peers.values()
    assert peer.read == 1000 == peer.delivered + peer.dropped_in.get("conflated", 0)


def test_conflate_at_our_sender(ctx):
    """The peer reads nothing until the last is sent: what it had not been sent was replaced."""
    with RawListener() as listener:
        s = ctx.socket("push", conflate=True, connect=listener.url, send_buffer=4096)
        with listener.accept() as peer:
            peer.shake("PULL")
            s.wait_peers(1, LIMIT)
            for n in range(500):
                s.send(b"%4d" % n * 5000)
            last = b"%4d" % 499 * 5000
            got = [peer.parts()]
            while got[-1] != [last]:
                got.append(peer.parts())
            numbers = [int(parts[0][:4]) for parts in got]
            assert numbers == sorted(set(numbers)) and len(numbers) < 500
            [stats] = s.stats().peers.values()
            assert stats.offered == 500 == len(got) + stats.dropped_out["conflated"]


def test_conflate_of_pyzmq(bound, zsock):
    s, url = bound("push")
    z = zsock("PULL", CONFLATE=1, connect=url)
    for n in range(1000):
        s.send(b"%d" % n)
    got = []
    while not got or got[-1] != b"999":
        got.append(z.recv())
    assert got == sorted(got, key=int)


def test_heartbeat_ttl_is_told_to_the_peer(ctx):
    with RawListener() as listener:
        push = ctx.socket("push", connect=listener.url, heartbeat=0.05, heartbeat_ttl=2.5)
        with push, listener.accept() as peer:
            peer.shake("PULL")
            flags, body = peer.frame()
            assert (flags, body[:7]) == (4, b"\x04PING\x00\x19")  # tenths of a second
            push.close(0)
