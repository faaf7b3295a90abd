"""Fair queue: one message from each peer that has some, in turn.

The ring holds the pipes that may have something to read; one that turns out empty leaves it and
comes back with `readable`. Reading counts nothing: whether a message was delivered or dropped is
the pattern's to say. Control handles (a peer that subscribes at a pattern that has no topics) are
skipped: they are no messages.
"""

from libc.stdint cimport uint32_t

from mqcore.base.includes cimport prefetch
from mqcore.base.message cimport MSG_CONTROL, MSG_MORE, Msg, MsgVec, msg_close, vec_clear, vec_fini
from mqcore.base.status cimport MQ_AGAIN, MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport ypipe_peek
from mqcore.base.yqueue cimport yqueue_front
from mqcore.protocols.routing.ring cimport (
    Ring, ring_after, ring_drop, ring_fini, ring_front, ring_join, ring_leave, ring_put, ring_turn,
)
from mqcore.spi.pipe cimport (
    DIRTY_IN, DROP_FULL, Pipe, lane_readable, lane_show, pipe_delivered, pipe_drop_in, pipe_read,
    pipe_touch,
)

cdef struct FairQueue:        # zero-initialise
    Ring ring
    MsgVec scratch            # where dropped messages pass through


cdef inline void vec_cut(MsgVec* v, size_t n) noexcept nogil:
    """Closes the handles from n on."""
    while v.n > n:
        v.n -= 1
        msg_close(&v.at[v.n])


cdef inline int fq_attach(FairQueue* fq, Pipe* p) noexcept nogil:
    return ring_join(&fq.ring, p)


cdef inline void fq_detach(FairQueue* fq, Pipe* p) noexcept nogil:
    ring_leave(&fq.ring, p)


cdef inline void fq_readable(FairQueue* fq, Pipe* p) noexcept nogil:
    ring_put(&fq.ring, p)


cdef inline void fq_fini(FairQueue* fq) noexcept nogil:
    ring_fini(&fq.ring)
    vec_fini(&fq.scratch)


cdef inline void wash(Msg* parts, size_t n) noexcept nogil:
    """Envelope and routing-id flags are this side's: a peer in this process may have forwarded a
    message with its own still on."""
    cdef size_t i
    for i in range(n):
        parts[i].flags &= MSG_MORE


cdef inline int pipe_take(Pipe* p, MsgVec* out) noexcept nogil:
    """The next message of one pipe, uncounted, control skipped. MQ_OK, MQ_AGAIN, MQ_NOMEM (the
    message is gone, counted)."""
    cdef size_t n = out.n
    cdef int rc
    while True:
        rc = pipe_read(p, out)
        if rc == MQ_AGAIN:
            return rc
        if rc == MQ_NOMEM:
            vec_cut(out, n)
            pipe_drop_in(p, DROP_FULL)
            return rc
        if not out.at[n].flags & MSG_CONTROL:
            wash(out.at + n, out.n - n)
            return MQ_OK
        vec_cut(out, n)


cdef inline void _fq_fetch(FairQueue* fq) noexcept nogil:
    """Each turn is another peer's, and what it has to say lies in the cache of the thread that read
    it from the wire: ask for it now, while the application is busy with the message before it."""
    cdef Pipe* p = ring_after(&fq.ring, 1)
    if p != NULL:
        prefetch(&p.inn.q.q.begin_chunk)
        prefetch(&p.inn.q.r)
    p = ring_front(&fq.ring)
    if p != NULL and not p.inn.conflate:
        prefetch(yqueue_front(&p.inn.q.q))


cdef inline int fq_read(FairQueue* fq, MsgVec* out, Pipe** source) noexcept nogil:
    """The next message of any peer, uncounted, and whose it was. Returns as pipe_take."""
    cdef Pipe* p
    cdef int rc
    while True:
        p = ring_front(&fq.ring)
        if p == NULL:
            return MQ_AGAIN
        rc = pipe_take(p, out)
        if rc == MQ_AGAIN:
            ring_drop(&fq.ring)
            continue
        ring_turn(&fq.ring)
        _fq_fetch(fq)
        source[0] = p
        return rc


cdef inline int fq_recv(FairQueue* fq, MsgVec* out) noexcept nogil:
    """The next message, delivered."""
    cdef Pipe* p = NULL
    cdef int rc = fq_read(fq, out, &p)
    if rc == MQ_OK:
        pipe_delivered(p)
    return rc


cdef inline Msg* pipe_look(Pipe* p) noexcept nogil:
    """The next message's first part in place, control skipped; NULL: none, `readable` will come.
    Not for lanes that conflate."""
    cdef Msg* m
    while True:
        m = ypipe_peek(&p.inn.q)
        if m == NULL:
            if lane_show(p.inn):
                pipe_touch(p, DIRTY_IN)
            return NULL
        if not m.flags & MSG_CONTROL:
            return m
        pipe_skip(p)


cdef inline void pipe_skip(Pipe* p) noexcept nogil:
    """Reads one message and closes it, uncounted."""
    cdef MsgVec v
    v.at = NULL
    v.n = 0
    v.cap = 0
    pipe_read(p, &v)          # out of memory closes it as well
    vec_fini(&v)


cdef inline bint fq_waiting(FairQueue* fq) noexcept nogil:
    """Would fq_read give a message?"""
    cdef Pipe* p
    cdef bint some
    while True:
        p = ring_front(&fq.ring)
        if p == NULL:
            return False
        if p.inn.conflate:
            some = lane_readable(p.inn)
        else:
            some = pipe_look(p) != NULL
        if some:
            return True
        ring_drop(&fq.ring)


cdef inline void pipe_discard(Pipe* p, MsgVec* scratch, uint32_t reason) noexcept nogil:
    """Reads the pipe empty and counts every message as dropped."""
    cdef int rc
    while True:
        rc = pipe_take(p, scratch)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK:
            pipe_drop_in(p, reason)
        vec_clear(scratch)
