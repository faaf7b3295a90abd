"""The pipes of a socket and its waiting line, all of it under the socket's lock."""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg
from mqcore.sock.sock cimport Ended, Sock
from mqcore.spi.pipe cimport Pipe

cdef void drain(Sock* s) noexcept nogil       # act on everything on the ready stack
cdef void reap(Sock* s) noexcept nogil        # end the hung pipes that have been read to the end
cdef void discard(Pipe* pipe, uint32_t reason) noexcept nogil     # count what is left to read
# No peer yet: the message waits in the socket. MQ_OK: moved in; MQ_FULL at the mark; MQ_NOMEM.
cdef int wait_in_line(Sock* s, Msg* parts, size_t n) noexcept nogil
cdef void forget_waiting(Sock* s, uint32_t reason) noexcept nogil
cdef void pump(Sock* s) noexcept nogil        # unrouted messages to whoever takes them, in order
cdef void account(Pipe* pipe, Ended* out) noexcept nogil          # as of now; out is zeroed
cdef void show_passed(Pipe* pipe) noexcept nogil          # inproc, with each flush
