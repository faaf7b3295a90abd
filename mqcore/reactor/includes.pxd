"""System calls of the reactor that Cython does not ship."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from posix.signal cimport sigset_t
from posix.time cimport timespec

cdef extern from "<sys/epoll.h>" nogil:
    cdef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR, EPOLLET
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_pwait(int epfd, epoll_event* events, int maxevents, int timeout, const sigset_t* mask)

cdef extern from * nogil:     # Linux 5.11; by number, since the C library may be older
    """
    #include <errno.h>
    #include <sys/epoll.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static inline int mq_epoll_pwait2(int set, struct epoll_event* events, int cap,
                                      const struct timespec* timeout, const sigset_t* mask) {
    #ifdef __SANITIZE_THREAD__    /* it knows epoll_pwait, and what epoll_ctl before it orders */
        errno = ENOSYS;
        return -1;
    #else
        return (int) syscall(441, set, events, cap, timeout, mask, (size_t) 8);
    #endif
    }
    """
    # -1 and ENOSYS where the kernel is older; EPERM where a sandbox does not know the call
    int epoll_pwait2 "mq_epoll_pwait2"(int set, epoll_event* events, int cap,
                                       const timespec* timeout, const sigset_t* mask)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int initval, int flags)

cdef extern from "<poll.h>" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    short POLLIN, POLLOUT, POLLRDHUP, POLLHUP, POLLERR, POLLNVAL
    int ppoll(pollfd* fds, unsigned long nfds, const timespec* timeout, const sigset_t* mask)

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void* buf, size_t count)
    ssize_t write(int fd, const void* buf, size_t count)
    int close(int fd)
    int getpid()

cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, unsigned long value, ...)
    int PR_SET_TIMERSLACK

cdef extern from "<errno.h>" nogil:
    int errno
    int EAGAIN, EINTR, ETIMEDOUT, ECONNRESET, EPIPE, ENOSYS

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t* thread, void* attr, void* (*start)(void*) noexcept nogil,
                       void* arg)
    int pthread_join(pthread_t thread, void** result)
    int pthread_setname_np(pthread_t thread, const char* name)
    pthread_t pthread_self()
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attr)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
