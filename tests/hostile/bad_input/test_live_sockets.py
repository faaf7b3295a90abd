"""Live sockets of every pattern and peers that are broken, hostile or merely confused.

After each: the bad peer is dropped, events() says why, and the socket goes on with a good peer.
"""

import struct

import pytest
from rawzmtp import (
    COMMAND,
    GREETING,
    LONG,
    MORE,
    PEER_OF,
    SIGNATURE,
    RawListener,
    command,
    frame,
    frame1,
    message,
    prop,
    ready,
)
from victim import LIMIT, every
from waiting import until

import mqcore as mq

# -- before the handshake is complete --------------------------------------------------------------

def wrong_metadata(size):
    return GREETING + command(b"READY", b"\x0bSocket-Type" + struct.pack(">I", size) + b"PAIR")


BEFORE = {
    "http": b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n" * 3,
    "telnet": b"\xff\xfd\x18\xff\xfd\x20\xff\xfd\x23\xff\xfd\x27hello\r\n" * 4,
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(range(189)),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n" * 20,
    "zeros": bytes(100),
    "mechanism": GREETING[:12] + b"PLAIN".ljust(20, b"\0") + GREETING[32:] + command(b"HELLO"),
    "nonsense mechanism": GREETING[:12] + b"\xff" * 20 + GREETING[32:] + ready("PAIR"),
    "message first": GREETING + message(b"hello"),
    "ping first": GREETING + command(b"PING", b"\0\0"),
    "lower case": GREETING + command(b"ready", prop(b"Socket-Type", b"PAIR")),
    "unknown type": GREETING + ready("NONSENSE"),
    "huge ready": GREETING + bytes((COMMAND | LONG,)) + struct.pack(">Q", 1 << 40),
    "endless ready": GREETING + bytes((COMMAND | LONG,)) + struct.pack(">Q", (1 << 63) + 5),
    "value past the end": wrong_metadata(1 << 20),
    "negative value": wrong_metadata((1 << 32) - 1),
    "stray byte": GREETING + command(b"READY", prop(b"Socket-Type", b"PAIR") + b"x"),
    "name past the end": GREETING + frame(b"\xffREADY", COMMAND),
    "empty command": GREETING + frame(b"", COMMAND),
    "error": GREETING + command(b"ERROR", b"\x03400"),
    "1.0 length zero": b"\0",
}


@every
@pytest.mark.parametrize("what", BEFORE)
def test_before_the_handshake(victim, pattern, what):
    v = victim(pattern, handshake_timeout=0.15)   # some look like half a frame of ZMTP 1.0
    with v.raw() as peer:
        peer.say(BEFORE[what])
        assert peer.ended()
        assert v.why()
    v.serves()


@every
def test_wrong_socket_type(victim, pattern):
    v = victim(pattern)
    with v.raw() as peer:
        wrong = "PULL" if pattern in ("pull", "rep", "router", "dealer", "pair", "req") else "REQ"
        peer.say(GREETING)
        peer.hear(64)
        peer.say(ready(wrong))
        assert peer.ended()
        assert wrong.lower() in v.why("HandshakeFailed").lower()
    v.serves()


def test_a_wrong_type_at_the_other_end_is_told_to_who_waits(ctx):
    with RawListener() as listener:
        s = ctx.socket("pull", reconnect_stop="handshake")
        s.connect(listener.url)
        with listener.accept() as peer, pytest.raises(mq.HandshakeFailed, match="(?i)rep"):
            peer.say(GREETING)
            peer.hear(64)
            peer.say(ready("REP"))
            s.endpoints[0].wait_ready(LIMIT)


@every
def test_an_sp_peer_that_does_not_fit(victim, pattern):
    """A listener that may speak either wire names the peer; one of ZMTP alone, the wire."""
    for options in ({}, {"wire": "zmtp"}):
        v = victim(pattern, handshake_timeout=0.15, **options)
        with v.raw() as peer:
            peer.say(bytes.fromhex("0053500000420000"))
            assert peer.ended()
            expected = ("speaks SP (nanomsg), which this socket does not"
                        if options or pattern in ("radio", "dish")
                        else f"is a protocol 0x42 socket, which does not fit {pattern.upper()}")
            assert expected in v.why("HandshakeFailed")
        v.serves()


HALVES = [0, 1, 9, 10, 11, 12, 40, 63, 64, 65, 70]


@every
def test_peers_that_stop_halfway(victim, pattern):
    """Those that stay meet the handshake's time limit; those that leave are dropped at once."""
    v = victim(pattern, handshake_timeout=0.15)
    flight = GREETING + ready(PEER_OF[pattern])
    stay, leave = ([v.raw() for _ in HALVES] for _ in range(2))
    for peers in (stay, leave):
        for peer, n in zip(peers, HALVES, strict=True):
            peer.say(flight[:n])
    for peer in leave:
        peer.close()
    reasons = [v.why("HandshakeFailed") for _ in HALVES * 2]
    assert sum("handshake was not complete" in r for r in reasons) >= len(HALVES)
    for peer in stay:
        assert peer.ended()
        peer.close()
    v.serves()


# -- after it --------------------------------------------------------------------------------------

