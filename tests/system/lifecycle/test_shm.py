"""shm in the life of sockets: peers that are killed, stopped, forked, closed, or gone mad."""

import contextlib
import os
import random
import signal
import socket
import time
from pathlib import Path

import pytest
from programs import Program
from waiting import until

import mqcore as mq

LIMIT = 20
FAST = {"reconnect": 0.01, "reconnect_max": 0.05}

SOURCE = """
import itertools, random, sys
import mqcore as mq
url, seed = sys.argv[1], int(sys.argv[2])
dice = random.Random(seed)
with mq.Push(connect=url, reconnect=0.01, reconnect_max=0.05) as s:
    s.wait_peers(1, 20)
    print("here", flush=True)
    for i in itertools.count():
        size = dice.choice([8, 8, 60, 300, 5000, 70_000, 3_000_000])
        s.send(i.to_bytes(8, "big") + bytes(size - 8))
"""

SINK = """
import sys
import mqcore as mq
with mq.Pull(bind=sys.argv[1]) as s:
    print("here", flush=True)
    while True:
        s.recv(timeout=20)
"""

MAD = """
import ctypes, os, random, sys, time
import mqcore as mq
url, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
dice = random.Random(seed)
end = time.monotonic() + seconds
with mq.Dealer(connect=url, reconnect=0.001, reconnect_max=0.002, linger=0) as s:
    print("here", flush=True)
    links = 0
    while time.monotonic() < end or links < 3:      # a busy machine may need longer for them
        with open("/proc/self/maps") as maps:
            place = [line.split()[0] for line in maps if "mqcore-shm" in line]
        if not place:
            time.sleep(0.001)
            continue
        first, last = (int(x, 16) for x in place[0].split("-"))
        # a copy of the memory's address can be gone at any moment: write through the process's file
        memory = os.open("/proc/self/mem", os.O_RDWR)
        links += 1
        for _ in range(dice.randrange(1, 400)):
            at = first + (1024 + 8 * dice.randrange(128) if dice.random() < 0.5
                          else 4096 + 8 * dice.randrange((last - first - 4096) // 8))
            word = dice.choice([dice.getrandbits(64), dice.randrange(0, 1 << 18, 8),
                                dice.randrange(9000) << 8 | dice.randrange(8)])
            try:
                os.pwrite(memory, word.to_bytes(8, "little"), at)
            except OSError:
                break
            if dice.random() < 0.2:
                try:
                    s.send(bytes(dice.choice([5, 500, 50_000])), timeout=0)
                except mq.SendTimeout:
                    pass
        os.close(memory)
        time.sleep(dice.random() / 500)
    print(links, flush=True)
    os._exit(0)
"""


def mappings():
    with open("/proc/self/maps") as maps:
        return sum("mqcore-shm" in line for line in maps)


def eventfds():
    return sum(name == "anon_inode:[eventfd]" for name in descriptors().values())


@pytest.fixture
def others():
    """Eventfds that are not ours: other libraries that were imported have some."""
    return eventfds()


@pytest.fixture
def ctx():
    with mq.Context() as context:
        yield context
    until(lambda: mappings() == 0)


def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


@pytest.fixture
def url(tmp_path):
    return f"shm://{tmp_path}/s"


@pytest.fixture
def start():
    """start(text, *args): a program of ours, which says "here" and is killed in the end."""
    running = []

    def start(text, *args):
        program = Program("-c", text, *args)
        running.append(program)
        assert program.line() == "here"
        return program

    yield start
    for program in running:
        program.process.kill()
        program.kill()


def kill(program):
    program.process.kill()
    program.process.wait()


@contextlib.contextmanager
def stopped(program):
    program.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, program.process.pid, os.WSTOPPED)   # until then it goes on reading
    try:
        yield
    finally:
        program.process.send_signal(signal.SIGCONT)


def laws(s):
    stats = s.stats()
    for p in stats.peers.values():
        assert p.offered == p.written + p.queued_out + sum(p.dropped_out.values()), p
        assert p.read == p.delivered + p.queued_in + sum(p.dropped_in.values()), p
    return stats


def test_senders_that_are_killed_under_load(ctx, url, start, seed):
    """What came of each is in order and whole; the next one is served as if nothing had been."""
    dice = random.Random(seed)
    with ctx.socket("pull", bind=url) as s:
        for i in range(6):
            program = start(SOURCE, url, seed + i)
            wanted = iter(range(1 << 60))
            for _ in range(dice.randrange(1, 400)):
                assert int.from_bytes(s.recv(timeout=LIMIT)[:8], "big") == next(wanted)
            kill(program)
            with contextlib.suppress(mq.RecvTimeout):
                while True:  # what it had written
                    assert int.from_bytes(s.recv(timeout=0.2)[:8], "big") == next(wanted)
            until(lambda: not s.peers() and mappings() == 0)
            laws(s)


def test_receivers_that_are_killed_under_load(ctx, url, start, seed):
    """The sender goes on with the next one, over the file that the dead one left."""
    dice = random.Random(seed)
    with ctx.socket("push", connect=url, linger=0, **FAST) as s:
        for _ in range(6):
            program = start(SINK, url)
            s.wait_peers(1, LIMIT)
            for _ in range(dice.randrange(50, 400)):
                s.send(bytes(dice.choice([8, 60, 300, 5000, 70_000, 3_000_000])), timeout=LIMIT)
            kill(program)
            until(lambda: not s.peers())
            stats = laws(s)
            offered = sum(p.offered for p in stats.peers.values())
            assert stats.sent == offered + stats.waiting + sum(stats.dropped.values())
        assert mappings() == 0


