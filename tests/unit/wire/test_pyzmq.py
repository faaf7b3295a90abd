"""The codec against pyzmq's library over loopback TCP: handshake and traffic both ways."""

import select
import socket

import pytest
from mqcore.testing.native.probe import SUBSCRIBE

zmq = pytest.importorskip("zmq")


class Line:
    """A probe on a real connection, driven step by step; every wait is bounded by the timeout."""

    def __init__(self, probe, port):
        self.probe = probe
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.sock.sendall(probe.start())
        status, rest = "need_data", b""
        while status == "need_data":
            data = self.sock.recv(4096)
            assert data, "the peer closed"
            status, used, answer = probe.feed(data)
            self.sock.sendall(answer)
            rest = data[used:]
        assert status == "done", probe.reason
        self.parts = probe.decode(rest)[1]

    def send(self, *parts, flags=0):
        self.probe.put(*parts, flags=flags)
        self.sock.sendall(self.probe.wire())

    def receive(self, count):
        while len(self.parts) < count:
            data = self.sock.recv(65536)
            assert data, "the peer closed"
            data = data[self.probe.fill(data):]
            status, parts = self.probe.decode(data)
            assert status == "need_data"
            self.parts += parts
            self.sock.sendall(self.probe.control)
        taken, self.parts = self.parts[:count], self.parts[count:]
        return taken


@pytest.fixture
def against(probe):
    """A bound zmq socket of one type, and a line to it of another."""
    context, lines, peers = zmq.Context(), [], []

    def make(theirs, ours, **options):
        peer = context.socket(theirs)
        peers.append(peer)
        peer.linger = 0
        peer.rcvtimeo = peer.sndtimeo = 10_000
        for name, value in options.items():
            setattr(peer, name, value)
        line = Line(probe(ours), peer.bind_to_random_port("tcp://127.0.0.1"))
        lines.append(line)
        return peer, line

    yield make
    for line in lines:
        line.sock.close()
    for peer in peers:
        peer.close(linger=0)
    context.term()


BODIES = [b"", b"x", b"y" * 56, b"z" * 57, b"a" * 255, b"b" * 256, b"c" * 20000, b"d" * 300_000]


def test_push_and_pull(against):
    peer, line = against(zmq.PULL, "PUSH")
    line.send(*BODIES)
    assert peer.recv_multipart() == BODIES
    peer, line = against(zmq.PUSH, "PULL")
    assert line.probe.peer["version"] == (3, 1) and line.probe.peer["pattern"] == "PUSH"
    peer.send_multipart(BODIES)
    assert line.receive(len(BODIES)) == [(1, body) for body in BODIES[:-1]] + [(0, BODIES[-1])]


def test_router_and_dealer(against):
    peer, line = against(zmq.ROUTER, "DEALER")
    line.send(b"hello")
    name, text = peer.recv_multipart()
    peer.send_multipart([name, text + b"!"])
    assert line.receive(1) == [(0, b"hello!")]


def test_pub_and_sub(against):
    peer, line = against(zmq.XPUB, "SUB")
    line.send(b"topic", flags=SUBSCRIBE)
    assert peer.recv() == b"\1topic"
    peer.send(b"other")
    peer.send(b"topic!")
    assert line.receive(1) == [(0, b"topic!")]
    peer, line = against(zmq.SUB, "PUB", subscribe=b"abc")
    for _ in range(1000):                      # it subscribes when its thread looks at it
        peer.poll(1)
        if line.parts or select.select([line.sock], [], [], 0.01)[0]:
            break
    assert line.receive(1) == [(SUBSCRIBE, b"abc")]
    line.send(b"abcdef")
    assert peer.recv() == b"abcdef"


def test_heartbeats(against):
    """The peer would drop us if its PINGs went unanswered; it answers ours."""
    peer, line = against(zmq.DEALER, "DEALER", heartbeat_ivl=20, heartbeat_timeout=2000)
    line.sock.sendall(line.probe.ping(5000))
    while line.probe.heartbeats[0] < 3 or line.probe.heartbeats[1] < 1:
        data = line.sock.recv(4096)
        assert data and line.probe.decode(data) == ("need_data", [])
        line.sock.sendall(line.probe.control)
    line.send(b"alive")
    assert peer.recv() == b"alive"
