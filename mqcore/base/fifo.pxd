"""A first-in-first-out line of messages: handles in a ring that grows. Its user bounds it, by `n`,
`msgs` or `bytes`. One thread at a time uses it. Returned ints are MQ_OK or MQ_NOMEM.
"""

from libc.stdint cimport int64_t

from mqcore.base.message cimport MSG_MORE, Msg, MsgVec, msg_close, msg_size

cdef struct Fifo:             # zero-initialise; owns its handles
    Msg* at
    size_t cap                # a power of two, or 0
    size_t head
    size_t n                  # handles in it
    int64_t msgs              # complete messages in it
    int64_t bytes             # of their bodies

# Reserves space for n more handles.
cdef int fifo_reserve(Fifo* q, size_t n) noexcept nogil
# Appends n handles, all or none; moves them in.
cdef int fifo_put(Fifo* q, const Msg* parts, size_t n) noexcept nogil
# Moves the oldest message, of which there must be one, to out.
cdef int fifo_take(Fifo* q, MsgVec* out) noexcept nogil
cdef void fifo_fini(Fifo* q) noexcept nogil   # closes the handles, frees the memory


cdef inline Msg* fifo_front(Fifo* q) noexcept nogil:
    """The oldest handle in place; NULL: none."""
    return &q.at[q.head] if q.n else NULL


cdef inline Msg fifo_pop(Fifo* q) noexcept nogil:
    """Takes the oldest handle; there must be one. The last handle of a message completes it."""
    cdef Msg m = q.at[q.head]
    q.head = (q.head + 1) & (q.cap - 1)
    q.n -= 1
    q.bytes -= <int64_t> msg_size(&m)
    if not m.flags & MSG_MORE:
        q.msgs -= 1
    return m


cdef inline void fifo_drop(Fifo* q) noexcept nogil:
    """Removes the oldest message; there must be one."""
    cdef Msg m
    cdef bint more = True
    while more:
        m = fifo_pop(q)
        more = m.flags & MSG_MORE
        msg_close(&m)
