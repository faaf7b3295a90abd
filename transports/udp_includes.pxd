"""Datagram calls that Cython does not ship."""

from libc.stddef cimport size_t

from mqcore.base.includes cimport iovec
from mqcore.spi.sockaddr cimport socklen_t

cdef extern from "<sys/socket.h>" nogil:
    cdef struct msghdr:
        void* msg_name
        unsigned int msg_namelen
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen
        int msg_flags
    cdef struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    int recvmmsg(int fd, mmsghdr* vec, unsigned int n, int flags, void* timeout)
    int sendmmsg(int fd, mmsghdr* vec, unsigned int n, int flags)
    int getsockopt(int fd, int level, int name, void* value, socklen_t* size)
    int AF_INET6, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC, SOL_SOCKET, SO_DOMAIN

cdef extern from "<asm/socket.h>" nogil:
    int SO_MEMINFO

cdef extern from "<linux/sock_diag.h>" nogil:
    int SK_MEMINFO_DROPS

cdef extern from "<errno.h>" nogil:
    int errno
    int EAGAIN, ECONNREFUSED, EINTR, EMSGSIZE, ENOPROTOOPT

cdef extern from "<string.h>" nogil:
    char* strerror(int number)
