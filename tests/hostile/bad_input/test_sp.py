"""Live sockets and SP peers that are broken, hostile or merely confused: each is dropped with a
reason, the others are served, and the accounts agree."""

import socket

import pytest
from waiting import until

from mqcore.errors import SendTimeout

LIMIT = 60
REP, PULL, PAIR, PUB, ROUTER = 0x31, 0x51, 0x10, 0x20, 0x31
ID = b"\x80\0\0\x01"


def header(number):
    return b"\0SP\0" + number.to_bytes(2, "big") + b"\0\0"


def frame(payload, typed=False):
    return b"\x01" * typed + len(payload).to_bytes(8, "big") + payload


class Peer:
    """A plain socket that speaks SP as far as a test says."""

    def __init__(self, url, number):
        if url.startswith("ipc"):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(url[6:])
        else:
            self.sock = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        self.typed = url.startswith("ipc")
        self.sock.settimeout(LIMIT)
        self.say(header(number))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def say(self, data):
        self.sock.sendall(data)

    def hear(self, n):
        got = self.sock.recv(n, socket.MSG_WAITALL)
        assert len(got) == n
        return got

    def message(self):
        head = self.hear(8 + self.typed)
        return self.hear(int.from_bytes(head[-8:], "big"))

    def ended(self):
        """The other side has closed; what it said before is thrown away."""
        try:
            while self.sock.recv(4096):
                pass
        except ConnectionError:
            pass
        return True


def check(s):
    """The laws of the accounts."""
    peers = s.stats().peers
    for p in peers.values():
        assert p.offered == p.written + p.queued_out + sum(p.dropped_out.values()), p
        assert p.read == p.delivered + p.queued_in + sum(p.dropped_in.values()), p
    return peers


def reason(events):
    while True:
        event = events.get(LIMIT)
        if event.kind in ("HandshakeFailed", "Disconnected"):
            return event.reason


BAD = [     # the socket, its peer's number, what that says, the reason it goes for
    ("pull", 0x50, b"\xff" * 8, "2^63"),
    ("pull", 0x50, (2_000_000).to_bytes(8, "big"), "the limit is 1000000"),
    ("rep", 0x30, frame(b"abc"), "too short for its request id"),
    ("rep", 0x30, frame(b""), "too short for its request id"),
    ("rep", 0x30, frame(bytes(8)), "ends before its request id"),
    ("rep", 0x30, frame(bytes(4 * 300) + ID), "more than 255 words"),
    ("router", 0x30, frame(b"\x7f\xff\xff\xff"), "ends before its request id"),
    ("req", 0x31, frame(b"abc"), "too short for its request id"),
]


@pytest.mark.parametrize("kind, number, text, why", BAD)
def test_malformed_messages(ctx, kind, number, text, why):
    with ctx.socket(kind, recv_timeout=LIMIT, max_message_size=1_000_000) as s:
        url = s.bind("tcp://127.0.0.1:0").url
        events = s.events()
        with Peer(url, number) as bad:
            bad.say(text)
            assert bad.ended()
            assert why in reason(events)
        with Peer(url, number) as good:
            serve(s, good, kind)
        check(s)


def serve(s, peer, kind):
    peer.hear(8)
    if kind == "pull":
        peer.say(frame(b"good"))
        assert s.recv() == b"good"
    elif kind == "rep":
        peer.say(frame(ID + b"good"))
        s.send(s.recv() + b"!")
        assert peer.message() == ID + b"good!"
    elif kind == "router":
        peer.say(frame(ID + b"good"))
        s.send_parts(s.recv_parts())
        assert peer.message() == ID + b"good"
    else:
        s.send(b"good")
        got = peer.message()
        assert got[4:] == b"good"
        peer.say(frame(got))
        assert s.recv() == b"good"


def test_a_request_may_be_as_long_as_was_announced(ctx):
    """Its hops as parts are longer than on the wire."""
    with ctx.socket("rep", recv_timeout=LIMIT, max_message_size=36) as s:
        with Peer(s.bind("tcp://127.0.0.1:0").url, 0x30) as peer:
            peer.say(frame(bytes(28) + ID + b"good"))
            assert s.recv() == b"good"


def test_a_type_that_no_unix_socket_knows(ctx, tmp_path):
    with ctx.socket("pull", recv_timeout=LIMIT) as s:
        url = s.bind(f"ipc://{tmp_path}/s").url
        events = s.events()
        with Peer(url, 0x50) as bad:
            bad.say(b"\x02" + frame(b"x"))
            assert bad.ended()
            assert "first byte must be 1" in reason(events)
        with Peer(url, 0x50) as good:
            good.hear(8)
            good.say(frame(b"good", True))
            assert s.recv() == b"good"


@pytest.mark.parametrize("text, why", [
    (b"\0SP\1\0\x50\0\0", "another version of SP"), (b"\0SP\0\0\x50\0\1", "last two bytes"),
    (header(0x51), "is a PULL socket, which does not fit PULL"),
    (b"\xff\0\0\0\0\0\0\0\x01\x7f", "speaks ZMTP (ZeroMQ)"),
    (b"GET / HTTP/1.1\r\n\r\n", "HTTP or WebSocket, not SP"),
    (b"\x16\x03\x01\x02\0", "TLS, not SP"), (b"", "not complete after")])
