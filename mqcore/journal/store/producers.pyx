"""Remembering producers: see producers.pxd."""

from libc.errno cimport ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from mqcore.journal.store.block cimport (
    COLUMNS, HAS_KEYS, HAS_LIVES, HAS_NULLS, HAS_STAMPS, KEY_ENDS, KEYS, LIVES, PRODUCERS,
    SEQUENCES, VALUE_ENDS, VALUE_VALID,
    VALUES, BlockHeader, aligned, column_sizes, is_sparse,
)
from mqcore.journal.store.includes cimport getrandom
from mqcore.journal.store.tracks cimport (
    TRACKS, Track, has, lowest_known, reserve, track, track_add, track_begin, tracks_add,
    tracks_bytes, tracks_free,
)

cdef enum:
    ROW = 160                 # bytes of a track in the file, without its checksums
    LIFE = 8                  # and of its producer's life, with zeroes behind


cdef inline size_t place_of(const Producers* p, uint64_t id) noexcept nogil:
    """MurmurHash3's finalizer."""
    cdef uint64_t x = id ^ p.secret
    x = (x ^ (x >> 33)) * <uint64_t> 0xFF51AFD7ED558CCDULL
    x = (x ^ (x >> 33)) * <uint64_t> 0xC4CEB9FE1A85EC53ULL
    return (x ^ (x >> 33)) & (p.cap - 1)


# -- owners ----------------------------------------------------------------------------------------

cdef inline double share_of(const Producers* p, const Owner* owner) noexcept nogil:
    return (<double> owner.bytes / <double> p.most_bytes
            + <double> (owner.once.n + owner.again.n) / <double> p.most)


