"""Remembering producers: see producers.pxd."""

from libc.errno cimport ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from mqcore.journal.store.block cimport (
    COLUMNS, COMPACTED, HAS_KEYS, HAS_LIVES, HAS_NULLS, HAS_STAMPS, KEY_ENDS, KEYS, LIVES,
    PRODUCERS, SEQUENCES, VALUE_ENDS, VALUE_VALID, VALUES, BlockHeader, aligned, column_sizes,
    is_sparse,
)
from mqcore.journal.store.includes cimport getrandom
from mqcore.journal.store.owners cimport (
    disown, join_line, leave_line, owner_of, place_of, settle, silent_longest,
)
from mqcore.journal.store.tracks cimport (
    TRACKS, Track, has, lowest_known, reserve, track, track_begin, tracks_add, tracks_bytes,
    tracks_free, tracks_merge,
)

cdef enum:
    ROW = 160                 # bytes of a track in the file, without its checksums
    LIFE = 8                  # and of its producer's life, with zeroes behind


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
    """One that is not there yet, with this track, or none. NULL: no memory."""
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
    if first != NULL:
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


cdef void charge(Producers* p, Producer* one, uint64_t id) noexcept nogil:
    """To this connection, if it was charged to none. Without memory it stays as it is."""
    cdef Owner* before = one.owner
    cdef Owner* owner
    if id == 0 or before.id != 0 or p.owners == p.cap and grow(p):
        return
    owner = owner_of(p, id)
    if owner == NULL:
        return
    leave_line(one)
    before.bytes -= one.bytes
    if before.once.n + before.again.n:
        settle(p, before)
    else:
        disown(p, before)
    one.owner = owner
    owner.bytes += one.bytes
    join_line(p, one)
    settle(p, owner)


cdef void producers_heard(Producers* p, uint64_t owner, uint64_t id) noexcept nogil:
    cdef Producer* one = p.last if p.last != NULL and p.last.id == id else producers_find(p, id)
    if one != NULL:
        charge(p, one, owner)


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
        charge(p, one, owner)
        hear_again(p, one)
        if life == one.life:
            rc = tracks_add(&one.tracks, sequence, mark, offset)
        weigh(p, one)
        return rc
    if track_begin(&first, sequence, mark, offset):
        return ENOMEM
    if one != NULL:
        charge(p, one, owner)
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
        if h.flags & COMPACTED:
            self.compacted = True
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
                self.learned += 1
                producers_add(&self.all, 0, producers[i], 0 if lives == NULL else lives[i],
                              sequences[i], mark, h.first + (i if places == NULL else places[i]))

    cdef uint32_t life_of(self, uint64_t id) noexcept:
        """0: none. With the log's lock."""
        cdef Producer* one = producers_find(&self.all, id)
        return 0 if one == NULL else one.life

    def highest_of(self, uint64_t id) -> int | None:
        """The highest number that is known of a producer's newest life. None: none is."""
        cdef Producer* one = producers_find(&self.all, id)
        cdef uint64_t found
        cdef uint32_t i
        if one == NULL or one.tracks.n == 0:
            return None
        found = one.tracks.now.highest
        for i in range(one.tracks.n - 1):
            found = max(found, one.tracks.others[i].highest)
        return found

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

    def forget_numbers(self) -> int:
        """Each producer keeps its life alone; how many have one. The others are forgotten."""
        cdef Producer* one
        cdef Producer* next
        cdef size_t i
        for i in range(self.all.cap):
            one = self.all.places[i]
            while one != NULL:
                next = one.next
                if one.life:
                    tracks_free(&one.tracks)
                    weigh(&self.all, one)
                else:
                    forget(&self.all, one)
                one = next
        return self.all.n

    def bound_to(self, size_t most, size_t most_bytes) -> None:
        """Its limits from here on, or what it has if that is more."""
        self.all.most = max(most, self.all.n)
        self.all.most_bytes = max(most_bytes, self.all.bytes)

    def load(self, const uint8_t[::1] raw, *, bint lives=True) -> None:
        """What dump() gave; lives: not in version 2. ValueError: it did not, and the table is
        empty."""
        try:
            self.add_rows(raw, lives, False)
        except ValueError:
            while self.all.n:
                forget(&self.all, silent_longest(self.all.heap[0], NULL))
            self.all.forgotten = 0
            raise

    def merge(self, const uint8_t[::1] raw) -> None:
        """What dump() of another table of the same messages gave. Of each producer the newer life
        stays. With the same life, every number is known that one of the tables knows."""
        self.add_rows(raw, True, True)

    cdef int add_rows(self, const uint8_t[::1] raw, bint lives, bint merging) except -1:
        cdef size_t at = 0, size = raw.shape[0], row = ROW + LIFE if lives else ROW
        cdef uint32_t life = 0, zero = 0
        cdef uint64_t id, i
        cdef Track t
        cdef Producer* one
        while at < size:
            memset(&t, 0, sizeof(t))
            if size - at < row:
                raise ValueError("half a row")
            memcpy(&id, &raw[at], 8)
            memcpy(&t.low, &raw[at + 8], 24 + sizeof(t.window))
            if lives:
                memcpy(&life, &raw[at + ROW], 4)
                memcpy(&zero, &raw[at + ROW + 4], 4)
            at += row
            one = <Producer*> NULL if merging else producers_find(&self.all, id)
            if id == 0 or zero or not fits_in(one, life, &t):
                raise ValueError("a row that cannot be")
            if has(&t, t.highest) and reserve(&t, t.low, t.highest):
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
            if not add_track(&self.all, id, life, &t if has(&t, t.highest) else NULL):
                free(t.marks)
                raise MemoryError
        return 0


