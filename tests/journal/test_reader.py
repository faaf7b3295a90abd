"""Reading: by offset and time, as it grows, from other processes, as arrays, in bounded memory."""

import asyncio
import mmap
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from journal_case import contents, numbered, segment_files

from mqcore import journal
from mqcore.errors import AddressError, OptionError, RecvTimeout, UsageError
from mqcore.journal.errors import JournalClosed, JournalNotFound


@pytest.fixture
def filled(tmp_path, rng):
    """500 messages in blocks and segments of all sizes; (folder, messages, times in us)."""
    messages = numbered(0, 500, rng)
    with journal.open(tmp_path, "a", segment_bytes=40_000, block_bytes=4096) as writer:
        for i, message in enumerate(messages):
            writer.append(message, time=i / 1000)
            if rng.random() < 0.2:
                writer.flush()
    return tmp_path, messages, [i * 1000 for i in range(500)]


def test_nothing_there(tmp_path):
    with pytest.raises(JournalNotFound, match="mode"):
        journal.open(tmp_path / "none")
    with pytest.raises(AddressError):
        journal.open("tcp://host:1/t", "a")
    with pytest.raises(OptionError):
        journal.open(tmp_path, "w")
    journal.open(tmp_path, "a").close()
    with journal.open(tmp_path) as reader:
        assert (reader.first, reader.end, reader.last) == (0, 0, -1)
        assert len(reader.read(0)) == 0 and reader.at(0) == 0 and list(reader.batches()) == []
        with pytest.raises(UsageError):
            reader.read(1)
        with pytest.raises(journal.OffsetGone):
            reader.read(-1)


def test_from_every_offset(filled):
    where, messages, times = filled
    with journal.open(where) as reader:
        assert (reader.first, reader.last, reader.end) == (0, 499, 500)
        for offset in range(500):
            records = reader.read(offset)
            n = len(records)
            assert records.first == offset and n > 0 and records.next == offset + n
            assert records.to_list() == messages[offset:offset + n]
            assert records._microseconds.tolist() == times[offset:offset + n]
        assert len(reader.read(500)) == 0
        with pytest.raises(UsageError):
            reader.read(501)


@pytest.mark.parametrize("most", [1, 100, 6000, 1 << 20])
def test_batches_of_at_most(filled, most):
    where, messages, _ = filled
    with journal.open(where) as reader:
        got = list(reader.batches(7, 431, max_bytes=most))
        assert [m for records in got for m in records.to_list()] == messages[7:431]
        assert all(r.nbytes <= most or len(r) == 1 for r in got)


def test_by_time(filled):
    where, _, _ = filled
    with journal.open(where) as reader:
        for i in (0, 1, 77, 250, 498, 499):
            assert reader.at(i / 1000) == i
            assert reader.at(i / 1000 - 0.0004) == i
        assert reader.at(-5) == 0 and reader.at(0.4991) == 500


