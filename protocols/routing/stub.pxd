"""Operations that a pattern does not have, for its ops table."""

from libc.stdint cimport int64_t, uint8_t

from mqcore.base.message cimport Msg, MsgVec, msg_close, msg_init, vec_grow, vec_push
from mqcore.base.status cimport MQ_NOMEM, MQ_OK, MQ_UNSUPPORTED
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


cdef inline int vec_move(MsgVec* held, MsgVec* out) noexcept nogil:
    """A message that a query has read goes to who receives. MQ_OK; MQ_NOMEM with nothing moved."""
    cdef size_t i
    if out.cap - out.n < held.n and vec_grow(out, out.n + held.n):
        return MQ_NOMEM
    for i in range(held.n):
        vec_push(out, &held.at[i])
    held.n = 0
    return MQ_OK


cdef inline void close_all(Msg* parts, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        msg_close(&parts[i])
