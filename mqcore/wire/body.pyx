"""A cut-off body's memory: see body.pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from mqcore.base.message cimport (
    MSG_INLINE_MAX, MSG_REF, msg_close, msg_data, msg_init, msg_init_copy, msg_init_inline,
    msg_init_ref,
)
from mqcore.base.slab cimport (
    LAND_FROM, heap_grow, heap_new, landing_take, owner_data, owner_retain, slab_new,
)
from mqcore.base.status cimport MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.wire.ready cimport refuse

cdef enum:
    BODY_FIRST = 1024 * 1024      # a cut-off body has at most so much memory before its bytes
                                  # come, or as much as the peer has filled before
    OPEN_FIRST = 256              # and so much at least if its size is not known

# Slabs for cut-off bodies, so that a steady stream allocates nothing: capacity by class.
cdef size_t[3] SLAB_CAPACITY = [8 * 1024 - 64, 64 * 1024 - 64, 256 * 1024 - 64]


cdef int body_check(Codec* c, uint64_t size, bint command) noexcept nogil:
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


cdef Owner* _memory(
        Body* b, Pool* pool, Landing* landing, uint64_t size, bint copy) noexcept nogil:
    """For a body that is cut off: what was made ahead for it, a pooled slab that it fills well, or
    a block of its own that starts small."""
    cdef Owner* owner
    cdef uint32_t klass
    b.room = size
    if size >= LAND_FROM and landing != NULL:
        owner = landing_take(landing, size)
        if owner != NULL:
            return owner
    for klass in range(3):
        if size <= SLAB_CAPACITY[klass]:
            if not copy and (klass == 0 or size > SLAB_CAPACITY[klass] // 2):
                return slab_new(pool, klass)
            break
    b.room = min(size, max(<uint64_t> BODY_FIRST, b.proven))
    return heap_new(pool, b.room)


cdef int body_open(Body* b, Pool* pool, Landing* landing, uint64_t size, bint copy,
                   bint open_end) noexcept nogil:
    cdef Owner* owner
    msg_init(&b.part)
    if size <= MSG_INLINE_MAX and not open_end:
        b.room = size
        b.part.size8 = <uint8_t> size
    else:
        if open_end:
            b.room = min(max(size, <uint64_t> OPEN_FIRST), <uint64_t> BODY_FIRST)
            owner = heap_new(pool, b.room)
        else:
            owner = _memory(b, pool, landing, size, copy)
        if owner == NULL:
            return MQ_NOMEM
        msg_init_ref(&b.part, owner, owner.room if owner.room != NULL else owner_data(owner), size)
    b.busy = True
    b.size = size
    b.got = 0
    return MQ_OK


cdef void body_extend(Body* b, uint64_t more) noexcept nogil:
    b.size += more
    b.part.u.ref.size = b.size


cdef int _make_room(Body* b) noexcept nogil:
    """The body's memory is full, the body is not: double it, never beyond the body's size."""
    cdef uint64_t room = b.room * 2
    cdef Owner* owner
    if b.size - b.room < b.room:
        room = b.size
    owner = heap_grow(b.part.u.ref.owner, room)
    if owner == NULL:
        return MQ_NOMEM
    b.part.u.ref.owner = owner
    b.part.u.ref.data = owner_data(owner)
    b.room = room
    return MQ_OK


cdef int body_fill(Body* b, Input* input) noexcept nogil:
    cdef size_t take
    while b.got < b.size and input.pos < input.end:
        if b.got == b.room and _make_room(b):
            return MQ_NOMEM
        take = min(b.room, b.size) - b.got
        if take > <size_t> (input.end - input.pos):
            take = input.end - input.pos
        memcpy(msg_data(&b.part) + b.got, input.pos, take)
        b.got += take
        input.pos += take
    return MQ_OK


cdef int body_direct(Body* b, uint8_t** at, size_t* room) noexcept nogil:
    room[0] = 0
    if not b.busy or b.size - b.got < DIRECT_MIN:
        return MQ_OK
    if b.got == b.room and _make_room(b):
        return MQ_NOMEM
    at[0] = msg_data(&b.part) + b.got
    room[0] = min(b.room, b.size) - b.got
    return MQ_OK


cdef void body_take(Body* b, Msg* out) noexcept nogil:
    b.proven = max(b.proven, b.size)
    if b.part.kind == MSG_REF and b.size <= MSG_INLINE_MAX:   # its size was not known
        msg_init_inline(out, b.part.u.ref.data, b.size)
        msg_close(&b.part)
    else:
        out[0] = b.part
    b.busy = False
    msg_init(&b.part)


cdef void body_drop(Body* b) noexcept nogil:
    msg_close(&b.part)
    b.busy = False


cdef int body_slice(Msg* out, Pool* pool, uint8_t* at, size_t size, Owner* owner) noexcept nogil:
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, at, size)
        return MQ_OK
    if owner == NULL:
        return msg_init_copy(out, pool, at, size)
    owner_retain(owner)
    msg_init_ref(out, owner, at, size)
    return MQ_OK
