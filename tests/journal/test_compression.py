"""Compressed blocks: every way to write them and to read them."""

import gc
import os
import sys
import threading

import journal_reference as ref
import pytest
from click.testing import CliRunner
from compressed import CODECS, FLAG, TEXT, blocks, versions
from journal_case import arrays, contents, segment_files
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.cli import cli
from mqcore.errors import NotSupported, OptionError
from mqcore.journal.store import compressors

LIMIT = 20.0


def fill(writer, n=200):
    """Messages with all columns, and without; a list of what a reader must find."""
    wanted = []
    for i in range(n):
        value = TEXT[i % len(TEXT)]
        key = None if i % 3 == 0 else b"" if i % 3 == 1 else b"key %d" % (i % 7)
        headers = [("name", b"value %d" % i), ("\u00e9", b"")] if i % 4 == 0 else []
        stamp = journal.stamp(9, i, 3.0) if i % 5 == 0 else b""
        writer.append(stamp + value, key=key, headers=headers, time=1000.0 + i)
        wanted.append((value, key, headers, 1000.0 + i, i if stamp else 0))
    return wanted


def found(batches):
    rows = []
    for records in batches:
        rows += [(records[i], records.key(i), records.headers(i), records.times[i],
                  0 if records.sequences is None else records.sequences[i])
                 for i in range(len(records))]
    return rows


@CODECS
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("durable", [True, False])
def test_every_column_comes_back(tmp_path, codec, verify, durable):
    with journal.open(tmp_path, "a", stamps=True, compression=codec) as writer:
        wanted = fill(writer)
        writer.flush()
        wanted += fill(writer)
    assert [(first, count, flags) for first, count, flags, *_ in blocks(tmp_path)] == [
        (0, 200, FLAG[codec] | 7), (200, 200, FLAG[codec] | 7)]
    assert all(3 * size < plain for *_, size, plain in blocks(tmp_path))
    with journal.open(tmp_path, verify=verify, durable=durable) as reader:
        assert found(reader.batches()) == wanted
        assert found(reader.batches(max_bytes=300)) == wanted       # a block piece by piece
        assert found(reader.batches(199, 203)) == wanted[199:203]
        assert reader.at(1150.0) == 150 and reader.end == 400
        records = reader.read(3, max_bytes=5000)        # more are copies out of several blocks
        assert not records.data.flags.writeable and records.data.ctypes.data % 64 == 0
        table = records.to_arrow(["key", "value", "headers", "sequence", "offset"]).to_pydict()
        assert table["value"] == [row[0] for row in wanted[3:3 + len(records)]]
        assert table["key"] == [row[1] for row in wanted[3:3 + len(records)]]


def test_what_is_written_without_it_stays_as_it_was(tmp_path):
    with journal.open(tmp_path, "a") as writer:
        writer.append_many(TEXT)
    assert versions(tmp_path) == [1] and {row[2] for row in blocks(tmp_path)} == {0}


@CODECS
def test_a_block_that_does_not_get_smaller_stays_plain(tmp_path, codec):
    noise = os.urandom(100_000)
    with journal.open(tmp_path, "a", compression=codec, block_bytes=1 << 20) as writer:
        writer.append(noise)
        writer.flush()
        writer.append_many(TEXT)
        writer.flush()
        writer.append(noise)
    assert [row[2] for row in blocks(tmp_path)] == [0, FLAG[codec], 0]
    assert contents(tmp_path) == [noise, *TEXT, noise]


def test_writers_with_and_without_it_in_turns(tmp_path):
    """A segment of version 1 ends before the first compressed block. One of version 2 is continued,
    and the one after it is what its writer makes."""
    for compression in (None, "zstd", "lz4", None):
        with journal.open(tmp_path, "a", compression=compression) as writer:
            writer.append_many(TEXT)
    assert versions(tmp_path) == [1, 2]
    assert [row[2] for row in blocks(tmp_path, 1)] == [ref.ZSTD, ref.LZ4, 0]
    with journal.open(tmp_path, "a") as writer:
        writer.rotate()
        writer.append_many(TEXT)
    assert versions(tmp_path) == [1, 2, 1]
    assert contents(tmp_path) == TEXT * 5
    assert journal.verify(tmp_path / "default" / "0").findings == []


