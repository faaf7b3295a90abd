"""Compressed blocks: every way to write them and to read them, and damage to them."""

import os
import sys
import threading

import journal_reference as ref
import pyarrow
import pytest
from journal_case import arrays, contents, segment_files
from mqcore.testing.native.journal_disk import Disk

import mqcore as mq
from mqcore import journal
from mqcore.errors import NotSupported, OptionError
from mqcore.journal.errors import JournalCorrupt, OffsetGone
from mqcore.journal.store import codecs
from mqcore.journal.store.scan import BLOCK_HEADER_SIZE, Block, parse_segment
from mqcore.journal.store.segment import Segment

LIMIT = 20.0
FLAG = {"zstd": ref.ZSTD, "lz4": ref.LZ4}
JOURNAL = bytes(range(16))
SALT = 77
CODECS = pytest.mark.parametrize("codec", ["zstd", "lz4"])
TEXT = [b'{"flight": %d, "from": "JFK", "to": "SFO", "late": false}' % i for i in range(500)]


def blocks(where, number=0, **kw):
    """(offset, messages, flags, bytes on disk, bytes plain) of each block with messages."""
    found = []
    path = segment_files(where, **kw)[number]
    segment = Segment(path.parent, int(path.stem))
    pos = 512
    while isinstance(block := segment.block(pos, segment.size()), Block):
        if block.count:
            found.append((block.first, block.count, block.flags, block.size, block.unpacked))
        pos += block.size
    segment.close()
    return found


def versions(where, **kw):
    return [parse_segment(path.read_bytes()[:512]).version for path in segment_files(where, **kw)]


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
    codecs.codec.cache_clear()
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
        codecs.codec.cache_clear()


# -- damage ------------------------------------------------------------------------------------

def written(where, raw):
    folder = where / "t" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020d}.mqj").write_bytes(raw)
    return where


def raw_segment(*parts):
    return ref.segment_header(0, 1, JOURNAL, SALT, 0, b"t", 2) + b"".join(parts)


def packed(columns, codec):
    return pyarrow.compress(columns, {"zstd": "zstd", "lz4": "lz4_raw"}[codec], asbytes=True)


def with_header(header, salt=SALT, **fields):
    """The block's header with other fields, and a CRC that fits."""
    at = {"size": (16, 8), "count": (24, 4), "flags": (28, 4), "body_crc": (56, 4),
          "value_bytes": (64, 8), "packed_bytes": (96, 8)}
    raw = bytearray(header)
    for name, value in fields.items():
        start, size = at[name]
        raw[start:start + size] = value.to_bytes(size, "little")
    raw[4:8] = ref.crc32c(salt.to_bytes(8, "little") + raw[8:]).to_bytes(4, "little")
    return bytes(raw)


MESSAGES = [{"time": i, "value": b"value " * 9, "key": b"k"} for i in range(30)]
COLUMNS = ref.block(0, 0, SALT, MESSAGES)[BLOCK_HEADER_SIZE:]


def packed_block(codec, body=None, **fields):
    """A block of MESSAGES whose columns are `body`, whatever that is."""
    real = packed(COLUMNS, codec)
    body = real if body is None else body
    header = ref.block(0, 0, SALT, MESSAGES, real, FLAG[codec])[:BLOCK_HEADER_SIZE]
    given = {"size": BLOCK_HEADER_SIZE + len(ref.padded(body)), "packed_bytes": len(body),
             "body_crc": ref.crc32c(ref.padded(body)), **fields}
    return with_header(header, **given) + ref.padded(body)


def refused(where, **how):
    """The fault that reading tells, whether or not the CRC is checked."""
    faults = set()
    for verify in (True, False):
        with journal.open(where, topic="t", durable=False, verify=verify, **how) as reader, \
                pytest.raises(JournalCorrupt) as caught:
            reader.read(0)
        faults.add(caught.value.fault.split(";")[0])
    [fault] = faults
    return fault


# what follows makes of a fault in the middle more than a torn tail
BEHIND = ref.checkpoint(30, SALT, 0, 29)


@CODECS
def test_the_block_that_the_next_tests_change_is_right(tmp_path, codec):
    assert contents(written(tmp_path, raw_segment(packed_block(codec), BEHIND)), topic="t") == \
        [m["value"] for m in MESSAGES]


@CODECS
@pytest.mark.parametrize("length", [0, 1, len(COLUMNS) - 64, len(COLUMNS) - 1, len(COLUMNS) + 1,
                                    len(COLUMNS) + 64, 1 << 20])
def test_columns_of_another_size(tmp_path, codec, length):
    """They decompress to less or to more than the header says: what is behind them in memory is
    never handed out."""
    body = packed((COLUMNS + bytes(1 << 20))[:length], codec)
    where = written(tmp_path, raw_segment(packed_block(codec, body), BEHIND))
    fault = refused(where)
    assert "compressed columns" in fault or "contradicts itself" in fault
    assert journal.verify(where / "t" / "0").findings


@CODECS
def test_a_bomb(tmp_path, codec):
    """A header that promises more than a block may have is refused before memory is allocated; one
    below that costs what it promises, and no more."""
    before = pyarrow.total_allocated_bytes()
    many = 1 << 31
    for fields in ({"value_bytes": many - 1}, {"count": many}, {"value_bytes": 256 << 20},
                   {"count": 256 << 20}):
        where = written(tmp_path, raw_segment(packed_block(codec, **fields), BEHIND))
        assert "contradicts itself" in refused(where)
    body = packed(bytes(300 << 20), codec)
    where = written(tmp_path, raw_segment(packed_block(codec, body, value_bytes=200 << 20), BEHIND))
    assert "compressed columns" in refused(where)
    assert pyarrow.total_allocated_bytes() == before


