"""The thread that runs filters written in Python has one state of the interpreter for its life."""

import ctypes
import subprocess
import sys
import threading
import time

import pytest

import mqcore as mq
from mqcore.spi.filter import FilterSession, StreamFilter
from mqcore.testing import installed

LIMIT = 30.0
api = ctypes.pythonapi
for function in (api.PyInterpreterState_Get, api.PyInterpreterState_ThreadHead,
                 api.PyThreadState_Next):
    function.restype = ctypes.c_void_p
api.PyInterpreterState_ThreadHead.argtypes = api.PyThreadState_Next.argtypes = [ctypes.c_void_p]


def states():
    """How many threads the interpreter knows."""
    found, state = 0, api.PyInterpreterState_ThreadHead(api.PyInterpreterState_Get())
    while state:
        found, state = found + 1, api.PyThreadState_Next(state)
    return found


class Counting(FilterSession):
    here = threading.local()

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def send(self, data):
        self.here.calls = getattr(self.here, "calls", 0) + 1
        self.calls.append((threading.get_native_id(), self.here.calls))
        super().send(data)


class Counts(StreamFilter):
    name = "counts"
    doc = "counts the calls of each thread"

    def __init__(self):
        self.calls = []

    def open(self, own, role, options):
        return Counting(self.calls)


def exchange(ctx, n):
    """n messages, each in a call of its own"""
    with ctx.socket("push") as push, ctx.socket("pull") as pull:
        push.connect(pull.bind("counts+tcp://127.0.0.1:0").url, wait=LIMIT)
        for i in range(n):
            push.send(b"%d" % i)
            assert pull.recv(timeout=LIMIT) == b"%d" % i


def test_what_is_local_to_the_thread_stays():
    counts = Counts()
    with installed("filter", counts):
        with mq.Context() as ctx:
            exchange(ctx, 50)
        [thread] = {thread for thread, _ in counts.calls[-50:]}
        numbers = [number for one, number in counts.calls if one == thread]
    assert numbers == list(range(1, len(numbers) + 1))


def test_it_goes_with_the_thread():
    with installed("filter", Counts()):
        before = states()
        for _ in range(5):
            with mq.Context() as ctx:
                exchange(ctx, 3)
                assert states() > before
        end = time.monotonic() + LIMIT
        while states() > before:
            assert time.monotonic() < end
            time.sleep(0.01)


OPEN = """
import os, sys, threading, time
import mqcore as mq
from mqcore.spi.filter import FilterSession, StreamFilter
from mqcore.testing import installed

class Passes(StreamFilter):
    name = "passes"
    doc = "nothing in the way"
    def open(self, own, role, options):
        return FilterSession()

held = installed("filter", Passes())
held.__enter__()
ctx = mq.Context()
push, pull = ctx.socket("push"), ctx.socket("pull")
push.connect(pull.bind("passes+tcp://127.0.0.1:0").url, wait=30)

def busy():
    while True:
        push.send(bytes(100_000))
        pull.recv()

if {daemon}:
    threading.Thread(target=busy, daemon=True).start()
    time.sleep(0.05)
push.send(b"last")
if {fork} and not os.fork():
    child = mq.Context()
    a, b = child.socket("push"), child.socket("pull")
    a.connect(b.bind("passes+tcp://127.0.0.1:0").url, wait=30)
    a.send(b"child")
    print(bytes(b.recv(timeout=30)).decode(), flush=True)
    child.close()
    os._exit(0)
if {fork}:
    assert os.wait()[1] == 0
print("end")
"""


@pytest.mark.parametrize(("daemon", "fork", "said"), [
    (0, 0, "end\n"), (1, 0, "end\n"), (0, 1, "child\nend\n"), (1, 1, "child\nend\n")])
def test_a_program_that_ends_with_its_sockets_open(daemon, fork, said):
    # from 3.12 on, Python warns of forks beside threads
    done = subprocess.run([sys.executable, "-Wignore", "-c", OPEN.format(daemon=daemon, fork=fork)],
                          capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
