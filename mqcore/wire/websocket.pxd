"""WebSocket's framing (RFC 6455, section 5.2), for codecs that put messages into it.

     0               1               2 ..
    +-+-----+-------+-+-------------+---------------------------+----------+---------+
    |F| RSV | opcode|M| length (7)  | 16 or 64 bits of length   | mask key | payload |
    +-+-----+-------+-+-------------+---------------------------+----------+---------+

A client masks each frame, a server none; extensions are never agreed on, so reserved bits are 0.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.cursor cimport load_be16, load_be64, store_be64
from mqcore.wire.codec cimport Codec
from mqcore.wire.mask cimport mask_at
from mqcore.wire.ready cimport refuse

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

cdef struct WsFrame:          # one that is under way
    bint fin
    uint8_t opcode
    uint64_t left             # of its payload
    uint64_t mask             # for the next byte of it; 0: none


cdef inline int _ws_first(Codec* c, const uint8_t* at, bint masked) noexcept nogil:
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


cdef inline int ws_parse(
        Codec* c, const uint8_t* at, size_t n, bint masked, WsFrame* f) noexcept nogil:
    """A frame's header of n bytes so far; `masked`: the peer is a client. Its length; 0: cut off;
    -1: refused, the reason is set."""
    cdef uint8_t short_size
    cdef int length = 2
    if n < 2:
        return 0
    if _ws_first(c, at, masked):
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
        at[2] = <uint8_t> (size >> 8)
        at[3] = <uint8_t> size
        n = 4
    else:
        at[1] = bit | 127
        store_be64(at + 2, size)
        n = 10
    if key != NULL:
        memcpy(at + n, key, 4)
        n += 4
    return n
