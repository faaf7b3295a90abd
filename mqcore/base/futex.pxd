"""Sleeping on an atomic word, and waking the threads that sleep there."""

from libc.stdint cimport int64_t, uint32_t
from libcpp.atomic cimport atomic
from posix.time cimport timespec

cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)

cdef extern from "<sys/syscall.h>" nogil:
    long SYS_futex

cdef extern from "<linux/futex.h>" nogil:
    int FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE


cdef inline void futex_wait(atomic[uint32_t]* word, uint32_t seen, int64_t timeout) noexcept nogil:
    """Sleep while *word == seen; timeout in ns, -1 for ever. Returns early on signals."""
    cdef timespec t
    t.tv_sec = timeout // 1000000000
    t.tv_nsec = timeout % 1000000000
    syscall(SYS_futex, <void*> word, FUTEX_WAIT_PRIVATE, seen,
            &t if timeout >= 0 else NULL, NULL, 0)


cdef inline void futex_wake(atomic[uint32_t]* word, int n) noexcept nogil:
    syscall(SYS_futex, <void*> word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0)
