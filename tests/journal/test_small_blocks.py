"""Small blocks that follow each other are put together natively when they are read."""

import pytest
from journal_case import segment_files, told_rows

from mqcore import journal
from mqcore.journal.store.scan import BLOCK_HEADER_SIZE, HEADER_SIZE
from mqcore.journal.store.segment import Segment

MANY = 1 << 20


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


def fill(where, rng, n, **options):
    """n messages in blocks of one to four, with or without each column: what a reader tells."""
    rows = []
    kind = rng.randrange(8)
    with journal.open(where, "a", fsync="never", **options) as log:
        for i in range(n):
            if rng.random() < 0.05:         # most blocks are like the one before
                kind = rng.randrange(8)
            value = b"%d" % i + bytes(rng.choice((0, 0, 3, 100)))
            key = rng.choice((b"", b"k", b"key %d" % i)) if kind & 1 else None
            if kind & 2 and key is not None and rng.random() < 0.5:
                value = None
            headers = [(f"h{j}", b"%d" % j) for j in range(rng.randrange(3))] if kind & 4 else []
            log.append(value, key=key, headers=headers, time=i)
            rows.append((value, key, headers, float(i), 0))
            if rng.random() < 0.5:
                log.flush()
            if rng.random() < 0.01:
                log.rotate()
    return rows


def test_all_columns_are_as_they_were(where, rng):
    for seed in range(8):
        rows = fill(where / str(seed), rng, 400,
                    compression=rng.choice((None, None, "zstd")), segment_bytes=1 << 20)
        with journal.open(where / str(seed), durable=False) as reader:
            for most in (1, 100, 3000, MANY):
                assert told_rows(reader.batches(max_bytes=most)) == rows
            for at in (rng.randrange(400) for _ in range(50)):
                records = reader.read(at, max_bytes=rng.choice((1, 500, MANY)))
                assert told_rows([records]) == rows[at:records.next] and records.first == at


def test_stamps(where):
    with journal.open(where, "a", stamps=True, fsync="never") as log:
        for i in range(50):
            log.append(journal.stamp(7 + i % 3, i // 3, time=i) + b"%d" % i)
            log.flush()
    with journal.open(where, durable=False) as reader:
        reader.read(0, max_bytes=1)
        found = reader.read(1)
        assert found.next == 50 and found.to_list() == [b"%d" % i for i in range(1, 50)]
        assert found.producers.tolist() == [7 + i % 3 for i in range(1, 50)]
        assert found.sequences.tolist() == [i // 3 for i in range(1, 50)]


def joined(where, pos=HEADER_SIZE, room=MANY):
    [path] = segment_files(where)
    segment = Segment(path.parent, 0)
    block = segment.window(pos, BLOCK_HEADER_SIZE).joined(pos, segment.size(), segment.salt, room)
    segment.close()
    return None if block is None else block.count


def blocks_of(where, *sizes):
    with journal.open(where, "a", fsync="never") as log:
        for size in sizes:
            log.append(bytes(size))
            log.flush()


@pytest.mark.parametrize("sizes, count", [
    ([1] * 30, 30), ([1, 1, 9000, 1], 2), ([9000, 1, 1], None), ([1], None),
    ([1] * 1500, 1024), ([7000] * 30, 9)])
def test_how_many(where, sizes, count):
    blocks_of(where, *sizes)
    assert joined(where) == count


def test_no_more_than_there_is_room_for(where):
    blocks_of(where, *[100] * 30)
    assert joined(where, room=10 * 112) == 10
    assert joined(where, room=1) is None
    assert joined(where, pos=HEADER_SIZE + 1) is None
    assert joined(where, pos=1 << 40) is None


@pytest.mark.parametrize("verify", [True, False])
def test_they_end_in_front_of_damage(where, verify):
    blocks_of(where, *[100] * 30)
    [path] = segment_files(where)
    raw = bytearray(path.read_bytes())
    size = BLOCK_HEADER_SIZE + 64 + 64 + 128        # the header, a time, two ends, a value
    raw[HEADER_SIZE + 20 * size + 300] ^= 1
    path.write_bytes(raw)
    assert joined(where) == 20
    with journal.open(where, verify=verify, durable=False) as reader:
        if not verify:
            assert sum(map(len, reader.batches())) == 30
            return
        reader.read(0, max_bytes=1)
        assert reader.read(1).next == 20
        with pytest.raises(journal.JournalCorrupt) as caught:
            reader.read(20)
        assert caught.value.offset == 20
    with journal.open(where, salvage=True) as reader:
        assert [records.first for records in reader.batches(gaps="skip")][-1] == 21


def test_a_file_that_changes_under_a_reader_is_no_crash(where, rng):
    """Whatever stands there: an answer or an error."""
    blocks_of(where, *[50] * 200)
    [path] = segment_files(where)
    raw = path.read_bytes()
    with journal.open(where, durable=False) as reader:
        for _ in range(200):
            wrong = bytearray(raw)
            for _ in range(rng.randrange(1, 4)):
                wrong[rng.randrange(HEADER_SIZE, len(raw))] = rng.randrange(256)
            path.write_bytes(wrong)
            try:
                for records in reader.batches():
                    assert records.to_list() == [bytes(50)] * len(records)
            except journal.JournalCorrupt:
                pass
