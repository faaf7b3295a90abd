"""One bound socket, peers of both families at the same time: nobody is mixed up, nothing is lost.

MQ_LOAD_SECONDS=60 makes the load last a minute."""

import os
import shutil
import socket
import subprocess
import threading
import time

import pytest
import zmq
from waiting import until

import mqcore as mq

pynng = pytest.importorskip("pynng")

SECONDS = float(os.environ.get("MQ_LOAD_SECONDS", "2"))
LIMIT = 60


class Crowd:
    """Clients on threads; each asks until told to stop, and checks that the answer is its own."""

    def __init__(self):
        self.stop = threading.Event()
        self.asked = {}
        self.errors = []
        self.threads = []

    def add(self, name, ask):
        def body():
            n = 0
            try:
                while not self.stop.is_set():
                    question = f"{name} {n}".encode()
                    answer = ask(question)
                    assert answer == b"answer to " + question, (question, answer)
                    n += 1
            except Exception as error:
                self.errors.append((name, error))
            self.asked[name] = n

        thread = threading.Thread(target=body)
        self.threads.append(thread)
        thread.start()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors
        return sum(self.asked.values())


def zmq_client(zctx, url):
    s = zctx.socket(zmq.REQ)
    s.setsockopt(zmq.RCVTIMEO, LIMIT * 1000)
    s.connect(url)

    def ask(question):
        s.send(question)
        return s.recv()
    return s, ask


def nng_client(url):
    s = pynng.Req0(dial=url, recv_timeout=LIMIT * 1000)

    def ask(question):
        s.send(question)
        return s.recv()
    return s, ask


def mq_client(ctx, url, **options):
    s = ctx.socket("req", connect=url, **options)
    return s, lambda question: s.request(question, timeout=LIMIT)


@pytest.mark.timeout(300 + SECONDS)
def test_twenty_clients_of_four_kinds(ctx):
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    url = rep.endpoints[0].url
    seen = []

    def serve():
        for message in rep.messages():
            seen.append(message.body)
            message.reply(b"answer to " + message.body)

    server = threading.Thread(target=serve)
    server.start()
    zctx = zmq.Context()
    crowd = Crowd()
    ends = []
    for i in range(5):
        for kind, (s, ask) in (("zmq", zmq_client(zctx, url)), ("nng", nng_client(url)),
                               ("ours", mq_client(ctx, url)),
                               ("ours-sp", mq_client(ctx, url, wire="sp"))):
            ends.append(s)
            crowd.add(f"{kind}{i}", ask)
    rep.wait_peers(20, LIMIT)
    wires = sorted(peer.wire for peer in rep.peers())
    assert wires == ["sp"] * 10 + ["zmtp/3.1"] * 10
    time.sleep(SECONDS)
    total = crowd.end()
    assert len(crowd.asked) == 20 and all(crowd.asked.values())
    assert len(seen) == len(set(seen)) == total     # each was asked once, and answered once
    assert not any(rep.stats().dropped.values())
    for s in ends:
        s.close()
    zctx.term()
    rep.close()
    server.join()


def run_tool(name, *args):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.Popen([path, *args], stdout=subprocess.PIPE)


def finish(process):
    process.kill()
    process.communicate()


def test_command_line_tools_beside_the_libraries(ctx):
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0", recv_timeout=LIMIT)
    url = rep.endpoints[0].url
    zctx = zmq.Context()
    z, z_ask = zmq_client(zctx, url)
    tools = [run_tool(name, "--req", "--connect", url, "--data", name, "--raw")
             for name in ("nngcat", "nanocat")]
    try:
        z.send(b"pyzmq")
        asked = set()
        for _ in range(3):
            message = rep.recv_msg()
            asked.add(message.body)
            message.reply(message.body.upper())
        assert asked == {b"nngcat", b"nanocat", b"pyzmq"}
        assert z.recv() == b"PYZMQ"
        assert [tools[0].stdout.read(6), tools[1].stdout.read(7)] == [b"NNGCAT", b"NANOCAT"]
    finally:
        for process in tools:
            finish(process)
        z.close(0)
        zctx.term()


