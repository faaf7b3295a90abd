"""Mirrors of a compacted journal: what is scattered shares sparse blocks, as in the source."""

import resource
import signal
import threading
import time

import journal_reference as ref
import pytest
from compact_case import SMALL, closed_end, expected, fill, left_of, state_of
from compressed import blocks, versions
from copies import mirroring
from journal_case import segment_files
from kills import LIMIT, Programs
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal.records import joined


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


def mirror(source, into, context=None, **options):
    """Until the copy has all."""
    reading = {} if context is None else {"context": context}
    with journal.open(source, **reading) as reader, \
            journal.open(into, "a", mirror=True, **options) as writer, \
            mq.device(reader, writer) as device:
        until(lambda: device.error is not None or writer.next >= reader.durable)
        assert device.error is None


def scattered(where, survivors, every=4, **options):
    """A journal of which compaction has left every fourth message."""
    with journal.open(where, "a", fsync="never", **options) as log:
        for i in range(survivors):
            log.append_many([b"x" * 40] * (every - 1), keys=[b"hot"] * (every - 1))
            log.append(b"%d" % i, key=b"key %d" % i, headers=[("i", b"%d" % i)] if i % 9 == 0
                       else [])
        log.append(b"last", key=b"hot")
        log.rotate()
        log.append(b"behind", key=b"behind")
    journal.compact(where)


def rows(where):
    """(offset, time, key, value, headers, producer, sequence, life) of each message."""
    found = []
    with journal.open(where) as reader:
        for records in reader.batches():
            stamps = [column if column is None else column.tolist() for column in (
                records.producers, records.sequences, records.lives)]
            for i, value in enumerate(records):
                stamp = [column[i] if column else 0 for column in stamps]
                found.append((records.offset(i), records.times[i], records.key(i), value,
                              records.headers(i), *stamp))
    return found


def size(where):
    return sum(path.stat().st_size for path in segment_files(where))


def kinds(where):
    """The flags of all blocks with messages, of all segments."""
    return {row[2] for number in range(len(segment_files(where))) for row in blocks(where, number)}


def assert_same(where, copy):
    assert rows(copy) == rows(where)
    checked = journal.verify(copy)
    assert checked.findings == []
    assert (checked.messages, checked.compacted) == (
        journal.verify(where).messages, journal.verify(where).compacted)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_copy_is_as_small_as_its_source(ctx, where, tmp_path, serve, compression):
    """From a folder, from a server, and a copy of the copy."""
    scattered(where, 10_000, compression=compression)
    server = serve(where)
    mirror(where, tmp_path / "b", compression=compression)
    mirror(f"{server.urls[0]}/default", tmp_path / "c", compression=compression, context=ctx)
    mirror(tmp_path / "b", tmp_path / "d", compression=compression)
    for copy in (tmp_path / name for name in "bcd"):
        assert_same(where, copy)
        assert size(copy) < 1.5 * size(where), (size(copy), size(where))
        assert any(flags & ref.COMPACTED for flags in kinds(copy))
    with journal.open(tmp_path / "b") as reader, journal.open(where) as source:
        for offset in (0, 3, 4, 5, 20_000, 39_999):
            assert reader.read(offset).first == source.read(offset).first
        at = source.read(30_000).times[0]
        assert reader.at(at) == source.at(at)


def test_promotion_takes_them_over(where, tmp_path):
    scattered(where, 1000)
    with mirroring(where, tmp_path / "b") as (device, writer):
        until(lambda: writer.next > 0)
        device.stop()
    journal.promote(tmp_path / "b", old=where)
    assert_same(where, tmp_path / "b")
    assert size(tmp_path / "b") < 1.5 * size(where) + 1024


