"""Tombstones, messages whose value is null: every way to write them and to read them."""

import os
import threading

import pytest
from compressed import CODECS, FLAG, TEXT, blocks, versions
from hypothesis import given
from hypothesis import strategies as st
from journal_case import arrays, contents, segment_files, told_rows
from journal_reference import NULLS
from mqcore.testing.native.journal_disk import Disk

import mqcore as mq
from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal.records import single

LIMIT = 20.0


def fill(writer, n=200):
    """Messages with all columns and without, some of them tombstones; what a reader must find."""
    wanted = []
    for i in range(n):
        value = None if i % 5 == 1 else b"" if i % 5 == 2 else TEXT[i % len(TEXT)]
        key = b"key %d" % (i % 7) if value is None or i % 3 else None
        headers = [("name", b"value %d" % i), ("\u00e9", b"")] if i % 4 == 0 else []
        stamp = journal.stamp(9, i, 3.0) if i % 6 == 0 and value else b""
        writer.append(value if value is None else stamp + value, key=key, headers=headers,
                      time=1000.0 + i)
        wanted.append((value, key, headers, 1000.0 + i, i if stamp else 0))
    return wanted


def read(where, **how):
    with journal.open(where, **how) as reader:
        return told_rows(reader.batches())


# -- writing and reading ---------------------------------------------------------------------------

@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
@pytest.mark.parametrize("verify", [True, False])
def test_every_column_comes_back(tmp_path, codec, verify):
    with journal.open(tmp_path, "a", stamps=True, compression=codec) as writer:
        wanted = fill(writer)
        writer.flush()
        wanted += fill(writer)
    flags = NULLS | 7 | FLAG.get(codec, 0)
    assert [row[2] for row in blocks(tmp_path)] == [flags] * 2 and versions(tmp_path) == [2]
    with journal.open(tmp_path, verify=verify) as reader:
        assert told_rows(reader.batches()) == wanted
        assert told_rows(reader.batches(max_bytes=300)) == wanted       # a block piece by piece
        for start in range(190, 210):
            assert told_rows(reader.batches(start, start + 17)) == wanted[start:start + 17]
        records = reader.read(3)
        assert told_rows([records.slice(5, 90)]) == wanted[8:93]
        assert records[-1] == wanted[2 + len(records)][0]
        table = records.to_arrow(["key", "value", "headers", "offset"])
        table.validate(full=True)
        assert table.to_pydict()["value"] == [row[0] for row in wanted[3:3 + len(records)]]


def test_append(tmp_path):
    with journal.open(tmp_path, "a", fsync="always") as writer:
        assert writer.append(None, key=b"k") == 0
        assert writer.append(b"", key=b"k") == 1
        assert writer.append(None, key=memoryview(b"xyz"), headers={"why": b"gone"}, time=7.0) == 2
        assert writer.append(None, key=b"") == 3            # an empty key is a key
    assert [row[:3] for row in read(tmp_path)] == [
        (None, b"k", []), (b"", b"k", []), (None, b"xyz", [("why", b"gone")]), (None, b"", [])]


