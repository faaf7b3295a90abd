"""Peers that disconnect before the application has read their messages. The messages stay readable,
however many they are: what bounds them is the listener, which accepts no more peers meanwhile. Only
patterns that drop at a high-water mark drop here, too. Reading costs time in proportion."""

import fcntl
import os
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from rawzmtp import GREETING, RawPeer, frame, ready
from waiting import until

import mqcore as mq
from mqcore.spi.drop import DROP_REASONS


class All:
    """The receiving side of all peers together, those that have ended and the others."""

    def __init__(self, s):
        facts = s._accounts()
        every = [facts["total"], *(fact for _, fact in facts["live"])]
        self.read, self.delivered = (sum(f[k] for f in every) for k in ("read", "delivered"))
        self.dropped = {name: count for name, count in zip(
            (name for name, _ in DROP_REASONS),
            map(sum, zip(*(f["in_dropped"] for f in every), strict=True)), strict=True) if count}
        self.queued = self.read - self.delivered - sum(self.dropped.values())


def leave(url: str, kind: str, *bodies: bytes) -> None:
    """A peer says all of this and leaves, without hearing anything."""
    with RawPeer.connect(url) as peer:
        peer.say(GREETING + ready(kind) + b"".join(frame(body) for body in bodies))


def short_lived(ctx, s, n: int, bodies=(b"left",)) -> None:
    """Peers that say something and leave, one after the other; and all of it has arrived."""
    url = s.endpoints[0].url
    before = All(s).read
    for i in range(n):
        if url.startswith("inproc"):
            with ctx.socket("push", connect=url) as push:
                for body in bodies:
                    push.send(body, timeout=5)
        else:
            peer = RawPeer.connect(url)
            peer.shake("PUSH")
            peer.say(b"".join(frame(body) for body in bodies))
            peer.sock.close()
        until(lambda i=i: All(s).read == before + (i + 1) * len(bodies) and not s._attached(), 20)


def say_and_go(url: str, *bodies: bytes) -> RawPeer:
    """Says all of this, and its end. Its own descriptor stays open, so that nothing that is written
    to it fails."""
    peer = RawPeer.connect(url)
    peer.shake("PUSH")
    peer.say(b"".join(frame(body) for body in bodies))
    peer.sock.shutdown(socket.SHUT_WR)
    return peer


