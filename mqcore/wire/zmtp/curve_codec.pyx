"""ZMTP's traffic behind CURVE: each part, and each command, is a MESSAGE.

    frame   flags length  07 MESSAGE  nonce(8)  MAC(16)  sealed: flags(1) body
                                                         flags: 1 more, 2 command

The frame itself carries no flags of ZMTP. A part is decrypted in place, in the slab that was read
into, and delivered as a slice of it. It is encrypted in the batch that it was copied into. Larger
bodies are encrypted into memory of their own.

The sender's count is in the nonce and must grow, so nothing encrypted may overtake what was
encrypted before. So our own responses (PONG, PING) wait in `owed`, unencrypted, and go into the
next batch. The contents of a batch cannot be read back cheaply, so its messages are kept beside it
(Batch.kept) until it is written.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.base.body cimport Body, body_drop, body_take
from mqcore.base.bytes cimport bytes_append
from mqcore.base.cursor cimport load_be64, store_be16, store_be64
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, MSG_REF, MSG_SUBSCRIBE, Msg, msg_close, msg_data,
    msg_init_inline, msg_init_ref, msg_size,
)
from mqcore.base.slab cimport Owner, heap_new, owner_data, owner_release
from mqcore.base.sodium cimport MAC, NONCE, sodium
from mqcore.base.status cimport (
    MQ_FULL, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL,
)
from mqcore.base.ypipe cimport YPipe
from mqcore.base.yqueue cimport yqueue_front
from mqcore.wire.codec cimport CODEC_ABI, CTL_MAX, HEAD_MAX, Batch, Codec, CodecOps, Frame, Input
from mqcore.wire.decode cimport (
    decode_check, decode_direct, decode_fill, decode_filled, decode_open, decode_slice,
    decode_under_way,
)
from mqcore.wire.zmtp.command cimport command_obey, interest_name, ping_ttl
from mqcore.wire.zmtp.curve cimport MESSAGE_LEAD, Curve, curve_forget, curve_nonce, curve_ops
from mqcore.wire.encode cimport (
    encode_begin, encode_body, encode_close_piece, encode_end, encode_full, encode_loop,
    encode_refers, encode_reserve,
)
from mqcore.wire.zmtp.greeting cimport greeting_feed, greeting_start
from mqcore.wire.sp.join cimport join_keep
from mqcore.wire.zmtp.mechanism cimport FRAME_COMMAND, FRAME_LONG
from mqcore.wire.zmtp.ready cimport refuse
from mqcore.wire.zmtp.codec cimport zmtp_fini, zmtp_judged

cdef enum:
    INNER_MORE = 1            # the same bit as MSG_MORE
    INNER_COMMAND = 2
    NAME = 8                  # "MESSAGE", its length first


# -- in --------------------------------------------------------------------------------------------

cdef int _unseal(Curve* c, uint8_t* at, size_t size) noexcept nogil:
    """Open a MESSAGE where it lies: its flags are at[32] then, its body behind them."""
    cdef uint8_t[NONCE] nonce
    cdef uint64_t number
    if size < MESSAGE_LEAD or memcmp(at, b"\x07MESSAGE", NAME) != 0:
        return refuse(&c.z.head, "the peer sent something in the clear")
    number = load_be64(at + NAME)
    if number <= c.heard:
        return refuse(&c.z.head, "the peer sent a message whose nonce does not grow: replayed")
    curve_nonce(nonce, "CurveZMQMESSAGEC" if c.z.head.security.server else "CurveZMQMESSAGES",
                number)
    if c.na.unseal(at + MESSAGE_LEAD - 1, at + MESSAGE_LEAD - 1, at + NAME + 8,
                   size - MESSAGE_LEAD + 1, nonce, c.key):
        return refuse(&c.z.head, "the peer sent a message that does not open: forged or damaged")
    c.heard = number
    return MQ_OK


cdef int _pong(Codec* codec, const uint8_t* pong, size_t size) noexcept nogil:
    """PongFn of command.pxd: sealed later."""
    cdef uint8_t length = <uint8_t> size
    cdef int rc
    if codec.owed.n > CTL_MAX:
        return MQ_OK
    rc = bytes_append(&codec.owed, &length, 1)
    return rc if rc else bytes_append(&codec.owed, pong, size)


cdef int _opened(Curve* c, uint8_t* at, size_t size, uint8_t* flags) noexcept nogil:
    """Open it, and look at what can be seen only now. *flags: of the part inside."""
    cdef int rc = _unseal(c, at, size)
    if rc:
        return rc
    flags[0] = at[MESSAGE_LEAD - 1]
    if flags[0] & INNER_COMMAND:
        return MQ_OK
    return decode_check(&c.z.head, size - MESSAGE_LEAD, False)


cdef int _whole(Curve* c, Input* input, size_t size, Msg* out, size_t* n) noexcept nogil:
    """A MESSAGE of `size` bytes lies in the input."""
    cdef uint8_t* at = input.pos
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef uint8_t flags = 0
    cdef int rc = _opened(c, at, size, &flags)
    input.pos = at + size
    if rc:
        return rc
    at += MESSAGE_LEAD
    size -= MESSAGE_LEAD
    if flags & INNER_COMMAND:
        return command_obey(&c.z.head, at, size, owner, out, n, _pong)
    rc = decode_slice(&out[n[0]], c.z.head.pool, at, size, owner)
    if rc == MQ_OK:
        c.z.head.mid_in = flags & INNER_MORE
        out[n[0]].flags = flags & INNER_MORE
        n[0] += 1
    return rc


cdef int _gathered(Curve* c, Msg* out, size_t* n) noexcept nogil:
    """The MESSAGE under way is complete, in memory of its own."""
    cdef Msg* part = &c.z.head.body.part
    cdef uint8_t* at = msg_data(part)
    cdef size_t size = c.z.head.body.size - MESSAGE_LEAD
    cdef Owner* owner = part.u.ref.owner if part.kind == MSG_REF else <Owner*> NULL
    cdef uint8_t flags = 0
    cdef Msg whole
    cdef int rc = _opened(c, at, c.z.head.body.size, &flags)
    if rc == MQ_OK and not flags & INNER_COMMAND:
        c.z.head.mid_in = flags & INNER_MORE
        body_take(&c.z.head.body, &whole)
        _shift(&whole, &out[n[0]], size)
        out[n[0]].flags = flags & INNER_MORE
        n[0] += 1
        return MQ_OK
    if rc == MQ_OK:
        rc = command_obey(&c.z.head, at + MESSAGE_LEAD, size, owner, out, n, _pong)
    body_drop(&c.z.head.body)
    return rc


cdef void _shift(Msg* part, Msg* out, size_t size) noexcept nogil:
    """The body behind what stands in front of it in a MESSAGE; moved to out."""
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, msg_data(part) + MESSAGE_LEAD, size)
        msg_close(part)
    else:
        out[0] = part[0]
        out.u.ref.data += MESSAGE_LEAD
        out.u.ref.size = size


cdef int _parse(Curve* c, const uint8_t* at, size_t n, uint64_t* size) noexcept nogil:
    """A frame's header of n bytes so far. Its length; 0: cut off; -1: refused."""
    if n == 0:
        return 0
    # the specification has MESSAGE as a command, libzmq sends it as a message: both are known
    if at[0] & ~(FRAME_LONG | FRAME_COMMAND):
        refuse(&c.z.head, "the peer sent something in the clear")
        return -1
    if n < 2:
        return 0
    if not at[0] & FRAME_LONG:
        size[0] = at[1]
        return 2
    if n < 9:
        return 0
    size[0] = load_be64(at + 1)
    return 9


