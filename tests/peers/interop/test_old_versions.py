"""Peers of ZMTP 3.0, 2.0 and 1.0, byte by byte, on both sides of the connection; and when a
listening socket speaks."""

import socket
import time

import pytest
from rawzmtp import (
    COMMAND,
    GREETING,
    GREETING_30,
    NUMBERS,
    SIGNATURE,
    VECTORS,
    RawListener,
    RawPeer,
    frame,
    frame1,
    message,
    ready,
)

LIMIT = 60


@pytest.fixture(params=["we_bind", "we_connect"])
def raw(request, ctx):
    """raw(pattern) -> (our socket, a raw peer of it that has said nothing)"""
    peers = []
    with RawListener() as listener:
        def make(pattern, **options):
            s = ctx.socket(pattern, recv_timeout=LIMIT, send_timeout=LIMIT, **options)
            if request.param == "we_bind":
                peer = RawPeer.connect(s.bind("tcp://127.0.0.1:0").url)
            else:
                s.connect(listener.url)
                peer = listener.accept()
            peers.append(peer)
            return s, peer
        yield make
        for peer in peers:
            peer.close()


def shake20(peer, kind, identity=b""):
    """A 2.0 peer's greeting and identity. What it hears of us: signature, 03, type, identity."""
    peer.say(SIGNATURE + b"\x01" + bytes((NUMBERS[kind],)) + frame(identity))
    assert peer.hear(10) [::9] == SIGNATURE[::9]
    assert peer.hear(1) == b"\x03"
    return peer.hear(1)[0], peer.frame()[1]


def shake10(peer, identity=b""):
    """A 1.0 peer's identity frame; our signature stands for the head of ours."""
    peer.say(frame1(identity))
    head = peer.hear(10)
    assert head[0] == 0xFF and head[9] == 0x7F
    return peer.hear(int.from_bytes(head[1:9], "big") - 1)


# -- 3.0 -------------------------------------------------------------------------------------------

def test_30_subscriptions_are_messages(raw, ctx):
    s, peer = raw("sub")
    peer.shake("PUB", greeting=GREETING_30)
    s.subscribe(b"topic")
    assert peer.hear(8) == VECTORS["zmtp30_subscribe_msg"]
    s.unsubscribe(b"topic")
    assert peer.hear(8) == VECTORS["zmtp30_cancel_msg"]
    s.subscribe(b"t")
    assert peer.parts() == [b"\1t"]
    peer.say(message(b"t1", b"x"))
    assert s.recv_parts() == [b"t1", b"x"]
    assert [p.wire for p in s.peers()] == ["zmtp/3.0"]


def test_31_subscriptions_are_commands(raw):
    s, peer = raw("sub")
    peer.shake("PUB")
    s.subscribe(b"topic")
    assert peer.frame() == (COMMAND, b"\x09SUBSCRIBEtopic")
    s.unsubscribe(b"topic")
    assert peer.frame() == (COMMAND, b"\x06CANCELtopic")


@pytest.mark.parametrize("greeting", [GREETING, GREETING_30], ids=["3.1", "3.0"])
def test_both_forms_reach_a_publisher(raw, greeting):
    s, peer = raw("pub")
    peer.shake("SUB", greeting=greeting)
    peer.say(message(b"\1a"))
    s.wait_subscribers(b"a", 1, LIMIT)
    peer.say(frame(b"\x09SUBSCRIBEb", COMMAND))
    s.wait_subscribers(b"b", 1, LIMIT)
    for topic in (b"a", b"b", b"c", b"a2"):
        s.send(topic)
    assert [peer.parts() for _ in range(3)] == [[b"a"], [b"b"], [b"a2"]]


# -- 2.0 -------------------------------------------------------------------------------------------

def test_20_frames(raw):
    s, peer = raw("push")
    number, identity = shake20(peer, "PULL")
    assert (number, identity) == (NUMBERS["PUSH"], b"")
    s.send_parts([b"x", b"y"])
    assert peer.hear(6) == VECTORS["zmtp20_frames"]
    s.send(b"L" * 300)
    assert peer.parts() == [b"L" * 300]
    assert [p.wire for p in s.peers()] == ["zmtp/2.0"]


def test_20_request(raw):
    s, peer = raw("rep")
    shake20(peer, "REQ")
    for body in (b"1", b"k" * 1000):
        peer.say(message(b"", body))
        assert s.recv() == body
        s.send(b"re " + body)
        assert peer.parts() == [b"", b"re " + body]


