"""A ring of bytes in shared memory, from one process to another: one writer, one reader.

The two ends share 512 bytes of control words and `size` bytes of data, a power of two. Positions
are 64-bit counts of bytes ever written and ever read. They are multiples of 8 and only grow. The
bytes between `head` and `tail` belong to the reader, the rest to the writer. To the ring, records
(shm_engine.pyx) are a stream: it does not know messages.

Each end keeps its own positions in its own memory (`RingOut`, `RingIn`) and trusts nothing that the
other may have written. It loads a position once, into a local, and checks that it lies between the
previous value and the possible maximum. It only accesses the data through the mask. The reader
copies, so bytes that change meanwhile only harm the peer that changes them.

Sleeping: the reader sets `asleep`, checks again, then sleeps. The writer publishes, then checks
whether the reader sleeps. In the same way the writer sets `blocked` when it needs space. The side
that clears such a flag (exchange) must wake the other: one wake-up for one sleep.

No function blocks, allocates, or makes a system call. "Thread" means the thread that currently owns
that end. shm.md has the layout byte by byte.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.atomic cimport atomic, memory_order_acquire, memory_order_relaxed

cdef enum:
    RING_SHARED = 512         # bytes of control words of one ring
    RING_BROKEN = -1

cdef struct RingShared:       # in shared memory; 128 bytes for each written word
    atomic[uint64_t] tail     # writer: bytes published
    uint64_t[15] pad0
    atomic[uint64_t] head     # reader: bytes taken
    uint64_t[15] pad1
    atomic[uint32_t] asleep   # reader: wake the reader when there is more
    uint32_t[31] pad2
    atomic[uint32_t] blocked  # writer: wake the writer when there is space
    uint32_t[31] pad3

cdef struct RingOut:          # private to the writer
    RingShared* shared
    uint8_t* data
    uint64_t size
    uint64_t tail             # written so far
    uint64_t shown            # published so far
    uint64_t head             # the reader's position when last checked

cdef struct RingIn:           # private to the reader
    RingShared* shared
    uint8_t* data
    uint64_t size
    uint64_t head             # read so far
    uint64_t freed            # published so far
    uint64_t tail             # the writer's position when last checked


cdef inline uint64_t ring_pad(uint64_t size) noexcept nogil:
    """size, rounded up to a multiple of 8."""
    return (size + 7) & ~(<uint64_t> 7)


# -- the writer ------------------------------------------------------------------------------------

cdef inline void ring_out_init(RingOut* r, RingShared* shared, uint8_t* data,
                               uint64_t size) noexcept nogil:
    r.shared = shared
    r.data = data
    r.size = size
    r.tail = 0
    r.shown = 0
    r.head = 0


cdef inline int64_t ring_room(RingOut* r, uint64_t want) noexcept nogil:
    """Bytes that may be written now. Checks the reader's position only if fewer than `want` are
    known to be free. RING_BROKEN: the position is impossible."""
    cdef uint64_t head
    if r.size - (r.tail - r.head) < want:
        # SYNC: acquire: the reader is done with what lies before its position
        head = r.shared.head.load(memory_order_acquire)
        if head - r.head > r.shown - r.head or head & 7:
            return RING_BROKEN
        r.head = head
    return <int64_t> (r.size - (r.tail - r.head))


cdef inline void ring_put_word(RingOut* r, uint64_t word) noexcept nogil:
    """Write 8 bytes; there must be space."""
    (<uint64_t*> (r.data + (r.tail & (r.size - 1))))[0] = word
    r.tail += 8


cdef inline void ring_put(RingOut* r, const uint8_t* at, uint64_t n) noexcept nogil:
    """Write n bytes and pad to a multiple of 8; there must be space."""
    cdef uint64_t start = r.tail & (r.size - 1)
    cdef uint64_t first = r.size - start
    if n <= first:
        memcpy(r.data + start, at, n)
    else:
        memcpy(r.data + start, at, first)
        memcpy(r.data, at + first, n - first)
    r.tail += ring_pad(n)


cdef inline bint ring_show(RingOut* r) noexcept nogil:
    """Publish what was written. True: the reader slept, and the caller MUST wake it."""
    if r.shown == r.tail:
        return False
    r.shown = r.tail
    # SYNC: seq_cst exchange, then a load: pair of ring_doze, which says "asleep" and then looks at
    # the tail; publishes what was put
    r.shared.tail.exchange(r.tail)
    return r.shared.asleep.load() != 0 and r.shared.asleep.exchange(0) != 0


cdef inline int64_t ring_block(RingOut* r, uint64_t want) noexcept nogil:
    """Less than `want` is free: ask to be woken, and check again. Returns ring_room's result; if
    that is `want` or more, continue."""
    # SYNC: seq_cst exchange, then a load: pair of ring_free
    r.shared.blocked.exchange(1)
    return ring_room(r, want)


cdef inline int64_t ring_unread(RingOut* r) noexcept nogil:
    """Bytes published that the reader has not freed. RING_BROKEN."""
    if ring_room(r, r.size) < 0:
        return RING_BROKEN
    return <int64_t> (r.shown - r.head)


# -- the reader ------------------------------------------------------------------------------------

cdef inline void ring_in_init(RingIn* r, RingShared* shared, uint8_t* data,
                              uint64_t size) noexcept nogil:
    r.shared = shared
    r.data = data
    r.size = size
    r.head = 0
    r.freed = 0
    r.tail = 0


cdef inline int64_t ring_held(RingIn* r) noexcept nogil:
    """Bytes that may be read now. Checks the writer's position only if none are known. RING_BROKEN:
    the position is impossible."""
    cdef uint64_t tail
    if r.tail == r.head:
        # SYNC: acquire: what was put before the position was published
        tail = r.shared.tail.load(memory_order_acquire)
        if tail - r.head > r.size or tail & 7:
            return RING_BROKEN
        r.tail = tail
    return <int64_t> (r.tail - r.head)


cdef inline uint64_t ring_get_word(RingIn* r) noexcept nogil:
    """Read the next 8 bytes, which must be held."""
    cdef uint64_t* at = <uint64_t*> (r.data + (r.head & (r.size - 1)))
    # SYNC: relaxed: read once whatever the other side does; ring_held has acquired it
    cdef uint64_t word = (<atomic[uint64_t]*> at).load(memory_order_relaxed)
    r.head += 8
    return word


cdef inline void ring_get(RingIn* r, uint8_t* to, uint64_t n) noexcept nogil:
    """Read n bytes and skip the padding; they must be held."""
    cdef uint64_t start = r.head & (r.size - 1)
    cdef uint64_t first = r.size - start
    if n <= first:
        memcpy(to, r.data + start, n)
    else:
        memcpy(to, r.data + start, first)
        memcpy(to + first, r.data, n - first)
    r.head += ring_pad(n)


cdef inline bint ring_free(RingIn* r) noexcept nogil:
    """Free what was read. True: the writer waited for space, and the caller MUST wake it."""
    if r.freed == r.head:
        return False
    r.freed = r.head
    # SYNC: seq_cst exchange, then a load: pair of ring_block
    r.shared.head.exchange(r.head)
    return r.shared.blocked.load() != 0 and r.shared.blocked.exchange(0) != 0


cdef inline bint ring_awaited(RingIn* r) noexcept nogil:
    """Whether the writer sleeps for lack of space. A hint."""
    # SYNC: relaxed: ring_free looks again
    return r.shared.blocked.load(memory_order_relaxed) != 0


cdef inline int64_t ring_doze(RingIn* r) noexcept nogil:
    """Nothing is held: ask to be woken, and check again. Returns ring_held's result; if that is not
    0, continue."""
    # SYNC: seq_cst exchange, then a load: pair of ring_show
    r.shared.asleep.exchange(1)
    return ring_held(r)


cdef inline void ring_rouse(RingIn* r) noexcept nogil:
    """This side polls for a while and needs no wake-up. ring_doze ends that."""
    # SYNC: relaxed: a wake-up more does no harm, and ring_doze looks after it has asked again
    if r.shared.asleep.load(memory_order_relaxed):
        r.shared.asleep.store(0, memory_order_relaxed)


cdef inline bint ring_glance(RingIn* r) noexcept nogil:
    """Whether the writer's position has changed. Only ring_held validates it."""
    # SYNC: relaxed: a hint
    return r.tail != r.head or r.shared.tail.load(memory_order_relaxed) != r.head
