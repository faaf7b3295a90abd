"""SP messages as WebSocket frames: see fragments.pxd."""

from libc.stdint cimport uint32_t

from mqcore.base.bytes cimport bytes_append
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, MSG_REF, msg_close, msg_copy, msg_data, msg_init, msg_size,
)
from mqcore.base.status cimport MQ_DROPPED, MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.base.yqueue cimport yqueue_front, yqueue_pop
from mqcore.wire.codec cimport HEAD_MAX
from mqcore.wire.encode cimport (
    encode_begin, encode_body, encode_close_piece, encode_end, encode_full, encode_masked,
    encode_put, encode_refers, encode_reserve,
)
from mqcore.wire.sp.join cimport join_keep, join_one, join_open
from mqcore.wire.websocket.frames cimport WS_BINARY, WS_FIN, ws_emit
from mqcore.wire.websocket.mask cimport keys_next, mask_at, mask_bytes, mask_turn
from mqcore.wire.websocket.spws cimport HOP, Spws

cdef enum:
    FRAME_MAX = 1024 * 1024   # nng's limit for one frame
    FRAMES = 24               # of a message that must fit into one batch
    JOINED_MAX = 64 * 1024    # parts up to so many bytes in all are copied into one frame


cdef size_t _emit(
        Spws* s, uint8_t* at, uint8_t first, uint64_t size, uint64_t* mask) noexcept nogil:
    """A frame's header; first: its first byte."""
    cdef uint32_t key = 0
    cdef size_t n
    if s.ws.client:
        key = keys_next(&s.ws.keys)
    n = ws_emit(at, first, size, &key if s.ws.client else NULL)
    at[0] = first
    mask[0] = mask_at(<const uint8_t*> &key, 0)
    return n


cdef size_t _hop_out(Codec* self, uint8_t* at, const Msg* part, uint64_t* mask) noexcept nogil:
    """The count of hops, masked. Its length."""
    cdef uint8_t[4] hop
    if not self.config.hops:
        return 0
    hop[0] = hop[1] = hop[2] = 0
    hop[3] = part.hops + 1 if part.hops < 255 else 255
    mask_bytes(at, hop, HOP, mask[0])         # four bytes: the mask comes round to itself
    return HOP


