"""kill -9 at random moments along a whole line: producers that send again until they are answered,
a recorder that deduplicates, a journal server, a mirror and a reader behind it. In the end every
message is everywhere, once, and in order by producer.

MQ_KILLS=200 kills more often than the dozen of an ordinary run.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

import mqcore as mq
from mqcore import journal

KILLS = int(os.environ.get("MQ_KILLS", "12"))
LIMIT = 60.0

PROGRAMS = {
    "recorder": """
import mqcore as mq
with journal.open(where, "a", fsync="never", segment_bytes=1 << 16, block_bytes=4096, stamps=True,
                  deduplicate=True) as writer, mq.Rep(bind=urls[0]) as front:
    with mq.device(front, writer) as device:
        ready()
        device.wait()
""",
    "server": """
with journal.serve(where, urls[1]):
    ready()
    threading.Event().wait()
""",
    "mirror": """
import mqcore as mq
with journal.open(urls[1], topic="default") as reader, journal.open(
        where + ".mirror", "a", segment_bytes=1 << 16, block_bytes=4096) as writer:
    with mq.device(reader, writer) as device:
        ready()
        device.wait()
""",
}
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


class Line:
    """The processes; what ends other than by our hand is an error."""

    def __init__(self, where, urls):
        self.arguments = [str(where), *urls]
        self.running = {}
        self.killed = Counter()

    def start(self, name):
        self.running[name] = subprocess.Popen(
            [sys.executable, "-c", START + PROGRAMS[name], *self.arguments],
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


class Producer(threading.Thread):
    """Sends numbered messages, at most `window` of them unanswered. When no answer comes for a
    while it begins a new connection with the first that is unanswered."""

    def __init__(self, ctx, url, who, window, acknowledged):
        super().__init__(name=f"producer {who}")
        self.ctx, self.url, self.who, self.window = ctx, url, who, window
        self.places = {}            # sequence: offset, as it was answered
        self.end = None             # send no more from here on
        self.again = self.sent = 0
        self.acknowledged = acknowledged
        self.error = None

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
        return journal.stamp(self.who, sequence) + b"%d:%d" % (self.who, sequence) * (
            1 + sequence % 40)

    def answered(self, sequence, answer):
        offset = journal.stored_at(answer)[1]
        assert self.places.get(sequence, -1) in (-1, offset) or offset == -1
        self.places[sequence] = max(offset, self.places.get(sequence, -1))
        self.acknowledged.release()

    def more(self, next):
        return self.end is None or next < self.end

    def talk(self):
        next = first = next_missing(self.places)
        with mq.Dealer(context=self.ctx, connect=self.url, recv_timeout=0.3, linger=0) as dealer:
            while self.more(first):
                while next < first + self.window and self.more(next):
                    dealer.send_parts([b"%d" % next, b"", self.message(next)])
                    next += 1
                    self.sent = max(self.sent, next)
                try:
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


class Follower(threading.Thread):
    """Reads along, over the server."""

    def __init__(self, ctx, url):
        super().__init__(name="follower")
        self.reader = journal.open(url, topic="default", timeout=LIMIT, context=ctx)
        self.rows = []
        self.end = None
        self.error = None

    def run(self):
        try:
            with self.reader:
                while self.end is None or len(self.rows) < self.end:
                    self.follow()
        except BaseException as error:
            self.error = error

    def follow(self):
        try:
            for records in self.reader.follow(len(self.rows), timeout=0.5):
                self.rows += rows_of(records)
                if len(self.rows) == self.end:
                    return
        except mq.RecvTimeout:
            pass


def rows_of(records):
    assert records.producers is not None
    return list(zip(range(records.first, records.next), records.producers.tolist(),
                    records.sequences.tolist(), records.times.tolist(), records, strict=True))


def stored(where):
    with journal.open(where) as reader:
        return [row for records in reader.batches() for row in rows_of(records)]


def until_mirrored(where, end):
    with journal.open(where) as reader:
        for records in reader.follow(0, timeout=LIMIT):
            if records.next >= end:
                return


@pytest.mark.timeout(60 + 10 * KILLS)
def test_kill_9_of_everybody(ctx, tmp_path, rng):
    urls = [f"ipc://{tmp_path}/front", f"ipc://{tmp_path}/server"]
    acknowledged = threading.Semaphore(0)
    gang = [Producer(ctx, urls[0], who, window, acknowledged)
            for who, window in ((1, 1), (2, 50), (3, 300))]
    with Line(tmp_path / "j", urls) as line:
        for thread in gang:
            thread.start()
        line.start("server")
        line.start("mirror")
        follower = Follower(ctx, urls[1])
        follower.start()
        for _ in range(KILLS):
            for _ in range(rng.randint(1, 1500)):
                assert acknowledged.acquire(timeout=LIMIT), [thread.error for thread in gang]
            name = rng.choice(("recorder", "recorder", "server", "mirror"))
            line.kill(name)
            line.start(name)
            line.wait(name)
            time.sleep(rng.random() * 0.1)
        for thread in gang:
            thread.end = thread.sent
        for thread in gang:
            thread.join()
            assert thread.error is None
        total = sum(thread.sent for thread in gang)
        follower.end = total
        follower.join()
        assert follower.error is None
        until_mirrored(f"{tmp_path}/j.mirror", total)
        print(f"{dict(line.killed)}, {total} messages, {sum(p.again for p in gang)} times from the "
              "first unanswered on")
    rows = stored(tmp_path / "j")
    for thread in gang:
        mine = [row for row in rows if row[1] == thread.who]
        assert [row[2] for row in mine] == list(range(thread.sent))
        assert all(thread.message(row[2])[32:] == row[4] for row in mine)
        for sequence, offset in thread.places.items():
            assert offset == -1 or rows[offset][1:3] == (thread.who, sequence)
    assert follower.rows == rows == stored(f"{tmp_path}/j.mirror")
    for where in ("j", "j.mirror"):
        assert journal.verify(tmp_path / where / "default" / "0").findings == []
