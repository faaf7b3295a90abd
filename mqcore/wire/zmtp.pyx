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
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy

from mqcore.base.bytes cimport bytes_append, bytes_fini
from mqcore.base.cursor cimport load_be16, load_be64
from mqcore.base.message cimport (
    MSG_CANCEL, MSG_INLINE_MAX, MSG_REF, MSG_SUBSCRIBE, Msg, msg_close, msg_data, msg_init,
    msg_init_copy, msg_init_inline, msg_init_ref,
)
from mqcore.base.slab cimport (
    LAND_FROM, Owner, heap_grow, heap_new, landing_take, owner_data, owner_retain, slab_new,
)
from mqcore.base.status cimport MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.wire.codec cimport CODEC_ABI, Codec, CodecOps, Input
from mqcore.wire.encode cimport zmtp_encode, zmtp_encode_one
from mqcore.wire.greeting cimport (
    FRAME_COMMAND, FRAME_LONG, FRAME_MORE, FRAMING_V1, FRAMING_V3, Zmtp, greeting_feed,
    greeting_start, interest_name,
)

cdef enum:
    BODY_FIRST = 1024 * 1024      # a cut-off body has at most so much memory before its bytes
                                  # come, or as much as the peer has filled before
    DIRECT_MIN = 8 * 1024         # a smaller rest is read together with what follows it
    COMMAND_MAX = 64 * 1024       # a command may be so long whatever max_message_size says
    CTL_MAX = 64 * 1024           # a peer that does not read its PONGs gets no more
    CONTEXT_MAX = 16              # of a PING; the rest is cut off
    TTL_MAX = 655                 # tenths of a second: some peers compute with 16 bits of ms

# Slabs for cut-off bodies, so that a steady stream allocates nothing: capacity by class.
cdef size_t[3] SLAB_CAPACITY = [8 * 1024 - 64, 64 * 1024 - 64, 256 * 1024 - 64]


# -- commands -------------------------------------------------------------------------------------

cdef int _refuse(Zmtp* z, const char* reason) noexcept nogil:
    z.head.reason = reason
    return MQ_PROTOCOL


cdef int _pong(Zmtp* z, const uint8_t* context, size_t size) noexcept nogil:
    cdef uint8_t[7 + CONTEXT_MAX] frame
    size = size if size < CONTEXT_MAX else CONTEXT_MAX
    if z.head.ctl.n > CTL_MAX:
        return MQ_OK
    frame[0] = FRAME_COMMAND
    frame[1] = <uint8_t> (5 + size)
    memcpy(&frame[2], b"\x04PONG", 5)
    memcpy(&frame[7], context, size)
    return bytes_append(&z.head.ctl, frame, 7 + size)


cdef inline bint _named(
        const uint8_t* at, size_t size, const char* name, size_t* skip) noexcept nogil:
    """Is it this command? *skip: where what it names begins."""
    skip[0] = <size_t> name[0] + 1
    return size >= skip[0] and memcmp(at, name, skip[0]) == 0


cdef int _command(
        Zmtp* z, const uint8_t* at, size_t size, uint8_t* kind, size_t* skip) noexcept nogil:
    """A whole command. *kind: MSG_SUBSCRIBE or MSG_CANCEL if it is one, the topic behind *skip."""
    kind[0] = 0
    if _named(at, size, interest_name(z, True), skip):
        kind[0] = MSG_SUBSCRIBE
    elif _named(at, size, interest_name(z, False), skip):
        kind[0] = MSG_CANCEL
    elif size >= 5 and memcmp(at, b"\x04PING", 5) == 0:
        if size < 7:
            return _refuse(z, "the peer sent a PING without its time to live")
        z.head.pings += 1
        z.head.peer_ttl = load_be16(at + 5) * <uint32_t> 100
        return _pong(z, at + 7, size - 7)
    elif size >= 5 and memcmp(at, b"\x04PONG", 5) == 0:
        z.head.pongs += 1
    if kind[0] and z.mid_in:
        return _refuse(z, "the peer sent a subscription in the middle of a message")
    return MQ_OK


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
        _refuse(z, "the peer sent a frame of length 0")
        return -1
    size[0] -= 1              # it counts the flags
    return 2 if at[0] != 0xff else 10


cdef inline bint _is_command(Zmtp* z, uint8_t flags) noexcept nogil:
    return flags & FRAME_COMMAND and z.framing == FRAMING_V3