def test_small_blocks_and_segments(where, tmp_path, rng):
    """Whatever is cut, a copy that goes on later has the same."""
    for _ in range(4):
        fill(where, rng, 300)
        journal.compact(where)
        mirror(where, tmp_path / "b", **SMALL)
        with journal.open(tmp_path / "b") as reader:
            for offset in rng.sample(range(reader.end), 20):
                records = reader.read(offset)
                assert records.since == offset <= records.first
    assert {flags & ref.COMPACTED for flags in kinds(tmp_path / "b")} == {0, ref.COMPACTED}
    assert journal.verify(tmp_path / "b").findings == []


def test_far_apart(where, tmp_path):
    """More than a block may span: a checkpoint stands between."""
    with journal.open(where, "a", fsync="never", mirror=True) as log:
        for i in range(5):
            log.append(b"%d" % i, key=b"%d" % i)
            log.skip(log.next + (1 << 30) - 1, compacted=True)
        log.append(b"end")
    mirror(where, tmp_path / "b")
    assert_same(where, tmp_path / "b")
    assert sum(row[1] for row in blocks(tmp_path / "b")) == 6 and len(blocks(tmp_path / "b")) > 2


def gapped(where, *offsets):
    """Records with gaps, as a reader gives them."""
    with journal.open(where, "a", fsync="never", mirror=True) as log:
        for at in offsets:
            if at > log.next:
                log.skip(at, compacted=True)
            log.append(b"%d" % at, key=b"k")
    with journal.open(where) as reader:
        return joined(list(reader.batches()))


def test_what_becomes_of_a_gap(where, tmp_path):
    """In a block, in front of it, behind it, and one that is held back, or taken back."""
    records = gapped(where, 2, 5, 6, 9)
    with journal.open(tmp_path / "b", "a", fsync="never") as log, \
            journal.open(tmp_path / "b") as reader:
        log._append_in_place(records)
        assert (log.next, reader.end) == (10, 0)
        log._skip(20, True, True)
        assert log.commit() == reader.end == 20 and log.durable == 20
        assert [row[:3] for row in blocks(tmp_path / "b")] == [(2, 4, 1 | ref.COMPACTED)]
        log._skip(30, True, True)
        log.append(b"30")
        log._skip(40, True, True)
        assert log.flush() == reader.end == 40
        assert reader.read(25, durable=False).to_list() == [b"30"]
        log._hold()
        log.append(b"40", key=b"k")
        log._skip(50, True, True)
        log.append(b"50", key=b"k")
        log._skip(60, True, True)
        log.flush()
        assert (log.next, log.written, reader.end) == (60, 40, 40)
        assert log._undo() and log.next == 40
        log.append(b"40 again")
        log._hold()
        log._skip(50, True, True)
        log.append(b"50 again")
        log.flush()
        assert reader.end == 41
        assert log.commit() == 51 == reader.end
        log._skip(60, True, True)
    with journal.open(tmp_path / "b", "a") as log:
        assert log.next == 60
    with journal.open(tmp_path / "b") as reader:
        assert [(records.offset(i), value) for records in reader.batches()
                for i, value in enumerate(records)] == [
            (2, b"2"), (5, b"5"), (6, b"6"), (9, b"9"), (30, b"30"), (40, b"40 again"),
            (50, b"50 again")]
    checked = journal.verify(tmp_path / "b")
    assert checked.findings == [] and (checked.messages, checked.compacted) == (7, 53)


def test_a_segment_of_version_1_ends_first(where, tmp_path):
    records = gapped(where, 2, 4, 9)
    with journal.open(tmp_path / "b", "a", segment_bytes=1 << 20) as log:
        log.append_many([b"0", b"1"])
        log.flush()
        log._append_in_place(records)
        log._append_in_place(records.__class__(20, records._columns, 0, 1, "", 0))
    assert versions(tmp_path / "b") == [1, 2]
    assert [row[:2] for row in blocks(tmp_path / "b", 1)] == [(2, 4)]