def test_times_need_not_ascend(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        for time in (5, 1, 9, 3):
            writer.append(b"", time=time)
            writer.rotate()
    with journal.open(tmp_path) as reader:
        assert [reader.at(t) for t in (0, 2, 5, 6, 9, 10)] == [0, 0, 0, 2, 2, 4]


def test_records(filled):
    where, messages, _ = filled
    with journal.open(where) as reader:
        records = reader.read(3)
        part = records.slice(1, 3)
        assert (part.first, len(part), part[0], part[-1]) == (4, 2, messages[4], messages[5])
        assert list(part) == part.to_list() and "4 to 5" in repr(part)
        with pytest.raises(IndexError):
            part[2]
        a, b = part.offsets[0], part.offsets[1]
        assert part.data[a:b].tobytes() == messages[4]
        assert not part.data.flags.writeable or records.nbytes < 1 << 18
        assert part.producers is None and part.key(0) is None and part.headers(0) == []


def test_views_of_the_file(tmp_path):
    """A large block is handed out where it is mapped, its columns aligned to 64 bytes."""
    data = np.arange(1 << 20, dtype=np.uint32).view(np.uint8)
    ends = np.arange(0, len(data) + 1, 64)
    with journal.open(tmp_path, "a") as writer:
        writer.append_batch(data, ends)
    reader = journal.open(tmp_path)
    records = reader.read(0)
    for array in (records.data, records._microseconds, records.offsets):
        assert not array.flags.owndata and not array.flags.writeable
        assert array.__array_interface__["data"][0] % 64 == 0
    reader.close()
    assert records[100] == data[6400:6464].tobytes()        # the mapping lives on


def test_arrow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    with journal.open(tmp_path, "a", topic="t", partition=4, stamps=True) as writer:
        writer.append(b"a", key=b"k", time=1.5, headers=[("h", b"v")])
        writer.append(journal.stamp(3, 9, 2.0) + b"b", time=2.5)
        writer.append_many([b"x" * 400] * 1000, time=3)
    with journal.open(tmp_path, topic="t", partition=4) as reader:
        records = reader.read(0)
        batch = records.to_arrow()
        batch.validate(full=True)
        assert batch.column("value").buffers()[2].address == \
            records.data.__array_interface__["data"][0]
        assert batch.column("timestamp").buffers()[1].address == \
            records._microseconds.__array_interface__["data"][0]
        every = records.to_arrow(
            ["key", "value", "topic", "partition", "offset", "timestamp", "headers",
             "producer", "sequence", "sent"])
        every.validate(full=True)
        rows = every.slice(0, 2).to_pylist()
        assert (rows[0]["key"], rows[0]["value"], rows[0]["topic"], rows[0]["partition"]) == \
            (b"k", b"a", "t", 4)
        assert rows[0]["headers"] == [{"key": "h", "value": b"v"}] and rows[1]["headers"] == []
        assert rows[0]["producer"] is None and (rows[1]["producer"], rows[1]["sequence"]) == (3, 9)
        assert rows[1]["sent"].timestamp() == 2.0 and rows[1]["timestamp"].timestamp() == 2.5
        assert every.schema.field("timestamp").type == pa.timestamp("us", "UTC")
        later = records.slice(1).to_arrow()
        assert later.column("value")[0].as_py() == b"b" and later.column("key")[0].as_py() is None
        assert pa.record_batch(records).equals(batch)
        with pytest.raises(OptionError, match="colour"):
            records.to_arrow(["colour"])


def test_sequences_see_gaps_and_duplicates(tmp_path):
    numbers = [(1, 0), (2, 5), (1, 1), (1, 1), (1, 4), (2, 6), (1, 2), (1, 5), (3, 2**64 - 1)]
    seen = journal.Sequences()
    with journal.open(tmp_path, "a", stamps=True) as writer:
        for producer, number in numbers:
            writer.append(journal.stamp(producer, number) + b"m")
            writer.flush()
        writer.append(b"without")
    with journal.open(tmp_path) as reader:
        for records in reader.batches(max_bytes=3):
            seen.add(records)
    assert seen.messages == 9
    assert seen.duplicates == 2         # 1 again, and 2 after 4
    assert seen.missing == 2 + 5 + 2**64 - 1
    assert seen.highest == {1: 5, 2: 6, 3: 2**64 - 1}


# -- following -------------------------------------------------------------------------------------

WRITER = """
import sys
from mqcore import journal
with journal.open(sys.argv[1], "a", segment_bytes=1 << 15, block_bytes=2048) as writer:
    for i in range(3000):
        writer.append(b"%d" % i)
        if i % 7 == 0:
            writer.flush()
"""


def test_follow_across_processes(tmp_path):
    journal.open(tmp_path, "a").close()
    process = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path])
    try:
        got = []
        with journal.open(tmp_path) as reader:
            for records in reader.follow(0, timeout=60):
                got += records.to_list()
                if len(got) == 3000:
                    break
        assert got == [b"%d" % i for i in range(3000)]
    finally:
        assert process.wait() == 0


@pytest.mark.parametrize("inotify", [True, False])
def test_follow_wakes_and_ends(tmp_path, inotify, monkeypatch):
    if not inotify:
        monkeypatch.setattr("mqcore.journal.waiting.watch_folder", lambda path: -1)
    with journal.open(tmp_path, "a") as writer:
        reader = journal.open(tmp_path)
        got = []

        def follow():
            for records in reader.follow(0):
                got.extend(records.to_list())
                if len(got) == 2:
                    both.set()
        both = threading.Event()
        thread = threading.Thread(target=follow)
        thread.start()
        writer.append_many([b"a", b"b"])
        writer.flush()
        assert both.wait(30)
        reader.close()          # ends the iteration
        thread.join()
        assert got == [b"a", b"b"]
        with pytest.raises(JournalClosed):
            reader.read(0)


def test_follow_times_out(tmp_path):
    with journal.open(tmp_path, "a"), journal.open(tmp_path) as reader, \
            pytest.raises(RecvTimeout):
        next(reader.follow(0, timeout=0.01))


async def take_three(where, sleep):
    got = []
    with journal.open(where, "a", fsync="never") as writer, \
            journal.open(where, durable=False) as reader:
        writer.append(b"a")
        assert await writer.acommit() == 1
        follower = reader.afollow(0, timeout=30)
        got += (await anext(follower)).to_list()
        writer.append_many([b"b", b"c"])
        writer.flush()
        got += (await anext(follower)).to_list()
        await follower.aclose()
        with pytest.raises(RecvTimeout):
            await anext(reader.afollow(3, timeout=0.01))
    return got


