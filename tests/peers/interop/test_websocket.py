"""ws:// with peers that are not ours: a plain socket, the `websockets` package; and ours on both
sides, each pattern, over tcp and a Unix socket."""

import contextlib
import threading

import pytest
from machine import ipv6
from rawws import BINARY, CLOSE, KEY, PING, RawWs, ready, request, ws
from waiting import until

import mqcore as mq

websockets = pytest.importorskip("websockets")
client = pytest.importorskip("websockets.sync.client")
server = pytest.importorskip("websockets.sync.server")

LIMIT = 60
MESSAGES = [[b"small"], [b""], [b"k" * 1024], [b"M" * (1 << 20)], [b"a", b"", b"c" * 300],
            [b"head", b"L" * (1 << 18), b"tail"], [b"x" * 65534], [b"x" * 65535]]


# -- ours on both sides ----------------------------------------------------------------------------

@pytest.fixture(params=["ws://127.0.0.1:0/path", "ws://127.0.0.1:0",
                        pytest.param("ws://[::1]:0/a%20b%3Fc=d", marks=ipv6),
                        "ws+ipc://{tmp}/s:/path", "ws+ipc://{tmp}/s"])
def url(request, tmp_path):
    return request.param.format(tmp=tmp_path)


def pair_of(ctx, ours, theirs, url, **options):
    a = ctx.socket(ours, recv_timeout=LIMIT, send_timeout=LIMIT, **options)
    b = ctx.socket(theirs, recv_timeout=LIMIT, send_timeout=LIMIT, **options)
    if theirs == "sub":
        b.subscribe(b"")
    bound = a.bind(url).url
    b.connect(bound, wait=LIMIT)
    a.wait_peers(1, LIMIT)
    return a, b, bound


def test_the_url_that_comes_back(ctx, url):
    with ctx.socket("pair") as s:
        bound = s.bind(url).url
    head, _, tail = url.partition(":0")
    assert bound.startswith(head) and bound.endswith(tail)


def test_every_message_both_ways(ctx, url):
    a, b, _ = pair_of(ctx, "pair", "pair", url)
    for out, inn in ((a, b), (b, a)):
        for parts in MESSAGES:
            out.send_parts(parts)
        assert [inn.recv_parts() for _ in MESSAGES] == MESSAGES
        until(lambda: [p.written for p in out.stats().peers.values()] == [len(MESSAGES)])


@pytest.mark.parametrize("binds,connects", [
    ("push", "pull"), ("pull", "push"), ("dealer", "router"), ("router", "dealer"),
    ("dealer", "dealer"), ("xpub", "sub"), ("sub", "xpub"), ("xsub", "xpub"),
])
def test_each_pattern(ctx, binds, connects):
    a, b, _ = pair_of(ctx, binds, connects, "ws://127.0.0.1:0/x")
    out, inn = (a, b) if binds in ("push", "dealer", "xpub") else (b, a)
    if out.pattern == "xpub":
        if inn is a or connects == "xsub":
            inn.subscribe(b"") if inn.pattern == "sub" else inn.send(b"\1")
        assert out.recv() == b"\1"
    for parts in MESSAGES:
        out.send_parts(parts)
        assert inn.recv_parts()[inn.pattern == "router":] == parts


def test_requests(ctx):
    a, b, _ = pair_of(ctx, "rep", "req", "ws://127.0.0.1:0/x")
    for parts in MESSAGES:
        b.send_parts(parts)
        assert a.recv_parts() == parts
        a.send_parts(parts[::-1])
        assert b.recv_parts() == parts[::-1]


def test_subscriptions(ctx):
    pub, sub, _ = pair_of(ctx, "xpub", "xsub", "ws://127.0.0.1:0/x")
    sub.send(b"\1only")
    assert pub.recv() == b"\1only"
    pub.send(b"other")
    pub.send(b"only this")
    assert sub.recv() == b"only this"
    sub.send(b"\0only")
    assert pub.recv() == b"\0only"


def test_names_and_facts(ctx):
    a, b, bound = pair_of(ctx, "pair", "pair", "ws://127.0.0.1:0/x")
    peer, = a.peers()
    assert peer.metadata["ws-path"] == b"/x" and peer.pattern == "pair"
    assert peer.metadata["ws-subprotocol"] == b"ZWS2.0/NULL"


def test_heartbeats_are_pings(ctx):
    a, b, _ = pair_of(ctx, "pair", "pair", "ws://127.0.0.1:0/x", heartbeat=0.05,
                      heartbeat_timeout=5.0)
    until(lambda: all(p.rtt for s in (a, b) for p in s.stats().peers.values()))


def test_the_wrong_path_is_told(ctx):
    with ctx.socket("rep") as a, ctx.socket("req") as b:
        bound = a.bind("ws://127.0.0.1:0/here").url
        with pytest.raises(mq.HandshakeFailed, match="404"):
            b.connect(bound.replace("here", "there"), wait=LIMIT)


def test_only_one_side_has_the_filter(ctx):
    a = ctx.socket("rep")
    events = a.events()
    plain = a.bind("ws://127.0.0.1:0").url.replace("ws:", "tcp:")
    ctx.socket("req").connect(plain)
    while (event := events.get(LIMIT)).kind != "HandshakeFailed":
        pass
    assert "ZMTP without WebSocket: did it mean tcp://?" in event.reason


