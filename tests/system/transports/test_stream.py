"""STREAM: bytes of anybody's, over real connections. Plain sockets, HTTP, asyncio, TLS; order and
hashes of much data, slow and killed peers, both kinds of end; and the accounts of all that."""

import asyncio
import contextlib
import hashlib
import random
import signal
import socket as pysocket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict

import pytest
from waiting import until

import mqcore as mq
from mqcore.testing.traffic import laws

LIMIT = 20
MUCH = 16 << 20
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


@pytest.fixture
def served(ctx):
    """served(**options): a stream that listens on tcp, and a maker of plain connections to it."""
    with contextlib.ExitStack() as stack:
        def serve(**options):
            stream = ctx.socket("stream", bind="tcp://127.0.0.1:0", recv_timeout=LIMIT,
                                send_timeout=LIMIT, **options)
            port = int(stream.endpoints[0].url.rpartition(":")[2])

            def dial():
                plain = pysocket.create_connection(("127.0.0.1", port), LIMIT)
                return stack.enter_context(plain)
            return stream, dial
        yield serve


@pytest.fixture
def listener():
    with pysocket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(LIMIT)
        yield made


def url_of(listener):
    return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


class Counted:
    """recv_msg() of a stream, with its accounts: whatever is received is a peer's, or a note."""

    def __init__(self, stream):
        self.stream = stream
        self.notes = 0

    def __call__(self):
        message = self.stream.recv_msg()
        self.notes += not message.body
        return message.routing_id, message.body

    def check(self):
        stats = laws(self.stream)
        delivered = sum(p.delivered for p in stats.peers.values())
        assert stats.received == delivered + self.notes
        return stats


def read_all(plain):
    found = bytearray()
    while piece := plain.recv(1 << 16):
        found += piece
    return bytes(found)


def write_in_pieces(write, data, rng):
    at = 0
    while at < len(data):
        size = rng.choice((1, 56, 57, 4096, 20_000, 300_000))
        write(data[at:at + size])
        at += size


# -- programs that know nothing of us --------------------------------------------------------------


def test_http_served_to_urllib_and_fetched_from_asyncio(served, ctx):
    stream, _ = served()
    url = stream.endpoints[0].url.replace("tcp:", "http:")
    body = random.Random(5).randbytes(300_000)

    def serve():
        asked = defaultdict(bytes)
        for message in stream:
            asked[message.peer] += message.body
            if asked[message.peer].endswith(b"\r\n\r\n"):
                path = asked[message.peer].split()[1]
                stream.send_to(message.peer, b"HTTP/1.0 200 OK\r\n\r\n", path, body)
                stream.send_to(message.routing_id, b"")  # which says how long the answer is

    def fetch(name):
        with urllib.request.urlopen(f"{url}/{name}", timeout=LIMIT) as answer:
            if answer.read() == b"/%d" % name + body:
                fetched.append(name)

    fetched = []
    threads = [threading.Thread(target=fetch, args=(n,)) for n in range(8)]
    server = threading.Thread(target=serve)
    for thread in (server, *threads):
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    until(lambda: not stream.peers())
    laws(stream)
    assert stream.close(LIMIT)
    server.join(LIMIT)
    assert sorted(fetched) == list(range(8))

    async def answer(reader, writer):
        line = await reader.readline()
        writer.write(b"got " + line.strip() + b";" + body)
        writer.close()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, ctx.socket("stream", notify=True) as client:
            await client.aconnect(f"tcp://127.0.0.1:{port}", wait=LIMIT, peer_id=b"web")
            await client.asend_to(b"web", b"GET /\r\n")
            found = []
            async for message in client:
                assert message.routing_id == b"web" == message.peer.routing_id
                assert message.peer.wire == "raw"
                found.append(message.body)
                if len(found) > 1 and not message.body:
                    break
            assert found[0] == b"" and b"".join(found) == b"got GET /;" + body
    asyncio.run(main())


