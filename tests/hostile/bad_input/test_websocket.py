"""Bad peers at ws:// listeners, over real sockets: dropped with a reason, and the others go on."""

import base64
import hashlib
import socket
import struct

import pytest
from rawws import BINARY, CONTINUATION, KEY, PING, TEXT, RawWs, ready, request, ws
from waiting import until

LIMIT = 60


class Victim:
    def __init__(self, ctx, **options):
        self.s = ctx.socket("pull", recv_timeout=LIMIT,
                            **{"handshake_timeout": 5.0, "max_message_size": 100_000, **options})
        self.url = self.s.bind("ws://127.0.0.1:0/in").url
        self.good = self.peer()
        self.events = self.s.events()

    def peer(self):
        before = len(self.s.peers())
        peer = RawWs.dial(self.url)
        peer.shake("PUSH")
        self.s.wait_peers(before + 1, LIMIT)
        return peer

    def why(self):
        while (event := self.events.get(LIMIT)).kind not in ("HandshakeFailed", "Disconnected"):
            pass
        return event.reason

    def goes_on(self):
        """The peer that was there before is served, and a new one."""
        for peer in (self.good, new := self.peer()):
            peer.put(b"good", b"as ever")
            assert self.s.recv_parts() == [b"good", b"as ever"]
        new.close()


@pytest.fixture
def victim(ctx):
    made = []

    def make(**options):
        made.append(Victim(ctx, **options))
        return made[-1]
    yield make
    for one in made:
        one.good.close()


TRAFFIC = {
    "without a mask": ws(b"\0x"), "text": ws(b"\0x", TEXT, KEY),
    "reserved bit": b"\xc2" + ws(b"\0x", key=KEY)[1:], "unknown kind": ws(b"\0", 7, KEY),
    "more than 125": ws(bytes(126), PING, KEY), "in pieces": ws(b"", PING, KEY, fin=False),
    "not begun": ws(b"x", CONTINUATION, KEY), "empty": ws(b"", BINARY, KEY),
    "flags": ws(b"\x80x", BINARY, KEY), "2^63": b"\x82\xff" + b"\xff" * 8 + KEY,
    "longer than need be": b"\x82\xfe\0\x05" + KEY + bytes(5),
    "the limit is 100000": b"\x82\xff" + (100_002).to_bytes(8, "big") + KEY + KEY[:1],
    "middle of another": ws(b"\0x", BINARY, KEY, fin=False) + ws(b"\0y", BINARY, KEY),
    "larger than max_message_size": ws(b"\1" + bytes(60_000), BINARY, KEY) * 3,
    "subscription in the middle": ws(b"\1x", BINARY, KEY) + ws(b"\2\x09SUBSCRIBE", BINARY, KEY),
}


@pytest.mark.parametrize("reason", TRAFFIC)
def test_bad_traffic(victim, reason):
    victim = victim()
    with victim.peer() as bad:
        bad.put(b"first")
        assert victim.s.recv() == b"first"
        bad.say(TRAFFIC[reason])
        assert reason in victim.why()
        if reason != "larger than max_message_size":   # whose rest we do not read
            opcode, payload = bad.ws_frame()           # it is told
            assert opcode == 0x88 and reason in payload[2:].decode()
        assert bad.ended()
    victim.goes_on()


UPGRADES = {
    "plain HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "path": request("/elsewhere"),
    "subprotocol": request("/in", offers="mqtt"), "TLS": bytes.fromhex("16030100a5010000a1"),
    "ZMTP without WebSocket": bytes.fromhex("ff00000000000000017f"), "SP": b"\0SP\0\0\x50\0\0",
    "SSH": b"SSH-2.0-x\r\n", "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "does not speak HTTP": b"\x01\x02\x03", "16 KiB": b"GET /in HTTP/1.1\r\nX: " + b"x" * 20_000,
    "not allowed: the": request("/in", more="Origin: http://evil.example\r\n"),
}


@pytest.mark.parametrize("reason", UPGRADES)
def test_bad_upgrades(victim, reason):
    victim = victim()
    with RawWs.dial(victim.url) as bad:
        bad.say(UPGRADES[reason])
        assert reason in victim.why()
        assert bad.ended()
    victim.goes_on()