def test_a_publisher_and_a_subscriber_for_all(ctx):
    """PUB gives each family its own: ZMTP by subscription, SP everything. SUB hears both."""
    zctx = zmq.Context()
    pub = ctx.socket("pub", bind="tcp://127.0.0.1:0")
    sub = ctx.socket("sub", bind="tcp://127.0.0.1:0", topics=["a"], recv_timeout=LIMIT)
    z_sub, z_pub = zctx.socket(zmq.SUB), zctx.socket(zmq.PUB)
    z_sub.setsockopt(zmq.RCVTIMEO, LIMIT * 1000)
    z_sub.subscribe(b"a")
    z_sub.connect(pub.endpoints[0].url)
    z_pub.connect(sub.endpoints[0].url)
    n_sub = pynng.Sub0(dial=pub.endpoints[0].url, topics=[b"a"], recv_timeout=LIMIT * 1000)
    n_pub = pynng.Pub0(dial=sub.endpoints[0].url)
    pub.wait_subscribers("a", 2, LIMIT)
    sub.wait_peers(2, LIMIT)
    pub.send_parts([b"b", b"1"])
    pub.send_parts([b"a", b"2"])
    assert z_sub.recv_multipart() == [b"a", b"2"] and n_sub.recv() == b"a2"
    n_pub.send(b"b")
    n_pub.send(b"a from nng")
    assert sub.recv() == b"a from nng"
    until(lambda: heard(sub, z_pub))
    for s in (n_sub, n_pub):
        s.close()
    zctx.destroy(linger=0)


def heard(sub, z_pub):
    """A subscription takes its time to arrive, so the publisher repeats itself."""
    z_pub.send(b"a from zmq")
    try:
        return sub.recv(timeout=0.02) == b"a from zmq"
    except mq.RecvTimeout:
        return False


def test_a_pull_for_all_and_a_pair_for_either(ctx):
    zctx = zmq.Context()
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_timeout=LIMIT)
    z = zctx.socket(zmq.PUSH)
    z.connect(pull.endpoints[0].url)
    n = pynng.Push0(dial=pull.endpoints[0].url, send_timeout=LIMIT * 1000)
    for i in range(50):
        z.send_multipart([b"z", b"%d" % i])
        n.send(b"n%d" % i)
    got = [pull.recv() for _ in range(100)]
    for first in (b"z", b"n"):
        assert [m for m in got if m[:1] == first] == [first + b"%d" % i for i in range(50)]
    for make in (lambda url: pynng.Pair0(dial=url, recv_timeout=LIMIT * 1000), None):
        with ctx.socket("pair", bind="tcp://127.0.0.1:0", recv_timeout=LIMIT) as pair:
            if make:
                other = make(pair.endpoints[0].url)
            else:
                other = zctx.socket(zmq.PAIR)
                other.connect(pair.endpoints[0].url)
            other.send(b"hello")
            assert pair.recv() == b"hello"
            pair.send(b"you")
            assert other.recv() == b"you"
            other.close()
    n.close()
    zctx.destroy(linger=0)


def test_a_silent_peer_is_spoken_to_after_the_grace(ctx):
    """Who waits for the listener's first word hears it, ZMTP's; who speaks first never waits."""
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0", recv_timeout=LIMIT)
    host, port = "127.0.0.1", int(rep.endpoints[0].url.rpartition(":")[2])
    with socket.create_connection((host, port), LIMIT) as silent:
        assert silent.recv(10)[:1] == b"\xff"
    with socket.create_connection((host, port), LIMIT) as sp:
        sp.sendall(b"\0SP\0\0\x30\0\0")
        assert sp.recv(8) == b"\0SP\0\0\x31\0\0"
        sp.sendall((9).to_bytes(8, "big") + b"\x80\0\0\7hello")
        message = rep.recv_msg()
        assert (message.body, message.peer.wire) == (b"hello", "sp")
        message.reply(b"hi")
        assert sp.recv(64) == (6).to_bytes(8, "big") + b"\x80\0\0\7hi"
