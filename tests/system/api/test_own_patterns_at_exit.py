"""Patterns of plug-ins at the end of the interpreter, in a second one, and in a forked child."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
import mqcore as mq
from mqcore.spi import registry
from mqcore.spi.python.pattern import Pattern

class Own(Pattern):
    abi, name, zmtp, peers = 1, "own", "OWN", ("own",)
    sends = receives = waits = True
    def route(self, parts): return self.live[0] if self.live else None
    def accept(self, peer, parts): return True

lent = registry.lend("pattern", Own, "the test")
lent.__enter__()
"""
PROGRAMS = {
    "delivers what it sent": """
a, b = mq.socket("own", bind="tcp://127.0.0.1:0"), mq.socket("own")
b.connect(a.endpoints[0])
for i in range(1000): b.send(b"%d" % i)
print("end")
""",
    "ends with calls under way": """
a, b = mq.socket("own", bind="tcp://127.0.0.1:0"), mq.socket("own")
b.connect(a.endpoints[0])
# a daemon thread that prints its traceback while the interpreter ends makes CPython abort
def closed(call):
    try: call()
    except mq.SocketClosed: return True
def pump():
    while not closed(lambda: b.send(b"x")): pass
def take():
    while not closed(a.recv): pass
for what in (pump, take, take): threading.Thread(target=what, daemon=True).start()
a.wait_peers(1, 10)
print("end")
""",
    "a child makes its own": """
a = mq.socket("own", bind="inproc://a")
pid = os.fork()
if pid == 0:
    try: a.send(b"x")
    except mq.Forked: pass
    else: os._exit(2)
    with mq.Context() as ctx:
        c, d = ctx.socket("own", bind="inproc://c"), ctx.socket("own", connect="inproc://c")
        d.send(b"x", timeout=10)
        os._exit(0 if c.recv(timeout=10) == b"x" else 3)
assert os.waitpid(pid, 0)[1] == 0
a.close()
print("end")
""",
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_ends(case):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM + PROGRAMS[case]],
                          capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
