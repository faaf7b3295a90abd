"""How a call that must wait sleeps: one leader runs the socket's engines, the others follow."""

from libc.stdint cimport int64_t, uint32_t

from mqcore.sock.sock cimport Sock

# A loop that waits at notifier `place` tries to lead. True: it leads, and watches the descriptor of
# the socket's set. It leads only while no other caller waits in any way, no engine is in a hurry
# and the socket is open, because a loop may be busy elsewhere for long: see lead_claim.
cdef bint loop_lead(Sock* s, int place) noexcept nogil
cdef void loop_leave(Sock* s, int place) noexcept nogil   # if it still leads
# Run what waits in the set, a little at a time, so that the loop's other tasks have their turn.
# False: this loop does not lead any more.
cdef bint loop_harvest(Sock* s, int place) noexcept nogil
# Sleep until sock.change differs from `seen` (read before the attempt that failed). deadline:
# monotonic ns, -1 for ever. slices: come back now and then (WAIT_LOOK), so that the main thread
# sees signals. taker: see sock_arrived(). Any thread, without the GIL. WAIT_CHANGED, WAIT_TIMEOUT
# or WAIT_LOOK.
cdef int sock_wait(Sock* s, uint32_t seen, int64_t deadline, bint slices,
                   bint taker) noexcept nogil
