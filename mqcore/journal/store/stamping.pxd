"""The stamp of the message in the making, and the columns of a block for it.

A life says which start of its producer has sent a message, so that an older one that comes back can
be told from its successor. A block with a life that is not 0 has the column LIVES and the flag
HAS_LIVES; all others are as if there were no lives. Such a block needs a segment of version 2: see
nulls.pxd. Call with `lock` held; what returns int returns 0 or an errno.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from mqcore.journal.store.block cimport (
    HAS_KEYS, HAS_LIVES, HAS_STAMPS, KEY_ENDS, LIFE_STAMP, LIVES, PRODUCERS, SENT, SEQUENCES, STAMP,
    VALUES,
)
from mqcore.journal.store.buffer cimport Buffer, push, push_zeros
from mqcore.journal.store.log cimport Log, log_key, stamp_key, stamp_size


cdef inline int with_stamps(Log* log) noexcept nogil:
    cdef int rc, i
    if log.flags & HAS_STAMPS:
        return 0
    for i in range(<int> PRODUCERS, <int> SENT + 1):
        log.columns[i].n = 0
        rc = push_zeros(&log.columns[i], 8 * <size_t> log.count)
        if rc:
            return rc
    log.flags |= HAS_STAMPS
    log.filled += 24 * <size_t> log.count
    return 0


cdef inline int log_stamp(Log* log, uint64_t producer, uint64_t sequence, int64_t sent,
                          uint32_t life) noexcept nogil:
    """The stamp of the message in the making. log_take() or log_trim() follows."""
    cdef int rc = with_stamps(log)
    if rc == 0:
        rc = push(&log.columns[<int> PRODUCERS], &producer, 8)
    if rc == 0:
        rc = push(&log.columns[<int> PRODUCERS + 1], &sequence, 8)
    if rc == 0:
        rc = push(&log.columns[<int> SENT], &sent, 8)
    log.filled += 24
    log.life = life if producer else 0
    return rc


cdef inline bint has_stamp(Log* log) noexcept nogil:
    return log.flags & HAS_STAMPS and \
        log.columns[<int> SENT].n >= 8 * (<size_t> log.count + 1)


cdef inline bint has_key(Log* log) noexcept nogil:
    """The message in the making has been given its key."""
    return log.flags & HAS_KEYS and \
        log.columns[<int> KEY_ENDS].n >= 4 * (<size_t> log.count + 2)


cdef inline int take_stamp(Log* log, size_t start) noexcept nogil:
    """The message from `start` on in VALUES: its stamp, if it begins with one, into the columns."""
    cdef Buffer* values = &log.columns[<int> VALUES]
    cdef uint8_t* at = values.at + start
    cdef size_t front = 0
    cdef size_t key = 0
    cdef uint64_t producer = 0
    cdef int i, rc = 0
    if log.stamped and not log.unstamped:
        front = stamp_size(at, values.n - start)
    if front:
        key = stamp_key(at)
        memcpy(&producer, at + 8, 8)
    if front == 0 and not log.flags & HAS_STAMPS:
        return 0
    if key and not has_key(log):
        rc = log_key(log, at + front, key)
    if rc == 0:
        rc = with_stamps(log)
    for i in range(3):
        if rc == 0:
            rc = (push(&log.columns[<int> PRODUCERS + i], at + 8 + 8 * i, 8) if front
                  else push_zeros(&log.columns[<int> PRODUCERS + i], 8))
    if rc == 0 and front:
        if front == LIFE_STAMP and producer:
            memcpy(&log.life, at + STAMP, 4)
        front += key
        memmove(at, at + front, values.n - start - front)
        values.n -= front
    log.filled += 24
    return rc


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
