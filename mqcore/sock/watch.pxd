"""Which thread watches a socket's own sets for edges. There is one set per I/O thread. Either that
thread watches it, or a leading caller watches all of them.

Never both while a call sleeps there: two watchers on one core steal each other's edges for ever.
Switching the I/O thread off and on costs two system calls per receive. So between consecutive
receives no thread watches: the watch is LED, and the I/O thread checks every tick (10 ms) whether
callers still enter. What cannot wait for a tick (unsent bytes, a handshake, a waiting loop, a
caller that takes from a backlog and does not lead) switches it on at once.
"""

from libc.stdint cimport int64_t, uint32_t

from mqcore.link.engine cimport Port
from mqcore.reactor.io_thread cimport Watch
from mqcore.reactor.poller cimport Ready
from mqcore.sock.sock cimport Sock

cdef enum:                    # Sock.watch_state
    WATCH_ARMED = 0           # the I/O thread watches
    WATCH_LED = 1             # callers come and go and watch; the I/O thread ticks
    WATCH_PARKED = 2          # a caller sleeps there, perhaps for long; no other thread watches

cdef int watch_open(Sock* s) noexcept nogil               # make the sets; 0 or -1 with errno
# The socket is closed and no thread is inside: free the sets and the eventfd. Idempotent.
cdef void watch_close(Sock* s) noexcept nogil
cdef void watch_abandon(Sock* s) noexcept nogil           # forked child: close descriptors only
cdef Watch* watch_next(Sock* s) noexcept nogil            # where the next engine belongs
# Who leads: PollerOps.wait over all sets. Edges of engines, and of our eventfd (arg NULL).
cdef int watch_wait(Sock* s, Ready* found, int cap, int64_t timeout) noexcept nogil
# The thread that set Sock.lead to 1 leads: it watches the set, and runs what it harvests (at most
# 16 edges at a time, each handled before it leaves).
cdef void lead_enter(Sock* s) noexcept nogil
# Release the lead; another waiter may take over.
cdef void lead_leave(Sock* s) noexcept nogil
# The same, if `who` (not 1) leads: True.
cdef bint lead_leave_as(Sock* s, uint32_t who) noexcept nogil
# A waiter that must be served, or close(), begins: if a loop leads, it stops leading. Call after
# registering where a loop checks when it begins to lead (wait.pyx, _loop_may).
cdef void lead_claim(Sock* s) noexcept nogil
# A waiter that does not lead: from now on the I/O thread watches, until the next leader. The caller
# is one of Sock.users, or an engine, so that the sets stay.
cdef void watch_now(Sock* s) noexcept nogil
# The same for any other caller. Nothing happens if the socket is closed.
cdef void watch_beside(Sock* s) noexcept nogil
# A loop has begun to lead. While it does, the I/O thread looks into the sets every 50 ms. If there
# are edges, the loop is busy, and the I/O thread watches until the loop leads again.
cdef void watch_loop(Sock* s) noexcept nogil
# Input is closed: ticks end.
cdef void watch_hurry(Sock* s) noexcept nogil
# PortOps.wants: `delta` more engines must not wait for a tick while no thread leads.
cdef void watch_wants(Port* port, int delta) noexcept nogil
