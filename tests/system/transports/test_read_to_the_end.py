"""The end of a link loses nothing that had arrived. A write that fails ends writing alone, and what
the peer has sent is read to its end, as the program receives."""

import contextlib
import select
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq
from rawzmtp import GREETING, RawListener, RawPeer, message, ready
from waiting import until

import mqcore as mq
from mqcore.security import ANY, Curve, curve_keypair

MANY = 60           # of 1,000 bytes: more than the receive HWM, less than the kernel holds


@pytest.fixture
def way(request, ctx, authority, tmp_path):
    """(bind's URL, its options, connect's options) of one way to connect."""
    server, client = curve_keypair(), curve_keypair()
    return {
        "tcp": ("tcp://127.0.0.1:0", {}, {}),
        "ipc": (f"ipc://{tmp_path}/s", {}, {}),
        "ws": ("ws://127.0.0.1:0", {}, {}),
        "shm": ("shm://*", {}, {}),
        "tls": ("tls+tcp://127.0.0.1:0", authority.server, authority.ca),
        "curve": ("tcp://127.0.0.1:0",
                  {"security": Curve(secret_key=server.secret, allow=ANY)},
                  {"security": Curve(secret_key=client.secret, server_key=server.public)}),
    }[request.param]


EVERY_WAY = pytest.mark.parametrize("way", ["tcp", "ipc", "ws", "shm", "tls", "curve"],
                                    indirect=True)


def leave_after(sock, url, options, messages=MANY):
    """Connect, send, close. All of it is in the kernel of the receiving side then."""
    sock.connect(url.replace("127.0.0.1", "localhost") if url.startswith("tls") else url,
                 wait=10, **options)
    for i in range(messages):
        sock.send(b"%06d" % i + bytes(994), timeout=10)
    until(lambda: not sock._outstanding())
    local = url.startswith(("ipc", "shm"))    # where a close() would wait until all is received
    assert sock.close(0 if local else 10).undelivered == 0


def reads_on(sock):
    """Whether one of its links has been left and still has something to read."""
    return any(sock._links.core._reads_on(slot) for slot in list(sock._links.connections))


def received(sock):
    """The numbers of all messages, in their order, until the last one."""
    got = []
    while not got or got[-1] != MANY - 1:
        got.append(int(sock.recv_parts(timeout=10)[-1][:6]))
    return got


def balanced(stats):
    return (stats.offered == stats.written + stats.queued_out + sum(stats.dropped_out.values())
            and stats.read == stats.delivered + stats.queued_in + sum(stats.dropped_in.values()))


@EVERY_WAY
def test_answers_to_a_peer_that_left_cost_none_of_its_messages(ctx, way):
    url, ours, theirs = way
    router = ctx.socket("router", recv_hwm=10, heartbeat=None)
    url = router.bind(url, **ours).url
    leave_after(ctx.socket("dealer", send_hwm=MANY), url, theirs)
    got = []
    while len(got) < MANY:
        peer, body = router.recv_parts(timeout=10)
        got.append(int(body[:6]))
        with contextlib.suppress(mq.NoSuchPeer):
            router.send_parts([peer, b"got it"], timeout=10)
    assert got == list(range(MANY))
    until(lambda: not router.peers())
    assert balanced(router.stats().total)


@EVERY_WAY
def test_pings_to_a_peer_that_left_cost_none_of_its_messages(ctx, way):
    url, ours, theirs = way
    pull = ctx.socket("pull", recv_hwm=10, heartbeat=0.02, heartbeat_timeout=None)
    url = pull.bind(url, **ours).url
    leave_after(ctx.socket("push", send_hwm=MANY), url, theirs)
    if not url.startswith("shm"):         # whose end is seen without a write
        until(lambda: reads_on(pull))
    assert received(pull) == list(range(MANY))
    until(lambda: not pull.peers())


