"""ZWS 2.0: each ZMTP frame is one binary WebSocket message, a flags octet and the body (RFC 45).

There is no greeting: the HTTP upgrade has named the mechanism. NULL's READY is the first message
each way, a command; with plain "ZWS2.0" it is the routing id, a frame without flags. Subscriptions
are frames that begin with 1 or 0, heartbeats are WebSocket's own PING and PONG.

Messages in fragments are put together, though no ZMTP peer sends them: a proxy may. What a peer
masked is unmasked where it lies. Whoever breaks a rule of RFC 6455 is told so in a CLOSE.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, strlen

from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini, bytes_reserve
from mqcore.base.cursor cimport load_be16, load_be64
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, MSG_REF, MSG_SUBSCRIBE, Msg, msg_data, msg_init,
)
from mqcore.base.slab cimport Landing, Owner
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.body cimport (
    DIRECT_MIN, Body, body_check, body_direct, body_drop, body_extend, body_fill, body_open,
    body_slice, body_take,
)
from mqcore.wire.codec cimport CODEC_ABI, Batch, Codec, Frame, HandshakeConfig, Input
from mqcore.wire.command cimport Command, command_read, interest_name
from mqcore.wire.encode cimport encode_loop, encode_one
from mqcore.wire.mask cimport Keys, keys_init, keys_next, mask_at, mask_bytes, mask_turn
from mqcore.wire.ready cimport (
    HANDSHAKE_MAX, printable, ready_append, refuse, take_ready,
)
from mqcore.wire.websocket cimport (
    WS_BINARY, WS_CLOSE, WS_CONTINUATION, WS_CONTROL, WS_CONTROL_MAX, WS_FIN, WS_HEADER_MAX,
    WS_MASKED, WS_PING, WS_PONG, WS_TEXT, WsFrame, ws_emit, ws_parse,
)

cdef enum:
    FLAG_MORE = 1             # the same bit as MSG_MORE
    FLAG_COMMAND = 2
    CTL_MAX = 64 * 1024       # a peer that does not read its PONGs gets no more
    CLOSE_NORMAL = 1000       # RFC 6455, section 7.4.1
    CLOSE_PROTOCOL = 1002
    CLOSE_TEXT = 1003
    CLOSE_TOO_BIG = 1009

cdef struct Zws:
    Codec head
    bint bare                 # the subprotocol has no mechanism
    bint client               # we connected: we mask, the peer does not
    bint said                 # our first message is in ctl
    bint ready                # the peer's has come
    bint ending               # our CLOSE is in ctl
    bint ended                # the peer's has come
    uint16_t code             # of our CLOSE if the peer is refused; 0: CLOSE_PROTOCOL
    Keys keys
    # -- decoder
    uint32_t n_hold
    uint8_t[16] hold          # a cut-off header
    bint in_frame
    WsFrame frame
    bint message              # a message is under way, in its first frame or a later one
    bint flagged              # and its flags octet has come
    uint8_t flags
    Body body
    bint mid_in               # the last part had MORE
    uint32_t n_control
    uint8_t[125] control      # payload of a control frame


# -- what we say ----------------------------------------------------------------------------------

cdef int _say(Zws* z, uint8_t opcode, const uint8_t* data, size_t n) noexcept nogil:
    """A whole frame into ctl."""
    cdef uint8_t* at
    cdef uint32_t key
    cdef size_t head
    if bytes_reserve(&z.head.ctl, WS_HEADER_MAX + n):
        return MQ_NOMEM
    at = z.head.ctl.at + z.head.ctl.n
    if z.client:
        key = keys_next(&z.keys)
        head = ws_emit(at, opcode, n, &key)
        mask_bytes(at + head, data, n, mask_at(<const uint8_t*> &key, 0))
    else:
        head = ws_emit(at, opcode, n, NULL)
        mask_bytes(at + head, data, n, 0)
    z.head.ctl.n += head + n
    return MQ_OK


cdef int _say_close(Zws* z, uint16_t code, const char* text) noexcept nogil:
    """Once. The text is cut to what a control frame holds."""
    cdef uint8_t[WS_CONTROL_MAX] payload
    cdef size_t n = min(strlen(text), <size_t> WS_CONTROL_MAX - 2)
    if z.ending:
        return MQ_OK
    z.ending = True
    payload[0] = <uint8_t> (code >> 8)
    payload[1] = <uint8_t> code
    memcpy(&payload[2], text, n)
    return _say(z, WS_CLOSE, payload, 2 + n)


cdef int _say_first(Zws* z) noexcept nogil:
    """READY, or our routing id."""
    cdef const HandshakeConfig* config = z.head.config
    cdef uint8_t flags = 0 if z.bare else FLAG_COMMAND
    cdef Bytes text
    cdef int rc
    text.at = NULL
    text.n = text.cap = 0
    rc = bytes_append(&text, &flags, 1)
    if rc == MQ_OK and not z.bare:
        rc = ready_append(config, &text)
    elif rc == MQ_OK and config.routing_id_size:
        rc = bytes_append(&text, config.routing_id, config.routing_id_size)
    if rc == MQ_OK:
        rc = _say(z, WS_BINARY, text.at, text.n)
    bytes_fini(&text)
    return rc


# -- control frames -------------------------------------------------------------------------------

cdef int _closed(Zws* z) noexcept nogil:
    """The peer's CLOSE: echoed. Its text goes into the reason."""
    cdef char[64] text
    cdef uint16_t code
    if z.n_control == 1:
        return refuse(&z.head, "the peer sent a CLOSE with half a status code")
    z.ended = True
    if z.n_control == 0:
        z.head.reason = "the peer closed the connection"
        if not z.ending:
            z.ending = True
            if _say(z, WS_CLOSE, z.control, 0):
                return MQ_NOMEM
        return MQ_DONE
    code = load_be16(z.control)
    printable(text, sizeof(text), z.control + 2, z.n_control - 2)
    snprintf(z.head.reason_text, sizeof(z.head.reason_text),
             "the peer closed the connection (%d%s%s)", <int> code, b" " if text[0] else b"", text)
    z.head.reason = z.head.reason_text
    return MQ_NOMEM if _say_close(z, code, b"") else MQ_DONE