def test_strangers_at_a_listener_of_sp_alone(ctx, text, why):
    """It says its header at once, whoever comes."""
    with ctx.socket("pull", wire="sp", recv_timeout=LIMIT, handshake_timeout=0.2) as s:
        url = s.bind("tcp://127.0.0.1:0").url
        events = s.events()
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw:
            raw.settimeout(LIMIT)
            assert raw.recv(8, socket.MSG_WAITALL) == header(PULL)
            raw.sendall(text)
            assert why in reason(events)


def test_each_family_is_told_what_helps(ctx):
    with ctx.socket("bus") as bus, ctx.socket("pair", reconnect=0.01) as pair:
        url = bus.bind("tcp://127.0.0.1:0").url
        told = [sock.events() for sock in (bus, pair)]
        pair.connect(url)
        assert reason(told[0]).endswith("ZMTP (ZeroMQ), which has no BUS: it takes a peer that "
                                        "speaks SP")
        assert reason(told[1]).endswith('SP (nanomsg), which this socket does not: say wire="sp" '
                                        "here")


def test_a_message_in_pieces_and_a_peer_that_leaves_in_the_middle(ctx):
    with ctx.socket("rep", recv_timeout=LIMIT) as s:
        url = s.bind("tcp://127.0.0.1:0").url
        with Peer(url, 0x30) as half, Peer(url, 0x30) as whole:
            half.say(frame(ID + b"x" * 100)[:-1])
            for byte in frame(ID + b"good"):
                whole.say(bytes([byte]))
            s.send(s.recv())
            whole.hear(8)
            assert whole.message() == ID + b"good"
        until(lambda: not s.peers())
        check(s)


def test_a_peer_that_says_nothing_is_not_given_up_for_it(ctx):
    """SP has no heartbeat: silence says nothing."""
    with ctx.socket("pull", recv_timeout=LIMIT, heartbeat=0.02, heartbeat_timeout=0.02) as s:
        url = s.bind("tcp://127.0.0.1:0").url
        with Peer(url, 0x50) as quiet, ctx.socket("push", heartbeat=0.02) as other:
            other.connect(url, wait=LIMIT)
            quiet.hear(8)
            seen = s.stats()
            until(lambda: sum(p.bytes_in for p in s.stats().peers.values())
                  > 200 + sum(p.bytes_in for p in seen.peers.values()))   # PINGs of the other's
            quiet.say(frame(b"still here"))
            assert s.recv() == b"still here"


def test_late_answers_are_counted(ctx):
    with ctx.socket("dealer", wire="sp", recv_timeout=LIMIT) as s:
        with Peer(s.bind("tcp://127.0.0.1:0").url, REP) as peer:
            peer.hear(8)
            s.wait_peers(1, LIMIT)
            s.send_parts([b"a client", b"", b"question"])
            words = peer.message()[:4]
            peer.say(frame(words + b"one") + frame(words + b"two") + frame(words + b"x" * 90_000)
                     + frame(ID + b"own"))
            assert s.recv_parts() == [b"a client", b"", b"one"]
            assert s.recv_parts() == [ID, b"", b"own"]
            (row,) = check(s).values()
            assert row.dropped_in == {"late_answer": 2} and row.read == 4 and row.written == 1


def test_what_cannot_be_said_is_counted(ctx):
    with ctx.socket("router", recv_timeout=LIMIT) as s:
        with Peer(s.bind("tcp://127.0.0.1:0").url, 0x30) as peer:
            peer.hear(8)
            peer.say(frame(ID + b"q"))
            who, number, empty, body = s.recv_parts()
            assert (number, empty, body) == (ID, b"", b"q")
            assert len(who) == 5 and who[:1] == b"\0" and who[1] < 0x80
            for parts in ([b"not a word", b"", b"x"], [b"x"], [b"", b"x"], [ID, b"", b"y"]):
                s.send_parts([who, *parts])
            assert peer.message() == ID + b"y"
            until(lambda: [p.written for p in check(s).values()] == [1])
            (row,) = check(s).values()
            assert row.offered == 4 and row.dropped_out == {"untranslatable": 3}


def test_what_an_sp_peer_was_not_sent_goes_on_with_its_parts(ctx):
    """It was joined for the one, and is taken apart again for the other, who speaks ZMTP."""
    with ctx.socket("push", send_hwm=20) as s, ctx.socket("pull", recv_timeout=LIMIT) as other:
        url = s.bind("tcp://127.0.0.1:0").url
        n = 0
        with Peer(url, 0x51) as deaf:
            deaf.hear(8)
            s.wait_peers(1, LIMIT)
            with pytest.raises(SendTimeout):
                while True:
                    s.send_parts([b"%d" % n, b"", b"s" * 50, b"L" * 40_000], timeout=0.1)
                    n += 1
            row = next(iter(check(s).values()))
            assert n > row.written > 0
            other.connect(url, wait=LIMIT)
        first = other.recv_parts()
        for i in range(int(first[0]), n):
            assert (other.recv_parts() if i > int(first[0]) else first) == [
                b"%d" % i, b"", b"s" * 50, b"L" * 40_000]
        stats = s.stats()
        assert stats.sent == n
        assert n - int(first[0]) <= 20 + 30 and int(first[0]) <= n
