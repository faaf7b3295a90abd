"""Filters and message engines carry what sockets send: through the doors, over real descriptors."""

import contextlib
import os
import socket
import threading

import pytest
from mqcore.testing.native.doors import packet_engine, shift_filter
from rawzmtp import RawPeer

import mqcore as mq
from mqcore.errors import AddressError, PluginError, UsageError
from mqcore.spi.filter import BufferSession, FilterSession, Refused, StreamFilter
from mqcore.spi.transport import Listening, MessageTransport, start_connect
from mqcore.testing import installed

PATTERNS = [("push", "pull"), ("pair", "pair"), ("dealer", "dealer")]
SIZES = [0, 1, 56, 57, 255, 256, 8192, 65536, 300_000, 5_000_000]


class Greeting(FilterSession):
    """"knock", then bytes turned by `turn`; `native`: the data plane's own form of turn 1."""

    def __init__(self, name, turn, native=False):
        super().__init__()
        self.table = bytes((byte + turn) % 256 for byte in range(256))
        self.back = bytes((byte - turn) % 256 for byte in range(256))
        self.word = name.encode()
        self.heard = b""
        self.established = False
        self.is_native = native
        self.closed = 0

    def start(self):
        self._passing += self.word

    def receive(self, data):
        if not self.established:
            self.heard += data
            if self.heard[:len(self.word)] != self.word[:len(self.heard)]:
                raise Refused(f"the peer does not speak {self.word.decode()}")
            if len(self.heard) < len(self.word):
                return b""
            self.established = True
            data = self.heard[len(self.word):]
        if data == b"":
            return b""
        return data.translate(self.back)

    def send(self, data):
        self._passing += bytes(data).translate(self.table)

    def finish(self):
        self._passing += b"" if self.is_native else self.table[:0]

    def close(self):
        self.closed += 1

    def native(self):
        return shift_filter() if self.is_native else None

    def facts(self):
        return {"x-filter": self.word}


class Turning(StreamFilter):
    def __init__(self, name, turn, native=False):
        self.name = name
        self.turn = turn
        self.is_native = native
        self.opened = []

    def open(self, own, role, options):
        session = Greeting(self.name, self.turn, self.is_native)
        self.opened.append(session)
        return session


@pytest.fixture
def filters():
    with contextlib.ExitStack() as stack:
        found = [Turning("slow", 3), Turning("fast", 1, native=True), Turning("slower", 200)]
        for plugin in found:
            stack.enter_context(installed("filter", plugin))
        yield found


STACKS = ["slow", "fast", "slow+fast", "fast+slow", "slow+slower", "fast+slow+slower"]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("below", ["tcp", "ipc"])
def test_messages_of_all_sizes(filters, stack, below, tmp_path):
    where = "127.0.0.1:0" if below == "tcp" else f"{tmp_path}/door"
    with mq.Context() as ctx, ctx.socket("pull") as pull, ctx.socket("push") as push:
        url = pull.bind(f"{stack}+{below}://{where}").url
        assert url.startswith(f"{stack}+{below}://")
        push.connect(url, wait=10)
        for size in SIZES:
            body = os.urandom(size)
            push.send_parts([body, b"tail"], timeout=10)
            assert pull.recv_parts(timeout=20) == [body, b"tail"]
        push.send_many(b"%d" % i for i in range(5000))
        for i in range(5000):
            assert pull.recv(timeout=10) == b"%d" % i
        peer, = push.peers()
        assert peer.metadata["x-filter"] in (b"slow", b"fast", b"slower")
        for stats in (push.stats(), pull.stats()):
            check(stats)


def check(stats):
    for peer in stats.peers.values():
        assert peer.offered == peer.written + peer.queued_out + sum(peer.dropped_out.values())
        assert peer.read == peer.delivered + peer.queued_in + sum(peer.dropped_in.values())


@pytest.mark.parametrize("stack", ["slow", "fast", "slow+slower"])
def test_close_delivers_what_was_sent(filters, stack):
    with mq.Context() as ctx, ctx.socket("pull") as pull:
        push = ctx.socket("push")
        push.connect(pull.bind(f"{stack}+tcp://127.0.0.1:0").url)
        for _ in range(200):
            push.send(b"x" * 10_000)
        report = push.close(linger=20)
        assert report.written == 200 and not report.undelivered
        for _ in range(200):
            assert len(pull.recv(timeout=10)) == 10_000
    for plugin in filters:
        assert all(session.closed for session in plugin.opened if not session.is_native)


