"""Queues over a server, as programs use them. test_queues_model has the states and their changes;
here it is the way there and back, blocking and awaited, in one process."""

import asyncio
import threading

import pytest
from mqcore.testing.native.journal_disk import Disk
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal import JobLost, QueueFull, QueueLimits, QueueOptions

LIMIT = 60.0


@pytest.fixture
def start(ctx, tmp_path):
    """start(...) -> a queue server of the test's folder, which stops after the test."""
    made = []

    def make(bind="ipc://{}/q", **how):
        for server in made:
            server.stop()
        made.append(journal.serve_queues(tmp_path / "j", bind.format(tmp_path), context=ctx, **how))
        return made[-1]
    yield make
    for server in made:
        server.stop()


@pytest.fixture
def opened(ctx):
    """opened(server, name, ...) -> a Queue that is closed after the test."""
    made = []

    def make(server, name="work", **how):
        made.append(journal.queue(server.urls[0], name, **{"timeout": LIMIT, **how}, context=ctx))
        return made[-1]
    yield make
    for queue in made:
        queue.close()


def test_there_and_back(start, opened):
    queue = opened(start())
    number = queue.put(b"hello", headers={"type": "greeting", "raw": b"\xff"})
    job = queue.get(timeout=LIMIT)
    assert (job.id, job.body, job.attempts, job.redelivered) == (number, b"hello", 1, False)
    assert job.headers == [("type", b"greeting"), ("raw", b"\xff")]
    assert 0 < job.left <= 60
    job.ack()
    assert job.settled
    stats = queue.stats()
    assert (stats.put, stats.delivered, stats.acknowledged) == (1, 1, 1)
    assert (stats.ready, stats.held, stats.bytes) == (0, 0, 0)


def test_awaited(start, opened):
    async def work():
        async with opened(start()) as queue:
            assert len(await queue.aput_many([b"a", b"b", b"c"])) == 3
            async with await queue.aget(timeout=LIMIT) as job:
                assert job.body == b"a"
            jobs = await queue.aget_many(10, timeout=LIMIT)
            assert [job.body for job in jobs] == [b"b", b"c"]
            await jobs[0].aextend(5.0)
            await jobs[0].areject(requeue=False)
            await jobs[1].areject(delay=1e6)
            stats = await queue.astats()
            assert (stats.ready, stats.delayed, stats.dead) == (0, 1, 1)
            assert await queue.aqueues() == ["work", "work.dead"]
            assert await queue.apurge() == 1
            assert (await queue.aconfigure(visibility=5.0)).visibility == 5.0
    asyncio.run(work())


def test_a_cancelled_get_loses_no_job(start, opened):
    async def work():
        queue = opened(start())
        for _ in range(5):
            waiting = asyncio.create_task(queue.aget())
            while not (await queue.astats()).waiting:
                await asyncio.sleep(0.001)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            number = await queue.aput(b"x")
            job = await queue.aget(timeout=LIMIT)
            assert job.id == number
            await job.aack()
        assert (await queue.astats()).delivered == 5
    asyncio.run(work())


def test_iteration_ends_with_close(start, opened):
    server = start()
    queue, producer = opened(server, prefetch=10), opened(server)
    producer.put_many([b"%d" % i for i in range(25)])
    seen = []
    for job in queue:
        seen.append(job.body)
        job.ack()
        if len(seen) == 25:
            threading.Timer(0.05, queue.close).start()
    assert seen == [b"%d" % i for i in range(25)]


def test_what_was_prefetched_goes_back_untouched(start, opened):
    server = start()
    opened(server).put_many([b"a", b"b", b"c"])
    with opened(server, prefetch=3) as queue:
        queue.get(timeout=LIMIT).ack()
    other = opened(server)
    jobs = [other.get(timeout=LIMIT) for _ in range(2)]
    assert [(job.body, job.attempts) for job in jobs] == [(b"b", 1), (b"c", 1)]


