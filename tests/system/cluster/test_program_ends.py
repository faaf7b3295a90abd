"""Programs that end while their nodes are at work."""

import subprocess
import sys

from programs import environment

LIMIT = 50.0

ENDS = """
import threading, time
from mqcore import cluster
begun = []
class Slow:
    def broadcast(self, msg):
        begun.append(1)
        time.sleep(2 if len(begun) == 1 else 0.5)
key = cluster.Key.generate()
joined = cluster.join(key, udp=False)
net = joined.__enter__()
service = net.serve("it", Slow(), concurrency=2).start()
for _ in range(5):
    net.broadcast("it", b"")
while len(begun) < 2:
    time.sleep(0.01)
"""


def test_a_program_that_ends_while_a_plain_handler_runs():
    done = subprocess.run([sys.executable, "-c", ENDS], env=environment(), text=True,
                          capture_output=True, timeout=LIMIT)
    assert done.returncode == 0 and "raised" not in done.stderr, done.stderr


ASKS = """
import threading, time
from mqcore import cluster
class Echo:
    def request(self, req):
        return req.body
key = cluster.Key.generate()
net = cluster.join(key, udp=False).__enter__()
net.serve("it", Echo()).start()
one = cluster.join(key, udp=False, seeds=[net.url]).__enter__()
one.wait_members("it", 1, timeout=20)
asked = threading.Event()
def ask():
    while True:
        one.request("it", b"", timeout=20)
        asked.set()
threading.Thread(target=ask, daemon=True).start()
asked.wait(20)
"""


def test_a_daemon_thread_that_asks_a_service_of_its_own_program_says_nothing_at_its_end():
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", ASKS], env=environment(), text=True,
                              capture_output=True, timeout=LIMIT)
        assert (done.returncode, done.stderr) == (0, "")


TUNNELS = """
import threading
from mqcore import cluster
class Echo:
    def tunnel(self, tunnel):
        for message in tunnel:
            tunnel.send(message)
key = cluster.Key.generate()
net = cluster.join(key, udp=False).__enter__()
net.serve("it", Echo()).start()
one = cluster.join(key, udp=False, seeds=[net.url]).__enter__()
one.wait_members("it", 1, timeout=20)
idle = one.tunnel("it", timeout=20).__enter__()
idle.send(b"x")
print(idle.recv(timeout=20), flush=True)
asked = threading.Event()
def talk():
    with one.tunnel("it", timeout=20) as tunnel:
        while True:
            tunnel.send(b"y")
            tunnel.recv(timeout=20)
            asked.set()
threading.Thread(target=talk, daemon=True).start()
asked.wait(20)
"""


def test_a_program_ends_while_plain_handlers_of_tunnels_wait():
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", TUNNELS], env=environment(), text=True,
                              capture_output=True, timeout=LIMIT)
        assert (done.returncode, done.stdout, done.stderr) == (0, "b'x'\n", "")
