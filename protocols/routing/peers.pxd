"""Peers by a hash of something: their number, their routing id. Open addressing, linear probing.

The table knows hashes only. Several pipes may have one hash; `peers_find` walks them and the caller
compares what it hashed. A pipe that leaves closes the gap behind it, so there are no tombstones.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.spi.pipe cimport Pipe

cdef struct PeerSlot:
    uint64_t hash
    Pipe* pipe                # NULL: free

cdef struct Peers:            # zero-initialise
    PeerSlot* at
    size_t cap                # a power of two, at most half full
    size_t n


cdef inline uint64_t hash_number(uint32_t number) noexcept nogil:
    """Different for different numbers, so nothing is left to compare."""
    return <uint64_t> number * <uint64_t> 0x9e3779b97f4a7c15


cdef inline uint64_t hash_bytes(const uint8_t* data, size_t size, uint64_t seed) noexcept nogil:
    # peers choose their ids: the seed, unknown to them, is stirred in at every byte
    cdef uint64_t h = seed ^ size
    cdef size_t i
    for i in range(size):
        h = (h ^ data[i]) * <uint64_t> 0x9fb21c651e98df25
        h ^= (h >> 29) ^ (seed << 1)
    h ^= h >> 32
    return h * <uint64_t> 0x9e3779b97f4a7c15


cdef inline size_t _peers_home(Peers* t, uint64_t hash) noexcept nogil:
    return <size_t> (hash >> 20) & (t.cap - 1)


cdef inline void _peers_drop_in(Peers* t, uint64_t hash, Pipe* p) noexcept nogil:
    cdef size_t i = _peers_home(t, hash)
    while t.at[i].pipe != NULL:
        i = (i + 1) & (t.cap - 1)
    t.at[i].hash = hash
    t.at[i].pipe = p


cdef inline int peers_add(Peers* t, uint64_t hash, Pipe* p) noexcept nogil:
    cdef PeerSlot* old = t.at
    cdef size_t cap = t.cap
    cdef size_t i
    if (t.n + 1) * 2 > cap:
        t.at = <PeerSlot*> calloc(cap * 2 if cap else 8, sizeof(PeerSlot))
        if t.at == NULL:
            t.at = old
            return MQ_NOMEM
        t.cap = cap * 2 if cap else 8
        for i in range(cap):
            if old[i].pipe != NULL:
                _peers_drop_in(t, old[i].hash, old[i].pipe)
        free(old)
    _peers_drop_in(t, hash, p)
    t.n += 1
    return MQ_OK


cdef inline Pipe* peers_find(Peers* t, uint64_t hash, size_t* step) noexcept nogil:
    """The next pipe with that hash; *step is 0 at first. NULL: no more."""
    cdef PeerSlot* s
    if t.n == 0:
        return NULL
    while True:
        s = &t.at[(_peers_home(t, hash) + step[0]) & (t.cap - 1)]
        step[0] += 1
        if s.pipe == NULL or s.hash == hash:
            return s.pipe


cdef inline Pipe* peers_number(Peers* t, uint32_t number) noexcept nogil:
    """In a table by hash_number."""
    cdef size_t step = 0
    return peers_find(t, hash_number(number), &step)


cdef inline void peers_remove(Peers* t, uint64_t hash, Pipe* p) noexcept nogil:
    """If it is in."""
    cdef size_t mask, i, j
    if t.n == 0:
        return
    mask = t.cap - 1
    i = _peers_home(t, hash)
    while t.at[i].pipe != p or t.at[i].hash != hash:
        if t.at[i].pipe == NULL:
            return
        i = (i + 1) & mask
    t.n -= 1
    j = i
    while True:
        t.at[i].pipe = NULL
        while True:
            j = (j + 1) & mask
            if t.at[j].pipe == NULL:
                return
            # may j's pipe move to the gap at i? only if its home is not between i and j
            if ((j - _peers_home(t, t.at[j].hash)) & mask) >= ((j - i) & mask):
                break
        t.at[i] = t.at[j]
        i = j


cdef inline void peers_fini(Peers* t) noexcept nogil:
    free(t.at)
    t.at = NULL
    t.cap = 0
    t.n = 0
