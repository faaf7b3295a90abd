"""The sequence numbers of one producer that a log has: up to TRACKS intervals, each with a window.

The idea is IPsec's anti-replay window (RFC 4303, section 3.4.3). The last WINDOW sequence numbers
up to the highest are known individually, with a checksum of each message (`mark`). That
distinguishes a message that overtakes another from a repeated one, and a repeated one from a
different message under a used number, as from a producer that was restarted with its old id. Older
numbers are unknown: the message may have been stored or not.

A number far ahead starts another track of the same producer, a second interval with its own window,
so that one forged number does not make the real ones old. A producer has at most TRACKS of them.
Beyond that, the two closest are merged, and the numbers between them become old.
"""

from libc.errno cimport ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cdef enum:
    WINDOW = 1024             # sequence numbers known by themselves
    TRACKS = 4
    SPAN = 16                 # minimum number of checksums per track

cdef enum Stamped:            # what is known of a stamped message; no errno is negative
    STAMP_NEW = 0
    STAMP_STORED = 1
    STAMP_OLD = -101          # the number is older than the window: unknown
    STAMP_USED = -102         # another message with this number is stored
    STAMP_FENCED = -103       # a newer life of its producer has begun

cdef struct Track:            # of the numbers from low to highest
    uint64_t low
    uint64_t highest
    int64_t offset            # where the message with the highest number is
    uint64_t window[16]       # bit i % 64 of word i % 1024 // 64: number i is stored
    uint32_t* marks           # of number i at i % span
    uint32_t span             # a power of two

cdef struct Tracks:
    uint32_t n                # 0: no number is known
    Track now                 # the one used last
    Track* others             # the others, in no order; NULL: space for none


# -- a track ---------------------------------------------------------------------------------------