def test_an_empty_segment_of_version_1_takes_one_plain_block(tmp_path):
    """A new segment would have its name."""
    journal.open(tmp_path, "a").close()
    with journal.open(tmp_path, "a", compression="zstd") as writer:
        for _ in range(3):
            writer.append_many(TEXT)
            writer.flush()
    assert versions(tmp_path) == [1, 2]
    assert [row[2] for row in blocks(tmp_path) + blocks(tmp_path, 1)] == [0, 8, 8]
    assert contents(tmp_path) == TEXT * 3


@pytest.mark.parametrize("begun", [False, True])
def test_blocks_that_are_held_back(tmp_path, begun):
    """Shown together or taken back, also where the segment before them is of version 1."""
    with journal.open(tmp_path, "a") as writer:
        writer.append_many(TEXT[:begun])
    before = TEXT[:begun]
    with journal.open(tmp_path, "a", compression="zstd") as writer, \
            journal.open(tmp_path, durable=False) as reader:
        for keep in (False, True, False):
            writer._hold()
            for _ in range(3):
                writer.append_many(TEXT)
                writer.flush()
                assert reader.end == len(before)
            if keep:
                writer.commit()
                before = before + TEXT * 3
            else:
                assert writer._undo()
            assert reader.end == len(before)
            assert contents(tmp_path, durable=False) == before
        writer.append_many(TEXT)
    assert contents(tmp_path) == before + TEXT


def test_a_large_batch_and_messages_of_all_sizes(tmp_path, rng):
    values = [bytes([i % 7]) * rng.choice((0, 1, 100, 5000, 300_000)) for i in range(60)]
    with journal.open(tmp_path, "a", compression="lz4", block_bytes=64 << 10) as writer:
        writer.append_batch(*arrays(values))
    assert contents(tmp_path) == values
    assert all(row[2] == ref.LZ4 for row in blocks(tmp_path) if row[4] > 1000)


# -- every other reader ------------------------------------------------------------------------

@CODECS
def test_a_server_and_a_mirror(tmp_path, ctx, serve, codec):
    with journal.open(tmp_path / "a", "a", topic="t", stamps=True, compression=codec) as writer:
        wanted = fill(writer)
        writer.commit()
        url = f"{serve(tmp_path / 'a', groups=True).urls[0]}/t"
        with journal.open(url, context=ctx) as remote:
            assert found(remote.batches()) == wanted
            assert found(remote.batches(max_bytes=500)) == wanted
            assert remote.stored_bytes(0, 200) > 2 * os.path.getsize(
                segment_files(tmp_path / "a", "t")[0])
            remote.commit_offset("g", 7)
            assert remote.committed_offset("g") == 7
            with journal.open(tmp_path / "b", "a", topic="t", mirror=True,
                              compression="zstd") as copy, mq.device(remote, copy) as device:
                writer.append_many(TEXT)
                writer.commit()
                seen = []
                with journal.open(url, context=ctx) as other:
                    for records in other.follow(200, timeout=LIMIT):
                        seen += records.to_list()
                        if len(seen) == len(TEXT):
                            break
                assert seen == TEXT
                _mirrored(device, copy, 200 + len(TEXT))
    assert {row[2] & 24 for row in blocks(tmp_path / "b", topic="t")} == {ref.ZSTD}
    with journal.open(tmp_path / "b", topic="t") as reader:
        assert found(reader.batches(0, 200)) == wanted


def _mirrored(device, copy, end):
    while copy.next < end:
        try:
            device.wait_stopped(timeout=0.05)
        except mq.Timeout:
            continue