def test_with_a_job(start, opened):
    queue = opened(start())
    queue.put(b"x")
    with pytest.raises(ZeroDivisionError), queue.get(timeout=LIMIT):
        raise ZeroDivisionError
    with queue.get(timeout=LIMIT) as job:
        assert job.redelivered
    assert queue.stats().acknowledged == 1


def test_time_outs_and_dead_letters(start, opened):
    server = start(defaults=QueueOptions(visibility=0.05, max_attempts=2))
    queue = opened(server)
    number = queue.put(b"poison", headers={"a": "1"})
    first = queue.get(timeout=LIMIT)
    second = queue.get(timeout=LIMIT)           # waits for the first one's time-out
    assert (first.id, second.attempts) == (second.id, 2)
    with pytest.raises(JobLost, match="no longer holds") as caught:
        first.ack()
    assert caught.value.ids == (number,)
    dead = opened(server, "work.dead").get(timeout=LIMIT)
    headers = dict(dead.headers)
    assert dead.body == b"poison" and dead.attempts == 1 and headers["a"] == b"1"
    assert headers["dead-reason"] == b"2 attempts, the last one timed_out"
    assert (headers["dead-queue"], int(headers["dead-id"])) == (b"work", number)
    stats = queue.stats()
    assert (stats.timed_out, stats.dead, stats.held) == (2, 1, 0)


def test_a_lost_link_gives_jobs_back(start, opened):
    server = start(defaults=QueueOptions(grace=0.0))
    queue = opened(server)
    queue.put(b"x")
    lost = opened(server)
    lost.get(timeout=LIMIT)
    lost.close()
    job = queue.get(timeout=LIMIT)
    assert job.redelivered
    job.ack()
    assert queue.stats().abandoned == 1


def test_priorities_delays_and_expiry(start, opened):
    queue = opened(start())
    queue.put(b"late", delay=0.2)
    queue.put(b"never", ttl=0.05, priority=16)
    queue.put(b"usual")
    queue.put(b"first", priority=1)
    jobs = [queue.get(timeout=LIMIT) for _ in range(2)]
    until(lambda: queue.stats().expired)
    jobs.append(queue.get(timeout=LIMIT))
    assert [job.body for job in jobs] == [b"first", b"usual", b"late"]


def test_a_full_queue_refuses(start, opened):
    queue = opened(start(defaults=QueueOptions(max_jobs=2)))
    queue.put_many([b"a", b"b"])
    with pytest.raises(QueueFull, match="2 jobs"):
        queue.put(b"c")
    assert queue.stats().refused == 1
    assert queue.configure(max_jobs=3).max_jobs == 3
    queue.put(b"c")


def test_a_full_queue_blocks(start, opened):
    server = start(defaults=QueueOptions(max_jobs=2, on_full="block"))
    queue = opened(server)
    queue.put_many([b"a", b"b"])
    with pytest.raises(QueueFull, match=r"no room within 0\.05 s"):
        queue.put(b"c", timeout=0.05)
    done = threading.Event()
    producer = threading.Thread(target=lambda: (opened(server).put(b"d"), done.set()))
    producer.start()
    until(lambda: queue.stats().waiting)
    assert not done.is_set()
    queue.get(timeout=LIMIT).ack()
    assert done.wait(LIMIT)
    producer.join()


def test_a_put_without_a_time_out_waits_for_ever(start, opened, monkeypatch):
    monkeypatch.setattr("mqcore.journal.queues.client.LONGEST", 0.01)
    queue = opened(start(defaults=QueueOptions(max_jobs=1, on_full="block")))
    queue.put(b"a")
    done = threading.Event()
    producer = threading.Thread(target=lambda: (queue.put(b"b", timeout=None), done.set()))
    producer.start()
    until(lambda: queue.stats().waiting)
    with pytest.raises(QueueFull):
        queue.put(b"c", timeout=0.2)
    assert queue.stats().waiting == 1 and not done.is_set()
    queue.get(timeout=LIMIT).ack()
    assert done.wait(LIMIT)
    producer.join()


