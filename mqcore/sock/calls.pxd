"""What is asked of a socket besides sending and receiving: subscriptions, contexts, queries,
accounts, closing. Any thread, under no lock. `context`: 0 is the socket's own.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.sock.sock cimport Sock

cdef int sock_subscribe(Sock* s, uint32_t context, const uint8_t* topic, size_t size,
                        int on) noexcept nogil
cdef void sock_abandon(Sock* s, uint32_t context) noexcept nogil
cdef int64_t sock_query(Sock* s, uint32_t what, const uint8_t* data, size_t size) noexcept nogil
cdef int64_t sock_query_as(Sock* s, uint32_t context, uint32_t what) noexcept nogil
# Status; MQ_UNSUPPORTED: the pattern has none. What a closed context had waiting is forgotten.
cdef int sock_open_context(Sock* s, uint32_t* context) noexcept nogil
cdef void sock_close_context(Sock* s, uint32_t context) noexcept nogil
# messages not yet with the kernel or a peer
cdef int64_t sock_outstanding(Sock* s) noexcept nogil
# calls fail from now on; False: did already
cdef bint sock_close_input(Sock* s) noexcept nogil
# linger is over: count what is left, end all pipes
cdef void sock_drop_all(Sock* s) noexcept nogil
