"""Random topologies of senders and receivers, and what becomes of each message while peers come and
go, addresses are given up and taken again, and connections break.

    python tests/support/topologies.py [--runs 10000] [--seed N] [--kind tcp]

The law: what a sender's close() reported as written is read once by a receiver that goes on
reading, or counted by one that has left. A run prints its seed if it fails; --seed repeats it.
"""

import argparse
import contextlib
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import mqcore as mq

LIMIT = 60.0
BRIEF = 0.5
KINDS = ("tcp", "ipc", "inproc", "ws")
PAIRS = (("push", "pull"), ("dealer", "dealer"), ("dealer", "router"), ("push", "pull"))
SIZES = (0, 0, 0, 1, 40, 3000, 70_000)
HEAD = 12               # bytes of a message: who sent it, and its number
# this process's own: no other one takes a port that was given up here, and hears who comes back
HOST = "127.{}.{}.{}".format(1 + os.getpid() // 65536 % 250, *divmod(os.getpid() % 65536, 256))


@contextlib.contextmanager
def link_of(fd):
    """The socket behind a descriptor of the library's; OSError: it is none."""
    mine = os.dup(fd)
    try:
        link = socket.socket(fileno=mine)
    except OSError:
        os.close(mine)
        raise
    with link:
        yield link


class Sender:
    """`sent` messages, of which close() accounts for each."""

    def __init__(self, number, sock):
        self.number, self.socket = number, sock
        self.sent = 0
        self.report = None
        self.thread = None

    def send(self, size):
        """False: there was no room."""
        head = b"%04d%08d" % (self.number, self.sent)
        try:
            self.socket.send(head + bytes(size), timeout=0)
        except mq.SendTimeout:
            return False
        self.sent += 1
        return True

    def close(self, linger):
        """On a thread of its own: it lingers until somebody reads."""
        def close():
            self.report = self.socket.close(linger)
        self.thread = threading.Thread(target=close)
        self.thread.start()


class Topology:
    """One run: senders of a pattern, receivers of another. Those of one side bind, the others
    connect."""

    def __init__(self, seed, kind, folder):
        self.rng = random.Random(seed)
        self.kind, self.folder = kind, folder
        self.out, self.inn = self.rng.choice(PAIRS)
        self.receivers_bind = self.rng.random() < 0.7
        self.context = mq.Context(io_threads=self.rng.choice((1, 2)))
        self.senders, self.ended = [], []
        self.receivers = []
        self.seen = Counter()       # (sender, number): how often it was read
        self.gone = 0               # messages that receivers which left had counted
        self.exact = True           # no receiver has left bytes in its kernel
        self.count = 0
        self.log = []

    # -- sockets --

    def url(self):
        self.count += 1
        return {"inproc": f"inproc://{id(self)}-{self.count}", "tcp": f"tcp://{HOST}:0",
                "ws": f"ws://{HOST}:0/x",
                "ipc": f"ipc://{self.folder}/{self.count}"}[self.kind]

    def socket(self, pattern, **marks):
        return self.context.socket(pattern, linger=LIMIT, reconnect=0.002, reconnect_max=0.02,
                                   **marks)

    def join(self, new, others, binds):
        """Bind a new socket, or connect it to some of the others, which are bound."""
        if binds:
            new.bind(self.url())
            for other in others:
                if self.rng.random() < 0.7:
                    other.connect(new.endpoints[0].url)
        elif others:
            for other in self.rng.sample(others, self.rng.randrange(1, len(others) + 1)):
                new.connect(other.endpoints[0].url)

    def come(self):
        if len(self.senders) < 4:
            sock = self.socket(self.out, send_hwm=self.rng.choice((1, 5, 50, 1000)))
            self.join(sock, self.receivers, not self.receivers_bind)
            self.senders.append(Sender(len(self.senders) + len(self.ended), sock))

    def receive(self):
        if len(self.receivers) < 3:
            sock = self.socket(self.inn, recv_hwm=self.rng.choice((1, 5, 50, 1000)))
            self.join(sock, [sender.socket for sender in self.senders], self.receivers_bind)
            self.receivers.append(sock)

    # -- steps --

    def send(self):
        if self.senders:
            sender = self.rng.choice(self.senders)
            for _ in range(self.rng.choice((1, 3, 30, 200))):
                if not sender.send(self.rng.choice(SIZES)):
                    break

    def take(self, receiver, most):
        try:
            if self.inn == "router":
                got = [receiver.recv_parts(timeout=0)[-1]]
            else:
                got = receiver.recv_many(most, timeout=0)
        except mq.RecvTimeout:
            return 0
        for message in got:
            raw = bytes(message[:HEAD])
            self.seen[int(raw[:4]), int(raw[4:])] += 1
        return len(got)

    def read(self):
        if self.receivers:
            self.take(self.rng.choice(self.receivers), self.rng.randrange(1, 100))

    def leave(self):
        """A sender has finished."""
        if self.senders:
            sender = self.senders.pop(self.rng.randrange(len(self.senders)))
            self.end(sender)

    def end(self, sender):
        """It has somebody to send to: the first receiver, which stays."""
        if self.receivers_bind:
            sender.socket.connect(self.receivers[0].endpoints[0].url)
        else:
            self.receivers[0].connect(sender.socket.endpoints[0].url)
        # one that binds no longer does, so a receiver whose connection breaks does not come back
        sender.close(LIMIT if self.receivers_bind else BRIEF)
        self.ended.append(sender)

    def go(self):
        """A receiver ends with messages unread."""
        if len(self.receivers) > 1 and self.rng.random() < 0.3:
            number = self.rng.randrange(1, len(self.receivers))
            self.count_lost(self.receivers.pop(number).close(0))

    def count_lost(self, report):
        self.gone += sum(report.dropped_in.values())
        if report.unread:
            self.exact = False

    def kill(self):
        """A connection breaks at its sender's side: nothing follows what was written."""
        ends = {self.place(endpoint.url) for sock in self.bound() for endpoint in sock.endpoints}
        found = []
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError), link_of(fd) as link:
                here, there = link.getsockname(), link.getpeername()
                if (there if self.receivers_bind else here) in ends:
                    found.append(fd)
        if found:       # else, or if it has ended meanwhile, there is nothing to break
            with contextlib.suppress(OSError), link_of(self.rng.choice(found)) as link:
                # of TCP: an end that does not read either answers what we still say with a reset,
                # and that takes what its kernel has
                link.shutdown(self.rng.choice((socket.SHUT_WR, socket.SHUT_RDWR))
                              if self.kind == "ipc" else socket.SHUT_WR)

    def bound(self):
        return self.receivers if self.receivers_bind else \
            [sender.socket for sender in self.senders]

    @staticmethod
    def place(url):
        parts = urlsplit(url)
        return (parts.hostname, parts.port) if parts.port else url.partition("://")[2]

    def reconnect(self):
        """Give up an address and take it again."""
        sockets = [*self.receivers, *(sender.socket for sender in self.senders)]
        if not sockets:
            return
        sock = self.rng.choice(sockets)
        if not sock.endpoints:
            return
        endpoint = self.rng.choice(sock.endpoints)
        if sock in self.bound():
            sock.unbind(endpoint)
            sock.bind(endpoint.url)
        else:
            sock.disconnect(endpoint)
            sock.connect(endpoint.url)

    def pause(self):
        time.sleep(self.rng.choice((0, 0.001, 0.005)))

    def run(self):
        steps = [self.come, self.receive, *[self.send] * 6, *[self.read] * 4, self.leave, self.go,
                 self.pause]
        if self.kind != "inproc":
            steps += [self.kill] * 2
        steps += [self.reconnect]
        try:
            self.receive()
            self.come()
            for _ in range(self.rng.randrange(10, 70)):
                step = self.rng.choice(steps)
                self.log.append(step.__name__)
                step()
            self.finish()
            self.check()
        finally:
            for sock in [*self.receivers, *(s.socket for s in self.senders + self.ended)]:
                sock.close(0)
            self.context.close(linger=0)

    def finish(self):
        """Everybody sends what there is, and the receivers read on."""
        while self.senders:
            self.end(self.senders.pop())
        end = time.monotonic() + LIMIT
        while any(sender.report is None for sender in self.ended):
            if not sum(self.take(receiver, 1000) for receiver in self.receivers):
                time.sleep(0.0005)
            assert time.monotonic() < end, "close() does not return"
        for sender in self.ended:
            sender.thread.join()
            if sender.report.unacked:       # it may not have reached a receiver that left
                self.exact = False
        while time.monotonic() < end and self.missing():
            if not sum(self.take(receiver, 1000) for receiver in self.receivers):
                time.sleep(0.0005)
                if not self.exact:
                    break

    def missing(self):
        return sum(sender.report.written for sender in self.ended) - self.gone - len(self.seen)

    def check(self):
        for sender in self.ended:
            report = sender.report
            counted = report.written + report.undelivered   # which counts drops, too
            assert counted == sender.sent, (sender.number, sender.sent, report)
        twice = [message for message, times in self.seen.items() if times > 1]
        assert not twice, twice[:10]
        missing = self.missing()
        assert missing == 0 or missing > 0 and not self.exact, (missing, self.gone, self.exact)


def run(seed, kind=None):
    """One topology; an AssertionError if a message is neither read nor counted."""
    kind = kind or random.Random(seed).choice(KINDS)
    folder = Path(tempfile.mkdtemp(prefix="mq-t"))
    topology = Topology(seed, kind, folder)
    try:
        topology.run()
    except BaseException:
        print(f"seed {seed}, {kind}, {topology.out} to {topology.inn}, "
              f"{'receivers' if topology.receivers_bind else 'senders'} bind: "
              f"{' '.join(topology.log)}")
        raise
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--kind", choices=KINDS)
    given = parser.parse_args()
    print(f"seeds {given.seed} to {given.seed + given.runs - 1}", flush=True)
    for seed in range(given.seed, given.seed + given.runs):
        run(seed, given.kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
