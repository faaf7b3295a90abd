"""WebSocket's frames and the life of a connection of them: see frames.pxd."""

from libc.stdio cimport snprintf
from libc.string cimport strlen

from mqcore.base.body cimport body_extend
from mqcore.base.bytes cimport bytes_reserve
from mqcore.base.cursor cimport load_be16, load_be64
from mqcore.base.message cimport MSG_INLINE_MAX, msg_data
from mqcore.base.slab cimport Owner
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.wire.codec cimport CTL_MAX, codec_fini
from mqcore.wire.decode cimport (
    DIRECT_MIN, decode_direct, decode_fill, decode_open, decode_slice,
)
from mqcore.wire.websocket.mask cimport keys_init, keys_next, mask_at, mask_bytes, mask_turn
from mqcore.wire.zmtp.ready cimport printable, refuse

cdef enum:
    CLOSE_NORMAL = 1000       # RFC 6455, section 7.4.1
    CLOSE_PROTOCOL = 1002
    CLOSE_TEXT = 1003


cdef int ws_init(Ws* w, const WsOps* ops) noexcept nogil:
    w.ops = ops
    return keys_init(&w.keys)


cdef void ws_fini(Ws* w) noexcept nogil:
    codec_fini(&w.head)


# -- what we say ----------------------------------------------------------------------------------

cdef int ws_say(Ws* w, uint8_t opcode, const uint8_t* data, size_t n) noexcept nogil:
    cdef uint8_t* at
    cdef uint32_t key
    cdef size_t head
    if bytes_reserve(&w.head.ctl, WS_HEADER_MAX + n):
        return MQ_NOMEM
    at = w.head.ctl.at + w.head.ctl.n
    if w.client:
        key = keys_next(&w.keys)
        head = ws_emit(at, opcode, n, &key)
        mask_bytes(at + head, data, n, mask_at(<const uint8_t*> &key, 0))
    else:
        head = ws_emit(at, opcode, n, NULL)
        mask_bytes(at + head, data, n, 0)
    w.head.ctl.n += head + n
    return MQ_OK


cdef int ws_say_close(Ws* w, uint16_t code, const char* text) noexcept nogil:
    cdef uint8_t[WS_CONTROL_MAX] payload
    cdef size_t n = min(strlen(text), <size_t> WS_CONTROL_MAX - 2)
    if w.ending:
        return MQ_OK
    w.ending = True
    store_be16(payload, code)
    memcpy(&payload[2], text, n)
    return ws_say(w, WS_CLOSE, payload, 2 + n)


cdef int ws_finish(Codec* self) noexcept nogil:
    return ws_say_close(<Ws*> self, CLOSE_NORMAL, b"")


cdef int ws_refused(Ws* w, int rc) noexcept nogil:
    if rc == MQ_PROTOCOL:
        ws_say_close(w, w.code if w.code else CLOSE_PROTOCOL, w.head.reason)
    return rc


# -- headers --------------------------------------------------------------------------------------

cdef int _first(Codec* c, const uint8_t* at, bint masked) noexcept nogil:
    """What the first two bytes must be. 0, or -1 with the reason set."""
    cdef uint8_t opcode = at[0] & 15
    cdef const char* reason = NULL
    if at[0] & 0x70:
        reason = "the peer set a reserved bit of a WebSocket frame: no extension was agreed on"
    elif opcode > WS_PONG or WS_BINARY < opcode < WS_CLOSE:
        reason = "the peer sent a WebSocket frame of an unknown kind"
    elif (at[1] >= WS_MASKED) != masked:
        reason = ("the peer sent a frame without a mask, which a WebSocket client must not"
                  if masked else
                  "the peer sent a masked frame, which a WebSocket server must not")
    elif opcode & WS_CONTROL and not at[0] & WS_FIN:
        reason = "the peer sent a WebSocket control frame in pieces"
    elif opcode & WS_CONTROL and at[1] & 127 > WS_CONTROL_MAX:
        reason = "the peer sent a WebSocket control frame of more than 125 bytes"
    if reason == NULL:
        return 0
    refuse(c, reason)
    return -1