cdef size_t fragments_head(
        Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil:
    cdef size_t lead = HOP if self.config.hops else 0
    cdef size_t n = _emit(<Spws*> self, at, WS_FIN | WS_BINARY, lead + size, mask)
    return n + _hop_out(self, at + n, part, mask)


cdef int _frame(Spws* s, Batch* b, size_t body, bint last, uint64_t* mask) noexcept nogil:
    """The header of the next frame of the message under way, and in the first one what comes before
    the body, of which the frame has `body` bytes. *mask: for these."""
    cdef uint8_t bits = WS_FIN if last else 0
    cdef size_t front = 0
    cdef size_t n
    if not s.begun:
        bits |= WS_BINARY
        front = s.join.front.n
    if encode_reserve(b, HEAD_MAX + front):
        return MQ_NOMEM
    n = _emit(s, b.buf + b.len, bits, front + body, mask)
    if front:
        mask_bytes(b.buf + b.len + n, s.join.front.at, front, mask[0])
        mask[0] = mask_turn(mask[0], front)
    b.len += n + front
    b.total += n + front
    s.begun = True
    return MQ_OK


cdef int _piece(Spws* s, Batch* b, const Msg* m, size_t n, bint last) noexcept nogil:
    """The next n bytes of a part, as a frame. MQ_FULL: the batch has no space for it. A frame is in
    one batch or in none, since control frames may go out between two batches."""
    cdef Codec* codec = &s.ws.head
    cdef Msg piece = m[0]                     # borrowed as yet
    cdef bint by_reference = False
    cdef uint64_t mask = 0
    if m.kind == MSG_REF:
        piece.u.ref.data += s.at
        piece.u.ref.size = n
        by_reference = encode_refers(codec, &piece)
    if encode_full(codec, b, by_reference):
        return MQ_FULL
    if _frame(s, b, n, last, &mask):
        return MQ_NOMEM
    if by_reference:
        msg_copy(&piece, m)
        piece.u.ref.data += s.at
        piece.u.ref.size = n
        if mask and encode_masked(codec.pool, &piece, mask):
            msg_close(&piece)
            return MQ_NOMEM
        encode_body(b, &piece, True, 0)
    else:
        if encode_reserve(b, n):
            return MQ_NOMEM
        mask_bytes(b.buf + b.len, msg_data(<Msg*> m) + s.at, n, mask)
        b.len += n
        b.total += n
    s.at += n
    return MQ_OK


cdef int _used(Spws* s, Batch* b, Msg* m) noexcept nogil:
    """All of a part is in the batch."""
    if join_keep(&s.ws.head, b, m):
        return MQ_NOMEM
    s.at = 0
    msg_close(m)
    msg_init(m)
    return MQ_OK


cdef int _part(Spws* s, Batch* b, Msg* m, size_t most) noexcept nogil:
    """A part of the body, as frames of at most so many bytes. It stays whole until all of it is in
    the batch: a link that dies in the middle of it leaves it in the pipe."""
    cdef bint more = m.flags & MSG_MORE
    cdef size_t size = msg_size(m)
    cdef size_t n
    cdef int rc
    while s.at < size or not more:            # an empty part in the middle makes no frame
        n = min(size - s.at, most - (0 if s.begun else s.join.front.n))
        rc = _piece(s, b, m, n, not more and s.at + n == size)
        if rc:
            return rc
        if s.at == size:
            break
    return _used(s, b, m)


cdef int _joined(Spws* s, Batch* b, YPipe* src, size_t body) noexcept nogil:
    """All parts of the body as one frame, copied; the last handle is left in the pipe."""
    cdef Msg* m
    cdef bint more = True
    cdef uint64_t mask = 0
    cdef size_t n
    if _frame(s, b, body, True, &mask) or encode_reserve(b, body):
        return MQ_NOMEM
    while more:
        m = yqueue_front(&src.q)
        more = m.flags & MSG_MORE
        n = msg_size(m)
        mask_bytes(b.buf + b.len, msg_data(m), n, mask)
        mask = mask_turn(mask, n)
        b.len += n
        b.total += n
        if _used(s, b, m):
            return MQ_NOMEM
        if more:
            yqueue_pop(&src.q)
    return MQ_OK


cdef int _parts(Spws* s, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    """What is left of a message, each part as frames of its own; the last handle is left."""
    cdef Msg* m
    cdef bint more = True
    cdef size_t n
    cdef int rc
    while more:
        m = yqueue_front(&src.q)
        more = m.flags & MSG_MORE
        n = msg_size(m)
        rc = _part(s, b, m, FRAME_MAX)
        if rc:
            return rc
        size[0] += n
        if more:
            yqueue_pop(&src.q)
    return MQ_OK


cdef int _hop_front(Spws* s, const Msg* m) noexcept nogil:
    """The count of hops as what comes before the body."""
    cdef uint8_t[4] hop
    cdef uint64_t mask = 0
    return bytes_append(&s.join.front, hop, _hop_out(&s.ws.head, hop, m, &mask))


cdef inline bint _one_frame(const Codec* self, const Msg* m) noexcept nogil:
    """A lone part that fits in one frame."""
    return (not m.flags & (MSG_CONTROL | MSG_MORE) and not self.config.words
            and msg_size(m) <= <size_t> FRAME_MAX - HOP)


cdef int fragments_join(Codec* self, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    cdef Spws* s = <Spws*> self
    cdef Msg* m = yqueue_front(&src.q)
    cdef size_t body = 0
    cdef size_t n
    cdef int rc
    size[0] = 0
    if self.mid_out:
        rc = _parts(s, b, src, size)
    elif _one_frame(self, m):
        n = msg_size(m)
        rc = encode_put(self, b, m)
        size[0] = n if rc == MQ_OK else 0
        return rc
    else:
        if encode_full(self, b, True):
            return MQ_FULL
        rc = join_open(&s.join, self, b, src, size, &body)
        if rc:
            return MQ_OK if rc == MQ_DROPPED else rc
        s.begun = False
        s.at = 0
        if _hop_front(s, yqueue_front(&src.q)):
            return MQ_NOMEM
        self.mid_out = True
        if body <= JOINED_MAX:
            size[0] += body
            rc = _joined(s, b, src, body)
        else:
            rc = _parts(s, b, src, size)
    if rc == MQ_OK:
        self.mid_out = False
        encode_end(b, 0)
    return rc


cdef int fragments_one(Codec* self, Batch* b, Msg* part, bint* done) noexcept nogil:
    cdef Spws* s = <Spws*> self
    cdef size_t size = msg_size(part)
    if part.flags & MSG_CONTROL or self.config.words or size <= <size_t> FRAME_MAX - HOP:
        return join_one(&s.join, self, b, part, done)
    encode_begin(self, b)
    s.join.front.n = 0
    s.begun = False
    s.at = 0
    done[0] = (_hop_front(s, part) == MQ_OK
               and _part(s, b, part, max(<size_t> FRAME_MAX, size // FRAMES + 1)) == MQ_OK)
    if not done[0]:
        return MQ_NOMEM                       # an empty batch has space for it
    encode_end(b, 0)
    encode_close_piece(b)
    return MQ_OK
