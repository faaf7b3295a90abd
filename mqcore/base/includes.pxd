"""C declarations that Cython does not ship."""

from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from posix.signal cimport sigset_t

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

cdef extern from * nogil:
    """
    #define mq_highest_bit(x) (63 - __builtin_clzll(x))
    """
    int highest_bit "mq_highest_bit"(uint64_t x)                # its number; x is not 0

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

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <stdint.h>
    #if defined(__has_builtin) && (defined(__x86_64__) || defined(__aarch64__))
    #if __has_builtin(__builtin_thread_pointer)
    #define mq_thread_self() ((uint64_t) (uintptr_t) __builtin_thread_pointer())
    #endif
    #endif
    #ifndef mq_thread_self
    #define mq_thread_self() ((uint64_t) (uintptr_t) pthread_self())
    #endif
    """
    uint64_t thread_self "mq_thread_self"()        # a number of this thread; never 0

cdef extern from "<signal.h>" nogil:
    int SIGBUS, SIGSYS, SIGTRAP
    int pthread_sigmask(int how, const sigset_t* set, sigset_t* old)
