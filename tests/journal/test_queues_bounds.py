"""What clients can make a queue server, and a consumer, hold or do: who may configure, limits of
the whole server, circles of dead letters, jobs that are never settled, ends that are interrupted.
"""

import os
import subprocess
import sys
import threading
import time

import pytest
from waiting import until

import mqcore as mq
from mqcore import journal, trace
from mqcore.journal import QueueFull, QueueLimits, QueueOptions
from mqcore.journal.queues.held import SLACK, Held

LIMIT = 60.0


@pytest.fixture
def start(ctx, tmp_path):
    """start(...) -> a queue server of the test's folder, which stops after the test."""
    made = []

    def make(**how):
        made.append(journal.serve_queues(tmp_path / "j", f"ipc://{tmp_path}/q", context=ctx, **how))
        return made[-1]
    yield make
    for server in made:
        server.stop()


@pytest.fixture
def opened(ctx):
    made = []

    def make(server, name="work", **how):
        made.append(journal.queue(server.urls[0], name, **{"timeout": LIMIT, **how}, context=ctx))
        return made[-1]
    yield make
    for queue in made:
        queue.close()


# -- who may configure --

def test_nobody_may_configure(start, opened):
    queue = opened(start(configure=False))
    with pytest.raises(mq.UsageError, match="this client may not configure"):
        queue.configure(visibility=5.0)
    assert queue.queues() == []         # it has not made the queue either
    queue.put(b"x")
    with pytest.raises(mq.UsageError, match="this client may not purge"):
        queue.purge()
    assert queue.configure().visibility == QueueOptions().visibility    # all may read them
    queue.get(timeout=LIMIT).ack()


@pytest.mark.parametrize("name", ["admin", "worker"])
def test_some_users_may_configure(start, opened, name):
    server = start(configure=["admin"], security=mq.security.Null(allow={os.getuid(): name}))
    queue = opened(server)
    queue.put(b"x")
    if name == "admin":
        assert queue.configure(visibility=5.0).visibility == 5.0
        assert queue.purge() == 1
    else:
        with pytest.raises(mq.UsageError, match="the user 'worker' may not purge"):
            queue.purge()
        assert queue.stats().ready == 1
        with pytest.raises(mq.UsageError, match="the user 'worker' may not configure"):
            queue.configure(visibility=5.0)


@pytest.mark.parametrize("configure", [None, 5, [5], [None]])
def test_what_says_nobody(start, configure):
    with pytest.raises(mq.OptionError, match="configure="):
        start(configure=configure)
    start().stop()                      # and the folder is free


# -- jobs that can never be stored --

@pytest.mark.parametrize("on_full", ["refuse", "block"])
@pytest.mark.parametrize("where", ["queue", "job_bytes", "bytes", "header_bytes"])
def test_a_job_that_never_fits_is_refused_for_good(start, opened, where, on_full):
    limits = {} if where == "queue" else {where: 100}
    queue = opened(start(limits=QueueLimits(**limits), defaults=QueueOptions(
        on_full=on_full, max_bytes=100 if where == "queue" else 1 << 20)))
    queue.put(b"x" * 90)
    big = {"headers": {"h": "x" * 101}} if where == "header_bytes" else {}
    with pytest.raises(journal.JobTooLarge) as caught:
        queue.put(b"x" * (90 if big else 101), **big)
    assert isinstance(caught.value, mq.UsageError) and not isinstance(caught.value, QueueFull)
    assert "100" in str(caught.value)
    assert queue.stats().put == 1


def test_a_job_that_fits_later_is_not_refused_for_good(start, opened):
    queue = opened(start(defaults=QueueOptions(max_bytes=100)))
    queue.put(b"x" * 90)
    with pytest.raises(QueueFull):
        queue.put(b"x" * 100)
    queue.get(timeout=LIMIT).ack()
    queue.put(b"x" * 100)


# -- limits of the whole server --

def test_jobs_and_bytes_of_all_queues_are_limited(start, opened):
    server = start(limits=QueueLimits(jobs=4, bytes=100))
    one, two = opened(server, "one"), opened(server, "two")
    one.put_many([b"x"] * 3)
    with pytest.raises(QueueFull, match="the queue server holds 3 jobs of 3 bytes"):
        two.put_many([b"y"] * 2)
    with pytest.raises(QueueFull, match="the queue server holds"):
        two.put(bytes(98))
    two.put(bytes(97))
    assert (server.stats().jobs, server.stats().bytes) == (4, 100)
    one.ack_many(one.get_many(3, timeout=LIMIT))
    assert (server.stats().jobs, server.stats().bytes) == (1, 97)
    two.get(timeout=LIMIT).reject(requeue=False)
    assert (server.stats().jobs, server.stats().bytes) == (1, two_bytes := one_dead(opened, server))
    assert two_bytes > 97               # a dead letter says why
    server.stop()
    with start(limits=QueueLimits(jobs=1)) as again:
        assert again.stats().bytes == two_bytes
        with pytest.raises(QueueFull):
            opened(again).put(b"x")


