"""Small blocks that follow each other, put together as one, so that reading a block of one message
costs about what the message costs. Columns are copied, offsets are moved on.

All of them are plain and have the same flags. They have been checked.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from mqcore.journal.store.block cimport (
    BLOCK_HEADER, COLUMNS, DATA, DATUM_ENDS, HEADER_ENDS, KEY_ENDS, KEY_VALID, KEYS, LIVES,
    NAME_ENDS, NAMES, PRODUCERS, SENT, TIMES, VALUE_ENDS, VALUE_VALID, VALUES, BlockHeader, aligned,
    body_size, column_sizes,
)

cdef enum:
    SMALL_BLOCK = 8 << 10     # bytes; larger ones are read where they are
    JOINED = 1024             # blocks put together at most
    JOINED_BYTES = 64 << 10   # of messages, keys and headers, about
    ROW = 12                  # bytes that each message counts besides

cdef struct Joint:
    BlockHeader header        # counts and sizes of all of them
    uint8_t* to
    uint64_t where[16]        # of each column, behind `to`
    BlockHeader done          # counts and sizes of those that have been copied


cdef inline void count_in(BlockHeader* all, const BlockHeader* h) noexcept nogil:
    all.count += h.count
    all.size += h.size
    all.n_headers += h.n_headers
    all.value_bytes += h.value_bytes
    all.key_bytes += h.key_bytes
    all.name_bytes += h.name_bytes
    all.datum_bytes += h.datum_bytes


cdef inline bint takes(BlockHeader* all, const BlockHeader* h) noexcept nogil:
    """Whether the next block can be one of them. all: those before it, whose counts it adds."""
    if h.count == 0 or h.flags != all.flags or h.size > SMALL_BLOCK \
            or h.first != all.first + <int64_t> all.count:
        return False
    count_in(all, h)
    all.min_time = min(all.min_time, h.min_time)
    all.max_time = max(all.max_time, h.max_time)
    all.durable = h.durable
    return True


cdef inline void join_from(BlockHeader* all, const BlockHeader* h) noexcept nogil:
    """Nothing yet, of blocks like this one."""
    all[0] = h[0]
    all.count = all.n_headers = 0
    all.size = all.value_bytes = all.key_bytes = all.name_bytes = all.datum_bytes = 0


cdef inline int64_t bytes_of(const BlockHeader* all) noexcept nogil:
    return ROW * <int64_t> all.count + <int64_t> (
        all.value_bytes + all.key_bytes + all.name_bytes + all.datum_bytes)


cdef inline void join_into(Joint* joint, uint8_t* to) noexcept nogil:
    """to: body_size() bytes."""
    cdef uint64_t sizes[16]
    cdef uint64_t at = 0
    cdef int i
    column_sizes(&joint.header, &sizes[0])
    for i in range(COLUMNS):
        joint.where[i] = at
        at += aligned(sizes[i])
    memset(to, 0, at)
    memset(&joint.done, 0, sizeof(BlockHeader))
    joint.to = to


cdef inline void add_bytes(Joint* joint, int column, uint64_t before, const uint8_t* at,
                           uint64_t n) noexcept nogil:
    memcpy(joint.to + joint.where[column] + before, at, n)


cdef inline void add_ends(Joint* joint, int column, uint64_t before, const uint8_t* at, uint64_t n,
                          uint64_t base) noexcept nogil:
    """n offsets behind the 0 that stands first."""
    cdef const int* ends = <const int*> at
    cdef int* to = <int*> (joint.to + joint.where[column]) + before + 1
    cdef uint64_t i
    for i in range(n):
        to[i] = ends[i + 1] + <int> base


cdef inline void add_bits(Joint* joint, int column, uint64_t before, const uint8_t* at,
                          uint64_t n) noexcept nogil:
    cdef uint8_t* to = joint.to + joint.where[column]
    cdef uint64_t i
    for i in range(n):
        if at[i >> 3] >> (i & 7) & 1:
            to[before + i >> 3] |= <uint8_t> (1 << (before + i & 7))


cdef inline bint fits(const Joint* joint, const BlockHeader* h) noexcept nogil:
    """Not if the file was overwritten since it was checked."""
    cdef const BlockHeader* all = &joint.header
    cdef const BlockHeader* done = &joint.done
    return h.flags == all.flags and h.size <= SMALL_BLOCK \
        and body_size(h) + BLOCK_HEADER == h.size \
        and done.count + <uint64_t> h.count <= all.count \
        and done.n_headers + <uint64_t> h.n_headers <= all.n_headers \
        and done.value_bytes + h.value_bytes <= all.value_bytes \
        and done.key_bytes + h.key_bytes <= all.key_bytes \
        and done.name_bytes + h.name_bytes <= all.name_bytes \
        and done.datum_bytes + h.datum_bytes <= all.datum_bytes


cdef inline void join_block(Joint* joint, const uint8_t* columns,
                            const BlockHeader* h) noexcept nogil:
    cdef BlockHeader* done = &joint.done
    cdef uint64_t sizes[16]
    cdef const uint8_t* at[16]
    cdef uint64_t n = h.count, m = h.n_headers
    cdef int i
    column_sizes(h, &sizes[0])
    for i in range(COLUMNS):
        at[i] = columns
        columns += aligned(sizes[i])
    add_bytes(joint, TIMES, 8 * <uint64_t> done.count, at[<int> TIMES], 8 * n)
    add_ends(joint, VALUE_ENDS, done.count, at[<int> VALUE_ENDS], n, done.value_bytes)
    add_bytes(joint, VALUES, done.value_bytes, at[<int> VALUES], h.value_bytes)
    if sizes[<int> VALUE_VALID]:
        add_bits(joint, VALUE_VALID, done.count, at[<int> VALUE_VALID], n)
    if sizes[<int> KEY_ENDS]:
        add_ends(joint, KEY_ENDS, done.count, at[<int> KEY_ENDS], n, done.key_bytes)
        add_bits(joint, KEY_VALID, done.count, at[<int> KEY_VALID], n)
        add_bytes(joint, KEYS, done.key_bytes, at[<int> KEYS], h.key_bytes)
    if sizes[<int> HEADER_ENDS]:
        add_ends(joint, HEADER_ENDS, done.count, at[<int> HEADER_ENDS], n, done.n_headers)
        add_ends(joint, NAME_ENDS, done.n_headers, at[<int> NAME_ENDS], m, done.name_bytes)
        add_bytes(joint, NAMES, done.name_bytes, at[<int> NAMES], h.name_bytes)
        add_ends(joint, DATUM_ENDS, done.n_headers, at[<int> DATUM_ENDS], m, done.datum_bytes)
        add_bytes(joint, DATA, done.datum_bytes, at[<int> DATA], h.datum_bytes)
    if sizes[<int> PRODUCERS]:
        for i in range(PRODUCERS, SENT + 1):
            add_bytes(joint, i, 8 * <uint64_t> done.count, at[i], 8 * n)
    if sizes[<int> LIVES]:
        add_bytes(joint, LIVES, 4 * <uint64_t> done.count, at[<int> LIVES], 4 * n)
    count_in(done, h)
