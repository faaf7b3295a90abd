"""A network that falls in two and heals, with real nodes at both sides: what they see of each
other, and what they publish meanwhile.

    left: two nodes -- router -- right: two nodes

The router stops forwarding without a word to either side. MQCORE_ROUNDS sets how often,
MQCORE_APART how many seconds more it lasts than until all have noticed. `-s` shows how long one
view takes.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import PATIENCE, environment

from mqcore.testing import until

NODE = Path(__file__).resolve().parents[2] / "support" / "partition_node.py"
IP = shutil.which("ip")
ROUNDS = int(os.environ.get("MQCORE_ROUNDS", 2))
APART = float(os.environ.get("MQCORE_APART", 0))
LIMIT = 60.0


def sh(*words):
    subprocess.run([IP, *words], check=True, capture_output=True)


class Network:
    """Two namespaces and a router between them, each side a network of its own."""

    def __init__(self):
        base = f"mq{os.getpid()}"
        self.router, self.sides = f"{base}m", (f"{base}l", f"{base}r")
        self.made = []

    def make(self):
        for name in (self.router, *self.sides):
            try:
                sh("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
            self.made.append(name)
            sh("-n", name, "link", "set", "lo", "up")
        for n, side in enumerate(self.sides):
            sh("-n", self.router, "link", "add", f"to{n}", "type", "veth", "peer", "name", "out",
               "netns", side)
            sh("-n", self.router, "address", "add", f"10.86.{n}.1/24", "dev", f"to{n}")
            sh("-n", self.router, "link", "set", f"to{n}", "up")
            sh("-n", side, "address", "add", f"10.86.{n}.2/24", "dev", "out")
            sh("-n", side, "link", "set", "out", "up")
            sh("-n", side, "route", "add", "default", "via", f"10.86.{n}.1")
        self.forward(True)

    def forward(self, on):
        sh("netns", "exec", self.router, "sh", "-c",
           f"echo {int(on)} > /proc/sys/net/ipv4/ip_forward")

    def end(self):
        for name in self.made:
            sh("netns", "delete", name)


class Node:
    def __init__(self, network, side, key, *seeds):
        command = [IP, "netns", "exec", network.sides[side], sys.executable, NODE, key,
                   f"tcp://10.86.{side}.2:0", f"s{side}.{os.urandom(3).hex()}", *seeds]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment())
        self.url = self.process.stdout.readline().strip()
        assert self.url, "a node has not joined"

    def heard(self):
        self.process.stdin.write("heard\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def network():
    if IP is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and ip(8)")
    made = Network()
    try:
        made.make()
        yield made
    finally:
        made.end()


@pytest.fixture
def nodes(network, key, tmp_path):
    found = []
    try:
        for side in (0, 1, 0, 1):
            seeds = [found[0].url] if found else []
            found.append(Node(network, side, tmp_path / "test.key", *seeds))
        yield found
    finally:
        for node in found:
            node.end()


def see(nodes, count):
    return all(node.heard()["members"] == count for node in nodes)


def ahead(nodes, before):
    """Every node has heard more of everybody."""
    return all(node.heard()["count"].get(name, 0) > count for node, counts
               in zip(nodes, before, strict=True) for name, count in counts.items())


def test_a_partition_heals_and_nothing_is_published_twice(network, nodes):
    until(lambda: see(nodes, 4), LIMIT)
    until(lambda: all(len(node.heard()["count"]) == 4 for node in nodes), LIMIT)
    took = []
    for _ in range(ROUNDS):
        network.forward(False)
        until(lambda: see(nodes, 2), LIMIT)     # each side is alone, and knows it
        time.sleep(APART)
        apart = [node.heard()["count"] for node in nodes]
        network.forward(True)
        healed = time.monotonic()
        until(lambda: see(nodes, 4), LIMIT)
        took.append(time.monotonic() - healed)
        until(lambda before=apart: ahead(nodes, before), LIMIT)
    print("one view after", [round(each, 1) for each in took], "s")
    for node in nodes:
        found = node.heard()
        assert len(found["count"]) == 4 and not any(found["wrong"].values()), found
