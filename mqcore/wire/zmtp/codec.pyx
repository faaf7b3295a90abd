"""ZMTP's traffic decoder and commands, and the codec's table of operations.

Frames (2.0, 3.x) are `flags length body`, those of 1.0 `length flags body`. Small bodies are copied
into the handle, larger ones are slices of the slab that was read into. What the end of a slab cuts
off is kept here: a header in `hold`, a body in `part`, which owns memory of its own and grows with
the bytes that arrive, never by what its header promises, unless the peer has kept such a promise
before.

Commands: SUBSCRIBE and CANCEL (between RADIO and DISH: JOIN and LEAVE) become control handles, PING
is answered, PONG counted, all others (also a second READY, and ERROR) are ignored as every known
peer does.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mqcore.base.body cimport body_drop, body_take
from mqcore.base.bytes cimport bytes_append, bytes_fini
from mqcore.base.cursor cimport load_be64, store_be16, store_be64
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, MSG_REF, MSG_SUBSCRIBE, Msg, msg_data, msg_init,
)
from mqcore.base.slab cimport Owner
from mqcore.base.status cimport MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.base.ypipe cimport YPipe
from mqcore.wire.codec cimport (
    CODEC_ABI, CTL_MAX, Batch, Codec, CodecOps, Frame, Input, Verdict, codec_fini,
)
from mqcore.wire.decode cimport (
    decode_check, decode_direct, decode_fill, decode_filled, decode_open, decode_slice,
    decode_under_way,
)
from mqcore.wire.encode cimport encode_all, encode_loop, encode_one
from mqcore.wire.zmtp.command cimport command_obey, interest_name, ping_ttl
from mqcore.wire.zmtp.greeting cimport (
    FRAMING_V1, FRAMING_V3, Zmtp, greeting_feed, greeting_start,
)
from mqcore.wire.zmtp.mechanism cimport FRAME_COMMAND, FRAME_LONG, FRAME_MORE, mechanism_forget
from mqcore.wire.zmtp.null cimport null_ops
from mqcore.wire.zmtp.plain cimport plain_ops
from mqcore.wire.zmtp.security cimport PLAIN
from mqcore.wire.zmtp.ready cimport refuse


# -- commands -------------------------------------------------------------------------------------

cdef int _pong(Codec* c, const uint8_t* pong, size_t size) noexcept nogil:
    """PongFn of command.pxd."""
    cdef uint8_t[2] header
    cdef int rc
    if c.ctl.n > CTL_MAX:
        return MQ_OK
    header[0] = FRAME_COMMAND
    header[1] = <uint8_t> size
    rc = bytes_append(&c.ctl, header, 2)
    return rc if rc else bytes_append(&c.ctl, pong, size)


# -- frame headers --------------------------------------------------------------------------------

cdef inline int _parse(
        Zmtp* z, const uint8_t* at, size_t n, uint8_t* flags, uint64_t* size) noexcept nogil:
    """A frame's header of n bytes so far. Its length; 0: cut off; -1: refused."""
    if z.framing != FRAMING_V1:
        if n < 2:
            return 0
        flags[0] = at[0]
        if not at[0] & FRAME_LONG:
            size[0] = at[1]
            return 2
        if n < 9:
            return 0
        size[0] = load_be64(at + 1)
        return 9
    if n < 2:
        return 0
    if at[0] != 0xff:
        size[0] = at[0]
        flags[0] = at[1] & FRAME_MORE
    else:
        if n < 10:
            return 0
        size[0] = load_be64(at + 1)
        flags[0] = at[9] & FRAME_MORE
    if size[0] == 0:
        refuse(&z.head, "the peer sent a frame of length 0")
        return -1
    size[0] -= 1              # it counts the flags
    return 2 if at[0] != 0xff else 10


cdef inline bint _is_command(Zmtp* z, uint8_t flags) noexcept nogil:
    return flags & FRAME_COMMAND and z.framing == FRAMING_V3


# -- bodies ----------------------------------------------------------------------------------------

cdef int _open(Zmtp* z, Input* input, uint8_t flags, uint64_t size) noexcept nogil:
    cdef int rc = decode_open(&z.head, input, size, _is_command(z, flags), False)
    z.flags = flags
    return rc if rc else decode_fill(&z.head.body, input)