def in_flight(sock: socket.socket) -> int:
    """Bytes that the other side's kernel has not acknowledged."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def held_back(s):
    """Wait until the socket has stopped accepting."""
    until(lambda: "accepts no connection" in s.explain(), 20)


# -- nothing is lost -------------------------------------------------------------------------------

def test_all_that_departed_peers_left_is_read(ctx, url):
    with ctx.socket("pull", bind=url) as pull:
        short_lived(ctx, pull, 30, [b"a", b"b", b"c"])
        assert sorted(pull.recv(timeout=5) for _ in range(90)) == sorted([b"a", b"b", b"c"] * 30)
        end = All(pull)
        assert (end.read, end.delivered, end.dropped) == (90, 90, {})
        assert not pull._accounts()["live"]


def test_a_peer_ends_with_the_last_message_that_it_left(ctx, url):
    with ctx.socket("pull", bind=url) as pull:
        short_lived(ctx, pull, 10)
        for n in range(10):
            assert len(pull._accounts()["live"]) == pull.stats().departed == 10 - n
            assert pull.recv(timeout=5) == b"left"
        assert not pull._accounts()["live"]


def test_a_high_water_mark_of_messages_drops_nothing(ctx, url):
    with ctx.socket("pull", bind=url, recv_hwm=10) as pull:
        short_lived(ctx, pull, 30, [b"a%d" % n for n in range(6)])
        total = pull.stats().total
        assert (total.read, total.queued_in, total.dropped) == (180, 180, {})
        got = pull.recv_many(200, timeout=5)
        assert sorted(got) == sorted([b"a%d" % n for n in range(6)] * 30)
        assert All(pull).dropped == {}


def test_a_peer_that_leaves_more_than_the_mark_is_read_to_its_end(ctx):
    """Some of it in the queue, the rest in the kernel."""
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=10) as pull:
        url = pull.endpoints[0].url
        peers = [say_and_go(url, *(b"%d %d" % (i, n) for n in range(500))) for i in range(3)]
        got = [pull.recv(timeout=20) for _ in range(1500)]
        for i in range(3):                        # and in its order
            mine = [body for body in got if body.startswith(b"%d " % i)]
            assert mine == [b"%d %d" % (i, n) for n in range(500)]
        until(lambda: not pull._accounts()["live"])
        assert All(pull).dropped == {}
        for peer in peers:
            peer.close()


def test_a_stream_of_bytes_is_read_to_its_end(ctx):
    with ctx.socket("stream", bind="tcp://127.0.0.1:0", recv_hwm_bytes=1_000_000) as s:
        for n in (1, 2, 3):
            peer = RawPeer.connect(s.endpoints[0].url)
            s.wait_peers(1, 5)
            peer.sock.sendall(b"x" * 90)
            until(lambda n=n: All(s).read == n)
            peer.sock.close()
            until(lambda: not s._attached())
        s.recv_hwm_bytes = 100
        assert [s.recv_parts(timeout=5)[1] for _ in range(3)] == [b"x" * 90] * 3
        assert All(s).dropped == {}


def test_requests_of_departed_peers_are_kept_too(ctx):
    with ctx.socket("rep", bind="tcp://127.0.0.1:0", recv_hwm=5) as rep:
        for n in range(12):
            peer = RawPeer.connect(rep.endpoints[0].url)
            peer.shake("REQ")
            peer.say(frame(b"", 1) + frame(b"question"))
            until(lambda n=n: All(rep).read == n + 1)
            peer.sock.close()
        until(lambda: not rep._attached())
        assert (All(rep).queued, All(rep).dropped) == (12, {})
        assert [rep.recv_msg(timeout=5).body for _ in range(12)] == [b"question"] * 12


def test_one_message_always_fits_however_large(ctx, url):
    with ctx.socket("pull", bind=url, recv_hwm_bytes=1000) as pull:
        short_lived(ctx, pull, 1, [b"x" * 50_000])
        assert len(pull.recv(timeout=5)) == 50_000


# -- what bounds it --------------------------------------------------------------------------------

@pytest.mark.parametrize("limit", [{"max_departed": 5}, {"recv_hwm_bytes": 5 * 10_000}],
                         ids=["peers", "bytes"])
def test_the_listener_stops_accepting_and_goes_on_when_there_is_room(ctx, limit):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", **limit) as pull, pull.events() as events:
        url = pull.endpoints[0].url
        short_lived(ctx, pull, 5, [b"x" * 10_000])
        until(lambda: pull.stats().departed == 5)
        for _ in range(20):                       # nobody accepts these: the kernel has them
            leave(url, "PUSH", b"late")
        held_back(pull)
        while (event := events.get(timeout=20)).kind != "AcceptPaused":
            pass
        assert "max_departed" in event.reason
        assert (pull.stats().departed, All(pull).read) == (5, 5)
        assert [pull.recv(timeout=20) for _ in range(5)] == [b"x" * 10_000] * 5
        assert [pull.recv(timeout=20) for _ in range(20)] == [b"late"] * 20
        assert "accepts no connection" not in pull.explain() and All(pull).dropped == {}


def test_inproc_peers_wait_until_there_is_room(ctx):
    with ctx.socket("pull", bind="inproc://few", max_departed=5) as pull:
        short_lived(ctx, pull, 5)
        reports = []

        def late():
            push = ctx.socket("push", connect="inproc://few")
            push.send(b"late")
            reports.append(push.close(linger=30))

        threads = [threading.Thread(target=late) for _ in range(8)]
        for thread in threads:
            thread.start()
        held_back(pull)
        assert not reports and pull.stats().departed == 5
        assert sorted(pull.recv(timeout=20) for _ in range(13)) == [b"late"] * 8 + [b"left"] * 5
        for thread in threads:
            thread.join()
        assert all(report.undelivered == 0 for report in reports)


def test_an_inproc_peer_that_lingers_no_longer_reports_it(ctx):
    with ctx.socket("pull", bind="inproc://few", max_departed=1) as pull:
        short_lived(ctx, pull, 1)
        push = ctx.socket("push", connect="inproc://few")
        push.send(b"late")
        assert push.close(linger=0.05).undelivered == 1
        assert pull.recv(timeout=5) == b"left"
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=0)


def test_a_higher_limit_takes_effect_at_once(ctx):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", max_departed=1) as pull:
        short_lived(ctx, pull, 1)
        for _ in range(4):
            leave(pull.endpoints[0].url, "PUSH", b"late")
        held_back(pull)
        pull.max_departed = None
        until(lambda: All(pull).read == 5, 20)
        assert sorted(pull.recv(timeout=5) for _ in range(5)) == [b"late"] * 4 + [b"left"]


def test_a_peer_that_is_read_on_counts_as_departed(ctx):
    """It has gone, and its messages fill the queue and the kernel's buffer."""
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=10, max_departed=1) as pull:
        url = pull.endpoints[0].url
        peer = say_and_go(url, *[b"first"] * 500)
        until(lambda: pull._crowded(), 20)
        assert pull._attached() == 1 and pull.stats().departed == 0
        leave(url, "PUSH", b"second")
        held_back(pull)
        got = [pull.recv(timeout=20) for _ in range(501)]
        assert got == [b"first"] * 500 + [b"second"]
        peer.close()


