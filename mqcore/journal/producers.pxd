"""Which of a producer's messages a log has, so that what is sent again is stored once.

The idea is IPsec's window against replays (RFC 4303, section 3.4.3): of the last WINDOW sequence
numbers up to a producer's highest each is known by itself, so what overtakes another is told from
what comes twice. An older number counts as stored.

Producers are remembered in two generations. The young one takes who sends now; when it has `most`,
it becomes the old one and the old one is forgotten. So the last `most` that sent are known at
least, and never more than twice as many. The log's lock guards all of it.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from mqcore.journal.block cimport BlockHeader

cdef enum:
    WINDOW = 1024             # sequence numbers known by themselves

cdef struct Producer:         # as it lies in the file, too: FORMAT.md
    uint64_t id
    uint64_t highest          # its highest sequence number
    int64_t offset            # and where that message is
    uint64_t window[16]       # bit i % 64 of word i % 1024 // 64: number i is stored

cdef struct Generation:
    Producer* at
    size_t n
    size_t cap
    uint32_t* places          # open addressing: 1 + index into `at`; 0: free. 2 * cap of them

cdef struct Producers:
    Generation young
    Generation old
    size_t most
    uint64_t secret           # so that nobody chooses producers that share a place
    Producer* last            # found last; NULL: look

cdef class ProducerTable:
    cdef Producers all
    cdef void learn(self, const uint8_t* block, const BlockHeader* h) noexcept nogil


cdef Producer* producers_find(Producers* p, uint64_t id) noexcept nogil     # NULL: unknown
# The message is stored at this offset. 0, or ENOMEM and nothing has changed.
cdef int producers_add(Producers* p, uint64_t id, uint64_t sequence, int64_t offset) noexcept nogil


cdef inline bint producers_known(Producers* p, uint64_t id, uint64_t sequence,
                                 int64_t* offset) noexcept nogil:
    """The message is stored. *offset: where; -1: that is known of a producer's highest only."""
    cdef Producer* one = p.last if p.last != NULL and p.last.id == id else producers_find(p, id)
    offset[0] = -1
    if one == NULL or sequence > one.highest:
        return False
    if sequence == one.highest:
        offset[0] = one.offset
        return True
    return one.highest - sequence >= WINDOW \
        or one.window[sequence % WINDOW // 64] >> sequence % 64 & 1