def test_a_put_that_waits_while_many_others_pass(start, opened):
    """The server remembers the last 64 stamps of a producer, and refuses older ones."""
    queue = opened(start(defaults=QueueOptions(max_jobs=50, on_full="block")))
    queue.put_many([b"old"] * 40)
    ids = []
    producer = threading.Thread(target=lambda: ids.extend(queue.put_many([b"large"] * 20)))
    producer.start()
    until(lambda: queue.stats().waiting)
    for _ in range(100):
        queue.put(b"small", priority=1)
        queue.get(timeout=LIMIT).ack()
    queue.ack_many(queue.get_many(40, timeout=LIMIT))
    producer.join(LIMIT)
    assert len(ids) == 20 and queue.stats().put == 160


def test_looking_at_a_queue(start, opened):
    queue = opened(start())
    assert queue.stats().put == 0 and queue.queues() == [] and queue.peek() == []
    queue.put_many([b"a", b"b"])
    assert [job.body for job in queue.peek(5)] == [b"a", b"b"]
    assert queue.stats().delivered == 0
    assert queue.purge() == 2
    with pytest.raises(mq.RecvTimeout, match="no job in the queue 'work'"):
        queue.get(timeout=0)


@pytest.mark.parametrize("how", [{"priority": 0}, {"priority": 17}, {"delay": -1}, {"ttl": 0}])
def test_wrong_options_of_a_put(start, opened, how):
    queue = opened(start())
    with pytest.raises(mq.OptionError, match=next(iter(how))):
        queue.put(b"x", **how)
    with pytest.raises(TypeError, match="encode"):
        queue.put("text")


def test_limits_of_a_server(start, opened):
    server = start(limits=QueueLimits(job_bytes=100, queues=1, header_bytes=50, held=2))
    queue = opened(server, timeout=0.3)
    with pytest.raises(mq.UsageError, match="101 bytes"):
        queue.put(bytes(101))
    with pytest.raises(mq.UsageError, match="bytes of headers"):
        queue.put(b"", headers={"a": bytes(50)})
    queue.put_many([b"x"] * 5)
    with pytest.raises(journal.JournalBusy, match="1 queues, its limit"):
        opened(server, "other", timeout=0.3).put(b"x")
    assert len(queue.get_many(10, timeout=LIMIT)) == 2
    with pytest.raises(mq.RecvTimeout):     # it has as many as it may
        queue.get(timeout=0.05)


def test_answers_to_anything(start, ctx, rng):
    """Whatever a peer sends is answered, and the server goes on."""
    from mqcore.journal.queues import requests

    server = start()
    good = requests.encode(requests.Put(1, 7, "q", 1, 1, 0, 0.0, [b"x"]))
    with mq.Dealer(connect=server.urls[0], context=ctx) as peer:
        for _ in range(300):
            raw = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            peer.send(bytes(raw[:rng.randint(0, len(raw))]))
            requests.decode_answer(peer.recv(timeout=LIMIT))
        for parts in ([b"", b"x"], [good, good]):
            peer.send_parts(parts)
            number, status, error = requests.decode_answer(peer.recv(timeout=LIMIT))
            assert (number, status, error["code"]) == (None, requests.ERROR, "usage")
        peer.send(requests.encode(("put", 2, 9)))
        number, status, error = requests.decode_answer(peer.recv(timeout=LIMIT))
        assert (number, status) == (9, requests.ERROR) and "version 2" in error["text"]
    stats = server.stats()
    assert stats.failed == 0 and stats.malformed > 100
    assert stats.requests == stats.answered + stats.errors + stats.dropped + stats.waiting


def test_headers_that_are_none(start, opened, ctx):
    """They would fail long after the put, when the job becomes a dead letter."""
    from mqcore.journal.queues import requests

    server = start(defaults=QueueOptions(visibility=0.05, max_attempts=1))
    queue = opened(server, "q")
    with mq.Dealer(connect=server.urls[0], context=ctx) as peer:
        for number, bad in enumerate((b"\xc1", b"\x05", b"\x91\x01", b"\x91\x92\x01\xc4\x00",
                                      b"\x91" * 9000)):
            peer.send(requests.encode(requests.Put(1, number, "q", 0, 0, 0, 0.0, [b"x"],
                                                   headers=bad)))
            answer = requests.decode_answer(peer.recv(timeout=LIMIT))
            assert answer[:2] == [number, requests.ERROR] and answer[2]["code"] == "usage"
    queue.put(b"good", headers={"a": b"1"})
    assert queue.get(timeout=LIMIT).headers == [("a", b"1")]
    until(lambda: queue.stats().dead == 1)
    assert server.running and server.stats().failed == 0


