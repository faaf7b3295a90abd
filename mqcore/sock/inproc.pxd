"""inproc: two sockets of one context joined by a link."""

from libc.stdint cimport int32_t, uint32_t

from mqcore.sock.sock cimport Sock

# a connects to b, under no lock. Their numbers for each other in id_a and id_b. MQ_OK or MQ_NOMEM.
cdef int sock_join(Sock* a, Sock* b, uint32_t* id_a, uint32_t* id_b, int32_t prio_a,
                   int32_t prio_b) noexcept nogil
