"""Remembering producers: see producers.pxd."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport ENOMEM
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from mqcore.journal.block cimport (
    BLOCK_HEADER, COLUMNS, HAS_STAMPS, PRODUCERS, SEQUENCES, aligned, column_sizes,
)
from mqcore.journal.includes cimport getrandom

PRODUCER_SIZE = sizeof(Producer)


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
    moved = put(p, one[0])
    return moved if moved != NULL else one


cdef int producers_add(Producers* p, uint64_t id, uint64_t sequence,
                       int64_t offset) noexcept nogil:
    cdef Producer fresh
    cdef Producer* one = p.last if p.last != NULL and p.last.id == id else producers_find(p, id)
    cdef uint64_t i
    if one == NULL:
        memset(&fresh, 0, sizeof(fresh))
        fresh.id = id
        fresh.highest = sequence
        fresh.offset = offset
        one = put(p, fresh)
        if one == NULL:
            return ENOMEM
    elif sequence > one.highest:
        if sequence - one.highest >= WINDOW:
            memset(one.window, 0, sizeof(one.window))
        else:
            for i in range(one.highest + 1, sequence):      # the gap; in order there is none
                one.window[i % WINDOW // 64] &= ~(<uint64_t> 1 << i % 64)
        one.highest = sequence
        one.offset = offset
    elif one.highest - sequence >= WINDOW:
        return 0
    one.window[sequence % WINDOW // 64] |= <uint64_t> 1 << sequence % 64
    return 0


cdef class ProducerTable:
    """The producers of one log; whoever writes it keeps this alive. `most`: see producers.pxd."""

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
        cdef const uint8_t* at = block + BLOCK_HEADER
        cdef const uint64_t* producers = NULL
        cdef const uint64_t* sequences = NULL
        cdef uint32_t i
        if not h.flags & HAS_STAMPS or h.count == 0:
            return
        column_sizes(h, sizes)
        for i in range(COLUMNS):
            if i == PRODUCERS:
                producers = <const uint64_t*> at
            if i == SEQUENCES:
                sequences = <const uint64_t*> at
            at += aligned(sizes[i])
        for i in range(h.count):
            if producers[i]:
                producers_add(&self.all, producers[i], sequences[i], h.first + i)

    def dump(self) -> bytes:
        """The rows of FORMAT.md, who sent last at the end. With the log's lock."""
        cdef size_t old = self.all.old.n * sizeof(Producer)
        cdef size_t young = self.all.young.n * sizeof(Producer)
        cdef bytes raw = PyBytes_FromStringAndSize(NULL, old + young)
        if old:
            memcpy(PyBytes_AS_STRING(raw), self.all.old.at, old)
        if young:
            memcpy(PyBytes_AS_STRING(raw) + old, self.all.young.at, young)
        return raw

    def load(self, const uint8_t[::1] raw) -> None:
        """What dump() gave; a later row about the same producer counts."""
        cdef size_t i
        cdef Producer one
        cdef Producer* there
        for i in range(raw.shape[0] // sizeof(Producer)):
            memcpy(&one, &raw[i * sizeof(Producer)], sizeof(Producer))
            there = producers_find(&self.all, one.id)
            if there != NULL:
                there[0] = one
            elif put(&self.all, one) == NULL:
                raise MemoryError
