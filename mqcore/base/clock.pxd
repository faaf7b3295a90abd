"""Monotonic time in nanoseconds (int64), the only clock of the data plane."""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline int64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t> t.tv_sec * 1000000000 + t.tv_nsec
