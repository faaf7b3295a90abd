"""The message engine of seqpacket://, as defined in mqcore/spi/message_engine.pxd.

A packet is a message: one byte for its kind (0, MSG_SUBSCRIBE, MSG_CANCEL), then each part,
preceded by its length in four bytes (big-endian). The kernel takes and delivers packets as a whole,
so nothing is kept between packets, and no message is partial.
"""

from libc.errno cimport EAGAIN, EINTR, EMSGSIZE, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini, bytes_reserve
from mqcore.base.message cimport (
    MSG_CANCEL, MSG_CONTROL, MSG_MORE, MSG_SUBSCRIBE, Msg, msg_close, msg_data, msg_init_copy,
    msg_size,
)
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_GONE, MQ_NOMEM, MQ_OK, MQ_PROTOCOL, MQ_UNSUPPORTED,
)
from mqcore.spi.message_engine cimport (
    MESSAGE_ENGINE_ABI, MessageEngine, MessageEngineOps, NativeEngine, native_engine,
)

cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, SHUT_WR
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int shutdown(int fd, int how)

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "<linux/sockios.h>" nogil:
    enum: SIOCOUTQ

cdef enum:
    LENGTH = 4                # bytes before each part
    KERNELS_OWN = 32          # of the send buffer, not for a packet (unix_dgram_sendmsg)

cdef struct Engine:
    MessageEngine head
    size_t limit              # bytes of a packet
    Bytes out                 # the packet that is sent now; kept for its memory
    Bytes inn                 # the packet that is given out
    size_t at                 # how far


# -- life ------------------------------------------------------------------------------------------

cdef int start(MessageEngine* head) noexcept nogil:
    return MQ_OK


cdef void fini(MessageEngine* head) noexcept nogil:
    cdef Engine* self = <Engine*> head
    bytes_fini(&self.out)
    bytes_fini(&self.inn)
    free(self)


# -- in --------------------------------------------------------------------------------------------

cdef uint32_t length_at(const uint8_t* at) noexcept nogil:
    return (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16) | (<uint32_t> at[2] << 8) | at[3]


cdef int64_t body_of(Engine* self) noexcept nogil:
    """Bytes of the message in the packet; -1: it is none, its lengths do not end where it ends."""
    cdef size_t at = 1
    cdef int64_t body = 0
    if self.inn.at[0] not in (0, MSG_SUBSCRIBE, MSG_CANCEL):
        return -1
    while self.inn.n >= at + LENGTH:
        body += length_at(self.inn.at + at)
        at += LENGTH + <size_t> length_at(self.inn.at + at)
        if at == self.inn.n:
            return body
    return -1


cdef int next_packet(Engine* self) noexcept nogil:
    """Into `inn`. MQ_OK, MQ_AGAIN, MQ_GONE, MQ_PROTOCOL, MQ_NOMEM."""
    cdef int fd = self.head.fd
    cdef int64_t body
    cdef ssize_t size
    while True:
        size = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT)
        if size >= 0 or errno != EINTR:
            break
    if size < 0:
        return MQ_AGAIN if errno == EAGAIN else MQ_GONE
    if size == 0:
        return MQ_GONE
    self.inn.n = 0
    if bytes_reserve(&self.inn, size):
        return MQ_NOMEM
    size = recv(fd, self.inn.at, size, MSG_DONTWAIT)
    if size <= 0:
        return MQ_GONE
    self.inn.n = size
    self.at = 1
    body = body_of(self)
    if body < 0:
        self.head.reason = "a packet that is no message"
        return MQ_PROTOCOL
    if 0 <= self.head.max_message_size < body:
        self.head.reason = "a message larger than max_message_size"
        return MQ_PROTOCOL
    return MQ_OK


cdef int read(MessageEngine* head, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Engine* self = <Engine*> head
    cdef size_t size
    cdef int rc
    n[0] = 0
    while n[0] < cap:
        if self.at == self.inn.n:
            rc = next_packet(self)
            if rc:
                return MQ_OK if n[0] else rc      # what there is first; it comes again
        size = length_at(self.inn.at + self.at)
        rc = msg_init_copy(&out[n[0]], head.pool, self.inn.at + self.at + LENGTH, size)
        if rc:
            return rc
        self.at += LENGTH + size
        out[n[0]].flags = self.inn.at[0] | (MSG_MORE if self.at < self.inn.n else 0)
        n[0] += 1
    return MQ_OK


# -- out -------------------------------------------------------------------------------------------

cdef int pack(Engine* self, Msg* parts, size_t n) noexcept nogil:
    """Into `out`. MQ_OK, MQ_UNSUPPORTED (no packet holds it), MQ_NOMEM."""
    cdef uint8_t kind = parts[0].flags & MSG_CONTROL
    cdef uint8_t[4] length
    cdef size_t whole = 1
    cdef size_t i
    cdef size_t size
    for i in range(n):
        whole += LENGTH + msg_size(&parts[i])
    if whole > self.limit:
        return MQ_UNSUPPORTED
    self.out.n = 0
    if bytes_reserve(&self.out, whole):
        return MQ_NOMEM
    bytes_append(&self.out, &kind, 1)
    for i in range(n):
        size = msg_size(&parts[i])
        length[0] = <uint8_t> (size >> 24)
        length[1] = <uint8_t> (size >> 16)
        length[2] = <uint8_t> (size >> 8)
        length[3] = <uint8_t> size
        bytes_append(&self.out, length, LENGTH)
        bytes_append(&self.out, msg_data(&parts[i]), size)
    return MQ_OK


cdef int write(MessageEngine* head, Msg* parts, size_t n) noexcept nogil:
    cdef Engine* self = <Engine*> head
    cdef size_t i
    cdef int rc = pack(self, parts, n)
    if rc:
        return rc
    while send(head.fd, self.out.at, self.out.n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0:
        if errno == EINTR:
            continue
        if errno == EAGAIN:
            return MQ_AGAIN   # the descriptor becomes writable when the peer has read
        return MQ_UNSUPPORTED if errno == EMSGSIZE else MQ_GONE
    for i in range(n):
        msg_close(&parts[i])
    return MQ_OK


cdef int64_t pending(MessageEngine* head) noexcept nogil:
    cdef int bytes = 0
    return bytes if ioctl(head.fd, SIOCOUTQ, &bytes) == 0 else 0


cdef void finish(MessageEngine* head) noexcept nogil:
    shutdown(head.fd, SHUT_WR)


cdef MessageEngineOps OPS = MessageEngineOps(
    abi=MESSAGE_ENGINE_ABI,
    flags=0,
    start=start,
    fini=fini,
    read=read,
    write=write,
    flush=NULL,
    pending=pending,
    peek=NULL,
    finish=finish,
)


def new_engine(size_t send_buffer) -> NativeEngine:
    cdef Engine* self = <Engine*> calloc(1, sizeof(Engine))
    if self == NULL:
        raise MemoryError
    self.head.ops = &OPS
    self.head.wake = -1
    self.limit = send_buffer - KERNELS_OWN
    try:
        return native_engine(&self.head)
    except BaseException:
        fini(&self.head)
        raise
