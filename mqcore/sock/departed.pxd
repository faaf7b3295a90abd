"""What departed peers leave unread, under the socket's lock.

All of it together counts as one more peer: what exceeds the socket's receive marks is dropped, the
oldest of the peer that leaves last first. What a single peer leaves is bounded by its own queue. So
peers that come, write and leave cannot fill memory.
"""

from libc.stdint cimport uint32_t

from mqcore.sock.sock cimport Sock
from mqcore.spi.pipe cimport Pipe

# The pipe's peer has left: count what lies in it, drop what is too much.
cdef void departed_keep(Sock* s, Pipe* pipe) noexcept nogil
cdef void departed_forget(Pipe* pipe) noexcept nogil      # it ends: nothing of it counts any more
# count what is left to read as dropped; the pipe is empty then, and ends
cdef void discard(Pipe* pipe, uint32_t reason) noexcept nogil
