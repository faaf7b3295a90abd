"""Appending: from many threads, from arrays; the lock; rotation and retention; life and end."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from journal_case import arrays, contents, numbered, segment_files
from waiting import until

from mqcore import journal
from mqcore.errors import Forked, MessageTooLarge, OptionError, UsageError
from mqcore.journal.errors import JournalClosed, JournalLocked


def test_offsets(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        assert writer.append(b"a") == 0
        assert writer.append_many([b"b", bytearray(b"c"), memoryview(b"d")]) == range(1, 4)
        assert writer.append_batch(b"efg", [0, 1, 1, 3]) == range(4, 7)
        assert writer.append_many([]) == range(7, 7) == writer.append_batch(b"", [0])
        assert writer.next == 7
    with journal.open(tmp_path, "a") as writer:
        assert writer.append(np.arange(3, dtype=np.uint8)) == 7
    assert contents(tmp_path) == [b"a", b"b", b"c", b"d", b"e", b"", b"fg", b"\0\1\2"]


@pytest.mark.parametrize("size", [3, 700, 70_000])
@pytest.mark.parametrize("keyed", [False, True])
def test_arrays_of_every_size(tmp_path, size, keyed, rng):
    """Below and above what is written from where it lies, blocks smaller than a message too."""
    messages = numbered(0, 200, rng) + [b"z" * size] * 30 + [b"", b""]
    data, ends = arrays(messages)
    times = np.arange(len(messages), dtype=np.int64) * 10
    with journal.open(tmp_path, "a", block_bytes=16384) as writer:
        writer.append(b"first", time=0)
        writer.append_batch(data, ends, times=times.view("datetime64[us]"),
                            keys=(data, ends) if keyed else None)
        writer.append_batch(data, ends.astype(np.int32)[50:100], times=7.5)
    assert contents(tmp_path) == [b"first", *messages, *messages[50:99]]
    with journal.open(tmp_path) as reader:
        got = np.concatenate([r._microseconds for r in reader.batches()])
        assert got.tolist() == [0, *times, *[7500000] * 49]
        keys = [r.key(i) for r in reader.batches() for i in range(len(r))]
        assert keys == [None, *(messages if keyed else [None] * len(messages)), *[None] * 49]


def test_a_batch_of_a_socket(tmp_path, ctx):
    pull = ctx.socket("pull", bind="inproc://journal-batch")
    push = ctx.socket("push", connect="inproc://journal-batch")
    push.send_many([b"a", b"bc", b""])
    with journal.open(tmp_path, "a") as writer:
        left = 3
        while left:
            left -= len(writer.append_batch(pull.recv_batch()))
    assert contents(tmp_path) == [b"a", b"bc", b""]


@pytest.mark.parametrize("offsets", [[], [0, 5], [-1, 2], [2, 1], [0, 3, 2]])
def test_wrong_offsets_are_refused(tmp_path, offsets):
    with journal.open(tmp_path, "a") as writer:
        with pytest.raises(UsageError):
            writer.append_batch(b"abc", offsets)
        with pytest.raises(UsageError):
            writer.append_batch(b"abc", [0, 3], keys=(b"", [0]))
        assert writer.next == 0


def test_text_is_refused(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        for call in (lambda: writer.append("a"), lambda: writer.append_many(["a"]),
                     lambda: writer.append_batch("a", [0, 1]), lambda: writer.append(b"", key="k")):
            with pytest.raises(UsageError):
                call()
        assert writer.next == 0


def test_a_message_may_be_larger_than_a_block_and_a_segment(tmp_path):
    huge = bytes(3 << 20)
    with journal.open(tmp_path, "a", block_bytes=4096, segment_bytes=65536) as writer:
        writer.append(b"a")
        writer.append(huge)
        writer.append_many([b"b", huge])
        writer.append_batch(huge + b"c", [0, len(huge), len(huge) + 1])
    assert contents(tmp_path) == [b"a", huge, b"b", huge, huge, b"c"]


def test_too_large(tmp_path):
    class Sized:        # a batch whose arrays only look so large
        data = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 31,), (0,))
    with journal.open(tmp_path, "a") as writer:
        with pytest.raises((MessageTooLarge, UsageError)):
            writer.append_batch(Sized.data, [0, 1 << 31])
        assert writer.next == 0


def test_many_threads(tmp_path):
    """Every message once, each thread's in order, and commits shared."""
    threads, each = 8, 200

    def work(k):
        for i in range(each):
            writer.append(b"%d %d" % (k, i))
    with journal.open(tmp_path, "a", fsync="always", segment_bytes=1 << 14) as writer:
        gang = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
        [t.start() for t in gang]
        [t.join() for t in gang]
        assert writer.durable == threads * each
    pairs = [tuple(map(int, m.split())) for m in contents(tmp_path)]
    for k in range(threads):
        assert [i for who, i in pairs if who == k] == list(range(each))
    assert len(pairs) == threads * each


