"""Tombstones: messages whose value is null, apart from empty ones.

A block with one has the column VALUE_VALID and the flag HAS_NULLS; all others are as if there were
no tombstones. Call with `lock` held; what returns int returns 0 or an errno.

Readers of version 1 alone do not know the flag, so such blocks are in segments of version 2. A
segment of version 1 ends first, as it does in front of a compressed block. One that cannot end,
since it holds no message or blocks that are held back, is made version 2 in place. Its header's CRC
does not cover the version.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset

from mqcore.base.includes cimport iovec
from mqcore.journal.store.block cimport HAS_NULLS, PACKED_VERSION, VALUE_VALID, BlockHeader
from mqcore.journal.store.buffer cimport Buffer, buffer_room, push_zeros
from mqcore.journal.store.disk cimport write_all
from mqcore.journal.store.log cimport Log

cdef enum:
    VERSION_AT = 8            # in a segment's header


cdef inline void keep_bits(Buffer* bits, uint32_t n) noexcept nogil:
    """The first n bits."""
    bits.n = (n + 7) // 8
    if n % 8:
        bits.at[n // 8] &= <uint8_t> ((1 << n % 8) - 1)


cdef inline int log_null(Log* log) noexcept nogil:
    """After log_room(): the message in the making has no value. log_take() or log_trim() follows.
    """
    cdef Buffer* valid = &log.columns[<int> VALUE_VALID]
    cdef size_t n = (<size_t> log.count + 7) // 8
    cdef int rc
    if not log.flags & HAS_NULLS:       # all messages before it have one
        valid.n = 0
        rc = buffer_room(valid, n)
        if rc:
            return rc
        if n:
            memset(valid.at, 255, n)
            keep_bits(valid, log.count)
        log.flags |= HAS_NULLS
        log.filled += n
    log.null = True
    return 0


cdef inline int null_or_not(Log* log) noexcept nogil:
    """The bit of the message in the making, where the block has this column."""
    cdef Buffer* valid = &log.columns[<int> VALUE_VALID]
    cdef int rc = 0
    if log.count % 8 == 0:
        rc = push_zeros(valid, 1)
        log.filled += 1
    if rc == 0 and not log.null:
        valid.at[log.count // 8] |= <uint8_t> (1 << log.count % 8)
    return rc


cdef inline void null_taken(Log* log) noexcept nogil:
    log.nulls += log.null
    log.null = False


cdef inline void null_trim(Log* log) noexcept nogil:
    """The message in the making is not taken."""
    log.null = False
    keep_bits(&log.columns[<int> VALUE_VALID], log.count if log.nulls else 0)
    if log.nulls == 0:
        log.flags &= ~<uint32_t> HAS_NULLS


cdef inline int raise_version(Log* log) noexcept nogil:
    """Of the segment file, which cannot end before the next block."""
    cdef uint32_t version = PACKED_VERSION
    cdef iovec iov[1]
    cdef int rc
    iov[0].iov_base = &version
    iov[0].iov_len = sizeof(version)
    rc = write_all(log, iov, 1, VERSION_AT)
    if rc == 0:
        log.segment.version = version
    return rc
