"""Load balancer: sends each message to one peer, in turn, best priority first.

Sixteen rings, one per priority (1 is best), hold the pipes that may have space. A pipe that turns
out full leaves its ring and returns with `writable`. The lowest number with a writable pipe gets
all messages. A seventeenth ring comes after all others: unresponsive peers, until they respond.

A peer that is full for a moment has not failed: others get its messages, and no event is emitted.

This is the strategy "priority". "round_robin" is the same with all pipes in one ring. Every other
strategy is called for each message, by `choice`, and the rings are empty then.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport strcmp

from mqcore.base.includes cimport lowest_bit, prefetch
from mqcore.base.message cimport Msg
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_UNSUPPORTED
from mqcore.base.yqueue cimport yqueue_back
from mqcore.protocols.routing.choice cimport (
    Choice, choice_begin, choice_can_send, choice_end, choice_fini, choice_join, choice_leave,
    choice_send, choice_silence, choice_writable,
)
from mqcore.protocols.routing.ring cimport (
    MARK_GONE, Ring, ring_after, ring_drop, ring_fini, ring_front, ring_join, ring_leave,
    ring_place, ring_put, ring_take, ring_turn,
)
from mqcore.spi.pattern cimport EV_FAILED_BACK, EV_FAILED_OVER
from mqcore.spi.pipe cimport Host, Pipe, pipe_has_room, pipe_write
from mqcore.spi.strategy cimport STRATEGY_PRIORITY, StrategyOps

cdef enum:
    SILENT = 17               # the place after all priorities

cdef enum:                    # bits of Pipe.mark that belong to the load balancer, with MARK_GONE
    MARK_PLACE = 24           # five bits: the ring that the pipe is a member of

cdef struct LoadBalance:      # zero-initialise, then lb_init
    Ring[18] rings            # by place: a priority, or SILENT; 0 is not used
    uint32_t[18] live         # connected pipes by place
    uint32_t waiting          # bit p: rings[p] may have a pipe
    bint flat                 # ignore priorities: all responsive pipes are in rings[1]
    Choice by                 # the connected pipes, and the strategy if the rings do not choose

# of EV_FAILED_OVER, EV_FAILED_BACK; the pipe: the one that failed, or is back
cdef struct FailOver:
    uint32_t other            # Pipe.id of a peer that gets, or got, its messages
    uint32_t before           # the priorities, before and after
    uint32_t after
    uint32_t silent           # 1: its connection stayed open


cdef inline void lb_init(LoadBalance* lb) noexcept nogil:
    cdef int i
    for i in range(18):
        lb.rings[i].out = 1


cdef inline void lb_fini(LoadBalance* lb) noexcept nogil:
    cdef int i
    for i in range(18):
        ring_fini(&lb.rings[i])
    choice_fini(&lb.by)


cdef inline uint32_t lb_prio(Pipe* p) noexcept nogil:
    return 1 if p.prio < 1 else 16 if p.prio > 16 else <uint32_t> p.prio


cdef inline uint32_t _lb_home(Pipe* p, bint flat) noexcept nogil:
    return 1 if flat else lb_prio(p)


cdef inline uint32_t lb_place(Pipe* p) noexcept nogil:
    return p.mark >> MARK_PLACE & 31


cdef inline void _lb_set_place(Pipe* p, uint32_t place) noexcept nogil:
    p.mark = p.mark & ~(<uint32_t> 31 << MARK_PLACE) | place << MARK_PLACE


cdef inline uint32_t _lb_best(LoadBalance* lb) noexcept nogil:
    """The best place with a pipe in it; 18: there is none."""
    cdef uint32_t place
    for place in range(1, 18):
        if lb.live[place]:
            return place
    return 18


cdef inline void _lb_tell(LoadBalance* lb, Pipe* p, uint32_t what, uint32_t place,
                          bint silent) noexcept nogil:
    """`place`: the place of the peers that p's messages go to, or went to."""
    cdef FailOver told
    cdef Pipe* other = NULL
    cdef uint32_t i
    if not p.host.watched.load() or p.host.closing:
        return                # no peer is left: this socket closes
    for i in range(lb.by.n):
        if lb.by.at[i] != p and lb_place(lb.by.at[i]) == place:
            other = lb.by.at[i]
            break
    if other == NULL:
        return
    told.other = other.id
    told.before = lb_prio(p if what == EV_FAILED_OVER else other)
    told.after = lb_prio(other if what == EV_FAILED_OVER else p)
    told.silent = silent
    p.host.emit(p.host, what, p, <const uint8_t*> &told, sizeof(FailOver))


cdef inline void _lb_put(LoadBalance* lb, Pipe* p) noexcept nogil:
    cdef uint32_t place = lb_place(p)
    ring_put(&lb.rings[place], p)
    lb.waiting |= <uint32_t> 1 << place


