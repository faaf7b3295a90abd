"""Tombstones and damage: the column that tells them, and flags that only a newer version knows."""

import sys

import journal_reference as ref
import pytest
from compressed import SALT, TEXT, blocks, raw_segment, versions, with_header, written
from journal_case import contents, segment_files, told_rows

from mqcore import journal
from mqcore.journal.errors import JournalCorrupt, OffsetGone
from mqcore.journal.store import compressors
from mqcore.journal.store.recovery import verify
from mqcore.journal.store.scan import BLOCK_HEADER_SIZE, parse_segment

ROWS = [b"a", None, b"", None, b"longer", None, None, b"h", None, b"j", None]
MESSAGES = [{"time": 10 + i, "value": value, "key": b"k%d" % i} for i, value in enumerate(ROWS)]
BEHIND = ref.checkpoint(len(ROWS), SALT, 0, 20)


def store(where, parts, **how):
    with journal.open(where, "a", topic="t", **how) as writer:
        for part in parts:
            writer.append_many(part, keys=[b"k"] * len(part))
            writer.flush()
    return segment_files(where, "t")


def test_the_writer_writes_what_the_page_says(tmp_path):
    """Byte for byte, but for the clock and the random salt."""
    with journal.open(tmp_path, "a", topic="t", fsync="never") as writer:
        for m in MESSAGES:
            writer.append(m["value"], key=m["key"], time=m["time"] / 1e6)
    [path] = segment_files(tmp_path, "t")
    raw = path.read_bytes()
    head = parse_segment(raw[:512])
    assert raw == (ref.segment_header(0, head.created, head.journal, head.salt, 0, b"t", 2)
                   + ref.block(0, 0, head.salt, MESSAGES)
                   + ref.checkpoint(len(ROWS), head.salt, 10, 10 + len(ROWS) - 1))


@pytest.mark.parametrize("version", [1, 2])
def test_the_flag_is_understood_in_either_version(tmp_path, version):
    """A crash may leave the version that was there before the block."""
    raw = bytearray(raw_segment(ref.block(0, 0, SALT, MESSAGES), BEHIND))
    raw[8:12] = version.to_bytes(4, "little")
    where = written(tmp_path, raw)
    assert contents(where, topic="t") == ROWS
    with journal.open(where, "a", topic="t") as writer:
        writer.append(None, key=b"k")
    assert contents(where, topic="t") == [*ROWS, None] and versions(where, topic="t")[-1] == 2


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_any_flipped_bit_is_told_rows(memory, codec, nobody_writes):
    """Over every byte of a segment of two blocks: a reader finds what was written, or says that it
    is damaged; and verify says so."""
    [path] = store(memory, [ROWS, [*TEXT[:3], None, None]], compression=codec)
    whole = path.read_bytes()
    assert all(row[2] & ref.NULLS for row in blocks(memory, topic="t"))
    changed = bytearray(whole)
    for at in range(len(whole)):
        for bit in range(8) if at % 64 < 2 else (at % 8,):      # of columns of bits, each
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            try:
                assert contents(memory, topic="t") == [*ROWS, *TEXT[:3], None, None], at
            except JournalCorrupt:
                pass
            if at % 16 == 0 and not (at == 8 and bit < 2):      # version 1 or 2
                assert journal.verify(path.parent).findings, at
            changed[at] = whole[at]


def test_bits_that_lie(tmp_path, rng):
    """With CRCs that fit: whatever the column says, a reader gets one value for each message."""
    block = ref.block(0, 0, SALT, MESSAGES)
    at = BLOCK_HEADER_SIZE + 2 * 64 + 64                # behind times and value offsets
    assert block[at:at + 2] == ref.bits([value is not None for value in ROWS])
    for _ in range(50):
        body = bytearray(block[BLOCK_HEADER_SIZE:])
        given = rng.randbytes(2)
        body[at - BLOCK_HEADER_SIZE:at - BLOCK_HEADER_SIZE + 2] = given
        where = written(tmp_path, raw_segment(
            with_header(block[:BLOCK_HEADER_SIZE], body_crc=ref.crc32c(bytes(body))),
            body, BEHIND))
        bits = int.from_bytes(given, "little")
        wanted = [(value or b"") if bits >> i & 1 else None for i, value in enumerate(ROWS)]
        with journal.open(where, topic="t", durable=False) as reader:
            rows = told_rows(reader.batches())
            assert [row[0] for row in rows] == wanted
            with journal.open(tmp_path / "copy", "a", topic="t") as writer:
                first = writer.next
                writer.append_records(reader.read(0))
        with journal.open(tmp_path / "copy", topic="t") as reader:
            copied = told_rows(reader.batches(first))
            assert [row[:4] for row in copied] == [row[:4] for row in rows]


