"""Messages in WebSocket's frames: the half that the codecs share. Both put a whole message into one
binary frame wherever they can, so the short cuts both ways are the same for them, but for `lead`,
the number of bytes in front of a body: 1, a flags octet (ZWS), or 0 (SP).

All of it is inline: a small message costs a few nanoseconds here. `lead` is a constant wherever
these are called.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.cursor cimport load_be16, load_be64
from mqcore.base.message cimport MSG_INLINE_MAX, MSG_MORE, Msg, msg_init
from mqcore.base.status cimport MQ_DONE, MQ_FULL, MQ_NEED_DATA, MQ_OK
from mqcore.wire.codec cimport Frame, Input
from mqcore.wire.websocket.frames cimport (
    WS_BINARY, WS_FIN, WS_MASKED, Ws, ws_next, ws_refused,
)
from mqcore.wire.websocket.mask cimport keys_next, mask_at

# What is to be handed out before the next frame, one part into out. MQ_OK: it was; MQ_DONE: nothing
# is (left); MQ_NOMEM.
ctypedef int (*PendingFn)(Ws* w, Msg* out) noexcept nogil


# -- in --------------------------------------------------------------------------------------------

cdef inline bint ws_short(Ws* w, Input* input, uint64_t small, size_t lead, Msg* m) noexcept nogil:
    """The common case: a message of at most `small` bytes, and so much behind it that a copy of
    fixed size is safe. False: it is another case, nothing was taken."""
    cdef const uint8_t* at = input.pos
    cdef size_t head = lead + (2 if w.client else 6)
    cdef size_t size
    cdef uint8_t flags = 0
    cdef uint64_t mask
    cdef uint64_t* words = <uint64_t*> m.u.inl
    cdef int i
    if (input.end - at < <int64_t> (6 + lead + MSG_INLINE_MAX) or at[0] != (WS_FIN | WS_BINARY)
            or w.message):
        return False
    size = <size_t> (at[1] & 127) - lead      # of a message without its flags: far too large
    if size > small or (at[1] >= WS_MASKED) == w.client:
        return False
    if lead:
        flags = at[head - 1]
        if not w.client:
            flags ^= at[2]
        if flags > MSG_MORE:
            return False
    memcpy(m.u.inl, at + head, MSG_INLINE_MAX)
    if not w.client:
        mask = mask_at(at + 2, lead)
        for i in range(MSG_INLINE_MAX // 8):
            words[i] ^= mask
    msg_init(m)
    m.size8 = <uint8_t> size
    m.flags = flags
    input.pos += head + size
    return True


cdef inline int ws_decode(Ws* w, Input* input, Msg* out, size_t cap, size_t* n, size_t lead,
                          bint plain, PendingFn pending) noexcept nogil:
    """CodecOps.decode. plain: small messages may take the short cut. pending NULL: no message has
    anything in front."""
    cdef uint64_t small = MSG_INLINE_MAX
    cdef int rc
    n[0] = 0
    if 0 <= w.head.max_message_size < <int64_t> MSG_INLINE_MAX:
        small = w.head.max_message_size
    while n[0] < cap and not w.ended:
        if pending != NULL:
            rc = pending(w, &out[n[0]])
            if rc == MQ_OK:
                n[0] += 1
                continue
            if rc != MQ_DONE:
                return rc
        if not w.in_frame and w.n_hold == 0:
            if input.pos == input.end:
                return MQ_NEED_DATA
            if plain and ws_short(w, input, small, lead, &out[n[0]]):
                if lead:
                    w.head.mid_in = out[n[0]].flags
                n[0] += 1
                continue
        rc = ws_next(w, input, out, n)
        if rc and rc != MQ_FULL:
            return ws_refused(w, rc)
    if not w.ended:
        return MQ_OK
    input.pos = input.end
    return MQ_DONE


# -- out -------------------------------------------------------------------------------------------

cdef inline size_t ws_small(uint8_t* at, const Msg* part, size_t lead) noexcept nogil:
    """A SmallFn of encode.pxd, of a server."""
    at[0] = WS_FIN | WS_BINARY
    at[1] = <uint8_t> (part.size8 + lead)
    if lead:
        at[2] = part.flags & MSG_MORE
    memcpy(at + 2 + lead, part.u.inl, MSG_INLINE_MAX)     # a fixed size; what follows covers the
    return 2 + lead + part.size8                          # excess


cdef inline size_t ws_small_masked(
        Ws* w, uint8_t* at, const Msg* part, size_t lead) noexcept nogil:
    """The same of a client."""
    cdef uint32_t key = keys_next(&w.keys)
    cdef uint64_t mask = mask_at(<const uint8_t*> &key, lead)
    cdef uint64_t[7] words                    # MSG_INLINE_MAX bytes
    cdef int i
    at[0] = WS_FIN | WS_BINARY
    at[1] = WS_MASKED | <uint8_t> (part.size8 + lead)
    memcpy(at + 2, &key, 4)
    if lead:
        at[6] = part.flags & MSG_MORE ^ at[2]
    memcpy(words, part.u.inl, MSG_INLINE_MAX)
    for i in range(MSG_INLINE_MAX // 8):
        words[i] ^= mask
    memcpy(at + 6 + lead, words, MSG_INLINE_MAX)
    return 6 + lead + part.size8


cdef inline void ws_read(const uint8_t* at, size_t lead, Frame* out) noexcept nogil:
    """CodecOps.frame: a header that ws_emit wrote, and the `lead` bytes behind it."""
    cdef uint8_t size = at[1] & 127
    cdef size_t n = 2 if size < 126 else 4 if size == 126 else 10
    out.size = size if size < 126 else load_be16(at + 2) if size == 126 else load_be64(at + 2)
    out.size -= lead
    out.mask = 0
    out.more = lead and at[n] & MSG_MORE
    if at[1] & WS_MASKED:
        out.mask = mask_at(at + n, lead)
        out.more = lead and (at[n + 4] ^ at[n]) & MSG_MORE
        n += 4
    out.header = n + lead
