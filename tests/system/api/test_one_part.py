"""Client, Server, Scatter, Gather, PeerSocket and Channel: messages of one part, peers by number.
The other side is one of ours or plain bytes, which say first what libzmq's do (vectors.json)."""

import asyncio
import threading

import pytest
from rawzmtp import GREETING, VECTORS, RawListener, RawPeer, message, prop
from waiting import until

import mqcore as mq
from mqcore.testing.traffic import laws

LIMIT = 60.0
PARTNER = {"client": "server", "server": "client", "scatter": "gather", "gather": "scatter",
           "peer": "peer", "channel": "channel"}
SENDERS = [name for name in PARTNER if name != "gather"]
NUMBERED = ("server", "peer")


def total(sock):
    (stats,) = laws(sock).peers.values()
    return stats


def raw(sock):
    """A peer of libzmq's kind, made of bytes, on the socket's only address."""
    peer = RawPeer.connect(sock.endpoints[0].url)
    peer.say(GREETING)
    peer.hear(64)
    peer.say(VECTORS[f"draft_ready_{PARTNER[sock.pattern]}"])
    flags, body = peer.frame()
    assert (flags, body[:6]) == (4, b"\5READY")
    assert prop(b"Socket-Type", sock.pattern.upper().encode()) in body
    sock.wait_peers(1, LIMIT)
    return peer


def give(sock, *parts, **timeout):
    """Sends, to the only peer where one must be named."""
    if sock.pattern in NUMBERED:
        sock.send_to(sock.peers()[0], *parts, **timeout)
    else:
        sock.send_parts(parts, **timeout)


@pytest.mark.parametrize("pattern", SENDERS)
def test_bytes_on_the_wire(ctx, pattern):
    """One frame without MORE, after libzmq's READY."""
    sock = ctx.socket(pattern, bind="tcp://127.0.0.1:0")
    with raw(sock) as peer:
        give(sock, b"body")
        assert peer.frame() == (0, b"body")
        laws(sock)


@pytest.mark.parametrize("pattern", [name for name in PARTNER if name != "scatter"])
def test_several_parts_of_a_peer_are_dropped(ctx, pattern):
    """Counted, as malformed; the link stays, and nobody is woken for nothing."""
    sock = ctx.socket(pattern, bind="tcp://127.0.0.1:0")
    with raw(sock) as peer:
        peer.say(message(b"a", b"b"))
        until(lambda: total(sock).read == 1)
        assert mq.poll([sock], 0) == []
        assert total(sock).dropped_in == {"malformed": 1}
        peer.say(message(b"", b"", b"c") + message(b"one") + message(b"", b"") + message(b""))
        assert [sock.recv(timeout=LIMIT) for _ in range(2)] == [b"one", b""]
        assert total(sock).dropped_in == {"malformed": 3}
        assert len(sock.peers()) == 1


def test_what_a_scatter_is_sent(ctx):
    sock = ctx.socket("scatter", bind="tcp://127.0.0.1:0")
    with raw(sock) as peer:
        peer.say(message(b"a", b"b") + message(b"one"))
        until(lambda: total(sock).dropped_in == {"unexpected": 2})


@pytest.mark.parametrize("pattern", SENDERS)
def test_several_parts_are_refused(ctx, pattern):
    """At once, though nobody is there and one part would wait; nothing is sent."""
    sock = ctx.socket(pattern)
    sock.connect("inproc://nobody-yet")
    one = {"server": "send_to", "peer": "send_to"}.get(pattern, "one part")
    with pytest.raises(mq.UsageError, match=one):
        sock.send_parts([b"a", b"b"])
    with pytest.raises(mq.UsageError, match=one):
        sock.send_many([(b"a", b"b")])
    with pytest.raises(mq.UsageError, match=one):
        asyncio.run(sock.asend_parts([b"a", b"b"]))
    assert (laws(sock).sent, laws(sock).waiting) == (0, 0)


@pytest.mark.parametrize("pattern", NUMBERED)
def test_whom_a_message_is_for(ctx, url, pattern):
    near = ctx.socket(pattern, bind=url)
    fars = [ctx.socket(PARTNER[pattern], connect=near.endpoints[0]) for _ in range(3)]
    near.wait_peers(3, LIMIT)
    for n, far in enumerate(fars):
        far.wait_peers(1, LIMIT)
        give(far, b"%d" % n)
    seen = dict(sorted((m.body, m) for m in (near.recv_msg(timeout=LIMIT) for _ in fars)))
    assert list(seen) == [b"0", b"1", b"2"]
    seen[b"0"].reply(b"by reply")
    near.send_to(seen[b"1"].peer, b"by peer")
    near.send_to(seen[b"2"].peer_id, b"by number")
    assert [far.recv(timeout=LIMIT) for far in fars] == [b"by reply", b"by peer", b"by number"]
    assert 0 < seen[b"2"].peer_id < 1 << 32
    with pytest.raises(mq.UsageError, match="send_to"):
        near.send(b"to whom?")
    with pytest.raises(mq.UsageError, match="one part"):
        near.send_to(seen[b"2"].peer, b"a", b"b")
    with pytest.raises(mq.UsageError, match="one part"):
        seen[b"1"].reply(b"a", b"b")
    with pytest.raises(mq.NoSuchPeer):
        near.send_to(1 << 31, b"x")
    for wrong in (b"id", 0, -1, 1 << 32, True, None):
        with pytest.raises(mq.UsageError, match="the peer must be a Peer or its id"):
            near.send_to(wrong, b"x")
    fars[2].close()
    until(lambda: len(near.peers()) == 2)
    with pytest.raises(mq.NoSuchPeer, match="not connected"):
        near.send_to(seen[b"2"].peer, b"gone")
    assert [m.body for m in asyncio.run(iterated(near, fars[:2]))] == [b"x", b"x"]
    laws(near)