@CODECS
@pytest.mark.parametrize(("fields", "why"), [
    ({"flags": 1 | 8 | 16}, "both codecs"), ({"flags": 1 | 32}, "an unknown codec"),
    ({"packed_bytes": 0}, "no bytes"), ({"packed_bytes": 1 << 40}, "more than the block"),
    ({"packed_bytes": (1 << 64) - 1}, "overflow"), ({"count": 0}, "a checkpoint"),
    ({"flags": 1}, "not compressed")])
def test_headers_that_contradict_themselves(tmp_path, codec, fields, why):
    where = written(tmp_path, raw_segment(packed_block(codec, **fields), BEHIND))
    assert "contradicts itself" in refused(where), why


@CODECS
def test_bodies_that_no_compressor_made(tmp_path, codec, rng):
    """Their CRC is right. What decompresses to the right size is handed out if its offsets are
    within it, and all else is refused."""
    good = packed(COLUMNS, codec)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(300):
        body = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        body = bytes(body[:rng.randrange(1, len(body) + 1)] if rng.random() < 0.3 else body)
        where = written(tmp_path, raw_segment(packed_block(codec, body), BEHIND))
        try:
            values = contents(where, topic="t")
        except JournalCorrupt as error:
            assert "columns" in error.fault
            outcomes["refused"] += 1
        else:
            assert len(values) == 30
            outcomes["read"] += 1
    assert outcomes["refused"] and (outcomes["read"] or codec == "zstd"), outcomes


@CODECS
def test_any_flipped_bit_is_found(memory, codec, nobody_writes):
    """Over every byte of a segment of two blocks: a reader finds what was written, or says that it
    is damaged; and verify says so."""
    with journal.open(memory, "a", topic="t", compression=codec) as writer:
        for part in (TEXT[:10], TEXT[10:20]):
            writer.append_many(part)
            writer.flush()
    [path] = segment_files(memory, "t")
    whole = path.read_bytes()
    assert [row[2] for row in blocks(memory, topic="t")] == [FLAG[codec]] * 2
    changed = bytearray(whole)
    for at in range(len(whole)):
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            assert contents(memory, topic="t") == TEXT[:20], at
        except JournalCorrupt:
            pass
        if at % 16 == 0:
            assert journal.verify(path.parent).findings, at
        changed[at] = whole[at]


@CODECS
@pytest.mark.parametrize("place", ["salt", "header", "body"])
def test_repair_and_salvage(tmp_path, codec, place):
    with journal.open(tmp_path, "a", topic="t", compression=codec) as writer:
        for part in (TEXT[:100], TEXT[100:200], TEXT[200:300]):
            writer.append_many(part)
            writer.flush()
    [path] = segment_files(tmp_path, "t")
    raw = bytearray(path.read_bytes())
    second = 512 + blocks(tmp_path, topic="t")[0][3]
    raw[{"salt": 50, "header": second + 20, "body": second + 140}[place]] ^= 4
    path.write_bytes(raw)
    kept = TEXT[:300] if place == "salt" else TEXT[:100] + TEXT[200:300]
    with journal.open(tmp_path, topic="t", salvage=True) as reader:
        assert [value for records in reader.batches(gaps="skip") for value in records.to_list()] \
            == kept
    with pytest.raises(JournalCorrupt):
        contents(tmp_path, topic="t")
    assert journal.repair(tmp_path, topic="t").findings
    assert versions(tmp_path, topic="t") == [2]
    with journal.open(tmp_path, topic="t") as reader:
        assert [value for records in reader.batches(gaps="skip") for value in records.to_list()] \
            == kept
        if place != "salt":
            with pytest.raises(OffsetGone):
                reader.read(150)
    with journal.open(tmp_path, "a", topic="t", compression=codec) as writer:
        assert writer.append(b"next") == 300


@CODECS
def test_a_torn_tail(memory, codec):
    """Cut inside the last block: what was durable is there, and the writer goes on."""
    with journal.open(memory, "a", topic="t", compression=codec, fsync="never") as writer:
        writer.append_many(TEXT[:50])
        writer.commit()
        begun = writer._counters()["pos"]
        durable = (memory / "t" / "0" / "durable").read_bytes()
        writer.append_many(TEXT[50:100])
        writer.flush()
        [path] = segment_files(memory, "t")
        whole = path.read_bytes()
    for end in range(begun, len(whole), 23):
        path.write_bytes(whole[:end])
        (path.parent / "durable").write_bytes(durable)
        for other in segment_files(memory, "t")[1:]:
            other.unlink()
        with journal.open(memory, "a", topic="t", compression=codec) as writer:
            assert writer.next == 50
            writer.append(b"after")
        assert contents(memory, topic="t") == [*TEXT[:50], b"after"]


def test_a_full_disk(tmp_path):
    """The block is tried again, from its columns."""
    with journal.open(tmp_path, "a", topic="t", compression="zstd") as writer:
        disk = Disk()
        disk.attach(writer)
        disk.fail(room=100)
        writer.append_many(TEXT)
        with pytest.raises(journal.JournalFull):
            writer.flush()
        disk.fail(room=-1)
        writer.flush()
    assert contents(tmp_path, topic="t") == TEXT
