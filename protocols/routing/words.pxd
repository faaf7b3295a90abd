"""Words before a body: what devices and requesters put into an envelope.

An envelope is parts: a hop is five bytes, 00 and a number with a clear top bit (the form of an
automatic routing id). The number of a request or survey is four bytes with a set one. The first
empty part ends it.
"""

from libc.stdint cimport uint8_t, uint32_t

from mqcore.base.cursor cimport load_be32, store_be32
from mqcore.base.message cimport MSG_MORE, Msg, msg_data, msg_init_inline, msg_size
from mqcore.base.yqueue cimport YCursor, yqueue_after, yqueue_first
from mqcore.spi.pipe cimport Pipe

cdef enum:
    HOP_SIZE = 5
    HOP_MASK = 0x7fffffff     # of a hop's number
    ID_BIT = 0x80000000       # of a request's or survey's number


cdef inline uint32_t word_get(const uint8_t* at) noexcept nogil:
    return load_be32(at)


cdef inline void hop_init(Msg* m, uint32_t number) noexcept nogil:
    """A hop part, MSG_MORE."""
    cdef uint8_t[HOP_SIZE] body
    body[0] = 0
    store_be32(&body[1], number & HOP_MASK)
    msg_init_inline(m, body, HOP_SIZE)
    m.flags = MSG_MORE


cdef inline bint hop_read(Msg* m, uint32_t* number) noexcept nogil:
    """False: the part is not a hop."""
    cdef uint8_t* data = msg_data(m)
    if msg_size(m) != HOP_SIZE or data[0] != 0 or data[1] & 0x80:
        return False
    number[0] = load_be32(data + 1)
    return True


cdef inline void id_init(Msg* m, uint32_t number) noexcept nogil:
    """An id part, MSG_MORE."""
    cdef uint8_t[4] body
    store_be32(body, number)
    msg_init_inline(m, body, 4)
    m.flags = MSG_MORE


cdef inline size_t envelope_of(Msg* parts, size_t n) noexcept nogil:
    """The number of parts of the envelope, including the empty one that ends it. 0: there is no
    envelope, or no body after it."""
    cdef size_t i
    for i in range(n):
        if msg_size(&parts[i]) == 0 and parts[i].flags & MSG_MORE:
            return i + 1
    return 0


cdef inline size_t envelope_ahead(Pipe* p) noexcept nogil:
    """envelope_of the pipe's next message in place; there must be one."""
    cdef YCursor at
    cdef Msg* m
    cdef size_t n = 1
    if p.inn.conflate:
        return 0              # a single part, which cannot be peeked
    m = yqueue_first(&p.inn.q.q, &at)
    while m.flags & MSG_MORE:
        if msg_size(m) == 0:
            return n
        m = yqueue_after(&at)
        n += 1
    return 0
