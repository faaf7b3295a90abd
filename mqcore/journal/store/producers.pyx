"""Remembering producers: see producers.pxd."""

from libc.errno cimport ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from mqcore.journal.store.block cimport (
    BLOCK_HEADER, COLUMNS, HAS_KEYS, HAS_STAMPS, KEY_ENDS, KEYS, PRODUCERS, SEQUENCES, VALUE_ENDS,
    VALUES, BlockHeader, aligned, column_sizes,
)
from mqcore.journal.store.includes cimport getrandom

cdef enum:
    ROW = 160                 # bytes of a track in the file, without its checksums
    SPAN = 16                 # minimum number of checksums per track


# -- a track ---------------------------------------------------------------------------------------

cdef inline bint has(const Track* t, uint64_t i) noexcept nogil:
    return t.window[i % WINDOW // 64] >> i % 64 & 1


cdef inline void put_mark(Track* t, uint64_t i, uint32_t mark) noexcept nogil:
    t.window[i % WINDOW // 64] |= <uint64_t> 1 << i % 64
    t.marks[i & (t.span - 1)] = mark


cdef inline uint64_t lowest_known(const Track* t) noexcept nogil:
    return t.low if t.highest - t.low < WINDOW else t.highest - WINDOW + 1


cdef int reserve(Track* t, uint64_t low, uint64_t highest) noexcept nogil:
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


cdef int track_begin(Track* t, uint64_t sequence, uint32_t mark, int64_t offset) noexcept nogil:
    memset(t, 0, sizeof(Track))
    t.low = t.highest = sequence
    t.offset = offset
    if reserve(t, sequence, sequence):
        return ENOMEM
    put_mark(t, sequence, mark)
    return 0


cdef int track_raise(Track* t, uint64_t sequence, uint32_t mark, int64_t offset) noexcept nogil:
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


cdef int track_join(Track* t, Track* lower) noexcept nogil:
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
        i += 1
    t.low = lower.low
    free(lower.marks)
    return 0


# -- a producer ------------------------------------------------------------------------------------

cdef inline Track* track(Producer* one, uint32_t i) noexcept nogil:
    return &one.now if i == 0 else &one.others[i - 1]


cdef inline void swap(Track* a, Track* b) noexcept nogil:
    cdef Track t = a[0]
    a[0] = b[0]
    b[0] = t


cdef Track* containing(Producer* one, uint64_t sequence) noexcept nogil:
    cdef uint32_t i
    for i in range(one.n):
        if track(one, i).low <= sequence <= track(one, i).highest:
            return track(one, i)
    return NULL


cdef int producer_look(Producer* one, uint64_t sequence, uint32_t mark,
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


cdef void neighbours(Producer* one, uint64_t sequence, Track** below,
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


cdef int make_way(Producer* one) noexcept nogil:
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


cdef int track_add(Producer* one, Track* fresh) noexcept nogil:
    """One more track, which is the one used last from now on."""
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


cdef int producer_add(Producer* one, uint64_t sequence, uint32_t mark,
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
    if rc == 0 and t == NULL:
        if track_begin(&fresh, sequence, mark, offset):
            return ENOMEM
        rc = track_add(one, &fresh)
        if rc:
            free(fresh.marks)
    elif rc == 0 and t != &one.now:
        swap(t, &one.now)
    return rc


cdef void producer_free(Producer* one) noexcept nogil:
    cdef uint32_t i
    for i in range(one.n):
        free(track(one, i).marks)
    free(one.others)
    memset(one, 0, sizeof(Producer))


# -- a generation ----------------------------------------------------------------------------------

cdef inline size_t place_of(const Generation* g, uint64_t secret, uint64_t id) noexcept nogil:
    """Where it is, or would be: MurmurHash3's finalizer, then the next free place."""
    cdef size_t mask = 2 * g.cap - 1
    cdef uint64_t x = id ^ secret
    cdef size_t i
    x = (x ^ (x >> 33)) * <uint64_t> 0xFF51AFD7ED558CCDULL
    x = (x ^ (x >> 33)) * <uint64_t> 0xC4CEB9FE1A85EC53ULL
    i = (x ^ (x >> 33)) & mask
    while g.places[i] and g.at[g.places[i] - 1].id != id:
        i = (i + 1) & mask
    return i


cdef Producer* look(Generation* g, uint64_t secret, uint64_t id) noexcept nogil:
    cdef uint32_t place
    if g.n == 0:
        return NULL
    place = g.places[place_of(g, secret, id)]
    return &g.at[place - 1] if place else NULL


cdef void drop(Generation* g) noexcept nogil:
    cdef size_t i
    for i in range(g.n):
        producer_free(&g.at[i])
    free(g.at)
    free(g.places)
    memset(g, 0, sizeof(Generation))


cdef int grow(Generation* g, uint64_t secret) noexcept nogil:
    cdef Generation more
    cdef size_t i
    more.n = g.n
    more.cap = 2 * g.cap if g.cap else 16
    more.places = <uint32_t*> calloc(2 * more.cap, sizeof(uint32_t))
    if more.places == NULL:
        return ENOMEM
    more.at = <Producer*> realloc(g.at, more.cap * sizeof(Producer))
    if more.at == NULL:
        free(more.places)
        return ENOMEM
    for i in range(g.n):
        more.places[place_of(&more, secret, more.at[i].id)] = <uint32_t> i + 1
    free(g.places)
    g[0] = more
    return 0


# -- both ------------------------------------------------------------------------------------------

cdef Producer* put(Producers* p, Producer one) noexcept nogil:
    """Into the young generation, where it is not yet. NULL: no memory."""
    cdef Generation* g = &p.young
    cdef Generation fresh
    p.last = NULL
    if g.n == p.most:
        memset(&fresh, 0, sizeof(fresh))
        if grow(&fresh, p.secret):
            return NULL
        drop(&p.old)
        p.old = g[0]
        g[0] = fresh
    elif g.n == g.cap and grow(g, p.secret):
        return NULL
    g.at[g.n] = one
    g.places[place_of(g, p.secret, one.id)] = <uint32_t> g.n + 1
    g.n += 1
    p.last = &g.at[g.n - 1]
    return p.last


cdef Producer* producers_find(Producers* p, uint64_t id) noexcept nogil:
    cdef Producer* one = look(&p.young, p.secret, id)
    cdef Producer* moved
    if one != NULL:
        p.last = one
        return one
    one = look(&p.old, p.secret, id)
    if one == NULL:
        return NULL
    if p.young.n == p.most:             # the old generation is about to go, and it with it
        moved = put_kept(p, one)
    else:
        moved = put(p, one[0])
        if moved != NULL:
            memset(one, 0, sizeof(Producer))
    return moved if moved != NULL else one


cdef Producer* put_kept(Producers* p, Producer* one) noexcept nogil:
    """put() of one that is in the old generation, which put() drops."""
    cdef Producer kept = one[0]
    cdef Producer* moved
    memset(one, 0, sizeof(Producer))
    moved = put(p, kept)
    if moved == NULL:                   # nothing was dropped
        one[0] = kept
    return moved


cdef int producers_add(Producers* p, uint64_t id, uint64_t sequence, uint32_t mark,
                       int64_t offset) noexcept nogil:
    cdef Producer fresh
    cdef Producer* one = p.last if p.last != NULL and p.last.id == id else producers_find(p, id)
    if one != NULL:
        return producer_add(one, sequence, mark, offset)
    memset(&fresh, 0, sizeof(fresh))
    fresh.id = id
    fresh.n = 1
    if track_begin(&fresh.now, sequence, mark, offset):
        return ENOMEM
    if put(p, fresh) == NULL:
        producer_free(&fresh)
        return ENOMEM
    return 0


cdef class ProducerTable:
    """The producers of one log; the log's writer keeps this alive. `most`: see producers.pxd."""

    def __cinit__(self, size_t most):
        self.all.most = most
        if getrandom(&self.all.secret, 8, 0) != 8:
            raise OSError("the system has no random numbers")

    def __dealloc__(self):
        drop(&self.all.young)
        drop(&self.all.old)

    def __len__(self):
        return self.all.young.n + self.all.old.n

    cdef void learn(self, const uint8_t* block, const BlockHeader* h) noexcept nogil:
        """A block that has been checked. Where memory ends, producers are forgotten."""
        cdef uint64_t sizes[14]
        cdef const uint8_t* column[14]
        cdef const uint8_t* at = block + BLOCK_HEADER
        cdef const uint64_t* producers
        cdef const uint64_t* sequences
        cdef const int32_t* ends
        cdef const int32_t* key_ends
        cdef size_t key_at = 0, key_size = 0
        cdef uint32_t i
        if not h.flags & HAS_STAMPS or h.count == 0:
            return
        column_sizes(h, sizes)
        for i in range(COLUMNS):
            column[i] = at
            at += aligned(sizes[i])
        producers = <const uint64_t*> column[<int> PRODUCERS]
        sequences = <const uint64_t*> column[<int> SEQUENCES]
        ends = <const int32_t*> column[<int> VALUE_ENDS]
        key_ends = <const int32_t*> column[<int> KEY_ENDS]
        for i in range(h.count):
            if producers[i]:
                if h.flags & HAS_KEYS:
                    key_at = key_ends[i]
                    key_size = key_ends[i + 1] - key_ends[i]
                producers_add(&self.all, producers[i], sequences[i], mark_of(
                    column[<int> KEYS] + key_at, key_size, column[<int> VALUES] + ends[i],
                    ends[i + 1] - ends[i]), h.first + i)

    def dump(self) -> bytes:
        """The rows of FORMAT.md, who sent last at the end. With the log's lock."""
        cdef list rows = []
        cdef size_t i
        for i in range(self.all.old.n):
            rows_of(&self.all.old.at[i], rows)
        for i in range(self.all.young.n):
            rows_of(&self.all.young.at[i], rows)
        return b"".join(rows)

    def load(self, const uint8_t[::1] raw) -> None:
        """What dump() gave. ValueError: it did not."""
        cdef size_t at = 0, size = raw.shape[0], n
        cdef uint64_t id, i
        cdef Track t
        cdef Producer fresh
        cdef Producer* there
        while at < size:
            memset(&t, 0, sizeof(t))
            if size - at < ROW:
                raise ValueError("half a row")
            memcpy(&id, &raw[at], 8)
            memcpy(&t.low, &raw[at + 8], 24 + sizeof(t.window))
            at += ROW
            if id == 0 or t.low > t.highest:
                raise ValueError("a row that cannot be")
            if reserve(&t, t.low, t.highest):
                raise MemoryError
            i = lowest_known(&t)
            while True:
                if has(&t, i):
                    if size - at < 4:
                        free(t.marks)
                        raise ValueError("half a row")
                    memcpy(&t.marks[i & (t.span - 1)], &raw[at], 4)
                    at += 4
                if i == t.highest:
                    break
                i += 1
            there = producers_find(&self.all, id)
            if there == NULL:
                memset(&fresh, 0, sizeof(fresh))
                fresh.id = id
                fresh.n = 1
                fresh.now = t
                there = put(&self.all, fresh)
                n = there == NULL
            else:
                n = track_add(there, &t)
            if n:
                free(t.marks)
                raise MemoryError


cdef int rows_of(Producer* one, list rows) except -1:
    """The one used last at the end."""
    cdef uint32_t i
    cdef uint64_t k
    cdef Track* t
    cdef bytearray row
    for i in range(one.n - 1, -1, -1) if one.n else ():
        t = track(one, i)
        row = bytearray((<const uint8_t*> &one.id)[:8])
        row += (<const uint8_t*> &t.low)[:24 + sizeof(t.window)]
        k = lowest_known(t)
        while True:
            if has(t, k):
                row += (<const uint8_t*> &t.marks[k & (t.span - 1)])[:4]
            if k == t.highest:
                break
            k += 1
        rows.append(row)
    return 0
