"""Peers that are killed, restarted, stopped; heartbeats in both directions. The peers are
processes."""

import pytest
from child import Child
from free import free_address
from rawzmtp import COMMAND, RawListener, RawPeer, command, message
from waiting import until

import mqcore as mq

LIMIT = 60
FAST = {"reconnect": 0.01, "reconnect_max": 0.05}
KINDS = ["tcp", "ipc"]


def address(kind, tmp_path):
    if kind == "ipc":
        return f"ipc://{tmp_path}/s"
    return f"tcp://{free_address()}"        # to come back to


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("theirs", ["zmq", "mqcore"])
def test_a_killed_listener_comes_back(ctx, tmp_path, kind, theirs):
    """Our PUSH reconnects; each process has what was sent while it lived, in order."""
    url = address(kind, tmp_path)
    s = ctx.socket("push", send_timeout=LIMIT, **FAST)
    s.connect(url)
    name = "PULL" if theirs == "zmq" else "pull"
    sent = 0
    for life in range(3):
        with Child(theirs, name, bind=url) as child:
            s.wait_peers(1, LIMIT)
            for _ in range(20):
                s.send(b"%d" % sent)
                assert child.recv() == [b"%d" % sent]
                sent += 1
            child.kill()
            until(lambda: not s.peers())
    assert s.stats().total.written == sent and s.stats().reconnects >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_while_nobody_is_there_waits(ctx, tmp_path, kind):
    url = address(kind, tmp_path)
    s = ctx.socket("push", send_timeout=LIMIT, **FAST)
    s.connect(url)
    with Child("zmq", "PULL", bind=url):
        s.wait_peers(1, LIMIT)
    until(lambda: not s.peers())
    for n in range(100):
        s.send(b"%d" % n)
    assert s.stats().waiting == 100
    with Child("zmq", "PULL", bind=url) as child:
        assert [child.recv() for _ in range(100)] == [[b"%d" % n] for n in range(100)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_connecter_comes_back(ctx, tmp_path, kind):
    """Our listener sees it go and serves the next."""
    s = ctx.socket("rep", recv_timeout=LIMIT)
    url = s.bind(address(kind, tmp_path)).url
    for life in range(2):
        with Child("zmq", "REQ", connect=url) as child:
            child.send(b"question")
            assert s.recv() == b"question"
            s.send(b"answer")
            assert child.recv() == [b"answer"]
            child.send(b"last words")
            m = s.recv_msg()
            child.kill()
            until(lambda: not s.peers())
            with pytest.raises(mq.NoSuchPeer):
                m.reply(b"nobody hears")


def test_a_plain_answer_to_a_killed_peer_is_a_counted_drop(ctx):
    s = ctx.socket("rep", recv_timeout=LIMIT, bind="tcp://127.0.0.1:0")
    with Child("zmq", "REQ", connect=s.endpoints[0].url) as child:
        child.send(b"last words")
        assert s.recv() == b"last words"
        child.kill()
        until(lambda: not s.peers())
        s.send(b"nobody hears")
    stats = s.stats()
    assert sum(stats.dropped.values()) + sum(stats.total.dropped_out.values()) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("theirs", ["SUB", "XSUB"])
def test_our_killed_publisher_comes_back(zsock, tmp_path, kind, theirs):
    """pyzmq subscribers find a publisher of ours again, and their subscriptions hold."""
    url = address(kind, tmp_path)
    z = zsock(theirs, RECONNECT_IVL=10)
    z.subscribe(b"a") if theirs == "SUB" else z.send(b"\1a")
    z.connect(url)
    for life in range(2):
        with Child("mqcore", "pub", bind=url) as child:
            got = set()

            def heard(life=life, child=child, got=got):
                child.send(b"b")
                child.send(b"a%d" % life)
                while z.poll(20):
                    got.add(z.recv())
                return b"a%d" % life in got
            until(heard)
            assert got <= {b"a0", b"a%d" % life}    # what the first sent last may be read late


@pytest.mark.parametrize("kind", KINDS)
def test_subscriptions_are_said_again(ctx, tmp_path, kind):
    """Ours reconnects to a restarted XPUB: it is told what is wanted now."""
    url = address(kind, tmp_path)
    s = ctx.socket("sub", topics=["a", "b"], recv_timeout=LIMIT, **FAST)
    s.connect(url)
    with Child("zmq", "XPUB", bind=url) as child:
        assert {child.recv()[0], child.recv()[0]} == {b"\1a", b"\1b"}
        s.unsubscribe("b")
        assert child.recv() == [b"\0b"]
    until(lambda: not s.peers())
    s.subscribe("c")
    with Child("zmq", "XPUB", bind=url) as child:
        assert {child.recv()[0], child.recv()[0]} == {b"\1a", b"\1c"}
        for topic in (b"a", b"b", b"c"):
            child.send(topic)
        assert [s.recv(), s.recv()] == [b"a", b"c"]


def test_a_stopped_peer_is_given_up(ctx):
    """SIGSTOP: its kernel still answers, it does not."""
    s = ctx.socket("push", bind="tcp://127.0.0.1:0", heartbeat=0.05, heartbeat_timeout=0.2)
    with Child("zmq", "PULL", connect=s.endpoints[0].url) as child, s.events() as events:
        s.wait_peers(1, LIMIT)
        s.send(b"x")
        assert child.recv() == [b"x"]
        until(lambda: next(iter(s.stats().peers.values())).rtt is not None)  # it answers PINGs
        child.stop()
        until(lambda: not s.peers())
        assert "nothing was heard" in reason(events, "Disconnected")
        child.resume()
        s.wait_peers(1, LIMIT)      # libzmq comes back by itself


def reason(events, kind):
    while True:
        event = events.get(LIMIT)
        if event.kind == kind:
            return event.reason


def test_our_stopped_process_is_given_up_by_pyzmq(zsock):
    """pyzmq sends PINGs and gives a silent process of ours up; awake, ours reconnects."""
    import zmq
    z = zsock("PUSH", bind="tcp://127.0.0.1:*", HEARTBEAT_IVL=50, HEARTBEAT_TIMEOUT=200)
    monitor = z.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    monitor.setsockopt(zmq.RCVTIMEO, 10000)
    url = z.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
    from zmq.utils.monitor import recv_monitor_message
    with Child("mqcore", "pull", connect=url, options=dict(FAST)) as child:
        assert recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        assert not monitor.poll(400)         # for two time-outs it is answered
        child.stop()
        assert recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED
        child.resume()
        assert recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        z.send(b"again")
        assert child.recv() == [b"again"]
    z.disable_monitor()
    monitor.close(0)


def test_pings_are_asked_and_answered(ctx):
    s = ctx.socket("pair", bind="tcp://127.0.0.1:0", heartbeat=0.02, heartbeat_timeout=5)
    with RawPeer.connect(s.endpoints[0].url) as peer:
        peer.shake("PAIR")
        flags, body = peer.frame()
        assert flags == COMMAND and body.startswith(b"\4PING") and len(body) >= 7
        peer.say(command(b"PING", b"\0\0context"))
        while body[:5] == b"\4PING":
            flags, body = peer.frame()
        assert (flags, body) == (COMMAND, b"\4PONGcontext")
        peer.say(command(b"PING", b"\0\0" + b"c" * 20))   # only 16 bytes come back
        while not body.startswith(b"\4PONGc" + b"c" * 15):
            flags, body = peer.frame()
        assert body == b"\4PONG" + b"c" * 16


def test_a_ping_between_the_parts_of_a_message(ctx):
    s = ctx.socket("pair", bind="tcp://127.0.0.1:0")
    with RawPeer.connect(s.endpoints[0].url) as peer:
        peer.shake("PAIR")
        two = message(b"one", b"two")
        peer.say(two[:5] + command(b"PING", b"\0\0") + two[5:])
        assert s.recv_parts(timeout=LIMIT) == [b"one", b"two"]
        assert peer.frame() == (COMMAND, b"\4PONG")


def test_the_peers_time_to_live_is_kept(ctx):
    """A PING that says "give me up after 0.2 s of silence"."""
    s = ctx.socket("pair", bind="tcp://127.0.0.1:0", heartbeat=0.05, heartbeat_timeout=60)
    with RawPeer.connect(s.endpoints[0].url) as peer, s.events() as events:
        peer.shake("PAIR")
        s.wait_peers(1, LIMIT)
        peer.say(command(b"PING", b"\0\2"))
        assert "time to live" in reason(events, "Disconnected")
        assert peer.ended()


def test_a_dead_listener_is_noticed_by_a_connecting_socket(ctx):
    with RawListener() as listener:
        s = ctx.socket("pair", heartbeat=0.05, heartbeat_timeout=0.1, **FAST)
        s.connect(listener.url)
        with listener.accept() as peer:
            peer.shake("PAIR")           # and never a word again
            s.wait_peers(1, LIMIT)
            assert peer.ended()
        with listener.accept() as peer:  # it tries again
            peer.shake("PAIR")
            s.wait_peers(1, LIMIT)
            peer.say(message(b"back"))
            assert s.recv(timeout=LIMIT) == b"back"


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_connection_that_breaks_is_made_again(ctx, end):
    with RawListener() as listener:
        s = ctx.socket("dealer", connect=listener.url, recv_timeout=LIMIT, **FAST)
        for n in range(3):
            peer = listener.accept()
            peer.shake("DEALER")
            s.wait_peers(1, LIMIT)
            peer.say(message(b"%d" % n))
            assert s.recv() == b"%d" % n
            getattr(peer, end)()
            until(lambda: not s.peers())


def test_wait_names_what_fails(ctx):
    with RawListener() as listener:
        url = listener.url
    s = ctx.socket("push", **FAST)
    with pytest.raises(mq.ConnectTimeout, match="refused"):
        s.connect(url, wait=0.3)
    assert s.endpoints == ()