def test_exposed_addresses_need_keys(start):
    with pytest.raises(mq.UsageError, match="exposed to the network"):
        start("tcp://0.0.0.0:0")
    assert start("tcp://0.0.0.0:0", insecure=True).running


def test_a_folder_has_one_server(start, tmp_path, ctx):
    start()
    with pytest.raises(journal.JournalLocked):
        journal.serve_queues(tmp_path / "j", "inproc://second", context=ctx)


# -- what survives ---------------------------------------------------------------------------------


def test_a_server_that_is_stopped_and_started(start, opened):
    """Jobs, attempts, headers, options, delays and what consumers hold are as before."""
    queue = opened(start("ipc://{}/a"), prefetch=1)
    queue.configure(max_attempts=7)
    queue.put(b"a", headers={"x": "y"})
    queue.put(b"b", delay=1e6)
    queue.put(b"c", priority=1)
    held, again = queue.get(timeout=LIMIT), queue.get(timeout=LIMIT)
    again.reject()
    server = start("ipc://{}/a")
    held.ack()                                          # from before the restart
    queue = opened(server)
    job = queue.get(timeout=LIMIT)
    assert (job.body, job.attempts, job.headers) == (b"a", 2, [("x", b"y")])
    stats = queue.stats()
    assert (stats.ready, stats.held, stats.delayed) == (0, 1, 1)
    assert queue.configure().max_attempts == 7


def test_a_put_that_is_repeated_is_stored_once(start, opened):
    """Also by a producer that was started again, and to a server that was."""
    for bind in ("ipc://{}/a", "ipc://{}/b"):
        queue = opened(start(bind), producer=77)
        ids = [queue.put(b"%d" % i, sequence=i) for i in range(10)]
        assert [queue.put(b"%d" % i, sequence=i) for i in range(10)] == ids
        assert queue.stats().ready == 10
    with pytest.raises(mq.UsageError, match="producer="):
        opened(start()).put(b"x", sequence=1)


def test_bodies_beyond_memory_are_read_from_disk(start, opened):
    server = start(limits=QueueLimits(memory=1000))
    queue = opened(server)
    bodies = [b"%d" % i * 50 for i in range(100)]
    queue.put_many(bodies)
    assert server.stats().spilled > 80
    assert [job.body for job in queue.peek(100)] == bodies
    found = []
    while len(found) < 100:
        jobs = queue.get_many(7, timeout=LIMIT)
        found += [job.body for job in jobs]
        queue.ack_many(jobs)
    assert found == bodies
    assert (server.stats().memory, server.stats().spilled) == (0, 0)


def test_the_files_stay_small(start, opened):
    """One old job does not keep the files of all that come after it."""
    server = start(segment_bytes=1 << 16)
    queue = opened(server)
    queue.put(b"old", delay=1e6)
    for _ in range(60):
        queue.put_many([bytes(1000)] * 20)
        queue.ack_many(queue.get_many(20, timeout=LIMIT))
    until(lambda: server.stats().moved and server.stats().stored < 4 << 16)
    old = queue.stats()
    assert (old.delayed, old.acknowledged) == (1, 1200)
    assert opened(start(segment_bytes=1 << 16)).stats().delayed == 1


