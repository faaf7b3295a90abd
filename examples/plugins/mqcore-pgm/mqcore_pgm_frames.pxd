"""Messages to packets and back, in the layout of libzmq's pgm and epgm.

A packet is two bytes, then a piece of a stream of frames. The two bytes (big-endian) are the offset
behind them at which the first message of the packet begins, 0xFFFF if none does. If the packet ends
with the end of a message, that is the place where the next one would begin. A frame is as in
ZMTP 1.0: its length in one byte, or 0xFF and eight bytes (big-endian) from 255 on; one byte of
flags (1: more parts follow), which the length includes; the body. A frame may continue in the next
packet. Frames say nothing about subscriptions.

A receiver that joins, or that has lost a packet, waits for a packet in which a message begins.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.arena cimport arena_cut
from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini
from mqcore.base.message cimport (
    MSG_INLINE_MAX, MSG_MORE, Msg, MsgVec, msg_close, msg_data, msg_init_copy, msg_init_inline,
    msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.slab cimport Owner, Pool
from mqcore.base.status cimport MQ_NOMEM, MQ_OK, MQ_PROTOCOL

cdef enum:
    OFFSET = 2                # bytes before the frames
    NOTHING = 0xffff          # no message begins in this packet
    LONG = 255                # from this size on a frame's length has nine bytes
    MORE = 1
    HEAD_MOST = 10
    FRAME_MOST = 0x7fffffff   # bytes
    ARENA_MAX = 8192          # larger bodies get memory of their own
    KEEP = 64 * 1024          # bytes of memory that a source keeps between frames
    FREE_PARTS = 1 << 20      # bytes of handles that a message may have beyond its limit


cdef struct Reader:           # of all sources
    Pool* pool
    Owner* arena
    MsgVec ready              # parts of whole messages
    size_t at                 # how many of these have been delivered
    int64_t most              # bytes of a message, -1: no limit


cdef struct Source:
    uint64_t tsi
    uint64_t used             # when last, to replace the oldest
    uint32_t last             # sequence number of the last packet
    bint known                # `last` is one
    # after the last packet: what libpgm has given up, as it counts, since when, and how many were
    # reported
    int64_t given_up
    int64_t since
    int64_t reported
    bint joined               # at the border of a message, or inside one
    Bytes frame               # a frame that is not whole
    MsgVec parts              # a message that is not whole
    uint64_t size             # and the bytes of its parts


cdef inline uint64_t source_kept(Source* s) noexcept nogil:
    return s.frame.n + s.size + s.parts.n * sizeof(Msg)


cdef inline void source_leave(Source* s) noexcept nogil:
    """Forget what has begun; join again where a message begins."""
    s.joined = False
    s.size = 0
    s.frame.n = 0
    vec_clear(&s.parts)
    if s.frame.cap > KEEP:
        bytes_fini(&s.frame)


cdef inline void source_fini(Source* s) noexcept nogil:
    bytes_fini(&s.frame)
    vec_fini(&s.parts)


cdef inline int frame_body(Reader* r, Msg* out, const uint8_t* data, size_t size) noexcept nogil:
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, data, size)
        return MQ_OK
    if size > ARENA_MAX:
        return msg_init_copy(out, r.pool, data, size)
    if arena_cut(&r.arena, r.pool, 1, size, out):
        return MQ_NOMEM
    memcpy(out.u.ref.data, data, size)
    return MQ_OK


cdef inline size_t frame_head(const uint8_t* at, size_t n, uint64_t* body) noexcept nogil:
    """Bytes of a frame's head, of which n have come, and of its body. 0: more must come first. A
    frame without flags, or longer than any, has a head of HEAD_MOST + 1."""
    cdef uint64_t length = 0
    cdef int i
    if n == 0 or at[0] == 0xff and n < 9:
        return 0
    if at[0] == 0xff:
        for i in range(1, 9):
            length = length << 8 | at[i]
    else:
        length = at[0]
    if length == 0 or length > FRAME_MOST:
        return HEAD_MOST + 1
    body[0] = length - 1
    return 10 if at[0] == 0xff else 2


cdef inline int source_take(Source* s, Reader* r, uint8_t flags, const uint8_t* data,
                            size_t size) noexcept nogil:
    """One part. MQ_OK, MQ_PROTOCOL: the message is too large; MQ_NOMEM."""
    cdef Msg part
    cdef size_t i
    s.size += size
    if 0 <= r.most and (s.size > <uint64_t> r.most
                        or s.parts.n * sizeof(Msg) > <uint64_t> r.most + FREE_PARTS):
        return MQ_PROTOCOL
    if frame_body(r, &part, data, size):
        return MQ_NOMEM
    if flags & MORE:
        part.flags = MSG_MORE
    if vec_push(&s.parts if flags & MORE else &r.ready, &part):
        msg_close(&part)
        return MQ_NOMEM
    if flags & MORE or not s.parts.n:
        s.size = s.size if flags & MORE else 0
        return MQ_OK
    part = r.ready.at[r.ready.n - 1]      # the last part goes behind the others
    r.ready.n -= 1
    s.size = 0
    for i in range(s.parts.n):
        if vec_push(&r.ready, &s.parts.at[i]):
            r.ready.n -= i
            msg_close(&part)
            return MQ_NOMEM
    if vec_push(&r.ready, &part):
        r.ready.n -= s.parts.n
        msg_close(&part)
        return MQ_NOMEM
    s.parts.n = 0
    return MQ_OK


cdef inline int source_finish_frame(Source* s, Reader* r, const uint8_t** data,
                                    const uint8_t* end) noexcept nogil:
    """Continue the frame under way."""
    cdef uint64_t body = 0
    cdef size_t head = frame_head(s.frame.at, s.frame.n, &body)
    cdef size_t more
    cdef int rc
    while head == 0 and data[0] < end:
        if bytes_append(&s.frame, data[0], 1):
            return MQ_NOMEM
        data[0] += 1
        head = frame_head(s.frame.at, s.frame.n, &body)
    if head > HEAD_MOST or head and 0 <= r.most and body > <uint64_t> r.most:
        return MQ_PROTOCOL
    if head == 0:
        return MQ_OK
    more = <size_t> min(head + body - s.frame.n, <uint64_t> (end - data[0]))
    if bytes_append(&s.frame, data[0], more):
        return MQ_NOMEM
    data[0] += more
    if s.frame.n < head + body:
        return MQ_OK
    rc = source_take(s, r, s.frame.at[head - 1], s.frame.at + head, <size_t> body)
    s.frame.n = 0
    if s.frame.cap > KEEP:
        bytes_fini(&s.frame)
    return rc


cdef inline int source_feed(Source* s, Reader* r, const uint8_t* data,
                            const uint8_t* end) noexcept nogil:
    """The next piece of the stream. MQ_OK; MQ_PROTOCOL: it has no such layout, or a message is too
    large; MQ_NOMEM."""
    cdef uint64_t body = 0
    cdef size_t head
    cdef int rc = MQ_OK
    while data < end and rc == MQ_OK:
        if s.frame.n:
            rc = source_finish_frame(s, r, &data, end)
            continue
        head = frame_head(data, <size_t> (end - data), &body)
        if head > HEAD_MOST:
            return MQ_PROTOCOL
        if head == 0 or <uint64_t> (end - data) < head or <uint64_t> (end - data) - head < body:
            rc = source_finish_frame(s, r, &data, end)
            continue
        rc = source_take(s, r, data[head - 1], data + head, <size_t> body)
        data += head + body
    return rc


# -- out -------------------------------------------------------------------------------------------

cdef struct Writer:
    uint8_t* packet
    size_t cap                # bytes of a packet
    size_t n                  # bytes that it has, OFFSET: none
    uint32_t offset
    int64_t ends              # messages that end in it
    MsgVec message            # that is being packed
    size_t part
    size_t at                 # bytes of this part that are packed, with its head


cdef inline bint writer_busy(Writer* w) noexcept nogil:
    return w.message.n != 0


cdef inline void writer_begin(Writer* w) noexcept nogil:
    """An empty packet."""
    w.n = OFFSET
    w.offset = NOTHING
    w.ends = 0


cdef inline void writer_border(Writer* w) noexcept nogil:
    """A message begins here, or would."""
    if w.offset == NOTHING:
        w.offset = <uint32_t> (w.n - OFFSET)


cdef inline void writer_close(Writer* w) noexcept nogil:
    """The packet is complete."""
    if not writer_busy(w):
        writer_border(w)
    w.packet[0] = <uint8_t> (w.offset >> 8)
    w.packet[1] = <uint8_t> w.offset


cdef inline size_t frame_head_of(uint8_t* head, uint64_t size, bint more) noexcept nogil:
    cdef uint64_t length = size + 1
    cdef int i
    if length < LONG:
        head[0] = <uint8_t> length
        head[1] = MORE if more else 0
        return 2
    head[0] = 0xff
    for i in range(8):
        head[1 + i] = <uint8_t> (length >> (56 - 8 * i))
    head[9] = MORE if more else 0
    return 10


cdef inline void writer_put(Writer* w, const uint8_t* data, size_t size,
                            size_t before) noexcept nogil:
    """Of a piece of a part, what fits. `before`: bytes of the part in front of that piece."""
    cdef size_t done = w.at - before
    cdef size_t n = min(size - done, w.cap - w.n)
    if n:
        memcpy(w.packet + w.n, data + done, n)
    w.n += n
    w.at += n


cdef inline void writer_fill(Writer* w) noexcept nogil:
    """Pack of the message under way what fits. Afterwards either the packet is full, or the
    message is packed."""
    cdef uint8_t[HEAD_MOST] head
    cdef Msg* m
    cdef size_t size
    if w.part == 0 and w.at == 0:
        writer_border(w)
    while w.part < w.message.n:
        m = &w.message.at[w.part]
        size = frame_head_of(head, msg_size(m), w.part + 1 < w.message.n)
        if w.at < size:
            writer_put(w, head, size, 0)
        if w.at >= size:
            writer_put(w, msg_data(m), msg_size(m), size)
        if w.at < size + msg_size(m):
            return
        w.part += 1
        w.at = 0
    vec_clear(&w.message)
    w.part = 0
    w.ends += 1
