"""Words and envelopes: see words.pxd."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.base.bytes cimport bytes_append, bytes_fini
from mqcore.base.clock cimport now_ns
from mqcore.base.cursor cimport load_be32, store_be32
from mqcore.base.message cimport (
    MSG_MORE, msg_data, msg_init, msg_init_copy, msg_init_inline, msg_size,
)
from mqcore.base.status cimport MQ_DONE, MQ_DROPPED, MQ_NEED_DATA, MQ_NOMEM, MQ_OK
from mqcore.base.yqueue cimport YCursor, yqueue_after, yqueue_first
from mqcore.wire.zmtp.ready cimport refuse

cdef enum:
    TABLE_FIRST = 16
    ID_BIT = 0x80             # of a word's first byte


cdef bint words_asks(const Codec* c) noexcept nogil:
    return c.config.sp == 0x30 or c.config.sp == 0x62


# -- what is remembered ----------------------------------------------------------------------------

cdef inline Remembered** _place(Words* w, uint32_t id) noexcept nogil:
    return &w.table[id & (w.cap - 1)]


cdef int _widen(Words* w) noexcept nogil:
    """A table of twice the size, in which the same ids have their places."""
    cdef uint32_t cap = w.cap * 2 if w.cap else TABLE_FIRST
    cdef Remembered** old = w.table
    cdef uint32_t i
    w.table = <Remembered**> calloc(cap, sizeof(Remembered*))
    if w.table == NULL:
        w.table = old
        return MQ_NOMEM
    i = w.cap
    w.cap = cap
    while i:
        i -= 1
        if old[i] != NULL:
            _place(w, old[i].id)[0] = old[i]
    free(old)
    return MQ_OK


cdef int _remember(Words* w, YQueue* q, size_t parts, size_t size, uint32_t* id) noexcept nogil:
    """The first `parts` parts of the message in front, under an id of ours. They have `size` bytes
    in all."""
    cdef Remembered* r = <Remembered*> malloc(sizeof(Remembered) + parts * 4 + size)
    cdef Remembered** place
    cdef uint8_t* at
    cdef YCursor cursor
    cdef Msg* m
    cdef uint32_t n
    cdef size_t i
    if r == NULL:
        return MQ_NOMEM
    if w.cap == 0 and _widen(w):
        free(r)
        return MQ_NOMEM
    if w.given == 0:          # another peer's numbers, and our own of yesterday, are not like them
        w.first = <uint32_t> (<uint64_t> now_ns() * <uint64_t> 0x9e3779b97f4a7c15 >> 33)
    r.id = (w.first + w.given) & 0x7fffffff
    place = _place(w, r.id)
    while place[0] != NULL and w.cap < REMEMBERED:
        if _widen(w):
            break             # then the older one is forgotten
        place = _place(w, r.id)
    free(place[0])
    place[0] = r
    w.given += 1
    r.parts = <uint32_t> parts
    r.size = <uint32_t> (parts * 4 + size)
    at = <uint8_t*> (r + 1)
    m = yqueue_first(q, &cursor)
    for i in range(parts):
        n = <uint32_t> msg_size(m)
        memcpy(at, &n, 4)
        memcpy(at + 4, msg_data(m), n)
        at += 4 + n
        m = yqueue_after(&cursor)         # there is one: the empty part follows
    id[0] = r.id
    return MQ_OK


# -- in --------------------------------------------------------------------------------------------

cdef int words_take(Words* w, Codec* c, const uint8_t* at, size_t n, size_t* used) noexcept nogil:
    cdef size_t step
    used[0] = 0
    while used[0] < n:
        if w.env.n == WORDS_MAX * 4:
            return refuse(c, "the peer sent a message with more than 255 words in front")
        step = min(4 - (w.env.n & 3), n - used[0])
        if bytes_append(&w.env, at + used[0], step):
            return MQ_NOMEM
        used[0] += step
        if not w.env.n & 3 and w.env.at[w.env.n - 4] & ID_BIT:
            return MQ_OK
    return MQ_NEED_DATA


cdef int _put_back(Words* w, Remembered** place, bint once) noexcept nogil:
    """`once`: there is one answer; else a copy, since the place may be another's before all of it
    has been handed out."""
    cdef size_t size = sizeof(Remembered) + place[0].size
    if once:
        w.back = place[0]
        place[0] = NULL
        return MQ_OK
    w.back = <Remembered*> malloc(size)
    if w.back == NULL:
        return MQ_NOMEM
    memcpy(w.back, place[0], size)
    return MQ_OK


cdef int words_open(Words* w, Codec* c) noexcept nogil:
    cdef uint32_t id
    cdef Remembered** place
    w.at = 0
    w.ended = False
    if w.given == 0 or w.env.n != 4:      # a stored envelope is one word in SP
        return MQ_OK
    id = load_be32(w.env.at) & 0x7fffffff
    place = _place(w, id)
    if place[0] != NULL and place[0].id == id:
        return _put_back(w, place, c.config.sp == 0x30)
    if ((id - w.first) & 0x7fffffff) >= w.given:
        return MQ_OK                      # not one of ours
    c.late += 1
    w.env.n = 0
    return MQ_DROPPED


cdef int _next_back(Words* w, Codec* c, Msg* out) noexcept nogil:
    """The next part of what was remembered."""
    cdef const uint8_t* at = <const uint8_t*> (w.back + 1) + w.at
    cdef uint32_t n
    cdef int rc
    memcpy(&n, at, 4)
    rc = msg_init_copy(out, c.pool, at + 4, n)
    if rc == MQ_OK:
        out.flags = MSG_MORE
        w.at += 4 + n
    return rc


cdef int words_next(Words* w, Codec* c, Msg* out) noexcept nogil:
    cdef const uint8_t* at = w.env.at + w.at
    if w.ended:
        free(w.back)
        w.back = NULL
        w.env.n = 0
        return MQ_DONE
    if w.back != NULL and w.at < w.back.size:
        return _next_back(w, c, out)
    if w.back == NULL and w.at < w.env.n:
        msg_init(out)
        if at[0] & ID_BIT:
            msg_init_inline(out, at, 4)
        else:
            out.size8 = 5
            out.u.inl[0] = 0
            memcpy(&out.u.inl[1], at, 4)
        w.at += 4
    else:
        msg_init(out)
        w.ended = True
    out.flags = MSG_MORE
    return MQ_OK


# -- out -------------------------------------------------------------------------------------------

cdef bint _is_word(const uint8_t* at, size_t size, bint last) noexcept nogil:
    """Is the part what a word becomes? The last one must be an id, no other may."""
    if last:
        return size == 4 and at[0] & ID_BIT
    return size == 5 and at[0] == 0 and not at[1] & ID_BIT


cdef int _envelope(YQueue* q, size_t* parts, size_t* size, bint* said) noexcept nogil:
    """The number of parts before the empty one, and their bytes; *said: all are words. MQ_DROPPED:
    no empty part has a part after it."""
    cdef YCursor cursor
    cdef Msg* m = yqueue_first(q, &cursor)
    cdef Msg* following
    parts[0] = 0
    size[0] = 0
    said[0] = True
    while m.flags & MSG_MORE:
        if msg_size(m) == 0:
            said[0] = said[0] and 0 < parts[0] <= WORDS_MAX
            return MQ_OK
        following = yqueue_after(&cursor)
        said[0] = said[0] and _is_word(msg_data(m), msg_size(m), msg_size(following) == 0)
        parts[0] += 1
        size[0] += msg_size(m)
        m = following
    return MQ_DROPPED


cdef int words_say(Words* w, Codec* c, YQueue* q, Bytes* out, size_t* parts) noexcept nogil:
    cdef size_t n = 0
    cdef size_t size = 0
    cdef size_t i
    cdef bint said = False
    cdef YCursor cursor
    cdef Msg* m
    cdef uint32_t id = 0
    cdef uint8_t[4] word
    if _envelope(q, &n, &size, &said):
        return MQ_DROPPED
    parts[0] = n + 1
    if said and not (n == 1 and w.given):     # once ids of ours are under way, they all are
        m = yqueue_first(q, &cursor)
        for i in range(n):
            if bytes_append(out, msg_data(m) + msg_size(m) - 4, 4):
                return MQ_NOMEM
            m = yqueue_after(&cursor)
        return MQ_OK
    if not words_asks(c) or size + n * 4 > ENVELOPE_MAX:
        return MQ_DROPPED
    if _remember(w, q, n, size, &id):
        return MQ_NOMEM
    store_be32(word, id)
    word[0] |= ID_BIT
    return bytes_append(out, word, 4)


cdef void words_fini(Words* w) noexcept nogil:
    cdef uint32_t i
    for i in range(w.cap):
        free(w.table[i])
    free(w.table)
    w.table = NULL
    w.cap = 0
    free(w.back)
    w.back = NULL
    bytes_fini(&w.env)
