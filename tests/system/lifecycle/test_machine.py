"""Ends in every order: open, bind, connect, send, recv, a peer's death, disconnect, close and term
interleaved at random over two sockets. Nothing hangs, nothing raises what it does not say, and the
counters are zero afterwards."""

import contextlib
import os
import socket
import struct
import threading
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import mqcore
import mqcore.testing

KINDS = [("push", "pull"), ("pair", "pair"), ("dealer", "router"), ("pub", "sub"), ("req", "rep")]
SAID = (mqcore.SocketClosed, mqcore.ContextClosed, mqcore.RecvTimeout, mqcore.SendTimeout,
        mqcore.StateError,
        mqcore.UsageError, mqcore.NoSuchPeer, mqcore.PeerGone, mqcore.NotSubscribed,
        mqcore.HandshakeFailed)     # of a push that connects to a push of its context, say
TRANSPORTS = ["tcp", "ipc", "shm", "inproc"]
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)


class Ends(RuleBasedStateMachine):
    @initialize(kind=st.sampled_from(KINDS), transport=st.sampled_from(TRANSPORTS))
    def start(self, kind, transport):
        self.kind, self.transport = kind, transport
        self.context = mqcore.Context(linger=0.02, reconnect=0.001, send_timeout=0, recv_timeout=0)
        self.socks = [None, None]
        self.urls = []
        self.threads = []
        self.numbers = iter(range(10**6))

    def url(self):
        if self.transport in ("ipc", "shm"):
            return f"{self.transport}://@turmoil-{os.getpid()}-{id(self)}-{next(self.numbers)}"
        return "tcp://127.0.0.1:*" if self.transport == "tcp" else f"inproc://n{next(self.numbers)}"

    which = st.integers(0, 1)

    @rule(i=which)
    def open(self, i):
        if self.socks[i] is None or self.socks[i].closed:
            with contextlib.suppress(mqcore.ContextClosed):
                self.socks[i] = self.context.socket(self.kind[i], send_hwm=3, recv_hwm=3)

    def act(self, i, fn):
        if self.socks[i] is not None:
            with contextlib.suppress(*SAID):
                return fn(self.socks[i])

    @rule(i=which)
    def bind(self, i):
        endpoint = self.act(i, lambda s: s.bind(self.url()))
        if endpoint is not None:
            self.urls.append(endpoint.url)

    @precondition(lambda self: self.urls)
    @rule(i=which, data=st.data())
    def connect(self, i, data):
        url = data.draw(st.sampled_from(self.urls))
        self.act(i, lambda s: s.connect(url))

    @rule(i=which, data=st.data())
    def end_an_endpoint(self, i, data):
        sock = self.socks[i]
        if sock is not None and not sock.closed and sock.endpoints:
            endpoint = data.draw(st.sampled_from(list(sock.endpoints)))
            verb = "unbind" if endpoint.kind == "bind" else "disconnect"
            self.act(i, lambda s: getattr(s, verb)(endpoint))

    @rule(i=which, size=st.sampled_from([0, 10, 300, 100_000]), count=st.integers(1, 5))
    def send(self, i, size, count):
        for _ in range(count):
            self.act(i, lambda s: s.send_parts([b"id", bytes(size)]))

    @rule(i=which, count=st.integers(1, 5))
    def recv(self, i, count):
        for _ in range(count):
            self.act(i, lambda s: s.recv_parts())

    @rule(i=which)
    def subscribe(self, i):
        if self.kind[i] == "sub":
            self.act(i, lambda s: s.subscribe(b""))

    @rule(i=which, seconds=st.sampled_from([0.001, 0.05]))
    def wait_in_a_thread(self, i, seconds):
        if self.socks[i] is not None:
            call = (i, lambda s: s.recv_parts(timeout=seconds))
            thread = threading.Thread(target=self.act, args=call)
            self.threads.append(thread)
            thread.start()

    @rule(i=which)
    def settle(self, i):
        self.act(i, lambda s: s.stats())
        time.sleep(0.002)

    @precondition(lambda self: self.urls)
    @rule(data=st.data(), cut=st.integers(0, 64), reset=st.booleans())
    def a_peer_dies(self, data, cut, reset):
        url = data.draw(st.sampled_from(self.urls))
        if not url.startswith("tcp:"):
            return
        with socket.socket() as s:
            s.settimeout(1)
            with contextlib.suppress(OSError):
                s.connect(("127.0.0.1", int(url.rpartition(":")[2])))
                s.sendall(GREETING[:cut])
                if reset:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    @rule(i=which, linger=st.sampled_from([0, 0.01, 0.03]))
    def close(self, i, linger):
        sock = self.socks[i]
        if sock is not None:
            started = time.monotonic()
            sock.close(linger)
            assert time.monotonic() - started < linger + 60
            assert sock.closed

    @rule(i=which)
    def close_in_a_thread(self, i):
        if self.socks[i] is not None:
            thread = threading.Thread(target=self.socks[i].close)
            self.threads.append(thread)
            thread.start()

    @rule()
    def term(self):
        self.context.close(0)

    def teardown(self):
        if not hasattr(self, "context"):
            return
        self.context.close(0)
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()
        self.socks = [None, None]
        end = time.monotonic() + 2
        while any(mqcore.testing.leaks().values()) and time.monotonic() < end:
            time.sleep(0.001)
        assert not any(mqcore.testing.leaks().values()), mqcore.testing.leaks()


TestEnds = Ends.TestCase
TestEnds.settings = settings(max_examples=int(os.environ.get("MQCORE_EXAMPLES", "60")),
                             stateful_step_count=30,
                             deadline=None)


@pytest.mark.parametrize("kind", ["tcp", "inproc"])
def test_a_refused_pair_ends_cleanly(kind):
    """The second peer of a PAIR: its link ends while it is being made."""
    with mqcore.Context(linger=0, reconnect=None) as context:
        first = context.socket("pair")
        at = str(first.bind("tcp://127.0.0.1:*" if kind == "tcp" else "inproc://pair"))
        context.socket("pair", connect=at).close(0)
        friend = context.socket("pair", connect=at)
        for _ in range(30):
            other = context.socket("pair")
            other.bind("tcp://127.0.0.1:*" if kind == "tcp" else "inproc://other")
            first.connect(str(other.endpoints[0]))
            other.close(0)
        friend.close()


def test_close_under_load_counts_everything(seed):
    """written + undelivered is what was sent, wherever close() hits."""
    with mqcore.Context() as context:
        for linger in (0, 0.01, 5):
            pull = context.socket("pull")
            push = context.socket("push", connect=str(pull.bind("tcp://127.0.0.1:*")))
            got = []

            def drink(pull=pull, got=got):
                with contextlib.suppress(mqcore.RecvTimeout, mqcore.SocketClosed):
                    while True:
                        got.append(pull.recv(timeout=1))

            thread = threading.Thread(target=drink)
            thread.start()
            push.wait_peers(1, timeout=10)
            for i in range(5000):
                push.send(b"%d" % i)
            report = push.close(linger)
            assert report.written + report.undelivered == 5000, report
            thread.join(20)
            assert got == [b"%d" % i for i in range(len(got))] and len(got) <= report.written
            if linger == 5:
                assert report.undelivered == 0 and len(got) == 5000
            pull.close(0)
