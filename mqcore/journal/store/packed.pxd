"""A finished block: its pieces in a row, compressed if that makes it smaller.

Call with `lock` held. The codec takes the GIL, for which a holder of the lock may wait. Blocks are
compressed in segments of version 2 alone: an older reader refuses such a segment, while it would
take a compressed block in a segment of version 1 for damage. A writer that goes on with a segment
of version 1 therefore begins a new one first. Blocks with tombstones or lives need version 2 as
well: see nulls.pxd.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from mqcore.base.includes cimport iovec
from mqcore.journal.store.block cimport (
    BLOCK_HEADER, DATA, HAS_HEADERS, KEYS, MODERN, NAME_ENDS, NAMES, PACKED_VERSION, PIECES,
    UNPACKED_MAX, VALUES, BlockHeader, aligned,
)
from mqcore.journal.store.buffer cimport push_zeros
from mqcore.journal.store.disk cimport NOTHING
from mqcore.journal.store.includes cimport crc32c
from mqcore.journal.store.log cimport Log, Piece


cdef inline int line_up(BlockHeader* h, Piece* pieces, iovec* iov) noexcept nogil:
    """A block out of its columns: how many pieces it has. h: first, count, flags, span, times.
    pieces: PIECES of them; iov has space for two each, and the header."""
    cdef size_t pad
    cdef int i, n = 1
    h.n_headers = <uint32_t> (pieces[<int> NAME_ENDS].n // 4 - 1) if h.flags & HAS_HEADERS else 0
    h.value_bytes = pieces[<int> VALUES].n
    h.key_bytes = pieces[<int> KEYS].n
    h.name_bytes = pieces[<int> NAMES].n
    h.datum_bytes = pieces[<int> DATA].n
    h.size = BLOCK_HEADER
    iov[0].iov_base = h
    iov[0].iov_len = BLOCK_HEADER
    for i in range(PIECES):
        if pieces[i].n == 0:
            continue
        pad = aligned(pieces[i].n) - pieces[i].n
        iov[n].iov_base = <void*> pieces[i].at
        iov[n].iov_len = pieces[i].n
        n += 1
        if pad:
            iov[n].iov_base = <void*> NOTHING
            iov[n].iov_len = pad
            n += 1
        h.size += pieces[i].n + pad
    return n


cdef inline uint32_t crc_of(const iovec* iov, int n) noexcept nogil:
    """Of the pieces behind the header, once they are what will be written."""
    cdef uint32_t crc = 0
    cdef int i
    for i in range(1, n):
        crc = crc32c(crc, <const uint8_t*> iov[i].iov_base, iov[i].iov_len)
    return crc


cdef inline bint outdated(Log* log, const BlockHeader* h) noexcept nogil:
    """The segment ends before this block. One that holds nothing cannot, since the next would
    have its name; and what readers do not see yet stays together."""
    return (log.packs or h.flags & MODERN) \
        and log.segment.version < PACKED_VERSION \
        and log.withheld.n == 0 and log.written.load() > log.segment.first


cdef inline int pack_block(Log* log, BlockHeader* h, iovec* iov, int n) noexcept nogil:
    """How many pieces the block has now. It stays as it is if it does not get smaller, is too
    large, or if compressing fails."""
    cdef size_t raw = h.size - BLOCK_HEADER
    if raw > UNPACKED_MAX or log.segment.version < PACKED_VERSION and not outdated(log, h):
        return n
    if log.pack(log.codec, iov + 1, n - 1, raw, &log.packed):
        return n
    h.packed_bytes = log.packed.n
    if aligned(h.packed_bytes) >= raw or push_zeros(
            &log.packed, aligned(h.packed_bytes) - h.packed_bytes):
        h.packed_bytes = 0
        return n
    h.flags |= log.packs
    h.size = BLOCK_HEADER + log.packed.n
    iov[1].iov_base = log.packed.at
    iov[1].iov_len = log.packed.n
    return 2
