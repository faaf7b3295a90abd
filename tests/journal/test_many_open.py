"""More partitions than may be open at once: those that are idle make way, and nothing is lost."""

import errno
import os
import threading
from collections import Counter, defaultdict

import pytest
from journal_case import contents
from mqcore.testing.native.journal_disk import Disk, Handles
from programs import run

import mqcore as mq
from mqcore import journal
from mqcore.errors import OptionError
from mqcore.journal import multi_writer
from mqcore.journal import reader as reader_module
from mqcore.journal.server import sources

LIMIT = 60.0


def opened(where, **options):
    return journal.open(where, "a", topic_from="first-part", **options)


def open_ones(writers):
    return {(writer.topic, writer.partition) for writer in writers}


def test_each_message_is_where_it_belongs(tmp_path, rng):
    """Nine topics of four partitions, five of them open."""
    expected = defaultdict(list)
    with opened(tmp_path, partitions=4, max_open=5, segment_bytes=4096,
                block_bytes=1024) as writers:
        for i in range(400):
            topic, key = f"t{rng.randrange(9)}", b"%d" % rng.randrange(20)
            number, offset = writers.append(b"%d" % i, topic=topic, key=key)
            assert offset == len(expected[topic, number])
            expected[topic, number].append(b"%d" % i)
            assert 1 <= len(open_ones(writers)) <= 5
        assert writers.stats().segments >= len(expected) and writers.error is None
    for topic in (f"t{i}" for i in range(9)):
        for number in range(4):     # those without a message are there, too
            assert contents(tmp_path, topic=topic, partition=number) == expected[topic, number]


def test_the_one_that_was_idle_for_the_longest_time_makes_way(tmp_path):
    with opened(tmp_path, max_open=2) as writers:
        for topic in "abac":
            writers.append(b"", topic=topic)
        assert open_ones(writers) == {("a", 0), ("c", 0)}
        given = Handles()
        given.put([b"a", b"1"], [b"b", b"2"])
        assert given.give(writers) == (0, 4)
        assert open_ones(writers) == {("a", 0), ("b", 0)}
        with journal.open(tmp_path, "a", topic="c") as other:       # nobody holds it
            assert other.append(b"") == 1
        assert writers.append(b"", topic="c") == (0, 2)


def test_who_looks_at_all_of_them_uses_none(tmp_path):
    with opened(tmp_path, max_open=2) as writers:
        for topic in "aba":
            writers.append(b"", topic=topic)
        writers.commit()
        writers.flush()
        assert writers.error is None
        writers.append(b"", topic="c")
        assert open_ones(writers) == {("a", 0), ("c", 0)}


