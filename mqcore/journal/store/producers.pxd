"""Which messages of a producer a log has, to store a repeated message once and no other one as its
duplicate. What is known of one producer is in tracks.pxd.

The table is bounded by producers (`most`) and by bytes (`most_bytes`), and a peer that makes up
producers must not push the real ones out. So each producer is charged to its owner, the connection
that its first message came over. What the files tell and what calls store is charged to owner 0,
until the producer is heard over a connection. The owner with the largest share, of both bounds
added up, gives one up. Of an owner's producers, those that were heard once go first, as in 2Q
(Johnson and Shasha, VLDB 1994), unless they are less than a quarter of them; then the one that was
silent longest. The log's lock guards all of it.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from mqcore.journal.store.block cimport BlockHeader
from mqcore.journal.store.includes cimport crc32c
from mqcore.journal.store.tracks cimport STAMP_FENCED, STAMP_NEW, Tracks, tracks_look

cdef struct Producer:
    uint64_t id
    Tracks tracks
    size_t bytes
    uint64_t used             # greater: heard later
    bint again                # heard more than once
    uint32_t life             # the newest; the tracks are of this one alone
    Owner* owner
    Producer* older           # in the owner's line
    Producer* newer
    Producer* next            # at the same place of the table

cdef struct Line:             # in the order in which they were heard last
    Producer* oldest
    Producer* newest
    size_t n

cdef struct Owner:
    uint64_t id               # a connection of its socket; 0: none yet
    size_t bytes
    double share
    size_t rank               # in the heap
    Line once
    Line again
    Owner* next

cdef struct Producers:
    Producer** places         # `cap` of them, a power of two
    Owner** homes             # likewise
    Owner** heap              # likewise; the first one has the largest share
    size_t cap
    size_t n
    size_t owners
    size_t bytes
    size_t most
    size_t most_bytes
    uint64_t clock
    uint64_t forgotten
    uint64_t secret           # so that no sender can choose producers that share a place
    Producer* last            # found last; NULL: look

cdef class ProducerTable:
    cdef Producers all
    cdef readonly size_t learned        # stamps, by learn()
    cdef readonly bint compacted        # compaction has removed messages among those
    cdef int add_rows(self, const uint8_t[::1] raw, bint lives, bint merging) except -1
    cdef uint32_t life_of(self, uint64_t id) noexcept
    cdef void learn(self, const uint8_t* at, const BlockHeader* h) noexcept nogil


cdef Producer* producers_find(Producers* p, uint64_t id) noexcept nogil     # NULL: unknown
# The message is stored at this offset. 0, or ENOMEM and nothing has changed. owner: of a producer
# that is new, or has none yet. A newer life forgets the numbers of the one before; one of an older
# life changes nothing.
cdef int producers_add(Producers* p, uint64_t owner, uint64_t id, uint32_t life, uint64_t sequence,
                       uint32_t mark, int64_t offset) noexcept nogil


# A message of it that is stored already came over this connection.
cdef void producers_heard(Producers* p, uint64_t owner, uint64_t id) noexcept nogil

cdef inline uint32_t mark_of(const uint8_t* key, size_t key_size, const uint8_t* value,
                             size_t size) noexcept nogil:
    return crc32c(crc32c(<uint32_t> key_size, key, key_size), value, size)


cdef inline int producers_known(Producers* p, uint64_t id, uint32_t life, uint64_t sequence,
                                uint32_t mark, int64_t* offset) noexcept nogil:
    """A Stamped. *offset of what is stored: where; -1: that is known of a highest number only. Of
    STAMP_FENCED: the newest life."""
    cdef Producer* one = p.last if p.last != NULL and p.last.id == id else producers_find(p, id)
    offset[0] = -1
    if one != NULL and one.life != life:
        if one.life < life:
            return STAMP_NEW
        offset[0] = one.life
        return STAMP_FENCED
    if one == NULL or one.tracks.n == 1 and sequence > one.tracks.now.highest:
        return STAMP_NEW
    return tracks_look(&one.tracks, sequence, mark, offset)