def test_backup_promotion_and_truncation(tmp_path):
    with journal.open(tmp_path / "a", "a", compression="zstd") as writer:
        for _ in range(3):
            writer.append_many(TEXT)
            writer.rotate()
    journal.backup(tmp_path / "a", tmp_path / "b")
    assert contents(tmp_path / "b") == TEXT * 3
    journal.promote(tmp_path / "b")         # a mirror or not, it opens and writes
    with journal.open(tmp_path / "a", "a", compression="lz4") as writer:
        assert writer.truncate_before(500) == 500
        writer.append_many(TEXT)
    with journal.open(tmp_path / "a") as reader:
        assert reader.first == 500 and reader.end == 2000


def test_what_was_sent_before_is_known(tmp_path):
    """The stamps in compressed blocks are read when the file `producers` is gone."""
    def stamped():
        return [journal.stamp(4, i, 1.0, key=b"k") + TEXT[i] for i in range(100)]
    how = {"stamps": True, "deduplicate": True, "compression": "zstd"}
    with journal.open(tmp_path, "a", **how) as writer:
        writer.append_many(stamped())
    (tmp_path / "default" / "0" / "producers").unlink()
    with journal.open(tmp_path, "a", **how) as writer:
        assert len(writer.append_many(stamped())) == 0 and writer.duplicates == 100


def test_partitions_from_a_socket(tmp_path, ctx):
    """A device's thread compresses, and other threads append meanwhile."""
    with journal.open(tmp_path, "a", partitions=3, compression="lz4", block_bytes=4096) as writer, \
            mq.Pull(bind="inproc://packed", context=ctx) as front, \
            mq.Push(connect="inproc://packed", context=ctx) as back:
        with mq.device(front, writer) as device:
            threads = [threading.Thread(target=_append, args=(writer, i)) for i in range(3)]
            for thread in threads:
                thread.start()
            for value in TEXT * 4:
                back.send(value)
            for thread in threads:
                thread.join()
            while device.stats().messages < 2000:
                assert device.running and writer.error is None
    assert sum(len(contents(tmp_path, partition=i)) for i in range(3)) == 2000 + 3 * 500
    assert {row[2] & 24 for i in range(3) for row in blocks(tmp_path, partition=i)} == {ref.LZ4}


def _append(writer, number):
    for value in TEXT:
        writer.append(value, key=b"%d" % number)


def test_bytes_that_are_told_are_those_of_plain_blocks(tmp_path):
    for name, compression in (("a", None), ("b", "zstd")):
        with journal.open(tmp_path / name, "a", compression=compression) as writer:
            writer.append_many(TEXT * 20)
    with journal.open(tmp_path / "a") as plain, journal.open(tmp_path / "b") as packed:
        wanted = plain.stored_bytes(0, 10_000)
        assert 0.9 * wanted < packed.stored_bytes(0, 10_000) < 1.1 * wanted
        assert len(packed.read(0, max_bytes=1000)) == len(plain.read(0, max_bytes=1000)) < 20


def test_no_finalizer_runs_while_a_block_is_compressed(tmp_path):
    """The writer's lock is held then, and a finalizer may use the writer."""
    runs = []
    with journal.open(tmp_path / "a", "a") as plain, \
            journal.open(tmp_path / "b", "a", compression="zstd") as packed:
        before = gc.get_threshold()
        gc.callbacks.append(lambda *_: runs.append(1))
        try:
            counts = []
            for writer in (plain, packed, plain, packed):
                writer.append_many(TEXT)
                gc.set_threshold(1, 1, 1)
                runs.clear()
                writer.flush()
                counts.append(len(runs))
                gc.set_threshold(*before)
        finally:
            gc.callbacks.pop()
            gc.set_threshold(*before)
    assert counts[2] == counts[3]