cdef inline bint has(const Track* t, uint64_t i) noexcept nogil:
    return t.window[i % WINDOW // 64] >> i % 64 & 1


cdef inline void put_mark(Track* t, uint64_t i, uint32_t mark) noexcept nogil:
    t.window[i % WINDOW // 64] |= <uint64_t> 1 << i % 64
    t.marks[i & (t.span - 1)] = mark


cdef inline uint64_t lowest_known(const Track* t) noexcept nogil:
    return t.low if t.highest - t.low < WINDOW else t.highest - WINDOW + 1


cdef inline int reserve(Track* t, uint64_t low, uint64_t highest) noexcept nogil:
    """Marks for the numbers of the window, once it reaches from low to highest."""
    cdef uint64_t need = highest - low + 1 if highest - low < WINDOW else <uint64_t> WINDOW
    cdef uint32_t span = t.span if t.span else <uint32_t> SPAN
    cdef uint32_t* marks
    cdef uint64_t i
    while span < need:
        span *= 2
    if span == t.span:
        return 0
    marks = <uint32_t*> calloc(span, sizeof(uint32_t))
    if marks == NULL:
        return ENOMEM
    if t.span:
        i = lowest_known(t)
        while True:
            if has(t, i):
                marks[i & (span - 1)] = t.marks[i & (t.span - 1)]
            if i == t.highest:
                break
            i += 1
    free(t.marks)
    t.marks = marks
    t.span = span
    return 0


cdef inline int track_begin(Track* t, uint64_t sequence, uint32_t mark,
                            int64_t offset) noexcept nogil:
    memset(t, 0, sizeof(Track))
    t.low = t.highest = sequence
    t.offset = offset
    if reserve(t, sequence, sequence):
        return ENOMEM
    put_mark(t, sequence, mark)
    return 0


cdef inline int track_raise(Track* t, uint64_t sequence, uint32_t mark,
                            int64_t offset) noexcept nogil:
    """A number above the highest, which is at most WINDOW away."""
    cdef uint64_t i
    if reserve(t, t.low, sequence):
        return ENOMEM
    for i in range(t.highest + 1, sequence):        # the gap; in order there is none
        t.window[i % WINDOW // 64] &= ~(<uint64_t> 1 << i % 64)
    t.highest = sequence
    t.offset = offset
    put_mark(t, sequence, mark)
    return 0


cdef inline int track_join(Track* t, Track* lower) noexcept nogil:
    """t takes over the numbers of one below it, as far as its window reaches."""
    cdef uint64_t i = lower.low
    if t.highest - lower.low >= WINDOW:
        i = t.highest - WINDOW + 1
    if reserve(t, lower.low, t.highest):
        return ENOMEM
    if i < lowest_known(lower):
        i = lowest_known(lower)
    while i <= lower.highest:
        if has(lower, i):
            put_mark(t, i, lower.marks[i & (lower.span - 1)])
        if i == lower.highest:                  # which may be the largest number of all
            break
        i += 1
    t.low = lower.low
    free(lower.marks)
    return 0


# -- all of them ----------------------------------------------------------------------------------

cdef inline Track* track(Tracks* one, uint32_t i) noexcept nogil:
    return &one.now if i == 0 else &one.others[i - 1]


cdef inline void swap(Track* a, Track* b) noexcept nogil:
    cdef Track t = a[0]
    a[0] = b[0]
    b[0] = t


cdef inline Track* containing(Tracks* one, uint64_t sequence) noexcept nogil:
    cdef uint32_t i
    for i in range(one.n):
        if track(one, i).low <= sequence <= track(one, i).highest:
            return track(one, i)
    return NULL


cdef inline int tracks_look(Tracks* one, uint64_t sequence, uint32_t mark,
                            int64_t* offset) noexcept nogil:
    cdef Track* t = containing(one, sequence)
    if t == NULL:
        return STAMP_NEW
    if t.highest - sequence >= WINDOW:
        return STAMP_OLD
    if not has(t, sequence):
        return STAMP_NEW
    if t.marks[sequence & (t.span - 1)] != mark:
        return STAMP_USED
    if sequence == t.highest:
        offset[0] = t.offset
    return STAMP_STORED


cdef inline void neighbours(Tracks* one, uint64_t sequence, Track** below,
                            Track** above) noexcept nogil:
    cdef uint32_t i
    cdef Track* t
    below[0] = above[0] = NULL
    for i in range(one.n):
        t = track(one, i)
        if t.highest < sequence and (below[0] == NULL or t.highest > below[0].highest):
            below[0] = t
        if t.low > sequence and (above[0] == NULL or t.low < above[0].low):
            above[0] = t


cdef inline int make_way(Tracks* one) noexcept nogil:
    """The two tracks that lie closest become one."""
    cdef uint32_t i, upper = 0
    cdef uint64_t best = ~<uint64_t> 0
    cdef Track* below
    cdef Track* above
    cdef Track* lower = NULL
    for i in range(one.n):
        neighbours(one, track(one, i).low, &below, &above)
        if below != NULL and track(one, i).low - below.highest <= best:
            best = track(one, i).low - below.highest
            upper = i
            lower = below
    if track_join(track(one, upper), lower):
        return ENOMEM
    one.n -= 1
    if lower != track(one, one.n):              # the last one takes its place
        lower[0] = track(one, one.n)[0]
    return 0


cdef inline int track_add(Tracks* one, Track* fresh) noexcept nogil:
    """One more track, which is the one used last from now on."""
    if one.n == 0:
        one.now = fresh[0]
        one.n = 1
        return 0
    if one.others == NULL:
        one.others = <Track*> calloc(TRACKS - 1, sizeof(Track))
        if one.others == NULL:
            return ENOMEM
    if one.n == TRACKS and make_way(one):
        return ENOMEM
    one.others[one.n - 1] = one.now
    one.now = fresh[0]
    one.n += 1
    return 0


cdef inline int track_merge(Track* t, Track* other) noexcept nogil:
    """t takes over the numbers of one that overlaps it, and frees that."""
    cdef uint64_t low = min(t.low, other.low)
    if other.highest == t.highest:
        t.offset = max(t.offset, other.offset)
    elif other.highest > t.highest:
        swap(t, other)
    if track_join(t, other):
        return ENOMEM
    t.low = low
    return 0


cdef inline int tracks_merge(Tracks* one, Track* fresh) noexcept nogil:
    """track_add() of one that another table tells of: it takes over those that it overlaps."""
    cdef uint32_t i
    cdef Track* t
    while True:
        i = 0
        while i < one.n:
            t = track(one, i)
            if fresh.low > t.highest or t.low > fresh.highest:
                i += 1
                continue
            if track_merge(fresh, t):
                return ENOMEM
            one.n -= 1
            if t != track(one, one.n):          # the last one takes its place
                t[0] = track(one, one.n)[0]
            i = 0                               # it may overlap others now
        if one.n < TRACKS:
            return track_add(one, fresh)
        if make_way(one):                       # it may lie between those that become one
            return ENOMEM


cdef inline int tracks_add(Tracks* one, uint64_t sequence, uint32_t mark,
                           int64_t offset) noexcept nogil:
    cdef Track* below
    cdef Track* above
    cdef Track fresh
    cdef Track* t = containing(one, sequence)
    cdef int rc = 0
    if t != NULL:
        if t.highest - sequence < WINDOW:
            put_mark(t, sequence, mark)
    else:
        neighbours(one, sequence, &below, &above)
        if below != NULL and sequence - below.highest <= WINDOW:
            t = below
            rc = track_raise(t, sequence, mark, offset)
        elif above != NULL and above.highest - sequence < WINDOW:
            t = above
            rc = reserve(t, sequence, t.highest)
            if rc == 0:
                t.low = sequence
                put_mark(t, sequence, mark)
    if rc == 0 and t == NULL and one.n == TRACKS:   # it may lie between those that become one
        return ENOMEM if make_way(one) else tracks_add(one, sequence, mark, offset)
    if rc == 0 and t == NULL:
        if track_begin(&fresh, sequence, mark, offset):
            return ENOMEM
        rc = track_add(one, &fresh)
        if rc:
            free(fresh.marks)
    elif rc == 0 and t != &one.now:
        swap(t, &one.now)
    return rc


cdef inline void tracks_free(Tracks* one) noexcept nogil:
    cdef uint32_t i
    for i in range(one.n):
        free(track(one, i).marks)
    free(one.others)
    memset(one, 0, sizeof(Tracks))


cdef inline size_t tracks_bytes(const Tracks* one) noexcept nogil:
    """What they take beside the struct."""
    cdef size_t size = 4 * one.now.span, i
    if one.others != NULL:
        size += (TRACKS - 1) * sizeof(Track)
        for i in range(one.n - 1):
            size += 4 * one.others[i].span
    return size
