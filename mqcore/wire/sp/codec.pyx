"""The SP codec: nanomsg's and nng's protocol over streams.

    header    00 'S' 'P' 00  number(2)  00 00     each side sends its own, at once
    message   [01]  length(8)  payload            the byte 01 over unix sockets only

All numbers are big-endian. The payload is the body. In requests, surveys and their answers words
precede the body (words.pyx), in PAIR1 a word that counts hops. SP has no parts: those of a body are
joined (join.pyx). SP has no subscriptions, no heartbeat and no orderly end.

Decoding is a walk through stages, one step a turn: any of them may be cut off by the input's end,
and none but the body's bytes needs memory that grows with what the peer announced.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset, strlen

from mqcore.base.body cimport body_take
from mqcore.base.bytes cimport bytes_append
from mqcore.base.cursor cimport load_be16, load_be64, store_be16, store_be64
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, Msg, msg_init,
)
from mqcore.base.slab cimport Owner
from mqcore.base.status cimport MQ_DONE, MQ_DROPPED, MQ_NEED_DATA, MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.codec cimport CODEC_ABI, Batch, CodecOps, Frame, Input, codec_fini
from mqcore.wire.decode cimport (
    decode_check, decode_direct, decode_fill, decode_filled, decode_open, decode_slice,
    decode_under_way,
)
from mqcore.wire.encode cimport encode_loop
from mqcore.wire.sp.join cimport join_all, join_fini, join_message, join_one
from mqcore.wire.zmtp.ready cimport refuse, refuse_with
from mqcore.wire.strangers cimport refuse_stranger
from mqcore.wire.sp.words cimport words_next, words_open, words_take

cdef enum:
    HEADER = 8
    HOPS_MAX = 255

cdef enum:                    # what comes next of the peer's traffic
    STAGE_LENGTH = 0
    STAGE_HOPS = 1
    STAGE_WORDS = 2
    STAGE_OPEN = 3            # its words are there
    STAGE_ENVELOPE = 4        # their parts are to be handed out
    STAGE_START = 5           # the body begins
    STAGE_BODY = 6            # it was cut off
    STAGE_SKIP = 7            # of a message that is discarded


# -- protocols -------------------------------------------------------------------------------------

cdef struct Named:
    int number
    const char* name

cdef Named[11] NAMES = [
    Named(0x10, "PAIR"), Named(0x11, "PAIR1"), Named(0x20, "PUB"), Named(0x21, "SUB"),
    Named(0x30, "REQ"), Named(0x31, "REP"), Named(0x50, "PUSH"), Named(0x51, "PULL"),
    Named(0x62, "SURVEYOR"), Named(0x63, "RESPONDENT"), Named(0x70, "BUS"),
]


cdef const char* sp_name(int number) noexcept nogil:
    cdef int i
    for i in range(11):
        if NAMES[i].number == number:
            return NAMES[i].name
    return NULL


cdef int sp_check(Codec* c, int number) noexcept nogil:
    cdef const char* ours = c.config.pattern
    cdef const char* name = sp_name(number)
    cdef char* said = c.peer.pattern
    if name != NULL:
        snprintf(said, sizeof(c.peer.pattern), "%s", name)
    else:
        snprintf(said, sizeof(c.peer.pattern), "protocol 0x%02x", number)
    if number == c.config.sp_peer:
        return MQ_OK
    if strlen(ours) == 0 and sp_name(c.config.sp) != NULL:
        ours = sp_name(c.config.sp)
    return refuse_with(c, "the peer is a %s socket, which does not fit %s", said, ours)


# -- the header ------------------------------------------------------------------------------------

cdef int _start(Codec* self, bint listening) noexcept nogil:
    """Neither side waits for the other."""
    cdef Sp* s = <Sp*> self
    cdef uint8_t[8] header
    cdef int rc
    if s.said:
        return MQ_OK
    memcpy(header, b"\x00SP\x00\x00\x00\x00\x00", 8)
    store_be16(&header[4], <uint16_t> self.config.sp)
    rc = bytes_append(&self.ctl, header, 8)
    s.said = rc == MQ_OK
    return rc


cdef int _stranger(Sp* s) noexcept nogil:
    if s.seen[0] == 0xff:
        if strlen(s.head.config.pattern) == 0 and sp_name(s.head.config.sp) != NULL:
            return refuse_with(&s.head, "the peer speaks ZMTP (ZeroMQ), which has no %s: "
                               "it takes a peer that speaks SP%s", sp_name(s.head.config.sp), "")
        return refuse(&s.head, "the peer speaks ZMTP (ZeroMQ), which this socket does not: "
                      "say wire=\"sp\" there, or wire=\"zmtp\" here")
    return refuse_stranger(&s.head, s.seen, s.n_seen, "SP")


cdef int _header_byte(Sp* s) noexcept nogil:
    """Look at the byte that has just been added to `seen`."""
    cdef uint32_t n = s.n_seen
    if n <= 4:
        if memcmp(s.seen, b"\x00SP\x00", n) == 0:
            return MQ_OK
        if s.seen[0] == 0xff or n == 4 or s.seen[0] == 0:
            if n == 4 and memcmp(s.seen, b"\x00SP", 3) == 0:
                return refuse(&s.head, "the peer speaks another version of SP than 0")
            return _stranger(s)
        return MQ_OK                          # four bytes are enough to know whose they are
    if n == 6:
        return sp_check(&s.head, load_be16(&s.seen[4]))
    if n > 6 and s.seen[n - 1]:
        return refuse(&s.head, "the peer's SP header is malformed: its last two bytes must be 0")
    return MQ_OK


cdef int _feed(Codec* self, const uint8_t* data, size_t n, size_t* used) noexcept nogil:
    cdef Sp* s = <Sp*> self
    cdef int rc
    used[0] = 0
    while s.n_seen < HEADER:
        if used[0] == n:
            return MQ_NEED_DATA
        s.seen[s.n_seen] = data[used[0]]
        s.n_seen += 1
        used[0] += 1
        rc = _header_byte(s)
        if rc:
            return rc
    return MQ_DONE


# -- in --------------------------------------------------------------------------------------------

cdef bint _hold(Sp* s, Input* input, uint32_t need) noexcept nogil:
    """Collect `need` bytes that the input may have cut off. True: they are in hold."""
    if s.n_hold == 0 and <size_t> (input.end - input.pos) >= need:
        memcpy(s.hold, input.pos, need)
        input.pos += need
        return True
    while s.n_hold < need:
        if input.pos == input.end:
            return False
        s.hold[s.n_hold] = input.pos[0]
        s.n_hold += 1
        input.pos += 1
        if s.typed and s.stage == STAGE_LENGTH and s.hold[0] != 1:
            break                             # refused before more of it comes
    s.n_hold = 0
    return True


cdef int _length(Sp* s, Input* input) noexcept nogil:
    """A message's length: is it possible, and what follows it?"""
    cdef uint32_t lead = 9 if s.typed else 8
    cdef int rc
    if not _hold(s, input, lead):
        return MQ_NEED_DATA
    if s.typed and s.hold[0] != 1:
        return refuse(&s.head, "the peer sent a message of unknown type: its first byte must be 1")
    s.left = load_be64(s.hold + lead - 8)
    rc = decode_check(&s.head, s.left, False)
    if rc:
        return rc
    s.hops = 0
    s.stage = STAGE_START
    if s.head.config.words:
        s.stage = STAGE_WORDS
        if s.left < 4:
            return refuse(&s.head, "the peer sent a message that is too short for its request id")
    elif s.head.config.hops:
        s.stage = STAGE_HOPS
        if s.left < 4:
            return refuse(&s.head, "the peer sent a message that is too short for a count of hops")
    return MQ_OK


