"""What passing time means for an engine: handshakes that take too long, heartbeats, peers that are
silent, links that wait for their end. The holder of the engine's lease calls these.
"""

from libc.stdint cimport int64_t

from mqcore.link.engine cimport Engine

# ns between two looks at the clock, in the engine's present state.
cdef int64_t patience_period(Engine* e) noexcept nogil
# Whether the peer seems to be late. What it sent may wait in the kernel, because this thread or
# this process did not run: read before patience_look().
cdef bint patience_overdue(Engine* e) noexcept nogil
# A look at the clock: a PING is due, or the session ends.
cdef void patience_look(Engine* e) noexcept nogil
