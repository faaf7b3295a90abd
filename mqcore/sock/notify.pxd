"""How a socket notifies loops and pollers of changes.

A loop has an own eventfd for each socket. A poller of many sockets (poll_set.pyx) has one bell, and
a ring at each socket. A change puts the socket's ring on the bell's stack and wakes the poller if
it sleeps, so a poller finds the changed sockets without checking the others.

Each is notified once per arming. Until the poller takes the stack, a ring is on the stack or armed,
never both: a ring that is pushed twice is its own successor, and taking the stack never ends. So a
poller arms a ring only if it has disarmed it, or taken it from the stack, since it armed it last
(`PollEntry.pending`). The bit in `armed` decides which thread may push. `busy` keeps the memory of
a ring and its bell, or a descriptor, valid until a notifying thread has finished.
"""

from libc.stdint cimport uint32_t

from mqcore.base.widen cimport widen
from mqcore.reactor.includes cimport sched_yield
from mqcore.sock.sock cimport Bell, Ring, Sock

# Any thread, no lock. Tell all that are armed.
cdef void notify_all(Sock* s) noexcept nogil
# The same, of rings whose poller does not sleep: the socket was used by a call, and the poller
# looks at it when it polls again.
cdef void notify_used(Sock* s) noexcept nogil
# Put a ring on its bell's stack, which it is not on, and wake the poller.
cdef void bell_ring(Ring* ring) noexcept nogil
cdef void bell_wake(Bell* bell) noexcept nogil
# The socket that a ring is at, with a user more; NULL: it has gone. Any thread.
cdef Sock* ring_pin(Ring* ring) noexcept nogil
# A socket's last act: its memory goes, or is left to itself.
cdef void rings_end(Sock* s) noexcept nogil


cdef inline void arm(Sock* s, int place) noexcept nogil:
    """Notify of the next change. Check again after arming."""
    s.armed.fetch_or(<uint32_t> 1 << place)
    widen()


cdef inline bint disarm(Sock* s, int place) noexcept nogil:
    """When this returns, no further notification is sent. False: it had not been armed, or a
    notification has been sent."""
    cdef uint32_t bit = <uint32_t> 1 << place
    cdef bint was = s.armed.fetch_and(~bit) & bit != 0
    while s.notifiers[place].busy.load():   # a thread is about to tell it, or has just
        sched_yield()
    return was
