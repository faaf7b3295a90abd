"""Heartbeats: a side that did not read, or whose PING is still on its way, ends no connection."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import zmq
from rawzmtp import RawPeer
from waiting import until

STOPPED = """
import sys
import mqcore as mq

with mq.Pull(heartbeat=0.1, heartbeat_timeout=0.3) as pull, pull.events() as events:
    print(pull.bind("tcp://127.0.0.1:0").url, flush=True)
    got = 0
    while pull.recv(timeout=60) != b"end":
        got += 1
        print(got, flush=True)
    ends = [event.reason for event in events._queue if event.kind == "Disconnected"]
    print(got, ends, flush=True)
"""


def stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def test_a_process_that_was_stopped_reads_before_it_judges(zmq_context):
    """The peer announces a time to live, which passes while our process is stopped. All that it has
    sent meanwhile lies in the kernel."""
    child = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    with child, zmq_context.socket(zmq.PUSH) as push:
        push.linger, push.heartbeat_ivl, push.heartbeat_ttl = 0, 100, 400
        push.heartbeat_timeout = 60_000
        push.connect(child.stdout.readline().strip())
        for n in range(1, 5):
            push.send(b"%d" % n)
            assert child.stdout.readline() == f"{n}\n"
            os.kill(child.pid, signal.SIGSTOP)
            until(lambda: stopped(child.pid))
            time.sleep(0.7)               # it is this time that must not count
            os.kill(child.pid, signal.SIGCONT)
        push.send(b"end")
        assert child.stdout.read() == "4 []\n"


@pytest.fixture
def zmq_context():
    with zmq.Context() as context:
        yield context


def test_a_ping_behind_much_that_is_on_its_way_waits_as_long_as_bytes_move(ctx):
    """All of the message is in the kernel at once, and the peer takes a little at a time."""
    size, step = 1 << 20, 1 << 15
    push = ctx.socket("push", heartbeat=0.2, heartbeat_timeout=0.8)
    url = push.bind("tcp://127.0.0.1:0").url
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, step)
    slow.connect(("127.0.0.1", int(url.rpartition(":")[2])))
    with push.events() as events, RawPeer(slow) as peer:
        peer.shake("PULL")
        push.wait_peers(1, 10)
        push.send(bytes(size), timeout=10)
        left = size
        while left > 0:
            got = slow.recv(step)
            assert got, "the connection has ended"
            left -= len(got)
            time.sleep(0.1 * len(got) / step)
        assert not [event for event in events._queue if event.kind == "Disconnected"]
        hear = threading.Thread(target=lambda: slow.recv(1 << 16))
        hear.start()
        until(lambda: [event for event in events._queue if event.kind == "Disconnected"])
        hear.join()                       # it takes bytes no more, nor says anything


def test_a_process_that_hangs_is_found_though_its_kernel_takes_bytes(ctx):
    push = ctx.socket("push", heartbeat=0.1, heartbeat_timeout=0.3)
    with push.events() as events, RawPeer.connect(push.bind("tcp://127.0.0.1:0").url) as peer:
        peer.shake("PULL")
        push.wait_peers(1, 10)

        def judged():
            if push.peers():
                push.send(bytes(1000), timeout=10)
            return [event for event in events._queue if event.kind == "Disconnected"]
        assert "nothing was heard" in until(judged, pause=0.05)[0].reason
