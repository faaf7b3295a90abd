"""Distributor: copies of one message to many peers; large bodies are shared, not copied.

`Targets` is a plain list of pipes. As the list of all peers a pipe's place in it is Pipe.out_at; as
the list of one message's receivers (`targets_hit`) places are not kept.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, realloc

from mqcore.base.message cimport Msg, MsgVec, msg_close, msg_copy, vec_fini, vec_grow
from mqcore.base.status cimport MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.spi.pipe cimport DROP_FULL, Pipe, parts_size, pipe_drop_out, pipe_has_room, pipe_write
from mqcore.spi.pipe cimport pipe_write_always

cdef struct Targets:          # zero-initialise
    Pipe** at
    uint32_t n
    uint32_t cap
    MsgVec copy               # scratch


cdef inline int targets_hit(Targets* t, Pipe* p) noexcept nogil:
    """Status."""
    cdef Pipe** at
    cdef uint32_t cap
    if t.n == t.cap:
        cap = t.cap * 2 if t.cap else 8
        at = <Pipe**> realloc(t.at, cap * sizeof(Pipe*))
        if at == NULL:
            return MQ_NOMEM
        t.at = at
        t.cap = cap
    t.at[t.n] = p
    t.n += 1
    return MQ_OK


cdef inline int targets_join(Targets* t, Pipe* p) noexcept nogil:
    cdef int rc = targets_hit(t, p)
    p.out_at = -1 if rc else <int32_t> (t.n - 1)
    return rc


cdef inline void targets_leave(Targets* t, Pipe* p) noexcept nogil:
    """May be called twice."""
    if p.out_at >= 0:
        t.n -= 1
        t.at[p.out_at] = t.at[t.n]
        t.at[p.out_at].out_at = p.out_at
        p.out_at = -1


cdef inline void targets_fini(Targets* t) noexcept nogil:
    free(t.at)
    t.at = NULL
    t.n = 0
    t.cap = 0
    vec_fini(&t.copy)


cdef inline int copy_write(MsgVec* scratch, Pipe* p, Msg* parts, size_t n,
                           bint always) noexcept nogil:
    """A copy into one pipe. MQ_OK, MQ_FULL, MQ_NOMEM; at a mark nothing is counted."""
    cdef size_t i
    cdef int rc
    if scratch.cap < n and vec_grow(scratch, n):
        return MQ_NOMEM
    for i in range(n):
        msg_copy(&scratch.at[i], &parts[i])
    rc = pipe_write_always(p, scratch.at, n) if always else pipe_write(p, scratch.at, n)
    if rc:
        for i in range(n):
            msg_close(&scratch.at[i])
    return rc


cdef inline void targets_send(Targets* t, Msg* parts, size_t n, bint always) noexcept nogil:
    """A copy to each; who is at its mark loses it, counted. The parts stay the caller's."""
    cdef int64_t size = parts_size(parts, n)
    cdef uint32_t i
    for i in range(t.n):
        # asked first, so that a full peer costs no reference counts
        if not always and not pipe_has_room(t.at[i], size):
            pipe_drop_out(t.at[i], DROP_FULL)
        elif copy_write(&t.copy, t.at[i], parts, n, always):
            pipe_drop_out(t.at[i], DROP_FULL)


cdef inline int targets_room(Targets* t, Msg* parts, size_t n) noexcept nogil:
    """MQ_FULL if any of them would not take it."""
    cdef int64_t size = parts_size(parts, n)
    cdef uint32_t i
    for i in range(t.n):
        if not pipe_has_room(t.at[i], size):
            return MQ_FULL
    return MQ_OK
