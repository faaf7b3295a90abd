"""Load balancer: each message to one peer, in turn, best priority first.

Sixteen rings, one a priority (1 is best), hold the pipes that may have room; one that turns out
full leaves its ring and comes back with `writable`. The lowest number with a writable pipe gets
all."""

from libc.stdint cimport uint32_t

from mqcore.base.includes cimport lowest_bit
from mqcore.base.message cimport Msg
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_INVALID, MQ_OK
from mqcore.protocols.routing.ring cimport (
    MARK_GONE, Ring, ring_drop, ring_fini, ring_front, ring_join, ring_leave, ring_put, ring_take,
    ring_turn,
)
from mqcore.spi.pattern cimport EV_FAILED_BACK, EV_FAILED_OVER
from mqcore.spi.pipe cimport Pipe, pipe_has_room, pipe_write

cdef struct LoadBalance:      # zero-initialise, then lb_init
    Ring[17] rings            # by priority; 0 is not used
    uint32_t[17] live         # pipes by priority whose far side is there
    uint32_t waiting          # bit p: rings[p] may have a pipe
    uint32_t peers            # pipes whose far side is there


cdef inline void lb_init(LoadBalance* lb) noexcept nogil:
    cdef int i
    for i in range(17):
        lb.rings[i].out = 1


cdef inline void lb_fini(LoadBalance* lb) noexcept nogil:
    cdef int i
    for i in range(17):
        ring_fini(&lb.rings[i])


cdef inline uint32_t lb_prio(Pipe* p) noexcept nogil:
    return 1 if p.prio < 1 else 16 if p.prio > 16 else <uint32_t> p.prio


cdef inline uint32_t _lb_best(LoadBalance* lb) noexcept nogil:
    cdef uint32_t prio
    for prio in range(1, 17):
        if lb.live[prio]:
            return prio
    return 17


cdef inline void _lb_tell(Pipe* p, uint32_t what) noexcept nogil:
    if p.host.watched.load():
        p.host.emit(p.host, what, p, NULL, 0)


cdef inline int lb_attach(LoadBalance* lb, Pipe* p) noexcept nogil:
    cdef uint32_t prio = lb_prio(p)
    cdef uint32_t best = _lb_best(lb)
    cdef int rc = ring_join(&lb.rings[prio], p)
    if rc:
        return rc
    ring_put(&lb.rings[prio], p)
    lb.waiting |= <uint32_t> 1 << prio
    lb.live[prio] += 1
    lb.peers += 1
    if best != 17 and prio < best:
        _lb_tell(p, EV_FAILED_BACK)
    return MQ_OK


cdef inline void lb_hangup(LoadBalance* lb, Pipe* p) noexcept nogil:
    """The far side is gone. May be called twice."""
    cdef uint32_t prio = lb_prio(p)
    if p.mark & MARK_GONE:
        return
    p.mark |= MARK_GONE
    ring_take(&lb.rings[prio], p)
    lb.live[prio] -= 1
    lb.peers -= 1
    if lb.peers and prio < _lb_best(lb):
        _lb_tell(p, EV_FAILED_OVER)


cdef inline void lb_detach(LoadBalance* lb, Pipe* p) noexcept nogil:
    lb_hangup(lb, p)
    ring_leave(&lb.rings[lb_prio(p)], p)


cdef inline void lb_writable(LoadBalance* lb, Pipe* p) noexcept nogil:
    cdef uint32_t prio = lb_prio(p)
    if not p.mark & MARK_GONE:
        ring_put(&lb.rings[prio], p)
        lb.waiting |= <uint32_t> 1 << prio


cdef inline Pipe* lb_front(LoadBalance* lb) noexcept nogil:
    """Whose turn it is; NULL: nobody may have room."""
    cdef int prio
    cdef Pipe* p
    while lb.waiting:
        prio = lowest_bit(lb.waiting)
        p = ring_front(&lb.rings[prio])
        if p != NULL:
            return p
        lb.waiting &= ~(<uint32_t> 1 << prio)
    return NULL


cdef inline int lb_send(LoadBalance* lb, Msg* parts, size_t n, Pipe** taker) noexcept nogil:
    """MQ_OK and who took it; MQ_AGAIN: no peer; MQ_FULL: all full; MQ_INVALID: several parts for a
    lane that conflates; MQ_NOMEM. Nothing is moved but with MQ_OK."""
    cdef Pipe* p
    cdef int rc
    while True:
        p = lb_front(lb)
        if p == NULL:
            return MQ_FULL if lb.peers else MQ_AGAIN
        if n > 1 and p.out.conflate:
            return MQ_INVALID
        rc = pipe_write(p, parts, n)
        if rc == MQ_FULL:
            ring_drop(&lb.rings[lb_prio(p)])
            continue
        if rc == MQ_OK:
            ring_turn(&lb.rings[lb_prio(p)])
            taker[0] = p
        return rc


cdef inline bint lb_can_send(LoadBalance* lb) noexcept nogil:
    """Would an empty message be taken?"""
    cdef Pipe* p
    while True:
        p = lb_front(lb)
        if p == NULL:
            return False
        if pipe_has_room(p, 0):
            return True
        ring_drop(&lb.rings[lb_prio(p)])
