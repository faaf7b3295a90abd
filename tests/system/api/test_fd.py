"""fd:// at real sockets: raw ZMTP and other processes at the other end."""

import os
import socket
import subprocess
import sys

import pytest
from rawzmtp import RawPeer, message
from waiting import until

import mqcore as mq

CHILD = """
import sys
import mqcore as mq

with mq.Rep(connect="fd://" + sys.argv[1]) as rep:
    for request in rep:
        rep.send(request.upper())
        if request == b"enough":
            break
"""


@pytest.fixture
def ends():
    """A number for mqcore, and a raw peer at the other end."""
    near, far = socket.socketpair()
    with RawPeer(far) as peer:
        yield near.detach(), peer


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_one_end_to_a_child_process(ctx):
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(theirs.fileno())],
                             pass_fds=[theirs.fileno()])
    theirs.close()
    try:
        req = ctx.socket("req", connect=f"fd://{ours.detach()}", recv_timeout=20)
        assert req.request(b"hello") == b"HELLO"
        assert req.request(b"x" * 500_000) == b"X" * 500_000
        req.send(b"enough")
        assert req.recv() == b"ENOUGH" and child.wait(200) == 0
    finally:
        child.kill()
        child.wait()
    until(lambda: req.endpoints[0].state == "stopped")


def test_a_raw_peer_and_the_end_of_it(ctx, ends):
    number, peer = ends
    push = ctx.socket("push")
    events = push.events()
    endpoint = push.connect(f"fd://{number}", prio=3)
    assert str(endpoint) == f"fd://{number}"
    peer.shake("PULL")
    endpoint.wait_ready(10)
    assert [(p.address, p.pid, p.prio) for p in push.peers()] == [("", None, 3)]
    push.send_parts([b"a", b"b"])
    assert peer.parts() == [b"a", b"b"]
    peer.close()
    until(lambda: endpoint.state == "stopped")
    assert "the peer closed the connection" in str(endpoint.error)
    with pytest.raises(mq.PeerError, match="the peer closed"):
        endpoint.wait_ready(0)
    assert f"stopped trying fd://{number}" in push.explain()
    until(lambda: not is_open(number))
    kinds = []
    while "Stopped" not in kinds:
        kinds.append(events.get(10).kind)
    assert "Retrying" not in kinds
    events.close()
    assert push.stats().reconnects == 0


def test_received_from_a_raw_peer(ctx, ends):
    number, peer = ends
    pull = ctx.socket("pull", connect=f"fd://{number}")
    peer.shake("PUSH")
    peer.say(message(b"one", b"two"))
    assert pull.recv_parts(timeout=10) == [b"one", b"two"]


def test_a_peer_that_does_not_fit(ctx, ends):
    number, peer = ends
    pull = ctx.socket("pull")
    endpoint = pull.connect(f"fd://{number}")
    peer.shake("PULL")
    with pytest.raises(mq.HandshakeFailed):
        endpoint.wait_ready(10)
    until(lambda: endpoint.state == "stopped" and not is_open(number))


def test_disconnect_and_close_end_it(ctx, ends):
    number, peer = ends
    push = ctx.socket("push")
    endpoint = push.connect(f"fd://{number}")
    peer.shake("PULL")
    endpoint.wait_ready(10)
    endpoint.close()
    assert peer.ended()
    until(lambda: not is_open(number))      # the peer does not end its side
    near, far = socket.socketpair()
    push.connect(f"fd://{near.detach()}")
    push.close(0)
    far.settimeout(10)
    while far.recv(4096):
        pass
    far.close()


def test_what_is_refused_stays_open_and_ours(ctx, ends):
    number, peer = ends
    push = ctx.socket("push")
    for call, text in [(lambda: push.bind(f"fd://{number}"), "is not listening"),
                       (lambda: push.connect("fd://99999"), "99999 is not open"),
                       (lambda: push.connect("fd://a b"), "neither a number nor a name"),
                       (lambda: push.connect(f"fd://{number}?prio=0"), "prio")]:
        with pytest.raises(mq.Error, match=text):
            call()
    assert is_open(number) and push.endpoints == ()
    push.connect(f"fd://{number}")
    with pytest.raises(mq.AddressError, match="in use already"):
        ctx.socket("push").connect(f"fd://{number}")
    peer.shake("PULL")
    push.send(b"x")
    assert peer.parts() == [b"x"]


def test_a_listening_one_serves_foreign_peers(ctx):
    zmq = pytest.importorskip("zmq")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    at = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    number = listener.detach()
    rep = ctx.socket("rep")
    bound = rep.bind(f"fd://{number}")
    with zmq.Context() as context, context.socket(zmq.REQ) as req:
        req.linger, req.rcvtimeo = 0, 10_000
        req.connect(at)
        req.send(b"hello")
        asked = rep.recv_msg(timeout=10)
        assert asked.parts == (b"hello",) and asked.peer.address.startswith("tcp://127.0.0.1:")
        rep.send(b"world")
        assert req.recv() == b"world"
        bound.close()
        assert not is_open(number)
        until(lambda: not rep.peers())


def test_in_a_forked_child_it_is_let_go(ctx, ends):
    number, peer = ends
    push = ctx.socket("push")
    endpoint = push.connect(f"fd://{number}")
    peer.shake("PULL")
    endpoint.wait_ready(10)
    pid = os.fork()
    if pid == 0:
        os._exit(1 if is_open(number) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    push.send(b"x")
    assert peer.parts() == [b"x"]