@pytest.mark.parametrize("room", [700, 1024])
def test_a_full_disk(where, tmp_path, room):
    """What could not be written is written later, with its gaps."""
    records = gapped(where, 2, 5, 9)
    with journal.open(tmp_path / "b", "a", fsync="never", segment_bytes=1 << 20) as log:
        log.append(b"0")
        log.commit()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            log._append_in_place(records)
            log._skip(15, True, True)
            with pytest.raises(journal.JournalWriteError):
                log.commit()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        log._append_in_place(records.__class__(20, records._columns, 0, 1, "", 0))
        assert log.commit() == 21
    assert [row[0] for row in rows(tmp_path / "b")] == [0, 2, 5, 9, 20]
    assert journal.verify(tmp_path / "b").findings == []


def test_repair_keeps_sparse_blocks(where, tmp_path, rng):
    scattered(where, 2000)
    mirror(where, tmp_path / "b", block_bytes=16 << 10)
    before = rows(tmp_path / "b")
    path = segment_files(tmp_path / "b")[0]
    raw = bytearray(path.read_bytes())
    starts = [i for i in range(512, len(raw), 64) if raw[i:i + 4] == b"MQB1"]
    raw[starts[2] + 140] ^= 1
    raw[50] ^= 1                        # the salt, too
    path.write_bytes(raw)
    journal.repair(tmp_path / "b", topic="default")
    assert journal.verify(tmp_path / "b").findings == []
    with journal.open(tmp_path / "b") as reader:
        left = [records.offset(i) for records in reader.batches(gaps="skip")
                for i in range(len(records))]
    lost = [row[0] for row in before if row[0] not in set(left)]
    assert 0 < len(lost) < 1000 and left + lost == sorted(left + lost, key=lambda at: at in lost)


def test_beside_a_source_that_compacts(where, tmp_path, rng):
    """A mirror that is sometimes behind, of a source that is compacted meanwhile."""
    told = {}
    with journal.open(where, "a", **SMALL) as log:
        told |= fill(where, rng, 100, log=log)
        log.commit()
        ended = threading.Event()

        def compacting():
            while not ended.wait(0.05):
                journal.compact(where)

        thread = threading.Thread(target=compacting)
        thread.start()
        try:
            with mirroring(where, tmp_path / "b") as (device, copy):
                for _ in range(10):
                    if rng.random() < 0.5:
                        device.pause()
                    told |= fill(where, rng, 60, log=log)
                    log.commit()
                    time.sleep(0.02)
                    device.resume()
                until(lambda: device.error or copy.next >= log.next)
                assert device.error is None and device.stats().gone == 0
        finally:
            ended.set()
            thread.join()
    left = left_of(tmp_path / "b")
    assert left.items() <= told.items() and state_of(left) == state_of(told)
    assert journal.verify(tmp_path / "b").findings == []
    with journal.open(tmp_path / "b", "a", mirror=True) as copy:
        copy.rotate()
        copy.append(b"end")
    journal.compact(tmp_path / "b", keep_tombstones=0)
    told[len(told)] = None, b"end"
    assert left_of(tmp_path / "b") == expected(told, closed_end(tmp_path / "b"))


MIRROR = """
import mqcore as mq
with journal.open(where) as reader, journal.open(
        where + ".mirror", "a", mirror=True, fsync_interval=0.001, segment_bytes=1 << 16,
        block_bytes=4096) as writer:
    with mq.device(reader, writer) as device:
        ready()
        device.wait_stopped()
"""


def test_kill_9_in_the_middle(where, tmp_path, rng):
    scattered(where, 20_000)
    copy = tmp_path / "j.mirror"
    with journal.open(where) as reader:
        end = reader.end
    with Programs({"mirror": MIRROR}, where, []) as line:
        for _ in range(5):
            time.sleep(rng.random() * 0.3)
            line.kill("mirror")
            assert journal.verify(copy).findings == []
            line.start("mirror")
            line.wait("mirror")
        with journal.open(copy) as reader:
            until(lambda: reader.end >= end, LIMIT)
    with journal.open(copy, "a", mirror=True):
        pass
    assert_same(where, copy)
    assert size(copy) < 1.5 * size(where)