cdef int _frame(Curve* c, Input* input, uint64_t size, Msg* out, size_t* n) noexcept nogil:
    """A frame whose header is behind us."""
    cdef int rc
    if size < MESSAGE_LEAD:
        return refuse(&c.z.head, "the peer sent something in the clear")
    rc = decode_check(&c.z.head, size if size >> 63 else size - MESSAGE_LEAD, True)
    if rc:
        return rc
    if size <= <uint64_t> (input.end - input.pos):
        return _whole(c, input, size, out, n)
    rc = decode_open(&c.z.head, input, size, True, False)
    return rc if rc else decode_fill(&c.z.head.body, input)


cdef int _header(Curve* c, Input* input, Msg* out, size_t* n) noexcept nogil:
    """The next frame, whose header may be cut off: then it stays in `hold`."""
    cdef uint64_t size = 0
    cdef int length
    if c.z.n_hold == 0:
        length = _parse(c, input.pos, input.end - input.pos, &size)
        if length:
            input.pos += max(length, 0)
            return MQ_PROTOCOL if length < 0 else _frame(c, input, size, out, n)
    while input.pos < input.end:
        c.z.hold[c.z.n_hold] = input.pos[0]
        c.z.n_hold += 1
        input.pos += 1
        length = _parse(c, c.z.hold, c.z.n_hold, &size)
        if length:
            c.z.n_hold = 0
            return MQ_PROTOCOL if length < 0 else _frame(c, input, size, out, n)
    return MQ_NEED_DATA


cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Curve* c = <Curve*> self
    cdef Body* body = &self.body
    cdef int rc = MQ_OK
    n[0] = 0
    while rc == MQ_OK and n[0] < cap:
        if body.busy:
            rc = decode_fill(body, input)
            if rc == MQ_OK:
                rc = MQ_NEED_DATA if body.got < body.size else _gathered(c, out, n)
        elif input.pos == input.end:
            return MQ_NEED_DATA
        else:
            rc = _header(c, input, out, n)
    return rc


# -- out -------------------------------------------------------------------------------------------

cdef size_t _lead(Curve* c, uint8_t* at, uint8_t flags, size_t size, uint8_t* nonce) noexcept nogil:
    """Everything in front of a body of `size` bytes, its MAC still to be made; and its nonce."""
    cdef size_t n = 2
    size += MESSAGE_LEAD
    if size <= 255:
        at[0] = 0
        at[1] = <uint8_t> size
    else:
        at[0] = FRAME_LONG
        store_be64(at + 1, size)
        n = 9
    c.said += 1
    memcpy(at + n, b"\x07MESSAGE", NAME)
    store_be64(at + n + NAME, c.said)
    curve_nonce(nonce, "CurveZMQMESSAGES" if c.z.head.security.server else "CurveZMQMESSAGEC",
                c.said)
    at[n + MESSAGE_LEAD - 1] = flags
    return n + MESSAGE_LEAD


cdef int _put_large(Curve* c, Batch* b, Msg* m, uint8_t flags) noexcept nogil:
    """A body that travels by reference, sealed into memory of its own; the byte in front of it is
    for its flags, which are sealed with it."""
    cdef uint8_t[NONCE] nonce
    cdef size_t size = msg_size(m)
    cdef uint8_t* at = b.buf + b.len
    cdef Owner* owner = heap_new(c.z.head.pool, size + 1)
    cdef uint8_t* text
    cdef size_t n
    if owner == NULL:
        return MQ_NOMEM
    if join_keep(&c.z.head, b, m):
        owner_release(owner)
        return MQ_NOMEM
    text = owner_data(owner)
    n = _lead(c, at, flags, size, nonce)
    text[0] = flags
    memcpy(text + 1, m.u.ref.data, size)
    c.na.seal(text, at + n - 1 - MAC, text, size + 1, nonce, c.key)
    at[n - 1] = text[0]
    b.len += n
    b.total += n
    msg_close(m)
    msg_init_ref(m, owner, text + 1, size)
    encode_body(b, m, True, 0)
    return MQ_OK


cdef int _put(Curve* c, Batch* b, Msg* m) noexcept nogil:
    """One part into the batch. MQ_OK; MQ_FULL, MQ_NOMEM: m is untouched."""
    cdef Codec* head = &c.z.head
    cdef bint control = m.flags & MSG_CONTROL
    cdef bint large = encode_refers(head, m) and not control
    cdef uint8_t flags = m.flags
    cdef size_t size = msg_size(m)
    cdef uint8_t inner = flags & MSG_MORE
    cdef const uint8_t* name = NULL
    cdef size_t name_size = 0
    cdef uint8_t[NONCE] nonce
    cdef uint8_t* at
    cdef size_t n
    if control and (c.z.subscribes or head.config.groups):
        name = <const uint8_t*> interest_name(head, flags & MSG_SUBSCRIBE)
        name_size = name[0] + 1
        inner = INNER_COMMAND
    elif control:             # a peer of 3.0
        name = b"\x01" if flags & MSG_SUBSCRIBE else b"\x00"
        name_size = 1
        inner = 0
    if encode_full(head, b, large):
        return MQ_FULL
    if encode_reserve(b, HEAD_MAX + MESSAGE_LEAD + name_size + (0 if large else size)):
        return MQ_NOMEM
    if large:
        if _put_large(c, b, m, inner):
            return MQ_NOMEM
    else:
        if not control and join_keep(head, b, m):
            return MQ_NOMEM
        at = b.buf + b.len
        n = _lead(c, at, inner, name_size + size, nonce)
        if name_size:
            memcpy(at + n, name, name_size)
        b.len += n + name_size
        b.total += n + name_size
        encode_body(b, m, False, 0)
        at += n - 1
        c.na.seal(at, at - MAC, at, 1 + name_size + size, nonce, c.key)
    head.mid_out = flags & MSG_MORE and not control
    if not head.mid_out:
        encode_end(b, flags)
    return MQ_OK


