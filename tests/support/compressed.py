"""Compressed blocks, for the journal's tests: what a segment has, and blocks made by hand."""

import journal_reference as ref
import pytest
from journal_case import segment_files

from mqcore.journal.store.scan import Block, parse_segment
from mqcore.journal.store.segment import Segment

FLAG = {"zstd": ref.ZSTD, "lz4": ref.LZ4}
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