def one_dead(opened, server):
    return opened(server, "two.dead").stats().bytes


def test_a_put_waits_until_another_queue_has_given_space(start, opened):
    server = start(limits=QueueLimits(jobs=2), defaults=QueueOptions(on_full="block"))
    one = opened(server, "one")
    one.put_many([b"a", b"b"])
    done = threading.Event()
    producer = threading.Thread(target=lambda: (opened(server, "two").put(b"c"), done.set()))
    producer.start()
    until(lambda: opened(server, "two").stats().waiting)
    assert not done.is_set()
    one.get(timeout=LIMIT).ack()
    assert done.wait(LIMIT)
    producer.join()


# -- dead letters --

def test_circles_are_refused(start, opened):
    server = start()
    a, b, c = (opened(server, name) for name in "abc")
    a.configure(dead="b")
    b.configure(dead="c")
    with pytest.raises(mq.UsageError, match="c -> a -> b -> c"):
        c.configure(dead="a")
    with pytest.raises(mq.UsageError, match="circle"):
        b.configure(dead="a")
    c.configure(dead="c")               # its own: it keeps them
    b.configure(dead="d")


def test_a_circle_that_defaults_make_ends(start, opened):
    """a -> b is configured first; the server starts again with a default that leads back."""
    start().stop()
    with start() as server:
        opened(server, "a").configure(dead="b", max_attempts=1)
    with start(defaults=QueueOptions(dead="a", max_attempts=1)) as server:
        a, b = opened(server, "a"), opened(server, "b")
        a.put(b"poison")
        a.get(timeout=LIMIT).reject()
        for attempt in (1, 2, 3, 4):            # a has had it: it stays in b
            job = b.get(timeout=LIMIT)
            assert job.attempts == attempt
            assert [value for name, value in job.headers if name == "dead-queue"] == [b"a"]
            job.reject()
        b.get(timeout=LIMIT).reject(requeue=False)      # this discards it
        until(lambda: server.stats().jobs == 0)


def test_one_queue_for_all_dead_letters_keeps_them(start, opened):
    server = start(defaults=QueueOptions(dead="grave", max_attempts=1))
    a, grave = opened(server, "a"), opened(server, "grave")
    a.put(b"poison")
    a.get(timeout=LIMIT).reject()
    for _ in range(3):
        grave.get(timeout=LIMIT).reject()
    assert grave.get(timeout=LIMIT).attempts == 4


# -- a consumer that settles nothing --

def test_jobs_that_are_never_settled_are_forgotten(start, opened):
    server = start(defaults=QueueOptions(visibility=0.001, max_attempts=0))
    queue = opened(server)
    queue.put_many([b"%d" % i for i in range(100)])
    seen = 0
    while seen < 5 * SLACK:
        seen += len(queue.get_many(100, timeout=LIMIT))
    assert len(queue._held) <= 2 * SLACK


def test_what_is_held_and_for_how_long():
    held = Held()
    now = time.monotonic()
    held.add([(1, 1)], now - 1)
    held.add([(2, 1), (3, 2)], now + 50)
    held.add([(4, 1)], now + 300)
    held.drop(3, 2)
    usual, longer = held.claims(60.0)
    assert usual == ([2], [1], None)
    assert longer[:2] == ([4], [1]) and 290 < longer[2] <= 300
    assert len(held) == 2


# -- a stop() that is interrupted --

class Interrupted:
    """The server's thread; joins raise KeyboardInterrupt `times` times."""

    def __init__(self, thread, times):
        self.thread, self.times = thread, times

    def join(self):
        if self.times:
            self.times -= 1
            raise KeyboardInterrupt
        self.thread.join()


@pytest.mark.parametrize("times", [1, 2])
def test_stop_that_is_interrupted(start, opened, times):
    server = start()
    opened(server).put(b"x")
    server._thread = Interrupted(server._thread, times)
    with pytest.raises(KeyboardInterrupt):
        server.stop()
    if times == 2:
        with pytest.raises(journal.JournalLocked):
            start()
        server.stop()
    assert opened(start()).get(timeout=LIMIT).body == b"x"


# -- arguments --