cdef int _parse(
        Codec* c, const uint8_t* at, size_t n, bint masked, WsFrame* f) noexcept nogil:
    """Parse a frame's header of n bytes so far; `masked`: the peer is a client. Returns its length;
    0: incomplete; -1: refused, the reason is set."""
    cdef uint8_t short_size
    cdef int length = 2
    if n < 2:
        return 0
    if _first(c, at, masked):
        return -1
    short_size = at[1] & 127
    length += (0 if short_size < 126 else 2 if short_size == 126 else 8) + (4 if masked else 0)
    if n < <size_t> length:
        return 0
    f.fin = at[0] & WS_FIN
    f.opcode = at[0] & 15
    f.left = short_size
    if short_size == 126:
        f.left = load_be16(at + 2)
    elif short_size == 127:
        f.left = load_be64(at + 2)
    if f.left >> 63:
        refuse(c, "the peer announced a WebSocket frame of 2^63 bytes or more")
        return -1
    if short_size >= 126 and f.left <= (125 if short_size == 126 else 0xffff):
        refuse(c, "the peer wrote a WebSocket frame's length longer than need be")
        return -1
    f.mask = mask_at(at + length - 4, 0) if masked else 0
    return length


# -- control frames -------------------------------------------------------------------------------

cdef int _closed(Ws* w) noexcept nogil:
    """The peer's CLOSE: echoed. Its text goes into the reason."""
    cdef char[64] text
    cdef uint16_t code
    if w.n_control == 1:
        return refuse(&w.head, "the peer sent a CLOSE with half a status code")
    w.ended = True
    if w.n_control == 0:
        w.head.reason = "the peer closed the connection"
        if not w.ending:
            w.ending = True
            if ws_say(w, WS_CLOSE, w.control, 0):
                return MQ_NOMEM
        return MQ_DONE
    code = load_be16(w.control)
    printable(text, sizeof(text), w.control + 2, w.n_control - 2)
    snprintf(w.head.reason_text, sizeof(w.head.reason_text),
             "the peer closed the connection (%d%s%s)", <int> code, b" " if text[0] else b"", text)
    w.head.reason = w.head.reason_text
    return MQ_NOMEM if ws_say_close(w, code, b"") else MQ_DONE


cdef int _control(Ws* w, Input* input) noexcept nogil:
    """Collect a control frame's payload; obey it when it is whole."""
    cdef size_t take = min(w.frame.left, <uint64_t> (input.end - input.pos))
    ws_take(w, input, w.control + w.n_control, take)
    w.n_control += take
    if w.frame.left:
        return MQ_NEED_DATA
    w.in_frame = False
    if w.frame.opcode == WS_CLOSE:
        return _closed(w)
    if w.frame.opcode == WS_PONG:
        w.head.pongs += 1
        return MQ_OK
    w.head.pings += 1
    if w.ending or w.head.ctl.n > CTL_MAX:
        return MQ_OK
    return ws_say(w, WS_PONG, w.control, w.n_control)


# -- messages -------------------------------------------------------------------------------------

cdef void ws_take(Ws* w, Input* input, uint8_t* out, size_t n) noexcept nogil:
    mask_bytes(out, input.pos, n, w.frame.mask)
    input.pos += n
    w.frame.left -= n
    w.frame.mask = mask_turn(w.frame.mask, n)


cdef int ws_body(Ws* w, Input* input, Msg* m) noexcept nogil:
    cdef uint8_t* at = input.pos
    cdef size_t size = w.frame.left
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef uint64_t mask = w.frame.mask
    cdef int rc
    if owner != NULL and size > MSG_INLINE_MAX:   # in place: the part is a slice
        mask_bytes(at, at, size, mask)
        mask = 0
    rc = decode_slice(m, w.head.pool, at, size, owner)
    if rc:
        return rc
    if mask:
        mask_bytes(msg_data(m), msg_data(m), size, mask)
    input.pos += size
    return MQ_OK


