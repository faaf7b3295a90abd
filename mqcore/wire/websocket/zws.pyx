"""ZWS 2.0: each ZMTP frame is one binary WebSocket message, a flags octet and the body (RFC 45).

ZWS has no greeting: the HTTP upgrade has named the mechanism. NULL's READY is the first message
each way, a command; with plain "ZWS2.0" it is the routing id, a frame without flags. Subscriptions
are frames that begin with 1 or 0, heartbeats are WebSocket's own PING and PONG.

Messages in fragments are put together (frames.pyx), though no ZMTP peer sends them: a proxy may.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.body cimport body_drop, body_take
from mqcore.base.bytes cimport Bytes, bytes_append, bytes_fini
from mqcore.base.message cimport MSG_CONTROL, MSG_MORE, MSG_REF, MSG_SUBSCRIBE, Msg, msg_data
from mqcore.base.slab cimport Owner
from mqcore.base.status cimport MQ_DONE, MQ_OK, MQ_PROTOCOL
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.codec cimport CODEC_ABI, CTL_MAX, Batch, Codec, Frame, HandshakeConfig, Input
from mqcore.wire.decode cimport decode_check, decode_under_way
from mqcore.wire.encode cimport encode_loop, encode_one
from mqcore.wire.websocket.frames cimport (
    WS_BINARY, WS_PING, WS_TOO_BIG, Ws, WsOps, ws_body, ws_direct, ws_emit, ws_filled, ws_fini,
    ws_finish, ws_init, ws_next, ws_refused, ws_say, ws_take,
)
from mqcore.wire.websocket.mask cimport keys_next, mask_at, mask_bytes
from mqcore.wire.websocket.shortcuts cimport ws_decode, ws_read, ws_small, ws_small_masked
from mqcore.wire.zmtp.command cimport command_obey, interest_name
from mqcore.wire.zmtp.ready cimport HANDSHAKE_MAX, ready_append, refuse, take_identity, take_ready

cdef enum:
    FLAG_MORE = 1             # the same bit as MSG_MORE
    FLAG_COMMAND = 2
    LEAD = 1                  # the flags octet

cdef struct Zws:
    Ws ws
    bint bare                 # the subprotocol has no mechanism
    bint said                 # our first message is in ctl
    uint8_t flags             # of the message under way


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
    cdef uint8_t* at = msg_data(&z.ws.head.body.part)
    cdef size_t size = z.ws.head.body.size
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

cdef int _check(Ws* w, uint64_t size) noexcept nogil:
    """The flags octet, and how long the part is as far as is known."""
    cdef int rc
    if (<Zws*> w).flags > FLAG_COMMAND:
        return refuse(&w.head, "the peer sent a frame whose flags ZWS 2.0 does not know")
    if not w.traffic:
        if size > HANDSHAKE_MAX:
            return refuse(&w.head, "the peer's handshake is longer than 64 KiB")
        return MQ_OK
    rc = decode_check(&w.head, size, w.command)
    if rc == MQ_PROTOCOL:
        w.code = WS_TOO_BIG
    return rc


cdef int _pong(Codec* c, const uint8_t* pong, size_t size) noexcept nogil:
    """PongFn of command.pxd."""
    cdef uint8_t[32] frame
    if c.ctl.n > CTL_MAX:
        return MQ_OK
    frame[0] = FLAG_COMMAND
    memcpy(&frame[1], pong, size)
    return ws_say(<Ws*> c, WS_BINARY, frame, 1 + size)


cdef int _front(Ws* w, Input* input) noexcept nogil:
    """The flags octet."""
    cdef Zws* z = <Zws*> w
    ws_take(w, input, &z.flags, 1)
    w.command = z.flags == FLAG_COMMAND
    w.started = True
    return _check(w, w.frame.left)


cdef void _hand_out(Zws* z, Msg* out, size_t* n) noexcept nogil:
    """out[*n] has the body: the part is complete."""
    z.ws.head.mid_in = z.flags
    out[n[0]].flags = z.flags
    n[0] += 1


cdef int _whole(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil:
    cdef uint8_t* at = input.pos
    cdef size_t size = w.frame.left
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef int rc
    if w.command:
        mask_bytes(at, at, size, w.frame.mask)
        input.pos += size
        return command_obey(&w.head, at, size, owner, out, n, _pong)
    rc = ws_body(w, input, &out[n[0]])
    if rc == MQ_OK:
        _hand_out(<Zws*> w, out, n)
    return rc


cdef int _over(Ws* w, Msg* out, size_t* n) noexcept nogil:
    cdef Zws* z = <Zws*> w
    cdef Msg* part = &w.head.body.part
    cdef int rc
    if not w.started:
        return refuse(&w.head, "the peer sent an empty WebSocket message: no flags in it")
    if not w.traffic:
        rc = _first(z)
    elif w.command:
        rc = command_obey(&w.head, msg_data(part), w.head.body.size,
                          part.u.ref.owner if part.kind == MSG_REF else <Owner*> NULL, out, n,
                          _pong)
    else:
        body_take(&w.head.body, &out[n[0]])
        _hand_out(z, out, n)
        return MQ_OK
    body_drop(&w.head.body)
    return rc


cdef WsOps _MESSAGES
_MESSAGES.front = _front
_MESSAGES.whole = _whole
_MESSAGES.check = _check
_MESSAGES.over = _over
_MESSAGES.text = "the peer sent text; ZMTP's frames are binary WebSocket messages"


# -- the contract ---------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    return ws_init(<Ws*> self, &_MESSAGES)


cdef int _init_bare(Codec* self) noexcept nogil:
    (<Zws*> self).bare = True
    return _init(self)


cdef void _fini(Codec* self) noexcept nogil:
    ws_fini(<Ws*> self)


cdef int _start(Codec* self, bint listening) noexcept nogil:
    """Neither side waits for the other: the HTTP upgrade has identified the peer."""
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
    return ws_decode(<Ws*> self, input, out, cap, n, LEAD, True, NULL)


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
    ws_read(at, LEAD, out)


cdef inline size_t _small(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    return ws_small(at, part, LEAD)


cdef inline size_t _small_masked(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    return ws_small_masked(<Ws*> self, at, part, LEAD)


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
_OPS.under_way = decode_under_way
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
