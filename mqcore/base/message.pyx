"""The parts of the message handle that are too large to be inline: see message.pxd."""

from libc.stdlib cimport free, realloc

from mqcore.base.slab cimport heap_new, owner_data
from mqcore.base.status cimport MQ_NOMEM, MQ_OK


cdef int msg_init_copy(Msg* m, Pool* pool, const uint8_t* data, size_t size) noexcept nogil:
    cdef Owner* owner
    if size <= MSG_INLINE_MAX:
        msg_init_inline(m, data, size)
        return MQ_OK
    owner = heap_new(pool, size)
    if owner == NULL:
        return MQ_NOMEM
    memcpy(owner_data(owner), data, size)
    msg_init_ref(m, owner, owner_data(owner), size)
    return MQ_OK


cdef int vec_grow(MsgVec* v, size_t want) noexcept nogil:
    cdef size_t cap = v.cap if v.cap else 8
    cdef Msg* at
    if v.cap >= want:
        return MQ_OK
    while cap < want:
        cap *= 2
    at = <Msg*> realloc(v.at, cap * sizeof(Msg))
    if at == NULL:
        return MQ_NOMEM
    v.at = at
    v.cap = cap
    return MQ_OK


cdef void vec_clear(MsgVec* v) noexcept nogil:
    cdef size_t i
    for i in range(v.n):
        msg_close(&v.at[i])
    v.n = 0


cdef void vec_fini(MsgVec* v) noexcept nogil:
    vec_clear(v)
    free(v.at)
    v.at = NULL
    v.cap = 0
