"""The pipes of a socket and its waiting line, all of it under the socket's lock."""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg
from mqcore.sock.sock cimport Ended, Sock
from mqcore.spi.pipe cimport Pipe

cdef void drain(Sock* s) noexcept nogil       # act on everything on the ready stack
cdef inline Pipe* pipe_in(Pipe* pipe, uint32_t peer) noexcept nogil:
    """That of the peer, in the list that begins here; NULL: it has none."""
    while pipe != NULL and pipe.id != peer:
        pipe = pipe.all_next
    return pipe

# The pipe of a peer. held: the peer is kept from the pattern. NULL: there is none.
cdef Pipe* pipe_of(Sock* s, uint32_t peer, bint* held) noexcept nogil
# A held peer is the pattern's from now on; False: there is none of this number.
cdef bint admit(Sock* s, uint32_t peer) noexcept nogil
# A held peer is sent away. If it has left already, its pipe ends, read or not.
cdef void dismiss(Sock* s, Pipe* pipe) noexcept nogil
cdef void reap(Sock* s) noexcept nogil        # end the hung pipes that have been read to the end
# No peer yet: the message waits in the socket. MQ_OK: moved in; MQ_FULL: at the HWM;
# MQ_NOMEM.
cdef int wait_in_line(Sock* s, Msg* parts, size_t n) noexcept nogil
cdef void forget_waiting(Sock* s, uint32_t reason) noexcept nogil
# requests of one context that wait: are there any; forget them
cdef bint waits_of(Sock* s, uint32_t context) noexcept nogil
cdef void forget_waiting_of(Sock* s, uint32_t context, uint32_t reason) noexcept nogil
# unrouted messages to the peers that take them, in order
cdef void pump(Sock* s) noexcept nogil