DROPPED = {
    "length 2^63": bytes((LONG,)) + struct.pack(">Q", 1 << 63),
    "length 2^64-1": bytes((LONG,)) + b"\xff" * 8,
    "length over the limit": bytes((LONG,)) + struct.pack(">Q", (1 << 20) + 1),
    "parts over the limit": message(*[b"x" * (1 << 19)] * 3),
    "short ping": command(b"PING", b"\0"),
    "command with more": frame(b"\4PING\0\0", COMMAND | MORE),
}
KEPT = {
    "unknown command": command(b"NONSENSE", b"data"),
    "empty command": frame(b"", COMMAND),
    "command name past the end": frame(b"\xffabc", COMMAND),
    "second READY": ready("PAIR"),
    "late ERROR": command(b"ERROR", b"\x03500"),
    "pong": command(b"PONG", b"x" * 100),
    "subscribe": command(b"SUBSCRIBE", b"t"),
    "cancel": command(b"CANCEL", b"t"),
    "join": command(b"JOIN", b"g"),
    "reserved bits": frame(b"\1x", 0xF8),
}


@every
@pytest.mark.parametrize("what", ["length 2^63", "length 2^64-1", "length over the limit",
                                  "parts over the limit"])
def test_garbage_after_ready_drops_the_peer(victim, pattern, what):
    v = victim(pattern, max_message_size=1 << 20)
    with v.raw(shaken=True) as peer:
        try:
            peer.say(DROPPED[what])
        except ConnectionError:
            pass                     # dropped before we had said it all
        assert peer.ended()
        assert v.why("Disconnected")
    v.serves()


@every
def test_odd_commands_after_ready_are_survived(victim, pattern):
    v = victim(pattern)
    with v.raw(shaken=True) as peer:
        for data in KEPT.values():
            peer.say(data)
        peer.say(command(b"PING", b"\0\0end"))
        while peer.frame() != (COMMAND, b"\4PONGend"):
            pass
        assert len(v.s.peers()) == 1
    v.serves()


@every
@pytest.mark.parametrize("what", ["short ping", "command with more"])
def test_odd_pings(victim, pattern, what):
    """Dropped or passed over, never answered with bytes that were not said."""
    v = victim(pattern)
    with v.raw(shaken=True) as peer:
        peer.say(DROPPED[what])
        try:
            peer.say(command(b"PING", b"\0\0end"))
            while True:
                flags, body = peer.frame()
                if body in (b"\x09SUBSCRIBE", b"\x04JOINgroup"):
                    continue
                assert flags == COMMAND and body in (b"\4PONG", b"\4PONGend")
                if body == b"\4PONGend":
                    break
        except (EOFError, ConnectionError):
            assert v.why("Disconnected")
    v.serves()


@every
def test_random_bytes_after_ready(victim, pattern, rng):
    v = victim(pattern, max_message_size=1 << 20)
    for _ in range(5):
        with v.raw(shaken=True) as peer:
            try:
                peer.say(rng.randbytes(rng.randrange(1, 20000)))
            except ConnectionError:
                pass
        assert v.why("Disconnected")
    v.serves()


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice([0, 1, 2, 4, 6, 0x7F, 0x80, 0xFF])
            case 2:
                del data[at:at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
        if not data:
            return b"\0"
    return bytes(data)


@every
def test_mutated_conversations(victim, pattern, rng):
    v = victim(pattern, max_message_size=1 << 20, handshake_timeout=0.5)
    flight = (GREETING + ready(PEER_OF[pattern], b"me") + message(b"\1a", b"b" * 300)
              + message(b"", b"x") + command(b"PING", b"\0\0abc") + command(b"SUBSCRIBE", b"t"))
    for _ in range(30):
        with v.raw() as peer:
            data = mutate(rng, flight)
            cut = rng.randrange(len(data) + 1)
            try:
                peer.say(data[:cut])
                peer.say(data[cut:])
            except ConnectionError:
                pass
    until(lambda: not v.s.peers())
    v.serves()


@every
def test_mutated_old_versions(victim, pattern, rng):
    v = victim(pattern, max_message_size=1 << 20, handshake_timeout=0.3)
    old = [SIGNATURE + b"\1\5" + frame(b"me") + message(b"\1a", b"", b"c"),
           frame1(b"me") + frame1(b"\1a", True) + frame1(b"x" * 300)]
    for _ in range(10):
        with v.raw() as peer:
            try:
                peer.say(mutate(rng, rng.choice(old)))
            except ConnectionError:
                pass
    until(lambda: not v.s.peers())
    v.serves()


@pytest.mark.parametrize("pattern", ["pull", "pair", "dealer", "router", "sub", "xsub", "xpub"])
def test_ten_thousand_parts(victim, pattern):
    v = victim(pattern)
    parts = [b"\2%d" % n for n in range(10_000)]
    with v.raw(shaken=True) as peer:
        peer.say(message(*parts))
        got = v.s.recv_parts()
        assert got[1:] == parts if pattern == "router" else got == parts
    v.serves()


def test_requests_of_ten_thousand_parts(victim):
    v = victim("rep")
    with v.raw(shaken=True) as peer:
        envelope = [b"hop%d" % n for n in range(8)] + [b""]
        body = [b"%d" % n for n in range(10_000)]
        peer.say(message(*envelope, *body))
        assert v.s.recv_parts() == body
        v.s.send(b"answer")
        assert peer.parts() == [*envelope, b"answer"]
        peer.say(message(*[b"no delimiter"] * 10_000))
        peer.say(message(*[b"hop"] * 10_000, b"", b"astray"))
    v.serves()
    assert v.s.stats().total.dropped_in == {"malformed": 1, "hop_limit": 1}


def test_many_bad_connections_at_once(victim, rng):
    v = victim("pull", handshake_timeout=0.3)
    peers = [v.raw() for _ in range(200)]
    for peer in peers:
        peer.say(rng.choice(list(BEFORE.values())))
    v.serves()
    for _ in peers:
        assert v.why("HandshakeFailed")
    for peer in peers:
        peer.close()
