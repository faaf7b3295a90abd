"""Messages to pieces of a stream and back.

A stream is a row of messages. Numbers are big-endian:

    4 bytes   size of the parts with their heads
    8 bytes   number of the message: 0, 1, 2 ... of each source
    for each part
        4 bytes   its length; the first bit is 1 if more parts follow
        n bytes   the part

With size 0 this is a beat: no message, and the number is that of the next one. What is between two
numbers is lost. A stream is cut into pieces. A receiver that joins, or that has lost something,
waits for a piece that is marked because a message begins with it. A piece in which a message ends
that began in an earlier one ends there, too, so that the next message is marked.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from mqcore.base.arena cimport arena_cut, arena_end
from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini
from mqcore.base.message cimport (
    MSG_INLINE_MAX, MSG_MORE, Msg, MsgVec, msg_close, msg_data, msg_init_copy, msg_init_inline,
    msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.slab cimport Owner, Pool
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.spi.sequence cimport Sequence, sequence_begin, sequence_gap

cdef enum:
    HEAD = 12
    PART = 4
    MORE = 0x80000000
    FREE_PARTS = 1 << 20      # bytes of heads that a message may have beyond its limit
    ARENA_MAX = 8192          # larger bodies get memory of their own
    KEEP = 64 * 1024          # bytes of memory that a source keeps between messages
    LOST = -1                 # of source_next


cdef inline uint64_t big_endian(const uint8_t* at, int n) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(n):
        value = value << 8 | at[i]
    return value


cdef inline void put_big_endian(uint8_t* at, int n, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(n):
        at[i] = <uint8_t> (value >> (8 * (n - 1 - i)))


# -- in --------------------------------------------------------------------------------------------

cdef struct Reader:           # of all sources
    Pool* pool
    Owner* arena
    MsgVec ready              # parts of whole messages
    size_t at                 # how many of these have been delivered
    int64_t most              # bytes of a message, -1: no limit


cdef struct Source:
    uint32_t node
    uint64_t used             # when last, to replace the oldest
    Sequence order            # of the numbers of its messages
    bint joined               # what follows is a message, or the rest of one
    bint asked                # for a piece to join with
    Bytes kept                # of the stream, what is not delivered
    size_t skip               # bytes that follow, of a message that is too large


cdef inline uint64_t source_kept(Source* s) noexcept nogil:
    return s.kept.n


cdef inline void source_leave(Source* s) noexcept nogil:
    """Forget what has begun; join again where a message begins."""
    s.joined = False
    s.skip = 0
    s.kept.n = 0
    if s.kept.cap > KEEP:
        bytes_fini(&s.kept)


cdef inline void source_fini(Source* s) noexcept nogil:
    bytes_fini(&s.kept)


cdef inline void reader_fini(Reader* r) noexcept nogil:
    while r.at < r.ready.n:
        msg_close(&r.ready.at[r.at])
        r.at += 1
    r.ready.n = 0
    vec_fini(&r.ready)
    arena_end(&r.arena)


cdef inline int source_feed(Source* s, const uint8_t* data, size_t size) noexcept nogil:
    """The next piece. MQ_OK, MQ_NOMEM."""
    cdef size_t skipped = min(s.skip, size)
    if not s.joined:
        return MQ_OK
    s.skip -= skipped
    return MQ_NOMEM if bytes_append(&s.kept, data + skipped, size - skipped) else MQ_OK


cdef inline int body_of(Reader* r, Msg* out, const uint8_t* data, size_t size) noexcept nogil:
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, data, size)
        return MQ_OK
    if size > ARENA_MAX:
        return msg_init_copy(out, r.pool, data, size)
    if arena_cut(&r.arena, r.pool, 1, size, out):
        return MQ_NOMEM
    memcpy(out.u.ref.data, data, size)
    return MQ_OK


cdef inline int64_t bodies_of(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Bytes of all parts. -1: they are none, the last one, and only that, must say that no other
    follows."""
    cdef int64_t bodies = 0
    cdef uint64_t size
    while end - at >= PART:
        size = big_endian(at, PART)
        at += PART
        if (size & ~<uint64_t> MORE) > <uint64_t> (end - at):
            return -1
        at += size & ~<uint64_t> MORE
        bodies += <int64_t> (size & ~<uint64_t> MORE)
        if not size & MORE:
            return bodies if at == end else -1
    return -1


cdef inline int take_parts(Reader* r, const uint8_t* at, const uint8_t* end) noexcept nogil:
    """All of a message, or MQ_NOMEM and none."""
    cdef size_t before = r.ready.n
    cdef uint64_t size
    cdef Msg part
    while at < end:
        size = big_endian(at, PART)
        at += PART
        if body_of(r, &part, at, size & ~<uint64_t> MORE):
            break
        if size & MORE:
            part.flags = MSG_MORE
        if vec_push(&r.ready, &part):
            msg_close(&part)
            break
        at += size & ~<uint64_t> MORE
    else:
        return MQ_OK
    while r.ready.n > before:
        r.ready.n -= 1
        msg_close(&r.ready.at[r.ready.n])
    return MQ_NOMEM