@pytest.mark.parametrize("size, count", [(20, 50_000), (5000, 5000), (300_000, 100)])
def test_close_under_load_delivers_what_was_sent(ctx, url, size, count):
    with ctx.socket("pull", bind=url) as s:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with mq.Context() as context:
                    far = context.socket("push", connect=url)
                    for i in range(count):
                        far.send(i.to_bytes(8, "big") + bytes(size - 8))
                    report = far.close(linger=LIMIT)
                    status = 0 if report.undelivered == 0 else 2
            finally:
                os._exit(status)
        for i in range(count):
            assert int.from_bytes(s.recv(timeout=LIMIT)[:8], "big") == i
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(mq.RecvTimeout):
            s.recv(timeout=0.05)


def test_a_peer_that_stops_reading(ctx, url, start):
    with ctx.socket("push", connect=url, send_hwm=100, **FAST) as s:
        program = start(SINK, url)
        s.wait_peers(1, LIMIT)
        with stopped(program):
            with pytest.raises(mq.SendTimeout):
                while True:
                    s.send(bytes(10_000), timeout=0.2)
            stats = laws(s)
            [peer] = stats.peers.values()
            assert peer.queued_out and peer.written * 10_008 <= 2 << 20
        s.send(b"it goes on", timeout=LIMIT)
        until(lambda: not next(iter(s.stats().peers.values())).queued_out)


def test_a_peer_that_is_silent_is_given_up(ctx, url, start):
    with ctx.socket("push", connect=url, heartbeat=0.1, heartbeat_timeout=0.2, **FAST) as s:
        program = start(SINK, url)
        s.wait_peers(1, LIMIT)
        with stopped(program):
            until(lambda: not s.peers())
        s.wait_peers(1, LIMIT)


def test_fork_leaves_the_parent_alone(others, ctx, url):
    with ctx.socket("pull", bind=url) as s, ctx.socket("push", connect=url) as far:
        far.wait_peers(1, LIMIT)
        far.send(b"before")
        bells = eventfds()
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                try:
                    far.send(b"from the child")
                except mq.Forked:
                    status = 3 if mappings() or eventfds() > others or bells < others + 4 else 0
                far.close()
                s.close()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        far.send(bytes(3_000_000))
        assert s.recv(timeout=LIMIT) == b"before"
        assert len(s.recv(timeout=LIMIT)) == 3_000_000


@pytest.mark.parametrize("seconds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_peer_that_scribbles_harms_nobody_else(ctx, url, start, seed, seconds):
    """Random words into both rings, their control words and bodies, link after link."""
    with ctx.socket("router", bind=url, max_message_size=1 << 24) as s:
        mad = start(MAD, url, seed, seconds)
        with ctx.socket("dealer", connect=url) as good:
            end = time.monotonic() + seconds
            count = 0
            while time.monotonic() < end or count < 100:
                good.send(b"%d" % count)
                while True:
                    parts = s.recv_parts(timeout=LIMIT)
                    if parts[-1] == b"%d" % count:
                        break
                s.send_parts([parts[0], b"yes"])
                assert good.recv(timeout=LIMIT) == b"yes"
                count += 1
            laws(s)
        assert int(mad.line()) >= 3, "the links went on"


def test_an_ipc_peer_is_told_apart(ctx, url):
    """By its first bytes, in both directions."""
    plain = "ipc" + url.removeprefix("shm")
    with ctx.socket("pull", bind=url), ctx.socket("push", connect=plain, **FAST) as s:
        until(lambda: s.endpoints[0].error)
    with ctx.socket("pull", bind=plain), ctx.socket("push", connect=url, **FAST) as s:
        until(lambda: "is it shm?" in str(s.endpoints[0].error)
              or "does not speak shm" in str(s.endpoints[0].error))


def test_patterns_are_checked(ctx, url):
    with ctx.socket("pull", bind=url), ctx.socket("sub", connect=url, topics=[b""], **FAST) as s:
        until(lambda: "does not fit SUB" in str(s.endpoints[0].error))


def test_topics_go_through_the_ring(ctx, url):
    with (ctx.socket("pub", bind=url) as s,
          ctx.socket("sub", connect=url, topics=[b"a"], **FAST) as far):
        far.wait_peers(1, LIMIT)

        def came():
            s.send(b"no")
            s.send(b"a yes")
            with contextlib.suppress(mq.RecvTimeout):
                return far.recv(timeout=0.05)
        assert until(came) == b"a yes"


def test_too_large_a_message_ends_the_link(ctx, url):
    with (ctx.socket("pull", bind=url, max_message_size=1000) as s,
          ctx.socket("push", connect=url, **FAST) as far):
        far.wait_peers(1, LIMIT)
        far.send(bytes(1000))
        far.send(bytes(1001))
        assert len(s.recv(timeout=LIMIT)) == 1000
        until(lambda: far.stats().reconnects)


def test_a_killed_listeners_file_is_taken_over(ctx, url, start):
    kill(start(SINK, url))
    assert Path(url.removeprefix("shm://")).exists()
    with ctx.socket("pull", bind=url) as s, ctx.socket("push", connect=url) as far:
        far.send(b"x")
        assert s.recv(timeout=LIMIT) == b"x"


def test_a_connection_that_says_nothing_ends(ctx, url):
    with ctx.socket("pull", bind=url, handshake_timeout=0.1):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(LIMIT)
            raw.connect(url.removeprefix("shm://"))
            assert raw.recv(100) == b""
