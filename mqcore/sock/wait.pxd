"""How a call that must wait sleeps: one leader runs the socket's engines, the others follow."""

from libc.stdint cimport int64_t, uint32_t

from mqcore.sock.sock cimport Sock

# Who made Sock.lead 1 leads: the I/O thread watches the socket's set no more, he does, and runs what
# he harvests (16 at most at a time, each acted on before he leaves).
cdef void lead_enter(Sock* s) noexcept nogil
# The lead is given up; the I/O thread watches again, or somebody who waits takes over.
cdef void lead_leave(Sock* s) noexcept nogil
# A loop that waits at notifier `place` wants to lead: True, it does, and watches the descriptor of
# the socket's set. It leads only while nobody else waits in any way and the socket is open, since
# a loop may be busy elsewhere for long: whoever begins to wait, or closes, claims the lead.
cdef bint loop_lead(Sock* s, int place) noexcept nogil
cdef void loop_leave(Sock* s, int place) noexcept nogil   # if it still leads
# Run what waits in the set, a little at a time, so that the loop's other tasks have their turn.
# False: this loop does not lead any more.
cdef bint loop_harvest(Sock* s, int place) noexcept nogil
# Somebody who is to be served waits or closes: if a loop leads, it leads no more.
cdef void lead_claim(Sock* s) noexcept nogil
# Sleep until sock.change differs from `seen` (read before the attempt that failed). deadline:
# monotonic ns, -1 for ever. slices: come back now and then (WAIT_LOOK), so that the main thread
# sees signals. Any thread, without the GIL. WAIT_CHANGED, WAIT_TIMEOUT or WAIT_LOOK.
cdef int sock_wait(Sock* s, uint32_t seen, int64_t deadline, bint slices) noexcept nogil
