"""Histograms of durations, and the stamps that measure how long messages wait in a queue.

The buckets are log-linear: eight to each power of two, so a bucket is at most 12.5 % wide. They
reach from 0 ns to 2^41 ns (36 minutes), and the last one has what takes longer. A histogram never
grows. Several threads may add to one; a reader may see a sum and counts of different moments.

A queue has one writer and one reader (the current owners of its ends), and both count its messages.
The writer enters the number and the time of a message in a ring of 64 stamps. The reader compares
when it has reached that number. While four or more messages that have a stamp wait, one in four
gets one and counts for four, since two looks at the clock for each message would cost a burst too
much. While 64 wait, others get none and are not measured.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.atomic cimport (
    atomic, memory_order_acquire, memory_order_relaxed, memory_order_release,
)

from mqcore.base.clock cimport now_ns
from mqcore.base.includes cimport highest_bit

cdef enum:
    STEPS_LOG = 3             # buckets to each power of two, as a power of two
    STEPS = 8
    LARGEST = 40              # the highest power of two with buckets of its own
    BUCKETS = 312             # (LARGEST - STEPS_LOG + 2) * STEPS
    STAMPS = 64
    FEW = 4                   # stamps that wait before only one message in SHARE gets one
    SHARE = 4

cdef struct Histogram:        # zero-initialise
    atomic[int64_t] sum       # ns
    atomic[int64_t] counts[312]

cdef struct Latencies:        # of one socket; zero-initialise
    Histogram sent            # from a peer's queue to its engine
    Histogram received        # from the decoder, or an inproc sender, to the receiving call
    Histogram round_trip      # from a request to its reply

cdef struct Stamp:
    int64_t number
    int64_t at                # ns
    int64_t messages          # that it stands for

cdef struct Stamps:           # of one queue
    Histogram* to
    int64_t last              # the writer's: the newest number with a stamp
    atomic[uint32_t] tail     # the writer's
    atomic[uint32_t] head     # the reader's
    Stamp[64] ring


cdef inline uint32_t bucket_of(int64_t ns) noexcept nogil:
    cdef uint32_t power
    if ns < STEPS:
        return <uint32_t> ns if ns > 0 else 0
    power = highest_bit(<uint64_t> ns)
    if power > LARGEST:
        return BUCKETS - 1
    return ((power - STEPS_LOG + 1) << STEPS_LOG) + (
        <uint32_t> (ns >> (power - STEPS_LOG)) & (STEPS - 1))


cdef inline int64_t bucket_end(uint32_t i) noexcept nogil:
    """The first duration, in ns, that is in a later bucket."""
    cdef uint32_t power
    i += 1
    if i < 2 * STEPS:
        return i
    power = (i >> STEPS_LOG) - 1
    return <int64_t> (STEPS + (i & (STEPS - 1))) << power


cdef inline void histogram_add(Histogram* h, int64_t ns, int64_t messages) noexcept nogil:
    """Any thread."""
    # SYNC: relaxed: counts publish nothing
    h.counts[bucket_of(ns)].fetch_add(messages, memory_order_relaxed)
    h.sum.fetch_add(messages * ns, memory_order_relaxed)


cdef inline void stamps_put(Stamps* s, int64_t number) noexcept nogil:
    """Writer: the message of this number is in the queue now."""
    cdef uint32_t tail = s.tail.load(memory_order_relaxed)   # SYNC: relaxed: our own word
    # SYNC: acquire: the reader has read the slot
    cdef uint32_t waiting = tail - s.head.load(memory_order_acquire)
    cdef Stamp* stamp = &s.ring[tail & (STAMPS - 1)]
    if waiting >= FEW and (number - s.last < SHARE or waiting == STAMPS):
        return
    stamp.number = s.last = number
    stamp.messages = 1 if waiting < FEW else SHARE
    stamp.at = now_ns()
    s.tail.store(tail + 1, memory_order_release)      # SYNC: publishes the slot


cdef inline void stamps_take(Stamps* s, int64_t number) noexcept nogil:
    """Reader: the messages up to this number have left the queue. The clock is read once."""
    cdef uint32_t head = s.head.load(memory_order_relaxed)   # SYNC: relaxed: our own word
    cdef uint32_t tail = s.tail.load(memory_order_acquire)   # SYNC: acquire: the slots before it
    cdef int64_t now
    if head == tail or s.ring[head & (STAMPS - 1)].number > number:
        return
    now = now_ns()
    while head != tail and s.ring[head & (STAMPS - 1)].number <= number:
        histogram_add(s.to, now - s.ring[head & (STAMPS - 1)].at,
                      s.ring[head & (STAMPS - 1)].messages)
        head += 1
    s.head.store(head, memory_order_release)          # SYNC: gives the slots back
