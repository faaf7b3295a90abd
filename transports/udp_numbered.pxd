"""The datagrams of PUB and SUB over udp, which are numbered: a subscriber counts what is missing.

A datagram is a message. It has four bytes "mqu1", the source's id (eight random bytes), the number
of the message (eight bytes, from 0), then each part, preceded by its length in four bytes. All
numbers are big-endian. A datagram that arrives behind one with a larger number is discarded: it was
counted as lost, and so the messages of a source stay in order. mqcore/spi/sequence.pxd says which
numbers are not believed at once.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from mqcore.base.cursor cimport load_be32, load_be64, store_be32, store_be64
from mqcore.spi.sequence cimport Sequence, sequence_gap

cdef enum:
    NUMBERED_HEAD = 20        # bytes before the first part
    PART_HEAD = 4
    NUMBERED_SOURCES = 256    # that are kept apart; the oldest is replaced

cdef struct NumberedSource:
    uint64_t id
    Sequence order
    uint64_t used

cdef struct Numbered:
    uint64_t id               # of ours
    uint64_t following
    uint64_t clock            # counts datagrams
    uint32_t n
    NumberedSource[256] sources


cdef inline void numbered_begin(Numbered* t, uint8_t* head) noexcept nogil:
    """The head of our next datagram."""
    memcpy(head, b"mqu1", 4)
    store_be64(head + 4, t.id)
    store_be64(head + 12, t.following)
    t.following += 1


cdef inline int64_t numbered_size(const uint8_t* data, size_t size) noexcept nogil:
    """Bytes of all parts of a datagram; -1: it has another layout."""
    cdef size_t at = NUMBERED_HEAD
    cdef int64_t parts = 0
    if size < NUMBERED_HEAD + PART_HEAD or memcmp(data, b"mqu1", 4):
        return -1
    while size - at >= PART_HEAD:
        parts += load_be32(data + at)
        at += PART_HEAD + <size_t> load_be32(data + at)
        if at >= size:
            return parts if at == size else -1
    return -1


cdef inline NumberedSource* numbered_source(Numbered* t, uint64_t id) noexcept nogil:
    """A source that is not known begins with the number it sends now."""
    cdef uint32_t oldest = 0
    cdef uint32_t i
    t.clock += 1
    for i in range(t.n):
        if t.sources[i].id == id:
            t.sources[i].used = t.clock
            return &t.sources[i]
        if t.sources[i].used < t.sources[oldest].used:
            oldest = i
    if t.n < NUMBERED_SOURCES:
        oldest = t.n
        t.n += 1
    memset(&t.sources[oldest], 0, sizeof(NumberedSource))
    t.sources[oldest].id = id
    t.sources[oldest].used = t.clock
    return &t.sources[oldest]


cdef inline int64_t numbered_gap(Numbered* t, const uint8_t* data,
                                 int64_t* malformed) noexcept nogil:
    """How many messages of its source are missing before this one, which counts as seen unless
    there are any. Below 0: discard it."""
    cdef NumberedSource* s = numbered_source(t, load_be64(data + 4))
    cdef int64_t gap = sequence_gap(&s.order, load_be64(data + 12), True, malformed)
    s.order.due += gap == 0
    return gap
