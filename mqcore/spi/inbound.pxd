"""The pipes that may have something to read, in turn, for patterns in Python: a plain list.

`mqcore/protocols/routing/fair_queue.pxd` is faster; this one can be iterated. `Pipe.in_at` is -1
outside the list.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memmove

from mqcore.base.message cimport MsgVec, vec_grow, vec_push
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.spi.pipe cimport Pipe, pipe_delivered, pipe_has_message, pipe_take

cdef struct Inbound:          # zero-initialise
    Pipe** at
    uint32_t n
    uint32_t cap
    uint32_t members          # pipes that may enter


cdef inline int inbound_join(Inbound* q) noexcept nogil:
    """Reserves space for one more, so that a pipe which becomes readable always finds its place."""
    cdef Pipe** at
    if q.members == q.cap:
        at = <Pipe**> realloc(q.at, (2 * q.cap + 4) * sizeof(Pipe*))
        if at == NULL:
            return MQ_NOMEM
        q.at = at
        q.cap = 2 * q.cap + 4
    q.members += 1
    return MQ_OK


cdef inline void inbound_leave(Inbound* q, Pipe* pipe) noexcept nogil:
    cdef uint32_t i
    for i in range(q.n):
        if q.at[i] == pipe:
            q.n -= 1
            memmove(&q.at[i], &q.at[i + 1], (q.n - i) * sizeof(Pipe*))
            pipe.in_at = -1
            return


cdef inline Pipe* inbound_next(Inbound* q) noexcept nogil:
    while q.n:
        if pipe_has_message(q.at[0]):
            return q.at[0]
        inbound_leave(q, q.at[0])
    return NULL


cdef inline void inbound_turn(Inbound* q, Pipe* pipe) noexcept nogil:
    inbound_leave(q, pipe)
    pipe.in_at = 0            # in the list, at any place
    q.at[q.n] = pipe
    q.n += 1


cdef inline int hand_over(MsgVec* parts, MsgVec* out, Pipe* pipe) noexcept nogil:
    """Moves a message of this pipe to out and counts it as delivered. MQ_OK, or MQ_NOMEM with
    nothing moved."""
    cdef size_t i
    if out.cap < out.n + parts.n and vec_grow(out, out.n + parts.n):
        return MQ_NOMEM
    for i in range(parts.n):
        parts.at[i].peer = pipe.id
        vec_push(out, &parts.at[i])
    parts.n = 0
    pipe_delivered(pipe)
    return MQ_OK


cdef inline int take(Inbound* q, Pipe* pipe, MsgVec* out) noexcept nogil:
    """Delivers the pipe's next message and moves the pipe to the end of the line."""
    cdef int rc = pipe_take(pipe, out)
    if rc == MQ_OK:
        pipe_delivered(pipe)
        inbound_turn(q, pipe)
    return rc
