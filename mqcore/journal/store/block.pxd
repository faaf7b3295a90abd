"""The format of a segment file, as FORMAT.md has it: two headers and where the columns lie.

No I/O and no allocation. Everything on disk is little-endian and so is every host that we build
for, so the headers are plain structs.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.journal.store.includes cimport crc32c

cdef enum:
    SEGMENT_HEADER = 512      # bytes in front of the first block
    BLOCK_HEADER = 128
    ALIGN = 64                # of blocks in the file and of columns in a block
    VERSION = 1
    PACKED_VERSION = 2        # of a segment that may have blocks with the flags from ZSTD on
    TOPIC_MAX = 255           # bytes of UTF-8
    STAMP = 32                # bytes of a stamp in front of a message
    LIFE_STAMP = 40           # of one with a life
    VALUE_MAX = 0x7FFFFFFF    # bytes of one column of one block: its offsets are int32
    UNPACKED_MAX = 256 << 20  # bytes of the columns of a compressed block
    SPAN_MAX = 0x7FFFFFFF     # offsets that a sparse block covers
    PIECES = 17               # columns, and the places of a sparse block
    OFFSET_BITS = 62          # no offset is larger: records.MOST

cdef enum BlockFlag:
    HAS_KEYS = 1
    HAS_HEADERS = 2
    HAS_STAMPS = 4
    ZSTD = 8                  # the columns are compressed, as one zstd frame
    LZ4 = 16                  # as one LZ4 block
    PACKED = 24
    HAS_NULLS = 32            # some messages have no value: tombstones
    COMPACTED = 64            # compaction has removed messages: before a checkpoint, in a block
    HAS_LIVES = 128           # some stamps have a life
    MODERN = 224              # those of the above that need a segment of version 2, as PACKED does
    KNOWN_FLAGS = 255

cdef enum Column:             # in the order in which they lie in the block
    TIMES, VALUE_ENDS, VALUE_VALID, VALUES, KEY_ENDS, KEY_VALID, KEYS, HEADER_ENDS, NAME_ENDS
    NAMES, DATUM_ENDS, DATA, PRODUCERS, SEQUENCES, SENT, LIVES, COLUMNS

cdef struct SegmentHeader:
    uint8_t magic[8]
    uint32_t version
    uint32_t crc              # of everything behind this field
    int64_t first             # offset of the segment's first message
    int64_t created           # us since the epoch
    uint8_t journal[16]       # the same in all segments of a journal
    uint64_t salt             # enters the CRC of every block header
    uint32_t partition
    uint32_t topic_size
    uint8_t topic[256]
    int64_t begin             # offset of the journal's first message of all
    uint8_t spare[184]

cdef struct BlockHeader:
    uint8_t magic[4]
    uint32_t crc              # of the salt and everything behind this field
    int64_t first             # offset of the first message
    uint64_t size             # of the whole block, a multiple of ALIGN
    uint32_t count            # messages; 0: a checkpoint, which is a header alone
    uint32_t flags
    int64_t durable           # every message below this offset was synced before
    int64_t min_time          # us since the epoch; of a checkpoint: of the segment so far
    int64_t max_time
    uint32_t body_crc         # of everything behind this header
    uint32_t n_headers
    uint64_t value_bytes
    uint64_t key_bytes
    uint64_t name_bytes
    uint64_t datum_bytes
    uint64_t packed_bytes     # of the compressed columns, without padding; 0: they are plain
    uint64_t span             # of a sparse block: offsets from its first message to its last one
    uint8_t spare[16]

cdef enum BlockFault:         # why this is not a block; the texts are in scan.pyx
    BLOCK_OK = 0
    BLOCK_SHORT               # the file ends inside it
    BLOCK_MAGIC
    BLOCK_HEADER_CRC
    BLOCK_NONSENSE            # sizes that do not fit together
    BLOCK_ORDER               # not the offset that must come next
    BLOCK_BODY_CRC
    BLOCK_OFFSETS             # a column's offsets do not ascend within it
    BLOCK_UNREADABLE          # the disk does not give it
    BLOCK_PACKED              # its columns cannot be decompressed to what the header says
    BLOCK_NEWER               # it has a flag that this version does not know


cdef inline uint64_t aligned(uint64_t n) noexcept nogil:
    return (n + ALIGN - 1) & ~<uint64_t> (ALIGN - 1)


cdef inline bint is_sparse(const BlockHeader* h) noexcept nogil:
    """A block without some messages in the middle. Behind its other columns is one of uint32: the
    offset of each message, from that of the first one on."""
    return h.count and h.flags & COMPACTED != 0


cdef inline int64_t block_end(const BlockHeader* h) noexcept nogil:
    """The offset that follows."""
    return h.first + <int64_t> (h.span if is_sparse(h) else h.count)


cdef inline uint64_t places_size(const BlockHeader* h) noexcept nogil:
    return 4 * <uint64_t> h.count if is_sparse(h) else 0


cdef inline void column_sizes(const BlockHeader* h, uint64_t* sizes) noexcept nogil:
    """sizes: uint64[COLUMNS], in bytes and without padding; 0: this block has no such column. All
    but the places of a sparse block, which come last."""
    cdef uint64_t n = h.count
    cdef bint keys = h.flags & HAS_KEYS, headers = h.flags & HAS_HEADERS
    cdef bint stamps = h.flags & HAS_STAMPS
    sizes[<int> TIMES] = 8 * n
    sizes[<int> VALUE_ENDS] = 4 * (n + 1)
    sizes[<int> VALUE_VALID] = (n + 7) // 8 if h.flags & HAS_NULLS else 0
    sizes[<int> VALUES] = h.value_bytes
    sizes[<int> KEY_ENDS] = 4 * (n + 1) if keys else 0
    sizes[<int> KEY_VALID] = (n + 7) // 8 if keys else 0
    sizes[<int> KEYS] = h.key_bytes
    sizes[<int> HEADER_ENDS] = 4 * (n + 1) if headers else 0
    sizes[<int> NAME_ENDS] = 4 * (<uint64_t> h.n_headers + 1) if headers else 0
    sizes[<int> NAMES] = h.name_bytes
    sizes[<int> DATUM_ENDS] = sizes[<int> NAME_ENDS]
    sizes[<int> DATA] = h.datum_bytes
    sizes[<int> PRODUCERS] = 8 * n if stamps else 0
    sizes[<int> SEQUENCES] = sizes[<int> PRODUCERS]
    sizes[<int> SENT] = sizes[<int> PRODUCERS]
    sizes[<int> LIVES] = 4 * n if h.flags & HAS_LIVES else 0


cdef inline uint32_t block_header_crc(const BlockHeader* h, uint64_t salt) noexcept nogil:
    return crc32c(crc32c(0, <const uint8_t*> &salt, 8), <const uint8_t*> h + 8, BLOCK_HEADER - 8)


cdef inline uint32_t segment_header_crc(const SegmentHeader* h) noexcept nogil:
    return crc32c(0, <const uint8_t*> h + 16, SEGMENT_HEADER - 16)


cdef inline uint64_t body_size(const BlockHeader* h) noexcept nogil:
    """Bytes of all columns with their padding, not compressed."""
    cdef uint64_t sizes[16]
    cdef uint64_t size = 0
    cdef int i
    column_sizes(h, sizes)
    for i in range(COLUMNS):
        size += aligned(sizes[i])
    return size + aligned(places_size(h))


cdef inline bint packing_fits(const BlockHeader* h, uint64_t size) noexcept nogil:
    """Of a compressed block; size: of its columns. Nothing else bounds what decompressing takes."""
    return h.count and (h.flags & PACKED) != PACKED and size <= UNPACKED_MAX \
        and 0 < h.packed_bytes < size and aligned(h.packed_bytes) < size


cdef inline int check_header(const uint8_t* at, uint64_t room, uint64_t salt,
                             BlockHeader* h) noexcept nogil:
    """A BlockFault. Fills h if there are bytes enough; `room` is what the file holds from here."""
    cdef uint64_t size
    if room < BLOCK_HEADER:
        return BLOCK_SHORT
    memcpy(h, at, BLOCK_HEADER)
    if memcmp(&h.magic[0], b"MQB1", 4) != 0:
        return BLOCK_MAGIC
    if h.crc != block_header_crc(h, salt):
        return BLOCK_HEADER_CRC
    if h.flags & ~<uint32_t> KNOWN_FLAGS:
        return BLOCK_NEWER
    if h.first < 0 or h.durable > h.first:
        return BLOCK_NONSENSE
    if h.value_bytes > VALUE_MAX or h.key_bytes > VALUE_MAX or h.name_bytes > VALUE_MAX \
            or h.datum_bytes > VALUE_MAX or h.n_headers > VALUE_MAX:
        return BLOCK_NONSENSE
    if h.flags & HAS_LIVES and not h.flags & HAS_STAMPS:
        return BLOCK_NONSENSE
    if is_sparse(h) and not h.count <= h.span <= SPAN_MAX:
        return BLOCK_NONSENSE
    size = body_size(h) if h.count else 0
    if h.flags & PACKED:
        if not packing_fits(h, size):
            return BLOCK_NONSENSE
        size = aligned(h.packed_bytes)
    size += BLOCK_HEADER
    if h.size != size or not h.first <= block_end(h) <= (<int64_t> 1 << OFFSET_BITS):
        return BLOCK_NONSENSE
    return BLOCK_OK if size <= room else BLOCK_SHORT


cdef inline bint ascending(const int* ends, uint64_t n, uint64_t last) noexcept nogil:
    """n + 1 offsets from 0 to last."""
    cdef uint64_t i
    cdef int wrong = ends[0] != 0 or <uint64_t> ends[n] != last
    for i in range(n):
        wrong |= ends[i + 1] < ends[i]
    return not wrong


cdef inline bint rising(const uint32_t* places, uint64_t n, uint64_t span) noexcept nogil:
    """n numbers from 0 to span - 1, each larger than the one before."""
    cdef uint64_t i
    cdef int wrong = places[0] != 0 or places[n - 1] != span - 1
    for i in range(1, n):
        wrong |= places[i] <= places[i - 1]
    return not wrong


cdef inline int check_crc(const uint8_t* body, const BlockHeader* h) noexcept nogil:
    """A BlockFault. The header has been checked; body: what is behind it, all of which is there."""
    return BLOCK_OK if h.body_crc == crc32c(0, body, h.size - BLOCK_HEADER) else BLOCK_BODY_CRC


cdef inline int check_places(const uint8_t* at, const BlockHeader* h) noexcept nogil:
    """check_columns(), of the places of a sparse block alone."""
    cdef uint64_t size = aligned(places_size(h))
    if is_sparse(h) and not rising(<const uint32_t*> (at + body_size(h) - size), h.count, h.span):
        return BLOCK_OFFSETS
    return BLOCK_OK


cdef inline int check_columns(const uint8_t* at, const BlockHeader* h) noexcept nogil:
    """A BlockFault. at: the columns, decompressed."""
    cdef uint64_t sizes[16]
    cdef uint64_t where[16]
    cdef uint64_t size = 0
    cdef int i
    if h.count == 0:
        return BLOCK_OK
    column_sizes(h, sizes)
    for i in range(COLUMNS):
        where[i] = size
        size += aligned(sizes[i])
    if not ascending(<const int*> (at + where[<int> VALUE_ENDS]), h.count, h.value_bytes):
        return BLOCK_OFFSETS
    if h.flags & HAS_KEYS and not ascending(<const int*> (at + where[<int> KEY_ENDS]), h.count,
                                            h.key_bytes):
        return BLOCK_OFFSETS
    if h.flags & HAS_HEADERS and not (
            ascending(<const int*> (at + where[<int> HEADER_ENDS]), h.count, h.n_headers)
            and ascending(<const int*> (at + where[<int> NAME_ENDS]), h.n_headers, h.name_bytes)
            and ascending(<const int*> (at + where[<int> DATUM_ENDS]), h.n_headers,
                          h.datum_bytes)):
        return BLOCK_OFFSETS
    return check_places(at, h)