@pytest.mark.parametrize("way", ["tcp", "ipc"], indirect=True)
def test_what_it_was_not_sent_goes_to_another_peer(ctx, way):
    url, _, _ = way
    sender = ctx.socket("dealer", recv_hwm=10, heartbeat=None)
    url = sender.bind(url).url
    leave_after(ctx.socket("dealer", send_hwm=MANY), url, {})
    sent = 0
    while not reads_on(sender):
        sender.send(b"%d" % sent, timeout=10)
        sent += 1
        until(lambda: not sender._outstanding() or reads_on(sender))
    other = ctx.socket("dealer", connect=url)
    for _ in range(10):
        sender.send(b"%d" % sent, timeout=10)
        sent += 1
    gone = until(lambda: next((stats for stats in sender.stats().peers.values()
                               if stats.read and not stats.queued_out), None))
    assert not gone.dropped_out and balanced(gone)
    first = gone.written                  # into the kernel, before that knew better
    assert [int(other.recv(timeout=10)) for _ in range(first, sent)] == list(range(first, sent))
    assert received(sender) == list(range(MANY))


# -- links that our side ends ----------------------------------------------------------------------


def filled(ctx, kind, ours, theirs, way="tcp://127.0.0.1:0", **options):
    """(receiver, sender): more than the receiver's HWM is in its kernel. It binds, or connects."""
    receiver = ctx.socket(ours, recv_hwm=10, heartbeat=None)
    sender = ctx.socket(theirs, send_hwm=MANY, heartbeat=None, **options)
    if kind == "unbind":
        sender.connect(receiver.bind(way), wait=10)
    else:
        receiver.connect(sender.bind(way), wait=10)
    for i in range(MANY):
        sender.send(b"%06d" % i + bytes(994), timeout=10)
    until(lambda: not sender._outstanding() and not sender._links._unacked() and any(
        stats.read >= 10 for stats in receiver.stats().peers.values()))
    return receiver, sender


@pytest.mark.parametrize("call", ["unbind", "disconnect"])
def test_an_endpoint_that_is_closed_delivers_what_had_arrived(ctx, call):
    receiver, sender = filled(ctx, call, "pull", "push")
    with receiver.events() as events, sender.events() as theirs:
        getattr(receiver, call)(receiver.endpoints[0])
        until(lambda: not sender.peers())       # it is told at once
        assert received(receiver) == list(range(MANY))
        until(lambda: not receiver.peers())
        end, = [event for event in events._queue if event.kind == "Disconnected"]
        assert (end.reason, end.bytes_unread) == ("closed by us", 0)
        until(lambda: any(event.kind == "Disconnected" for event in theirs._queue))
    assert receiver.stats().total.bytes_unread == 0


def test_an_endpoint_without_anything_unread_ends_at_once(ctx):
    pull, push = ctx.socket("pull"), ctx.socket("push")
    push.connect(pull.bind("tcp://127.0.0.1:0"), wait=10)
    push.send(b"x", timeout=10)
    assert pull.recv(timeout=10) == b"x"
    pull.unbind(pull.endpoints[0])
    until(lambda: not pull.peers())


@pytest.mark.parametrize("way", ["tcp", "ipc", "ws", "tls", "curve"], indirect=True)
@pytest.mark.parametrize("hwm", [1, 100])
def test_what_the_peers_kernel_has_is_read_too(ctx, way, hwm):
    """It was written before the peer learned that we end the link."""
    url, ours, theirs = way
    pull = ctx.socket("pull", recv_hwm=hwm, heartbeat=None, **ours)
    push = ctx.socket("push", send_hwm=1, heartbeat=None, reconnect=None, **theirs)
    url = pull.bind(url).url
    push.connect(url.replace("127.0.0.1", "localhost") if url.startswith("tls") else url, wait=10)
    with contextlib.suppress(mq.SendTimeout):
        for n in range(1000):
            push.send(b"%06d" % n + bytes(30_000), timeout=0.2)
    pull.unbind(pull.endpoints[0])
    got = []

    def drained():
        with contextlib.suppress(mq.RecvTimeout):
            while True:
                got.append(int(pull.recv(timeout=0)[:6]))
        return not push.peers() and not pull.peers()
    until(drained)
    drained()
    report = push.close(0)
    assert got == list(range(report.written)) and report.written > hwm + 1
    assert pull.stats().total.bytes_unread == 0


