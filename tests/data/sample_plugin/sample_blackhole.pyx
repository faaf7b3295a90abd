# cython: language_level=3
"""BLACKHOLE: takes every message, closes its parts, and never gives one back."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport MSG_INLINE_MAX, Msg, MsgVec, msg_close, msg_init_copy, msg_size
from mqcore.base.slab cimport Pool, pool_free, pool_new
from mqcore.base.status cimport MQ_OK, MQ_UNSUPPORTED
from mqcore.spi.pattern cimport PAT_SEND, PATTERN_ABI, Pattern, PatternOps, plugin_new
from mqcore.spi.pipe cimport Pipe

cdef PatternOps OPS


cdef int _init(Pattern* self) noexcept nogil:
    return MQ_OK


cdef void _fini(Pattern* self) noexcept nogil:
    pass


cdef int _set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                     size_t size) noexcept nogil:
    return MQ_UNSUPPORTED


cdef int _attach(Pattern* self, Pipe* pipe) noexcept nogil:
    return MQ_OK


cdef void _pipe(Pattern* self, Pipe* pipe) noexcept nogil:
    pass


cdef int _send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        msg_close(&parts[i])
    return MQ_OK


cdef int _recv(Pattern* self, MsgVec* out) noexcept nogil:
    return MQ_UNSUPPORTED


cdef int64_t _query(Pattern* self, uint32_t what, const uint8_t* data, size_t size) noexcept nogil:
    return -1


OPS.abi = PATTERN_ABI
OPS.flags = PAT_SEND
OPS.size = sizeof(Pattern)
OPS.init = _init
OPS.fini = _fini
OPS.set_option = _set_option
OPS.attach = _attach
OPS.detach = _pipe
OPS.hangup = _pipe
OPS.readable = _pipe
OPS.writable = _pipe
OPS.send = _send
OPS.recv = _recv
OPS.query = _query

pattern = plugin_new(&OPS, "blackhole", -1, "", -1, (), (), __doc__)


def swallow(bytes body):
    """Send one message through the table; (its size, was it by reference, owners left alive)."""
    cdef Pool* pool = pool_new()
    cdef Msg m
    if pool == NULL or msg_init_copy(&m, pool, <const uint8_t*> <const char*> body, len(body)):
        raise MemoryError
    size = msg_size(&m)
    if OPS.send(NULL, &m, 1) != MQ_OK:
        raise AssertionError("not taken")
    live = pool.live.load()
    pool_free(pool)
    return size, size > MSG_INLINE_MAX, live
