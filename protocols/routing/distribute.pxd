"""Distributor: copies of one message to many peers; large bodies are shared, not copied.

`Targets` is a plain list of pipes. In the list of all peers, a pipe's index is Pipe.out_at. In the
list of one message's receivers (`targets_hit`) indexes are not kept.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from mqcore.base.message cimport MSG_REF, Msg, MsgVec, msg_close, msg_copy, vec_fini, vec_grow
from mqcore.base.slab cimport owner_give_back, owner_retain_many
from mqcore.base.status cimport MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.spi.pattern cimport EV_TOO_SLOW
from mqcore.spi.pipe cimport (
    DIRTY_RESET, DROP_FULL, Pipe, parts_size, pipe_drop_out, pipe_has_room, pipe_put, pipe_touch,
    pipe_write,
)

cdef enum:
    TOLD_SLOW = 0x80000000    # in Pipe.dropping: its link is being closed

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


cdef inline int targets_hit_all(Targets* t, Pipe** at, uint32_t n) noexcept nogil:
    """Status; on MQ_NOMEM nothing is added."""
    cdef Pipe** grown
    if t.cap - t.n < n:
        grown = <Pipe**> realloc(t.at, (t.n + <size_t> n) * sizeof(Pipe*))
        if grown == NULL:
            return MQ_NOMEM
        t.at = grown
        t.cap = t.n + n
    if n:
        memcpy(t.at + t.n, at, n * sizeof(Pipe*))
        t.n += n
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


cdef inline void _retain(const Msg* parts, size_t n, int64_t copies) noexcept nogil:
    """Add references for all receivers at once: their engines release them on other threads, and
    each single increment would cost this thread the counter's cache line."""
    cdef size_t i
    for i in range(n):
        if parts[i].kind == MSG_REF:
            owner_retain_many(parts[i].u.ref.owner, copies)


cdef inline void _give_back(const Msg* parts, size_t n, int64_t copies) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if parts[i].kind == MSG_REF:
            owner_give_back(parts[i].u.ref.owner, copies)


cdef inline int copy_write(MsgVec* scratch, Pipe* p, Msg* parts, size_t n) noexcept nogil:
    """Write a copy into one pipe. MQ_OK, MQ_FULL, MQ_NOMEM; at an HWM nothing is
    counted."""
    cdef size_t i
    cdef int rc
    if scratch.cap < n and vec_grow(scratch, n):
        return MQ_NOMEM
    for i in range(n):
        msg_copy(&scratch.at[i], &parts[i])
    rc = pipe_write(p, scratch.at, n)
    if rc:
        for i in range(n):
            msg_close(&scratch.at[i])
    return rc


cdef inline void targets_send(Targets* t, Msg* parts, size_t n, bint always) noexcept nogil:
    """Send each a copy. A peer at its HWM loses it, counted. The caller keeps the
    parts."""
    cdef int64_t size = parts_size(parts, n)
    cdef int64_t unused = 0
    cdef uint32_t i
    cdef Pipe* p
    _retain(parts, n, t.n)
    for i in range(t.n):
        p = t.at[i]
        if (not always and not pipe_has_room(p, size)) or pipe_put(p, parts, n, size):
            pipe_drop_out(p, DROP_FULL)
            unused += 1
    if unused:
        _give_back(parts, n, unused)


cdef inline int targets_room(Targets* t, Msg* parts, size_t n) noexcept nogil:
    """MQ_FULL if any of them has no space."""
    cdef int64_t size = parts_size(parts, n)
    cdef uint32_t i
    for i in range(t.n):
        if not pipe_has_room(t.at[i], size):
            return MQ_FULL
    return MQ_OK


cdef inline void targets_cut(Targets* t, int64_t size) noexcept nogil:
    """on_full="disconnect": close the links of those without space. The message is then dropped for
    them."""
    cdef uint32_t i
    cdef Pipe* p
    for i in range(t.n):
        p = t.at[i]
        if not p.dropping & TOLD_SLOW and not pipe_has_room(p, size):
            p.dropping |= TOLD_SLOW
            if p.host.watched.load():
                p.host.emit(p.host, EV_TOO_SLOW, p, NULL, 0)
            pipe_touch(p, DIRTY_RESET)