NAN = float("nan")
WRONG = {
    "put": [lambda q: q.put(5), lambda q: q.put(b"x", delay="1"), lambda q: q.put(b"x", delay=NAN),
            lambda q: q.put(b"x", ttl=None, delay=None), lambda q: q.put(b"x", ttl=True),
            lambda q: q.put(b"x", headers=5), lambda q: q.put(b"x", headers=[("a",)]),
            lambda q: q.put(b"x", headers={"a": 5}), lambda q: q.put(b"x", headers={"a": "\ud800"}),
            lambda q: q.put(b"x", timeout="1"), lambda q: q.put(b"x", timeout=NAN),
            lambda q: q.put(b"x", sequence=-1), lambda q: q.put(b"x", sequence="1")],
    "put_many": [lambda q: q.put_many(b"xy"), lambda q: q.put_many(5), lambda q: q.put_many([5])],
    "get": [lambda q: q.get("1"), lambda q: q.get(NAN), lambda q: q.get(-1),
            lambda q: q.get_many(0, timeout=0), lambda q: q.get_many("3", timeout=0),
            lambda q: q.get_many(1 << 70, timeout=0), lambda q: q.get_many(timeout=[])],
    "settle": [lambda q: q.ack_many([5]), lambda q: q.ack_many(b"x"), lambda q: q.ack_many(5),
               lambda q: q.reject_many([None]), lambda q: q.extend_many({"a": 1}),
               lambda q: q.extend_many([], "1"), lambda q: q.extend_many([], NAN)],
    "look": [lambda q: q.peek(0), lambda q: q.peek("1")],
}


@pytest.mark.parametrize("calls", WRONG.values(), ids=WRONG)
def test_arguments_that_mean_nothing(start, opened, calls):
    """Refused at once, and nothing was put or taken."""
    queue = opened(start(), producer=7)
    queue.put(b"kept")
    for call in calls:
        with pytest.raises((mq.UsageError, mq.OptionError)):
            call(queue)
    stats = queue.stats()
    assert (stats.put, stats.ready, stats.held) == (1, 1, 0)


def test_a_job_goes_without_its_trace_where_that_is_too_much(start, opened):
    queue = opened(start(limits=QueueLimits(header_bytes=100)), timeout=LIMIT)
    before = trace.stats()["left_out"]
    with trace.span("order"):
        queue.put(b"small", headers={"a": bytes(10)})
        queue.put(b"large", headers={"a": bytes(90)})
        with pytest.raises(mq.UsageError, match="bytes of headers"):
            queue.put(b"", headers={"a": bytes(100)})
    small, large = queue.get_many(2, timeout=LIMIT)
    assert small.trace_context is not None
    assert dict(large.headers) == {"a": bytes(90)} and large.trace_context is None
    assert trace.stats()["left_out"] == before + 1


# -- a fork --

FORK = """
import os, sys
import mqcore as mq
from mqcore import journal

queue = journal.queue(sys.argv[1], "work", prefetch=5, timeout=60)
assert queue.put_many([b"0", b"1"]) == [1, 2] and queue.get(60).body == b"0"
with queue._stamps:                             # as another thread may hold it
    queue._take()                               # and another one the socket
    child = os.fork()
if not child:
    told = 0
    for call in (lambda: queue.put(b"lost"), lambda: queue.get(0), queue.stats,
                 lambda: queue.get_many(timeout=0)):
        try:
            call()
        except mq.Forked:
            told += 1
    queue.close()
    os._exit(told)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
assert queue.get(60).body == b"1" and queue.put(b"2") == 3 and queue.get(60).body == b"2"
queue.close()
"""


def test_a_forked_child_puts_nothing_under_the_numbers_of_its_parent(start):
    """The server would take what the parent puts then for a repetition, and not store it."""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", FORK, start().urls[0]],
                          capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_what_no_server_has_heard_of_is_not_waited_for(opened, start, tmp_path, ctx):
    """A consumer that asks for days while there is no server keeps nothing of it."""
    with journal.queue(f"ipc://{tmp_path}/nobody", "work", timeout=0.1, send_hwm=2,
                       context=ctx) as queue:
        for _ in range(9):
            with pytest.raises(mq.RecvTimeout):
                queue.get(timeout=0)
        assert len(queue._abandoned) <= 2       # which wait for the first connection
    queue = opened(start())
    with pytest.raises(mq.RecvTimeout):
        queue.get(timeout=0)
    assert not queue._abandoned


@pytest.mark.parametrize("bodies, headers", [([b""] * 500, None), ([b"x"], {"name": bytes(15000)})],
                         ids=["empty", "headers"])
def test_puts_of_few_bytes_that_wait_for_space_are_bounded_as_well(start, opened, bodies, headers):
    """A hostile client may send many, over many connections."""
    server = start(limits=QueueLimits(waiting_bytes=10_000))
    queue = opened(server, timeout=0.5)
    queue.configure(on_full="block", max_jobs=1)
    queue.put(b"")
    with pytest.raises(journal.JournalBusy, match="wait for room"):
        queue.put_many(bodies, headers=headers)
    queue.get(timeout=LIMIT).ack()
    assert queue.put(b"") == 2