@pytest.mark.parametrize("stack", ["slow", "fast+slow"])
def test_a_slow_reader_holds_the_sender_back(filters, stack):
    """High-water marks work through filters: what is in flight is bounded, nothing is lost."""
    with mq.Context() as ctx, ctx.socket("pull", recv_hwm=10) as pull, \
            ctx.socket("push", send_hwm=10) as push:
        push.connect(pull.bind(f"{stack}+tcp://127.0.0.1:0", recv_buffer=65536).url,
                     wait=10, send_buffer=65536)
        sent = 0
        with pytest.raises(mq.SendTimeout):
            while sent < 10_000:
                push.send(sent.to_bytes(4, "big") * 4000, timeout=0.5)
                sent += 1
        assert 10 < sent < 1000
        done = threading.Thread(target=lambda: [push.send(b"end", timeout=20)])
        done.start()
        for i in range(sent):
            assert pull.recv(timeout=10)[:4] == i.to_bytes(4, "big")
        assert pull.recv(timeout=10) == b"end"
        done.join()


def test_only_one_side_has_the_filter(filters):
    with mq.Context() as ctx, ctx.socket("pull") as pull, ctx.socket("push") as push:
        events = pull.events()
        endpoint = pull.bind("slow+tcp://127.0.0.1:0")
        plain = endpoint.url.removeprefix("slow+")
        push.connect(plain)
        event = next(e for e in events if type(e).__name__ == "HandshakeFailed"
                     or "HandshakeFailed" in type(e).__name__)
        assert "does not speak slow" in event.reason
        assert "does not speak slow" in str(endpoint.error)


def test_a_handshake_that_stalls_ends_in_time(filters):
    with mq.Context() as ctx, ctx.socket("pull", handshake_timeout=0.05) as pull:
        events = pull.events()
        url = pull.bind("slow+tcp://127.0.0.1:0").url
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as peer:
            assert peer.recv(100) == b"slow"
            event = next(e for e in events if "HandshakeFailed" in type(e).__name__)
            assert "0.05 s" in event.reason
            assert peer.recv(100) == b""


def test_close_ends_handshakes_under_way(filters):
    with mq.Context() as ctx:
        pull = ctx.socket("pull")
        port = int(pull.bind("slow+tcp://127.0.0.1:0").url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as peer:
            assert peer.recv(100) == b"slow"
            pull.close()
            assert peer.recv(100) == b""
    assert [session.closed for session in filters[0].opened] == [1]


def test_an_unknown_filter_is_named(filters):
    with mq.Context() as ctx, ctx.socket("pull") as pull:
        with pytest.raises(AddressError, match="no filter 'nosuch'"):
            pull.bind("nosuch+tcp://127.0.0.1:0")
        with pytest.raises(AddressError, match="inproc is not one"):
            pull.bind("slow+inproc://a")


def test_other_abi_is_refused():
    with pytest.raises(PluginError, match="ABI 77"):
        shift_filter(77)
    with pytest.raises(PluginError, match="ABI 78"):
        packet_engine(78)


# -- message engines -------------------------------------------------------------------------------

class PacketTransport(MessageTransport):
    scheme = "packets"
    doc = "one packet a message"

    def listen(self, address, options):
        sock = self._new()
        sock.bind(address)
        sock.listen(options["backlog"])
        return Listening((sock,), address, lambda: os.unlink(address))

    def connect(self, target, options):
        sock = self._new()
        try:
            start_connect(sock, target)
        except OSError:
            sock.close()
            raise
        return sock

    def _new(self):
        return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)

    def open(self, sock, role, options):
        """Greets first, to have something to wait for."""
        sock.send(b"hi")
        while True:
            try:
                hello = sock.recv(100)
                break
            except BlockingIOError:
                yield "read"
        if hello != b"hi":
            raise Refused(f"the peer said {hello!r}")
        return packet_engine()


@pytest.fixture
def packets(tmp_path):
    with installed("transport", PacketTransport()):
        yield f"packets://{tmp_path}/sock"


@pytest.mark.parametrize("sender,receiver", PATTERNS)
def test_packets_are_messages(packets, sender, receiver):
    with mq.Context() as ctx, ctx.socket(receiver) as here, ctx.socket(sender) as there:
        there.connect(here.bind(packets).url, wait=10)
        for size in (0, 1, 56, 57, 8192, 50_000):
            body = os.urandom(size)
            there.send_parts([body, b"", b"tail"], timeout=10)
            assert here.recv_parts(timeout=10) == [body, b"", b"tail"]
        assert there.peers()[0].wire == "packets"
        for i in range(3000):
            there.send(b"%d" % i)
        for i in range(3000):
            assert here.recv(timeout=10) == b"%d" % i
        check(there.stats())
        check(here.stats())


def test_what_cannot_be_carried_is_counted(packets):
    with mq.Context() as ctx, ctx.socket("pull") as pull, ctx.socket("push") as push:
        push.connect(pull.bind(packets).url, wait=10)
        push.send(b"x" * 100_000)
        push.send(b"small")
        assert pull.recv(timeout=10) == b"small"
        stats = push.stats()
        check(stats)
        account, = stats.peers.values()
        assert account.dropped_out == {"unsendable": 1}


