"""kill -9 of a queue server, its producers and its consumers at random moments. In the end every
job that was put was done, and what was done twice was flagged as redelivered.

MQ_KILLS=100 kills more often than the dozen of an ordinary run. MQ_JOBS=1000000 puts as many jobs
at least, in larger batches and without pauses; the kills are spread over them.
"""

import os
import time
from collections import Counter, defaultdict

import pytest
from kills import LIMIT, Programs
from waiting import until

import mqcore as mq
from mqcore import journal

KILLS = int(os.environ.get("MQ_KILLS", "12"))
JOBS = int(os.environ.get("MQ_JOBS", "0"))
BATCH = 500 if JOBS else 20         # a producer's largest
DONE = LIMIT + JOBS / 500           # seconds that the consumers may take at the end
SERVER = """
with journal.serve_queues(where, urls[0], segment_bytes=1 << 18,
                          limits=journal.QueueLimits(memory=20_000),
                          defaults=journal.QueueOptions(visibility=3.0, grace=0.1, max_jobs=50_000,
                                                        on_full="block")) as server:
    ready()
    server.wait_stopped()
"""
# one batch after the other; what was answered is written down, and where that ends it goes on
PRODUCER = """
import time
me = NUMBER
path = f"{where}.producer{me}"
if not os.path.exists(path):
    open(path, "w").close()
with open(path, "r+") as notes, journal.queue(urls[0], "work", producer=me,
                                              timeout=LIMIT) as queue:
    done = notes.read().split()
    at = int(done[-1]) + 1 if done else 0
    ready()
    while True:                         # the batch that a kill left without a note is put again
        queue.put_many([b"%d:%d:%d" % (me, at, i) + bytes(at % 300) for i in range(1 + at % BATCH)],
                       sequence=at)
        notes.write(f"{at}\\n")
        notes.flush()
        at += 1
        if os.path.exists(where + ".stop"):
            break
        time.sleep(PAUSE)               # consumers that take one at a time are slower
open(path + ".done", "w").close()
threading.Event().wait()
"""
# what it has done is in a file before the acknowledgment
CONSUMER = """
with journal.queue(urls[0], "work", prefetch=PREFETCH, timeout=LIMIT) as queue, open(
        f"{where}.done", "ab", buffering=0) as done:
    ready()
    for job in queue:
        done.write(b"%d %d %b\\n" % (job.id, job.attempts, job.body.rstrip(bytes(1))))
        try:
            job.ack()
        except journal.JobLost:
            pass
"""


def programs():
    limit = f"LIMIT = {LIMIT}\nBATCH = {BATCH}\nPAUSE = {0 if JOBS else 0.02}\n"
    return {"server": SERVER,
            **{f"producer {n}": limit + PRODUCER.replace("NUMBER", str(n)) for n in (1, 2)},
            **{f"consumer {n}": limit + CONSUMER.replace("PREFETCH", str(n)) for n in (1, 8, 40)}}


def stats_of(ctx, url):
    with journal.queue(url, "work", timeout=LIMIT, context=ctx) as queue:
        return queue.stats()


def put(tmp_path):
    """How many jobs the producers have noted."""
    found = 0
    for me in (1, 2):
        notes = tmp_path / f"j.producer{me}"
        done = notes.read_text().split() if notes.exists() else []
        found += sum(1 + at % BATCH for at in range(len(done)))
    return found


@pytest.mark.timeout(300 + 10 * KILLS + JOBS // 100)
@pytest.mark.parametrize("kills", [5, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_kill_9_of_everybody(ctx, tmp_path, rng, kills):
    where, url = tmp_path / "j", f"ipc://{tmp_path}/queues"
    with Programs(programs(), where, [url]) as line:
        names = [*line.programs, "server", "server"]
        for i in range(kills):
            until(lambda share=i / kills: put(tmp_path) >= JOBS * share, DONE, 0.2)
            time.sleep(rng.random() * 0.3)
            name = rng.choice(names)
            line.kill(name)
            line.start(name)
            line.wait(name)
        until(lambda: put(tmp_path) >= JOBS, DONE, 0.2)
        (tmp_path / "j.stop").touch()
        until(lambda: all((tmp_path / f"j.producer{n}.done").exists() for n in (1, 2)), LIMIT)

        def over():
            stats = stats_of(ctx, url)
            return stats.ready == stats.held == stats.delayed == 0
        until(over, DONE, 0.1)
        killed = dict(line.killed)
    check(tmp_path, killed)


def check(tmp_path, killed):
    deliveries = defaultdict(list)          # of a job
    ids = defaultdict(set)                  # under which a value was stored
    for row in (tmp_path / "j.done").read_bytes().splitlines():
        number, attempts, value = row.split(b" ")
        deliveries[int(number)].append(int(attempts))
        ids[value].add(int(number))
    expected = set()
    for me in (1, 2):
        batches = int((tmp_path / f"j.producer{me}").read_text().split()[-1]) + 1
        expected |= {b"%d:%d:%d" % (me, at, i) for at in range(batches)
                     for i in range(1 + at % BATCH)}
    assert set(ids) == expected, "jobs that were put and not done, or done and not put"
    assert all(len(numbers) == 1 for numbers in ids.values()), "stored twice"
    for attempts in deliveries.values():
        again = Counter(attempts)
        assert max(again.values()) == 1, "two deliveries that cannot be told apart"
        assert sum(attempt == 1 for attempt in attempts) <= 1, "a repetition that is not flagged"
    twice = sum(len(attempts) > 1 for attempts in deliveries.values())
    print(f"{killed}, {len(expected)} jobs, {twice} of them done more than once")


def test_a_consumer_gets_what_a_killed_one_held(ctx, tmp_path):
    where, url = tmp_path / "j", f"ipc://{tmp_path}/queues"
    held = CONSUMER.replace("PREFETCH", "1").replace("try:", "threading.Event().wait()\n"
                                                         "        try:")
    programs = {"server": SERVER, "consumer": f"LIMIT = {LIMIT}\n" + held}
    with Programs(programs, where, [url]) as line:
        with journal.queue(url, "work", timeout=LIMIT, context=ctx) as queue:
            queue.put(b"x")
            until(lambda: (tmp_path / "j.done").exists() and (tmp_path / "j.done").read_bytes())
            with pytest.raises(mq.RecvTimeout):
                queue.get(timeout=0)
            line.kill("consumer")
            job = queue.get(timeout=LIMIT)
            assert job.redelivered and job.attempts == 2
            job.ack()
