"""Ways to wake a thread: an eventfd, and a futex on an atomic word."""

from libc.stdint cimport uint64_t

from mqcore.base.futex cimport futex_wait, futex_wake
from mqcore.reactor.includes cimport EFD_CLOEXEC, EFD_NONBLOCK, eventfd, read, write


cdef inline int eventfd_new() noexcept nogil:
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)


cdef inline void eventfd_signal(int fd) noexcept nogil:
    cdef uint64_t one = 1
    write(fd, &one, 8)


cdef inline void eventfd_clear(int fd) noexcept nogil:
    cdef uint64_t count
    read(fd, &count, 8)
