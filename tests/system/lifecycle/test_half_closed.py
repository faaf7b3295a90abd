"""Links of which one side has ended and the other has not: what is on its way arrives, or is
counted."""

import contextlib
import socket
import threading
import time

import pytest
from rawzmtp import RawPeer, message

import mqcore as mq

LIMIT = 30.0
PATIENT = {"heartbeat": None, "reconnect": None}
FIT = 60       # messages of 30,000 B that a kernel takes at once: Linux's send buffer holds ten
#                segments of a window that has not grown yet, 2.6 MB on loopback


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def url_for(transport, tmp_path):
    return {"tcp": "tcp://127.0.0.1:0", "ws": "ws://127.0.0.1:0", "tls": "tls+tcp://127.0.0.1:0",
            "ipc": f"ipc://{tmp_path}/s"}[transport]


def send(sock, n, size):
    for i in range(n):
        sock.send(b"%06d" % i + bytes(size), timeout=LIMIT)
    until(lambda: not sock._outstanding())


def rest_of(sock, timeout=1.0, first=0):
    """The numbers of the messages that come until none does, but of so many at least."""
    found = [int(bytes(sock.recv_parts(timeout=LIMIT)[-1][:6])) for _ in range(first)]
    try:
        while True:
            found.append(int(bytes(sock.recv_parts(timeout=timeout)[-1][:6])))
    except mq.RecvTimeout:
        return found


def closed(sock, linger):
    """close() on a thread: (the thread, where its report will be)"""
    report = []
    thread = threading.Thread(target=lambda: report.append(sock.close(linger)))
    thread.start()
    return thread, report


@pytest.fixture
def security(authority):
    """The options of an end, by transport and whether it binds."""
    return lambda transport, binds: {} if transport != "tls" else \
        authority.server if binds else authority.ca


@pytest.mark.parametrize("how, kinds, transport", [
    ("disconnect", ("push", "pull"), "tls"), ("unbind", ("dealer", "dealer"), "tcp"),
    *(pytest.param(*those, marks=pytest.mark.slow) for those in (
        ("unbind", ("dealer", "dealer"), "tls"), ("disconnect", ("push", "pull"), "tcp"),
        ("disconnect", ("dealer", "dealer"), "ws"), ("unbind", ("push", "pull"), "ws")))])
def test_what_lies_in_the_senders_kernel(ctx, tmp_path, how, kinds, transport, security):
    """The sender ends the link; the receiver, whose PINGs go on, reads 2 s later."""
    binds = how == "unbind"
    sender = ctx.socket(kinds[0], **PATIENT, **security(transport, binds))
    reader = ctx.socket(kinds[1], recv_hwm=1, heartbeat=0.3, reconnect=None,
                        **security(transport, not binds))
    first, second = (sender, reader) if binds else (reader, sender)
    url = first.bind(url_for(transport, tmp_path)).url
    second.connect(url, wait=LIMIT)
    sender.wait_peers(1, LIMIT)
    send(sender, FIT, 30_000)
    getattr(sender, how)(sender.endpoints[0])
    thread, report = closed(sender, LIMIT)
    time.sleep(2)
    assert rest_of(reader, 0.2, FIT) == list(range(FIT))
    thread.join()
    assert report[0] and report[0].written == FIT and report[0].elapsed > 1.5
    reader.close(0)


def test_what_the_receiver_never_reads_is_counted(ctx, tmp_path):
    sender = ctx.socket("push", **PATIENT)
    reader = ctx.socket("pull", recv_hwm=1, **PATIENT)
    sender.connect(reader.bind("tcp://127.0.0.1:0").url, wait=LIMIT)
    send(sender, FIT, 30_000)
    sender.disconnect(sender.endpoints[0])
    time.sleep(1.5)
    report = sender.close(0.1)
    assert not report and report.unacked > 100_000
    reader.close(0)


def test_what_the_kernel_had_of_a_link_that_is_given_up_is_counted(ctx):
    """The peer says nothing more, and takes nothing."""
    def given_up(n):
        sender = ctx.socket("push", heartbeat=0.2, heartbeat_timeout=0.5, reconnect=None)
        url = sender.bind("tcp://127.0.0.1:0").url
        with RawPeer.connect(url) as peer:
            peer.shake("PULL")
            sender.wait_peers(1, LIMIT)
            send(sender, n, 30_000)
            until(lambda: not sender.peers())
            stats, report = sender.stats().total, sender.close(0)
            assert (report.written, report.undelivered) == (n, 0)
            assert report.unacked == stats.bytes_unacked
            return report

    assert 100_000 < given_up(FIT).unacked < FIT * 30_100
    assert given_up(1)