cdef int _hops(Sp* s, Input* input) noexcept nogil:
    if not _hold(s, input, 4):
        return MQ_NEED_DATA
    if s.hold[0] or s.hold[1] or s.hold[2]:
        return refuse(&s.head, "the peer sent a message that has passed more than 255 devices")
    s.hops = s.hold[3]
    s.left -= 4
    s.stage = STAGE_START
    return MQ_OK


cdef int _words(Sp* s, Input* input) noexcept nogil:
    cdef size_t n = input.end - input.pos
    cdef size_t used = 0
    cdef int rc
    if n > s.left:
        n = s.left
    rc = words_take(&s.join.words, &s.head, input.pos, n, &used)
    input.pos += used
    s.left -= used
    if rc == MQ_NEED_DATA and s.left == 0:
        return refuse(&s.head, "the peer sent a message that ends before its request id")
    if rc == MQ_OK:
        s.stage = STAGE_OPEN
    return rc


cdef int _open(Sp* s) noexcept nogil:
    cdef int rc = words_open(&s.join.words, &s.head)
    if rc == MQ_NOMEM:
        return rc
    s.stage = STAGE_SKIP if rc == MQ_DROPPED else STAGE_ENVELOPE
    return MQ_OK


cdef int _envelope(Sp* s, Msg* out, size_t* n, size_t cap) noexcept nogil:
    cdef int rc = MQ_OK
    while n[0] < cap:
        rc = words_next(&s.join.words, &s.head, &out[n[0]])
        if rc:
            break
        n[0] += 1
    if rc == MQ_DONE:
        s.stage = STAGE_START
        rc = MQ_OK
    return rc