def test_interval_commits_by_itself(tmp_path):
    with journal.open(tmp_path, "a", fsync_interval=0.01) as writer:
        writer.append(b"x")
        with journal.open(tmp_path) as reader:
            next(reader.follow(0, timeout=30))
        while writer.durable < 1:
            pass


# -- one writer ------------------------------------------------------------------------------------

def test_two_writers_are_refused(tmp_path):
    with journal.open(tmp_path, "a"):
        with pytest.raises(JournalLocked) as caught:
            journal.open(tmp_path, "a")
        assert caught.value.pid == os.getpid()
        program = ("import sys\nfrom mqcore import journal\n"
                   "try: journal.open(sys.argv[1], 'a')\n"
                   "except journal.JournalLocked as e: print(e.pid)")
        answer = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True)
        assert int(answer.stdout) == os.getpid()
        journal.open(tmp_path, "a", partition=1).close()
    journal.open(tmp_path, "a").close()


def test_a_forked_child_cannot_write_and_does_not_keep_the_lock(tmp_path):
    writer = journal.open(tmp_path, "a", fsync="always")
    writer.append(b"parent")
    child = os.fork()
    if child == 0:
        try:
            writer.append(b"child")
        except Forked:
            writer.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(JournalLocked):
        journal.open(tmp_path, "a")
    writer.append(b"again")
    writer.close()
    assert contents(tmp_path) == [b"parent", b"again"]


def test_closed(tmp_path):
    writer = journal.open(tmp_path, "a")
    writer.append(b"x")
    assert writer.close() == 1 == writer.close()
    for call in (lambda: writer.append(b"y"), writer.commit, writer.flush, writer.rotate,
                 lambda: writer.append_batch(b"y", [0, 1])):
        with pytest.raises(JournalClosed):
            call()
    assert (writer.next, writer.durable) == (1, 1)


def test_forgotten(tmp_path):
    writer = journal.open(tmp_path, "a")
    writer.append(b"x")
    with pytest.warns(ResourceWarning):
        del writer
        gc.collect()
    assert contents(tmp_path) == [b"x"]


@pytest.mark.parametrize("wrong", [{"fsync": "often"}, {"segment_bytes": 1}, {"block_bytes": 0},
                                   {"fsync_interval": 0}, {"topic": ""}, {"partition": -1},
                                   {"topic": "x" * 256}])
def test_options(tmp_path, wrong):
    with pytest.raises(OptionError):
        journal.open(tmp_path / "j", "a", **wrong)
    assert not (tmp_path / "j").exists()


@pytest.mark.parametrize("topic", ["a/b", "..", ".", "ü", "a b%", "x" * 200])
def test_topics_are_folders_below(tmp_path, topic):
    with journal.open(tmp_path, "a", topic=topic) as writer:
        writer.append(b"x")
    assert contents(tmp_path, topic=topic) == [b"x"]
    [(found, number, folder)] = journal.store.topic_names.partitions(tmp_path)
    assert (found, number) == (topic, 0) and folder.parent.parent == tmp_path


# -- rotation and retention ------------------------------------------------------------------------

def test_rotation_by_size(tmp_path):
    with journal.open(tmp_path, "a", segment_bytes=8192, block_bytes=1024) as writer:
        for _ in range(100):
            writer.append(bytes(500))
    files = segment_files(tmp_path)
    assert len(files) > 5 and all(f.stat().st_size <= 8192 + 128 for f in files)
    assert len(contents(tmp_path)) == 100


def test_rotation_by_age(tmp_path):
    with journal.open(tmp_path, "a", segment_age=0.001, fsync="never") as writer:
        for i in range(3):
            writer.append(b"%d" % i)
            writer.flush()
            while len(segment_files(tmp_path)) < i + 1:
                writer.flush()
        assert contents(tmp_path, durable=False) == [b"0", b"1", b"2"]