cdef int _control(Zws* z, Input* input) noexcept nogil:
    """Collect a control frame's payload; obey it when it is whole."""
    cdef WsFrame* f = &z.frame
    cdef size_t take = min(f.left, <uint64_t> (input.end - input.pos))
    mask_bytes(z.control + z.n_control, input.pos, take, f.mask)
    input.pos += take
    z.n_control += take
    f.left -= take
    f.mask = mask_turn(f.mask, take)
    if f.left:
        return MQ_NEED_DATA
    z.in_frame = False
    if f.opcode == WS_CLOSE:
        return _closed(z)
    if f.opcode == WS_PONG:
        z.head.pongs += 1
        return MQ_OK
    z.head.pings += 1
    if z.ending or z.head.ctl.n > CTL_MAX:
        return MQ_OK
    return _say(z, WS_PONG, z.control, z.n_control)


# -- messages -------------------------------------------------------------------------------------

cdef int _check(Zws* z, uint8_t flags, uint64_t size) noexcept nogil:
    """The flags octet, and how long the part is as far as is known."""
    cdef int rc
    if flags > FLAG_COMMAND:
        return refuse(&z.head, "the peer sent a frame whose flags ZWS 2.0 does not know")
    if not z.ready:
        if size > HANDSHAKE_MAX:
            return refuse(&z.head, "the peer's handshake is longer than 64 KiB")
        return MQ_OK
    rc = body_check(&z.head, size, flags == FLAG_COMMAND)
    if rc == MQ_PROTOCOL:
        z.code = CLOSE_TOO_BIG
    return rc