cdef inline int lb_attach(LoadBalance* lb, Pipe* p) noexcept nogil:
    cdef uint32_t place = _lb_home(p, lb.flat)
    cdef uint32_t best = _lb_best(lb)
    cdef int rc = ring_join(&lb.rings[place], p)
    if rc:
        return rc
    rc = choice_join(&lb.by, p)
    if rc:
        ring_leave(&lb.rings[place], p)
        return rc
    _lb_set_place(p, place)
    if lb.by.strategy == NULL:
        _lb_put(lb, p)
    lb.live[place] += 1
    if place < best and best < SILENT:
        _lb_tell(lb, p, EV_FAILED_BACK, best, False)
    return MQ_OK


cdef inline void lb_hangup(LoadBalance* lb, Pipe* p) noexcept nogil:
    """The far side is gone. May be called twice."""
    cdef uint32_t place = lb_place(p)
    if p.mark & MARK_GONE:
        return
    p.mark |= MARK_GONE
    if lb.by.strategy == NULL:
        ring_take(&lb.rings[place], p)
    choice_leave(&lb.by, p)
    lb.live[place] -= 1
    if place < _lb_best(lb):
        _lb_tell(lb, p, EV_FAILED_OVER, _lb_best(lb), False)


cdef inline void lb_detach(LoadBalance* lb, Pipe* p) noexcept nogil:
    lb_hangup(lb, p)
    ring_leave(&lb.rings[lb_place(p)], p)


cdef inline void lb_writable(LoadBalance* lb, Pipe* p) noexcept nogil:
    if p.mark & MARK_GONE:
        return
    if lb.by.strategy == NULL:
        _lb_put(lb, p)
    else:
        choice_writable(&lb.by, p, lb_place(p) == SILENT)


# -- unresponsive peers ----------------------------------------------------------------------------

cdef inline int _lb_join(LoadBalance* lb, Pipe* p, uint32_t place) noexcept nogil:
    """Reserve a place in one more ring, before any step that cannot be undone."""
    cdef int32_t at = p.out_at
    cdef int rc = ring_join(&lb.rings[place], p)
    p.out_at = at
    return rc


cdef inline void _lb_move(LoadBalance* lb, Pipe* p, uint32_t place) noexcept nogil:
    """Move to the end of another ring, where it has a reserved place, or of its own."""
    cdef uint32_t old = lb_place(p)
    cdef bint room = lb.by.strategy == NULL and p.out_at >= 0
    if room:
        ring_take(&lb.rings[old], p)
    if place != old:
        lb.rings[old].members -= 1
        lb.live[old] -= 1
        lb.live[place] += 1
        _lb_set_place(p, place)
    if room:
        _lb_put(lb, p)
    elif lb.by.strategy != NULL and (place == SILENT) != (old == SILENT):
        choice_silence(&lb.by, p, place == SILENT)


cdef inline void lb_silence(LoadBalance* lb, Pipe* p) noexcept nogil:
    """p is connected but unresponsive: it comes after all others until lb_heard. If it is already
    there, it goes to the end. May be called for a pipe that hung up."""
    cdef uint32_t place = lb_place(p)
    cdef uint32_t best
    if p.mark & MARK_GONE or (place != SILENT and _lb_join(lb, p, SILENT)):
        return
    _lb_move(lb, p, SILENT)
    best = _lb_best(lb)
    if place <= best and best < SILENT:
        _lb_tell(lb, p, EV_FAILED_OVER, best, True)


cdef inline void lb_heard(LoadBalance* lb, Pipe* p) noexcept nogil:
    """A message arrived from p: if it was unresponsive, it returns to its place. Cheap
    otherwise."""
    cdef uint32_t place, best
    if lb_place(p) != SILENT or p.mark & MARK_GONE:
        return
    place = _lb_home(p, lb.flat)
    if _lb_join(lb, p, place):
        return
    best = _lb_best(lb)
    _lb_move(lb, p, place)
    if place <= best and best < SILENT:
        _lb_tell(lb, p, EV_FAILED_BACK, best, True)


# -- strategies ------------------------------------------------------------------------------------

cdef inline int _lb_flatten(LoadBalance* lb, bint flat) noexcept nogil:
    """Move each pipe to its ring with or without priorities. Status."""
    cdef uint32_t i, place
    cdef Pipe* p
    for i in range(lb.by.n):
        p = lb.by.at[i]
        place = _lb_home(p, flat)
        if lb_place(p) == SILENT or lb_place(p) == place:
            continue
        if _lb_join(lb, p, place):
            while i:
                i -= 1
                p = lb.by.at[i]
                place = _lb_home(p, flat)
                if lb_place(p) != SILENT and lb_place(p) != place:
                    lb.rings[place].members -= 1
            return MQ_NOMEM
    lb.flat = flat
    for i in range(lb.by.n):
        p = lb.by.at[i]
        if lb_place(p) != SILENT and lb_place(p) != _lb_home(p, flat):
            _lb_move(lb, p, _lb_home(p, flat))
    return MQ_OK