async def iterated(near, fars):
    for far in fars:
        give(far, b"x")
    out = []
    async for m in near:
        out.append(m)
        if len(out) == len(fars):
            return out


def test_a_server_waits_for_who_is_at_his_mark(ctx):
    """Nothing is dropped, and others are served meanwhile."""
    sock = ctx.socket("server", bind="tcp://127.0.0.1:0", send_hwm=4, send_buffer=32768)
    body = bytes(50_000)
    sent = 0
    with raw(sock) as slow, ctx.socket("client", connect=sock.endpoints[0]) as other:
        slow_peer = sock.peers()[0]
        with pytest.raises(mq.SendTimeout) as caught:
            for sent in range(1000):
                sock.send_to(slow_peer, body, timeout=0.1)
        assert caught.value.why == "full" and 4 <= sent < 900
        other.send(b"meanwhile")
        m = sock.recv_msg(timeout=LIMIT)
        m.reply(b"of course")
        assert other.recv(timeout=LIMIT) == b"of course"
        late = threading.Thread(target=sock.send_to, args=(slow_peer, b"last"),
                                kwargs={"timeout": LIMIT})
        late.start()
        assert [len(slow.parts()[0]) for _ in range(sent)] == [len(body)] * sent
        assert slow.parts() == [b"last"]
        late.join()
        assert not laws(sock).dropped and not laws(sock).total.dropped


def test_clients_spread_and_gather(ctx, url):
    """A Client to its servers in turn, by any strategy; a Gather hears all."""
    servers = [ctx.socket("server", bind=url if url.startswith("tcp") else f"{url}-{n}")
               for n in range(3)]
    client = ctx.socket("client", strategy="round_robin",
                        connect=[server.endpoints[0] for server in servers])
    client.wait_peers(3, LIMIT)
    for n in range(6):
        client.send(b"%d" % n)
    for server in servers:
        for _ in range(2):
            m = server.recv_msg(timeout=LIMIT)
            m.reply(m.body)
    assert sorted(client.recv(timeout=LIMIT) for _ in range(6)) == [b"%d" % n for n in range(6)]


# -- PeerSocket ------------------------------------------------------------------------------------

def test_connect_peer(ctx, url):
    one = ctx.socket("peer", bind=url)
    assert isinstance(one, mq.PeerSocket)
    two = ctx.socket("peer")
    far = two.connect_peer(one.endpoints[0], wait=LIMIT)
    again = asyncio.run(two.aconnect_peer(one.endpoints[0], wait=LIMIT))
    assert {far, again} == set(two.peers()) and far.id != again.id and far.pattern == "peer"
    two.send_to(far, b"first")
    two.send_to(again.id, b"second")
    messages = [one.recv_msg(timeout=LIMIT) for _ in range(2)]
    assert {m.body for m in messages} == {b"first", b"second"}
    assert messages[0].peer_id != messages[1].peer_id
    for m in messages:
        m.reply(m.body)
    assert {m.peer_id: m.body for m in (two.recv_msg(timeout=LIMIT) for _ in range(2))} == {
        far.id: b"first", again.id: b"second"}


def test_connect_peer_where_nobody_is(ctx):
    """Nothing stays behind."""
    sock = ctx.socket("peer")
    with RawListener() as mute, pytest.raises(mq.ConnectTimeout):
        sock.connect_peer(mute.url, wait=0.05)
    with ctx.socket("pull", bind="tcp://127.0.0.1:0") as stranger, \
            pytest.raises(mq.HandshakeFailed):
        sock.connect_peer(stranger.endpoints[0].url, wait=LIMIT)
    assert sock.endpoints == () and sock.peers() == []


@pytest.mark.parametrize("pattern", NUMBERED)
def test_no_end_of_a_device(ctx, pattern):
    with pytest.raises(mq.UsageError, match="cannot be the end of a device"):
        mq.device(ctx.socket(pattern), ctx.socket("dealer"))


@pytest.mark.parametrize("pattern", PARTNER)
def test_old_peers_have_no_name_for_it(ctx, pattern):
    """ZMTP 2.0 knows types by numbers, and these have none."""
    sock = ctx.socket(pattern, bind="tcp://127.0.0.1:0")
    events = sock.events()
    with RawPeer.connect(sock.endpoints[0].url) as peer:
        peer.say(GREETING[:10] + bytes((1, 13)))
        assert peer.ended()
    while events.get(LIMIT).kind != "HandshakeFailed":
        pass
    assert sock.peers() == []
