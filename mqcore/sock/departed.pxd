"""Unread messages of departed peers, under the socket's lock.

What a peer had sent before it left stays in its pipe until the application has read it: an HWM
holds a sender back, and never drops what has arrived. The messages of one peer are limited by its
own queue: at its HWM the engine keeps the descriptor and reads on when there is space.

What limits the number of such peers is the listener. It stops accepting connections at
`max_departed` of them, when they have left as many bytes as `recv_hwm_bytes`, or when they keep a
share of the descriptors. New connections then wait in the kernel. So peers that connect, write and
disconnect cannot fill the memory, and no peer loses a message.

SUB, DISH, BUS and their raw kinds drop at an HWM anyway, and never stop accepting. There, all
departed peers together count as one more peer, and the oldest messages of the peer that departed
last are dropped first.
"""

from libc.stdint cimport uint32_t

from mqcore.sock.sock cimport Sock
from mqcore.spi.pipe cimport Pipe

# The pipe's peer has left: count what lies in it, and drop what is too much where that is the rule.
cdef void departed_keep(Sock* s, Pipe* pipe) noexcept nogil
# The same for a pipe that the pattern does not have yet: nothing is dropped.
cdef void departed_count(Sock* s, Pipe* pipe) noexcept nogil
cdef void departed_forget(Pipe* pipe) noexcept nogil      # it ends: nothing of it counts any more
# A pipe that counted has ended: tell listeners that wait.
cdef void departed_room(Sock* s) noexcept nogil
# No lock. Whether a listener must wait with its next accept. If so, NOTE_ROOM follows.
cdef bint departed_full(Sock* s) noexcept nogil
# count what is left to read as dropped
cdef void drop_unread(Pipe* pipe, uint32_t reason) noexcept nogil
# the same of a departed peer: the pipe is empty then, and ends
cdef void discard(Pipe* pipe, uint32_t reason) noexcept nogil
