"""Batching: see batching.pxd. Batching sockets are on a list of their plane, so that a thread that
is about to sleep finds those to which it owes a write; each is held by its tick (Sock.users) while
it is on the list.
"""

from libc.stdint cimport uint32_t, uint64_t

from mqcore.base.lock cimport lock_release, lock_take
from mqcore.base.widen cimport widen
from mqcore.link.plane cimport Plane
from mqcore.reactor.io_thread cimport (
    TICK_BULK, TICK_FLUSH, IoThread, Task, Tick, io_now, io_post, io_tick,
)
from mqcore.sock.includes cimport waits_count, waits_seen
from mqcore.sock.sock cimport sock_enter, sock_leave, sock_try_enter

cdef enum:
    CALM_SENDS = 16           # fewer sends than this in a tick is calm,
    CALM_TICKS = 30           # and so many calm ticks in a row end batching
    BULK_SENDS = 100          # with so many in a tick OWED_MAX is near: ticks may be rarer, while
    BULK_KEEPS = 500          # this many are sent between two of them
    SETTLED = 16              # sockets that a thread settles at a time


cdef uint32_t batch_waits() noexcept nogil:
    return waits_seen()


cdef void batch_init(Sock* s) noexcept nogil:
    s.tick.run = _tick
    s.tick.arg = s
    s.start_tick.run = _start_tick
    s.start_tick.arg = s


# -- the list --------------------------------------------------------------------------------------

cdef void _enlist(Sock* s) noexcept nogil:
    cdef Plane* plane = s.plane
    lock_take(&plane.batching_lock)
    s.batching_next = <Sock*> plane.batching
    plane.batching = s
    plane.n_batching.fetch_add(1)
    lock_release(&plane.batching_lock)


cdef void _strike(Sock* s) noexcept nogil:
    cdef Plane* plane = s.plane
    cdef Sock** at
    lock_take(&plane.batching_lock)
    at = <Sock**> &plane.batching
    while at[0] != s:
        at = &at[0].batching_next
    at[0] = s.batching_next
    plane.n_batching.fetch_sub(1)
    lock_release(&plane.batching_lock)


cdef void batch_settle(Plane* plane) noexcept nogil:
    cdef int n = SETTLED
    waits_count()
    if plane.n_batching.load() == 0:
        return
    while n == SETTLED:       # one that is settled is found no more
        n = _settle_some(plane, thread_self())


cdef int _settle_some(Plane* plane, uint64_t me) noexcept nogil:
    cdef (Sock*)[SETTLED] owing
    cdef Sock* one
    cdef int n = 0
    cdef int i
    lock_take(&plane.batching_lock)
    one = <Sock*> plane.batching
    while one != NULL and n < SETTLED:
        if one.sender.load() == me:
            one.sender.store(0)
            one.users.fetch_add(1)    # close() waits until we are through
            owing[n] = one
            n += 1
        one = one.batching_next
    lock_release(&plane.batching_lock)
    for i in range(n):
        sock_enter(owing[i])
        sock_leave(owing[i], True)
        owing[i].users.fetch_sub(1)
    return n


# -- beginning and end -----------------------------------------------------------------------------

cdef void batch_begin(Sock* s) noexcept nogil:
    sock_enter(s)             # not beside a tick that is about to end
    s.burst.store(0)
    if not s.batching and not s.closing.load():
        s.sends = 0
        s.calm = 0
        s.unwritten = 0
        s.paused = False
        s.ran = s.busy = False
        s.tick.which = TICK_FLUSH
        s.batching = 1
        s.users.fetch_add(1)  # the tick holds the socket
        _enlist(s)
        io_post(s.home, &s.start_tick)
    sock_leave(s, True)


cdef void _start_tick(Task* task, IoThread* io) noexcept nogil:
    """What was sent while this thread woke up leaves now: a burst may be over already."""
    cdef Sock* s = <Sock*> task.arg
    s.due.store(1)
    widen()
    if sock_try_enter(s):
        sock_leave(s, True)
    io_tick(io, &s.tick)


cdef bint _tick(Tick* tick, IoThread* io) noexcept nogil:
    """One pass: publish and write what is owed. A loop here would write scraps; so does a pass just
    after the sender wrote, in a run of sends that lasts. A sender that fills batches quickly has
    rarer ticks."""
    cdef Sock* s = <Sock*> tick.arg
    cdef bint waits
    s.due.store(1)
    widen()
    if not sock_try_enter(s):
        return True           # the caller inside writes it as it leaves
    s.calm = 0 if s.sends >= CALM_SENDS else s.calm + 1
    if s.calm >= CALM_TICKS or s.closing.load():
        s.batching = 0
        s.batched.store(io_now(io) if s.busy else 0)
        s.due.store(0)
        _strike(s)            # under the socket's lock, as _enlist: one after the other
        sock_leave(s, True)
        s.users.fetch_sub(1)
        return False
    s.unwritten += 1
    waits = tick.which == TICK_FLUSH and s.sends >= CALM_SENDS and s.ran and s.unwritten < 2
    s.ran = s.sends >= CALM_SENDS
    s.busy |= s.ran
    tick.which = TICK_BULK if s.sends >= (
        BULK_KEEPS if tick.which == TICK_BULK else BULK_SENDS) else TICK_FLUSH
    s.paused = s.sends == 0
    s.sends = 0
    if waits:
        s.due.store(0)
    sock_leave(s, not waits)
    return True
