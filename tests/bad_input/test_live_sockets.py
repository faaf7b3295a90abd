"""Live sockets of every pattern and peers that are broken, hostile or merely confused.

After each: the bad peer is dropped, events() says why, and the socket goes on with a good peer.
"""

import resource
import socket
import struct
import threading
import time

import pytest
from rawzmtp import (
    COMMAND,
    GREETING,
    LONG,
    MORE,
    PEER_OF,
    SIGNATURE,
    RawListener,
    RawPeer,
    command,
    frame,
    frame1,
    message,
    prop,
    ready,
)
from waiting import until

import mqcore as mq

LIMIT = 10
PATTERNS = list(PEER_OF)
every = pytest.mark.parametrize("pattern", PATTERNS)


class Victim:
    """A listening socket of one pattern, its events, and a way to see that it still serves."""

    def __init__(self, ctx, pattern, where="tcp://127.0.0.1:0", **options):
        self.pattern = pattern
        self.s = ctx.socket(pattern, recv_timeout=LIMIT, send_timeout=LIMIT,
                            **{"handshake_timeout": 5.0, **options})
        if pattern == "sub":
            self.s.subscribe(b"")
        if pattern == "dish":
            self.s.join("group")
        self.url = self.s.bind(where).url
        self.events = self.s.events()

    def raw(self, shaken=False):
        peer = RawPeer.connect(self.url)
        if shaken:
            before = len(self.s.peers())
            peer.shake(PEER_OF[self.pattern])
            self.s.wait_peers(before + 1, LIMIT)
        return peer

    def why(self, *kinds):
        """The reason of the next event of these kinds."""
        while True:
            event = self.events.get(LIMIT)
            if event.kind in (kinds or ("HandshakeFailed", "Disconnected")):
                return event.reason

    def serves(self):
        """A good peer is served, from handshake to message."""
        until(self._served)

    def _served(self):
        try:
            self._serve()
        except (ConnectionError, EOFError):
            if self.pattern not in ("pair", "req"):
                raise
            return False    # a PAIR that has not yet seen the bad one leave, an abandoned REQ
        return True

    def _serve(self):
        with RawPeer.connect(self.url) as peer:
            n = max([p.id for p in self.s.peers()], default=0)
            peer.shake(PEER_OF[self.pattern])
            until(lambda: any(p.id > n for p in self.s.peers()))
            getattr(self, "_" + self.pattern)(peer)

    def drain(self, last):
        while True:
            got = self.s.recv_parts()
            if got[-1] == last:
                return got

    def _pull(self, peer):
        peer.say(message(b"good"))
        self.drain(b"good")

    _sub = _xsub = _pull

    def _push(self, peer):
        while True:         # others may get some
            self.s.send(b"good")
            peer.sock.settimeout(0.02)
            try:
                assert peer.parts() == [b"good"]
                return
            except TimeoutError:
                pass

    def _pair(self, peer):
        peer.say(message(b"good"))
        self.drain(b"good")
        self.s.send(b"good")
        assert peer.parts() == [b"good"]

    def _dealer(self, peer):
        self._pull(peer)
        self._push(peer)

    def _router(self, peer):
        peer.say(message(b"good"))
        self.s.send_to(self.drain(b"good")[0], b"good")
        assert peer.parts() == [b"good"]

    def _rep(self, peer):
        peer.say(message(b"", b"good"))
        while True:
            m = self.s.recv_msg()
            try:
                m.reply(b"re " + m.body)
            except mq.NoSuchPeer:       # the bad one has asked, too, and has left
                pass
            if m.body == b"good":
                break
        assert peer.parts() == [b"", b"re good"]

    def _req(self, peer):
        peer.sock.settimeout(0.02)
        while True:
            self.s.send(b"good")
            try:
                parts = peer.parts()
            except TimeoutError:
                continue
            if parts == [b"", b"good"]:
                break
        peer.say(message(b"", b"answer"))
        assert self.s.recv() == b"answer"

    def _pub(self, peer):
        peer.say(message(b"\1good topic"))
        self.s.wait_subscribers(b"good topic", 1, LIMIT)
        self.s.send(b"good topic")
        assert peer.parts() == [b"good topic"]

    _xpub = _pub

    def _radio(self, peer):
        peer.say(command(b"JOIN", b"group"))
        self.s.wait_subscribers("group", 1, LIMIT)
        self.s.send(b"good", group="group")
        assert peer.parts() == [b"group", b"good"]

    def _dish(self, peer):
        peer.say(message(b"group", b"good"))
        self.drain(b"good")


@pytest.fixture
def victim(ctx):
    made = []

    def make(pattern, **options):
        made.append(Victim(ctx, pattern, **options))
        return made[-1]
    yield make
    for v in made:
        v.events.close()
        v.s = v.events = None


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
            s.endpoints[0].wait(LIMIT)


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


# -- memory ----------------------------------------------------------------------------------------

def memory():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def test_memory_grows_by_what_arrives_not_by_what_is_declared(victim):
    v = victim("pull")
    before = memory()
    peers = [v.raw(shaken=True) for _ in range(20)]
    for peer in peers:              # 20 x 1 GiB are declared, 20 x 1000 bytes come
        peer.say(bytes((LONG,)) + struct.pack(">Q", 1 << 30) + b"x" * 1000)
        peer.say(b"y")
    until(lambda: sum(p.bytes_in for p in v.s.stats().peers.values()) >= 20 * 1010)
    assert memory() - before < 64 << 20
    for peer in peers:
        peer.close()
    v.serves()


