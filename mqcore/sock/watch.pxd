"""Who watches a socket's own sets for edges, one for each I/O thread: that thread, or a caller that
leads, who waits on all of them.

Never both while a call sleeps there: two watchers on one core steal each other's edges for ever.
Switching the I/O thread off and on costs two system calls a receive, so between receives that come
one after another nobody watches: the watch is LED, and the I/O thread looks every tick (10 ms)
whether callers still come. What cannot wait for a tick (unsent bytes, a handshake, a waiting loop,
a caller that takes from a backlog and does not come to lead) switches it on at once.
"""

from libc.stdint cimport int64_t, uint32_t

from mqcore.link.engine cimport Port
from mqcore.reactor.io_thread cimport Watch
from mqcore.reactor.poller cimport Ready
from mqcore.sock.sock cimport Sock

cdef enum:                    # Sock.watch_state
    WATCH_ARMED = 0           # the I/O thread watches
    WATCH_LED = 1             # callers come and go and watch; the I/O thread ticks
    WATCH_PARKED = 2          # a caller sleeps there, for long perhaps; nobody else looks

cdef int watch_open(Sock* s) noexcept nogil               # make the sets; 0 or -1 with errno
# Closed, and nobody inside: give the sets and the eventfd back. Idempotent.
cdef void watch_close(Sock* s) noexcept nogil
cdef void watch_abandon(Sock* s) noexcept nogil           # forked child: close descriptors only
cdef Watch* watch_next(Sock* s) noexcept nogil            # where the next engine belongs
# Who leads: PollerOps.wait over all sets. Edges of engines, and of our eventfd (arg NULL).
cdef int watch_wait(Sock* s, Ready* found, int cap, int64_t timeout) noexcept nogil
# Who made Sock.lead 1 leads: he watches the set, and runs what he harvests (16 edges at most at a
# time, each acted on before he leaves).
cdef void lead_enter(Sock* s) noexcept nogil
# The lead is given up; somebody who waits may take over.
cdef void lead_leave(Sock* s) noexcept nogil
# The same, if `who` (not 1) leads: True.
cdef bint lead_leave_as(Sock* s, uint32_t who) noexcept nogil
# Somebody who must be served begins to wait, or closes: if a loop leads, it leads no more. Said
# after what it looks at when it begins to lead (wait.pyx, _loop_may).
cdef void lead_claim(Sock* s) noexcept nogil
# Somebody waits who does not lead: from now on the I/O thread watches, until the next leader.
cdef void watch_now(Sock* s) noexcept nogil
# Input is closed: ticks end.
cdef void watch_hurry(Sock* s) noexcept nogil
# PortOps.wants: `delta` more engines must not wait for a tick when nobody leads.
cdef void watch_wants(Port* port, int delta) noexcept nogil