# -- a plain socket --------------------------------------------------------------------------------

def test_close_is_answered(ctx):
    s = ctx.socket("pull", recv_timeout=LIMIT)
    with RawWs.dial(s.bind("ws://127.0.0.1:0").url) as peer:
        peer.shake("PUSH")
        peer.send(b"ping me", PING)
        assert peer.ws_frame() == (0x8a, b"ping me")
        peer.put(b"last")
        assert s.recv() == b"last"
        events = s.events()
        peer.send(b"\x03\xe9going away", CLOSE)
        assert peer.ws_frame() == (0x88, b"\x03\xe9")
        assert peer.ended()
        while (event := events.get(LIMIT)).kind != "Disconnected":
            pass
        assert "1001 going away" in event.reason


def test_we_close(ctx):
    s = ctx.socket("push", send_timeout=LIMIT)
    with RawWs.dial(s.bind("ws://127.0.0.1:0").url) as peer:
        peer.shake("PULL")
        s.wait_peers(1, LIMIT)
        s.send(b"last")
        s.close(LIMIT)
        assert peer.parts() == [b"last"]
        assert peer.ws_frame() == (0x88, b"\x03\xe8")
        assert peer.ended()


def test_plain_zws_has_no_mechanism(ctx):
    s = ctx.socket("router", recv_timeout=LIMIT)
    with RawWs.dial(s.bind("ws://127.0.0.1:0").url) as peer:
        assert b"Sec-WebSocket-Protocol: ZWS2.0\r\n" in peer.upgrade(offers="ZWS2.0")
        assert peer.ws_frame() == (0x82, b"\0")
        peer.send(b"\0name")
        peer.put(b"", b"question")
        assert s.recv_parts() == [b"name", b"", b"question"]
        s.send_to(b"name", b"", b"answer")
        assert peer.parts() == [b"", b"answer"]


def test_bytes_behind_the_upgrade(ctx):
    """A client need not wait for the answer: its first frames may come with the request."""
    s = ctx.socket("pull", recv_timeout=LIMIT)
    with RawWs.dial(s.bind("ws://127.0.0.1:0").url) as peer:
        peer.say(request() + ws(ready("PUSH"), key=KEY) + ws(b"\0early", BINARY, KEY))
        assert s.recv() == b"early"


# -- the websockets package ------------------------------------------------------------------------

@pytest.mark.parametrize("compression", [None, "deflate"])
def test_their_client(ctx, compression):
    s = ctx.socket("rep", recv_timeout=LIMIT, send_timeout=LIMIT)
    url = s.bind("ws://127.0.0.1:0/zws").url
    with client.connect(url, subprotocols=["ZWS2.0"], compression=compression,
                        max_size=None) as peer:
        assert peer.subprotocol == "ZWS2.0"    # the slash in the other is no part of a token
        peer.send(b"\0")
        assert peer.recv(LIMIT) == b"\0"
        for body in (b"", b"x" * 125, b"x" * 70_000, b"M" * (1 << 20)):
            peer.send(b"\1")
            peer.send([b"\0", body[:10], body[10:]])       # in fragments
            assert s.recv() == body
            s.send(body[::-1])
            assert peer.recv(LIMIT) == b"\1"
            assert peer.recv(LIMIT) == b"\0" + body[::-1]
        assert peer.ping().wait(LIMIT)
    assert peer.close_code == 1000                         # answered in order


@contextlib.contextmanager
def serving(handle, **options):
    with server.serve(handle, "127.0.0.1", 0, max_size=None, **options) as their:
        thread = threading.Thread(target=their.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{their.socket.getsockname()[1]}"
        finally:
            their.shutdown()
            thread.join()


def test_their_server(ctx):
    """It checks our masks, our lengths, and each frame of ours."""
    ended = []

    def echo(peer):  # "ZWS2.0" alone is offered: it reads no other, and answers 400
        assert peer.request.path == "/deep/path"
        peer.send(b"\0")
        assert peer.recv(LIMIT) == b"\0"
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                peer.send(peer.recv(LIMIT))
        ended.append(peer.close_code)

    with serving(echo, subprotocols=["ZWS2.0"]) as url:
        with ctx.socket("req", recv_timeout=LIMIT, send_timeout=LIMIT, heartbeat=0.1) as s:
            s.connect(f"{url}/deep/path?subprotocol=ZWS2.0", wait=LIMIT)
            for parts in MESSAGES:
                s.send_parts(parts)
                assert s.recv_parts() == parts
        until(lambda: ended)
    assert ended == [1000]


def test_a_server_of_something_else(ctx):
    refuses = {"subprotocols": ["chat"]}
    passes = {"select_subprotocol": lambda *_: None}
    for how, only, reason in ((refuses, "", "HTTP 400"),
                              (passes, "?subprotocol=ZWS2.0", "selected no subprotocol")):
        with serving(lambda peer: None, **how) as url:
            with ctx.socket("req") as s, pytest.raises(mq.HandshakeFailed, match=reason):
                s.connect(url + only, wait=LIMIT)
