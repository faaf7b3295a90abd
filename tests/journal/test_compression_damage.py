"""Damage to compressed blocks, by accident and on purpose: whatever a segment holds, a reader gets
what was written, or an error that says where it is damaged."""

import journal_reference as ref
import pyarrow
import pytest
from compressed import (
    CODECS,
    FLAG,
    SALT,
    TEXT,
    blocks,
    raw_segment,
    versions,
    with_header,
    written,
)
from journal_case import contents, segment_files
from mqcore.testing.native.journal_disk import Disk

from mqcore import journal
from mqcore.journal.errors import JournalCorrupt, OffsetGone
from mqcore.journal.store.scan import BLOCK_HEADER_SIZE


def packed(columns, codec):
    return pyarrow.compress(columns, {"zstd": "zstd", "lz4": "lz4_raw"}[codec], asbytes=True)


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
    ({"flags": 1 | 8 | 16}, "both codecs"),
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
