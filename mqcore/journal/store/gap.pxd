"""What a copy of a compacted journal passes over.

A gap between two messages of a block makes it sparse: it gets the flag COMPACTED, and the column of
places. Where a gap is not within a block, a checkpoint with that flag stands for it. A gap is
written with the block in the making, so `next` may be above where that ends. Call with `lock` held;
what returns int returns 0 or an errno.
"""

from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from mqcore.journal.store.block cimport (
    BLOCK_HEADER, COMPACTED, SPAN_MAX, BlockHeader, block_end,
)
from mqcore.journal.store.buffer cimport buffer_room, push
from mqcore.journal.store.log cimport Log, Piece, emit, log_awake, log_flush

cdef enum:
    # from the first message of a block to the last gap: a block has fewer messages than the rest
    FARTHEST = SPAN_MAX - (1 << 25)


cdef inline int64_t reached(Log* log) noexcept nogil:
    """Where the last block leads to, whether readers see it yet or not."""
    cdef size_t n = log.withheld.n // BLOCK_HEADER
    return block_end(&(<BlockHeader*> log.withheld.at)[n - 1]) if n else log.written.load()


cdef inline int gap_write(Log* log, int64_t offset) noexcept nogil:
    """A checkpoint behind the last block: it goes on at this offset."""
    cdef BlockHeader h
    cdef Piece pieces[17]
    memset(&h, 0, sizeof(h))
    memset(pieces, 0, sizeof(pieces))
    h.first = offset
    h.flags = COMPACTED
    h.min_time = LLONG_MAX
    h.max_time = LLONG_MIN
    return emit(log, &h, pieces)


cdef inline int log_pass(Log* log, int64_t offset) noexcept nogil:
    """The next message gets this offset, which is above log.next. What follows needs the
    checkpoint, so it gets durable with that."""
    cdef int rc = log_flush(log)
    if rc == 0 and log.barred:
        rc = log_awake(log)
    if rc == 0:
        rc = gap_write(log, offset)
    if rc == 0:
        log.next = offset
    return rc


# -- a block with gaps -----------------------------------------------------------------------------

cdef inline int with_places(Log* log) noexcept nogil:
    """Of the messages that the block has; there is one."""
    cdef uint32_t i
    cdef int rc
    if log.flags & COMPACTED:
        return 0
    rc = buffer_room(&log.places, 4 * <size_t> log.count)
    if rc:
        return rc
    for i in range(log.count):
        (<uint32_t*> log.places.at)[i] = i
    log.places.n = 4 * <size_t> log.count
    log.base = log.next - log.count
    log.flags |= COMPACTED
    log.filled += log.places.n
    return 0


cdef inline int log_leap(Log* log, int64_t offset) noexcept nogil:
    """log_pass(), with what follows in the same block if that may be."""
    cdef int64_t base = log.base if log.flags & COMPACTED else log.next - log.count
    cdef int rc = log_awake(log) if log.barred else 0
    if rc == 0 and log.count and offset - base > FARTHEST:
        rc = log_flush(log)
    if rc == 0 and log.count:
        rc = with_places(log)
    if rc == 0:
        log.next = offset
    return rc


cdef inline int place_next(Log* log) noexcept nogil:
    """Of the message in the making."""
    cdef uint32_t place = <uint32_t> (log.next - log.base)
    log.filled += 4
    return push(&log.places, &place, 4)


cdef inline void place_trim(Log* log) noexcept nogil:
    """The message in the making is not taken."""
    if log.flags & COMPACTED:
        log.places.n = 4 * <size_t> log.count


cdef inline void places_into(Log* log, BlockHeader* h, Piece* piece) noexcept nogil:
    """The last gap may have no message behind it: it is none of the block's."""
    h.first = log.base
    h.span = <uint64_t> (<uint32_t*> log.places.at)[h.count - 1] + 1
    if h.span == h.count:
        h.flags &= ~<uint32_t> COMPACTED
        h.span = 0
    else:
        piece.at = log.places.at
        piece.n = log.places.n
