"""Programs written for pyzmq, run as they are: by `python -m mqcore.zmq`, by install(), and where
pyzmq cannot be imported."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mqcore.zmq.run import SHIM

PROGRAMS = Path(__file__).parent / "programs"
EXPECTED = {
    "broker": "['HELLO OK to client-0', 'HELLO OK to client-1', 'HELLO OK to client-2']\n",
    "envelope": "b'\\x01B'\n[B] wanted 0\n[B] wanted 1\n[B] wanted 2\n"
                "True Resource temporarily unavailable\nb'12345678' ThreadDevice\n",
    "ironhouse": "Hello 2 OK\n0\n",
    "ventilator": "328350\nTrue 0\nTrue 0\n",
    "pirate": "server replied 1\nserver replied 2\nno response from server\nserver replied 3\n"
              "server replied 4\nserver replied 5\nserver replied 6\n",
}
REAL = pytest.param("real", marks=pytest.mark.skipif(find_spec("zmq") is None, reason="no pyzmq"))


def python(*args, expect=0):
    """What it prints."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run([sys.executable, *map(str, args)], capture_output=True, text=True,
                            timeout=200, env=env)
    assert answer.returncode == expect, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr and "Exception" not in answer.stderr, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("how", ["ours", REAL])
@pytest.mark.parametrize("name", EXPECTED)
def test_programs(name, how):
    program = PROGRAMS / f"{name}.py"
    assert python(*(["-m", "mqcore.zmq"] if how == "ours" else []), program) == EXPECTED[name]


def test_a_module(tmp_path):
    (tmp_path / "told.py").write_text(
        "import sys, zmq, zmq.asyncio, zmq.utils.monitor, zmq.sugar.socket as s\n"
        "from zmq.backend.cython import Socket\n")
    (tmp_path / "here.py").write_text(
        "import sys, zmq.asyncio\nfrom zmq.sugar.socket import Socket\n"
        "same = zmq.asyncio.Socket.__mro__[1] is Socket is zmq.Socket\n"
        "print(zmq.__name__, same, sys.argv[1:])\n")
    env = {**os.environ, "PYTHONPATH": ""}
    run = subprocess.run([sys.executable, "-m", "mqcore.zmq", "-m", "here", "a", "b"],
                         cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert run.stdout == "mqcore.zmq True ['a', 'b']\n", run.stderr
    of_ours = subprocess.run([sys.executable, "-W", "error", "-m", "zmq.utils.z85"], text=True,
                             env={**env, "PYTHONPATH": SHIM}, capture_output=True, timeout=200)
    assert of_ours.returncode == 0, of_ours.stderr
    missing = subprocess.run([sys.executable, "-m", "mqcore.zmq", "-m", "told"], cwd=tmp_path,
                             env=env, capture_output=True, text=True, timeout=200)
    assert "ImportError: zmq.backend.cython is missing in mqcore.zmq: " in missing.stderr


def test_children_of_multiprocessing():
    python("-c", """
import mqcore.zmq
mqcore.zmq.install()
import multiprocessing, zmq

assert zmq is mqcore.zmq
context = multiprocessing.get_context("spawn")
with context.Pool(1) as pool:
    assert pool.apply(eval, ("__import__('zmq').Context.__module__",)) == "mqcore.zmq.context"
""")


@pytest.mark.parametrize("how", ["ours", REAL])
def test_threads_that_are_left(how, tmp_path):
    """Daemon threads end inside their calls, without a word, when the program does."""
    program = tmp_path / "left.py"
    program.write_text("""
import threading, zmq, zmq.asyncio, asyncio

def receive():
    begun.release()
    sockets[0].recv()

def poll():
    poller = zmq.Poller()
    poller.register(sockets[1])
    begun.release()
    while True:
        poller.poll(1)

async def wait():
    socket = zmq.asyncio.Socket.shadow(sockets[2].underlying)
    begun.release()
    await socket.recv()

context = zmq.Context()
sockets = [context.socket(zmq.PULL) for _ in range(3)]
begun = threading.Semaphore(0)
for socket in sockets:
    socket.bind("tcp://127.0.0.1:*")
for target in (receive, poll, lambda: asyncio.run(wait())):
    threading.Thread(target=target, daemon=True).start()
for _ in sockets:
    begun.acquire()
print("end")
""")
    assert python(*(["-m", "mqcore.zmq"] if how == "ours" else []), program) == "end\n"


def test_pyzmq_is_not_needed():
    """Every module, where an import of pyzmq fails."""
    out = python("-c", """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "zmq":
            raise ImportError("pyzmq is not there")

sys.meta_path.insert(0, Refuse())
import mqcore.zmq
from mqcore.zmq.differences import MODULES

count = 0
for info in pkgutil.walk_packages(mqcore.zmq.__path__, "mqcore.zmq.", onerror=lambda name: None):
    parts = info.name.split(".")
    if parts[2] in MODULES or parts[2] in ("alias", "__main__"):
        continue
    if parts[2] == "green" and not importlib.util.find_spec("gevent"):
        continue
    importlib.import_module(info.name)
    count += 1
with mqcore.zmq.Context() as context, context.socket(mqcore.zmq.PUB) as socket:
    socket.send(b"x")
assert "zmq" not in sys.modules
print(count)
""")
    assert int(out) > 30


@pytest.mark.skipif(find_spec("zmq") is None, reason="no pyzmq")
def test_not_after_pyzmq():
    python("-c", """
import mqcore.zmq, zmq
try:
    mqcore.zmq.install()
except RuntimeError as error:
    assert "imported already" in str(error)
else:
    raise SystemExit(1)
""")


def test_check(tmp_path):
    program = tmp_path / "old.py"
    program.write_text(
        "import zmq, zmq.backend\nfrom zmq.backend.cython import Socket\n"
        "from zmq import curve_keypair as keys\nc = zmq.Context()\ns = c.socket(zmq.STREAM)\n"
        "s.gssapi_server = True\ns.setsockopt(zmq.AFFINITY, 1)\ns.linger = 0\nprint(zmq.PUB)\n"
        "s.send(b'', zmq.NOBLOCK)\nzmq.NO_SUCH_THING\n")
    told = python("-m", "mqcore.zmq", "--check", program, expect=1).splitlines()
    found = [line.removeprefix(f"{program}:").split(":")[:2] for line in told]
    assert found == [["2", " zmq.backend.cython.Socket"],
                     ["6", " zmq.GSSAPI_SERVER"],
                     ["7", " zmq.AFFINITY"], ["11", " zmq.NO_SUCH_THING"]]
    for name in EXPECTED:
        assert python("-m", "mqcore.zmq", "--check", PROGRAMS / f"{name}.py") == "nothing differs\n"


def test_how_it_is_used():
    assert "usage:" in python("-m", "mqcore.zmq", expect=2)
    assert "--check" in python("-m", "mqcore.zmq", "--help")