def test_stats(tmp_path):
    with journal.open(tmp_path, "a", fsync="always", retain_bytes=0) as writer:
        assert writer.stats() == journal.WriterStats()
        for _ in range(2):
            writer.append(bytes(1000))
        seen = writer.stats()
        assert (seen.blocks, seen.segments, seen.removed) == (2, 0, 0)
        assert 2000 <= seen.bytes <= sum(path.stat().st_size for path in segment_files(tmp_path))
        assert seen.syncs >= 2 and 0 < seen.longest_sync <= seen.sync_seconds
        writer.rotate()
        writer.append(b"x")
        until(lambda: writer.stats().removed == 1)
        assert writer.stats().segments == 1
    assert writer.stats().blocks == 3


def test_stats_of_several(tmp_path):
    with journal.open(tmp_path, "a", topic="t", partitions=2, fsync="never") as writers:
        for key in (b"a", b"b", b"c", b"d"):
            writers.append(bytes(100), key=key)
            writers.commit()
        each = [writer.stats() for writer in writers]
        total = writers.stats()
        assert total.blocks == sum(one.blocks for one in each) == 4
        assert total.longest_sync == max(one.longest_sync for one in each) > 0


def filled(where, **kw):
    """Five segments of ten messages, and the present one."""
    writer = journal.open(where, "a", fsync="never", **kw)
    for _ in range(5):
        writer.append_many([bytes(1000)] * 10)
        writer.rotate()
    return writer


def firsts(where):
    return [int(path.stem) for path in segment_files(where)]


def test_retention_by_size(tmp_path):
    with filled(tmp_path, retain_bytes=25_000) as writer:
        writer.retain()
        assert firsts(tmp_path) == [30, 40, 50]
        with journal.open(tmp_path) as reader:
            assert (reader.first, reader.end) == (30, 50)
            with pytest.raises(journal.OffsetGone) as caught:
                reader.read(29)
            assert caught.value.first == 30
    with filled(tmp_path, retain_bytes=0) as writer:
        writer.retain()
        assert firsts(tmp_path) == [100]        # never the one that is written


def test_retention_by_age(tmp_path):
    with filled(tmp_path, retain_age=3600) as writer:
        assert writer.retain() == []
        for path in segment_files(tmp_path)[:2]:
            os.utime(path, (0, 0))
        assert writer.retain() == [0, 10]
    assert firsts(tmp_path) == [20, 30, 40, 50]


def test_retention_by_group(tmp_path):
    with filled(tmp_path, retain_for=("a", "b")) as writer:
        with journal.open(tmp_path) as reader:
            assert reader.committed_offset("a") is None
            reader.commit_offset("a", 35)
            assert writer.retain() == []        # b has read nothing
            reader.commit_offset("b", 20)
            writer.retain()         # unless the look after a rotation was faster
            assert firsts(tmp_path) == [20, 30, 40, 50]
            assert reader.groups() == {"a": 35, "b": 20}
    with journal.open(tmp_path, "a", retain_for="b", retain_bytes=0) as writer:
        writer.retain()
        assert firsts(tmp_path) == [20, 30, 40, 50]     # too much, but not read


def test_a_reader_outlives_retention(tmp_path):
    filled(tmp_path).close()
    with journal.open(tmp_path) as reader:
        records = reader.read(0)
        with journal.open(tmp_path, "a", retain_bytes=0) as writer:
            writer.retain()
        assert records[0] == bytes(1000)
        with pytest.raises(journal.OffsetGone):
            reader.read(1)
        assert reader.end == 50


def test_a_writer_goes_on_behind_removed_segments(tmp_path):
    with filled(tmp_path, retain_bytes=0) as writer:
        writer.retain()
    with journal.open(tmp_path, "a") as writer:
        assert writer.append(b"x") == 50


# -- what callers may give -------------------------------------------------------------------------

def test_times_are_seconds_or_say_their_unit(tmp_path):
    """Never silently 10^6 off."""
    seconds = 1_700_000_000.25
    wanted = [1_700_000_000_250_000, 1_700_000_001_250_000]
    data, ends = arrays([b"a", b"b"])
    with journal.open(tmp_path, "a") as writer:
        writer.append_batch(data, ends, times=np.array([seconds, seconds + 1]))
        writer.append_batch(data, ends, times=[seconds, seconds + 1])
        writer.append_batch(data, ends, times=np.array(wanted).view("datetime64[us]"))
        writer.append_batch(data, ends, times=np.array(wanted).view("M8[us]").astype("M8[ns]"))
        writer.append_batch(data[:1], ends[:2], times=1_700_000_000)
        writer.append_many([b"c"], time=np.float64(seconds))
        for wrong in (np.array(wanted), np.array([1, 2]), [1, 2], [wanted[0] / 1, 1.0],
                      [float("nan"), 1.0], [float("inf"), 1.0], wanted[0], 1e15, True, "now",
                      np.array(["NaT", "NaT"], "M8[us]"), [1.0], [[1.0, 2.0]], object()):
            with pytest.raises(UsageError):
                writer.append_batch(data, ends, times=wrong)
        for wrong in (wanted[0], float("nan"), float("-inf"), "now", b"1", True, object(), 10**30):
            with pytest.raises(UsageError):
                writer.append(b"x", time=wrong)
        assert writer.next == 10
    with journal.open(tmp_path) as reader:
        got = [int(t) for r in reader.batches() for t in r._microseconds]
    assert got == wanted * 4 + [1_700_000_000_000_000, wanted[0]]


