"""SP over WebSocket: each message is one binary WebSocket message, words and body as over streams.

A message has no header or length. The HTTP upgrade has exchanged the protocols, so the handshake is
over when it begins. Parts are joined (join.pyx). nng closes at a frame above 1 MiB, so a larger
message is sent in several frames. A received message of several frames is joined (frames.pyx).

nanomsg passes a PING to the application as a message, so this codec sends none. It answers received
ones.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from mqcore.base.body cimport body_take
from mqcore.base.message cimport MSG_CONTROL, MSG_MORE, Msg, msg_init
from mqcore.base.status cimport MQ_DONE, MQ_DROPPED, MQ_FULL, MQ_NEED_DATA, MQ_OK, MQ_PROTOCOL
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.codec cimport CODEC_ABI, Batch, Codec, CodecOps, Frame, Input
from mqcore.wire.decode cimport decode_check, decode_under_way
from mqcore.wire.encode cimport encode_loop
from mqcore.wire.sp.codec cimport sp_check
from mqcore.wire.sp.join cimport join_fini
from mqcore.wire.sp.words cimport words_next, words_open, words_take
from mqcore.wire.websocket.fragments cimport fragments_head, fragments_join, fragments_one
from mqcore.wire.websocket.frames cimport (
    WS_TOO_BIG, Ws, WsOps, ws_body, ws_direct, ws_filled, ws_fini, ws_finish, ws_init, ws_take,
)
from mqcore.wire.websocket.shortcuts cimport ws_decode, ws_read, ws_small, ws_small_masked
from mqcore.wire.zmtp.ready cimport refuse

cdef enum:                    # of the message that comes in
    FRONT = 0                 # words, or a count of hops
    ENVELOPE = 1              # its words are there, their parts are to be handed out
    SKIP = 2                  # discarded


# -- in -------------------------------------------------------------------------------------------

cdef int _check(Ws* w, uint64_t size) noexcept nogil:
    """The limit holds for the whole message, as over streams."""
    cdef int rc = decode_check(&w.head, (<Spws*> w).n_front + size, False)
    if rc == MQ_PROTOCOL:
        w.code = WS_TOO_BIG
    return rc


cdef int _skip(Ws* w, Input* input) noexcept nogil:
    """Discard the available bytes of an unwanted message."""
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
    cdef int rc = ws_body(w, input, &out[n[0]])
    if rc == MQ_OK:
        _hand_out(<Spws*> w, out, n)
    return rc


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
        body_take(&w.head.body, &out[n[0]])
    else:
        msg_init(&out[n[0]])
    _hand_out(s, out, n)
    return MQ_OK


cdef WsOps _MESSAGES
_MESSAGES.front = _front
_MESSAGES.whole = _whole
_MESSAGES.check = _check
_MESSAGES.over = _over
_MESSAGES.text = "the peer sent text; SP's messages are binary WebSocket messages"


cdef inline int _pending(Ws* w, Msg* out) noexcept nogil:
    """PendingFn of messages.pxd: the parts of an envelope."""
    cdef Spws* s = <Spws*> w
    cdef int rc
    if s.stage != ENVELOPE:
        return MQ_DONE
    rc = words_next(&s.join.words, &w.head, out)
    if rc == MQ_DONE:
        s.stage = FRONT
    return rc


cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef bint plain = not self.config.words and not self.config.hops
    return ws_decode(<Ws*> self, input, out, cap, n, 0, plain, _pending)


# -- out ------------------------------------------------------------------------------------------

cdef void _frame_out(const Codec* self, const uint8_t* at, Frame* out) noexcept nogil:
    ws_read(at, 0, out)
    if self.config.hops:
        out.header += HOP
        out.size -= HOP
        out.hops = <uint8_t> ((at[out.header - 1] ^ (<const uint8_t*> &out.mask)[3]) - 1)


cdef inline size_t _small(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    return ws_small(at, part, 0)


cdef inline size_t _small_masked(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    return ws_small_masked(<Ws*> self, at, part, 0)


cdef int _encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    if self.config.words or self.config.hops:
        return encode_loop(self, batch, src, msgs, body, NULL, MSG_CONTROL | MSG_MORE,
                           fragments_join)
    if (<Ws*> self).client:
        return encode_loop(self, batch, src, msgs, body, _small_masked, MSG_CONTROL | MSG_MORE,
                           fragments_join)
    return encode_loop(self, batch, src, msgs, body, _small, MSG_CONTROL | MSG_MORE,
                           fragments_join)


# -- the contract ---------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    return ws_init(<Ws*> self, &_MESSAGES)


cdef void _fini(Codec* self) noexcept nogil:
    join_fini(&(<Spws*> self).join)
    ws_fini(<Ws*> self)


cdef int _start(Codec* self, bint listening) noexcept nogil:
    """Nothing is exchanged: the subprotocol has identified the peer."""
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
_OPS.under_way = decode_under_way
_OPS.encode = _encode
_OPS.encode_one = fragments_one
_OPS.ping = NULL
_OPS.finish = ws_finish
_OPS.head = fragments_head
_OPS.frame = _frame_out


cdef const CodecOps* sp_ws_ops() noexcept nogil:
    return &_OPS