@pytest.mark.slow
def test_a_peer_that_does_not_end_its_side_is_left(ctx):
    pull = ctx.socket("pull", heartbeat=None)
    url = pull.bind("tcp://127.0.0.1:0").url
    with RawPeer.connect(url) as peer, RawPeer.connect(url) as shaking:
        peer.shake("PUSH")
        pull.wait_peers(1, 10)
        shaking.hear(10)
        pull.unbind(url)
        peer.say(message(b"after"))             # its kernel may have taken it before
        assert pull.recv(timeout=10) == b"after"
        assert peer.ended() and shaking.ended()
        until(lambda: not pull.peers())
    with RawListener() as far:
        pull.connect(far.url)
        with far.accept() as peer:
            peer.shake("PUSH")
            pull.wait_peers(1, 10)
            pull.disconnect(far.url)
            peer.say(message(b"after"))
            assert pull.recv(timeout=10) == b"after"
            assert peer.ended()
            until(lambda: not pull.peers())


def test_a_peer_that_sends_on_and_on_is_left(ctx):
    """It has been told the end, and its kernel has no room for so much."""
    pull = ctx.socket("pull", heartbeat=None)
    url = pull.bind("tcp://127.0.0.1:0").url
    with RawPeer.connect(url) as peer, ThreadPoolExecutor(1) as thread:
        peer.shake("PUSH")
        pull.wait_peers(1, 10)

        def send():
            with contextlib.suppress(ConnectionError):
                while True:
                    peer.say(message(bytes(1 << 20)))
        sending = thread.submit(send)
        pull.unbind(url)
        got = 0
        while not sending.done() or pull.stats().departed:
            with contextlib.suppress(mq.RecvTimeout):
                got += len(pull.recv(timeout=0.1))
        assert 60 << 20 < got < 200 << 20


def test_messages_behind_a_handshake_that_was_not_read(ctx):
    """The peer may send once it has our side of the handshake."""
    for _ in range(10):
        pull = ctx.socket("pull", heartbeat=None)
        url = pull.bind("tcp://127.0.0.1:0").url
        with RawPeer.connect(url) as peer:
            peer.say(GREETING)
            peer.hear(64)
            peer.say(ready("PUSH") + message(b"early"))
            pull.unbind(url)
            assert pull.recv(timeout=10) == b"early"
            assert peer.ended()
        pull.close(0)


def test_what_a_replaced_peer_had_sent_is_read_to_its_end(ctx):
    router, _ = filled(ctx, "unbind", "router", "dealer", routing_id=b"same", reconnect=None)
    newer = ctx.socket("dealer", routing_id=b"same", reconnect=None)
    with router.events() as events:
        newer.connect(router.endpoints[0], wait=10)
        until(lambda: any(event.kind == "Refused" for event in events._queue))
        newer.send(b"%06d" % (MANY + 1), timeout=10)
        got = []
        while len(got) < MANY + 1:
            name, body = router.recv_parts(timeout=10)
            assert name == b"same"
            got.append(int(body[:6]))
        got.remove(MANY + 1)
        assert got == list(range(MANY))
        end = until(lambda: [event for event in events._queue if event.kind == "Disconnected"])
        assert end[0].reason == "another link of the peer has its routing id"
    assert router.stats().total.bytes_unread == 0
    router.send_to(b"same", b"answer")
    assert newer.recv(timeout=10) == b"answer"