def test_a_peer_whose_listener_is_unbound_counts_as_departed(ctx):
    """It lives, and is told the end. More of it has arrived than its queue holds."""
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=10, max_departed=1) as pull:
        with RawPeer.connect(pull.endpoints[0].url) as peer:
            peer.shake("PUSH")
            peer.say(b"".join(frame(b"first") for _ in range(500)))
            until(lambda: All(pull).read >= 10, 20)
            pull.unbind(pull.endpoints[0])
            until(lambda: pull._crowded(), 20)
            leave(pull.bind("tcp://127.0.0.1:0").url, "PUSH", b"second")
            held_back(pull)
            peer.sock.shutdown(socket.SHUT_WR)      # otherwise it is waited for, 10 s long
            got = [pull.recv(timeout=20) for _ in range(501)]
        assert got == [b"first"] * 500 + [b"second"]
        until(lambda: not pull.stats().departed and not pull._crowded())


@pytest.mark.parametrize("admitted", [True, False])
@pytest.mark.parametrize("n", [5, 500])
def test_a_peer_that_is_told_the_end_before_it_is_admitted(ctx, n, admitted):
    """Of 5 messages its connection ends at once; of 500 it waits until the queue has space."""
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=10, max_departed=1) as pull:
        pull._set("held", True)
        with RawPeer.connect(pull.endpoints[0].url) as peer:
            peer.shake("PUSH")
            peer.say(b"".join(frame(b"%d" % i) for i in range(n)))
            number = until(lambda: next(iter(pull._links.peers), None))
            until(lambda: in_flight(peer.sock) == 0, 20)
            pull.unbind(pull.endpoints[0])
            assert peer.ended()
            if n == 5:
                peer.sock.shutdown(socket.SHUT_WR)      # otherwise it is waited for, 10 s long
            until(lambda: pull._crowded(), 20)
            assert pull._has_pipe(number)
            if admitted:
                pull._admit(number)
                assert [int(pull.recv(timeout=20)) for _ in range(n)] == list(range(n))
                if n == 500:
                    peer.sock.shutdown(socket.SHUT_WR)
                until(lambda: pull.stats().total.delivered == n)
                assert pull.stats().total.dropped == {}
            else:
                pull._end_pipe(number)
            until(lambda: not pull._has_pipe(number) and not pull._crowded() and not pull.peers())
            assert pull.stats().departed == 0


def test_peers_that_are_read_on_keep_a_share_of_the_descriptors(ctx, monkeypatch):
    monkeypatch.setattr("mqcore.control.tables.left_open", lambda: 2)
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=10) as pull:
        url = pull.endpoints[0].url
        peers = [say_and_go(url, *[b"%d" % i] * 500) for i in range(2)]
        until(lambda: pull._crowded(), 20)
        leave(url, "PUSH", b"2")
        held_back(pull)
        assert sorted(pull.recv(timeout=20) for _ in range(1001)) == \
            [b"0"] * 500 + [b"1"] * 500 + [b"2"]
        for peer in peers:
            peer.close()