def test_20_identity(raw):
    s, peer = raw("router", routing_id=b"ours")
    _, identity = shake20(peer, "DEALER", b"theirs")
    assert identity == b"ours"
    peer.say(message(b"hello"))
    assert s.recv_parts() == [b"theirs", b"hello"]
    s.send_to(b"theirs", b"answer")
    assert peer.parts() == [b"answer"]


def test_20_subscriptions(raw):
    s, peer = raw("pub")
    shake20(peer, "SUB")
    peer.say(message(b"\1a"))
    s.wait_subscribers(b"a", 1, LIMIT)
    s.send(b"b")
    s.send(b"a1")
    assert peer.parts() == [b"a1"]


# -- 1.0 -------------------------------------------------------------------------------------------

def test_10_frames(raw):
    s, peer = raw("push")
    assert shake10(peer) == b""
    s.send_parts([b"x", b"yy"])
    s.send(b"\xdd" * 300)
    assert peer.hear(3) + peer.hear(4) == VECTORS["zmtp10_frames"][:7]
    assert peer.frame1() == (False, b"\xdd" * 300)
    assert [p.wire for p in s.peers()] == ["zmtp/1.0"]


def test_10_routing_id(raw):
    s, peer = raw("dealer", routing_id=b"me")
    assert shake10(peer) == b"me"
    s.send(b"x")
    assert peer.frame1() == (False, b"x")
    peer.say(frame1(b"a", True) + frame1(b"b" * 400))
    assert s.recv_parts() == [b"a", b"b" * 400]


def test_10_identity_at_a_router(raw):
    s, peer = raw("router")
    shake10(peer, b"old")
    peer.say(frame1(b"hello"))
    assert s.recv_parts() == [b"old", b"hello"]
    s.send_to(b"old", b"answer")
    assert peer.frame1() == (False, b"answer")


def test_10_publisher_sends_everything(raw):
    """An unversioned subscriber may filter only itself: it is sent all."""
    s, peer = raw("pub")
    shake10(peer)
    s.wait_peers(1, LIMIT)
    s.wait_subscribers(b"anything", 1, LIMIT)
    s.send(b"anything")
    assert peer.hear(10) == VECTORS["zmtp10_pub_phantom_subscribe_all"]


def test_10_subscriber(raw):
    s, peer = raw("sub")
    s.subscribe(b"tt")
    shake10(peer)
    assert peer.hear(5) == VECTORS["zmtp10_sub_subscription"]
    peer.say(frame1(b"tt1"))
    assert s.recv() == b"tt1"


def test_10_request(raw):
    s, peer = raw("req")
    shake10(peer)
    s.send(b"question")
    assert [peer.frame1(), peer.frame1()] == [(True, b""), (False, b"question")]
    peer.say(frame1(b"", True) + frame1(b"answer"))
    assert s.recv() == b"answer"


# -- who speaks first ------------------------------------------------------------------------------

def quiet(peer, seconds):
    """How long the peer said nothing, at most `seconds`."""
    peer.sock.settimeout(seconds)
    start = time.monotonic()
    try:
        peer.held += peer.sock.recv(100, socket.MSG_PEEK)[:0]
        return time.monotonic() - start
    except TimeoutError:
        return seconds
    finally:
        peer.sock.settimeout(LIMIT)


def test_a_listener_waits_for_the_first_bytes_and_then_speaks_first(ctx):
    s = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    with RawPeer.connect(s.endpoints[0].url) as peer:
        assert quiet(peer, LIMIT) >= 0.05      # it would have come within a millisecond
        assert peer.hear(10) == SIGNATURE
        peer.say(GREETING)
        peer.hear(54)
        peer.say(ready("PUSH") + message(b"late"))
        assert s.recv(timeout=LIMIT) == b"late"


def test_a_listener_answers_at_once(ctx):
    s = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    with RawPeer.connect(s.endpoints[0].url) as peer:
        peer.say(SIGNATURE)
        assert peer.hear(10) == SIGNATURE


def test_the_greeting_comes_in_stages(raw):
    s, peer = raw("pull")
    for byte in SIGNATURE:
        peer.say(bytes((byte,)))
    assert peer.hear(11) == GREETING[:11]
    peer.say(GREETING[10:12])
    assert peer.hear(53) == GREETING[11:]
    peer.say(GREETING[12:])
    assert peer.frame()[1].startswith(b"\5READY")
    for byte in ready("PUSH") + message(b"a", b"b" * 300):
        peer.say(bytes((byte,)))
    assert s.recv_parts(timeout=LIMIT) == [b"a", b"b" * 300]