def test_compressed(start, opened, tmp_path):
    """Jobs stay what they are, also for a server without it."""
    bodies, sizes = [b"resize %d.png to 800x600" % i * 10 for i in range(1000)], [0]
    for name, how in (("plain", {}), ("packed", {"compression": "zstd"})):
        server = start(**how)
        opened(server, name).put_many(bodies, headers={"by": "me"})
        server.stop()
        sizes.append(sum(file.stat().st_size for file in (tmp_path / "j").rglob("*.mqj")))
    assert sizes[2] - sizes[1] < sizes[1] / 2
    queue = opened(start(), "packed")
    assert [job.body for job in queue.get_many(1000, timeout=LIMIT)] == bodies


def test_a_full_disk_is_waited_for(start, opened, monkeypatch):
    """What cannot be stored is not answered, until it is; nobody puts it twice."""
    server, disk = start(), Disk()
    queue = opened(server)
    queue.put(b"a")
    disk.attach(server._store.writer)
    disk.fail(room=0)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (queue.put(b"b"), done.set()))
    thread.start()
    until(lambda: server.error)
    with pytest.raises(journal.JournalFull):
        opened(server, timeout=0.3).put(b"c")
    assert not done.is_set()
    disk.fail(room=-1)
    assert done.wait(LIMIT)
    thread.join()
    assert server.error is None and queue.stats().ready == 2


def test_a_disk_that_is_full_when_a_lease_ends(start, opened):
    """The dead letters do not fit into the writer's buffer. They wait, and the server runs on."""
    server = start(defaults=QueueOptions(max_attempts=1),
                   limits=QueueLimits(memory=1 << 20))
    queue, dead = opened(server), opened(server, "work.dead")
    bodies = [bytes([number]) * 900_000 for number in range(8)]
    for body in bodies:
        queue.put(body)
    held = [queue.get(timeout=LIMIT) for _ in bodies]
    assert len(held) == 8
    disk = Disk()
    disk.attach(server._store.writer)
    disk.fail(room=0)
    queue.extend_many(held, 0.01)
    until(lambda: server.error)
    until(lambda: server._store._late)
    with pytest.raises(journal.JournalFull):
        opened(server, timeout=0.3).put(b"c")
    assert server.running
    disk.fail(room=-1)
    assert sorted(dead.get(timeout=LIMIT).body for _ in bodies) == bodies
    assert server.error is None and queue.stats().bytes == 0
    jobs = start()._store.book.jobs.values()
    assert [entry.queue.name for entry in jobs] == ["work.dead"] * 8


def test_a_body_that_cannot_be_read_yet(start, opened):
    """A record that is not written has its bodies beyond memory nowhere else."""
    server = start(defaults=QueueOptions(max_attempts=1), limits=QueueLimits(memory=1))
    queue, dead = opened(server), opened(server, "work.dead")
    queue.put(b"body")
    mine = queue.get(timeout=LIMIT)
    load, failed = server._store.book._load, []

    def fails(entry):
        if len(failed) < 2:
            failed.append(entry.id)
            raise journal.JournalFull("no space left")
        return load(entry)
    server._store.book._load = fails
    job = server._store.book.jobs[1]        # it was read for its consumer: as if it had not been
    server._store.book.memory -= job.size
    server._store.book.spilled += 1
    job.body = None
    mine.extend(0.01)
    assert dead.get(timeout=LIMIT).body == b"body"
    assert len(failed) == 2 and server.running


def test_a_disk_that_is_full_when_the_files_are_tidied(start, opened, monkeypatch):
    server = start(segment_bytes=4096)
    store, asked = server._store, []

    def commit():
        asked.append(1)
        raise journal.JournalFull("no space left")
    queue = opened(server)
    monkeypatch.setattr(store._reader, "commit_offset", lambda *_: commit())
    for _ in range(5):
        queue.put(bytes(3000))
        queue.get(timeout=LIMIT).ack()
    until(lambda: len(asked) > 1)
    queue.put(b"goes on")
    assert server.running and server.error is None


@pytest.mark.parametrize("fsync", ["always", "never"])
def test_policies(start, opened, fsync):
    server = start(fsync=fsync)
    queue = opened(server)
    queue.put(b"x")
    writer = server._store.writer
    assert writer.written == writer.next
    assert (writer.durable == writer.next) == (fsync == "always")