cdef bint fits_in(Producer* one, uint32_t life, const Track* t) noexcept nogil:
    """A track that a file tells of may be added to the ones that it has told of. NULL: none."""
    cdef uint32_t i
    cdef Track* other
    if t.low > t.highest or t.offset < -1:
        return False
    if not has(t, t.highest):           # no number is known
        return one == NULL and life and t.highest == 0 and t.offset == -1
    if one == NULL:
        return True
    if one.tracks.n == 0:
        return False
    for i in range(one.tracks.n):
        other = track(&one.tracks, i)
        if t.low <= other.highest and other.low <= t.highest:
            return False
    return one.tracks.n < TRACKS and one.life == life


cdef bytes rows_of(Producer* one):
    """The track used last at the end."""
    cdef int i
    cdef uint64_t k
    cdef bytes life = (<const uint8_t*> &one.life)[:4] + bytes(LIFE - 4)
    cdef Track* t
    cdef bytearray rows = bytearray()
    if one.tracks.n == 0:
        return (<const uint8_t*> &one.id)[:8] + bytes(16) + b"\xff" * 8 \
            + bytes(sizeof(t.window)) + life
    for i in range(<int> one.tracks.n - 1, -1, -1):
        t = track(&one.tracks, i)
        rows += (<const uint8_t*> &one.id)[:8]
        rows += (<const uint8_t*> &t.low)[:24 + sizeof(t.window)]
        rows += life
        k = lowest_known(t)
        while True:
            if has(t, k):
                rows += (<const uint8_t*> &t.marks[k & (t.span - 1)])[:4]
            if k == t.highest:
                break
            k += 1
    return bytes(rows)


cdef bint add_track(Producers* p, uint64_t id, uint32_t life, Track* t) noexcept:
    """NULL: a producer of which no number is known. False: no memory, and t is the caller's."""
    cdef Producer* one = producers_find(p, id)
    if one != NULL and life < one.life:
        if t != NULL:
            free(t.marks)
        return True
    if one == NULL:
        one = put(p, 0, id, t)
        if one == NULL:
            return False
    else:
        if life > one.life:
            tracks_free(&one.tracks)
        if t != NULL and tracks_merge(&one.tracks, t):
            weigh(p, one)
            return False
    one.life = life
    if t == NULL or one.tracks.n > 1 or one.tracks.now.low != one.tracks.now.highest:
        hear_again(p, one)
    weigh(p, one)
    return True