def test_an_engine_meets_back_pressure(packets):
    with mq.Context() as ctx, ctx.socket("pull", recv_hwm=5) as pull, \
            ctx.socket("push", send_hwm=5) as push:
        push.connect(pull.bind(packets).url, wait=10)
        sent = 0
        with pytest.raises(mq.SendTimeout):
            while sent < 10_000:
                push.send(sent.to_bytes(4, "big") * 2000, timeout=0.5)
                sent += 1
        check(push.stats())
        for i in range(sent):
            assert pull.recv(timeout=10)[:4] == i.to_bytes(4, "big")
        check(pull.stats())


def test_close_lets_an_engine_deliver(packets):
    with mq.Context() as ctx, ctx.socket("pull") as pull:
        push = ctx.socket("push")
        push.connect(pull.bind(packets).url)
        for i in range(500):
            push.send(b"%d" % i)
        assert push.close(linger=20).written == 500
        assert [pull.recv(timeout=10) for _ in range(500)] == [b"%d" % i for i in range(500)]


def test_a_peer_that_does_not_fit_an_engine(packets):
    with mq.Context() as ctx, ctx.socket("pull") as pull:
        events = pull.events()
        pull.bind(packets)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(packets.removeprefix("packets://"))
            peer.send(b"what")
            event = next(e for e in events if "HandshakeFailed" in type(e).__name__)
            assert "said b'what'" in event.reason
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(packets.removeprefix("packets://"))
            peer.send(b"hi")
            peer.send(b"\xff\xff\xff\xff")
            event = next(e for e in events if type(e).__name__ == "Disconnected")
            assert "no use" in event.reason


def test_filters_go_over_streams_only(packets):
    with mq.Context() as ctx, ctx.socket("pull") as pull:
        with installed("filter", Turning("slow", 3)):
            with pytest.raises(AddressError, match="packets is not one"):
                pull.bind("slow+" + packets)


def test_a_transport_may_carry_some_patterns_only(packets, monkeypatch):
    monkeypatch.setattr(PacketTransport, "patterns", {"bind": ("pair",), "connect": ("pair",)})
    with mq.Context() as ctx, ctx.socket("pull") as pull:
        with pytest.raises(UsageError, match="packets:// cannot carry a pull socket"):
            pull.bind(packets)


@pytest.mark.parametrize("what", ["no generator", "no engine", "raises"])
def test_a_plugin_that_makes_nonsense_fails_its_connections(packets, monkeypatch, what):
    def odd(self, sock, role, options):
        if what == "raises":
            raise ZeroDivisionError("mine")
        return 42
        yield

    monkeypatch.setattr(PacketTransport, "open",
                        (lambda *_: None) if what == "no generator" else odd)
    with mq.Context() as ctx, ctx.socket("pull") as pull, ctx.socket("push") as push:
        events = pull.events()
        push.connect(pull.bind(packets).url)
        event = next(e for e in events if "HandshakeFailed" in type(e).__name__)
        assert ("ZeroDivisionError: mine" if what == "raises" else "TypeError") in event.reason



class Swelling(BufferSession):
    """Behind the peer's first word each byte it sends stands for a hundred thousand."""

    largest = 0  # what one call was asked for at most

    def __init__(self):
        super().__init__()
        self.waiting = 0
        self.plain = bytearray()

    def receive_into(self, data, out):
        data = bytes(data)
        if data.startswith(b"!"):
            self.waiting += 100_000 * len(data)
        else:
            self.plain += data
        made = min(len(out), len(self.plain))
        out[:made] = self.plain[:made]
        del self.plain[:made]
        more = min(len(out) - made, self.waiting)
        out[made:made + more] = bytes(more)
        self.waiting -= more
        type(self).largest = max(self.largest, len(out))
        return made + more


class Swells(StreamFilter):
    def __init__(self, name):
        self.name = name

    def open(self, own, role, options):
        return Swelling() if self.name == "swelling" else FilterSession()


@pytest.mark.parametrize("stack", ["swelling", "passing+swelling"])
def test_a_filter_that_expands_much_is_asked_for_a_piece_at_a_time(stack):
    """100 bytes become ten million, which the engine takes in turns and a chain in pieces: the
    memory beside the messages stays small, and another filtered peer is served meanwhile."""
    with contextlib.ExitStack() as held:
        for name in ("swelling", "passing"):
            held.enter_context(installed("filter", Swells(name)))
        ctx = held.enter_context(mq.Context())
        pull = held.enter_context(ctx.socket("pull", recv_hwm=None, recv_hwm_bytes=None))
        port = pull.bind(f"{stack}+tcp://127.0.0.1:0").url.rpartition(":")[2]
        bomb = held.enter_context(RawPeer.connect(f"tcp://127.0.0.1:{port}"))
        bomb.shake("PUSH")
        bomb.say(b"!" * 100)
        other = held.enter_context(RawPeer.connect(f"tcp://127.0.0.1:{port}"))
        other.shake("PUSH")
        other.say(b"\x00\x02hi")
        empty = others = 0
        while empty < 5_000_000 or not others:
            for body in pull.recv_many(timeout=20):
                empty += body == b""
                others += body == b"hi"
        assert (empty, others) == (5_000_000, 1)
        assert Swelling.largest <= 256 * 1024