@pytest.mark.parametrize("call", [
    lambda w: w.append(5), lambda w: w.append(None), lambda w: w.append([1, 2]),
    lambda w: w.append(np.arange(10, dtype=np.uint8)[::2]), lambda w: w.append(b"", key=5),
    lambda w: w.append(b"", headers=[b"h"]), lambda w: w.append(b"", headers=[(b"h", b"")]),
    lambda w: w.append(b"", headers=[("h", 5)]), lambda w: w.append(b"", headers=5),
    lambda w: w.append_many(5), lambda w: w.append_many(b"abc"), lambda w: w.append_many("abc"),
    lambda w: w.append_many([5]), lambda w: w.append_many([[1, 2]]),
    lambda w: w.append_many([None]),
    lambda w: w.append_batch(b"abc"), lambda w: w.append_batch(5, [0, 1]),
    lambda w: w.append_batch(b"abc", 5), lambda w: w.append_batch(b"abc", [0.0, 3.0]),
    lambda w: w.append_batch(b"abc", ["a", "b"]), lambda w: w.append_batch(b"abc", [[0, 3]]),
    lambda w: w.append_batch(np.arange(4.0), [0, 32]),
    lambda w: w.append_batch(np.arange(10, dtype=np.uint8)[::2], [0, 5]),
    lambda w: w.append_batch(b"abc", [0, 3], keys=b"k"),
    lambda w: w.append_batch(b"abc", [0, 3], keys=(b"k", [0, 2]))])
def test_what_cannot_be_meant_is_refused_in_words(tmp_path, call):
    with journal.open(tmp_path, "a") as writer:
        with pytest.raises(UsageError) as caught:
            call(writer)
        assert caught.value.__cause__ is None and len(str(caught.value)) > 20
        assert writer.next == 0


@pytest.mark.parametrize("wrong", [
    {"block_bytes": "1"}, {"block_bytes": 1e6}, {"segment_age": "old"}, {"fsync_interval": None},
    {"fsync": 5}, {"retain_bytes": float("nan")}, {"max_producers": True}])
def test_options_of_a_wrong_kind(tmp_path, wrong):
    with pytest.raises(OptionError):
        journal.open(tmp_path / "j", "a", **wrong)


@pytest.mark.parametrize("groups", [("",), "", (5,), 5, ("a", "\ud800"), ("x" * 256,)])
def test_groups_that_retention_cannot_wait_for(tmp_path, groups):
    """They are refused at once, not when the flusher looks for them."""
    with pytest.raises(OptionError):
        journal.open(tmp_path / "j", "a", retain_for=groups)
    assert not (tmp_path / "j").exists()


def test_what_is_no_records_is_refused_in_words(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        for wrong in (b"x", None, [b"x"]):
            with pytest.raises(UsageError, match="append_records takes"):
                writer.append_records(wrong)
        assert writer.append(b"0") == 0


def test_the_last_offset_that_a_journal_may_begin_at(tmp_path):
    with pytest.raises(OptionError):
        journal.open(tmp_path, "a", begin=(1 << 60) + 1)
    with journal.open(tmp_path, "a", begin=1 << 60) as writer:
        assert writer.append(b"0") == 1 << 60
    with journal.open(tmp_path) as reader:
        assert (reader.first, reader.end) == (1 << 60, (1 << 60) + 1)
        assert reader.read(1 << 60).to_list() == [b"0"]


@pytest.mark.parametrize("time", [float("nan"), 1e300, -1e300, float("inf")])
def test_stamps_of_no_time(time):
    with pytest.raises(OptionError, match="time"):
        journal.stamp(1, 1, time)


def test_a_repair_of_no_journal_leaves_nothing(tmp_path):
    with pytest.raises(journal.JournalNotFound):
        journal.store.repair.repair(tmp_path)
    assert list(tmp_path.iterdir()) == []