@pytest.mark.parametrize("peer", ["mqcore", "zmq"])
def test_two_links_of_one_named_peer_come_to_rest(ctx, peer):
    router = ctx.socket("router")
    urls = [router.bind("tcp://127.0.0.1:0").url for _ in range(2)]
    with contextlib.ExitStack() as stack:
        events = stack.enter_context(router.events())
        if peer == "mqcore":
            dealer = ctx.socket("dealer", routing_id=b"same", recv_timeout=10)
        else:
            context = stack.enter_context(zmq.Context())
            dealer = stack.enter_context(context.socket(zmq.DEALER))
            dealer.linger, dealer.routing_id, dealer.rcvtimeo = 0, b"same", 10_000
        for url in urls:
            dealer.connect(url)
        for n in range(1000):
            dealer.send(b"%d" % n)
        got = [int(router.recv_parts(timeout=10)[1]) for _ in range(1000)]
        assert sorted(got) == list(range(1000))
        until(lambda: sum(event.kind == "Refused" for event in events._queue) == 2)
        until(lambda: len(router.peers()) == 2)
        router.send_to(b"same", b"answer")
        assert dealer.recv() == b"answer"
        assert sum(event.kind == "Refused" for event in events._queue) == 2
        assert sum(event.kind == "Connected" for event in events._queue) == 3


# -- what is lost all the same ---------------------------------------------------------------------


def test_bytes_that_nobody_read_are_counted(ctx):
    pull, push = filled(ctx, "unbind", "pull", "push")
    with pull.events() as events:
        report = pull.close(0)
        end, = [event for event in events if event.kind == "Disconnected"]
    stats, = report.peers.values()
    assert end.bytes_unread == stats.bytes_unread
    assert (MANY - 11) * 1000 <= stats.bytes_unread <= MANY * 1100
    assert balanced(stats)


def test_bytes_behind_a_handshake_that_failed_are_counted(ctx):
    pull = ctx.socket("pull")
    with RawPeer.connect(pull.bind("tcp://127.0.0.1:0").url) as peer:
        peer.say(GREETING + ready("REP") + bytes(1000))
        until(lambda: pull.stats().failed_handshakes)
        assert pull.stats().total.bytes_unread == 1000
        report = pull.close(0)
    assert (report.unread, report.peers) == (1000, {})
    assert report


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "inproc://held"])
def test_messages_of_a_peer_that_was_never_admitted_are_counted(ctx, url):
    """As of peers that mqcore.nng's callbacks have not let in when the socket closes."""
    pull, push = ctx.socket("pull", recv_hwm=5), ctx.socket("push")
    pull._set("held", True)
    push.connect(pull.bind(url).url, wait=10)
    for _ in range(3):
        push.send(b"held", timeout=10)
    until(lambda: any(stats.queued_in == 3 for stats in pull.stats().peers.values()))
    report = pull.close(0)
    stats, = report.peers.values()
    assert report.dropped_in == stats.dropped_in == {"closed": 3}
    assert balanced(stats)


def test_messages_of_a_peer_that_was_refused_are_counted(ctx):
    """A PAIR keeps its first peer."""
    pair = ctx.socket("pair")
    address = pair.bind("tcp://127.0.0.1:0").url
    with RawPeer.connect(address) as first, RawPeer.connect(address) as second:
        first.say(GREETING + ready("PAIR"))
        until(pair.peers)
        second.say(GREETING + ready("PAIR") + message(b"refused") * 3)
        until(lambda: sum(pair.stats().total.dropped_in.values())
              + pair.stats().total.bytes_unread)
        total = pair.stats().total
    assert total.dropped_in.get("unexpected", 0) * 9 + total.bytes_unread == 3 * 9
    assert pair.close(0).dropped_in == total.dropped_in


# -- the end of a sender ---------------------------------------------------------------------------


def test_the_last_message_is_followed_by_the_end_at_once(ctx, tmp_path):
    """Not only once the peer has acknowledged all, for which kernels take their time."""
    push = ctx.socket("push", heartbeat=None)
    url = push.bind(f"ipc://{tmp_path}/s").url
    with RawPeer.connect(url) as peer, ThreadPoolExecutor(1) as thread:
        peer.shake("PULL")
        push.wait_peers(1, 10)
        push.send(b"last", timeout=10)
        closing = thread.submit(push.close, 30)
        end = select.poll()
        end.register(peer.sock, select.POLLRDHUP)
        assert end.poll(10_000), "our end has come, with the message unread"
        assert not closing.done()
        assert peer.parts() == [b"last"]
        assert closing.result(10)