def test_looks_beside_new_topics(tmp_path):
    stop, errors = threading.Event(), []

    def look(writers):
        try:
            while not stop.is_set():
                writers.stats()
                writers.flush()
        except BaseException as error:
            errors.append(error)

    with opened(tmp_path, max_topics=300, fsync="never") as writers:
        threads = [threading.Thread(target=look, args=(writers,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for i in range(60):
            writers.append(b"", topic=f"t{i}")
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_more_partitions_than_may_be_open(tmp_path):
    with journal.open(tmp_path, "a", topic="t", partitions=7, max_open=3) as writers:
        for i in range(50):
            writers.append(b"%d" % i, key=b"%d" % i)
        assert len(open_ones(writers)) == 3
    assert sum(len(contents(tmp_path, topic="t", partition=n)) for n in range(7)) == 50


def test_a_writer_that_was_asked_for_stays_open(tmp_path):
    with opened(tmp_path, max_open=2) as writers:
        kept = writers.writer("kept")
        for topic in "abc":
            writers.append(b"1", topic=topic)
        assert kept.append(b"2") == 0 and not kept.closed
        writers.writer("a")
        with pytest.raises(journal.JournalWriteError, match="in use") as caught:
            writers.append(b"3", topic="b")
        assert "max_open" in caught.value.hint
        assert kept.append(b"4") == 1
        given = Handles()
        given.put([b"b", b"3"], [b"a", b"3"])
        assert given.give(writers) == (5, 0)        # refused


def test_duplicates_are_known_after_a_partition_was_closed(tmp_path):
    with opened(tmp_path, max_open=1, stamps=True, deduplicate=True) as writers:
        for _ in range(3):
            for topic in (b"a", b"b"):
                for sequence in range(5):
                    writers.append_parts([topic, journal.stamp(7, sequence), b"%d" % sequence])
        assert writers.duplicates == writers.stats().duplicates == 20
    for topic in "ab":
        assert contents(tmp_path, topic=topic) == [b"%d" % i for i in range(5)]


def test_a_partition_that_cannot_be_made_durable_stays(tmp_path):
    """What it has taken is not given up for another one's sake; the next one makes way."""
    disk = Disk()
    with opened(tmp_path, max_open=2, fsync="never") as writers:
        writers.append(b"1", topic="a")
        disk.attach(next(iter(writers)))
        writers.append(b"2", topic="b")
        disk.fail(room=0)
        writers.append(b"3", topic="c")
        assert open_ones(writers) == {("a", 0), ("c", 0)}
        disk.fail(room=-1)
        writers.append(b"4", topic="b")
        writers.append(b"5", topic="a")
    assert [contents(tmp_path, topic=t) for t in "abc"] == [[b"1", b"5"], [b"2", b"4"], [b"3"]]


@pytest.mark.parametrize("most", [1, 2])
def test_a_full_disk_holds_back_what_finds_no_room(tmp_path, most):
    """The message of a partition that was closed is not refused: it waits with the others."""
    with opened(tmp_path, max_open=most, fsync="never") as writers:
        for topic in "abc"[:most + 1]:
            writers.append(b"1", topic=topic)
        disks = [Disk() for _ in range(most)]
        for disk, writer in zip(disks, writers, strict=True):
            disk.attach(writer)
            disk.fail(room=0)
            writer.append(b"2")
        given = Handles()
        given.put([b"a", b"3"])
        assert given.give(writers) == (10, 0)
        with pytest.raises(journal.JournalFull):
            writers.append(b"3", topic="a")
        for disk in disks:
            disk.fail(room=-1)
        writers.commit()
        assert given.give(writers) == (0, 2)
    assert contents(tmp_path, topic="a") == [b"1", b"3"]


def test_a_commit_that_a_handler_has_interrupted(tmp_path):
    """Who wants its partition closed does not wait for it for ever."""
    with opened(tmp_path, max_open=1) as writers:
        writers.append(b"1", topic="a")
        name = b"a"
        assert writers._retire(0) == (name, 0)
        assert writers._borrow(name, 0, leaving=True)
        assert not writers._remove(name, 0, 0.0)
        writers._restore(name, 0)
        writers._give_back(name, 0)
        assert writers._retire(0) == (name, 0)      # and an exception comes in between
        writers.append(b"2", topic="b")
        writers.append(b"2", topic="a")
    assert contents(tmp_path, topic="a") == [b"1", b"2"]


def test_a_thread_that_finds_a_topic_as_soon_as_it_is_there(tmp_path, monkeypatch):
    """It may be between any two steps of the thread that opens it."""
    real, found = multi_writer.MultiWriter._take_in, []

    def take_in(self, name, writer):
        real(self, name, writer)
        found.append(self._hold(name.decode(), writer.partition))
        self._give_back(name, writer.partition)
    monkeypatch.setattr(multi_writer.MultiWriter, "_take_in", take_in)
    with opened(tmp_path, partitions=3) as writers:
        writers.append(b"1", topic="a")
        assert {writer.partition for writer in found} == {0, 1, 2}


def test_close_in_a_handler_while_a_topic_is_opened(tmp_path, monkeypatch):
    real = multi_writer.Writer
    writers = opened(tmp_path, partitions=2)
    writers.append(b"1", topic="a")

    def closed_meanwhile(*args, **how):
        made = real(*args, **how)
        writers.close()
        return made
    monkeypatch.setattr(multi_writer, "Writer", closed_meanwhile)
    with pytest.raises(journal.JournalClosed):
        writers.append(b"1", topic="b")
    monkeypatch.undo()
    with journal.open(tmp_path, "a", topic="b", partitions=2) as others:
        assert others.append(b"1") == (0, 0)


def test_one_that_has_given_up_is_not_taken_for_well(tmp_path):
    disk = Disk()
    with opened(tmp_path, max_open=2, fsync="never") as writers:
        writers.append(b"1", topic="a")
        disk.attach(next(iter(writers)))
        disk.fail(bad_syncs=1)
        for topic in "bcd":
            writers.append(b"2", topic=topic)
        assert ("a", 0) in open_ones(writers)
        assert isinstance(writers.error, journal.JournalWriteError)
        with pytest.raises(journal.JournalWriteError):
            writers.commit()
        given = Handles()
        given.put([b"a", b"3"])
        assert given.give(writers) == (5, 0)
        given = Handles()
        given.put([b"b", b"3"])
        assert given.give(writers) == (0, 2)
        with pytest.raises(journal.JournalWriteError):
            writers.close()


def test_a_partition_that_another_process_took_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr("mqcore.journal.store.many.AGAIN", 0.0)
    with opened(tmp_path, max_open=1) as writers:
        writers.append(b"1", topic="a")
        writers.append(b"1", topic="b")
        with journal.open(tmp_path, "a", topic="a") as other:
            other.append(b"2")
            with pytest.raises(journal.JournalLocked):
                writers.append(b"3", topic="a")
            given = Handles()
            given.put([b"a", b"3"])
            assert given.give(writers) == (5, 0)
            writers.append(b"3", topic="b")
        writers.append(b"4", topic="a")
    assert contents(tmp_path, topic="a") == [b"1", b"2", b"4"]
    assert contents(tmp_path, topic="b") == [b"1", b"3"]


class Crowd:
    """Threads that append, ask a device to, and look; each notes its error."""

    def __init__(self, writers, ctx):
        self.writers, self.ctx = writers, ctx
        self.errors = []
        self.stop = threading.Event()
        self.threads = []

    def start(self, work, *args):
        def run():
            try:
                work(*args)
            except BaseException as error:
                self.errors.append(error)
        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def append(self, who):
        for i in range(40):
            self.writers.append(b"%d:%d" % (who, i), topic=f"t{(7 * i + who) % 10}")

    def ask(self, front, who):
        with mq.Req(context=self.ctx, connect=front.endpoints[0].url, recv_timeout=LIMIT) as req:
            for i in range(40):
                req.send_parts([b"t%d" % ((3 * i + who) % 10), b"%d:%d" % (who, i)])
                assert journal.stored_at(req.recv())[0] == 0

    def look(self):
        while not self.stop.wait(0.01):
            self.writers.commit()
            self.writers.flush()
            assert self.writers.stats().blocks >= 0 and self.writers.error is None

    def join(self):
        *working, looking = self.threads
        for thread in working:
            thread.join()
        self.stop.set()
        looking.join()
        assert self.errors == []


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_devices_threads_and_commits_at_once(ctx, tmp_path, fsync):
    """Ten topics, three open: two devices and two threads append, one commits and looks."""
    with opened(tmp_path, max_open=3, fsync=fsync) as writers:
        fronts = [mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") for _ in range(2)]
        devices = [mq.device(front, writers) for front in fronts]
        crowd = Crowd(writers, ctx)
        for who, front in enumerate(fronts, 3):
            crowd.start(crowd.append, who - 2)
            crowd.start(crowd.ask, front, who)
        crowd.start(crowd.look)
        crowd.join()
        for device, front in zip(devices, fronts, strict=True):
            device.stop()
            front.close()
    found = [contents(tmp_path, topic=f"t{i}") for i in range(10)]
    assert sorted(sum(found, [])) == sorted(b"%d:%d" % (who, i) for who in (1, 2, 3, 4)
                                            for i in range(40))
    for rows in found:          # each sender's in order
        for who in (1, 2, 3, 4):
            mine = [int(row.split(b":")[1]) for row in rows if row.startswith(b"%d:" % who)]
            assert mine == sorted(mine)


def test_close_beside_those_that_open(tmp_path):
    for _ in range(20):
        writers = opened(tmp_path, max_open=2)
        accepted = Counter()
        barrier = threading.Barrier(3)

        def append(who, writers=writers, accepted=accepted, barrier=barrier):
            barrier.wait()
            try:
                for i in range(1000):
                    writers.append(b"%d" % who, topic=f"t{(i + who) % 4}")
                    accepted[who] += 1
            except journal.JournalClosed:
                pass

        threads = [threading.Thread(target=append, args=(who,)) for who in (1, 2)]
        for thread in threads:
            thread.start()
        before = sum(len(contents(tmp_path, topic=f"t{i}")) for i in range(4)
                     if (tmp_path / f"t{i}").exists())
        barrier.wait()
        writers.close()
        for thread in threads:
            thread.join()
        assert open_ones(writers) == set() or all(writer.closed for writer in writers)
        assert sum(len(contents(tmp_path, topic=f"t{i}")) for i in range(4)
                   if (tmp_path / f"t{i}").exists()) - before == sum(accepted.values())


def test_a_signal_handler_that_opens_others(tmp_path):
    status, out, err = run("-c", """
import random, signal, sys
from mqcore import journal
taken = [0]
with journal.open(sys.argv[1], "a", topic_from="first-part", max_open=2) as writers:
    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        for topic in ("a", "b", "h"):
            try:
                writers.append(b"handler", topic=topic)
                taken[0] += 1
            except journal.JournalBusy:     # the call that it interrupts is opening another
                pass
        writers.commit()
        signal.setitimer(signal.ITIMER_REAL, 0.05 * random.random())
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05 * random.random())
    own = 0
    while taken[0] < 60:
        writers.append(b"own", topic="ab"[own % 2])
        own += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    print(own, taken[0])
""", tmp_path)
    assert status == 0, err
    own, taken = map(int, out.split())
    found = Counter(m for topic in "abh" for m in contents(tmp_path, topic=topic))
    assert found == {b"own": own, b"handler": taken}


def test_a_forked_child_lets_go_of_those_that_are_open(tmp_path):
    with opened(tmp_path, max_open=2) as writers:
        for topic in "abc":
            writers.append(b"1", topic=topic)
        pid = os.fork()
        if not pid:
            try:
                writers.append(b"2", topic="a")
            except mq.Forked:
                writers.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        writers.append(b"3", topic="a")
    assert [contents(tmp_path, topic=t) for t in "abc"] == [[b"1", b"3"], [b"1"], [b"1"]]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", True, (1 << 20) + 1])
def test_limits_that_cannot_be(tmp_path, wrong):
    with pytest.raises(OptionError, match="max_open"):
        opened(tmp_path, max_open=wrong)


def test_a_server_without_descriptors_closes_what_nobody_reads(ctx, tmp_path, monkeypatch):
    real, limit = sources.Source, [2]
    with opened(tmp_path) as writers:
        for topic in "abc":
            writers.append(topic.encode(), topic=topic)

    def source(key, path):
        if len(server._sources) >= limit[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(key, path)

    with journal.serve(tmp_path, f"ipc://{tmp_path}/s", context=ctx) as server:
        monkeypatch.setattr(sources, "Source", source)
        for _ in range(2):
            for topic in "abc":
                with journal.open(server.urls[0], topic=topic, timeout=LIMIT,
                                  context=ctx) as reader:
                    assert [m for records in reader.batches() for m in records] == [topic.encode()]
        limit[0] = 0
        with pytest.raises(journal.JournalBusy, match="opens no more partitions"):
            journal.open(server.urls[0], topic="a", timeout=0.2, context=ctx)
        with pytest.raises(journal.JournalNotFound):
            limit[0] = 2
            journal.open(server.urls[0], topic="d", timeout=LIMIT, context=ctx)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"),
                                   OSError(errno.ENOMEM, "Cannot allocate memory"), MemoryError()],
                         ids=["descriptors", "maps", "memory"])
@pytest.mark.parametrize("how", ["read", "stream"])
def test_a_shortage_of_the_moment_ends_no_reader(ctx, tmp_path, serve, monkeypatch, error, how):
    """The server opens the next segment when it comes to it, and other parts of its process may
    have all descriptors just then."""
    with journal.open(tmp_path, "a") as log:
        for i in range(3):
            log.append(b"%d" % i)
            log.rotate()
    real, left = reader_module.Segment, [2]

    def scarce(folder, first, *more):
        if first == 1 and left[0]:
            left[0] -= 1
            raise error
        return real(folder, first, *more)

    server = serve(tmp_path)
    with journal.open(server.urls[0], topic="default", context=ctx, timeout=60) as reader:
        monkeypatch.setattr(reader_module, "Segment", scarce)
        if how == "read":
            assert [reader.read(i, max_bytes=1).to_list() for i in range(3)] == [[b"0"], [b"1"],
                                                                              [b"2"]]
        else:
            assert [m for records in reader.batches(0, 3) for m in records] == [b"0", b"1", b"2"]
    assert left == [0] and server.stats().failed == 0 and server.stats().refused
