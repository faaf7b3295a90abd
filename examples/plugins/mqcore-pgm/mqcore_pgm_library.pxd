"""libpgm's binary interface: see mqcore_pgm_library.h."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "<sys/socket.h>" nogil:
    cdef struct sockaddr_storage:
        unsigned short ss_family

cdef extern from "mqcore_pgm_library.h" nogil:
    enum:
        PGM_PROTOCOL
        PGM_IO_ERROR, PGM_IO_NORMAL, PGM_IO_RESET, PGM_IO_FIN, PGM_IO_EOF, PGM_IO_WOULD_BLOCK
        PGM_IO_RATE_LIMITED, PGM_IO_TIMER_PENDING, PGM_IO_CONGESTION
        PGM_OPT_SEND_SOCK, PGM_OPT_RECV_SOCK, PGM_OPT_REPAIR_SOCK, PGM_OPT_PENDING_SOCK
        PGM_OPT_TIME_REMAIN, PGM_OPT_RATE_REMAIN, PGM_OPT_MTU, PGM_OPT_MSSS
        PGM_OPT_MULTICAST_LOOP, PGM_OPT_MULTICAST_HOPS, PGM_OPT_AMBIENT_SPM
        PGM_OPT_HEARTBEAT_SPM, PGM_OPT_TXW_SQNS, PGM_OPT_TXW_MAX_RTE, PGM_OPT_PEER_EXPIRY
        PGM_OPT_SPMR_EXPIRY, PGM_OPT_RXW_SQNS, PGM_OPT_NAK_BO_IVL, PGM_OPT_NAK_RPT_IVL
        PGM_OPT_NAK_RDATA_IVL, PGM_OPT_NAK_DATA_RETRIES, PGM_OPT_NAK_NCF_RETRIES
        PGM_OPT_SEND_ONLY, PGM_OPT_RECV_ONLY, PGM_OPT_NOBLOCK, PGM_OPT_SEND_GROUP
        PGM_OPT_JOIN_GROUP, PGM_OPT_UCAST_PORT, PGM_OPT_MCAST_PORT
    ctypedef struct PgmTsi:
        uint8_t[6] gsi
        uint16_t port
    ctypedef struct PgmAddress:
        uint16_t port
        PgmTsi tsi
    ctypedef struct PgmInterface:
        uint32_t index
        uint32_t scope
        sockaddr_storage address
    ctypedef struct PgmError:
        int domain
        int code
        char* message
    ctypedef struct PgmPacket:
        PgmTsi tsi
        uint32_t sequence
        uint16_t size
        void* data
    ctypedef struct PgmMessage:
        uint32_t n
        PgmPacket** packets
    ctypedef struct PgmLibrary:
        void* handle
        void (*error_free)(PgmError*) noexcept nogil
        bint (*socket)(void**, int, int, int, PgmError**) noexcept nogil
        bint (*bind3)(void*, const PgmAddress*, unsigned, const PgmInterface*, unsigned,
                      const PgmInterface*, unsigned, PgmError**) noexcept nogil
        bint (*connect)(void*, PgmError**) noexcept nogil
        bint (*close)(void*, bint) noexcept nogil
        bint (*set)(void*, int, int, const void*, unsigned) noexcept nogil
        int (*send)(void*, const void*, size_t, size_t*) noexcept nogil
        int (*recv)(void*, PgmMessage*, size_t, int, size_t*, PgmError**) noexcept nogil
        void (*free)(void*) noexcept nogil
    const char* pgm_open(PgmLibrary* lib, const char* name)
    bint pgm_set_int(const PgmLibrary* lib, void* sock, int option, int value)
    int pgm_get_int(const PgmLibrary* lib, void* sock, int option)
    int64_t pgm_get_ns(const PgmLibrary* lib, void* sock, int option)
    bint pgm_group(const PgmLibrary* lib, void* sock, int option, unsigned index,
                   const void* group, size_t size)

cdef extern from "<sys/socket.h>" nogil:
    int SOCK_SEQPACKET, SOL_SOCKET, SO_RCVBUF, SO_RCVBUFFORCE, SO_SNDBUF, MSG_DONTWAIT
    int MSG_ERRQUEUE, AF_INET, AF_INET6
    int SO_ATTACH_FILTER
    int setsockopt(int fd, int level, int name, const void* value, unsigned size)
    ssize_t recv(int fd, void* data, size_t size, int flags)

cdef extern from "<linux/filter.h>" nogil:
    cdef struct sock_filter:
        unsigned short code
    cdef struct sock_fprog:
        unsigned short len
        sock_filter* filter

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_IP, IPPROTO_UDP

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data data
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, EPOLLOUT
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)

cdef extern from "<fcntl.h>" nogil:
    int F_DUPFD_CLOEXEC, F_SETFD, FD_CLOEXEC
    int fcntl(int fd, int what, ...)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