@pytest.mark.keeps(threads=1, why="asyncio's executor")
def test_async_follow(tmp_path):
    assert asyncio.run(take_three(tmp_path, asyncio.sleep)) == [b"a", b"b", b"c"]


@pytest.mark.keeps(threads=2, why="trio keeps its worker threads for a while")
def test_trio_follow(tmp_path):
    trio = pytest.importorskip("trio")
    assert trio.run(take_three, tmp_path, trio.sleep) == [b"a", b"b", b"c"]


# -- memory ----------------------------------------------------------------------------------------

MEMORY = """
import sys
import numpy
from mqcore import journal

def resident():
    with open("/proc/self/status") as lines:
        status = dict(line.split(":", 1) for line in lines)
    return [int(status[kind].split()[0]) << 10 for kind in ("RssAnon", "RssShmem", "RssFile")]

n = 0
with journal.open(sys.argv[1]) as reader:
    n += len(reader.read(0))        # what is imported and started once is there now
    most = before = resident()
    for records in reader.batches(n):
        n += len(records) + int(records.data[::4096].sum())
        most = list(map(max, resident(), most))
print(n, *map(int.__sub__, most, before))
"""


def test_memory_is_bounded(tmp_path):
    """A quarter of a gigabyte: however long the journal, what a reader holds is next to nothing of
    its own, and of the page cache one window of 32 MiB, two while it goes from one to the next."""
    data = np.zeros(32 << 20, np.uint8)
    ends = np.arange(0, len(data) + 1, 4096)
    with journal.open(tmp_path, "a", fsync="never") as writer:
        for _ in range(8):
            writer.append_batch(data, ends)
    answer = subprocess.run([sys.executable, "-c", MEMORY, tmp_path], capture_output=True,
                            text=True, check=True)
    n, own, shared, mapped = map(int, answer.stdout.split())
    assert n == 8 * (len(ends) - 1)
    assert own < 16 << 20 and shared == 0
    assert 16 << 20 < mapped < 72 << 20


def test_blocks_across_windows(tmp_path, monkeypatch, rng):
    """Windows end anywhere in a block; here they are as small as can be."""
    monkeypatch.setattr("mqcore.journal.store.segment.MAPPED", mmap.ALLOCATIONGRANULARITY)
    monkeypatch.setattr("mqcore.journal.store.segment.STRIDE", 1000)
    messages = numbered(0, 400, rng)
    with journal.open(tmp_path, "a", block_bytes=6000) as writer:
        for message in messages:
            writer.append(message)
            if rng.random() < 0.1:
                writer.flush()
    assert contents(tmp_path) == messages
    with journal.open(tmp_path) as reader:
        assert [reader.read(i)[0] for i in range(400)] == messages
        assert reader.at(0) == 0
    journal.open(tmp_path, "a").close()
    assert journal.store.recovery.verify(tmp_path / "default" / "0").findings == []


@pytest.mark.parametrize("offset", [1 << 62, 10**30, "0", None, 1.5])
def test_offsets_that_cannot_be(filled, offset):
    where, *_ = filled
    with journal.open(where) as reader:
        for call in (reader.read, lambda at: next(reader.follow(at, timeout=0)),
                     lambda at: reader.read(at, durable=True)):
            with pytest.raises(UsageError, match="offset"):
                call(offset)


def test_at_least_one_message(filled):
    """However small max_bytes is."""
    where, messages, _ = filled
    with journal.open(where) as reader:
        for most in (1, 0, -1):
            found = reader.read(0, max_bytes=most)
            assert found.to_list() == messages[:len(found)] and len(found) >= 1
            assert next(reader.follow(1, max_bytes=most, timeout=5))[0] == messages[1]
        assert [m for records in reader.batches(0, 5, max_bytes=0) for m in records.to_list()] \
            == messages[:5]


def test_folders_as_bytes(filled):
    where, messages, _ = filled
    with journal.open(os.fsencode(where)) as reader:
        assert reader.end == len(messages)
    assert journal.list_partitions(os.fsencode(where)) == journal.list_partitions(where)
    folder = str(where / "default" / "0")
    assert journal.store.recovery.verify(folder).findings == []
    assert journal.store.repair.repair(folder).kept == []


@pytest.mark.parametrize("timeout", ["1", float("nan"), -1, True, [1]], ids=repr)
def test_a_timeout_that_means_nothing_is_refused(tmp_path, timeout):
    """NaN, above all: no time is ever later."""
    with journal.open(tmp_path, "a") as log:
        log.append(b"x")
        log.commit()
    with journal.open(tmp_path) as reader, pytest.raises(UsageError, match="timeout must"):
        next(reader.follow(1, timeout=timeout))


# -- what a bound in bytes counts ------------------------------------------------------------------