def test_many_connections_at_once(served):
    stream, dial = served(notify=True)
    receive = Counted(stream)
    plains = {b"%d" % n: dial() for n in range(200)}
    came = {receive() for _ in plains}
    assert {body for _, body in came} == {b""} and len({name for name, _ in came}) == 200
    assert all(len(name) == 5 and name[0] == 0 for name, _ in came)
    for n, plain in plains.items():
        plain.sendall(n)
    for _ in plains:
        name, body = receive()
        stream.send_to(name, b"<", body, b">")
    for n, plain in plains.items():
        assert plain.recv(100) == b"<" + n + b">"
    for plain in list(plains.values())[::2]:
        plain.close()
    gone = {receive() for _ in range(100)}
    assert gone < came
    for name, _ in gone:
        with pytest.raises(mq.NoSuchPeer):
            stream.send_to(name, b"x")
    stats = receive.check()
    assert len(stream.peers()) == 100 and sum(p.written for p in stats.peers.values()) == 200


@pytest.mark.parametrize("below", ["tls+tcp", "ipc"])
def test_over_tls_and_unix_sockets(ctx, authority, below, tmp_path):
    if below == "ipc":
        stream = ctx.socket("stream", bind=f"ipc://{tmp_path}/s")
        plain = pysocket.socket(pysocket.AF_UNIX)
        plain.connect(f"{tmp_path}/s")
    else:
        stream = ctx.socket("stream")
        url = stream.bind("tls+tcp://127.0.0.1:0", **authority.server).url
        context = ssl.create_default_context(cafile=authority.ca["tls_ca"])
        plain = context.wrap_socket(pysocket.create_connection(
            ("127.0.0.1", int(url.rpartition(":")[2])), LIMIT), server_hostname="localhost")
    with plain:
        plain.settimeout(LIMIT)
        data = random.Random(6).randbytes(1 << 20)
        thread = threading.Thread(target=plain.sendall, args=(data,))
        thread.start()
        found = b""
        while len(found) < len(data):
            message = stream.recv_msg(timeout=LIMIT)
            found += message.body
        thread.join()
        assert found == data
        message.reply(data)
        stream.send_to(message.peer, b"")
        assert read_all(plain) == data  # for TLS its close_notify, too
    laws(stream)


# -- much, and slowly ------------------------------------------------------------------------------


def test_much_both_ways_in_pieces_of_any_size(served, seed):
    """Two streams and a plain socket each: 16 MiB in each direction at once, order by hash."""
    stream, dial = served(send_hwm=20, recv_hwm=7)
    plain = dial()
    there, back = random.Random(seed).randbytes(MUCH), random.Random(seed + 1).randbytes(MUCH)
    heard = hashlib.sha256()

    def echo():
        rng = random.Random(seed + 2)
        write_in_pieces(plain.sendall, there, rng)

    def listen():
        left = len(back)
        while left:
            piece = plain.recv(1 << 16)
            heard.update(piece)
            left -= len(piece)

    threads = [threading.Thread(target=run) for run in (echo, listen)]
    for thread in threads:
        thread.start()
    message = stream.recv_msg()
    sent = threading.Thread(target=write_in_pieces, args=(
        lambda piece: stream.send_to(message.routing_id, piece), back, random.Random(seed + 3)))
    sent.start()
    got, n = hashlib.sha256(message.body), len(message.body)
    while n < MUCH:
        body = stream.recv_msg().body
        assert 0 < len(body) <= 256 << 10
        n += len(body)
        got.update(body)
    for thread in (*threads, sent):
        thread.join(LIMIT)
    assert got.digest() == hashlib.sha256(there).digest()
    assert heard.digest() == hashlib.sha256(back).digest()
    until(lambda: [p.bytes_out for p in stream.stats().peers.values()] == [MUCH])
    stats = laws(stream)
    assert [p.bytes_in for p in stats.peers.values()] == [MUCH] and not stats.dropped


def test_slow_readers_on_both_sides(served):
    """Who does not read makes the other wait, with bounded memory between them; nothing is lost."""
    stream, dial = served(send_hwm=4, recv_hwm=4, recv_buffer=65536, send_buffer=65536,
                          max_message_size=10_000)
    plain = dial()
    plain.setblocking(False)
    written = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            written += plain.send(bytes(10_000))
    until(lambda: sum(p.queued_in for p in stream.stats().peers.values()) >= 4)
    with contextlib.suppress(BlockingIOError):
        while written < 64 << 20:
            written += plain.send(bytes(10_000))
    assert written < 64 << 20
    left = written
    while left:
        message = stream.recv_msg()
        assert len(message.body) <= 10_000
        left -= len(message.body)
    sent = 0
    with pytest.raises(mq.SendTimeout) as caught:
        while sent < 64 << 20:
            stream.send_to(message.peer, bytes(9_999), timeout=0)
            sent += 9_999
    assert caught.value.why == "full" and laws(stream).dropped == {}
    plain.settimeout(LIMIT)
    waiting = threading.Thread(target=stream.send_to, args=(message.peer, b"the last"))
    waiting.start()
    while sent + 8:
        piece = plain.recv(1 << 16)
        sent -= len(piece)
    waiting.join(LIMIT)
    assert piece.endswith(b"the last")
    laws(stream)


