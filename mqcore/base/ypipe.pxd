"""ypipe: a lock-free pipe of message handles, one writer thread and one reader thread, on a yqueue.

`c` is the only word that both threads use: the slot after the last published one, or NULL while the
reader sleeps. The writer publishes everything complete with one exchange, and the reader takes
everything published with one. "Thread" means the current owner of that end (through the socket
lock, or the engine lease). Ownership passes with acquire and release, so the plain fields are safe.
"""

from libc.stdint cimport uint64_t
from libcpp.atomic cimport atomic, memory_order_acq_rel, memory_order_acquire

from mqcore.base.message cimport Msg
from mqcore.base.yqueue cimport (
    YQueue, yqueue_back, yqueue_front, yqueue_pop, yqueue_push, yqueue_unpush,
)

cdef struct YPipe:
    YQueue q
    # writer's line
    Msg* w                    # first handle not yet published
    Msg* f                    # first handle not yet complete (what flush publishes up to)
    uint64_t pad0[6]
    # reader's line
    Msg* r                    # first handle not yet taken from the writer
    uint64_t pad1[7]
    atomic[Msg*] c
    uint64_t pad2[7]

cdef int ypipe_init(YPipe* p) noexcept nogil               # Status. The reader starts asleep.
# closes the contents; no thread may use it any more
cdef void ypipe_fini(YPipe* p) noexcept nogil


cdef inline int ypipe_write(YPipe* p, const Msg* m, bint complete) noexcept nogil:
    """Writer. Moves m in; invisible until `complete` and flush. MQ_OK, or MQ_NOMEM with m
    untouched."""
    cdef Msg* slot = yqueue_back(&p.q)
    cdef int rc = yqueue_push(&p.q)
    if rc:
        return rc
    slot[0] = m[0]
    if complete:
        p.f = yqueue_back(&p.q)
    return 0


cdef inline bint ypipe_unwrite(YPipe* p, Msg* out) noexcept nogil:
    """Writer. Moves the last incomplete handle out; False if all that was written is complete."""
    if p.f == yqueue_back(&p.q):
        return False
    yqueue_unpush(&p.q)
    out[0] = yqueue_back(&p.q)[0]
    return True


cdef inline bint ypipe_flush(YPipe* p) noexcept nogil:
    """Writer. Publish what is complete. False: the reader was asleep, the caller MUST wake it."""
    cdef Msg* old
    if p.w == p.f:
        return True
    # SYNC: acq_rel: publishes the handles before f; sees the reader's pops before it slept
    old = p.c.exchange(p.f, memory_order_acq_rel)
    p.w = p.f
    return old != NULL


cdef inline bint ypipe_check_read(YPipe* p) noexcept nogil:
    """Reader. True: a handle can be read. False: none, and from now on the reader counts as asleep,
    so the next flush tells its writer to wake us."""
    cdef Msg* front = yqueue_front(&p.q)
    cdef Msg* seen
    if p.r != NULL and p.r != front:
        return True
    seen = front
    # SYNC: acq_rel on success: the writer sees our pops; acquire on failure: we see its handles
    if p.c.compare_exchange_strong(seen, NULL, memory_order_acq_rel, memory_order_acquire):
        p.r = NULL
        return False
    p.r = seen
    return seen != NULL


cdef inline bint ypipe_read(YPipe* p, Msg* out) noexcept nogil:
    """Reader. Moves the next handle out; False as check_read."""
    if not ypipe_check_read(p):
        return False
    out[0] = yqueue_front(&p.q)[0]
    yqueue_pop(&p.q)
    return True


cdef inline Msg* ypipe_peek(YPipe* p) noexcept nogil:
    """Reader. The next handle in place, or NULL as check_read says False."""
    return yqueue_front(&p.q) if ypipe_check_read(p) else NULL
