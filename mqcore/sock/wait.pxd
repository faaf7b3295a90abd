"""How a call that must wait sleeps: one leader runs the socket's engines, the others follow."""

from libc.stdint cimport int64_t, uint32_t

from mqcore.sock.sock cimport Sock

# Sleep until sock.change differs from `seen` (read before the attempt that failed). deadline:
# monotonic ns, -1 for ever. slices: come back now and then (WAIT_LOOK), so that the main thread
# sees signals. Any thread, without the GIL. WAIT_CHANGED, WAIT_TIMEOUT or WAIT_LOOK.
cdef int sock_wait(Sock* s, uint32_t seen, int64_t deadline, bint slices) noexcept nogil