def test_a_subscriber_that_is_sent_away_takes_nothing(ctx):
    """on_full="disconnect": what it has still to take keeps no connection, and is counted."""
    pub = ctx.socket("pub", send_hwm=10, on_full="disconnect")
    url = pub.bind("tcp://127.0.0.1:0").url
    with RawPeer.connect(url) as peer:
        peer.shake("SUB")
        peer.say(message(b"\x01a"))
        pub.wait_subscribers(b"a", timeout=LIMIT)
        sent = iter(lambda: pub.send_many([b"a" * 10_000] * 5), 0)
        until(lambda: next(sent) and not pub.peers())
    total = pub.stats().total
    assert 100_000 < total.bytes_unacked <= total.bytes_out
    report = pub.close(0)
    assert not report and report.unacked == total.bytes_unacked


def test_a_connection_is_not_charged_with_what_others_had(ctx):
    """Connections that have ended leave their places to new ones."""
    push = ctx.socket("push", heartbeat=0.2, heartbeat_timeout=0.5, reconnect=None)
    url = push.bind("tcp://127.0.0.1:0").url
    for _ in range(70):
        with RawPeer.connect(url) as peer:
            peer.shake("PULL")
            push.wait_peers(1, LIMIT)
            push.send(bytes(30_000), timeout=LIMIT)
            peer.frame()
        until(lambda: not push.peers())
    with RawPeer.connect(url) as peer:
        peer.shake("PULL")
        push.wait_peers(1, LIMIT)
        until(lambda: not push.peers())      # it answers no PING
    assert push.stats().total.bytes_unacked == 0
    assert push.close(0)


@pytest.mark.parametrize("kinds, transport", [
    (("dealer", "dealer"), "tcp"), (("pair", "pair"), "ws"), (("dealer", "dealer"), "ipc")])
def test_a_full_queue_does_not_hide_the_peers_end(ctx, tmp_path, kinds, transport):
    """What is sent to a peer that has ended its side waits, or is reported: it is not written to
    nobody."""
    leaves = ctx.socket(kinds[0], **PATIENT)
    stays = ctx.socket(kinds[1], recv_hwm=1, **PATIENT)
    stays.connect(leaves.bind(url_for(transport, tmp_path)).url, wait=LIMIT)
    leaves.wait_peers(1, LIMIT)
    send(leaves, 3, 100)
    leaves.unbind(leaves.endpoints[0])
    time.sleep(0.3)
    stays.send(b"000000", timeout=LIMIT)
    time.sleep(1.5)
    assert rest_of(stays, 0.3) == [0, 1, 2]
    report = stays.close(0.2)
    assert (report.written, report.undelivered) == (0, 1)
    assert rest_of(leaves, 0.3) == []
    leaves.close(0)


@pytest.mark.parametrize("transport", ["tcp", "ws", "ipc"])
def test_a_link_that_is_read_to_its_end_is_not_cut_by_unbind(ctx, tmp_path, transport):
    """Its PING has failed, since the sender has left."""
    reader = ctx.socket("pull", recv_hwm=1, heartbeat=0.1, heartbeat_timeout=None)
    sender = ctx.socket("push", **PATIENT)
    sender.connect(reader.bind(url_for(transport, tmp_path)).url, wait=LIMIT)
    send(sender, 60, 1000)
    assert sender.close(0 if transport == "ipc" else LIMIT).written == 60
    time.sleep(0.5)
    reader.unbind(reader.endpoints[0])
    assert rest_of(reader, 0.2, 60) == list(range(60))
    assert reader.stats().total.bytes_unread == 0
    reader.close(0)


def test_a_replaced_link_is_not_cut_by_unbind(ctx, tmp_path):
    router = ctx.socket("router", recv_hwm=1, heartbeat=None)
    url = router.bind("tcp://127.0.0.1:0").url
    older, newer = (ctx.socket("dealer", routing_id=b"same", **PATIENT) for _ in range(2))
    older.connect(url, wait=LIMIT)
    send(older, FIT, 30_000)
    newer.connect(url, wait=LIMIT)
    until(lambda: any(router._links.core._reads_on(slot)
                      for slot in list(router._links.connections)))
    router.unbind(router.endpoints[0])
    thread, report = closed(older, LIMIT)
    assert rest_of(router, 0.2, FIT) == list(range(FIT))
    thread.join()
    assert report[0] and report[0].written == FIT
    newer.close(0)
    router.close(0)