cdef int _command(
        Zws* z, Msg* out, size_t* n, uint8_t* at, size_t size, Owner* owner) noexcept nogil:
    """A whole command: obeyed, or handed out if it is a subscription."""
    cdef Command command
    cdef uint8_t[32] pong
    cdef int rc = command_read(&z.head, at, size, z.mid_in, &command)
    if rc == MQ_OK and command.pong_size and z.head.ctl.n <= CTL_MAX:
        pong[0] = FLAG_COMMAND
        memcpy(&pong[1], command.pong, command.pong_size)
        rc = _say(z, WS_BINARY, pong, 1 + command.pong_size)
    if rc == MQ_OK and command.kind:
        rc = body_slice(&out[n[0]], z.head.pool, at + command.skip, size - command.skip, owner)
        if rc == MQ_OK:
            out[n[0]].flags = command.kind
            n[0] += 1
    return rc


cdef int _whole(Zws* z, Input* input, Msg* out, size_t* n) noexcept nogil:
    """A message in one frame, all of which is here."""
    cdef uint8_t flags = input.pos[0] ^ (<const uint8_t*> &z.frame.mask)[0]
    cdef uint64_t mask = mask_turn(z.frame.mask, 1)
    cdef uint8_t* at = input.pos + 1
    cdef size_t size = z.frame.left - 1
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef Msg* m = &out[n[0]]
    cdef int rc = _check(z, flags, size)
    if rc:
        return rc
    if owner != NULL and size > MSG_INLINE_MAX or flags == FLAG_COMMAND:
        mask_bytes(at, at, size, mask)
        mask = 0
    input.pos += z.frame.left
    z.in_frame = z.message = False
    if flags == FLAG_COMMAND:
        return _command(z, out, n, at, size, owner)
    rc = body_slice(m, z.head.pool, at, size, owner)
    if rc:
        return rc
    if mask:
        mask_bytes(msg_data(m), msg_data(m), size, mask)
    m.flags = flags
    z.mid_in = flags
    n[0] += 1
    return MQ_OK


cdef int _first(Zws* z) noexcept nogil:
    """The peer's first message is in the body under way: READY, or its routing id."""
    cdef uint8_t* at = msg_data(&z.body.part)
    cdef int rc
    if z.bare:
        if z.flags:
            return refuse(&z.head, "the peer sent something else than its routing id first")
        z.ready = True
        return bytes_append(&z.head.peer.routing_id, at, z.body.size) if z.body.size else MQ_OK
    if z.flags != FLAG_COMMAND:
        return refuse(&z.head, "the peer sent something else than READY")
    rc = take_ready(&z.head, at, z.body.size)
    if rc == MQ_OK:
        z.ready = True
    return rc


cdef int _finish(Zws* z, Msg* out, size_t* n) noexcept nogil:
    """The message under way is complete."""
    cdef Msg* part = &z.body.part
    cdef int rc
    z.message = z.flagged = False
    if not z.ready:
        rc = _first(z)
    elif z.flags == FLAG_COMMAND:
        rc = _command(z, out, n, msg_data(part), z.body.size,
                      part.u.ref.owner if part.kind == MSG_REF else <Owner*> NULL)
    else:
        z.mid_in = z.flags
        body_take(&z.body, &out[n[0]])
        out[n[0]].flags = z.flags
        n[0] += 1
        return MQ_OK
    body_drop(&z.body)
    return rc


cdef int _flags(Zws* z, Input* input) noexcept nogil:
    """The message's first octet; then its body is under way."""
    cdef WsFrame* f = &z.frame
    cdef Landing* landing
    cdef int rc
    z.flags = input.pos[0] ^ (<const uint8_t*> &f.mask)[0]
    input.pos += 1
    f.left -= 1
    f.mask = mask_turn(f.mask, 1)
    rc = _check(z, z.flags, f.left)
    if rc:
        return rc
    landing = <Landing*> NULL if z.flags == FLAG_COMMAND else z.head.landing
    rc = body_open(&z.body, z.head.pool, landing, f.left, input.copy, not f.fin)
    z.flagged = rc == MQ_OK
    return rc


cdef void _got(Zws* z, size_t n) noexcept nogil:
    """n more bytes of the frame's payload are in the body, masked still."""
    cdef uint8_t* at = msg_data(&z.body.part) + z.body.got - n
    mask_bytes(at, at, n, z.frame.mask)
    z.frame.left -= n
    z.frame.mask = mask_turn(z.frame.mask, n)


cdef int _payload(Zws* z, Input* input, Msg* out, size_t* n) noexcept nogil:
    """Go on with the frame under way. MQ_OK: it is over."""
    cdef WsFrame* f = &z.frame
    cdef uint64_t before
    cdef int rc
    if f.opcode & WS_CONTROL:
        return _control(z, input)
    if not z.flagged and f.left:
        if input.pos == input.end:
            return MQ_NEED_DATA
        rc = _flags(z, input)
        if rc:
            return rc
    if z.flagged:
        before = z.body.got
        rc = body_fill(&z.body, input)
        _got(z, z.body.got - before)
        if rc:
            return rc
        if f.left:
            return MQ_NEED_DATA
    z.in_frame = False
    if not f.fin:
        return MQ_OK
    if not z.flagged:
        return refuse(&z.head, "the peer sent an empty WebSocket message: no flags in it")
    return _finish(z, out, n)


cdef int _begin(Zws* z, Input* input, Msg* out, size_t* n) noexcept nogil:
    """A frame's header is behind us."""
    cdef WsFrame* f = &z.frame
    cdef int rc
    z.in_frame = True
    z.n_control = 0
    if f.opcode & WS_CONTROL:
        return _payload(z, input, out, n)
    if f.opcode == WS_TEXT:
        z.code = CLOSE_TEXT
        return refuse(&z.head, "the peer sent text; ZMTP's frames are binary WebSocket messages")
    if f.opcode == WS_CONTINUATION:
        if not z.message:
            return refuse(&z.head, "the peer went on with a WebSocket message it had not begun")
        if z.flagged:
            rc = _check(z, z.flags, z.body.size + f.left)
            if rc:
                return rc
            body_extend(&z.body, f.left)
        return _payload(z, input, out, n)
    if z.message:
        return refuse(&z.head, "the peer began a WebSocket message in the middle of another")
    z.message = True
    z.flagged = False
    if z.ready and f.fin and 0 < f.left <= <uint64_t> (input.end - input.pos):
        return _whole(z, input, out, n)
    return _payload(z, input, out, n)


cdef int _next(Zws* z, Input* input, Msg* out, size_t* n) noexcept nogil:
    """One step: a frame, or what there is of it. At most one part comes out of it."""
    cdef int length
    if z.in_frame:
        return _payload(z, input, out, n)
    if z.n_hold == 0:
        length = ws_parse(&z.head, input.pos, input.end - input.pos, not z.client, &z.frame)
        if length < 0:
            return MQ_PROTOCOL
        if length:
            input.pos += length
            return _begin(z, input, out, n)
    while input.pos < input.end:
        z.hold[z.n_hold] = input.pos[0]
        input.pos += 1
        z.n_hold += 1
        length = ws_parse(&z.head, z.hold, z.n_hold, not z.client, &z.frame)
        if length < 0:
            return MQ_PROTOCOL
        if length:
            z.n_hold = 0
            return _begin(z, input, out, n)
    return MQ_NEED_DATA


cdef inline bint _short(Zws* z, Input* input, uint64_t small, Msg* m) noexcept nogil:
    """The common case: a small part, and so much behind it that a copy of fixed size is safe."""
    cdef const uint8_t* at = input.pos
    cdef size_t head = 3 if z.client else 7
    cdef size_t size
    cdef uint8_t flags
    cdef uint64_t mask
    cdef uint64_t* words = <uint64_t*> m.u.inl
    cdef int i
    if input.end - at < 7 + MSG_INLINE_MAX or at[0] != (WS_FIN | WS_BINARY) or z.message:
        return False
    size = <size_t> (at[1] & 127) - 1         # of an empty message: far too large
    if size > small or (at[1] >= WS_MASKED) == z.client:
        return False
    flags = at[head - 1]
    if not z.client:
        flags ^= at[2]
    if flags > FLAG_MORE:
        return False
    memcpy(m.u.inl, at + head, MSG_INLINE_MAX)
    if not z.client:
        mask = mask_at(at + 2, 1)
        for i in range(MSG_INLINE_MAX // 8):
            words[i] ^= mask
    msg_init(m)
    m.size8 = <uint8_t> size
    m.flags = flags
    z.mid_in = flags
    input.pos += head + size
    return True


# -- the contract ---------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    return keys_init(&(<Zws*> self).keys)


cdef int _init_bare(Codec* self) noexcept nogil:
    (<Zws*> self).bare = True
    return _init(self)


cdef void _fini(Codec* self) noexcept nogil:
    body_drop(&(<Zws*> self).body)
    bytes_fini(&self.ctl)
    bytes_fini(&self.peer.routing_id)
    bytes_fini(&self.peer.metadata)


cdef int _start(Codec* self, bint listening) noexcept nogil:
    """Nobody waits for the other: the HTTP upgrade has told who the peer is."""
    cdef Zws* z = <Zws*> self
    if z.said:
        return MQ_OK
    z.said = True
    z.client = self.masks = not listening
    self.peer.major = 3
    self.peer.minor = 1
    memcpy(self.peer.mechanism, b"NULL", 5)
    return _say_first(z)


cdef int _refused(Zws* z, int rc) noexcept nogil:
    """Tell the peer why."""
    if rc == MQ_PROTOCOL:
        _say_close(z, z.code if z.code else CLOSE_PROTOCOL, z.head.reason)
    return rc


cdef int _feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    cdef Zws* z = <Zws*> self
    cdef Input input
    cdef size_t parts = 0
    cdef int rc = MQ_OK
    input.slab = NULL
    input.pos = <uint8_t*> data               # `copy`, and no whole messages: nothing is written
    input.end = input.pos + n
    input.copy = True
    while rc == MQ_OK and not z.ready:
        rc = _next(z, &input, NULL, &parts)
    used[0] = input.pos - data
    if z.ended:
        return MQ_PROTOCOL
    return MQ_DONE if rc == MQ_OK else _refused(z, rc)


cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Zws* z = <Zws*> self
    cdef uint64_t small = MSG_INLINE_MAX
    cdef int rc
    n[0] = 0
    if 0 <= self.max_message_size < <int64_t> MSG_INLINE_MAX:
        small = self.max_message_size
    while n[0] < cap and not z.ended:
        if not z.in_frame and z.n_hold == 0:
            if input.pos == input.end:
                return MQ_NEED_DATA
            if _short(z, input, small, &out[n[0]]):
                n[0] += 1
                continue
        rc = _next(z, input, out, n)
        if rc:
            return _refused(z, rc)
    if not z.ended:
        return MQ_OK
    input.pos = input.end
    return MQ_DONE


cdef int _direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil:
    cdef Zws* z = <Zws*> self
    room[0] = 0
    size[0] = z.body.size
    if not z.in_frame or z.frame.opcode & WS_CONTROL or z.frame.left < DIRECT_MIN:
        return MQ_OK
    return body_direct(&z.body, at, room)


cdef void _filled(Codec* self, size_t n) noexcept nogil:
    cdef Zws* z = <Zws*> self
    z.body.got += n
    _got(z, n)


cdef size_t _head(
        Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil:
    cdef Zws* z = <Zws*> self
    cdef size_t lead = 2 if part.flags & MSG_CONTROL else 1
    cdef const char* name = NULL
    cdef uint32_t key = 0
    cdef size_t n
    cdef size_t i
    if z.client:
        key = keys_next(&z.keys)
    if lead == 2 and self.config.groups:      # a command; subscriptions go the older way
        name = interest_name(self, part.flags & MSG_SUBSCRIBE)
        lead = 2 + name[0]
    n = ws_emit(at, WS_BINARY, lead + size, &key if z.client else NULL)
    at[n] = 0 if lead > 1 else part.flags & MSG_MORE
    at[n + 1] = 1 if part.flags & MSG_SUBSCRIBE else 0
    if name != NULL:
        at[n] = FLAG_COMMAND
        memcpy(at + n + 1, name, lead - 1)
    for i in range(lead):
        at[n + i] ^= (<const uint8_t*> &key)[i & 3]
    mask[0] = mask_at(<const uint8_t*> &key, lead)
    return n + lead


cdef void _frame_out(const Codec* self, const uint8_t* at, Frame* out) noexcept nogil:
    cdef uint8_t size = at[1] & 127
    cdef size_t n = 2 if size < 126 else 4 if size == 126 else 10
    out.size = size if size < 126 else load_be16(at + 2) if size == 126 else load_be64(at + 2)
    out.size -= 1
    out.mask = 0
    out.more = at[n] & FLAG_MORE
    if at[1] & WS_MASKED:
        out.mask = mask_at(at + n, 1)
        out.more = (at[n + 4] ^ at[n]) & FLAG_MORE
        n += 4
    out.header = n + 1


cdef inline size_t _small(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    at[0] = WS_FIN | WS_BINARY
    at[1] = part.size8 + 1
    at[2] = part.flags & MSG_MORE
    memcpy(at + 3, part.u.inl, MSG_INLINE_MAX)    # a fixed size; what follows covers the excess
    return 3 + <size_t> part.size8


cdef inline size_t _small_masked(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    cdef uint32_t key = keys_next(&(<Zws*> self).keys)
    cdef uint64_t mask = mask_at(<const uint8_t*> &key, 1)
    cdef uint64_t[7] words                        # MSG_INLINE_MAX bytes
    cdef int i
    at[0] = WS_FIN | WS_BINARY
    at[1] = WS_MASKED | <uint8_t> (part.size8 + 1)
    memcpy(at + 2, &key, 4)
    at[6] = part.flags & MSG_MORE ^ at[2]
    memcpy(words, part.u.inl, MSG_INLINE_MAX)
    for i in range(MSG_INLINE_MAX // 8):
        words[i] ^= mask
    memcpy(at + 7, words, MSG_INLINE_MAX)
    return 7 + <size_t> part.size8


cdef int _encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    if (<Zws*> self).client:
        return encode_loop(self, batch, src, msgs, body, _small_masked)
    return encode_loop(self, batch, src, msgs, body, _small)


cdef int _ping(Codec* self, uint32_t ttl) noexcept nogil:
    """WebSocket's has no time to live. RFC 45 leaves heartbeats to it."""
    return _say(<Zws*> self, WS_PING, NULL, 0)


cdef int _end(Codec* self) noexcept nogil:
    return _say_close(<Zws*> self, CLOSE_NORMAL, b"")


cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Zws)
_OPS.name = "zws"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = _start
_OPS.feed = _feed
_OPS.decode = _decode
_OPS.direct = _direct
_OPS.filled = _filled
_OPS.encode = _encode
_OPS.encode_one = encode_one
_OPS.ping = _ping
_OPS.finish = _end
_OPS.head = _head
_OPS.frame = _frame_out

cdef CodecOps _BARE = _OPS
_BARE.name = "zws-bare"
_BARE.init = _init_bare


cdef const CodecOps* zws_ops() noexcept nogil:
    return &_OPS


cdef const CodecOps* zws_bare_ops() noexcept nogil:
    return &_BARE
