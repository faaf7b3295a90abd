"""Waiting: see wait.pxd.

A leader sleeps in the socket's own set and runs what it harvests, so a message goes from the kernel
to the caller without another thread; meanwhile the I/O thread does not watch that set (watch.pxd).
There is one leader a socket; others sleep on the word `change`. A leader that leaves wakes the
followers, so that one of them leads. Whoever tells us something adds to `change` first and then
looks whether somebody sleeps; whoever sleeps says so first and then looks at `change`.
"""

from mqcore.base.clock cimport now_ns
from mqcore.base.widen cimport SLICE_NS, widen

from mqcore.reactor.poller cimport Ready
from mqcore.reactor.wakeup cimport futex_wait
from mqcore.sock.sock cimport WAIT_CHANGED, WAIT_LOOK, WAIT_TIMEOUT, sock_act
from mqcore.sock.watch cimport lead_enter, lead_leave

cdef enum:
    HARVEST = 16              # few, since each must be acted on before leaving


cdef inline int64_t _patience(int64_t deadline, bint slices) noexcept nogil:
    cdef int64_t left = -1
    if deadline >= 0:
        left = deadline - now_ns()
        if left < 0:
            left = 0
    if slices and (left < 0 or left > SLICE_NS):
        left = SLICE_NS
    return left


cdef int _verdict(Sock* s, uint32_t seen, int64_t deadline) noexcept nogil:
    if s.change.load() != seen:
        return WAIT_CHANGED
    if deadline >= 0 and now_ns() >= deadline:
        return WAIT_TIMEOUT
    return WAIT_LOOK


cdef int _lead(Sock* s, uint32_t seen, int64_t deadline, bint slices) noexcept nogil:
    cdef Ready[HARVEST] found
    cdef int n
    cdef int verdict = WAIT_LOOK
    lead_enter(s)
    while True:
        s.lead_asleep.exchange(1)
        if s.change.load() != seen:
            s.lead_asleep.exchange(0)
            verdict = WAIT_CHANGED
            break
        widen()
        n = s.plane.poller.wait(s.watch.set, found, HARVEST, _patience(deadline, slices), NULL)
        s.lead_asleep.exchange(0)
        if n > 0:
            sock_act(s, found, n)
        verdict = _verdict(s, seen, deadline)
        if verdict != WAIT_LOOK or n < 0 or (n == 0 and slices):
            break
    lead_leave(s)
    return verdict


cdef int sock_wait(Sock* s, uint32_t seen, int64_t deadline, bint slices) noexcept nogil:
    cdef uint32_t nobody = 0
    cdef int verdict
    if s.change.load() != seen:
        return WAIT_CHANGED
    if s.watching.load() and s.lead.compare_exchange_strong(nobody, 1):
        return _lead(s, seen, deadline, slices)
    s.followers.fetch_add(1)
    if s.change.load() == seen:
        # a leader that has just left did not see us follow: then the lead is free, and we take it
        if s.watching.load() and s.lead.load() == 0:
            s.followers.fetch_sub(1)
            return WAIT_LOOK
        widen()
        futex_wait(&s.change, seen, _patience(deadline, slices))
    s.followers.fetch_sub(1)
    verdict = _verdict(s, seen, deadline)
    return verdict
