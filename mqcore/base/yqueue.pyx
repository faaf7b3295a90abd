"""Chunks of the yqueue: see yqueue.pxd."""

from libc.stdlib cimport free
from libc.string cimport memset

from mqcore.base.includes cimport aligned_alloc
from mqcore.base.status cimport MQ_OK


cdef Chunk* chunk_new(uint32_t cap) noexcept nogil:
    cdef Chunk* chunk = <Chunk*> aligned_alloc(64, 64 + cap * sizeof(Msg))
    if chunk != NULL:
        chunk.next = NULL
        chunk.prev = NULL
        chunk.cap = cap
    return chunk


cdef void chunk_free(Chunk* chunk) noexcept nogil:
    free(chunk)


cdef int yqueue_init(YQueue* q) noexcept nogil:
    cdef Chunk* first = chunk_new(CHUNK_FIRST)
    if first == NULL:
        return MQ_NOMEM
    memset(<void*> q, 0, sizeof(YQueue))
    q.begin_chunk = first
    q.back_chunk = first
    q.end_chunk = first
    q.end_pos = 1
    return MQ_OK


cdef void yqueue_fini(YQueue* q) noexcept nogil:
    cdef Chunk* chunk = q.begin_chunk
    cdef Chunk* following
    while chunk != NULL:
        following = chunk.next
        chunk_free(chunk)
        chunk = following
    chunk = q.spare.exchange(NULL)
    if chunk != NULL:
        chunk_free(chunk)
    q.begin_chunk = NULL
