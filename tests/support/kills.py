"""Processes to kill, and producers that send again until they are answered."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import mqcore as mq
from mqcore import journal

LIMIT = 150.0
START = """
import os, sys, threading
from mqcore import journal
where, *urls = sys.argv[1:]
def leave():                # with the test
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=leave, daemon=True).start()
def ready():
    os.write(1, b"ready")
"""
RECORDER = """
import mqcore as mq
with journal.open(where, "a", fsync="never", segment_bytes=1 << 16, block_bytes=4096, stamps=True,
                  deduplicate=True) as writer, mq.Rep(bind=urls[0]) as front:
    with mq.device(front, writer) as device:
        ready()
        device.wait_stopped()
"""


class Line:
    """Processes of these programs; what ends other than by our hand is an error."""

    def __init__(self, programs, where, urls):
        self.programs = programs
        self.arguments = [str(where), *urls]
        self.running = {}
        self.killed = Counter()

    def start(self, name):
        self.running[name] = subprocess.Popen(
            [sys.executable, "-c", START + self.programs[name], *self.arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait(self, name):
        """Until it works."""
        assert self.running[name].stdout.read(5) == b"ready", f"the {name} has ended by itself"

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.stdin.close()
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL, f"the {name} had ended by itself"
        self.killed[name] += 1

    def __enter__(self):
        self.start("recorder")
        self.wait("recorder")
        return self

    def __exit__(self, *exc):
        for name in list(self.running):
            self.kill(name)


class Programs(Line):
    """All of them run from the beginning."""

    def __enter__(self):
        for name in self.programs:
            self.start(name)
        for name in self.programs:
            self.wait(name)
        return self


class Producer(threading.Thread):
    """Sends numbered messages, at most `window` of them unanswered. When no answer comes for a
    while it begins a new connection with the first that is unanswered. pace: seconds it rests
    after each answer."""

    def __init__(self, ctx, url, who, window, acknowledged, pace=0.0):
        super().__init__(name=f"producer {who}")
        self.ctx, self.url, self.who, self.window = ctx, url, who, window
        self.places = {}            # sequence: offset, as it was answered
        self.stopping = False
        self.end = None             # so many are sent in the end
        self.again = self.sent = 0
        self.acknowledged = acknowledged
        self.pace = pace
        self.error = None

    def finish(self):
        """Until all that was sent is answered."""
        self.stopping = True
        self.join()
        assert self.error is None

    def run(self):
        try:
            while self.end is None or len(self.places) < self.end:
                self.again += 1
                if self.window == 1:
                    self.ask()
                else:
                    self.talk()
        except BaseException as error:
            self.error = error

    def message(self, sequence):
        return journal.stamp(self.who, sequence, key=b"%d" % self.who) + self.value(sequence)

    def value(self, sequence):
        return b"%d:%d" % (self.who, sequence) + bytes(sequence % 200)

    def answered(self, sequence, answer):
        offset = journal.stored_at(answer)[1]
        assert self.places.get(sequence, -1) in (-1, offset) or offset == -1
        self.places[sequence] = max(offset, self.places.get(sequence, -1))
        self.acknowledged.release()
        if self.pace:
            time.sleep(self.pace)

    def more(self, next):
        if self.stopping and self.end is None:
            self.end = self.sent
        return self.end is None or next < self.end

    def talk(self):
        """Without reconnecting, since what waits in a socket would overtake what was lost."""
        next = first = next_missing(self.places)
        with mq.Dealer(context=self.ctx, connect=self.url, recv_timeout=0.3, send_timeout=0.3,
                       linger=0, reconnect=None) as dealer:
            while self.more(first):
                try:
                    while next < first + self.window and self.more(next):
                        dealer.send_parts([b"%d" % next, b"", self.message(next)])
                        next += 1
                        self.sent = max(self.sent, next)
                    sequence, _, answer = dealer.recv_parts()
                except mq.Timeout:
                    return
                self.answered(int(sequence), answer)
                while first in self.places:
                    first += 1

    def ask(self):
        """With a socket that sends again by itself."""
        with mq.Req(context=self.ctx, connect=self.url, resend=0.2, recv_timeout=LIMIT) as req:
            while self.more(self.sent):
                req.send(self.message(self.sent))
                self.sent += 1
                self.answered(self.sent - 1, req.recv())


def next_missing(places):
    return next(i for i in range(len(places) + 1) if i not in places)


def rows_of(records):
    assert records.producers is not None
    return list(zip(range(records.first, records.next), records.producers.tolist(),
                    records.sequences.tolist(), records._microseconds.tolist(), records,
                    strict=True))
