"""Ways to wake a thread: an eventfd, and a futex on an atomic word."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic
from posix.time cimport timespec

from mqcore.reactor.includes cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE, SYS_futex, eventfd, read,
    syscall, write,
)


cdef inline int eventfd_new() noexcept nogil:
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)


cdef inline void eventfd_signal(int fd) noexcept nogil:
    cdef uint64_t one = 1
    write(fd, &one, 8)


cdef inline void eventfd_clear(int fd) noexcept nogil:
    cdef uint64_t count
    read(fd, &count, 8)


cdef inline void futex_wait(atomic[uint32_t]* word, uint32_t seen, int64_t timeout) noexcept nogil:
    """Sleep while *word == seen; timeout in ns, -1 for ever. Returns early on signals."""
    cdef timespec t
    t.tv_sec = timeout // 1000000000
    t.tv_nsec = timeout % 1000000000
    syscall(SYS_futex, <void*> word, FUTEX_WAIT_PRIVATE, seen,
            &t if timeout >= 0 else NULL, NULL, 0)


cdef inline void futex_wake(atomic[uint32_t]* word, int n) noexcept nogil:
    syscall(SYS_futex, <void*> word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0)
