"""Operations that a pattern does not have, for its ops table."""

from libc.stdint cimport int64_t, uint8_t

from mqcore.base.message cimport Msg, MsgVec, msg_close, msg_init
from mqcore.base.status cimport MQ_UNSUPPORTED
from mqcore.spi.pattern cimport EV_REFUSED, Pattern
from mqcore.spi.pipe cimport Pipe, pipe_write_always


cdef inline int no_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                          size_t size) noexcept nogil:
    return MQ_UNSUPPORTED


cdef inline int no_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    return MQ_UNSUPPORTED


cdef inline int no_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return MQ_UNSUPPORTED


cdef inline void no_event(Pattern* self, Pipe* pipe) noexcept nogil:
    pass


cdef inline void tell_refused(Pipe* pipe, const char* why, size_t size) noexcept nogil:
    if pipe.host.watched.load():
        pipe.host.emit(pipe.host, EV_REFUSED, pipe, <const uint8_t*> why, size)


cdef inline void probe(Pipe* pipe) noexcept nogil:
    """The `probe` option: an empty message first, so that a ROUTER learns of us."""
    cdef Msg m
    msg_init(&m)
    pipe_write_always(pipe, &m, 1)


cdef inline void close_all(Msg* parts, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        msg_close(&parts[i])