# -- ends ------------------------------------------------------------------------------------------


def test_the_end_comes_behind_everything_and_is_no_reset(served):
    """4 MiB, then the end, to a peer that is still talking: all of it arrives, then FIN."""
    stream, dial = served(notify=True, send_hwm_bytes=None)
    receive = Counted(stream)
    plain = dial()
    name, _ = receive()
    plain.sendall(b"unread")
    assert receive() == (name, b"unread")
    plain.sendall(bytes(50_000))
    for _ in range(64):
        stream.send_to(name, bytes(1 << 16))
    stream.send_to(name, b"")
    for target in (name, stream.peers()[0]):
        with pytest.raises(mq.NoSuchPeer):
            stream.send_to(target, b"too late")
    plain.sendall(b"still talking")
    assert len(read_all(plain)) == 4 << 20
    plain.close()
    until(lambda: not stream.peers())
    with contextlib.suppress(mq.RecvTimeout):
        while True:  # what came before the end; no note tells of an end that we made
            assert stream.recv_msg(timeout=0).body
    assert sum(p.written for p in laws(stream).peers.values()) == 65


def test_the_peers_fin_is_the_end_of_both_directions(served):
    """All that it sent is delivered first; what it had not been sent is dropped and counted."""
    stream, dial = served(notify=True, send_hwm=None, send_buffer=65536)
    receive = Counted(stream)
    plain = dial()
    name, _ = receive()
    peer, = stream.peers()
    for _ in range(100):
        stream.send_to(name, bytes(100_000))
    events = stream.events()
    plain.sendall(b"x" * 100_000)
    plain.shutdown(pysocket.SHUT_WR)
    found = b""
    while True:
        came, body = receive()
        assert came == name
        if not body:
            break
        found += body
    assert found == b"x" * 100_000
    event = events.get(LIMIT)
    assert (event.kind, event.peer) == ("Disconnected", peer) and "closed" in event.reason
    stats = receive.check().peers[peer]
    assert stats.offered == 100 and sum(stats.dropped_out.values()) == 100 - stats.written > 0
    events.close()


def test_resets_are_told_and_harm_nobody_else(served):
    stream, dial = served(notify=True)
    receive = Counted(stream)
    other = dial()
    name, _ = receive()
    events = stream.events()
    for n in range(10):
        plain = dial()
        plain.setsockopt(pysocket.SOL_SOCKET, pysocket.SO_LINGER, RESET)
        plain.sendall(b"%d" % n)
        came = [receive(), receive()]
        plain.close()
        came.append(receive())
        assert [body for _, body in came] == [b"", b"%d" % n, b""]
        assert len({who for who, _ in came}) == 1
        while (event := events.get(LIMIT)).kind != "Disconnected":
            pass
        assert "reset" in event.reason
    stream.send_to(name, b"fine")
    assert other.recv(10) == b"fine"
    receive.check()
    events.close()


KILLED = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    s.sendall(bytes(100_000))
    s.recv(1000)
