"""The session: one peer from the moment it is there until its link has ended.

What every pump (stream.pyx, messages.pyx) does at its socket's end: attach, put messages into the
lane, say what it waits for, end. Called by whoever holds the engine's lease.
"""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg
from mqcore.link.engine cimport Engine

# The kernel has no more (READY_IN) or takes no more (READY_OUT): the next time is an edge.
cdef void session_rearm(Engine* e, uint32_t what) noexcept nogil
# Tell the socket whether our next edge can wait until a caller comes.
cdef void session_want(Engine* e) noexcept nogil
# A peer is there: make its pipe and show it to the socket. False: out of memory.
cdef bint session_attach(Engine* e) noexcept nogil
# How many parts may be put now; 0: at a mark, the socket will kick us.
cdef size_t session_room(Engine* e) noexcept nogil
# Moves parts into the lane, where session_publish shows them. MQ_OK; MQ_PROTOCOL: a message is
# larger than max_message_size; MQ_NOMEM. The handles are the lane's, or closed.
cdef int session_put(Engine* e, Msg* parts, size_t n) noexcept nogil
cdef void session_publish(Engine* e) noexcept nogil
# What a message engine has counted, into the accounts.
cdef void session_tally(Engine* e) noexcept nogil
# What a codec has counted of messages that it dropped, into the accounts.
cdef void session_tally_codec(Engine* e) noexcept nogil
# The link ends in order: the pattern wants a new one, or the application has sent the end.
cdef void session_drain(Engine* e) noexcept nogil
# The end: code is DOWN_*, text the reason or NULL.
cdef void session_end(Engine* e, int code, const char* text, uint32_t fatal) noexcept nogil
# The same for a failed system call: "doing: what errno says".
cdef void session_fail(Engine* e, const char* doing) noexcept nogil
cdef void session_fail_as(Engine* e, const char* doing, int number) noexcept nogil