cdef void _got(Ws* w, size_t n) noexcept nogil:
    """n more bytes of the frame's payload are in the body, masked still."""
    cdef uint8_t* at = msg_data(&w.head.body.part) + w.head.body.got - n
    mask_bytes(at, at, n, w.frame.mask)
    w.frame.left -= n
    w.frame.mask = mask_turn(w.frame.mask, n)


cdef int _payload(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil:
    """Go on with the frame under way. MQ_OK: it is over."""
    cdef WsFrame* f = &w.frame
    cdef uint64_t before
    cdef int rc
    if f.opcode & WS_CONTROL:
        return _control(w, input)
    if not w.started and f.left:
        if input.pos == input.end:
            return MQ_NEED_DATA
        rc = w.ops.front(w, input)
        if rc:
            return rc
    if w.started and not w.opened:
        if w.traffic and f.fin and f.left <= <uint64_t> (input.end - input.pos):
            w.in_frame = w.message = w.started = False
            return w.ops.whole(w, input, out, n)
        rc = decode_open(&w.head, input, f.left, w.command, not f.fin)
        if rc:
            return rc
        w.opened = True
    if w.opened:
        before = w.head.body.got
        rc = decode_fill(&w.head.body, input)
        _got(w, w.head.body.got - before)
        if rc:
            return rc
        if f.left:
            return MQ_NEED_DATA
    w.in_frame = False
    if not f.fin:
        return MQ_OK
    w.message = False
    rc = w.ops.over(w, out, n)
    w.started = w.opened = False
    return rc


cdef int _begin(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil:
    """A frame's header is behind us."""
    cdef WsFrame* f = &w.frame
    cdef int rc
    w.in_frame = True
    w.n_control = 0
    if f.opcode & WS_CONTROL:
        return _payload(w, input, out, n)
    if f.opcode == WS_TEXT:
        w.code = CLOSE_TEXT
        return refuse(&w.head, w.ops.text)
    if f.opcode == WS_CONTINUATION:
        if not w.message:
            return refuse(&w.head, "the peer went on with a WebSocket message it had not begun")
        if w.opened:
            rc = w.ops.check(w, w.head.body.size + f.left)
            if rc:
                return rc
            body_extend(&w.head.body, f.left)
        return _payload(w, input, out, n)
    if w.message:
        return refuse(&w.head, "the peer began a WebSocket message in the middle of another")
    w.message = True
    return _payload(w, input, out, n)


cdef int ws_next(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil:
    cdef int length
    if w.in_frame:
        return _payload(w, input, out, n)
    if w.n_hold == 0:
        length = _parse(&w.head, input.pos, input.end - input.pos, not w.client, &w.frame)
        if length < 0:
            return MQ_PROTOCOL
        if length:
            input.pos += length
            return _begin(w, input, out, n)
    while input.pos < input.end:
        w.hold[w.n_hold] = input.pos[0]
        input.pos += 1
        w.n_hold += 1
        length = _parse(&w.head, w.hold, w.n_hold, not w.client, &w.frame)
        if length < 0:
            return MQ_PROTOCOL
        if length:
            w.n_hold = 0
            return _begin(w, input, out, n)
    return MQ_NEED_DATA


cdef int ws_direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil:
    cdef Ws* w = <Ws*> self
    room[0] = 0
    size[0] = w.head.body.size
    if not w.in_frame or w.frame.opcode & WS_CONTROL or w.frame.left < DIRECT_MIN:
        return MQ_OK              # the rest of the frame: another may follow it
    return decode_direct(self, at, room, size)


cdef void ws_filled(Codec* self, size_t n) noexcept nogil:
    cdef Ws* w = <Ws*> self
    w.head.body.got += n
    _got(w, n)