@pytest.mark.parametrize("place", ["salt", "header", "body"])
def test_repair_and_salvage(tmp_path, place):
    parts = [[*TEXT[:50], None], [None, *TEXT[50:99]], [None] * 40]
    [path] = store(tmp_path, parts)
    raw = bytearray(path.read_bytes())
    second = 512 + blocks(tmp_path, topic="t")[0][3]
    raw[{"salt": 50, "header": second + 20, "body": second + 140}[place]] ^= 4
    path.write_bytes(raw)
    kept = [value for part in parts for value in part] if place == "salt" else parts[0] + parts[2]
    with journal.open(tmp_path, topic="t", salvage=True) as reader:
        assert [row[0] for row in told_rows(reader.batches(gaps="skip"))] == kept
    with pytest.raises(JournalCorrupt):
        contents(tmp_path, topic="t")
    assert journal.repair(tmp_path, topic="t").findings
    assert versions(tmp_path, topic="t") == [2]
    with journal.open(tmp_path, topic="t") as reader:
        assert [row[0] for row in told_rows(reader.batches(gaps="skip"))] == kept
        if place != "salt":
            with pytest.raises(OffsetGone):
                reader.read(60)
    with journal.open(tmp_path, "a", topic="t") as writer:
        assert writer.append(None, key=b"k") == 141


def test_a_torn_tail(memory):
    """Cut inside the last block: what was durable is there, and the writer goes on."""
    with journal.open(memory, "a", topic="t", fsync="never") as writer:
        writer.append_many(ROWS, keys=[b"k"] * len(ROWS))
        writer.commit()
        begun = writer._counters()["pos"]
        durable = (memory / "t" / "0" / "durable").read_bytes()
        writer.append_many([None] * 50, keys=[b"k"] * 50)
        writer.flush()
        [path] = segment_files(memory, "t")
        whole = path.read_bytes()
    for end in range(begun, len(whole), 23):
        path.write_bytes(whole[:end])
        (path.parent / "durable").write_bytes(durable)
        with journal.open(memory, "a", topic="t") as writer:
            assert writer.next == len(ROWS)
            writer.append(None, key=b"after")
        assert contents(memory, topic="t") == [*ROWS, None]


# -- flags of the future ---------------------------------------------------------------------------

@pytest.mark.parametrize("behind", [b"", BEHIND])
@pytest.mark.parametrize("flag", [256, 1 << 31])
def test_an_unknown_flag_is_no_torn_tail(tmp_path, flag, behind, nobody_writes):
    """It is refused everywhere, with advice, and a repair does not drop the block."""
    block = ref.block(0, 0, SALT, MESSAGES)
    block = with_header(block[:BLOCK_HEADER_SIZE], flags=1 | ref.NULLS | flag) + \
        block[BLOCK_HEADER_SIZE:]
    where = written(tmp_path, raw_segment(block, behind))
    folder = where / "t" / "0"
    before = segment_files(where, "t")[0].read_bytes()

    def followed():
        with journal.open(where, topic="t", durable=False) as reader:
            next(reader.follow(0, timeout=20))

    def salvaged():
        with journal.open(where, topic="t", salvage=True) as reader:
            list(reader.batches(0, 5))

    for call in (lambda: contents(where, topic="t", durable=False),
                 lambda: contents(where, topic="t", verify=False), followed, salvaged,
                 lambda: journal.open(where, "a", topic="t"), lambda: verify(folder),
                 lambda: journal.repair(where, topic="t")):
        with pytest.raises(JournalCorrupt, match="newer version") as caught:
            call()
        assert "nothing is damaged" in caught.value.hint and caught.value.position == 512
    assert [path.read_bytes() for path in segment_files(where, "t")] == [before]


def test_a_header_that_is_damaged_is_no_newer_version(tmp_path):
    """A flipped bit among the flags does not match the CRC."""
    [path] = store(tmp_path, [ROWS, ROWS])
    raw = bytearray(path.read_bytes())
    raw[512 + 28] ^= 128
    path.write_bytes(raw)
    with pytest.raises(JournalCorrupt, match="does not match its CRC"):
        contents(tmp_path, topic="t")


def test_without_pyarrow(tmp_path, monkeypatch):
    """A segment of version 2 needs it for compressed blocks alone."""
    store(tmp_path, [ROWS])
    store(tmp_path / "packed", [TEXT], compression="zstd")
    compressors.codec.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    try:
        assert contents(tmp_path, topic="t") == ROWS
        store(tmp_path, [ROWS])
        assert not journal.verify(tmp_path / "t" / "0").findings
        with pytest.raises(Exception, match="pyarrow"):
            contents(tmp_path / "packed", topic="t")
    finally:
        compressors.codec.cache_clear()


def test_a_server_that_lies():
    """Columns that do not fit are refused."""
    from mqcore.journal.server.codec import pack, unpack

    records = journal.records.single(None, b"k", [], (1, 2), 3.0)
    head, body = pack(records)
    assert unpack(head, body, "t", 0).to_list() == [None]
    at, size = head["columns"]["value_valid"]
    for wrong in ([at, 0], [at, size + 1], [1 << 40, size]):
        with pytest.raises(journal.JournalError, match="no records"):
            unpack({**head, "columns": {**head["columns"], "value_valid": wrong}}, body, "t", 0)
