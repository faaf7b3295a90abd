"""Ring: the pipes that may be used now, in turn. Under the fair queue and the load balancer.

A pipe is in a ring at most once; `Pipe.in_at` or `Pipe.out_at` (the ring's `out` says which) holds
its slot, -1 outside. Every step is O(1): a pipe that leaves from the middle leaves a hole, holes
are skipped at the front and squeezed out when the ring is full. A ring has twice as many slots as
members, so that squeezing is rare and putting a pipe in cannot fail."""

from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport calloc, free

from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.spi.pipe cimport Pipe

cdef enum:                    # bits of Pipe.mark that all patterns share
    MARK_GONE = 0x80000000    # the far side is gone: write no more

cdef struct Ring:             # zero-initialise, then set `out`
    Pipe** at
    uint32_t cap              # a power of two, 0 before the first member
    uint32_t head             # slot of the front
    uint32_t n                # slots in use, holes included
    uint32_t members          # pipes that may come in
    uint32_t out              # the place is kept in Pipe.out_at, not in_at


cdef inline int32_t* ring_place(Ring* r, Pipe* p) noexcept nogil:
    return &p.out_at if r.out else &p.in_at


cdef inline void _ring_move(Ring* r, Pipe** to, uint32_t cap) noexcept nogil:
    """Copies the pipes to `to`, without the holes."""
    cdef uint32_t i, n = 0
    cdef Pipe* p
    for i in range(r.n):
        p = r.at[(r.head + i) & (r.cap - 1)]
        if p != NULL:
            ring_place(r, p)[0] = <int32_t> n
            to[n] = p
            n += 1
    free(r.at)
    r.at = to
    r.cap = cap
    r.head = 0
    r.n = n


cdef inline int ring_join(Ring* r, Pipe* p) noexcept nogil:
    """p becomes a member, outside. Status."""
    cdef uint32_t cap = r.cap if r.cap else 4
    cdef Pipe** to
    while cap < 2 * (r.members + 1):
        cap *= 2
    if cap != r.cap:
        to = <Pipe**> calloc(cap, sizeof(Pipe*))
        if to == NULL:
            return MQ_NOMEM
        _ring_move(r, to, cap)
    r.members += 1
    ring_place(r, p)[0] = -1
    return MQ_OK


cdef inline void ring_take(Ring* r, Pipe* p) noexcept nogil:
    """p leaves the ring, from wherever it is, and stays a member."""
    cdef int32_t* place = ring_place(r, p)
    if place[0] >= 0:
        r.at[place[0]] = NULL
        place[0] = -1


cdef inline void ring_leave(Ring* r, Pipe* p) noexcept nogil:
    ring_take(r, p)
    r.members -= 1


cdef inline void _ring_squeeze(Ring* r) noexcept nogil:
    # the read position is never behind the write position: pipes only move towards the front
    cdef uint32_t i, n = 0
    cdef uint32_t mask = r.cap - 1
    cdef Pipe* p
    for i in range(r.n):
        p = r.at[(r.head + i) & mask]
        if p != NULL:
            r.at[(r.head + i) & mask] = NULL
            r.at[(r.head + n) & mask] = p
            ring_place(r, p)[0] = <int32_t> ((r.head + n) & mask)
            n += 1
    r.n = n


cdef inline void ring_put(Ring* r, Pipe* p) noexcept nogil:
    """To the end, if it is not in already."""
    cdef int32_t* place = ring_place(r, p)
    cdef uint32_t slot
    if place[0] >= 0:
        return
    if r.n == r.cap:
        _ring_squeeze(r)
    slot = (r.head + r.n) & (r.cap - 1)
    r.at[slot] = p
    place[0] = <int32_t> slot
    r.n += 1


cdef inline Pipe* ring_front(Ring* r) noexcept nogil:
    """NULL: empty."""
    cdef Pipe* p
    while r.n:
        p = r.at[r.head]
        if p != NULL:
            return p
        r.head = (r.head + 1) & (r.cap - 1)
        r.n -= 1
    return NULL


cdef inline Pipe* ring_after(Ring* r, uint32_t n) noexcept nogil:
    """The pipe n places behind the front, if none leaves. NULL: no pipe, or a hole."""
    return r.at[(r.head + n) & (r.cap - 1)] if n < r.n else NULL


cdef inline void ring_drop(Ring* r) noexcept nogil:
    """The front leaves; only after ring_front gave one."""
    ring_place(r, r.at[r.head])[0] = -1
    r.at[r.head] = NULL
    r.head = (r.head + 1) & (r.cap - 1)
    r.n -= 1


cdef inline void ring_turn(Ring* r) noexcept nogil:
    """The front goes to the end; only after ring_front gave one."""
    cdef Pipe* p
    if r.n > 1:
        p = r.at[r.head]
        ring_drop(r)
        ring_put(r, p)


cdef inline void ring_fini(Ring* r) noexcept nogil:
    free(r.at)
    r.at = NULL
    r.cap = 0
    r.n = 0