@pytest.mark.parametrize("how", ["nothing", "unbind"])
def test_the_answer_to_a_raw_peer_that_goes_on_talking(ctx, how):
    """The end of the connection waits behind the answer, which the peer takes slowly."""
    server = ctx.socket("stream")
    host, port = server.bind("tcp://127.0.0.1:0").url.removeprefix("tcp://").split(":")
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(LIMIT)
        peer.connect((host, int(port)))
        peer.sendall(b"GET")
        while (parts := server.recv_parts(timeout=LIMIT))[1] != b"GET":
            pass
        server.send_parts([parts[0], bytes(500_000)], timeout=LIMIT)
        server.send_parts([parts[0], b""], timeout=LIMIT)
        if how == "unbind":
            server.unbind(server.endpoints[0])
        time.sleep(2)
        peer.sendall(b"more")
        got = 0
        while data := peer.recv(65536):
            got += len(data)
    assert got == 500_000
    server.close(0)


def test_ipc_peers_that_do_not_read_are_let_go(ctx, tmp_path):
    """What they have not taken outlives our end: nothing is gained by waiting for them."""
    sender = ctx.socket("push", heartbeat=None)
    url = sender.bind(f"ipc://{tmp_path}/s").url
    peer = RawPeer.connect(url)
    peer.shake("PULL")
    sender.wait_peers(1, LIMIT)
    send(sender, 3, 1000)
    sender.unbind(url)
    peer.sock.shutdown(socket.SHUT_WR)
    until(lambda: not sender.peers())
    got = 0
    while data := peer.sock.recv(65536):
        got += len(data)
    assert got > 3000
    peer.close()
    sender.close(0)


def test_urgent_data_does_not_keep_unbind_waiting(ctx):
    reader = ctx.socket("pull", heartbeat=None)
    peer = RawPeer.connect(reader.bind("tcp://127.0.0.1:0").url)
    peer.shake("PUSH")
    reader.wait_peers(1, LIMIT)
    peer.sock.send(b"!", socket.MSG_OOB)
    time.sleep(0.1)
    before = time.monotonic()
    reader.unbind(reader.endpoints[0])
    assert time.monotonic() - before < 4
    peer.close()
    reader.close(0)


class SlowPath:
    """A proxy that stops for a while from go() on."""

    def __init__(self, url, pause):
        self.port = int(url.rpartition(":")[2])
        self.pause = pause
        self.stalls = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.go = self.stalls.set
        self.ends = []
        self.threads = [threading.Thread(target=self.join)]
        self.threads[0].start()

    def join(self):
        near = self.listener.accept()[0]
        far = socket.create_connection(("127.0.0.1", self.port))
        self.ends = [near, far]
        self.threads.append(threading.Thread(target=self.pump, args=(far, near, False)))
        self.threads[-1].start()
        self.pump(near, far, True)

    def pump(self, source, to, slow):
        paused = False
        with contextlib.suppress(OSError):
            while data := source.recv(16384):
                if slow and self.stalls.is_set() and not paused:
                    paused = True
                    time.sleep(self.pause)
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)

    def close(self):
        for thread in self.threads:
            thread.join()
        for end in (self.listener, *self.ends):
            end.close()


def test_a_path_that_stalls(ctx):
    """Packets that are lost and sent again, a tunnel: the peer's last bytes come late."""
    reader = ctx.socket("pull", heartbeat=None)
    path = SlowPath(reader.bind("tcp://127.0.0.1:0").url, 2.5)
    sender = ctx.socket("push", **PATIENT)
    sender.connect(path.url, wait=LIMIT)
    reader.wait_peers(1, LIMIT)
    path.go()
    send(sender, 40, 30_000)
    reader.unbind(reader.endpoints[0])
    assert sender.close(LIMIT).written == 40
    assert rest_of(reader, 0.2, 40) == list(range(40))
    path.close()
    reader.close(0)


def test_a_peer_that_does_not_end_its_side_is_named(ctx):
    reader = ctx.socket("pull", heartbeat=None)
    peer = RawPeer.connect(reader.bind("tcp://127.0.0.1:0").url)
    peer.shake("PUSH")
    reader.wait_peers(1, LIMIT)
    with reader.events() as events:
        reader.unbind(reader.endpoints[0])
        while not isinstance(event := events.get(timeout=LIMIT), mq.events.Disconnected):
            pass
    assert "did not end its side" in event.reason
    peer.close()
    reader.close(0)
