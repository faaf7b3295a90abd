"""How old a segment is. The wall clock tells it of one that was begun before. From then on, the
time since the machine was started counts: it cannot be set, and goes on while the machine sleeps.
"""

from libc.stdint cimport int64_t
from posix.time cimport clock_gettime, timespec

from mqcore.journal.store.log cimport NEVER, Log, now_ns, now_us

cdef extern from "<time.h>" nogil:
    int CLOCK_BOOTTIME

cdef enum:
    LOOK = 60000000           # us: a machine may sleep while a segment grows old


cdef inline int64_t booted_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_BOOTTIME, &t)
    return <int64_t> t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef inline void age_begin(Log* log) noexcept nogil:
    """Of the segment that the log goes on with."""
    cdef int64_t age = now_us() - log.segment.created
    log.begun = booted_us() - (0 if age < 0 else min(age, log.segment_age))


cdef inline bint too_old(Log* log) noexcept nogil:
    return log.segment_age and booted_us() - log.begun >= log.segment_age


cdef inline int64_t grown_old(Log* log) noexcept nogil:
    """When the segment is to be ended for its age (CLOCK_MONOTONIC, ns); NEVER."""
    cdef int64_t left
    if log.segment_age == 0 or log.low > log.high:
        return NEVER
    left = log.begun + log.segment_age - booted_us()
    left = 0 if left < 0 else LOOK if left > LOOK else left
    return now_ns() + 1000 * left
