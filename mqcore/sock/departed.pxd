"""Unread messages of departed peers, under the socket's lock.

Together they count as one more peer. What exceeds the socket's receive HWMs is dropped:
the oldest messages of the peer that departed last go first. The messages of one peer are limited by
its own queue. So peers that connect, write and disconnect cannot fill the memory.
"""

from libc.stdint cimport uint32_t

from mqcore.sock.sock cimport Sock
from mqcore.spi.pipe cimport Pipe

# The pipe's peer has left: count what lies in it, drop what is too much.
cdef void departed_keep(Sock* s, Pipe* pipe) noexcept nogil
cdef void departed_forget(Pipe* pipe) noexcept nogil      # it ends: nothing of it counts any more
# count what is left to read as dropped; the pipe is empty then, and ends
cdef void discard(Pipe* pipe, uint32_t reason) noexcept nogil
