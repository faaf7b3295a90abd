"""A consumer at its high-water mark reads nothing, not even heartbeats. Its peers are not silent:
nobody is disconnected, and no message is lost."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
import zmq

import mqcore as mq

EVERY, LIMIT = 0.4, 1.6
TIMES = 2               # how often the limit passes
MARKS = {"heartbeat": EVERY, "heartbeat_timeout": LIMIT}
BODY = bytes(64_000)    # a few fill the kernel's buffers


KINDS = ["tcp", "ipc", "ws", "tls+tcp", "curve", "shm"]


def ends(kind, ctx, authority, tmp_path):
    """(a PULL that holds one message, a PUSH that is connected to it)"""
    theirs, ours = (authority.server, authority.ca) if kind == "tls+tcp" else ({}, {})
    marks = {name: {**MARKS, name: 1} for name in ("recv_hwm", "send_hwm")}
    if kind == "curve":
        keys = mq.security.curve_keypair()
        marks["recv_hwm"]["security"] = mq.security.Curve(
            secret_key=keys.secret, allow=mq.security.ANY)
        marks["send_hwm"]["security"] = mq.security.Curve(keys.public)
    url = {"ipc": f"ipc://{tmp_path}/i", "shm": f"shm://{tmp_path}/s",
           "curve": "tcp://127.0.0.1:0"}.get(kind, f"{kind}://127.0.0.1:0")
    pull, push = ctx.socket("pull", **marks["recv_hwm"]), ctx.socket("push", **marks["send_hwm"])
    push.connect(pull.bind(url, **theirs).url, wait=30, **ours)
    return pull, push


@pytest.fixture
def pairs(ctx, authority, tmp_path):
    """The ends of each kind: they all wait at the same time."""
    return {kind: ends(kind, ctx, authority, tmp_path) for kind in KINDS}


@contextlib.contextmanager
def nobody_is_disconnected(*socks):
    with contextlib.ExitStack() as stack:
        heard = [stack.enter_context(sock.events()) for sock in socks]
        yield
        told = [event for events in heard for event in events._queue]
        assert not [event for event in told if event.kind == "Disconnected"]


def fill(push):
    """How many messages fitted into the queues and the kernel."""
    for n in range(10_000):
        try:
            push.send(b"%d " % n + BODY, timeout=0.3)
        except mq.Timeout:
            return n
    raise AssertionError("nothing stops it")


def test_nobody_is_disconnected_while_the_queue_is_full(pairs):
    with nobody_is_disconnected(*sum(pairs.values(), ())):
        sent = {kind: fill(push) for kind, (_, push) in pairs.items()}
        time.sleep(TIMES * (EVERY + LIMIT))
        for kind, (pull, push) in pairs.items():
            assert [pull.recv(timeout=60).split(b" ")[0] for _ in range(sent[kind])] == \
                [b"%d" % n for n in range(sent[kind])], kind
            push.send(b"still here", timeout=60)
            assert pull.recv(timeout=60) == b"still here", kind


def test_nobody_is_disconnected_while_one_reads_slowly(pairs):
    """It hears the peer all the time; the peer hears nothing but what the other says by itself."""
    with nobody_is_disconnected(*sum(pairs.values(), ())):
        sent = {kind: fill(push) for kind, (_, push) in pairs.items()}
        for _ in range(6 * TIMES):
            time.sleep((EVERY + LIMIT) / 6)
            for kind, (pull, _) in pairs.items():
                if sent[kind] > 1:
                    pull.recv(timeout=60)
                    sent[kind] -= 1


def test_a_slow_consumer_without_heartbeats(ctx):
    """libzmq's default: it sends no PING, and reads ours behind all messages."""
    with zmq.Context() as theirs, theirs.socket(zmq.PULL) as pull:
        pull.rcvhwm = 1
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        push = ctx.socket("push", send_hwm=1, **MARKS)
        push.connect(f"tcp://127.0.0.1:{port}", wait=30)
        with nobody_is_disconnected(push):
            sent = fill(push)
            time.sleep(TIMES * (EVERY + LIMIT))
            pull.rcvtimeo = 60_000
            for n in range(sent):
                time.sleep(LIMIT / 2 / sent)
                assert pull.recv().startswith(b"%d " % n)


def test_a_peer_that_vanished_meanwhile_is_found_when_reading_goes_on(ctx):
    """Stopped, not killed: nothing tells the kernel that it has gone."""
    pull = ctx.socket("pull", recv_hwm=1, **MARKS)
    url = pull.bind("tcp://127.0.0.1:0").url
    with pull.events() as events, subprocess.Popen(
            [sys.executable, "-c",
             "import sys, mqcore\n"
             "push = mqcore.Push(connect=sys.argv[1], heartbeat=None)\n"
             "try:\n"
             "    while True: push.send(bytes(64_000), timeout=0.3)\n"
             "except mqcore.Timeout:\n"
             "    print('full', flush=True)\n"
             "push.send(b'', timeout=None)", url], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout.readline() == "full\n"
            os.kill(program.pid, signal.SIGSTOP)
            time.sleep(2 * (EVERY + LIMIT))
            assert not [event for event in events._queue if event.kind == "Disconnected"]
            with contextlib.suppress(mq.Timeout):
                while True:
                    pull.recv(timeout=0.1)
            reason = ""
            while "nothing was heard" not in reason:
                reason = events.get(60).reason
        finally:
            program.kill()


def test_a_slow_consumer_whose_own_heartbeats_are_rare(ctx):
    pull = ctx.socket("pull", recv_hwm=1, heartbeat=EVERY + LIMIT + 0.5)
    push = ctx.socket("push", send_hwm=1, **MARKS)
    push.connect(pull.bind("tcp://127.0.0.1:0").url, wait=30)
    with nobody_is_disconnected(push):
        fill(push)
        time.sleep(3 * (EVERY + LIMIT))


def test_a_limit_that_is_shorter_than_the_interval_ends_nobody(ctx):
    """The limit runs from a PING on."""
    pull = ctx.socket("pull", heartbeat=1.3, heartbeat_timeout=0.7)
    url = pull.bind("tcp://127.0.0.1:0").url
    for every in (EVERY, 15, None):
        ctx.socket("push", heartbeat=every).connect(url, wait=30)
    pull.wait_peers(3, 30)
    with nobody_is_disconnected(pull):
        time.sleep(4)


def test_one_who_only_receives_keeps_its_own_time_to_live(ctx, tmp_path):
    both = []
    for url in ("tcp://127.0.0.1:0", f"shm://{tmp_path}/s"):
        pull = ctx.socket("pull", heartbeat=0.3, heartbeat_ttl=1.5)
        push = ctx.socket("push", heartbeat=None)
        push.connect(pull.bind(url).url, wait=30)
        both.append((pull, push))
    with nobody_is_disconnected(*(push for _, push in both)):
        for _ in range(150):
            for pull, push in both:
                push.send(b"x", timeout=60)
                assert pull.recv(timeout=60) == b"x"
            time.sleep(0.02)
