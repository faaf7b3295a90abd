"""A body's memory: see body.pxd."""

from libc.stdint cimport uint32_t

from mqcore.base.message cimport (
    MSG_INLINE_MAX, MSG_REF, msg_close, msg_data, msg_init, msg_init_inline, msg_init_ref,
)
from mqcore.base.slab cimport (
    LAND_FROM, SLAB_CLASSES, heap_grow, heap_new, landing_take, owner_data, slab_capacity, slab_new,
)
from mqcore.base.status cimport MQ_NOMEM, MQ_OK

cdef enum:
    BODY_FIRST = 1024 * 1024      # a body has at most so much memory before its bytes come, or as
                                  # much as the peer has filled before
    OPEN_FIRST = 256              # and so much at least if its size is not known


cdef Owner* _slab(Pool* pool, uint64_t size) noexcept nogil:
    """A pooled slab that it fills well. NULL: none does, or memory is exhausted."""
    cdef uint32_t klass
    for klass in range(SLAB_CLASSES):
        if size <= slab_capacity(klass):
            if klass == 0 or size > slab_capacity(klass) // 2:
                return slab_new(pool, klass)
            break
    return NULL


cdef void body_begin(
        Body* b, Owner* owner, uint8_t* data, uint64_t size, uint64_t room) noexcept nogil:
    msg_init_ref(&b.part, owner, data, size)
    b.busy = True
    b.size = size
    b.got = 0
    b.room = room


cdef int _block(Body* b, Pool* pool, uint64_t size, uint64_t room) noexcept nogil:
    cdef Owner* owner = heap_new(pool, room)
    if owner == NULL:
        return MQ_NOMEM
    body_begin(b, owner, owner_data(owner), size, room)
    return MQ_OK


cdef int body_block(Body* b, Pool* pool, uint64_t size) noexcept nogil:
    return _block(b, pool, size, min(size, max(<uint64_t> BODY_FIRST, b.proven)))


cdef int body_open(Body* b, Pool* pool, Landing* landing, uint64_t size, bint copy,
                   bint open_end) noexcept nogil:
    cdef Owner* owner = NULL
    if open_end:
        return _block(b, pool, size, min(max(size, <uint64_t> OPEN_FIRST), <uint64_t> BODY_FIRST))
    if size <= MSG_INLINE_MAX:
        body_begin(b, NULL, NULL, size, size)
        msg_init(&b.part)
        b.part.size8 = <uint8_t> size
        return MQ_OK
    if size >= LAND_FROM and landing != NULL:
        owner = landing_take(landing, size)
    if owner != NULL:
        body_begin(b, owner, owner.room, size, size)
        return MQ_OK
    if not copy:
        owner = _slab(pool, size)
    if owner == NULL:
        return body_block(b, pool, size)
    body_begin(b, owner, owner_data(owner), size, size)
    return MQ_OK


cdef void body_extend(Body* b, uint64_t more) noexcept nogil:
    b.size += more
    b.part.u.ref.size = b.size


cdef int _grow(Body* b) noexcept nogil:
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


cdef int body_room(Body* b, uint8_t** at, size_t* room) noexcept nogil:
    if b.got == b.room and _grow(b):
        return MQ_NOMEM
    at[0] = msg_data(&b.part) + b.got
    room[0] = min(b.room, b.size) - b.got
    return MQ_OK


cdef void body_take(Body* b, Msg* out) noexcept nogil:
    b.proven = max(b.proven, (b.size + 7) & ~(<uint64_t> 7))
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