def test_a_connecting_socket_waits_before_it_connects_again(ctx):
    """A server that sends and hangs up, again and again."""
    served = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with RawPeer(sock) as peer:
                peer.say(GREETING + ready("PUSH") + frame(b"x"))
                peer.hear(64)
            served.append(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with ctx.socket("pull", max_departed=3, reconnect=0.01, reconnect_max=0.01) as pull:
        pull.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        until(lambda: pull.stats().departed == 3, 20)
        time.sleep(0.3)                           # thirty pauses
        assert len(served) == 3
        for _ in range(6):
            assert pull.recv(timeout=20) == b"x"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_who_left_is_known_as_long_as_there_are_messages_of_it(ctx, monkeypatch):
    monkeypatch.setattr("mqcore.control.tables.GONE_KEPT", 3)
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=100)
    for i in range(6):
        short_lived(ctx, pull, 1, [b"%d" % i] * 3)
    short_lived(ctx, pull, 20, ())
    until(lambda: not pull.peers(), 20)
    assert 6 <= len(pull._links.gone) <= 15
    found = [pull.recv_msg(timeout=20) for _ in range(18)]
    assert all(message.peer.pattern == "push" for message in found)
    assert sorted(map(bytes, found)) == [b"%d" % (i // 3) for i in range(18)]
    short_lived(ctx, pull, 10, ())
    until(lambda: not pull.peers(), 20)
    assert len(pull._links.gone) == 3
    pull.close(0)


# -- where the pattern drops -----------------------------------------------------------------------

@pytest.mark.parametrize("pattern", ["sub", "bus"])
def test_patterns_that_drop_say_so(ctx, pattern):
    """All departed peers together leave no more than the marks; no listener stops."""
    peer, more = {"sub": ("PUB", {"topics": [b""]}), "bus": ("BUS", {})}[pattern]
    with ctx.socket(pattern, bind="tcp://127.0.0.1:0", recv_hwm=40, max_departed=1, **more) as s:
        for n in range(100):
            if pattern == "bus":
                bus = ctx.socket("bus", connect=s.endpoints[0].url)
                bus.wait_peers(1, 5)
                bus.send(b"left")
                bus.close(linger=5)
            else:
                leave(s.endpoints[0].url, peer, b"left")
            until(lambda n=n: All(s).read == n + 1 and not s._attached(), 20)
        stats = s.stats()
        assert (stats.total.read, stats.total.queued_in) == (100, 40)
        assert stats.dropped == stats.total.dropped == {"full": 60}
        assert "60 message(s) were dropped (full)" in s.explain()
        assert "40 message(s) of 40 disconnected peer(s)" in s.explain()
        assert s.recv_many(200, timeout=5) == [b"left"] * 40
        report = s.close()
    assert report.dropped == {"full": 60} and report.undelivered == 0


def test_explain_knows_those_that_have_come_and_gone(ctx):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0") as pull:
        assert "no peer has connected yet" in pull.explain()
        short_lived(ctx, pull, 3)
        until(lambda: "no peer is connected now" in pull.explain(), 20)
        text = pull.explain()
        assert "3 message(s) of 3 disconnected peer(s) are not yet received" in text


# -- a flood ---------------------------------------------------------------------------------------

FLOOD = """
import socket, sys
sys.path.insert(0, sys.argv[1])
from rawzmtp import GREETING, frame, ready
said = GREETING + ready("PUSH") + frame(b"spam")
for _ in range(int(sys.argv[3])):
    with socket.socket() as s:
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", int(sys.argv[2])))      # at once, or not: the backlog is full
        try:
            s.send(said)
        except OSError:
            pass
"""


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_flood_of_short_connections_fills_the_backlog_and_not_the_memory(ctx):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", max_departed=1000) as pull:
        url = pull.endpoints[0].url
        honest = [ctx.socket("push", connect=url) for _ in range(3)]
        pull.wait_peers(3, 20)
        before = memory()
        subprocess.run([sys.executable, "-c", FLOOD, str(Path(__file__).parents[2] / "support"),
                        url.rpartition(":")[2], "20000"], check=True, timeout=60)
        for n in range(300):
            honest[n % 3].send(b"honest %d" % n)
        held_back(pull)
        late = ctx.socket("push", connect=url)
        late.send(b"honest 300")
        assert all(push.close(linger=20) for push in honest)
        assert memory() - before < 64 << 20
        assert pull.stats().departed < 1000 + 64 + 1024 + 3    # and a turn, and those in handshakes
        got = set()
        while len(got) < 301:
            body = pull.recv(timeout=60)
            if body != b"spam":
                got.add(body)
        assert got == {b"honest %d" % n for n in range(301)} and late.close(linger=20)
        assert pull.stats().total.dropped == {}


# -- what it costs ---------------------------------------------------------------------------------

def cost(ctx, n: int) -> float:
    """CPU seconds of this thread to read what so many departed peers left, one message each."""
    with ctx.socket("pull", bind="inproc://cost", max_departed=None) as pull:
        for _ in range(n):
            with ctx.socket("push", connect="inproc://cost") as push:
                push.send(b"left", timeout=5)
        until(lambda: pull.stats().departed == n, 20)
        before = time.thread_time()
        for _ in range(n):
            pull.recv(timeout=0)
        return time.thread_time() - before


def test_reading_costs_what_was_left_not_its_square(ctx):
    """Four times the peers: about four times the work, where it was sixteen times."""
    few, many = (min(cost(ctx, n) for _ in range(3)) for n in (250, 1000))
    assert many / few < 10
