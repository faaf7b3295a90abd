"""A line of messages: see fifo.pxd."""

from libc.stdlib cimport free, malloc

from mqcore.base.message cimport vec_grow, vec_push
from mqcore.base.status cimport MQ_NOMEM, MQ_OK


cdef int fifo_reserve(Fifo* q, size_t n) noexcept nogil:
    cdef size_t cap = q.cap if q.cap else 8
    cdef size_t i
    cdef Msg* at
    while cap < q.n + n:
        cap *= 2
    if cap == q.cap:
        return MQ_OK
    at = <Msg*> malloc(cap * sizeof(Msg))
    if at == NULL:
        return MQ_NOMEM
    for i in range(q.n):
        at[i] = q.at[(q.head + i) & (q.cap - 1)]
    free(q.at)
    q.at = at
    q.cap = cap
    q.head = 0
    return MQ_OK


cdef int fifo_put(Fifo* q, const Msg* parts, size_t n) noexcept nogil:
    cdef size_t i
    if fifo_reserve(q, n):
        return MQ_NOMEM
    for i in range(n):
        q.at[(q.head + q.n) & (q.cap - 1)] = parts[i]
        q.n += 1
        q.bytes += <int64_t> msg_size(&parts[i])
        if not parts[i].flags & MSG_MORE:
            q.msgs += 1
    return MQ_OK


cdef int fifo_take(Fifo* q, MsgVec* out) noexcept nogil:
    cdef size_t n = 1
    cdef Msg m
    while q.at[(q.head + n - 1) & (q.cap - 1)].flags & MSG_MORE:
        n += 1
    if out.cap - out.n < n and vec_grow(out, out.n + n):
        return MQ_NOMEM
    while n:
        n -= 1
        m = fifo_pop(q)
        vec_push(out, &m)
    return MQ_OK


cdef void fifo_fini(Fifo* q) noexcept nogil:
    cdef Msg m
    while q.n:
        m = fifo_pop(q)
        msg_close(&m)
    free(q.at)
    q.at = NULL
    q.cap = 0