class Refusing:
    """A codec that has no memory."""

    def compress(self, raw, asbytes):
        raise MemoryError([raw[:1]])


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_no_finalizer_runs_where_compressing_fails(tmp_path, monkeypatch, threshold):
    """It would wait for its own thread. The block is stored plain."""
    monkeypatch.setattr("mqcore.journal.store.core.codec", lambda name: Refusing())
    before, done = gc.get_threshold(), []
    with journal.open(tmp_path, "a", compression="zstd") as writer:
        class Finalized:
            def __del__(self):
                writer.append(b"from a finalizer")
                done.append(1)

        for _ in range(20):
            writer.append_many(TEXT)
            garbage = Finalized()
            garbage.me = garbage
            del garbage
            gc.set_threshold(threshold, 1, 1)
            try:
                writer.flush()
            finally:
                gc.set_threshold(*before)
            until(gc.isenabled)     # the flusher's thread may be at the finalizer's message
        # while another thread collects, a collection does nothing
        until(lambda: gc.collect() >= 0 and len(done) == 20)
    assert {row[2] for row in blocks(tmp_path)} == {0}
    got = contents(tmp_path)
    assert [value for value in got if value != b"from a finalizer"] == TEXT * 20
    assert got.count(b"from a finalizer") == 20


def test_a_child_that_is_forked_meanwhile_collects(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        def compress(self, raw, asbytes):
            begun.set()
            assert go_on.wait(50)
            raise MemoryError

    monkeypatch.setattr("mqcore.journal.store.core.codec", lambda name: Slow())
    with journal.open(tmp_path, "a", compression="zstd", fsync="never") as writer:
        writer.append_many(TEXT)
        thread = threading.Thread(target=writer.flush)
        thread.start()
        assert begun.wait(50) and not gc.isenabled()
        child = os.fork()
        if not child:
            os._exit(7 if gc.isenabled() else 1)
        go_on.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        thread.join(50)
        assert gc.isenabled()


def test_a_collector_that_is_off_stays_off(tmp_path):
    with journal.open(tmp_path, "a", compression="lz4") as writer:
        writer.append_many(TEXT)
        gc.disable()
        try:
            writer.flush()
            assert not gc.isenabled()
        finally:
            gc.enable()
    assert gc.isenabled()


def test_the_command_mirror(tmp_path):
    with journal.open(tmp_path / "a", "a", topic="t") as writer:
        writer.append_many(TEXT)
    answer = CliRunner().invoke(cli, ["journal", "mirror", str(tmp_path / "a"), str(tmp_path / "b"),
                                      "--topic", "t", "--once", "--compression", "lz4"])
    assert answer.exit_code == 0, answer.output
    assert {row[2] for row in blocks(tmp_path / "b", topic="t")} == {ref.LZ4}
    assert contents(tmp_path / "b", topic="t") == TEXT


# -- refused -----------------------------------------------------------------------------------

@pytest.mark.parametrize("wrong", ["gzip", "", 1, True, b"zstd"])
def test_no_such_codec(tmp_path, wrong):
    for more in ({}, {"partitions": 2}):
        with pytest.raises(OptionError, match="compression="):
            journal.open(tmp_path, "a", compression=wrong, **more)
    assert not list(tmp_path.iterdir())


def test_without_pyarrow(tmp_path, monkeypatch):
    with journal.open(tmp_path, "a", compression="zstd") as writer:
        writer.append_many(TEXT)
    compressors.codec.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    try:
        for call in (lambda: journal.open(tmp_path / "new", "a", compression="lz4"),
                     lambda: journal.open(tmp_path / "new", "a", partitions=2, compression="lz4"),
                     lambda: journal.open(tmp_path, "a"), lambda: contents(tmp_path),
                     lambda: journal.verify(tmp_path / "default" / "0"),
                     lambda: journal.repair(tmp_path)):
            with pytest.raises(NotSupported, match="pyarrow") as caught:
                call()
            assert "mqcore[journal]" in str(caught.value)
        assert not (tmp_path / "new").exists()
        with journal.open(tmp_path / "plain", "a") as writer:      # which needs none
            writer.append(b"x")
        assert contents(tmp_path / "plain") == [b"x"]
    finally:
        compressors.codec.cache_clear()