def test_a_flood_is_bounded_by_the_marks(victim):
    """Nobody receives: the peer is stopped by its kernel once our marks are reached."""
    v = victim("pull", recv_hwm=100, recv_hwm_bytes=1 << 20)
    with v.raw(shaken=True) as peer:
        before = memory()
        peer.sock.setblocking(False)
        data, sent, since = message(b"x" * 10_000) * 100, 0, time.monotonic()
        while time.monotonic() - since < 0.2:   # until nothing was taken for so long
            try:
                sent += peer.sock.send(data[sent % len(data):])
                since = time.monotonic()
            except BlockingIOError:
                pass
        assert memory() - before < 32 << 20
        [stats] = v.s.stats().peers.values()
        assert stats.queued_in <= 101
        peer.sock.settimeout(LIMIT)
        for _ in range(sent // len(message(b"x" * 10_000))):
            assert len(v.s.recv()) == 10_000
    v.serves()


def test_an_endless_multipart_message_is_bounded(victim):
    v = victim("pull", max_message_size=1 << 20)
    with v.raw(shaken=True) as peer:
        part = frame(b"x" * 1000, MORE)
        with pytest.raises(ConnectionError):
            for _ in range(1_000_000):
                peer.say(part * 50)
        assert "max_message_size" in v.why("Disconnected")
    v.serves()


def test_an_endless_message_of_empty_parts_is_bounded(victim):
    """Parts cost memory even when they are empty."""
    v = victim("pull", max_message_size=1 << 16)
    before = memory()
    with v.raw(shaken=True) as peer:
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                peer.say(frame(b"", MORE) * 10_000)
        assert "max_message_size" in v.why("Disconnected")
    assert memory() - before < 32 << 20
    v.serves()


def test_many_subscriptions_are_survived(victim):
    v = victim("pub")
    with v.raw(shaken=True) as peer:
        for n in range(200):
            peer.say(b"".join(command(b"SUBSCRIBE", b"%d" % (n * 100 + k)) for k in range(100)))
        v.s.wait_subscribers(b"19999", 1, LIMIT)
    until(lambda: not v.s.peers())
    v.serves()


# -- the stream itself -----------------------------------------------------------------------------

@every
@pytest.mark.parametrize("half", ["in a length", "in a body", "in a multipart message"])
def test_a_peer_that_leaves_in_the_middle(victim, pattern, half):
    """What it had begun is as if it never was."""
    v = victim(pattern)
    data = {"in a length": bytes((LONG, 0, 0)), "in a body": frame(b"x" * 1000)[:500],
            "in a multipart message": frame(b"", MORE) + frame(b"half", MORE)}[half]
    with v.raw(shaken=True) as peer:
        peer.say(data)
    assert v.why("Disconnected")
    if pattern in ("pull", "pair", "dealer", "router", "sub", "xsub", "rep"):
        with pytest.raises(mq.RecvTimeout):
            v.s.recv_parts(timeout=0.01)
    v.serves()


@every
def test_reset(victim, pattern):
    v = victim(pattern)
    peer = v.raw(shaken=True)
    peer.say(frame(b"x" * 1000)[:500])
    peer.reset()
    assert v.why("Disconnected")
    v.serves()


@every
def test_a_peer_that_has_closed_one_half(victim, pattern):
    """It speaks no more: it is dropped, and reads what it was sent before that."""
    v = victim(pattern)
    with v.raw(shaken=True) as peer:
        peer.sock.shutdown(socket.SHUT_WR)
        assert v.why("Disconnected")
        assert peer.ended()
    v.serves()


def test_a_slow_reader_delays_nobody(victim):
    """One peer of a PUB, ROUTER, PUSH reads nothing; the other gets all that is due to it."""
    v = victim("pub", send_hwm=10, send_hwm_bytes=None)
    with v.raw(shaken=True) as slow, v.raw(shaken=True) as good:
        for peer in (slow, good):
            peer.say(message(b"\1"))
        v.s.wait_subscribers(b"", 2, LIMIT)
        for n in range(300):
            v.s.send(b"%d" % n + b"x" * 60_000)
            assert good.parts()[0].startswith(b"%d" % n)
        by = {p.offered - p.written - p.queued_out for p in v.s.stats().peers.values()}
        assert 0 in by and max(by) > 0
        slow.close()


def test_a_slow_reader_of_a_push(victim):
    """Once it is full everything goes to the other one."""
    v = victim("push", send_hwm=5)
    with v.raw(shaken=True) as slow, v.raw(shaken=True) as good:
        got = []

        def read():
            while got[-1:] != [b"end"]:
                got.extend(good.parts())
        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(300):
            v.s.send(b"x" * 60_000)
        slow.close()                # what it had not been sent comes to the other
        until(lambda: len(v.s.peers()) == 1)
        v.s.send(b"end")
        reader.join()
        stats = v.s.stats()
        kernel = stats.total.written + sum(stats.total.dropped_out.values())
        assert kernel + len(got) == 301 and len(got) > 200 and kernel < 100


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


@every
def test_what_a_bad_peer_said_is_not_taken_for_the_next_ones_words(victim, pattern, rng):
    """Peers that are dropped in the middle of their input leave nothing behind for the connections
    that come after them."""
    v = victim(pattern, handshake_timeout=5.0)
    for data in (GREETING + ready("NONSENSE") + rng.randbytes(500), b"\0" * 70,
                 frame1(b"") + b"\0" + rng.randbytes(500)):
        for _ in range(5):
            with v.raw() as peer:
                peer.say(data)
                assert peer.ended()
    for _ in range(8):
        v.serves()
