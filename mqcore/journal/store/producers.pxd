"""Which messages of a producer a log has, to store a repeated message once and no other one as its
duplicate.

The idea is IPsec's anti-replay window (RFC 4303, section 3.4.3). The last WINDOW sequence numbers
up to the highest are known individually, with a checksum of each message (`mark`). That
distinguishes a message that overtakes another from a repeated one, and a repeated one from a
different message under a used number, as from a producer that was restarted with its old id. Older
numbers are unknown: the message may have been stored or not.

A number far ahead starts another track of the same producer, a second interval with its own window,
so that one forged number does not make the real ones old. A producer has at most TRACKS of them.
Beyond that, the two closest are merged, and the numbers between them become old.

Producers are remembered in two generations. The young one takes a producer when it sends; when it
has `most`, it becomes the old one and the old one is forgotten. So the last `most` that sent are
known at least, and never more than twice as many. The log's lock guards all of it.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from mqcore.journal.store.block cimport BlockHeader
from mqcore.journal.store.includes cimport crc32c

cdef enum:
    WINDOW = 1024             # sequence numbers known by themselves
    TRACKS = 4

cdef enum Stamped:            # what is known of a stamped message; no errno is negative
    STAMP_NEW = 0
    STAMP_STORED = 1
    STAMP_OLD = -101          # the number is older than the window: unknown
    STAMP_USED = -102         # another message with this number is stored

cdef struct Track:            # of the numbers from low to highest
    uint64_t low
    uint64_t highest
    int64_t offset            # where the message with the highest number is
    uint64_t window[16]       # bit i % 64 of word i % 1024 // 64: number i is stored
    uint32_t* marks           # of number i at i % span
    uint32_t span             # a power of two

cdef struct Producer:
    uint64_t id
    uint32_t n                # tracks
    Track now                 # the one used last
    Track* others             # n - 1, in no order; NULL: space for none

cdef struct Generation:
    Producer* at
    size_t n
    size_t cap
    uint32_t* places          # open addressing: 1 + index into `at`; 0: free. 2 * cap of them

cdef struct Producers:
    Generation young
    Generation old            # one that has become young again has the id 0 here
    size_t most
    uint64_t secret           # so that no sender can choose producers that share a place
    Producer* last            # found last; NULL: look

cdef class ProducerTable:
    cdef Producers all
    cdef void learn(self, const uint8_t* block, const BlockHeader* h) noexcept nogil


cdef Producer* producers_find(Producers* p, uint64_t id) noexcept nogil     # NULL: unknown
cdef int producer_look(Producer* one, uint64_t sequence, uint32_t mark,
                       int64_t* offset) noexcept nogil      # as producers_known()
# The message is stored at this offset. 0, or ENOMEM and nothing has changed.
cdef int producers_add(Producers* p, uint64_t id, uint64_t sequence, uint32_t mark,
                       int64_t offset) noexcept nogil


cdef inline uint32_t mark_of(const uint8_t* key, size_t key_size, const uint8_t* value,
                             size_t size) noexcept nogil:
    return crc32c(crc32c(<uint32_t> key_size, key, key_size), value, size)


cdef inline int producers_known(Producers* p, uint64_t id, uint64_t sequence, uint32_t mark,
                                int64_t* offset) noexcept nogil:
    """A Stamped. *offset of what is stored: where; -1: that is known of a highest number only."""
    cdef Producer* one = p.last if p.last != NULL and p.last.id == id else producers_find(p, id)
    offset[0] = -1
    if one == NULL or one.n == 1 and sequence > one.now.highest:
        return STAMP_NEW
    return producer_look(one, sequence, mark, offset)