@pytest.mark.parametrize("first,reason", [
    (b"\x02\x05READY\x0bSocket-Type\0\0\0\x03SUB", "SUB"), (b"\0data", "something else than READY"),
    (b"\x02" + bytes(70_000), "64 KiB"),
])
def test_bad_ready(victim, first, reason):
    victim = victim()
    with RawWs.dial(victim.url) as bad:
        assert bad.upgrade().startswith(b"HTTP/1.1 101 ")
        bad.send(first)
        assert reason in victim.why()
    victim.goes_on()


def test_frames_cut_off(victim):
    """At each byte of a conversation the peer breaks off: nothing half comes up."""
    victim = victim()
    talk = (request("/in") + ws(ready("PUSH"), key=KEY) + ws(b"\1" + b"a" * 200, key=KEY)
            + ws(b"\0half", key=KEY, fin=False) + ws(b"", PING, KEY)
            + ws(b"done", CONTINUATION, KEY))
    whole = 0
    for cut in [*range(0, len(talk), 29), len(talk)]:
        with RawWs.dial(victim.url) as bad:
            bad.say(talk[:cut])
            bad.sock.shutdown(socket.SHUT_WR)
            assert bad.ended()
            whole += cut == len(talk)
    assert victim.s.recv_parts() == [b"a" * 200, b"halfdone"]
    until(lambda: len(victim.s.peers()) == 1)
    victim.goes_on()
    assert whole == 1


def test_slow_upgrades_end(victim):
    victim = victim(handshake_timeout=0.2)
    with RawWs.dial(victim.url) as mute, RawWs.dial(victim.url) as slow:
        slow.say(request("/in")[:40])
        assert "not complete after" in victim.why() and "not complete after" in victim.why()
        assert mute.ended() and slow.ended()
    with RawWs.dial(victim.url) as upgraded:      # and then says no READY
        upgraded.upgrade()
        assert "not complete after" in victim.why()
        opcode, payload = upgraded.ws_frame()
        assert opcode == 0x82
    victim.goes_on()


def test_a_peer_that_reads_no_pongs(victim):
    """Its PINGs cost us no memory."""
    victim = victim()
    with victim.peer() as bad:
        bad.sock.settimeout(0.5)
        flood = ws(b"x" * 125, PING, KEY) * 500
        try:
            for _ in range(400):                   # 26 MB, as far as it goes
                bad.sock.sendall(flood)
        except TimeoutError:
            pass
        victim.goes_on()


def test_a_reset(victim):
    victim = victim()
    bad = victim.peer()
    bad.say(ws(b"\0" + bytes(5000), key=KEY)[:3000])
    bad.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bad.sock.close()
    assert victim.why()
    victim.goes_on()


# -- bad servers -----------------------------------------------------------------------------------

@pytest.mark.parametrize("answer,reason", [
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404"),
    (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "malformed"),
    (b"SSH-2.0-OpenSSH\r\n", "SSH"), (b"\x15\x03\x03\0\2\2\x0a", "does not speak HTTP"),
])
def test_bad_servers(ctx, answer, reason):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)
        s = ctx.socket("push")
        events = s.events()
        s.connect(f"ws://127.0.0.1:{listener.getsockname()[1]}")
        conn = listener.accept()[0]
        with conn:
            conn.settimeout(LIMIT)
            assert conn.recv(4096).startswith(b"GET / HTTP/1.1\r\n")
            conn.sendall(answer)
            while (event := events.get(LIMIT)).kind != "HandshakeFailed":
                pass
            assert reason in event.reason


def test_a_server_that_masks(ctx):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)
        s = ctx.socket("pull")
        events = s.events()
        s.connect(f"ws://127.0.0.1:{listener.getsockname()[1]}")
        with listener.accept()[0] as conn:
            conn.settimeout(LIMIT)
            head = conn.recv(4096)
            key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
            accept = base64.b64encode(hashlib.sha1(
                key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
            conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                         b"Upgrade\r\nSec-WebSocket-Protocol: ZWS2.0/NULL\r\n"
                         b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
                         + ws(ready("PUSH")) + ws(b"\0x", key=KEY))
            while (event := events.get(LIMIT)).kind not in ("Disconnected", "HandshakeFailed"):
                pass
            assert "masked frame" in event.reason