cdef int _next(Codec* self, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    """JoinFn of encode.pxd, of one part: the loop pops it."""
    cdef Msg* m = yqueue_front(&src.q)
    cdef size_t n = msg_size(m)
    cdef int rc = _put(<Curve*> self, b, m)
    size[0] = n if rc == MQ_OK else 0
    return rc


cdef int _encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    return encode_loop(self, batch, src, msgs, body, NULL, 0, _next)


cdef int _encode_one(Codec* self, Batch* batch, Msg* part, bint* done) noexcept nogil:
    cdef int rc
    encode_begin(self, batch)
    rc = _put(<Curve*> self, batch, part)
    encode_close_piece(batch)
    done[0] = rc == MQ_OK
    return MQ_NOMEM if rc == MQ_NOMEM else MQ_OK


cdef int _pay(Codec* self, Batch* b) noexcept nogil:
    cdef Curve* c = <Curve*> self
    cdef uint8_t[NONCE] nonce
    cdef size_t at = 0
    cdef size_t size
    cdef size_t n
    cdef uint8_t* out
    if self.mid_out:
        return MQ_OK
    encode_begin(self, b)
    while at < self.owed.n:
        size = self.owed.at[at]
        if encode_reserve(b, HEAD_MAX + MESSAGE_LEAD + size):
            return MQ_NOMEM
        out = b.buf + b.len
        n = _lead(c, out, INNER_COMMAND, size, nonce)
        memcpy(out + n, self.owed.at + at + 1, size)
        c.na.seal(out + n - 1, out + n - 1 - MAC, out + n - 1, size + 1, nonce, c.key)
        b.len += n + size
        b.total += n + size
        encode_end(b, MSG_CONTROL)
        at += 1 + size
    encode_close_piece(b)
    self.owed.n = 0
    return MQ_OK


cdef int _ping(Codec* self, uint32_t ttl) noexcept nogil:
    cdef uint8_t[8] frame
    memcpy(frame, b"\x07\x04PING", 6)
    store_be16(&frame[6], ping_ttl(ttl))
    return bytes_append(&self.owed, frame, 8)


cdef void _frame_out(const Codec* self, const uint8_t* at, Frame* out) noexcept nogil:
    """For commands alone: the batch keeps what else is in it."""
    out.header = 9 if at[0] & FRAME_LONG else 2
    out.size = load_be64(at + 1) if at[0] & FRAME_LONG else at[1]
    out.mask = 0
    out.more = False


# -- the table -------------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    cdef Curve* c = <Curve*> self
    c.na = sodium()
    c.z.mechanism = curve_ops()
    self.masks = True         # bodies are copied anyway, so more of them may be
    return MQ_OK


cdef void _fini(Codec* self) noexcept nogil:
    curve_forget(<Curve*> self)
    zmtp_fini(self)


cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Curve)
_OPS.keeps = True
_OPS.name = "zmtp-curve"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = greeting_start
_OPS.feed = greeting_feed
_OPS.judged = zmtp_judged
_OPS.decode = _decode
_OPS.direct = decode_direct
_OPS.filled = decode_filled
_OPS.under_way = decode_under_way
_OPS.encode = _encode
_OPS.encode_one = _encode_one
_OPS.pay = _pay
_OPS.ping = _ping
_OPS.finish = NULL
_OPS.head = NULL
_OPS.frame = _frame_out


cdef const CodecOps* zmtp_curve_ops() noexcept nogil:
    return &_OPS