cdef int _finish(Zmtp* z, Msg* out, size_t* n) noexcept nogil:
    """The body under way is complete: hand it out, or obey it."""
    cdef Msg* part = &z.head.body.part
    cdef int rc
    if not _is_command(z, z.flags):
        z.head.mid_in = z.flags & FRAME_MORE
        body_take(&z.head.body, &out[n[0]])
        out[n[0]].flags = z.flags & FRAME_MORE    # the same bit as MSG_MORE
        n[0] += 1
        return MQ_OK
    rc = command_obey(&z.head, msg_data(part), z.head.body.size,
                      part.u.ref.owner if part.kind == MSG_REF else <Owner*> NULL, out, n, _pong)
    if rc != MQ_NOMEM:
        body_drop(&z.head.body)
    return rc


cdef int _frame(
        Zmtp* z, Input* input, uint8_t flags, uint64_t size, Msg* out, size_t* n) noexcept nogil:
    """A frame whose header is behind us. Moves input past what there is of its body."""
    cdef uint8_t* at = input.pos
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef int rc = decode_check(&z.head, size, _is_command(z, flags))
    if rc:
        return rc
    if size > <uint64_t> (input.end - at):
        return _open(z, input, flags, size)
    if _is_command(z, flags):
        rc = command_obey(&z.head, at, size, owner, out, n, _pong)
    else:
        rc = decode_slice(&out[n[0]], z.head.pool, at, size, owner)
        if rc == MQ_OK:
            z.head.mid_in = flags & FRAME_MORE
            out[n[0]].flags = flags & FRAME_MORE
            n[0] += 1
    if rc == MQ_OK:
        input.pos = at + size
    return rc


cdef int _held(Zmtp* z, Input* input, Msg* out, size_t* n) noexcept nogil:
    """Complete a cut-off header from the input, or cut-off it stays."""
    cdef uint8_t flags = 0
    cdef uint64_t size = 0
    cdef int length
    cdef int rc
    while input.pos < input.end:
        z.hold[z.n_hold] = input.pos[0]
        input.pos += 1
        length = _parse(z, z.hold, z.n_hold + 1, &flags, &size)
        if length < 0:
            return MQ_PROTOCOL
        if length:
            rc = _frame(z, input, flags, size, out, n)
            if rc == MQ_NOMEM and not z.head.body.busy:
                input.pos -= 1                # nothing happened: the last byte comes again
            else:
                z.n_hold = 0
            return rc
        z.n_hold += 1
    return MQ_OK


