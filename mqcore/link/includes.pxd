"""Socket calls of the engine that Cython does not ship."""

cdef extern from "<sys/socket.h>" nogil:
    int SHUT_WR, SHUT_RDWR
    int shutdown(int fd, int how)

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "<linux/sockios.h>" nogil:
    unsigned long SIOCOUTQ

cdef extern from "<string.h>" nogil:
    char* strerror(int number)