"""


def test_peers_that_are_killed(served):
    """In the middle of much, both ways."""
    stream, _ = served(notify=True, send_hwm=50)
    receive = Counted(stream)
    port = stream.endpoints[0].url.rpartition(":")[2]
    children = [subprocess.Popen([sys.executable, "-c", KILLED, port]) for _ in range(3)]
    came, names = 0, set()
    try:
        while came < 30 << 20 or len(names) < 3:
            name, body = receive()
            names.add(name)
            came += len(body)
            with contextlib.suppress(mq.SendTimeout):
                stream.send_to(name, bytes(10_000), timeout=0)
    finally:
        for child in children:
            child.send_signal(signal.SIGKILL)
            child.wait()
    gone = set()
    while gone != names:
        name, body = receive()
        if not body:
            assert name not in gone
            gone.add(name)
    stats = receive.check()
    assert len(stats.peers) == 3
    until(lambda: stream.peers() == [])     # their notes come later than their last messages


# -- connecting ------------------------------------------------------------------------------------


def test_a_connection_that_is_made_again_has_its_id_and_its_turn(ctx, listener):
    """What the next one brings is not read before all of the one before it."""
    stream = ctx.socket("stream", notify=True, reconnect=0.01, reconnect_max=0.02)
    endpoint = stream.connect(url_of(listener), peer_id=b"it")
    first, _ = listener.accept()
    first.sendall(b"one")
    until(lambda: sum(p.queued_in for p in stream.stats().peers.values()))
    first.close()
    second, _ = listener.accept()
    with second:
        second.sendall(b"two")
        until(lambda: sum(p.queued_in for p in stream.stats().peers.values()) == 2)
        came = [stream.recv_parts(timeout=LIMIT) for _ in range(5)]
        assert came == [[b"it", body] for body in (b"", b"one", b"", b"", b"two")]
        stream.send_to(b"it", b"three")
        assert second.recv(10) == b"three"
        stream.send_to(b"it", b"")
        assert second.recv(10) == b""
    until(lambda: endpoint.state == "stopped")  # whom we ended is not called again
    assert endpoint.error is not None and "the end was sent" in str(endpoint.error)
    assert stream.peers() == []
    laws(stream)


def test_a_router_can_name_whom_it_connects_to(ctx):
    dealer = ctx.socket("dealer", routing_id=b"its own", recv_timeout=LIMIT)
    router = ctx.socket("router")
    router.connect(dealer.bind("tcp://127.0.0.1:0").url + "?peer_id=ours", wait=LIMIT)
    router.send_to(b"ours", b"x")
    assert dealer.recv() == b"x"
    dealer.send(b"y")
    assert router.recv_parts(timeout=LIMIT) == [b"ours", b"y"]
    assert router.peers()[0].routing_id == b"ours"


def test_what_is_not_possible(ctx, tmp_path):
    """Each with its reason, before anything is touched."""
    stream, push = ctx.socket("stream"), ctx.socket("push")
    for url, options, error, text in (
            ("inproc://x", {}, mq.NotSupported, "needs a byte stream"),
            ("ws://127.0.0.1:0/", {}, mq.NotSupported, "needs a byte stream"),
            (f"shm://{tmp_path}/s", {}, mq.NotSupported, "needs a byte stream"),
            ("tcp://127.0.0.1:0", {"wire": "zmtp"}, mq.OptionError, "has no protocol"),
            ("tcp://127.0.0.1:0", {"security": mq.security.Plain(username="a", password="b")},
             mq.OptionError, "tls+tcp"),
            ("tcp://127.0.0.1:0", {"peer_id": b"x"}, mq.OptionError, "names one peer")):
        with pytest.raises(error, match=text.replace("+", r"\+")):
            stream.bind(url, **options)
    with pytest.raises(mq.OptionError, match="does not apply to push"):
        push.connect("tcp://127.0.0.1:1", peer_id=b"x")
    with pytest.raises(mq.NotSupported, match="announces"):
        ctx.socket("router").connect("inproc://x", peer_id=b"x")
    for options, text in (({"on_full": "drop_new"}, "would corrupt"),
                          ({"conflate": True}, "stream")):
        with pytest.raises(mq.OptionError, match=text):
            ctx.socket("stream", **options)
    for call in (stream.recv, lambda: stream.recv_into(bytearray(9)), stream.recv_many):
        with pytest.raises(mq.UsageError, match="a stream's message has a routing id"):
            call()
    with pytest.raises(mq.UsageError, match="routing id comes first"):
        stream.send(b"to whom?")
    with pytest.raises(mq.UsageError, match="not str"):
        stream.send_to("web", b"x")
    with pytest.raises(mq.NoSuchPeer):
        stream.send_to(b"nobody", b"x")
    stream.mandatory = False
    stream.send_to(b"nobody", b"x")
    assert stream.stats().dropped == {"no_peer": 1}
    assert stream.endpoints == ()