cdef int _decode(Codec* self, Input* input, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    cdef bint plain = z.framing != FRAMING_V1
    cdef uint8_t special = FRAME_LONG | FRAME_COMMAND if z.framing == FRAMING_V3 else FRAME_LONG
    cdef uint64_t small = MSG_INLINE_MAX
    cdef uint8_t* at
    cdef uint8_t flags = 0
    cdef uint64_t size = 0
    cdef int length
    cdef int rc
    n[0] = 0
    if 0 <= self.max_message_size < <int64_t> MSG_INLINE_MAX:
        small = self.max_message_size
    if z.phantom and cap:
        z.phantom = False
        msg_init(out)
        out.flags = MSG_SUBSCRIBE
        n[0] = 1
    while n[0] < cap:
        at = input.pos
        if z.head.body.busy:
            rc = decode_fill(&z.head.body, input)
            if rc == MQ_OK and z.head.body.got < z.head.body.size:
                return MQ_NEED_DATA
            if rc == MQ_OK:
                rc = _finish(z, out, n)
        elif at == input.end:
            return MQ_NEED_DATA
        elif z.n_hold:
            rc = _held(z, input, out, n)
        elif (plain and input.end - at >= 2 + MSG_INLINE_MAX and not at[0] & special
                and at[1] <= small):
            # the common case: a small body, and so much behind it that a copy of fixed size is safe
            memcpy(out[n[0]].u.inl, at + 2, MSG_INLINE_MAX)
            msg_init(&out[n[0]])
            out[n[0]].size8 = at[1]
            out[n[0]].flags = at[0] & FRAME_MORE
            z.head.mid_in = at[0] & FRAME_MORE
            n[0] += 1
            input.pos = at + 2 + at[1]
            continue
        else:
            length = _parse(z, at, input.end - at, &flags, &size)
            if length < 0:
                return MQ_PROTOCOL
            if length == 0:
                rc = _held(z, input, out, n)
            else:
                input.pos = at + length
                rc = _frame(z, input, flags, size, out, n)
                if rc == MQ_NOMEM and not z.head.body.busy:
                    input.pos = at            # nothing happened: the caller may try again
        if rc:
            return rc
    return MQ_OK


# -- out -------------------------------------------------------------------------------------------

cdef size_t _head(
        Codec* self, uint8_t* at, const Msg* part, size_t size, uint64_t* mask) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    cdef const uint8_t* name = NULL
    cdef size_t name_size = 0
    cdef uint8_t flags = part.flags & MSG_MORE
    cdef size_t n = 2
    mask[0] = 0
    if part.flags & MSG_CONTROL:
        flags = 0
        if z.subscribes or z.head.config.groups:
            flags = FRAME_COMMAND
            name = <const uint8_t*> interest_name(&z.head, part.flags & MSG_SUBSCRIBE)
            name_size = name[0] + 1
        else:
            name = b"\x01" if part.flags & MSG_SUBSCRIBE else b"\x00"
            name_size = 1
        size += name_size
    if z.framing == FRAMING_V1:               # the length counts the flags
        if size < 254:
            at[0] = <uint8_t> (size + 1)
            at[1] = flags
        else:
            at[0] = 0xff
            store_be64(at + 1, size + 1)
            at[9] = flags
            n = 10
    elif size <= 255:
        at[0] = flags
        at[1] = <uint8_t> size
    else:
        at[0] = flags | FRAME_LONG
        store_be64(at + 1, size)
        n = 9
    if name_size:
        memcpy(at + n, name, name_size)
    return n + name_size


cdef void _frame_out(const Codec* self, const uint8_t* at, Frame* out) noexcept nogil:
    cdef uint8_t flags
    if (<const Zmtp*> self).framing == FRAMING_V1:
        out.header = 10 if at[0] == 0xff else 2
        out.size = (load_be64(at + 1) if at[0] == 0xff else at[0]) - 1
        flags = at[out.header - 1]
    else:
        flags = at[0]
        out.header = 9 if flags & FRAME_LONG else 2
        out.size = load_be64(at + 1) if flags & FRAME_LONG else at[1]
    out.mask = 0
    out.more = flags & FRAME_MORE


cdef inline size_t _small(Codec* self, uint8_t* at, const Msg* part) noexcept nogil:
    at[0] = part.flags & MSG_MORE
    at[1] = part.size8
    memcpy(at + 2, part.u.inl, MSG_INLINE_MAX)    # a fixed size; what follows covers the excess
    return 2 + <size_t> part.size8


cdef int _encode(
        Codec* self, Batch* batch, YPipe* src, int64_t* msgs, int64_t* body) noexcept nogil:
    if (<Zmtp*> self).framing == FRAMING_V1:
        return encode_all(self, batch, src, msgs, body)
    return encode_loop(self, batch, src, msgs, body, _small, MSG_CONTROL, NULL)


# -- the table ------------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    """Zeroed memory is a codec that has said and heard nothing."""
    if self.security != NULL:
        (<Zmtp*> self).mechanism = plain_ops() if self.security.mechanism == PLAIN else null_ops()
    return MQ_OK


cdef int zmtp_judged(Codec* self, const Verdict* verdict) noexcept nogil:
    return (<Zmtp*> self).mechanism.judged(self, verdict)


cdef void zmtp_fini(Codec* self) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    bytes_fini(&z.frame)
    mechanism_forget(self)
    codec_fini(self)


cdef int _ping(Codec* self, uint32_t ttl) noexcept nogil:
    """No-op for peers before 3.0, which know no commands."""
    cdef uint8_t[9] frame
    if (<Zmtp*> self).framing != FRAMING_V3:
        return MQ_OK
    frame[0] = FRAME_COMMAND
    frame[1] = 7
    memcpy(&frame[2], b"\x04PING", 5)
    store_be16(&frame[7], ping_ttl(ttl))
    return bytes_append(&self.ctl, frame, 9)


cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Zmtp)
_OPS.name = "zmtp"
_OPS.init = _init
_OPS.fini = zmtp_fini
_OPS.judged = zmtp_judged
_OPS.start = greeting_start
_OPS.feed = greeting_feed
_OPS.decode = _decode
_OPS.direct = decode_direct
_OPS.filled = decode_filled
_OPS.under_way = decode_under_way
_OPS.encode = _encode
_OPS.encode_one = encode_one
_OPS.ping = _ping
_OPS.finish = NULL
_OPS.head = _head
_OPS.frame = _frame_out


cdef const CodecOps* zmtp_ops() noexcept nogil:
    return &_OPS
