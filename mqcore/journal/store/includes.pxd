"""C declarations that Cython does not ship, and our CRC."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from posix.time cimport CLOCK_MONOTONIC, timespec

from mqcore.base.includes cimport iovec

cdef extern from "crc32c.hpp" namespace "mq" nogil:
    uint32_t crc32c(uint32_t crc, const uint8_t* p, size_t n)
    uint32_t crc32c_portable(uint32_t crc, const uint8_t* p, size_t n)
    bint crc32c_native()

cdef extern from "<sys/uio.h>" nogil:
    ssize_t pwritev(int fd, const iovec* iov, int n, int64_t at)

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* at, size_t size, int64_t where)
    ssize_t pwrite(int fd, const void* at, size_t size, int64_t where)
    int fdatasync(int fd)
    int fsync(int fd)
    int close(int fd)
    int unlinkat(int folder, const char* name, int flags)

# as FileOps has them
cdef inline ssize_t system_pwritev(void* self, int fd, const iovec* iov, int n,
                                   int64_t at) noexcept nogil:
    return pwritev(fd, iov, n, at)


cdef inline int system_fdatasync(void* self, int fd) noexcept nogil:
    return fdatasync(fd)


cdef extern from "<fcntl.h>" nogil:
    int openat(int folder, const char* name, int flags, ...)
    int fcntl(int fd, int command, ...)
    int O_RDWR
    int O_CREAT
    int O_EXCL
    int O_CLOEXEC
    int F_DUPFD_CLOEXEC

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* at, size_t size, unsigned flags)

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* at, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void* at, size_t size)
    int madvise(void* at, size_t size, int advice)
    int PROT_READ
    int MAP_SHARED
    void* MAP_FAILED

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attr)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_trylock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_condattr_init(pthread_condattr_t* attributes)
    int pthread_condattr_setclock(pthread_condattr_t* attributes, int clock)
    int pthread_cond_init(pthread_cond_t* cond, const pthread_condattr_t* attributes)
    int pthread_cond_destroy(pthread_cond_t* cond)
    int pthread_cond_signal(pthread_cond_t* cond)
    int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex, const timespec* until)
    int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)())

cdef inline void monotonic_cond_init(pthread_cond_t* cond) noexcept nogil:
    """Timed waits for it are until a time of the monotonic clock."""
    cdef pthread_condattr_t attributes
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(cond, &attributes)