cdef inline void source_cut(Source* s, size_t n) noexcept nogil:
    """Bytes that are not needed any more."""
    if n:
        memmove(s.kept.at, s.kept.at + n, s.kept.n - n)
    s.kept.n -= n
    if s.kept.n == 0 and s.kept.cap > KEEP:
        bytes_fini(&s.kept)


cdef inline int source_next(Source* s, Reader* r, int64_t* lost, int64_t* malformed) noexcept nogil:
    """What is whole, into `ready`. MQ_OK; MQ_NOMEM. LOST: *lost messages are; call again."""
    cdef size_t at = 0
    cdef size_t whole
    cdef uint64_t size, number
    cdef int64_t bodies, gap
    cdef const uint8_t* body
    cdef int rc = MQ_OK
    while s.kept.n - at >= HEAD:
        size = big_endian(s.kept.at + at, 4)
        number = big_endian(s.kept.at + at + 4, 8)
        whole = <size_t> min(HEAD + size, <uint64_t> (s.kept.n - at))
        body = s.kept.at + at + HEAD
        bodies = 0
        if whole == HEAD + size:
            bodies = bodies_of(body, body + size) if size else 0
        elif 0 <= r.most and size > <uint64_t> r.most + FREE_PARTS:
            bodies = <int64_t> size
        else:
            sequence_begin(&s.order, number)
            break
        if bodies < 0:
            malformed[0] += 1
            s.order.due += number == s.order.due
            source_leave(s)
            return MQ_OK
        gap = sequence_gap(&s.order, number, size != 0, malformed)
        if gap > 0:
            lost[0] = gap
            rc = LOST
            break
        if gap == 0 and size and not 0 <= r.most < bodies:
            rc = take_parts(r, body, body + size)
            if rc:
                break
        s.skip = HEAD + <size_t> size - whole
        at += whole
        if gap < 0 or size == 0:
            continue
        s.order.due += 1
        if 0 <= r.most < bodies:
            lost[0] = 1
            rc = LOST
            break
    source_cut(s, at)
    return rc


# -- out -------------------------------------------------------------------------------------------

cdef struct Writer:
    uint8_t* packet
    size_t cap                # bytes of a packet
    size_t n                  # bytes that it has
    bint begins               # a message begins with the piece
    bint rest                 # the piece begins inside a message
    int64_t ends              # messages that end in it
    MsgVec message            # that is being packed
    uint32_t size             # of it
    uint64_t number           # of it, or of the next one
    size_t part
    size_t at                 # bytes of this part that are packed, with what is in front of it


cdef inline bint writer_busy(Writer* w) noexcept nogil:
    return w.message.n != 0


cdef inline void writer_fini(Writer* w) noexcept nogil:
    free(w.packet)
    vec_fini(&w.message)


cdef inline void writer_begin(Writer* w, size_t front) noexcept nogil:
    """An empty packet, with `front` bytes before the piece."""
    w.n = front
    w.begins = w.rest = False
    w.ends = 0


cdef inline void writer_head(Writer* w, uint8_t* head, uint32_t size) noexcept nogil:
    put_big_endian(head, 4, size)
    put_big_endian(head + 4, 8, w.number)


cdef inline void writer_beat(Writer* w) noexcept nogil:
    """Into an empty packet."""
    writer_head(w, w.packet + w.n, 0)
    w.n += HEAD
    w.begins = True


cdef inline void writer_put(Writer* w, const uint8_t* data, size_t size,
                            size_t before) noexcept nogil:
    """Of a piece of a part, what fits. before: bytes of the part in front of that piece."""
    cdef size_t done = w.at - before
    cdef size_t n = min(size - done, w.cap - w.n)
    if n:
        memcpy(w.packet + w.n, data + done, n)
    w.n += n
    w.at += n


cdef inline bint writer_fill(Writer* w, size_t front) noexcept nogil:
    """Pack of the message under way what fits. Whether the packet must leave now."""
    cdef uint8_t[HEAD + PART] head
    cdef size_t size, at
    cdef Msg* m
    if w.n == front:
        w.begins = w.part == 0 and w.at == 0
        w.rest = not w.begins
    elif w.part == 0 and w.at == 0 and w.cap - w.n < HEAD + w.size <= w.cap - front:
        return True           # it fits into a packet of its own
    while w.part < w.message.n:
        m = &w.message.at[w.part]
        at = 0
        if w.part == 0:
            writer_head(w, head, w.size)
            at = HEAD
        size = msg_size(m)
        put_big_endian(head + at, 4, size | (MORE if w.part + 1 < w.message.n else 0))
        at += PART
        if w.at < at:
            writer_put(w, head, at, 0)
        if w.at >= at:
            writer_put(w, msg_data(m), size, at)
        if w.at < at + size:
            return True
        w.part += 1
        w.at = 0
    vec_clear(&w.message)
    w.part = 0
    w.number += 1
    w.ends += 1
    return w.rest or w.n == w.cap
