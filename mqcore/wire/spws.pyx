"""SP over WebSocket: each message is one binary WebSocket message, words and body as over streams.

There is no header and no length: the HTTP upgrade has said which protocols meet, so the handshake
is over when it begins. Parts are joined (join.pyx). nng closes at a frame above 1 MiB, so a larger
message travels in several; one that comes in several is put together (websocket.pyx).

nanomsg hands a PING to the application as a message, so none is ever sent; those that come are
answered.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.bytes cimport bytes_append
from mqcore.base.cursor cimport load_be16, load_be64
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, MSG_REF, Msg, msg_close, msg_copy, msg_data, msg_init,
    msg_size,
)
from mqcore.base.slab cimport Owner
from mqcore.base.status cimport (
    MQ_DONE, MQ_DROPPED, MQ_FULL, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL,
)
from mqcore.base.ypipe cimport YPipe
from mqcore.base.yqueue cimport yqueue_front, yqueue_pop
from mqcore.wire.body cimport body_check, body_open, body_slice, body_take
from mqcore.wire.codec cimport CODEC_ABI, HEAD_MAX, Batch, Codec, Frame, Input
from mqcore.wire.encode cimport (
    encode_begin, encode_body, encode_close_piece, encode_end, encode_full, encode_loop,
    encode_masked, encode_put, encode_refers, encode_reserve,
)
from mqcore.wire.join cimport Join, join_fini, join_keep, join_one, join_open
from mqcore.wire.mask cimport keys_next, mask_at, mask_bytes, mask_turn
from mqcore.wire.ready cimport refuse
from mqcore.wire.sp cimport sp_check
from mqcore.wire.websocket cimport (
    WS_BINARY, WS_FIN, WS_MASKED, WS_TOO_BIG, Ws, WsOps, ws_direct, ws_emit,
    ws_filled, ws_fini, ws_finish, ws_init, ws_next, ws_refused, ws_take,
)
from mqcore.wire.words cimport words_next, words_open, words_take

cdef enum:
    FRAME_MAX = 1024 * 1024   # nng's limit for one frame
    FRAMES = 24               # of a message that must fit into one batch
    JOINED_MAX = 64 * 1024    # parts up to so many bytes in all are copied into one frame
    HOP = 4                   # bytes of a count of hops

cdef enum:                    # of the message that comes in
    FRONT = 0                 # words, or a count of hops
    ENVELOPE = 1              # its words are there, their parts are to be handed out
    SKIP = 2                  # nobody wants it

cdef struct Spws:
    Ws ws
    Join join                 # envelopes both ways
    # -- decoder
    int stage
    uint32_t n_front          # bytes that came before the body
    uint8_t[4] hop            # a count of hops
    # -- encoder: of a message in several frames
    bint begun                # its first frame is in the batch, or was in an earlier one
    size_t at                 # so much of the part in front is too


# -- in -------------------------------------------------------------------------------------------

cdef int _check(Ws* w, uint64_t size) noexcept nogil:
    """The limit holds for the whole message, as over streams."""
    cdef int rc = body_check(&w.head, (<Spws*> w).n_front + size, False)
    if rc == MQ_PROTOCOL:
        w.code = WS_TOO_BIG
    return rc


cdef int _skip(Ws* w, Input* input) noexcept nogil:
    """What is here of a message that nobody wants."""
    cdef size_t n = min(w.frame.left, <uint64_t> (input.end - input.pos))
    input.pos += n
    w.frame.left -= n
    return MQ_NEED_DATA if w.frame.left else MQ_OK


cdef int _words(Spws* s, Input* input, size_t n) noexcept nogil:
    """Of n bytes that are here."""
    cdef uint8_t[4] word
    cdef size_t used = 0
    cdef size_t step
    cdef int rc
    while n:
        step = min(n, <size_t> (4 - (s.join.words.env.n & 3)))    # never beyond the id
        ws_take(&s.ws, input, word, step)
        n -= step
        s.n_front += <uint32_t> step
        rc = words_take(&s.join.words, &s.ws.head, word, step, &used)
        if rc == MQ_OK:
            rc = words_open(&s.join.words, &s.ws.head)
            if rc == MQ_DROPPED:
                s.stage = SKIP
                return _skip(&s.ws, input)
            s.stage = ENVELOPE
            s.ws.started = True
            return rc if rc else MQ_FULL
        if rc != MQ_NEED_DATA:
            return rc
    return MQ_NEED_DATA if s.ws.frame.left else MQ_OK


cdef int _hops(Spws* s, Input* input, size_t n) noexcept nogil:
    n = min(n, <size_t> (HOP - s.n_front))
    ws_take(&s.ws, input, &s.hop[s.n_front], n)
    s.n_front += <uint32_t> n
    if s.n_front < HOP:
        return MQ_NEED_DATA if s.ws.frame.left else MQ_OK
    if s.hop[0] or s.hop[1] or s.hop[2]:
        return refuse(&s.ws.head,
                      "the peer sent a message that has passed more than 255 devices")
    s.ws.started = True
    return MQ_OK


cdef int _front(Ws* w, Input* input) noexcept nogil:
    cdef Spws* s = <Spws*> w
    cdef size_t n = min(w.frame.left, <uint64_t> (input.end - input.pos))
    cdef int rc
    if s.stage == SKIP:
        return _skip(w, input)
    rc = _check(w, w.frame.left)
    if rc:
        return rc
    if w.head.config.words:
        return _words(s, input, n)
    if w.head.config.hops:
        return _hops(s, input, n)
    w.started = True
    return MQ_OK


cdef void _hand_out(Spws* s, Msg* out, size_t* n) noexcept nogil:
    """out[*n] has the body: the message is complete."""
    out[n[0]].hops = s.hop[3]
    n[0] += 1
    s.n_front = 0
    s.stage = FRONT


cdef int _whole(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil:
    cdef uint8_t* at = input.pos
    cdef size_t size = w.frame.left
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef uint64_t mask = w.frame.mask
    cdef Msg* m = &out[n[0]]
    cdef int rc
    if owner != NULL and size > MSG_INLINE_MAX:
        mask_bytes(at, at, size, mask)
        mask = 0
    rc = body_slice(m, w.head.pool, at, size, owner)
    if rc:
        return rc
    if mask:
        mask_bytes(msg_data(m), msg_data(m), size, mask)
    input.pos += size
    _hand_out(<Spws*> w, out, n)
    return MQ_OK


cdef int _open(Ws* w, Input* input) noexcept nogil:
    return body_open(&w.body, w.head.pool, w.head.landing, w.frame.left, input.copy,
                     not w.frame.fin)


cdef int _over(Ws* w, Msg* out, size_t* n) noexcept nogil:
    cdef Spws* s = <Spws*> w
    if s.stage == SKIP:
        s.stage = FRONT
        s.n_front = 0
        return MQ_OK
    if not w.started and w.head.config.words:
        return refuse(&w.head, "the peer sent a message that ends before its request id")
    if not w.started and w.head.config.hops:
        return refuse(&w.head, "the peer sent a message that is too short for its count of hops")
    if w.opened:
        body_take(&w.body, &out[n[0]])
    else:
        msg_init(&out[n[0]])
    _hand_out(s, out, n)
    return MQ_OK


cdef WsOps _MESSAGES
_MESSAGES.front = _front
_MESSAGES.whole = _whole
_MESSAGES.open = _open
_MESSAGES.check = _check
_MESSAGES.over = _over
_MESSAGES.text = "the peer sent text; SP's messages are binary WebSocket messages"


cdef inline bint _short(Ws* w, Input* input, uint64_t small, Msg* m) noexcept nogil:
    """The common case: a small message of a body alone, and so much behind it that a copy of fixed
    size is safe."""
    cdef const uint8_t* at = input.pos
    cdef size_t head = 2 if w.client else 6
    cdef size_t size
    cdef uint64_t mask
    cdef uint64_t* words = <uint64_t*> m.u.inl
    cdef int i
    if input.end - at < 6 + MSG_INLINE_MAX or at[0] != (WS_FIN | WS_BINARY) or w.message:
        return False
    size = at[1] & 127
    if size > small or (at[1] >= WS_MASKED) == w.client:
        return False
    memcpy(m.u.inl, at + head, MSG_INLINE_MAX)
    if not w.client:
        mask = mask_at(at + 2, 0)
        for i in range(MSG_INLINE_MAX // 8):
            words[i] ^= mask
    msg_init(m)
    m.size8 = <uint8_t> size
    input.pos += head + size
    return True


cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Spws* s = <Spws*> self
    cdef bint plain = not self.config.words and not self.config.hops
    cdef uint64_t small = MSG_INLINE_MAX
    cdef int rc
    n[0] = 0
    if 0 <= self.max_message_size < <int64_t> MSG_INLINE_MAX:
        small = self.max_message_size
    while n[0] < cap and not s.ws.ended:
        if s.stage == ENVELOPE:
            rc = words_next(&s.join.words, self, &out[n[0]])
            if rc == MQ_OK:
                n[0] += 1
                continue
            if rc != MQ_DONE:
                return rc
            s.stage = FRONT
        if not s.ws.in_frame and s.ws.n_hold == 0:
            if input.pos == input.end:
                return MQ_NEED_DATA
            if plain and _short(&s.ws, input, small, &out[n[0]]):
                n[0] += 1
                continue
        rc = ws_next(&s.ws, input, out, n)
        if rc and rc != MQ_FULL:
            return ws_refused(&s.ws, rc)
    if not s.ws.ended:
        return MQ_OK
    input.pos = input.end
    return MQ_DONE


# -- out ------------------------------------------------------------------------------------------

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


cdef size_t _head(
        Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil:
    """Of a message in one frame."""
    cdef size_t lead = HOP if self.config.hops else 0
    cdef size_t n = _emit(<Spws*> self, at, WS_FIN | WS_BINARY, lead + size, mask)
    return n + _hop_out(self, at + n, part, mask)


cdef void _frame_out(const Codec* self, const uint8_t* at, Frame* out) noexcept nogil:
    cdef uint8_t size = at[1] & 127
    cdef size_t n = 2 if size < 126 else 4 if size == 126 else 10
    out.size = size if size < 126 else load_be16(at + 2) if size == 126 else load_be64(at + 2)
    out.mask = 0
    out.more = False
    if at[1] & WS_MASKED:
        out.mask = mask_at(at + n, 0)
        n += 4
    if self.config.hops:
        n += HOP
        out.size -= HOP
        out.hops = <uint8_t> ((at[n - 1] ^ (<const uint8_t*> &out.mask)[3]) - 1)
    out.header = n


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
    """The next n bytes of a part, as a frame. MQ_FULL: there is no room for it. A frame is in one
    batch or in none, since control frames may go out between two batches."""
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
    while s.at < size or not more:            # an empty part in the middle is no frame
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


cdef int _join(Codec* self, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    """JoinFn of encode.pxd."""
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


cdef int _encode_one(Codec* self, Batch* b, Msg* part, bint* done) noexcept nogil:
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
        return MQ_NOMEM                       # an empty batch has room for it
    encode_end(b, 0)
    encode_close_piece(b)
    return MQ_OK


cdef inline size_t _small(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    at[0] = WS_FIN | WS_BINARY
    at[1] = part.size8
    memcpy(at + 2, part.u.inl, MSG_INLINE_MAX)    # a fixed size; what follows covers the excess
    return 2 + <size_t> part.size8


cdef inline size_t _small_masked(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    cdef uint32_t key = keys_next(&(<Spws*> self).ws.keys)
    cdef uint64_t mask = mask_at(<const uint8_t*> &key, 0)
    cdef uint64_t[7] words                        # MSG_INLINE_MAX bytes
    cdef int i
    at[0] = WS_FIN | WS_BINARY
    at[1] = WS_MASKED | part.size8
    memcpy(at + 2, &key, 4)
    memcpy(words, part.u.inl, MSG_INLINE_MAX)
    for i in range(MSG_INLINE_MAX // 8):
        words[i] ^= mask
    memcpy(at + 6, words, MSG_INLINE_MAX)
    return 6 + <size_t> part.size8


cdef int _encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    if self.config.words or self.config.hops:
        return encode_loop(self, batch, src, msgs, body, NULL, MSG_CONTROL | MSG_MORE, _join)
    if (<Ws*> self).client:
        return encode_loop(self, batch, src, msgs, body, _small_masked, MSG_CONTROL | MSG_MORE,
                           _join)
    return encode_loop(self, batch, src, msgs, body, _small, MSG_CONTROL | MSG_MORE, _join)


# -- the contract ---------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    return ws_init(<Ws*> self, &_MESSAGES)


cdef void _fini(Codec* self) noexcept nogil:
    join_fini(&(<Spws*> self).join)
    ws_fini(<Ws*> self)


cdef int _start(Codec* self, bint listening) noexcept nogil:
    """Nothing is exchanged: the subprotocol has told who the peer is."""
    cdef Ws* w = <Ws*> self
    if w.traffic:
        return MQ_OK
    w.traffic = True
    w.client = self.masks = not listening
    return sp_check(self, self.config.sp_peer)


cdef int _feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    used[0] = 0
    return MQ_DONE


cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Spws)
_OPS.joins = True
_OPS.keeps = True
_OPS.name = "sp-ws"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = _start
_OPS.feed = _feed
_OPS.decode = _decode
_OPS.direct = ws_direct
_OPS.filled = ws_filled
_OPS.encode = _encode
_OPS.encode_one = _encode_one
_OPS.ping = NULL
_OPS.finish = ws_finish
_OPS.head = _head
_OPS.frame = _frame_out


cdef const CodecOps* sp_ws_ops() noexcept nogil:
    return &_OPS
