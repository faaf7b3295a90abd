"""yqueue: an unbounded queue of message handles in chunks of 256, one writer and one reader.

Not synchronised by itself: `ypipe` publishes positions between the two threads. The chunk that the
reader has emptied is kept as a spare for the writer, so a steady stream allocates nothing. The
first chunk is small and made on the first push, so an idle connection costs next to nothing.
Writer: push, back, unpush. Reader: front, pop.
"""

from libc.stdint cimport uint32_t, uint64_t
from libcpp.atomic cimport atomic, memory_order_acq_rel

from mqcore.base.message cimport Msg
from mqcore.base.status cimport MQ_NOMEM

cdef enum:
    CHUNK_FIRST = 8
    CHUNK = 256

cdef struct Chunk:            # 64-byte header, then `cap` handles
    Chunk* next
    Chunk* prev
    uint32_t cap
    uint32_t pad0
    uint64_t pad[5]

cdef struct YQueue:
    # reader's line
    Chunk* begin_chunk
    uint32_t begin_pos
    uint32_t pad0
    uint64_t pad1[6]
    # writer's line: back is the slot under construction, end the slot after it
    Chunk* back_chunk
    uint32_t back_pos
    uint32_t end_pos
    Chunk* end_chunk
    uint64_t pad2[5]
    # shared: the recycled chunk
    atomic[Chunk*] spare
    uint64_t pad3[7]

cdef Chunk* chunk_new(uint32_t cap) noexcept nogil
cdef void chunk_free(Chunk* chunk) noexcept nogil
cdef int yqueue_init(YQueue* q) noexcept nogil             # Status
cdef void yqueue_fini(YQueue* q) noexcept nogil            # handles inside must have been read


cdef inline Msg* chunk_slots(Chunk* chunk) noexcept nogil:
    return <Msg*> (<char*> chunk + 64)


cdef inline Msg* yqueue_front(YQueue* q) noexcept nogil:
    """Reader: the oldest slot. Valid only if the ypipe says there is one."""
    return chunk_slots(q.begin_chunk) + q.begin_pos


cdef struct YCursor:          # over slots that stay in the queue
    Chunk* chunk
    uint32_t pos


cdef inline Msg* yqueue_first(YQueue* q, YCursor* c) noexcept nogil:
    """Reader: the front, and a cursor on it."""
    c.chunk = q.begin_chunk
    c.pos = q.begin_pos
    return yqueue_front(q)


cdef inline Msg* yqueue_after(YCursor* c) noexcept nogil:
    """Reader: the slot behind the cursor's. Valid if that one's message goes on."""
    c.pos += 1
    if c.pos == c.chunk.cap:
        c.chunk = c.chunk.next
        c.pos = 0
    return chunk_slots(c.chunk) + c.pos


cdef inline Msg* yqueue_second(YQueue* q) noexcept nogil:
    """Reader: the slot behind the front. Valid if the front's message has a second part."""
    if q.begin_pos + 1 < q.begin_chunk.cap:
        return yqueue_front(q) + 1
    return chunk_slots(q.begin_chunk.next)


cdef inline Msg* yqueue_back(YQueue* q) noexcept nogil:
    """Writer: the slot that the next write fills."""
    return chunk_slots(q.back_chunk) + q.back_pos


cdef inline int yqueue_push(YQueue* q) noexcept nogil:
    """Writer: make space behind back, which moves to the new slot. Status; on MQ_NOMEM nothing
    moved."""
    cdef Chunk* fresh
    if q.end_pos == q.end_chunk.cap:
        # SYNC: acq_rel: takes the spare with everything its former reader wrote to it
        fresh = q.spare.exchange(NULL, memory_order_acq_rel)
        if fresh == NULL:
            fresh = chunk_new(CHUNK)
            if fresh == NULL:
                return MQ_NOMEM
        q.end_chunk.next = fresh
        fresh.prev = q.end_chunk
        fresh.next = NULL
        q.end_chunk = fresh
        q.end_pos = 0
    q.back_chunk = q.end_chunk
    q.back_pos = q.end_pos
    q.end_pos += 1
    return 0


cdef inline void yqueue_unpush(YQueue* q) noexcept nogil:
    """Writer: take the last written slot back; it becomes `back` again."""
    if q.back_pos:
        q.back_pos -= 1
    else:
        q.back_chunk = q.back_chunk.prev
        q.back_pos = q.back_chunk.cap - 1
    if q.end_pos > 1:
        q.end_pos -= 1
    else:
        q.end_chunk = q.end_chunk.prev
        chunk_free(q.end_chunk.next)
        q.end_chunk.next = NULL
        q.end_pos = q.end_chunk.cap


cdef inline void yqueue_pop(YQueue* q) noexcept nogil:
    """Reader: forget the front slot."""
    cdef Chunk* empty
    q.begin_pos += 1
    if q.begin_pos == q.begin_chunk.cap:
        empty = q.begin_chunk
        q.begin_chunk = empty.next
        q.begin_chunk.prev = NULL
        q.begin_pos = 0
        if empty.cap == CHUNK:
            # SYNC: acq_rel: hands the emptied chunk to the writer
            empty = q.spare.exchange(empty, memory_order_acq_rel)
        if empty != NULL:
            chunk_free(empty)