cdef int _check_size(Zmtp* z, uint8_t flags, uint64_t size) noexcept nogil:
    cdef int64_t limit = z.head.max_message_size
    if size >> 63:
        return _refuse(z, "the peer announced a frame of 2^63 bytes or more")
    if limit < 0:
        return MQ_OK
    if _is_command(z, flags) and limit < COMMAND_MAX:
        limit = COMMAND_MAX
    if size <= <uint64_t> limit:
        return MQ_OK
    snprintf(z.head.reason_text, sizeof(z.head.reason_text),
             "the peer announced a part of %llu bytes, the limit is %lld",
             <unsigned long long> size, <long long> limit)
    z.head.reason = z.head.reason_text
    return MQ_PROTOCOL


# -- a body that the input cuts off ---------------------------------------------------------------

cdef Owner* _memory(Zmtp* z, uint8_t flags, uint64_t size, bint copy) noexcept nogil:
    """For a body that is cut off: what was made ahead for it, a pooled slab that it fills well, or
    a block of its own that starts small."""
    cdef Owner* owner
    cdef uint32_t klass
    z.room = size
    if size >= LAND_FROM and z.head.landing != NULL and not _is_command(z, flags):
        owner = landing_take(z.head.landing, size)
        if owner != NULL:
            return owner
    for klass in range(3):
        if size <= SLAB_CAPACITY[klass]:
            if not copy and (klass == 0 or size > SLAB_CAPACITY[klass] // 2):
                return slab_new(z.head.pool, klass)
            break
    z.room = min(size, max(<uint64_t> BODY_FIRST, z.proven))
    return heap_new(z.head.pool, z.room)


cdef int _open(Zmtp* z, uint8_t flags, uint64_t size, bint copy) noexcept nogil:
    """A body is under way, in the handle or in memory of its own."""
    cdef Owner* owner
    msg_init(&z.part)
    if size <= MSG_INLINE_MAX:
        z.room = size
        z.part.size8 = <uint8_t> size
    else:
        owner = _memory(z, flags, size, copy)
        if owner == NULL:
            return MQ_NOMEM
        msg_init_ref(&z.part, owner, owner.room if owner.room != NULL else owner_data(owner), size)
    z.busy = True
    z.flags = flags
    z.size = size
    z.got = 0
    return MQ_OK


cdef int _make_room(Zmtp* z) noexcept nogil:
    """The body's memory is full, the body is not: double it, never beyond the body's size."""
    cdef uint64_t room = z.room * 2
    cdef Owner* owner
    if z.size - z.room < z.room:
        room = z.size
    owner = heap_grow(z.part.u.ref.owner, room)
    if owner == NULL:
        return MQ_NOMEM
    z.part.u.ref.owner = owner
    z.part.u.ref.data = owner_data(owner)
    z.room = room
    return MQ_OK


cdef int _fill(Zmtp* z, Input* input) noexcept nogil:
    """Copy what the input has of the body under way."""
    cdef size_t take
    while z.got < z.size and input.pos < input.end:
        if z.got == z.room and _make_room(z):
            return MQ_NOMEM
        take = z.room - z.got
        if take > <size_t> (input.end - input.pos):
            take = input.end - input.pos
        memcpy(msg_data(&z.part) + z.got, input.pos, take)
        z.got += take
        input.pos += take
    return MQ_OK


cdef int _finish(Zmtp* z, Msg* out, size_t* n) noexcept nogil:
    """The body under way is complete: hand it out, or obey it."""
    cdef uint8_t kind = 0
    cdef size_t skip = 0
    cdef int rc
    z.proven = max(z.proven, z.size)
    if not _is_command(z, z.flags):
        z.part.flags = z.flags & FRAME_MORE   # the same bit as MSG_MORE
        z.mid_in = z.flags & FRAME_MORE
        out[n[0]] = z.part
        n[0] += 1
        z.busy = False
        msg_init(&z.part)
        return MQ_OK
    rc = _command(z, msg_data(&z.part), z.size, &kind, &skip)
    if rc == MQ_OK and kind:
        rc = _topic(z, &out[n[0]], msg_data(&z.part) + skip, z.size - skip,
                    z.part.u.ref.owner if z.part.kind == MSG_REF else <Owner*> NULL, kind)
        if rc == MQ_OK:
            n[0] += 1
    if rc != MQ_NOMEM:
        z.busy = False
        msg_close(&z.part)
    return rc


# -- whole frames ---------------------------------------------------------------------------------

cdef int _body(Zmtp* z, Msg* out, uint8_t* at, size_t size, Owner* owner) noexcept nogil:
    """A body as a handle: inside it, or a slice of owner, or a copy if that is NULL."""
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, at, size)
        return MQ_OK
    if owner == NULL:
        return msg_init_copy(out, z.head.pool, at, size)
    owner_retain(owner)
    msg_init_ref(out, owner, at, size)
    return MQ_OK