cdef int _body(Sp* s, Input* input, Msg* out, size_t* n) noexcept nogil:
    """It begins: hand it out if all of it is there."""
    cdef uint8_t* at = input.pos
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef int rc
    if s.left > <uint64_t> (input.end - at):
        rc = decode_open(&s.head, input, s.left, False, False)
        if rc == MQ_OK:
            s.stage = STAGE_BODY
        return rc
    rc = decode_slice(&out[n[0]], s.head.pool, at, s.left, owner)
    if rc == MQ_OK:
        input.pos = at + s.left
        out[n[0]].hops = s.hops
        n[0] += 1
        s.stage = STAGE_LENGTH
    return rc


cdef int _go_on(Sp* s, Input* input, Msg* out, size_t* n) noexcept nogil:
    """With a body that was cut off."""
    cdef int rc = decode_fill(&s.head.body, input)
    if rc:
        return rc
    if s.head.body.got < s.head.body.size:
        return MQ_NEED_DATA
    body_take(&s.head.body, &out[n[0]])
    out[n[0]].hops = s.hops
    n[0] += 1
    s.stage = STAGE_LENGTH
    return MQ_OK


cdef int _skip(Sp* s, Input* input) noexcept nogil:
    cdef size_t n = input.end - input.pos
    if n > s.left:
        n = s.left
    input.pos += n
    s.left -= n
    if s.left:
        return MQ_NEED_DATA
    s.stage = STAGE_LENGTH
    return MQ_OK


cdef int _step(Sp* s, Input* input, Msg* out, size_t* n, size_t cap) noexcept nogil:
    if s.stage == STAGE_LENGTH:
        return _length(s, input)
    if s.stage == STAGE_HOPS:
        return _hops(s, input)
    if s.stage == STAGE_WORDS:
        return _words(s, input)
    if s.stage == STAGE_OPEN:
        return _open(s)
    if s.stage == STAGE_ENVELOPE:
        return _envelope(s, out, n, cap)
    if s.stage == STAGE_START:
        return _body(s, input, out, n)
    if s.stage == STAGE_BODY:
        return _go_on(s, input, out, n)
    return _skip(s, input)


cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Sp* s = <Sp*> self
    cdef bint plain = not self.config.words and not self.config.hops
    cdef size_t lead = 9 if s.typed else 8
    cdef uint64_t small = MSG_INLINE_MAX
    cdef const uint8_t* at
    cdef uint64_t size
    cdef int rc
    n[0] = 0
    if 0 <= self.max_message_size < <int64_t> MSG_INLINE_MAX:
        small = self.max_message_size
    while n[0] < cap:
        at = input.pos
        if s.stage == STAGE_LENGTH and s.n_hold == 0:
            if at == input.end:
                return MQ_NEED_DATA
            if (plain and input.end - at >= 9 + MSG_INLINE_MAX
                    and (not s.typed or at[0] == 1)):
                # the common case: a small body, and so much behind it that a copy of fixed size is
                # safe
                size = load_be64(at + lead - 8)
                if size <= small:
                    memcpy(out[n[0]].u.inl, at + lead, MSG_INLINE_MAX)
                    msg_init(&out[n[0]])
                    out[n[0]].size8 = <uint8_t> size
                    n[0] += 1
                    input.pos += lead + size
                    continue
                rc = decode_check(self, size, False)
                if rc:
                    return rc
                input.pos += lead
                s.left = size
                s.stage = STAGE_START
                rc = _body(s, input, out, n)
                if rc:
                    return rc
                continue
        rc = _step(s, input, out, n, cap)
        if rc:
            return rc
    return MQ_OK


# -- out -------------------------------------------------------------------------------------------

cdef size_t _head(
        Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil:
    cdef size_t n = 0
    mask[0] = 0
    if (<Sp*> self).typed:
        at[0] = 1
        n = 1
    if not self.config.hops:
        store_be64(at + n, size)
        return n + 8
    store_be64(at + n, size + 4)
    at[n + 8] = at[n + 9] = at[n + 10] = 0
    at[n + 11] = part.hops + 1 if part.hops < HOPS_MAX else HOPS_MAX
    return n + 12


cdef void _frame_out(const Codec* self, const uint8_t* at, Frame* out) noexcept nogil:
    out.header = 9 if (<const Sp*> self).typed else 8
    out.size = load_be64(at + out.header - 8)
    out.mask = 0
    out.more = False
    if self.config.hops:
        out.header += 4
        out.size -= 4
        out.hops = at[out.header - 1] - 1


cdef inline size_t _small(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    cdef size_t lead = (<Sp*> self).typed
    memset(at + lead, 0, 7)                       # the length, of which the last byte is enough
    at[lead + 7] = part.size8
    if lead:
        at[0] = 1
    memcpy(at + lead + 8, part.u.inl, MSG_INLINE_MAX)    # a fixed size; the excess is covered too
    return lead + 8 + part.size8


cdef inline int _join(Codec* self, Batch* b, YPipe* src, size_t* size) noexcept nogil:
    return join_message(&(<Sp*> self).join, self, b, src, size)


cdef int _encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    if self.config.words or self.config.hops:
        return join_all(self, batch, src, msgs, body, _join)
    return encode_loop(self, batch, src, msgs, body, _small, MSG_CONTROL | MSG_MORE, _join)


cdef int _encode_one(Codec* self, Batch* batch, Msg* part, bint* done) noexcept nogil:
    return join_one(&(<Sp*> self).join, self, batch, part, done)


# -- the table -------------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    return MQ_OK              # zeroed memory is a codec that has said and heard nothing


cdef int _init_typed(Codec* self) noexcept nogil:
    (<Sp*> self).typed = True
    return MQ_OK


cdef void _fini(Codec* self) noexcept nogil:
    join_fini(&(<Sp*> self).join)
    codec_fini(self)


cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Sp)
_OPS.joins = True
_OPS.keeps = True
_OPS.name = "sp"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = _start
_OPS.feed = _feed
_OPS.decode = _decode
_OPS.direct = decode_direct
_OPS.filled = decode_filled
_OPS.under_way = decode_under_way
_OPS.encode = _encode
_OPS.encode_one = _encode_one
_OPS.ping = NULL
_OPS.finish = NULL
_OPS.head = _head
_OPS.frame = _frame_out

cdef CodecOps _IPC = _OPS
_IPC.name = "sp-ipc"
_IPC.init = _init_typed


cdef const CodecOps* sp_ops() noexcept nogil:
    return &_OPS


cdef const CodecOps* sp_ipc_ops() noexcept nogil:
    return &_IPC
