"""Telling loops and pollers: see notify.pxd."""

from libc.stdint cimport uint32_t
from libcpp.atomic cimport atomic

from mqcore.base.includes cimport lowest_bit
from mqcore.reactor.wakeup cimport eventfd_signal, futex_wake
from mqcore.sock.events cimport sock_changed
from mqcore.sock.sock cimport (
    BELL_AWAKE, BELL_FD, BELL_FUTEX, BELL_LEADS, NOTIFIER_FREE, NOTIFIERS, Notifier,
)

cdef atomic[uint32_t] _ending     # held for some instructions: a ring and its socket end apart


cdef inline void _tell(Sock* s, uint32_t place, bint used) noexcept nogil:
    cdef Notifier* n = &s.notifiers[place]
    cdef uint32_t bit = <uint32_t> 1 << place
    n.busy.fetch_add(1)       # its descriptor or ring stays until we are through
    widen()
    if used and (not s.armed.load() & bit or n.ring.bell.asleep.load()):
        pass
    elif s.armed.fetch_and(~bit) & bit:
        if n.ring != NULL:
            bell_ring(n.ring)
        else:
            eventfd_signal(n.fd)
    n.busy.fetch_sub(1)


cdef void notify_all(Sock* s) noexcept nogil:
    cdef uint32_t armed = s.armed.load()
    while armed:
        _tell(s, lowest_bit(armed), False)
        armed &= armed - 1


cdef void notify_used(Sock* s) noexcept nogil:
    cdef uint32_t armed = s.armed.load() & s.rings.load()
    while armed:
        _tell(s, lowest_bit(armed), True)
        armed &= armed - 1


cdef void bell_ring(Ring* ring) noexcept nogil:
    cdef Bell* bell = ring.bell
    cdef Ring* head = bell.rung.load()
    while True:
        ring.next = head
        if bell.rung.compare_exchange_weak(head, ring):
            break
    widen()
    bell_wake(bell)


cdef void bell_wake(Bell* bell) noexcept nogil:
    """SYNC: seq_cst pair with the poller, which says that it sleeps, then looks at the stack."""
    cdef uint32_t how
    if bell.asleep.load() == BELL_AWAKE:
        return
    bell.waking.fetch_add(1)  # the socket that it leads stays until we are through
    widen()
    how = bell.asleep.exchange(BELL_AWAKE)
    if how == BELL_FUTEX:
        futex_wake(&bell.asleep, 1)
    elif how == BELL_FD:
        eventfd_signal(bell.fd)
    elif how == BELL_LEADS:
        sock_changed(bell.led)
    bell.waking.fetch_sub(1)


cdef Sock* ring_pin(Ring* ring) noexcept nogil:
    cdef Sock* s
    while _ending.exchange(1):
        sched_yield()
    s = ring.s
    if s != NULL:
        s.users.fetch_add(1)
    _ending.store(0)
    return s


cdef void rings_end(Sock* s) noexcept nogil:
    cdef int i
    if not s.rings.load():
        return
    while _ending.exchange(1):
        sched_yield()
    for i in range(NOTIFIERS):
        if s.notifiers[i].ring != NULL:
            disarm(s, i)
            s.notifiers[i].ring.s = NULL
            s.notifiers[i].ring = NULL
            s.notifiers[i].fd = NOTIFIER_FREE
    s.rings.store(0)
    _ending.store(0)
