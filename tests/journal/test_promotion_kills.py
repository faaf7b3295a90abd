"""kill -9 of the primary while producers append, a mirror copies and readers follow. The mirror is
promoted, and everybody goes on there. Then the former primary comes back.

MQ_KILLS=50 fails over more often than the few times of an ordinary run.
"""

import os
import threading

import pytest
from copies import mirror, read_all
from kills import LIMIT, RECORDER, Line, Producer, rows_of
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal.errors import JournalDiverged, JournalFenced

ROUNDS = max(1, int(os.environ.get("MQ_KILLS", "12")) // 4)
SERVER = """
with journal.serve(where, urls[1], groups=True):
    ready()
    threading.Event().wait()
"""
MIRROR = """
import mqcore as mq
with journal.open(urls[1], topic="default") as reader, journal.open(
        where + ".next", "a", mirror=True, segment_bytes=1 << 16, block_bytes=4096) as writer:
    with mq.device(reader, writer) as device:
        ready()
        device.wait_stopped()
"""
STANDBY = """
with journal.serve(where + ".next", urls[2], groups=True):
    ready()
    threading.Event().wait()
"""


class Follower(threading.Thread):
    """With both addresses. It keeps what it has read, and what it learns to be lost is taken
    back."""

    def __init__(self, ctx, urls):
        super().__init__(name="follower")
        self.reader = journal.open(",".join(urls), topic="default", timeout=LIMIT, context=ctx)
        self.rows, self.taken_back = [], 0
        self.end = None
        self.error = None

    def run(self):
        try:
            with self.reader:
                # as many rows as there are may be those of the former primary
                while not (len(self.rows) == self.end and self.reader._known.history):
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
        except JournalDiverged as error:
            assert error.end == len(self.rows) > error.first
            self.taken_back += error.end - error.first
            del self.rows[error.first:]


class Producers:
    """Some that send again by themselves, with the addresses of both recorders."""

    def __init__(self, ctx, urls, number):
        self.all = [Failing(ctx, urls, who, number) for who in (1, 2)]

    def start(self):
        for thread in self.all:
            thread.start()

    def finish(self):
        for thread in self.all:
            thread.finish()


class Failing(Producer):
    def __init__(self, ctx, urls, who, number):
        super().__init__(ctx, urls, who, 1, threading.Semaphore(0), pace=0.0005)
        self.number = number

    def value(self, sequence):
        return b"%d:%d:%d" % (self.number, self.who, sequence) + bytes(sequence % 200)


@pytest.mark.timeout(300 + 60 * ROUNDS)
@pytest.mark.parametrize("number", [
    0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, ROUNDS))])
def test_the_primary_is_killed_and_comes_back(ctx, tmp_path, rng, number):
    urls = [f"ipc://{tmp_path}/{name}" for name in ("front", "server", "standby", "next")]
    old, new = tmp_path / "j", tmp_path / "j.next"
    programs = {"recorder": RECORDER, "server": SERVER, "mirror": MIRROR, "standby": STANDBY,
                "next recorder": RECORDER.replace("urls[0]", "urls[3]")
                                         .replace("(where,", "(where + '.next',")}
    gang = Producers(ctx, [urls[0], urls[3]], number)
    with Line(programs, old, urls) as line:
        gang.start()
        for name in ("server", "mirror"):
            line.start(name)
            line.wait(name)
        until(lambda: (new / "default" / "0").is_dir(), LIMIT)
        line.start("standby")
        line.wait("standby")
        follower = Follower(ctx, urls[1:3])
        follower.start()
        until(lambda: follower.rows, LIMIT)
        for _ in range(rng.randint(50, 1500)):
            assert gang.all[0].acknowledged.acquire(timeout=LIMIT), gang.all[0].error
        for name in rng.sample(("recorder", "server", "mirror"), 3):    # host a is lost
            line.kill(name)
        before = {thread.who: dict(thread.places) for thread in gang.all}
        promoted = journal.promote(new)
        line.start("next recorder")
        line.wait("next recorder")
        for _ in range(rng.randint(50, 500)):
            assert gang.all[0].acknowledged.acquire(timeout=LIMIT), gang.all[0].error
        lost = come_back(ctx, old, urls[2], promoted)
        gang.finish()
        with journal.open(new) as reader:
            follower.end = reader.end
        follower.join()
        assert follower.error is None
    check(old, new, gang, before, promoted, lost, follower)


def come_back(ctx, old, standby, promoted):
    """The messages that only the former primary has."""
    with pytest.raises(JournalFenced) as error:
        journal.open(old, "a", replicas=standby, replica_options={"context": ctx})
    assert error.value.epoch == promoted.epoch and error.value.first == min(
        promoted.offset, error.value.end)
    with pytest.raises(JournalFenced):
        journal.open(old, "a")
    return range(error.value.first, error.value.end)


def check(old, new, gang, before, promoted, lost, follower):
    with journal.open(old, durable=False) as reader:
        was = [row for records in reader.batches() for row in rows_of(records)]
    with journal.open(new) as reader:
        now = [row for records in reader.batches() for row in rows_of(records)]
    assert was[:lost.start] == now[:lost.start] and len(was) == lost.stop
    assert follower.rows == now
    stored = {row[1:3] for row in now}
    missing = {(who, sequence): offset for who, places in before.items()
               for sequence, offset in places.items() if (who, sequence) not in stored}
    # what was acknowledged and is not there was reported, with its offset
    assert all(offset in lost for offset in missing.values()), (missing, lost)
    for thread in gang.all:
        mine = [row[2] for row in now if row[1] == thread.who]
        assert len(mine) == len(set(mine)), "stored twice"
        assert set(range(thread.sent)) == set(mine) | {
            sequence for who, sequence in missing if who == thread.who}
    if len(lost):
        with pytest.raises(JournalDiverged) as error:
            mirror(new, old)
        assert (error.value.first, error.value.end) == (lost.start, lost.stop)
    else:
        mirror(new, old)
        assert read_all(old) == read_all(new)
    print(f"epoch {promoted.epoch} at {promoted.offset}, {len(lost)} messages only in the former "
          f"primary, {len(missing)} of them acknowledged, {follower.taken_back} taken back")
