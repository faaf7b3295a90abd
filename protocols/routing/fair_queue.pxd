"""Fair queue: one message from each peer that has some, in turn.

The ring holds the pipes that may have something to read; one that turns out empty leaves it and
comes back with `readable`. Reading counts nothing: whether a message was delivered or dropped is
the pattern's to say. Control handles (a peer that subscribes at a pattern that has no topics) are
skipped: they are no messages. Where all messages have the same number of parts, others are dropped
here, counted as malformed.
"""

from libc.stdint cimport uint32_t

from mqcore.base.includes cimport prefetch
from mqcore.base.message cimport MSG_MORE, Msg, MsgVec, vec_fini
from mqcore.base.status cimport MQ_AGAIN, MQ_OK
from mqcore.base.yqueue cimport yqueue_front, yqueue_second
from mqcore.protocols.routing.ring cimport (
    Ring, ring_after, ring_drop, ring_fini, ring_front, ring_join, ring_leave, ring_put, ring_turn,
)
from mqcore.spi.pipe cimport (
    DROP_MALFORMED, Pipe, pipe_delivered, pipe_discard, pipe_drop_in, pipe_has_message, pipe_look,
    pipe_skip, pipe_take, vec_cut, wash,
)

cdef struct FairQueue:        # zero-initialise
    Ring ring
    MsgVec scratch            # where dropped messages pass through
    uint32_t parts            # that a message must have: 1 or 2; 0: any number


cdef inline int fq_attach(FairQueue* fq, Pipe* p) noexcept nogil:
    return ring_join(&fq.ring, p)


cdef inline void fq_detach(FairQueue* fq, Pipe* p) noexcept nogil:
    ring_leave(&fq.ring, p)


cdef inline void fq_readable(FairQueue* fq, Pipe* p) noexcept nogil:
    ring_put(&fq.ring, p)


cdef inline void fq_fini(FairQueue* fq) noexcept nogil:
    ring_fini(&fq.ring)
    vec_fini(&fq.scratch)


cdef inline void _fq_fetch(FairQueue* fq) noexcept nogil:
    """Prefetch what the next turns read, while the application is busy with the message before
    them. With many peers all of it is in memory, or in the cache of the thread that wrote it, and
    each step needs an address from the one before it: the third peer's pipe, the second one's lane,
    and the next one's message."""
    cdef Pipe* p = ring_after(&fq.ring, 2)
    if p != NULL:
        prefetch(&p.inn)
        prefetch(&p.delivered)
    p = ring_after(&fq.ring, 1)
    if p != NULL:
        prefetch(&p.inn.q.q.begin_chunk)
        prefetch(&p.inn.q.r)
        prefetch(&p.inn.r_msgs)
        prefetch(&p.inn.p_msgs)
    p = ring_front(&fq.ring)
    if p != NULL and not p.inn.conflate:
        prefetch(yqueue_front(&p.inn.q.q))


cdef inline int fq_read(FairQueue* fq, MsgVec* out, Pipe** source) noexcept nogil:
    """The next message of any peer, uncounted, and whose it was. Returns as pipe_take."""
    cdef size_t at = out.n
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
        if fq.parts and rc == MQ_OK and out.n - at != fq.parts:
            vec_cut(out, at)
            pipe_drop_in(p, DROP_MALFORMED)
            continue
        source[0] = p
        return rc


cdef inline int fq_recv(FairQueue* fq, MsgVec* out) noexcept nogil:
    """The next message, delivered."""
    cdef Pipe* p = NULL
    cdef int rc = fq_read(fq, out, &p)
    if rc == MQ_OK:
        pipe_delivered(p)
    return rc


cdef inline bint _fq_fits(FairQueue* fq, Pipe* p) noexcept nogil:
    """Has the message in front, which there is, as many parts as it must?"""
    cdef Msg* m
    if fq.parts == 0:
        return True           # the lane may conflate, so it must not be inspected
    m = pipe_look(p)
    if not m.flags & MSG_MORE:
        return fq.parts == 1
    return fq.parts == 2 and not yqueue_second(&p.inn.q.q).flags & MSG_MORE


cdef inline bint fq_waiting(FairQueue* fq) noexcept nogil:
    """Would fq_read give a message?"""
    cdef Pipe* p
    while True:
        p = ring_front(&fq.ring)
        if p == NULL:
            return False
        if not pipe_has_message(p):
            ring_drop(&fq.ring)
        elif _fq_fits(fq, p):
            return True
        else:
            pipe_skip(p)
            pipe_drop_in(p, DROP_MALFORMED)
