"""Socket calls of the engine that Cython does not ship."""

from libc.stdint cimport uint8_t
from posix.time cimport timespec

from mqcore.base.includes cimport iovec

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    int MSG_NOSIGNAL
    ssize_t send(int fd, const void* data, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int SHUT_WR, SHUT_RDWR
    ctypedef unsigned int socklen_t
    int getsockopt(int fd, int level, int name, void* value, socklen_t* size)
    int shutdown(int fd, int how)
    int setsockopt(int fd, int level, int name, const void* value, socklen_t size)
    int SOL_SOCKET, SO_MEMINFO, SO_RCVLOWAT

cdef extern from "<linux/sock_diag.h>" nogil:
    int SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF, SK_MEMINFO_VARS

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_INFO, TCP_FIN_WAIT1, TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_CLOSING
    cdef struct tcp_info:
        uint8_t tcpi_state
        uint8_t tcpi_retransmits      # of the oldest segment, since the last acknowledgement
        uint8_t tcpi_probes           # of a closed window, since the last answer

cdef extern from "<sys/ioctl.h>" nogil:
    unsigned long FIONREAD
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "<linux/sockios.h>" nogil:
    unsigned long SIOCOUTQ

cdef extern from "<string.h>" nogil:
    char* strerror(int number)
    size_t strnlen(const char* text, size_t most)

cdef extern from "<sys/timerfd.h>" nogil:
    cdef struct itimerspec:
        timespec it_interval
        timespec it_value
    int TFD_CLOEXEC, TFD_NONBLOCK
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* when, itimerspec* old)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC
