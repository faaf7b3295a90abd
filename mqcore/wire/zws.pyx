"""ZWS 2.0: each ZMTP frame is one binary WebSocket message, a flags octet and the body (RFC 45).

There is no greeting: the HTTP upgrade has named the mechanism. NULL's READY is the first message
each way, a command; with plain "ZWS2.0" it is the routing id, a frame without flags. Subscriptions
are frames that begin with 1 or 0, heartbeats are WebSocket's own PING and PONG.

Messages in fragments are put together (websocket.pyx), though no ZMTP peer sends them: a proxy may.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini
from mqcore.base.cursor cimport load_be16, load_be64
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, MSG_REF, MSG_SUBSCRIBE, Msg, msg_data, msg_init,
)
from mqcore.base.slab cimport Landing, Owner
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_OK, MQ_PROTOCOL
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.body cimport body_check, body_drop, body_open, body_slice, body_take
from mqcore.wire.codec cimport CODEC_ABI, Batch, Codec, Frame, HandshakeConfig, Input
from mqcore.wire.command cimport Command, command_read, interest_name
from mqcore.wire.encode cimport encode_loop, encode_one
from mqcore.wire.mask cimport keys_next, mask_at, mask_bytes
from mqcore.wire.ready cimport HANDSHAKE_MAX, ready_append, refuse, take_identity, take_ready
from mqcore.wire.websocket cimport (
    WS_BINARY, WS_CTL_MAX, WS_FIN, WS_MASKED, WS_PING, WS_TOO_BIG, Ws, WsOps, ws_direct, ws_emit,
    ws_filled, ws_fini, ws_finish, ws_init, ws_next, ws_refused, ws_say, ws_take,
)

cdef enum:
    FLAG_MORE = 1             # the same bit as MSG_MORE
    FLAG_COMMAND = 2

cdef struct Zws:
    Ws ws
    bint bare                 # the subprotocol has no mechanism
    bint said                 # our first message is in ctl
    uint8_t flags             # of the message under way
    bint mid_in               # the last part had MORE


# -- handshake ------------------------------------------------------------------------------------

cdef int _say_first(Zws* z) noexcept nogil:
    """READY, or our routing id."""
    cdef const HandshakeConfig* config = z.ws.head.config
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
        rc = ws_say(&z.ws, WS_BINARY, text.at, text.n)
    bytes_fini(&text)
    return rc


cdef int _first(Zws* z) noexcept nogil:
    """The peer's first message is in the body under way: READY, or its routing id."""
    cdef uint8_t* at = msg_data(&z.ws.body.part)
    cdef size_t size = z.ws.body.size
    cdef int rc
    if z.bare:
        if z.flags:
            return refuse(&z.ws.head, "the peer sent something else than its routing id first")
        z.ws.traffic = True
        return take_identity(&z.ws.head, at, size) if size else MQ_OK
    if z.flags != FLAG_COMMAND:
        return refuse(&z.ws.head, "the peer sent something else than READY")
    rc = take_ready(&z.ws.head, at, size)
    if rc == MQ_OK:
        z.ws.traffic = True
    return rc


# -- messages -------------------------------------------------------------------------------------

cdef int _flagged(Zws* z, uint8_t flags, uint64_t size) noexcept nogil:
    """The flags octet, and how long the part is as far as is known."""
    cdef int rc
    if flags > FLAG_COMMAND:
        return refuse(&z.ws.head, "the peer sent a frame whose flags ZWS 2.0 does not know")
    if not z.ws.traffic:
        if size > HANDSHAKE_MAX:
            return refuse(&z.ws.head, "the peer's handshake is longer than 64 KiB")
        return MQ_OK
    rc = body_check(&z.ws.head, size, flags == FLAG_COMMAND)
    if rc == MQ_PROTOCOL:
        z.ws.code = WS_TOO_BIG
    return rc


cdef int _check(Ws* w, uint64_t size) noexcept nogil:
    return _flagged(<Zws*> w, (<Zws*> w).flags, size)


cdef int _command(
        Zws* z, Msg* out, size_t* n, uint8_t* at, size_t size, Owner* owner) noexcept nogil:
    """A whole command: obeyed, or handed out if it is a subscription."""
    cdef Command command
    cdef uint8_t[32] pong
    cdef int rc = command_read(&z.ws.head, at, size, z.mid_in, &command)
    if rc == MQ_OK and command.pong_size and z.ws.head.ctl.n <= WS_CTL_MAX:
        pong[0] = FLAG_COMMAND
        memcpy(&pong[1], command.pong, command.pong_size)
        rc = ws_say(&z.ws, WS_BINARY, pong, 1 + command.pong_size)
    if rc == MQ_OK and command.kind:
        rc = body_slice(&out[n[0]], z.ws.head.pool, at + command.skip, size - command.skip, owner)
        if rc == MQ_OK:
            out[n[0]].flags = command.kind
            n[0] += 1
    return rc


cdef int _front(Ws* w, Input* input) noexcept nogil:
    """The flags octet."""
    cdef Zws* z = <Zws*> w
    ws_take(w, input, &z.flags, 1)
    w.started = True
    return _check(w, w.frame.left)


cdef int _whole(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil:
    cdef Zws* z = <Zws*> w
    cdef uint64_t mask = w.frame.mask
    cdef uint8_t* at = input.pos
    cdef size_t size = w.frame.left
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef Msg* m = &out[n[0]]
    cdef int rc
    if owner != NULL and size > MSG_INLINE_MAX or z.flags == FLAG_COMMAND:
        mask_bytes(at, at, size, mask)
        mask = 0
    input.pos += size
    if z.flags == FLAG_COMMAND:
        return _command(z, out, n, at, size, owner)
    rc = body_slice(m, w.head.pool, at, size, owner)
    if rc:
        return rc
    if mask:
        mask_bytes(msg_data(m), msg_data(m), size, mask)
    m.flags = z.flags
    z.mid_in = z.flags
    n[0] += 1
    return MQ_OK


cdef int _open(Ws* w, Input* input) noexcept nogil:
    cdef bint command = (<Zws*> w).flags == FLAG_COMMAND
    cdef Landing* landing = <Landing*> NULL if command else w.head.landing
    return body_open(
        &w.body, w.head.pool, landing, w.frame.left, input.copy, not w.frame.fin)


cdef int _over(Ws* w, Msg* out, size_t* n) noexcept nogil:
    cdef Zws* z = <Zws*> w
    cdef Msg* part = &w.body.part
    cdef int rc
    if not w.started:
        return refuse(&w.head, "the peer sent an empty WebSocket message: no flags in it")
    if not w.traffic:
        rc = _first(z)
    elif z.flags == FLAG_COMMAND:
        rc = _command(z, out, n, msg_data(part), w.body.size,
                      part.u.ref.owner if part.kind == MSG_REF else <Owner*> NULL)
    else:
        z.mid_in = z.flags
        body_take(&w.body, &out[n[0]])
        out[n[0]].flags = z.flags
        n[0] += 1
        return MQ_OK
    body_drop(&w.body)
    return rc


cdef WsOps _MESSAGES
_MESSAGES.front = _front
_MESSAGES.whole = _whole
_MESSAGES.open = _open
_MESSAGES.check = _check
_MESSAGES.over = _over
_MESSAGES.text = "the peer sent text; ZMTP's frames are binary WebSocket messages"


cdef inline bint _short(Zws* z, Input* input, uint64_t small, Msg* m) noexcept nogil:
    """The common case: a small part, and so much behind it that a copy of fixed size is safe."""
    cdef const uint8_t* at = input.pos
    cdef size_t head = 3 if z.ws.client else 7
    cdef size_t size
    cdef uint8_t flags
    cdef uint64_t mask
    cdef uint64_t* words = <uint64_t*> m.u.inl
    cdef int i
    if input.end - at < 7 + MSG_INLINE_MAX or at[0] != (WS_FIN | WS_BINARY) or z.ws.message:
        return False
    size = <size_t> (at[1] & 127) - 1         # of an empty message: far too large
    if size > small or (at[1] >= WS_MASKED) == z.ws.client:
        return False
    flags = at[head - 1]
    if not z.ws.client:
        flags ^= at[2]
    if flags > FLAG_MORE:
        return False
    memcpy(m.u.inl, at + head, MSG_INLINE_MAX)
    if not z.ws.client:
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
    return ws_init(<Ws*> self, &_MESSAGES)


cdef int _init_bare(Codec* self) noexcept nogil:
    (<Zws*> self).bare = True
    return _init(self)


cdef void _fini(Codec* self) noexcept nogil:
    ws_fini(<Ws*> self)


cdef int _start(Codec* self, bint listening) noexcept nogil:
    """Nobody waits for the other: the HTTP upgrade has told who the peer is."""
    cdef Zws* z = <Zws*> self
    if z.said:
        return MQ_OK
    z.said = True
    z.ws.client = self.masks = not listening
    self.peer.major = 3
    self.peer.minor = 1
    memcpy(self.peer.mechanism, b"NULL", 5)
    return _say_first(z)


cdef int _feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    cdef Ws* w = <Ws*> self
    cdef Input input
    cdef size_t parts = 0
    cdef int rc = MQ_OK
    input.slab = NULL
    input.pos = <uint8_t*> data               # `copy`, and no whole messages: nothing is written
    input.end = input.pos + n
    input.copy = True
    while rc == MQ_OK and not w.traffic:
        rc = ws_next(w, &input, NULL, &parts)
    used[0] = input.pos - data
    if w.ended:
        return MQ_PROTOCOL
    return MQ_DONE if rc == MQ_OK else ws_refused(w, rc)


cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Zws* z = <Zws*> self
    cdef uint64_t small = MSG_INLINE_MAX
    cdef int rc
    n[0] = 0
    if 0 <= self.max_message_size < <int64_t> MSG_INLINE_MAX:
        small = self.max_message_size
    while n[0] < cap and not z.ws.ended:
        if not z.ws.in_frame and z.ws.n_hold == 0:
            if input.pos == input.end:
                return MQ_NEED_DATA
            if _short(z, input, small, &out[n[0]]):
                n[0] += 1
                continue
        rc = ws_next(&z.ws, input, out, n)
        if rc:
            return ws_refused(&z.ws, rc)
    if not z.ws.ended:
        return MQ_OK
    input.pos = input.end
    return MQ_DONE


cdef size_t _head(
        Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil:
    cdef Zws* z = <Zws*> self
    cdef size_t lead = 2 if part.flags & MSG_CONTROL else 1
    cdef const char* name = NULL
    cdef uint32_t key = 0
    cdef size_t n
    cdef size_t i
    if z.ws.client:
        key = keys_next(&z.ws.keys)
    if lead == 2 and self.config.groups:      # a command; subscriptions go the older way
        name = interest_name(self, part.flags & MSG_SUBSCRIBE)
        lead = 2 + name[0]
    n = ws_emit(at, WS_BINARY, lead + size, &key if z.ws.client else NULL)
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
    cdef uint32_t key = keys_next(&(<Ws*> self).keys)
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
    if (<Ws*> self).client:
        return encode_loop(self, batch, src, msgs, body, _small_masked, MSG_CONTROL, NULL)
    return encode_loop(self, batch, src, msgs, body, _small, MSG_CONTROL, NULL)


cdef int _ping(Codec* self, uint32_t ttl) noexcept nogil:
    """WebSocket's has no time to live. RFC 45 leaves heartbeats to it."""
    return ws_say(<Ws*> self, WS_PING, NULL, 0)


cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Zws)
_OPS.name = "zws"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = _start
_OPS.feed = _feed
_OPS.decode = _decode
_OPS.direct = ws_direct
_OPS.filled = ws_filled
_OPS.encode = _encode
_OPS.encode_one = encode_one
_OPS.ping = _ping
_OPS.finish = ws_finish
_OPS.head = _head
_OPS.frame = _frame_out

cdef CodecOps _BARE = _OPS
_BARE.name = "zws-bare"
_BARE.init = _init_bare


cdef const CodecOps* zws_ops() noexcept nogil:
    return &_OPS


cdef const CodecOps* zws_bare_ops() noexcept nogil:
    return &_BARE
