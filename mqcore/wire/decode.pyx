"""What decoders share: see decode.pxd."""

from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from mqcore.base.body cimport body_open, body_room
from mqcore.base.message cimport MSG_INLINE_MAX, msg_init_copy, msg_init_inline, msg_init_ref
from mqcore.base.slab cimport Landing, owner_retain
from mqcore.base.status cimport MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.wire.zmtp.ready cimport refuse


cdef int decode_check(Codec* c, uint64_t size, bint command) noexcept nogil:
    cdef int64_t limit = c.max_message_size
    if size >> 63:
        return refuse(c, "the peer announced a frame of 2^63 bytes or more")
    if limit < 0:
        return MQ_OK
    if command and limit < COMMAND_MAX:
        limit = COMMAND_MAX
    if size <= <uint64_t> limit:
        return MQ_OK
    snprintf(c.reason_text, sizeof(c.reason_text),
             "the peer announced a part of %llu bytes, the limit is %lld",
             <unsigned long long> size, <long long> limit)
    c.reason = c.reason_text
    return MQ_PROTOCOL


cdef int decode_slice(Msg* out, Pool* pool, uint8_t* at, size_t size, Owner* owner) noexcept nogil:
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, at, size)
        return MQ_OK
    if owner == NULL:
        return msg_init_copy(out, pool, at, size)
    owner_retain(owner)
    msg_init_ref(out, owner, at, size)
    return MQ_OK


cdef int decode_open(
        Codec* c, const Input* input, uint64_t size, bint command, bint open_end) noexcept nogil:
    cdef Landing* landing = <Landing*> NULL if command else c.landing
    return body_open(&c.body, c.pool, landing, size, input.copy, open_end)


cdef int decode_fill(Body* b, Input* input) noexcept nogil:
    cdef uint8_t* to = NULL
    cdef size_t take = 0
    while b.got < b.size and input.pos < input.end:
        if body_room(b, &to, &take):
            return MQ_NOMEM
        take = min(take, <size_t> (input.end - input.pos))
        memcpy(to, input.pos, take)
        b.got += take
        input.pos += take
    return MQ_OK


cdef int decode_direct(Codec* self, uint8_t** at, size_t* room, uint64_t* size) noexcept nogil:
    cdef Body* b = &self.body
    size[0] = b.size
    room[0] = 0
    if not b.busy or b.size - b.got < DIRECT_MIN:
        return MQ_OK
    return body_room(b, at, room)


cdef void decode_filled(Codec* self, size_t n) noexcept nogil:
    self.body.got += n


cdef uint64_t decode_under_way(const Codec* self) noexcept nogil:
    return self.body.got if self.body.busy else 0
