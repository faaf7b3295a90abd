"""kill -9 at random moments along a whole line: producers that send again until they are answered,
a recorder that deduplicates, a journal server, a mirror and a reader behind it. In the end every
message is everywhere, once, and in order by producer.

MQ_KILLS=200 kills more often than the dozen of an ordinary run.
"""

import os
import threading
import time

import pytest
from kills import LIMIT, RECORDER, Line, Producer, rows_of

import mqcore as mq
from mqcore import journal

KILLS = int(os.environ.get("MQ_KILLS", "12"))
PROGRAMS = {
    "recorder": RECORDER,
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
        device.wait_stopped()
""",
}


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


def stored(where):
    with journal.open(where) as reader:
        return [row for records in reader.batches() for row in rows_of(records)]


def until_mirrored(where, end):
    with journal.open(where) as reader:
        for records in reader.follow(0, timeout=LIMIT):
            if records.next >= end:
                return


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("kills", [4, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_kill_9_of_everybody(ctx, tmp_path, rng, kills):
    urls = [f"ipc://{tmp_path}/front", f"ipc://{tmp_path}/server"]
    acknowledged = threading.Semaphore(0)
    gang = [Producer(ctx, urls[0], who, window, acknowledged, pace=0.0005)
            for who, window in ((1, 1), (2, 50), (3, 300))]
    with Line(PROGRAMS, tmp_path / "j", urls) as line:
        for thread in gang:
            thread.start()
        line.start("server")
        line.start("mirror")
        follower = Follower(ctx, urls[1])
        follower.start()
        for _ in range(kills):
            for _ in range(rng.randint(1, 1000)):
                assert acknowledged.acquire(timeout=LIMIT), [thread.error for thread in gang]
            name = rng.choice(("recorder", "recorder", "server", "mirror"))
            line.kill(name)
            line.start(name)
            line.wait(name)
            time.sleep(rng.random() * 0.1)
        for thread in gang:
            thread.finish()
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
        assert all(thread.value(row[2]) == row[4] for row in mine)
        for sequence, offset in thread.places.items():
            assert offset == -1 or rows[offset][1:3] == (thread.who, sequence)
    assert follower.rows == rows == stored(f"{tmp_path}/j.mirror")
    for where in ("j", "j.mirror"):
        assert journal.store.recovery.verify(tmp_path / where / "default" / "0").findings == []