@pytest.mark.parametrize("held", ["value", "key", "header", "name"])
def test_a_bound_counts_all_that_is_held(tmp_path, held):
    big = b"x" * 10_000
    message = {"value": {"value": big}, "key": {"value": b"", "key": big},
               "header": {"value": b"", "headers": [("h", big)]},
               "name": {"value": b"", "headers": [("n" * 10_000, b"")]}}[held]
    with journal.open(tmp_path, "a") as writer:
        for _ in range(100):
            writer.append(**message)
    with journal.open(tmp_path) as reader:
        whole = reader.read(0)
        assert len(whole) == 100
        one = 12 + 10_000 + {"header": 8 + 1, "name": 8}.get(held, 0)
        assert whole.size == 100 * one
        assert whole.slice(7, 9).size == 2 * one
        assert len(reader.read(0, max_bytes=3 * one)) == 3
        assert len(reader.read(98, max_bytes=3 * one)) == 2
        assert len(reader.read(5, max_bytes=1)) == 1        # one at least
        assert [len(found) for found in reader.batches(max_bytes=40 * one)] == [40, 40, 20]


def test_empty_messages_have_a_size(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b""] * 1000)
    with journal.open(tmp_path) as reader:
        assert len(reader.read(0, max_bytes=1200)) == 100


# -- beside a running writer -----------------------------------------------------------------------

BUSY = """
import sys
from mqcore import journal
with journal.open(sys.argv[1], "a", fsync="never", block_bytes=8 << 20,
                  segment_bytes=24 << 20, retain_bytes=60 << 20) as writer:
    piece = bytes(1 << 20)
    writer.append(piece)
    writer.flush()
    print("ready", flush=True)
    while True:
        writer.append(piece)
"""


def test_verify_beside_a_writer_finds_nothing(tmp_path):
    """It is in the middle of a block, rotates, and its retention removes segments."""
    with subprocess.Popen([sys.executable, "-c", BUSY, tmp_path], stdout=subprocess.PIPE,
                          text=True) as program:
        try:
            assert program.stdout.readline() == "ready\n"
            for _ in range(30):
                assert journal.verify(tmp_path).findings == []
        finally:
            program.kill()


@pytest.mark.parametrize("count", [1, 5])
def test_a_journal_made_anew_is_another_one(tmp_path, count):
    """Its offsets are its own."""
    numbered = [b"%d" % n for n in range(3)]
    with journal.open(tmp_path, "a") as writer:
        writer.append_many(numbered)
    with journal.open(tmp_path) as reader:
        assert reader.read(0).to_list() == numbered
        shutil.rmtree(writer.path)
        with journal.open(tmp_path, "a") as writer:
            writer.append_many([b"new"] * count)
        for ask in (lambda: reader.read(3), lambda: reader.end, lambda: next(reader.follow(3)),
                    lambda: reader.read(0)):
            with pytest.raises(JournalNotFound, match="was deleted"):
                ask()
            reader.release()
    with journal.open(tmp_path) as reader:
        assert reader.end == count


def test_a_read_goes_through_few_segments(tmp_path):
    """One that gathered until it has enough would not return while they are made as fast."""
    with journal.open(tmp_path, "a", fsync="never") as writer:
        for n in range(40):
            writer.append(b"%d" % n)
            writer.rotate()
    with journal.open(tmp_path) as reader:
        assert 1 < len(reader.read(0)) <= 16
        assert contents(tmp_path) == [b"%d" % n for n in range(40)]


@pytest.mark.parametrize("lacking", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("ask", ["read", "at", "verify", "backup"])
def test_a_listing_that_lacks_a_new_segment(tmp_path, monkeypatch, ask, lacking):
    """Of two that were made while the folder was listed, it has the second."""
    where = tmp_path / "journal"
    with journal.open(where, "a") as writer:
        for text in (b"0", b"1", b"2"):
            writer.append(text)
            writer.rotate()
        real, lists = os.listdir, []

        def listdir(folder):
            names = real(folder)
            if str(folder) == str(writer.path):
                lists.append(folder)
                if len(lists) == lacking:
                    return [name for name in names if name != f"{1:020d}.mqj"]
            return names
        with journal.open(where) as reader:
            reader.read(0)
            monkeypatch.setattr(os, "listdir", listdir)
            if ask == "read":
                assert reader.read(1).to_list() == [b"1", b"2"]
            elif ask == "at":
                assert reader.at(2 ** 33) == 3
            elif ask == "verify":
                assert journal.verify(where).findings == []
            else:
                assert journal.backup(where, tmp_path / "copy")[0].segments == 3
            monkeypatch.undo()


def test_verify_still_reports_a_torn_tail(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"x" * 1000)
    path = segment_files(tmp_path)[-1]
    with path.open("ab") as file:
        file.write(path.read_bytes()[512:800])
    [finding] = journal.verify(tmp_path).findings
    assert finding.path == str(path)
