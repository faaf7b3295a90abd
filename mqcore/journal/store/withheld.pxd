"""Blocks that no reader sees yet: what may still be taken back.

While `holding` is set, a block is written with zeroes in the place of its header. A reader ends
there as it does at a torn tail, so it hands out none of these blocks, and they can be taken back
without a change to memory that a reader has handed out. The headers wait here. withheld_show()
writes them, the first block's last, so readers see all of the blocks or none. A crash before that
leaves a torn tail. Call with `lock` held; what returns int returns 0 or an errno.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from mqcore.base.includes cimport iovec
from mqcore.journal.store.block cimport BLOCK_HEADER, BlockHeader, block_end
from mqcore.journal.store.buffer cimport push
from mqcore.journal.store.disk cimport write_all
from mqcore.journal.store.log cimport Log


cdef inline int withheld_add(Log* log, const BlockHeader* h) noexcept nogil:
    """Its columns have been written at `pos`."""
    if log.withheld.n == 0:
        log.withheld_low = log.low
        log.withheld_high = log.high
    log.pos += h.size
    return push(&log.withheld, h, BLOCK_HEADER)


cdef inline int withheld_show(Log* log) noexcept nogil:
    """Ends the holding if anything was held. After an error it can be tried again."""
    cdef size_t n = log.withheld.n // BLOCK_HEADER, i = n
    cdef BlockHeader* h = <BlockHeader*> log.withheld.at
    cdef int64_t at = log.pos
    cdef iovec one
    cdef int rc
    while i:
        i -= 1
        at -= h[i].size
        one.iov_base = &h[i]
        one.iov_len = BLOCK_HEADER
        rc = write_all(log, &one, 1, at)
        if rc:
            log.stalled = rc
            return rc
        log.partly = True
    if n:
        log.last = log.pos - h[n - 1].size
        log.last_crc = h[n - 1].crc
        log.marked = False
        log.written.store(block_end(&h[n - 1]))
        log.holding = log.partly = False
        log.withheld.n = 0
        log.stalled = 0
    return 0


cdef inline void withheld_drop(Log* log) noexcept nogil:
    """The file ends where the first of them began; what they have left there is to be covered."""
    cdef size_t n = log.withheld.n // BLOCK_HEADER, i
    cdef BlockHeader* h = <BlockHeader*> log.withheld.at
    for i in range(n):
        log.pos -= h[i].size
    if n:
        log.low = log.withheld_low
        log.high = log.withheld_high
    log.holding = log.partly = False
    log.withheld.n = 0
