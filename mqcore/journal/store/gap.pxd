"""What a copy of a compacted journal passes over: a checkpoint with the flag COMPACTED."""

from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.stdint cimport int64_t
from libc.string cimport memset

from mqcore.journal.store.block cimport COMPACTED, BlockHeader
from mqcore.journal.store.log cimport Log, Piece, emit, log_awake, log_flush


cdef inline int log_pass(Log* log, int64_t offset) noexcept nogil:
    """With the log's lock: the next message gets this offset, which is above log.next. What follows
    needs the checkpoint, so it gets durable with that."""
    cdef BlockHeader h
    cdef Piece pieces[16]
    cdef int rc = log_flush(log)
    if rc == 0 and log.barred:
        rc = log_awake(log)
    if rc:
        return rc
    memset(&h, 0, sizeof(h))
    memset(pieces, 0, sizeof(pieces))
    h.first = offset
    h.flags = COMPACTED
    h.min_time = LLONG_MAX
    h.max_time = LLONG_MIN
    rc = emit(log, &h, pieces)
    if rc == 0:
        log.next = offset
    return rc
