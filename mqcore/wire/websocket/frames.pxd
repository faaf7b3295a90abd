"""WebSocket's framing (RFC 6455, section 5.2), for codecs that put messages into it.

     0               1               2 ..
    +-+-----+-------+-+-------------+---------------------------+----------+---------+
    |F| RSV | opcode|M| length (7)  | 16 or 64 bits of length   | mask key | payload |
    +-+-----+-------+-+-------------+---------------------------+----------+---------+

A client masks each frame, a server none; extensions are never agreed on, so reserved bits are 0.

A codec's struct begins with `Ws`, which reads frames, answers control frames, joins fragments and
closes. `WsOps` gives a message's payload its meaning (messages.pxd has what the codecs share
there). A peer that violates RFC 6455 gets a CLOSE with the reason. Masked payloads are unmasked in
place.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.cursor cimport store_be16, store_be64
from mqcore.base.message cimport Msg
from mqcore.wire.codec cimport Codec, Input
from mqcore.wire.websocket.mask cimport Keys

cdef enum:
    WS_CONTINUATION = 0
    WS_TEXT = 1
    WS_BINARY = 2
    WS_CLOSE = 8
    WS_PING = 9
    WS_PONG = 10
    WS_CONTROL = 8            # the bit that all control opcodes have
    WS_FIN = 0x80
    WS_MASKED = 0x80
    WS_HEADER_MAX = 14
    WS_CONTROL_MAX = 125      # payload of a control frame
    WS_TOO_BIG = 1009         # RFC 6455, section 7.4.1

cdef struct WsFrame:          # one that is under way
    bint fin
    uint8_t opcode
    uint64_t left             # of its payload
    uint64_t mask             # for the next byte of it; 0: none

cdef struct Ws:               # zero-initialise all but the head
    Codec head
    const WsOps* ops          # the codec's own
    bint client               # we connected: we mask, the peer does not
    bint traffic              # the handshake is over: messages may be taken whole
    bint ending               # our CLOSE is in ctl
    bint ended                # the peer's has come
    uint16_t code             # of our CLOSE if the peer is refused; 0: 1002
    Keys keys
    # -- decoder
    uint32_t n_hold
    uint8_t[16] hold          # a cut-off header
    bint in_frame
    WsFrame frame
    bint message              # a message is under way, in its first frame or a later one
    bint started              # and what comes before its body is over
    bint opened               # its body is under way, in head.body
    bint command              # and it is the protocol's own
    uint32_t n_control
    uint8_t[125] control      # payload of a control frame

cdef struct WsOps:            # a codec's handling of messages; for the holder of the engine's lease
    # A message has begun, and at least one byte of the frame under way is there: takes what of it
    # comes before the body, and sets `started` when that is all. MQ_OK; MQ_NEED_DATA: all of the
    # input is used, the frame goes on; MQ_FULL: something is to be handed out before the body, come
    # again; MQ_PROTOCOL, MQ_NOMEM.
    int (*front)(Ws* w, Input* input) noexcept nogil
    # It has started, and all that is left of it is in the input: takes it. n < cap.
    int (*whole)(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil
    # Its body may be of `size` bytes? MQ_OK, MQ_PROTOCOL.
    int (*check)(Ws* w, uint64_t size) noexcept nogil
    # It is over; if `started`, its body is whole.
    int (*over)(Ws* w, Msg* out, size_t* n) noexcept nogil
    const char* text          # why a message of text is refused

# For the holder of the engine's lease.
cdef int ws_init(Ws* w, const WsOps* ops) noexcept nogil      # MQ_OK, MQ_NOMEM: no random bytes
cdef void ws_fini(Ws* w) noexcept nogil
# A whole frame into ctl. ws_say_close: once; the text is cut to what a control frame holds.
cdef int ws_say(Ws* w, uint8_t opcode, const uint8_t* data, size_t n) noexcept nogil
cdef int ws_say_close(Ws* w, uint16_t code, const char* text) noexcept nogil
# CodecOps.finish.
cdef int ws_finish(Codec* self) noexcept nogil
# After MQ_PROTOCOL: tells the peer why. Returns rc.
cdef int ws_refused(Ws* w, int rc) noexcept nogil
# Takes n bytes from the front of the payload under way, unmasked.
cdef void ws_take(Ws* w, Input* input, uint8_t* out, size_t n) noexcept nogil
# One step: a frame, or what there is of it. At most one part comes out of it. MQ_OK: a step was
# made; MQ_NEED_DATA; MQ_DONE: the peer has closed and `ended` is set; MQ_FULL: as `front` said;
# MQ_PROTOCOL, MQ_NOMEM.
cdef int ws_next(Ws* w, Input* input, Msg* out, size_t* n) noexcept nogil
# For `whole`: makes m of all that is left of the frame, unmasked. MQ_OK, MQ_NOMEM.
cdef int ws_body(Ws* w, Input* input, Msg* m) noexcept nogil
# CodecOps.direct and filled.
cdef int ws_direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil
cdef void ws_filled(Codec* self, size_t n) noexcept nogil


cdef inline size_t ws_emit(
        uint8_t* at, uint8_t opcode, uint64_t size, const uint32_t* key) noexcept nogil:
    """The header of a whole message or control frame to at[0..WS_HEADER_MAX). Its length."""
    cdef size_t n = 2
    cdef uint8_t bit = WS_MASKED if key != NULL else 0
    at[0] = WS_FIN | opcode
    if size < 126:
        at[1] = bit | <uint8_t> size
    elif size <= 0xffff:
        at[1] = bit | 126
        store_be16(at + 2, <uint16_t> size)
        n = 4
    else:
        at[1] = bit | 127
        store_be64(at + 2, size)
        n = 10
    if key != NULL:
        memcpy(at + n, key, 4)
        n += 4
    return n
