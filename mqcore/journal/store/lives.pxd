"""Lives: which start of its producer has sent a message, so that an older one that comes back can
be told from its successor.

A block with one that is not 0 has the column LIVES and the flag HAS_LIVES; all others are as if
there were no lives. Such a block needs a segment of version 2: see nulls.pxd. Call with `lock`
held; what returns int returns 0 or an errno.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from mqcore.journal.store.block cimport HAS_LIVES, LIVES
from mqcore.journal.store.buffer cimport Buffer, push, push_zeros
from mqcore.journal.store.log cimport Log


cdef inline int life_or_not(Log* log) noexcept nogil:
    """That of the message in the making, `log.life`, where it or the block has one."""
    cdef Buffer* lives = &log.columns[<int> LIVES]
    cdef int rc = 0
    if not log.flags & HAS_LIVES:       # all messages before it have none
        lives.n = 0
        rc = push_zeros(lives, 4 * <size_t> log.count)
        if rc:
            return rc
        log.flags |= HAS_LIVES
        log.filled += 4 * <size_t> log.count
    log.filled += 4
    return push(lives, &log.life, 4)


cdef inline void life_taken(Log* log) noexcept nogil:
    log.lived += log.life != 0
    log.life = 0


cdef inline void life_trim(Log* log) noexcept nogil:
    """The message in the making is not taken."""
    log.life = 0
    if log.flags & HAS_LIVES:
        log.columns[<int> LIVES].n = 4 * <size_t> log.count if log.lived else 0
    if log.lived == 0:
        log.flags &= ~<uint32_t> HAS_LIVES
