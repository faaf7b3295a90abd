"""The counters of a peer, under the socket's lock."""

from libc.stdint cimport uint32_t

from mqcore.sock.sock cimport Ended, Sock
from mqcore.spi.pipe cimport Pipe

cdef void account(Pipe* pipe, Ended* out) noexcept nogil          # as of now; out is zeroed
cdef void account_add(Ended* sum, const Ended* one) noexcept nogil
cdef void show_passed(Pipe* pipe) noexcept nogil          # inproc, with each flush
# A message that was read from this peer, and counted as delivered, is dropped after all.
cdef void undeliver(Sock* s, uint32_t peer, uint32_t reason) noexcept nogil
