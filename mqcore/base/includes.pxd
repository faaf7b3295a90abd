"""C declarations that Cython does not ship."""

from libc.stddef cimport size_t

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef extern from "<unistd.h>" nogil:
    int getpid()

cdef extern from "<string.h>" nogil:
    void explicit_bzero(void* at, size_t n)       # no compiler takes it out

cdef extern from "<sys/mman.h>" nogil:
    enum: MADV_DONTDUMP
    int madvise(void* at, size_t n, int advice)

cdef extern from *:
    int lowest_bit "__builtin_ctz" (unsigned int x) nogil       # its number; x is not 0

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t readv(int fd, const iovec* iov, int n)
    ssize_t writev(int fd, const iovec* iov, int n)

cdef extern from * nogil:
    """
    #if defined(__GNUC__)
    #define mq_prefetch(at) __builtin_prefetch(at)
    #else
    #define mq_prefetch(at) ((void) (at))
    #endif
    """
    void prefetch "mq_prefetch"(const void* at)   # a hint; any address

cdef extern from * nogil:
    """
    #if defined(__x86_64__) || defined(__i386__)
    #define mq_cpu_pause() __builtin_ia32_pause()
    #elif defined(__aarch64__)
    #define mq_cpu_pause() __asm__ volatile("yield")
    #else
    #define mq_cpu_pause() ((void) 0)
    #endif
    """
    void cpu_pause "mq_cpu_pause"()                # in a loop that looks at memory
