"""Network namespaces for tests, joined by a bridge in one of their own, and processes in them.

They take root, `ip` and `iptables`. Each test has its own, and they end with it.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).with_name("peer.py")
PATIENCE = 180
ISOLATED = ("-S",) if sys.flags.no_site else ()
PORT = 5555
GROUP = "239.192.7.1"
# the Python that has pyzmq over a libzmq with PGM: `make test-multicast` makes it
LIBZMQ = os.environ.get("MULTICAST_LIBZMQ", "")


def command(*words):
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)


def lacking():
    """Why namespaces cannot be made; "": they can."""
    if os.geteuid():
        return "network namespaces take root"
    missing = [tool for tool in ("ip", "iptables") if not shutil.which(tool)]
    return f"{' and '.join(missing)} must be installed" if missing else ""


class Process:
    def __init__(self, words):
        self.child = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self):
        """The next line it prints, or why it ended. libpgm's warnings are in between."""
        while True:
            line = self.child.stdout.readline()
            assert line, self.child.stderr.read()[-4000:]
            if not line.startswith(("Warn:", "Minor:", "Trace:")):
                return line.strip()

    def go(self):
        self.child.stdin.write("go\n")
        self.child.stdin.flush()

    def result(self):
        found = json.loads(self.line())
        assert self.child.wait(PATIENCE) == 0, self.child.stderr.read()[-4000:]
        return found

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()


class Place:
    """Where processes run: a namespace, or with "" the one of the test."""

    def __init__(self, stack, name="", address="127.0.0.1", device="lo"):
        self.stack = stack
        self.name = name
        self.address = address
        self.device = device

    def within(self, *words):
        return ("ip", "netns", "exec", self.name, *words) if self.name else words

    def start(self, *words):
        made = Process(self.within(*words))
        self.stack.callback(made.end)
        return made

    def peer(self, library, pattern, scheme="epgm", **options):
        """A peer.py. libzmq takes an interface's address only."""
        at = self.device if library == "mq" else self.address
        return self.peer_at(library, pattern, f"{scheme}://{at};{GROUP}:{PORT}", **options)

    def peer_at(self, library, pattern, url, **options):
        python = (sys.executable, *ISOLATED) if library == "mq" else (LIBZMQ,)
        return self.start(*python, PEER, library, pattern, url,
                          *(f"{name}={value}" for name, value in options.items()))

    def drop(self, probability, protocol="udp"):
        """Lose this share of the packets that arrive."""
        command(*self.within("iptables", "-A", "INPUT", "-p", protocol, "-m", "statistic",
                             "--mode", "random", "--probability", str(probability), "-j", "DROP"))

    def dropped(self):
        """Packets lost so far."""
        rules = subprocess.run(self.within("iptables", "-L", "INPUT", "-v", "-x", "-n"),
                               check=True, capture_output=True, text=True, timeout=60).stdout
        return sum(int(line.split()[0]) for line in rules.splitlines() if "DROP" in line)

    def bytes_out(self):
        """That have left through its interface."""
        statistics = f"/sys/class/net/{self.device}/statistics/tx_bytes"
        return int(subprocess.run(self.within("cat", statistics), check=True, capture_output=True,
                                  text=True, timeout=60).stdout)


class Network:
    """Hosts 10.77.0.1, 10.77.0.2 ... in namespaces, all at one switch."""

    def __init__(self, stack, hosts):
        self.stack = stack
        self.tag = f"mq{os.getpid()}"
        self.namespace("switch")
        self.run("switch", "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        self.run("switch", "ip", "link", "set", "br0", "up")
        self.hosts = [self.host(number) for number in range(1, hosts + 1)]

    def run(self, name, *words):
        command("ip", "netns", "exec", f"{self.tag}{name}", *words)

    def namespace(self, name):
        command("ip", "netns", "add", f"{self.tag}{name}")
        self.stack.callback(subprocess.run, ("ip", "netns", "del", f"{self.tag}{name}"),
                            capture_output=True, check=False)

    def host(self, number):
        name = f"h{number}"
        self.namespace(name)
        command("ip", "link", "add", "eth0", "netns", f"{self.tag}{name}", "type", "veth",
                "peer", "name", f"p{number}", "netns", f"{self.tag}switch")
        self.run("switch", "ip", "link", "set", f"p{number}", "master", "br0", "up")
        self.run(name, "ip", "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        self.run(name, "ip", "link", "set", "eth0", "up")
        self.run(name, "ip", "link", "set", "lo", "up")
        return Place(self.stack, f"{self.tag}{name}", f"10.77.0.{number}", "eth0")


@contextlib.contextmanager
def network(hosts):
    with contextlib.ExitStack() as stack:
        yield Network(stack, hosts).hosts


@contextlib.contextmanager
def here():
    """This namespace's loopback."""
    with contextlib.ExitStack() as stack:
        yield Place(stack)
