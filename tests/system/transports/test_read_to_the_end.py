"""The end of a link loses nothing that had arrived. A write that fails ends writing alone, and what
the peer has sent is read to its end, as the program receives."""

import contextlib

import pytest
from waiting import until

import mqcore as mq
from mqcore.security import ANY, Curve, curve_keypair

MANY = 120                    # of 1,000 bytes: more than the receive HWM, less than the kernel holds


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
    assert sock.close(0).undelivered == 0


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
