"""The session: one peer from its connection to the end of its link.

The functions that every pump (stream.pyx, messages.pyx) calls at its socket's end: attach, put
messages into the lane, register for events, end. The holder of the engine's lease calls them.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from mqcore.base.message cimport Msg
from mqcore.link.engine cimport Engine

cdef enum:
    BEGUN_FROM = 64 * 1024    # bytes; what is smaller is not counted in Port.begun

# Tell the socket whether our next edge can wait until a caller comes.
cdef void session_want(Engine* e) noexcept nogil
# A peer is there: make its pipe and show it to the socket. False: out of memory.
cdef bint session_attach(Engine* e) noexcept nogil
# The number of parts that may be put now. 0: at an HWM, the socket will kick the engine.
cdef size_t session_room(Engine* e) noexcept nogil
# Moves parts into the lane, where session_publish shows them. MQ_OK; MQ_PROTOCOL: a message is
# larger than max_message_size; MQ_NOMEM. The handles are the lane's, or closed.
cdef int session_put(Engine* e, Msg* parts, size_t n) noexcept nogil
cdef void session_publish(Engine* e) noexcept nogil
# After each read: `under_way` bytes have come of a part that is not whole. Counts what the peer has
# begun to send. False: all peers of the socket have begun too much, and this session has ended.
cdef inline bint session_begun(Engine* e, uint64_t under_way) noexcept nogil:
    cdef int64_t begun = e.in_size + e.in_parts * <int64_t> sizeof(Msg) + <int64_t> under_way
    if begun < BEGUN_FROM:
        begun = 0
    return begun == e.begun or session_count(e, begun)


cdef bint session_count(Engine* e, int64_t begun) noexcept nogil
# The peer has hung up, or the link reads on, and the lane is at its HWM: the rest waits in the
# kernel until the socket has space. Counts the connection in Port.left until it ends.
cdef inline void session_lingers(Engine* e) noexcept nogil:
    if e.hup and e.in_blocked and e.left_bytes == 0:
        session_left(e)


cdef void session_left(Engine* e) noexcept nogil
# What a message engine has counted, into the accounts.
cdef void session_tally(Engine* e) noexcept nogil
# What a codec has counted of messages that it dropped, into the accounts.
cdef void session_tally_codec(Engine* e) noexcept nogil
# Nothing more can be written, or shall be. What the peer has sent is read to its end, and the link
# ends then: as `code` and `why` say, or with -1 as the peer's end does.
cdef void session_read_on(Engine* e, int code, const char* why) noexcept nogil
# Our side ends the link in order, and reads what has arrived first.
cdef void session_leave(Engine* e, int code, const char* why) noexcept nogil
# While it reads on: give the socket what was not sent.
cdef void session_return(Engine* e) noexcept nogil
# The same: what the codec or a filter has to say in answer to what was read is forgotten.
cdef void session_mute(Engine* e) noexcept nogil
# The link ends in order: the pattern wants a new one, or the application has sent the end.
cdef void session_drain(Engine* e) noexcept nogil
# The end: code is DOWN_*, text the reason or NULL.
cdef void session_end(Engine* e, int code, const char* text, uint32_t fatal) noexcept nogil
# The same for a failed system call: "doing: what errno says".
cdef void session_fail(Engine* e, const char* doing) noexcept nogil
cdef void session_fail_as(Engine* e, const char* doing, int number) noexcept nogil