cdef void settle(Producers* p, Owner* owner) noexcept nogil:
    """To its place in the heap: its share has changed."""
    cdef size_t i = owner.rank, k
    owner.share = share_of(p, owner)
    while i > 0 and p.heap[(i - 1) // 2].share < owner.share:
        p.heap[i] = p.heap[(i - 1) // 2]
        p.heap[i].rank = i
        i = (i - 1) // 2
    while 2 * i + 1 < p.owners:
        k = 2 * i + 1
        if k + 1 < p.owners and p.heap[k].share < p.heap[k + 1].share:
            k += 1
        if p.heap[k].share <= owner.share:
            break
        p.heap[i] = p.heap[k]
        p.heap[i].rank = i
        i = k
    p.heap[i] = owner
    owner.rank = i


cdef Owner* owner_of(Producers* p, uint64_t id) noexcept nogil:
    """NULL: no memory."""
    cdef size_t place = place_of(p, id)
    cdef Owner* owner = p.homes[place]
    while owner != NULL and owner.id != id:
        owner = owner.next
    if owner == NULL:
        owner = <Owner*> calloc(1, sizeof(Owner))
        if owner != NULL:
            owner.id = id
            owner.next = p.homes[place]
            p.homes[place] = owner
            owner.rank = p.owners
            p.heap[p.owners] = owner
            p.owners += 1
    return owner


cdef void disown(Producers* p, Owner* owner) noexcept nogil:
    """It has no producers left."""
    cdef Owner** at = &p.homes[place_of(p, owner.id)]
    cdef Owner* moved
    while at[0] != owner:
        at = &at[0].next
    at[0] = owner.next
    p.owners -= 1
    moved = p.heap[p.owners]
    if moved != owner:
        moved.rank = owner.rank
        settle(p, moved)
    free(owner)


# -- lines -----------------------------------------------------------------------------------------

cdef inline Line* line_of(Producer* one) noexcept nogil:
    return &one.owner.again if one.again else &one.owner.once


cdef void leave_line(Producer* one) noexcept nogil:
    cdef Line* line = line_of(one)
    if one.older != NULL:
        one.older.newer = one.newer
    else:
        line.oldest = one.newer
    if one.newer != NULL:
        one.newer.older = one.older
    else:
        line.newest = one.older
    line.n -= 1


cdef void join_line(Producers* p, Producer* one) noexcept nogil:
    """At its end."""
    cdef Line* line = line_of(one)
    one.older = line.newest
    one.newer = NULL
    if line.newest != NULL:
        line.newest.newer = one
    else:
        line.oldest = one
    line.newest = one
    line.n += 1
    p.clock += 1
    one.used = p.clock


cdef inline Producer* oldest_but(Line* line, Producer* kept) noexcept nogil:
    return line.oldest if line.oldest != kept else kept.newer


cdef Producer* silent_longest(Owner* owner, Producer* kept) noexcept nogil:
    cdef Producer* once = oldest_but(&owner.once, kept) if owner.once.n else NULL
    cdef Producer* again = oldest_but(&owner.again, kept) if owner.again.n else NULL
    if once != NULL and (again == NULL or 3 * owner.once.n > owner.again.n):
        return once
    return again


# -- the table -------------------------------------------------------------------------------------

cdef void forget(Producers* p, Producer* one) noexcept nogil:
    cdef Producer** at = &p.places[place_of(p, one.id)]
    cdef Owner* owner = one.owner
    while at[0] != one:
        at = &at[0].next
    at[0] = one.next
    leave_line(one)
    p.n -= 1
    p.bytes -= one.bytes
    owner.bytes -= one.bytes
    if owner.once.n + owner.again.n:
        settle(p, owner)
    else:
        disown(p, owner)
    if p.last == one:
        p.last = NULL
    tracks_free(&one.tracks)
    free(one)


cdef void bound(Producers* p, Producer* kept) noexcept nogil:
    """Forget others than this one until the table is within its bounds."""
    cdef Producer* one
    cdef size_t second
    while p.n > p.most or p.bytes > p.most_bytes:
        one = silent_longest(p.heap[0], kept)
        if one == NULL and p.owners > 1:        # the one with most has this one only
            second = 2 if p.owners > 2 and p.heap[2].share > p.heap[1].share else 1
            one = silent_longest(p.heap[second], kept)
        if one == NULL:
            break
        forget(p, one)
        p.forgotten += 1


cdef void weigh(Producers* p, Producer* one) noexcept nogil:
    """Its tracks have changed."""
    cdef size_t size = sizeof(Producer) + tracks_bytes(&one.tracks)
    if size != one.bytes:
        p.bytes += size - one.bytes             # modulo 2^64, as size may be less
        one.owner.bytes += size - one.bytes
        one.bytes = size
        settle(p, one.owner)
        bound(p, one)


cdef int grow(Producers* p) noexcept nogil:
    cdef Producers more = p[0]
    cdef Producer* one
    cdef Owner* owner
    cdef size_t i, place
    more.cap = 2 * p.cap if p.cap else 16
    more.places = <Producer**> calloc(more.cap, sizeof(void*))
    more.homes = <Owner**> calloc(more.cap, sizeof(void*))
    more.heap = <Owner**> calloc(more.cap, sizeof(void*))
    if more.places == NULL or more.homes == NULL or more.heap == NULL:
        free(more.places)
        free(more.homes)
        free(more.heap)
        return ENOMEM
    for i in range(p.cap):
        while p.places[i] != NULL:
            one = p.places[i]
            p.places[i] = one.next
            place = place_of(&more, one.id)
            one.next = more.places[place]
            more.places[place] = one
    for i in range(p.owners):
        owner = more.heap[i] = p.heap[i]
        place = place_of(&more, owner.id)
        owner.next = more.homes[place]
        more.homes[place] = owner
    free(p.places)
    free(p.homes)
    free(p.heap)
    p[0] = more
    return 0


cdef Producer* put(Producers* p, uint64_t owner, uint64_t id, const Track* first) noexcept nogil:
    """One that is not there yet, with this track. NULL: no memory."""
    cdef Producer* one
    cdef size_t place
    if p.n == p.cap and grow(p):
        return NULL
    one = <Producer*> calloc(1, sizeof(Producer))
    if one == NULL:
        return NULL
    one.owner = owner_of(p, owner)
    if one.owner == NULL:
        free(one)
        return NULL
    one.id = id
    one.tracks.n = 1
    one.tracks.now = first[0]
    place = place_of(p, id)
    one.next = p.places[place]
    p.places[place] = one
    p.n += 1
    p.last = one
    join_line(p, one)
    weigh(p, one)
    return one


cdef inline void hear_again(Producers* p, Producer* one) noexcept nogil:
    if not one.again:
        leave_line(one)
        one.again = True
        join_line(p, one)


cdef Producer* producers_find(Producers* p, uint64_t id) noexcept nogil:
    cdef Producer* one = p.places[place_of(p, id)] if p.cap else NULL
    while one != NULL and one.id != id:
        one = one.next
    if one != NULL:
        p.last = one
        leave_line(one)
        join_line(p, one)
    return one


cdef void live_again(Producer* one, uint32_t life) noexcept nogil:
    """It has no tracks any more: put one there."""
    tracks_free(&one.tracks)
    one.tracks.n = 1
    one.life = life


cdef int producers_add(Producers* p, uint64_t owner, uint64_t id, uint32_t life, uint64_t sequence,
                       uint32_t mark, int64_t offset) noexcept nogil:
    cdef Track first
    cdef int rc = 0
    cdef Producer* one = p.last if p.last != NULL and p.last.id == id else producers_find(p, id)
    if one != NULL and life <= one.life:
        hear_again(p, one)
        if life == one.life:
            rc = tracks_add(&one.tracks, sequence, mark, offset)
        weigh(p, one)
        return rc
    if track_begin(&first, sequence, mark, offset):
        return ENOMEM
    if one != NULL:
        hear_again(p, one)
        live_again(one, life)
        one.tracks.now = first
        weigh(p, one)
        return 0
    one = put(p, owner, id, &first)
    if one == NULL:
        free(first.marks)
        return ENOMEM
    one.life = life
    return 0


cdef class ProducerTable:
    """The producers of one log; the log's writer keeps this alive. It has `most` producers at most,
    and about `most_bytes`."""

    def __cinit__(self, size_t most, size_t most_bytes):
        self.all.most = most
        self.all.most_bytes = most_bytes
        if getrandom(&self.all.secret, 8, 0) != 8:
            raise OSError("the system has no random numbers")

    def __dealloc__(self):
        cdef Producers* p = &self.all
        cdef Producer* one
        cdef size_t i
        for i in range(p.cap):
            while p.places[i] != NULL:
                one = p.places[i]
                p.places[i] = one.next
                tracks_free(&one.tracks)
                free(one)
        for i in range(p.owners):
            free(p.heap[i])
        free(p.places)
        free(p.homes)
        free(p.heap)

    def __len__(self):
        return self.all.n

    def counters(self) -> dict:
        """With the log's lock."""
        return {"producers": self.all.n, "producer_bytes": self.all.bytes,
                "forgotten": self.all.forgotten}

    cdef void learn(self, const uint8_t* at, const BlockHeader* h) noexcept nogil:
        """The columns of a block that has been checked. Where memory ends, producers are
        forgotten."""
        cdef uint64_t sizes[16]
        cdef const uint8_t* column[16]
        cdef const uint64_t* producers
        cdef const uint64_t* sequences
        cdef const int32_t* ends
        cdef const int32_t* key_ends
        cdef size_t key_at = 0, key_size = 0
        cdef const uint32_t* places
        cdef const uint32_t* lives
        cdef uint32_t i, mark
        if not h.flags & HAS_STAMPS or h.count == 0:
            return
        column_sizes(h, sizes)
        for i in range(COLUMNS):
            column[i] = at
            at += aligned(sizes[i])
        places = <const uint32_t*> at if is_sparse(h) else NULL
        producers = <const uint64_t*> column[<int> PRODUCERS]
        sequences = <const uint64_t*> column[<int> SEQUENCES]
        lives = <const uint32_t*> column[<int> LIVES] if h.flags & HAS_LIVES else NULL
        ends = <const int32_t*> column[<int> VALUE_ENDS]
        key_ends = <const int32_t*> column[<int> KEY_ENDS]
        for i in range(h.count):
            if producers[i]:
                if h.flags & HAS_KEYS:
                    key_at = key_ends[i]
                    key_size = key_ends[i + 1] - key_ends[i]
                mark = mark_of(column[<int> KEYS] + key_at, key_size,
                               column[<int> VALUES] + ends[i], ends[i + 1] - ends[i])
                if h.flags & HAS_NULLS and not column[<int> VALUE_VALID][i // 8] >> i % 8 & 1:
                    mark = ~mark
                producers_add(&self.all, 0, producers[i], 0 if lives == NULL else lives[i],
                              sequences[i], mark, h.first + (i if places == NULL else places[i]))

    def dump(self) -> bytes:
        """The rows of FORMAT.md, who was heard last at the end. With the log's lock."""
        cdef list found = []
        cdef Producer* one
        cdef size_t i
        for i in range(self.all.cap):
            one = self.all.places[i]
            while one != NULL:
                found.append((one.used, rows_of(one)))
                one = one.next
        found.sort()                    # no two were heard at the same moment
        return b"".join([rows for _, rows in found])

    def load(self, const uint8_t[::1] raw, *, bint lives=True) -> None:
        """What dump() gave, into an empty table; lives: not in version 2. ValueError: it did
        not."""
        cdef size_t at = 0, size = raw.shape[0], row = ROW + LIFE if lives else ROW
        cdef uint32_t life = 0
        cdef uint64_t id, i
        cdef Track t
        while at < size:
            memset(&t, 0, sizeof(t))
            if size - at < row:
                raise ValueError("half a row")
            memcpy(&id, &raw[at], 8)
            memcpy(&t.low, &raw[at + 8], 24 + sizeof(t.window))
            if lives:
                memcpy(&life, &raw[at + ROW], 4)
            at += row
            if id == 0 or t.low > t.highest or not is_apart(&self.all, id, life, &t):
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
            if not add_track(&self.all, id, life, &t):
                free(t.marks)
                raise MemoryError


cdef bytes rows_of(Producer* one):
    """The track used last at the end."""
    cdef int i
    cdef uint64_t k
    cdef Track* t
    cdef bytearray rows = bytearray()
    for i in range(<int> one.tracks.n - 1, -1, -1):
        t = track(&one.tracks, i)
        rows += (<const uint8_t*> &one.id)[:8]
        rows += (<const uint8_t*> &t.low)[:24 + sizeof(t.window)]
        rows += (<const uint8_t*> &one.life)[:4] + bytes(LIFE - 4)
        k = lowest_known(t)
        while True:
            if has(t, k):
                rows += (<const uint8_t*> &t.marks[k & (t.span - 1)])[:4]
            if k == t.highest:
                break
            k += 1
    return bytes(rows)


cdef bint is_apart(Producers* p, uint64_t id, uint32_t life, const Track* t) noexcept:
    """Whether this may be another track of a producer."""
    cdef Producer* one = producers_find(p, id)
    cdef Track* other
    cdef uint32_t i
    if one == NULL:
        return True
    for i in range(one.tracks.n):
        other = track(&one.tracks, i)
        if other.low <= t.highest and t.low <= other.highest:
            return False
    return one.life == life and one.tracks.n < <uint32_t> TRACKS


cdef bint add_track(Producers* p, uint64_t id, uint32_t life, Track* t) noexcept:
    """False: no memory."""
    cdef Producer* one = producers_find(p, id)
    if one == NULL:
        one = put(p, 0, id, t)
        if one == NULL:
            return False
        one.life = life
    elif track_add(&one.tracks, t):
        return False
    if one.tracks.n > 1 or t.low != t.highest:
        hear_again(p, one)
    weigh(p, one)
    return True
