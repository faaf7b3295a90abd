"""Who watches a socket's own set for edges: its I/O thread, or a caller that leads.

Never both while a call sleeps there: two watchers on one core steal each other's edges for ever.
Switching the I/O thread off and on costs two system calls a receive, so between receives that come
one after another nobody watches: the watch is LED, and the I/O thread looks every tick (10 ms)
whether callers still come. What cannot wait for a tick (unsent bytes, a handshake, a waiting loop)
switches it on at once.
"""

from mqcore.link.engine cimport Port
from mqcore.sock.sock cimport Sock

cdef enum:                    # Sock.watch_state
    WATCH_ARMED = 0           # the I/O thread watches
    WATCH_LED = 1             # callers come and go and watch; the I/O thread ticks
    WATCH_PARKED = 2          # a caller sleeps there, for long perhaps; nobody else looks

cdef int watch_open(Sock* s) noexcept nogil               # make the set; 0 or -1 with errno
# Closed, and nobody inside: give the set and its eventfd back. Idempotent.
cdef void watch_close(Sock* s) noexcept nogil
# Who made Sock.lead 1 leads: he watches the set, and runs what he harvests (16 edges at most at a
# time, each acted on before he leaves).
cdef void lead_enter(Sock* s) noexcept nogil
# The lead is given up; somebody who waits may take over.
cdef void lead_leave(Sock* s) noexcept nogil
# Somebody waits who does not lead: from now on the I/O thread watches, until the next leader.
cdef void watch_now(Sock* s) noexcept nogil
# Input is closed: ticks end.
cdef void watch_hurry(Sock* s) noexcept nogil
# PortOps.wants: `delta` more engines must not wait for a tick when nobody leads.
cdef void watch_wants(Port* port, int delta) noexcept nogil