cdef inline void _lb_rings(LoadBalance* lb) noexcept nogil:
    """End the strategy: move all pipes back to the rings."""
    cdef uint32_t i
    choice_end(&lb.by)
    for i in range(lb.by.n):
        _lb_put(lb, lb.by.at[i])


cdef inline int lb_strategy(LoadBalance* lb, Host* host, const StrategyOps* ops) noexcept nogil:
    """Use this strategy from now on. Status; if not MQ_OK, the old one stays."""
    cdef bint flat = not ops.flags & STRATEGY_PRIORITY
    cdef bint rings = lb.by.strategy == NULL
    cdef uint32_t i
    cdef Pipe* p
    cdef int rc
    if ops.choose == NULL:
        rc = _lb_flatten(lb, flat)
        if rc == MQ_OK and not rings:
            _lb_rings(lb)
        return rc
    for i in range(lb.by.n if rings else 0):
        ring_take(&lb.rings[lb_place(lb.by.at[i])], lb.by.at[i])
    rc = choice_begin(&lb.by, host, ops)
    for i in range(lb.by.n if rings else 0):
        p = lb.by.at[i]
        if rc:
            _lb_put(lb, p)
        elif lb_place(p) == SILENT:
            choice_silence(&lb.by, p, True)
    if rc == MQ_OK:
        rc = _lb_flatten(lb, flat)
        if rc:
            _lb_rings(lb)
    return rc


cdef inline int lb_set_option(LoadBalance* lb, Host* host, const char* name,
                              int64_t number) noexcept nogil:
    """The option of all patterns with a load balancer: `number` is the address of a StrategyOps."""
    if strcmp(name, "strategy") != 0:
        return MQ_UNSUPPORTED
    return lb_strategy(lb, host, <const StrategyOps*> <size_t> number)


# -- sending ---------------------------------------------------------------------------------------

cdef inline Pipe* lb_front(LoadBalance* lb) noexcept nogil:
    """The next pipe; NULL: no pipe may have space."""
    cdef int prio
    cdef Pipe* p
    while lb.waiting:
        prio = lowest_bit(lb.waiting)
        p = ring_front(&lb.rings[prio])
        if p != NULL:
            return p
        lb.waiting &= ~(<uint32_t> 1 << prio)
    return NULL


cdef inline void _lb_fetch(Ring* ring) noexcept nogil:
    """Prefetch what the next turns write to, as _fq_fetch does for reading: the third peer's pipe,
    the second one's lane and connection, and the next one's place for a message."""
    cdef Pipe* p = ring_after(ring, 2)
    if p != NULL:
        prefetch(&p.out)
        prefetch(&p.offered)
        prefetch(&p.far)
    p = ring_after(ring, 1)
    if p != NULL:
        prefetch(&p.out.q.q.back_chunk)
        prefetch(&p.out.q.w)
        prefetch(&p.out.q.c)
        prefetch(&p.out.hwm_msgs)
        prefetch(&p.out.p_msgs)
        prefetch(p.far)
    p = ring_front(ring)
    if p != NULL and not p.out.conflate:
        prefetch(p.out.q.q.end_chunk)
        prefetch(yqueue_back(&p.out.q.q))


cdef inline int lb_send(LoadBalance* lb, Msg* parts, size_t n, Pipe** taker) noexcept nogil:
    """MQ_OK and the pipe that took it; MQ_AGAIN: no peer; MQ_FULL: all full; MQ_INVALID: several
    parts for a conflating lane; MQ_NOMEM. Only MQ_OK moves anything."""
    cdef Pipe* p
    cdef int rc
    if lb.by.strategy != NULL:
        return choice_send(&lb.by, parts, n, taker)
    while True:
        p = lb_front(lb)
        if p == NULL:
            return MQ_FULL if lb.by.n else MQ_AGAIN
        if n > 1 and p.out.conflate:
            return MQ_INVALID
        rc = pipe_write(p, parts, n)
        if rc == MQ_FULL:
            ring_drop(&lb.rings[lb_place(p)])
            continue
        if rc == MQ_OK:
            ring_turn(&lb.rings[lb_place(p)])
            _lb_fetch(&lb.rings[lb_place(p)])
            taker[0] = p
        return rc


cdef inline bint lb_can_send(LoadBalance* lb) noexcept nogil:
    """Whether an empty message would be taken."""
    cdef Pipe* p
    if lb.by.strategy != NULL:
        return choice_can_send(&lb.by)
    while True:
        p = lb_front(lb)
        if p == NULL:
            return False
        if pipe_has_room(p, 0):
            return True
        ring_drop(&lb.rings[lb_place(p)])
