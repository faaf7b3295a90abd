"""Blocks that say what cannot be, behind a CRC that matches or is not looked at."""

import struct

import pytest
from compact_case import SMALL, fill, folder_of

from mqcore import journal
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.rewriting import COMPACTED
from mqcore.journal.store.scan import HEADER_SIZE, Block
from mqcore.journal.store.segment import Segment, checkpoint


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


def sparse_block(where):
    """(path, where its places are, how many there are) of one in front of the last segment."""
    for first in sorted(int(path.stem) for path in folder_of(where).glob("*.mqj"))[:-1]:
        segment = Segment(folder_of(where), first)
        try:
            pos, size = HEADER_SIZE, segment.size()
            while pos < size:
                block = segment.block(pos, size)
                assert isinstance(block, Block)
                if block.count > 2 and block.flags & COMPACTED and not block.packed:
                    return segment.path, block.window.start + block.column(16)[0], block.count
                pos += block.size
        finally:
            segment.close()
    return pytest.fail("no block is sparse")


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("room", [1, 1 << 20])
def test_damaged_places_that_are_not_verified(where, rng, which, room):
    """Reading ends, with an error."""
    fill(where, rng, 600)
    journal.compact(where, min_share=0)
    path, at, count = sparse_block(where)
    row = {"first": 0, "middle": count // 2, "last": count - 1}[which]
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, at + 4 * row, 1 << 20 if which == "first" else 0)
    path.write_bytes(raw)
    with journal.open(where, verify=False) as reader:
        seen = []
        with pytest.raises(JournalCorrupt, match="point outside it"):
            for records in reader.batches(max_bytes=room):
                assert not seen or records.first > seen[-1]
                seen.append(records.first)


@pytest.mark.parametrize("offset", [2**62 + 1, 2**63 - 2, 2**63 - 1])
def test_a_checkpoint_behind_all_offsets(where, offset):
    """It is no block: what a crash has left, as nothing says that it was durable."""
    with journal.open(where, "a", **SMALL) as log:
        log.append_many([b"0", b"1"])
    [path] = folder_of(where).glob("*.mqj")
    segment = Segment(folder_of(where), 0)
    segment.close()
    with path.open("ab") as file:
        file.write(checkpoint(offset, 2, segment.salt, 0, 1))
    with journal.open(where) as reader:
        assert (reader.end, reader.durable) == (2, 2)
        assert [value for records in reader.batches() for value in records] == [b"0", b"1"]
    [found] = journal.verify(where).findings
    assert (found.offset, found.fault) == (2, "the block's header contradicts itself")
    with journal.open(where, "a") as log:
        assert len(log.recovered) == 1 and log.append(b"2") == 2
