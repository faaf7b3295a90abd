"""Compressed blocks, for the journal's tests: what a segment has, and blocks made by hand."""

import journal_reference as ref
import pytest
from journal_case import segment_files

from mqcore.journal.store.scan import Block, parse_segment
from mqcore.journal.store.segment import Segment

FLAG = {"zstd": ref.ZSTD, "lz4": ref.LZ4}
CODECS = pytest.mark.parametrize("codec", ["zstd", "lz4"])
JOURNAL = bytes(range(16))
SALT = 77
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


def written(where, raw):
    folder = where / "t" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020d}.mqj").write_bytes(raw)
    return where


def raw_segment(*parts):
    return ref.segment_header(0, 1, JOURNAL, SALT, 0, b"t", 2) + b"".join(parts)


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