cdef int _topic(
        Zmtp* z, Msg* out, uint8_t* at, size_t size, Owner* owner, uint8_t kind) noexcept nogil:
    cdef int rc = _body(z, out, at, size, owner)
    if rc == MQ_OK:
        out.flags = kind
    return rc


cdef int _frame(
        Zmtp* z, Input* input, uint8_t flags, uint64_t size, Msg* out, size_t* n) noexcept nogil:
    """A frame whose header is behind us. Moves input past what there is of its body."""
    cdef uint8_t* at = input.pos
    cdef Owner* owner = <Owner*> NULL if input.copy else input.slab
    cdef uint8_t kind = 0
    cdef size_t skip = 0
    cdef int rc = _check_size(z, flags, size)
    if rc:
        return rc
    if size > <uint64_t> (input.end - at):
        rc = _open(z, flags, size, input.copy)
        return rc if rc else _fill(z, input)
    if not _is_command(z, flags):
        rc = _body(z, &out[n[0]], at, size, owner)
        if rc:
            return rc
        z.mid_in = flags & FRAME_MORE
        out[n[0]].flags = flags & FRAME_MORE
        n[0] += 1
    else:
        rc = _command(z, at, size, &kind, &skip)
        if rc == MQ_OK and kind:
            rc = _topic(z, &out[n[0]], at + skip, size - skip, owner, kind)
            if rc == MQ_OK:
                n[0] += 1
        if rc:
            return rc
    input.pos = at + size
    return MQ_OK


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
            if rc == MQ_NOMEM and not z.busy:
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
        if z.busy:
            rc = _fill(z, input)
            if rc == MQ_OK and z.got < z.size:
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
            z.mid_in = at[0] & FRAME_MORE
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
                if rc == MQ_NOMEM and not z.busy:
                    input.pos = at            # nothing happened: the caller may try again
        if rc:
            return rc
    return MQ_OK


cdef int _direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    room[0] = 0
    size[0] = z.size
    if not z.busy or z.size - z.got < DIRECT_MIN:
        return MQ_OK
    if z.got == z.room and _make_room(z):
        return MQ_NOMEM
    at[0] = msg_data(&z.part) + z.got
    room[0] = z.room - z.got
    return MQ_OK


cdef void _filled(Codec* self, size_t n) noexcept nogil:
    (<Zmtp*> self).got += n


# -- the table ------------------------------------------------------------------------------------

cdef int _init(Codec* self) noexcept nogil:
    return MQ_OK              # zeroed memory is a codec that has said and heard nothing


cdef void _fini(Codec* self) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    msg_close(&z.part)
    z.busy = False
    bytes_fini(&z.frame)
    bytes_fini(&self.ctl)
    bytes_fini(&self.peer.routing_id)
    bytes_fini(&self.peer.metadata)


cdef int _ping(Codec* self, uint32_t ttl) noexcept nogil:
    """No-op for peers before 3.0, which know no commands."""
    cdef uint8_t[9] frame
    cdef uint32_t tenths = ttl // 100 + (1 if ttl % 100 else 0)
    if (<Zmtp*> self).framing != FRAMING_V3:
        return MQ_OK
    if tenths > TTL_MAX:
        tenths = TTL_MAX
    frame[0] = FRAME_COMMAND
    frame[1] = 7
    memcpy(&frame[2], b"\x04PING", 5)
    frame[7] = <uint8_t> (tenths >> 8)
    frame[8] = <uint8_t> tenths
    return bytes_append(&self.ctl, frame, 9)


cdef CodecOps _OPS
_OPS.abi = CODEC_ABI
_OPS.size = sizeof(Zmtp)
_OPS.name = "zmtp"
_OPS.init = _init
_OPS.fini = _fini
_OPS.start = greeting_start
_OPS.feed = greeting_feed
_OPS.decode = _decode
_OPS.direct = _direct
_OPS.filled = _filled
_OPS.encode = zmtp_encode
_OPS.encode_one = zmtp_encode_one
_OPS.ping = _ping


cdef const CodecOps* zmtp_ops() noexcept nogil:
    return &_OPS
