"""A minimal filter and a minimal message engine, for tests of the plug-in interfaces.

The filter adds one to each byte. The engine sends each message as one packet of a SOCK_SEQPACKET
socket: per part its length (4 bytes, big-endian) and its body.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.base.bytes cimport Bytes, bytes_fini, bytes_reserve
from mqcore.base.cursor cimport load_be32, store_be32
from mqcore.base.includes cimport iovec
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_data, msg_init_copy, msg_size,
)
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_GONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL, MQ_UNSUPPORTED,
)
from mqcore.reactor.includes cimport EAGAIN, errno, read, write
from mqcore.spi.filter_ops cimport (
    FILTER_OPS_ABI, Filter, FilterOps, NativeFilter, native_filter,
)
from mqcore.spi.message_engine cimport (
    MESSAGE_ENGINE_ABI, MessageEngine, MessageEngineOps, NativeEngine, native_engine,
)

cdef enum:
    PACKET = 60000


# -- the filter ------------------------------------------------------------------------------------

cdef struct Shift:
    Filter head
    FilterOps own
    Bytes plain
    size_t given


cdef void _shift_fini(Filter* self) noexcept nogil:
    bytes_fini(&(<Shift*> self).plain)
    free(self)


cdef int _shift_decode(Filter* self, const uint8_t* data, size_t n, uint8_t* out, size_t room,
                       size_t* made, Bytes* down) noexcept nogil:
    cdef Shift* f = <Shift*> self
    cdef size_t i
    if n:
        f.plain.n = 0
        f.given = 0
        if bytes_reserve(&f.plain, n):
            return MQ_NOMEM
        for i in range(n):
            f.plain.at[i] = data[i] - 1
        f.plain.n = n
    made[0] = min(f.plain.n - f.given, room)
    if made[0]:
        memcpy(out, f.plain.at + f.given, made[0])
    f.given += made[0]
    return MQ_OK if f.given < f.plain.n else MQ_NEED_DATA


cdef int _shift_encode(Filter* self, const iovec* pieces, int n, Bytes* down) noexcept nogil:
    cdef uint8_t* at
    cdef size_t i
    cdef int k
    for k in range(n):
        if bytes_reserve(down, pieces[k].iov_len):
            return MQ_NOMEM
        at = <uint8_t*> pieces[k].iov_base
        for i in range(pieces[k].iov_len):
            down.at[down.n + i] = at[i] + 1
        down.n += pieces[k].iov_len
    return MQ_OK


cdef FilterOps SHIFT
SHIFT.abi = FILTER_OPS_ABI
SHIFT.fini = _shift_fini
SHIFT.decode = _shift_decode
SHIFT.encode = _shift_encode


def shift_filter(uint32_t abi=FILTER_OPS_ABI) -> NativeFilter:
    """Adds one to each byte going out. `abi`: what it says it was made for."""
    cdef Shift* f = <Shift*> calloc(1, sizeof(Shift))
    if f == NULL:
        raise MemoryError()
    f.own = SHIFT
    f.own.abi = abi
    f.head.ops = &f.own
    try:
        return native_filter(&f.head)
    except BaseException:
        free(f)
        raise


# -- the engine ------------------------------------------------------------------------------------

cdef struct Packets:
    MessageEngine head
    MessageEngineOps own
    uint8_t[60000] buf
    size_t n                  # of a packet that is being taken apart
    size_t at


cdef int _packets_start(MessageEngine* self) noexcept nogil:
    return MQ_OK


cdef void _packets_fini(MessageEngine* self) noexcept nogil:
    free(self)


cdef int _packets_read(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Packets* p = <Packets*> self
    cdef ssize_t got
    cdef uint32_t size
    while n[0] < cap:
        if p.at == p.n:
            got = read(self.fd, p.buf, PACKET)
            if got < 0 and errno == EAGAIN:
                return MQ_AGAIN
            if got <= 0:
                return MQ_GONE
            p.n = got
            p.at = 0
        if p.n - p.at < 4:
            self.reason = b"the peer sent a packet of no use"
            return MQ_PROTOCOL
        size = load_be32(p.buf + p.at)
        p.at += 4
        if size > p.n - p.at:
            self.reason = b"the peer sent a packet of no use"
            return MQ_PROTOCOL
        if msg_init_copy(&out[n[0]], self.pool, p.buf + p.at, size):
            return MQ_NOMEM
        p.at += size
        if p.at < p.n:
            out[n[0]].flags |= MSG_MORE
        n[0] += 1
    return MQ_OK


cdef int _packets_write(MessageEngine* self, Msg* parts, size_t n) noexcept nogil:
    cdef uint8_t[60000] buf
    cdef size_t at = 0
    cdef size_t i, size
    if parts[0].flags & MSG_CONTROL:
        return MQ_UNSUPPORTED
    for i in range(n):
        size = msg_size(&parts[i])
        if at + 4 + size > PACKET:
            return MQ_UNSUPPORTED
        store_be32(buf + at, <uint32_t> size)
        if size:
            memcpy(buf + at + 4, msg_data(&parts[i]), size)
        at += 4 + size
    if write(self.fd, buf, at) < 0:
        return MQ_AGAIN if errno == EAGAIN else MQ_GONE
    for i in range(n):
        msg_close(&parts[i])
    return MQ_OK


cdef MessageEngineOps PACKETS
PACKETS.abi = MESSAGE_ENGINE_ABI
PACKETS.start = _packets_start
PACKETS.fini = _packets_fini
PACKETS.read = _packets_read
PACKETS.write = _packets_write


def packet_engine(uint32_t abi=MESSAGE_ENGINE_ABI) -> NativeEngine:
    """Messages as packets. `abi`: what it says it was made for."""
    cdef Packets* p = <Packets*> calloc(1, sizeof(Packets))
    if p == NULL:
        raise MemoryError()
    p.own = PACKETS
    p.own.abi = abi
    p.head.ops = &p.own
    p.head.wake = -1
    try:
        return native_engine(&p.head)
    except BaseException:
        free(p)
        raise
