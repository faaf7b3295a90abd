"""Socket calls of the engine that Cython does not ship."""

from mqcore.base.includes cimport iovec

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    int MSG_NOSIGNAL
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int SHUT_WR, SHUT_RDWR
    int shutdown(int fd, int how)

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "<linux/sockios.h>" nogil:
    unsigned long SIOCOUTQ

cdef extern from "<string.h>" nogil:
    char* strerror(int number)