def test_append_many(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        assert writer.append_many([b"a", None, bytearray(b"c")], keys=[None, b"k", b"l"]) == \
            range(3)
        assert writer.append_many(iter([None]), keys=iter([memoryview(b"m")]), time=5) == \
            range(3, 4)
        assert writer.append_many([b"x", b"y"], keys=[None, None]) == range(4, 6)
        assert writer.append_many([], keys=[]) == range(6, 6)
    assert [row[:2] for row in read(tmp_path)] == [
        (b"a", None), (None, b"k"), (b"c", b"l"), (None, b"m"), (b"x", None), (b"y", None)]


@pytest.mark.parametrize("keys", [b"kk", "kk", 5, [b"k"], [b"k"] * 3, [b"k", 7], [None, "k"]])
def test_keys_that_do_not_fit(tmp_path, keys):
    with journal.open(tmp_path, "a") as writer:
        with pytest.raises(UsageError) as caught:
            writer.append_many([b"a", b"b"], keys=keys)
        assert caught.value.hint or "sequence" in str(caught.value)
        assert writer.next == 0


@pytest.mark.parametrize("open_with", [{}, {"partitions": 2}, {"topic_from": "first-part"}])
def test_a_tombstone_needs_a_key(tmp_path, open_with):
    more = {"topic": "t"} if "topic_from" in open_with else {}
    with journal.open(tmp_path, "a", **open_with) as writer:
        with pytest.raises(UsageError, match="without a key means nothing") as caught:
            writer.append(None, **more)
        assert "give key=" in caught.value.hint and 'b""' in caught.value.hint
        assert more == {} or not (tmp_path / "t").exists()
        if not open_with:
            for call in (lambda: writer.append_many([b"a", None]),
                         lambda: writer.append_many([b"a", None], keys=[b"k", None])):
                with pytest.raises(UsageError, match="without a key means nothing"):
                    call()
            assert writer.next == 0
        writer.append(b"next", key=b"k", **more)


def test_partitions(tmp_path):
    """A tombstone goes where the other messages of its key are."""
    with journal.open(tmp_path, "a", topic_from="first-part", partitions=4,
                      stamps=True) as writers:
        for i in range(20):
            key = b"%d" % i
            here = journal.partition_of_key(key, 4)
            assert writers.append(b"v", topic="t", key=key)[0] == here
            assert writers.append(None, topic="t", key=key)[0] == here
    for i in range(4):
        rows = read(tmp_path, topic="t", partition=i)
        assert [row[0] for row in rows] == [b"v", None] * (len(rows) // 2)
        assert [row[1] for row in rows[::2]] == [row[1] for row in rows[1::2]]


ROW = st.tuples(st.binary(max_size=3) | st.none(), st.binary(max_size=3) | st.none(),
                st.lists(st.tuples(st.text(max_size=2), st.binary(max_size=2)), max_size=2))


@given(st.lists(st.lists(ROW, min_size=1, max_size=20), min_size=1, max_size=4), st.data())
def test_any_rows_in_any_blocks(tmp_path_factory, parts, data):
    """And what is read again in any pieces, put together, written again."""
    where = tmp_path_factory.mktemp("j")
    parts = [[(value, b"" if value is None and key is None else key, headers)
              for value, key, headers in rows] for rows in parts]
    with journal.open(where / "a", "a", fsync="never") as writer:
        for rows in parts:
            for value, key, headers in rows:
                writer.append(value, key=key, headers=headers)
            writer.flush()
    rows = [row for part in parts for row in part]
    assert [bool(row[2] & NULLS) for i in range(len(versions(where / "a")))
            for row in blocks(where / "a", i)] == \
        [any(row[0] is None for row in part) for part in parts]
    assert versions(where / "a")[-1] == 1 + any(row[0] is None for row in rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    with journal.open(where / "a") as reader, \
            journal.open(where / "b", "a", fsync="never") as writer:
        assert [row[:3] for row in told_rows([reader.read(0)])] == rows     # put together
        for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            for records in reader.batches(a, b):
                writer.append_records(records)
    assert [row[:3] for row in read(where / "b")] == rows


def test_a_slice_without_tombstones_says_so(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b"a", None, b"c"], keys=[None, b"k", None])
    with journal.open(tmp_path) as reader:
        records = reader.read(0)
        assert records.nulls.tolist() == [False, True, False]
        assert records.slice(0, 1).nulls is None and records.slice(2).nulls is None
        assert records.slice(1, 2).nulls.tolist() == [True]
        assert records.slice(1, 1).nulls is None and records.slice(1, 1).to_list() == []
        assert records.size == 3 * 12 + 2 + 1 and records.nbytes == 2
        assert reader.read(2).to_list() == [b"c"]


def test_a_batch_does_not_lose_them(tmp_path):
    """Arrays of values alone have no nulls."""
    with journal.open(tmp_path / "a", "a") as writer:
        writer.append_many([b"a", None, b""], keys=[b"k"] * 3)
    with journal.open(tmp_path / "a") as reader, journal.open(tmp_path / "b", "a") as writer:
        with pytest.raises(UsageError, match="no tombstones") as caught:
            writer.append_batch(reader.read(0))
        assert "append_records" in caught.value.hint and writer.next == 0
        writer.append_batch(reader.read(0).slice(2))
        writer.append_records(reader.read(0))
    assert contents(tmp_path / "b") == [b"", b"a", None, b""]


# -- the files -------------------------------------------------------------------------------------

def test_a_block_without_tombstones_is_as_ever(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"a", key=b"k")
        writer.flush()
        writer.append(None, key=b"k")
        writer.flush()
        writer.append(b"b", key=b"k")
    assert [row[2] for row in blocks(tmp_path)] == [1]
    assert [row[2] for row in blocks(tmp_path, 1)] == [1 | NULLS, 1]
    assert versions(tmp_path) == [1, 2]     # a segment of version 1 has ended


def test_an_empty_segment_of_version_1_becomes_version_2(tmp_path):
    """A new one would have its name."""
    for how in ({}, {"begin": 50}):
        where = tmp_path / str(len(how))
        journal.open(where, "a", **how).close()
        assert versions(where) == [1]
        with journal.open(where, "a") as writer, journal.open(where, durable=False) as reader:
            assert reader.end == writer.next
            writer.append(None, key=b"k")
            writer.flush()
            assert reader.read(writer.next - 1).to_list() == [None]
        assert versions(where) == [2]
        assert not journal.verify(where).findings
        with journal.open(where, "a") as writer:
            writer.append(b"x")
        assert contents(where) == [None, b"x"]


def test_a_file_that_is_another_writers_keeps_its_version(tmp_path):
    with journal.open(tmp_path, "a", fsync="never") as writer:
        [path] = segment_files(tmp_path)
        with open(path, "ab") as file:
            file.write(bytes(64))
        writer.append(None, key=b"k")
        with pytest.raises(journal.JournalWriteError):
            writer.flush()
        assert versions(tmp_path) == [1]
        with pytest.raises(journal.JournalWriteError):
            writer.close()


def test_the_next_segments(tmp_path):
    """After the first tombstone, a writer's next segments are of version 2; another writer's are
    not until it stores one."""
    for n in range(2):
        with journal.open(tmp_path, "a") as writer:
            writer.append(b"a")
            writer.rotate()
            writer.append(b"b")
            writer.append(None, key=b"k")       # in the block of the one before
            writer.rotate()
            writer.append(b"c")
            writer.rotate()
            writer.append(None, key=b"k")
        assert versions(tmp_path) == [1, 2, 2, 2] + [2, 2, 2, 2][:3 * n]
    with journal.open(tmp_path, "a") as writer:
        writer.rotate()
        writer.append(b"x")
    assert versions(tmp_path)[-1] == 1


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_blocks_that_are_held_back(tmp_path, begun, first):
    """Shown together or taken back, also where the segment before them is of version 1."""
    with journal.open(tmp_path, "a") as writer:
        writer.append_many(TEXT[:begun])
    before = TEXT[:begun]
    rows = [None, *TEXT] if first else [*TEXT, None]
    with journal.open(tmp_path, "a") as writer, journal.open(tmp_path, durable=False) as reader:
        for keep in (False, True, False):
            writer._hold()
            for _ in range(3):
                for value in rows:
                    writer.append(value, key=b"k")
                writer.flush()
                assert reader.end == len(before)
            if keep:
                writer.commit()
                before = before + rows * 3
            else:
                assert writer._undo()
            assert reader.end == len(before)
            assert contents(tmp_path, durable=False) == before
    assert contents(tmp_path) == before and not journal.verify(tmp_path).findings


def test_a_duplicate_leaves_no_column(tmp_path):
    how = {"stamps": True, "deduplicate": True}
    with journal.open(tmp_path, "a", **how) as writer:
        writer.append_records(single(None, b"k", [], (4, 0), 1.0))
        writer.flush()
        writer.append(b"x")
        writer.append_records(single(None, b"k", [], (4, 0), 1.0))
        writer.append(b"y")
        assert writer.duplicates == 1
    assert [row[2] & NULLS for row in blocks(tmp_path)] == [NULLS, 0]
    assert contents(tmp_path) == [None, b"x", b"y"]


def test_many_blocks_and_sizes(tmp_path, rng):
    values = [rng.choice((None, b"", bytes(rng.choice((1, 100, 5000))))) for _ in range(3000)]
    with journal.open(tmp_path, "a", block_bytes=1024, segment_bytes=65536) as writer:
        while len(values) > writer.next:
            n = rng.randrange(1, 90)
            some = values[writer.next:writer.next + n]
            if None in some or rng.random() < 0.5:
                writer.append_many(some, keys=[b"k"] * len(some))
            else:
                writer.append_batch(*arrays(some))
    assert contents(tmp_path) == values
    assert len(versions(tmp_path)) > 10


def test_a_full_disk(tmp_path):
    """The block is tried again, also where the file's version could not be written."""
    with journal.open(tmp_path, "a") as writer:
        disk = Disk()
        disk.attach(writer)
        disk.fail(room=0)
        writer.append(None, key=b"k")
        with pytest.raises(journal.JournalFull):
            writer.flush()
        disk.fail(room=60)
        with pytest.raises(journal.JournalFull):
            writer.flush()
        disk.fail(room=-1)
        writer.append(b"x")
    assert contents(tmp_path) == [None, b"x"] and versions(tmp_path) == [2]


def test_threads(tmp_path):
    with journal.open(tmp_path, "a", block_bytes=1024) as writer:
        def work(number):
            for i in range(300):
                writer.append(None if i % 3 == number else b"%d" % number, key=b"%d" % i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = read(tmp_path)
    assert sum(row[0] is None for row in rows) == 300 and len(rows) == 900
    for value, key, *_ in rows:
        assert value is None or int(key) % 3 != int(value)


# -- every other reader and writer -----------------------------------------------------------------

def test_a_server_and_a_mirror(tmp_path, ctx, serve):
    with journal.open(tmp_path / "a", "a", topic="t", stamps=True) as writer:
        wanted = fill(writer)
        writer.commit()
        url = f"{serve(tmp_path / 'a').urls[0]}/t"
        with journal.open(url, context=ctx) as remote:
            assert told_rows(remote.batches()) == wanted
            assert told_rows(remote.batches(max_bytes=500)) == wanted
            assert told_rows([remote.read(2, max_bytes=1)]) == wanted[2:3]
            with journal.open(tmp_path / "b", "a", topic="t", mirror=True,
                              compression="zstd") as copy, mq.device(remote, copy):
                writer.append(None, key=b"live")
                writer.commit()
                for records in remote.follow(200, timeout=LIMIT):
                    assert records.to_list() == [None]
                    break
                with journal.open(tmp_path / "b", topic="t") as reader:
                    at = 0
                    for records in reader.follow(0, timeout=LIMIT):
                        assert told_rows([records]) == [
                            *wanted, (None, b"live", [], records.times[-1], 0)][at:records.next]
                        at = records.next
                        if at == 201:
                            break
    with journal.open(tmp_path / "b", "a", topic="t") as writer:
        assert writer.next == 201


@pytest.mark.parametrize("wanted", [[b"", None, b"v"], [None]])
def test_aread(tmp_path, wanted):
    import asyncio

    with journal.open(tmp_path, "a") as writer:
        writer.append_many(wanted, keys=[b"k"] * len(wanted))

    async def main():
        async with await journal.aopen(tmp_path) as reader:
            async for records in reader.afollow(0):
                return records.to_list()
    assert asyncio.run(main()) == wanted


def test_backup_promotion_and_truncation(tmp_path):
    with journal.open(tmp_path / "a", "a") as writer:
        for _ in range(3):
            writer.append_many([*TEXT, None], keys=[b"k"] * 501)
            writer.rotate()
    journal.backup(tmp_path / "a", tmp_path / "b")
    assert contents(tmp_path / "b") == [*TEXT, None] * 3
    journal.promote(tmp_path / "b")
    with journal.open(tmp_path / "b", "a") as writer:
        assert writer.truncate_before(501) == 501
        writer.append(None, key=b"k")
    with journal.open(tmp_path / "b") as reader:
        assert reader.first == 501 and reader.read(1503).to_list() == [None]


@pytest.mark.parametrize("known", [True, False])
def test_sent_again(tmp_path, known):
    """A tombstone and an empty message under one number are two messages, also where the file
    `producers` is gone."""
    how = {"stamps": True, "deduplicate": True}
    with journal.open(tmp_path, "a", **how) as writer:
        writer.append_records(single(None, b"k", [("n", b"v")], (4, 0), 1.0))
        writer.append(journal.stamp(4, 1, 1.0, key=b"k"))
    if not known:
        (tmp_path / "default" / "0" / "producers").unlink()
    with journal.open(tmp_path, "a", **how) as writer:
        assert len(writer.append_records(single(None, b"k", [], (4, 0), 1.0))) == 0
        writer.append(journal.stamp(4, 1, 1.0, key=b"k"))
        assert writer.duplicates == 2
        with pytest.raises(journal.StampRefused) as caught:
            writer.append(journal.stamp(4, 0, 1.0, key=b"k"))
        assert caught.value.status == 3
        with pytest.raises(journal.StampRefused) as caught:
            writer.append_records(single(None, b"k", [], (4, 1), 1.0))
        assert caught.value.status == 3
        writer.append(b"x")
    assert [row[:3] for row in read(tmp_path)] == [
        (None, b"k", [("n", b"v")]), (b"", b"k", []), (b"x", None, [])]


def test_a_socket_makes_none_and_gets_none(tmp_path, ctx):
    """Recorded, an empty message is empty; sent again, a tombstone is an empty message."""
    with journal.open(tmp_path / "a", "a") as writer, \
            mq.Rep(bind="inproc://tomb", context=ctx) as front, mq.device(front, writer), \
            mq.Req(connect="inproc://tomb", context=ctx) as back:
        back.request(b"", timeout=LIMIT)
    assert contents(tmp_path / "a") == [b""]
    with journal.open(tmp_path / "b", "a", stamps=True) as writer:
        writer.append_many([b"a", None], keys=[b"k", b"k"])
        writer.append_records(single(None, b"k", [], (7, 3), 1.0))
    for stamps in (False, True):
        with journal.open(tmp_path / "b") as reader, \
                mq.Push(bind=f"inproc://again{stamps}", context=ctx) as push, \
                mq.Pull(connect=f"inproc://again{stamps}", context=ctx) as pull:
            assert journal.replay(reader, push, speed=0, stamps=stamps) == 3
            got = [pull.recv(timeout=LIMIT) for _ in range(3)]
        assert got == [b"a", b"", journal.stamp(7, 3, 1.0, key=b"k") if stamps else b""]


def test_consumer_groups_and_stored_bytes(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([None] * 100, keys=[b"k"] * 100, time=50.0)
    with journal.open(tmp_path) as reader:
        reader.commit_offset("g", 40)
        assert reader.committed_offset("g") == 40 and reader.at(50.0) == 0
        assert 0 < reader.stored_bytes(0, 100) < os.path.getsize(segment_files(tmp_path)[0]) * 2


@CODECS
def test_writers_with_compression_in_turns(tmp_path, codec):
    wanted = []
    for compression in (None, codec, None, codec):
        with journal.open(tmp_path, "a", compression=compression) as writer:
            writer.append_many([*TEXT, None], keys=[b"k"] * 501)
            wanted += [*TEXT, None]
    assert [row[2] for row in blocks(tmp_path)] == [
        1 | NULLS, 1 | NULLS | FLAG[codec], 1 | NULLS, 1 | NULLS | FLAG[codec]]
    assert contents(tmp_path) == wanted and versions(tmp_path) == [2]
