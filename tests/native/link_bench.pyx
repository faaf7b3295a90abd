"""Links for tests: both ends of one link, used as two sockets use them.

`LinkBench` is both ends in one thread, seen from Python. `stress` is a native thread at each end; a
writer sleeps only when the lane says "full", a reader only when it says "empty", and each is woken
only when the other's settling says so. Every wait has a limit: a lost wake-up is counted.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.atomic cimport atomic
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_data, msg_init_copy, msg_init_inline, msg_size, vec_clear,
    vec_fini,
)
from mqcore.base.slab cimport Pool, pool_free, pool_new
from mqcore.base.status cimport MQ_FULL, MQ_OK
from mqcore.base.ypipe cimport ypipe_flush
from mqcore.link.pipe cimport Link, Marks, link_new, link_unref
from mqcore.spi.pipe cimport (
    DIRTY_IN, DIRTY_OUT, DROP_CONFLATED, Host, Pipe, pipe_has_room, pipe_read, pipe_write,
    pipe_write_always,
)
from mqcore.testing.native.threads cimport (
    pthread_create, pthread_join, pthread_t, sched_yield, sem_destroy, sem_init, sem_post, sem_t,
    sem_timedwait,
)

UNLIMITED = 0x7fffffffffffffff
TOLD_READER, TOLD_WRITER = 1, 2

cdef enum:
    WAIT_S = 10
    BODY_MAX = 2000


cdef uint32_t _settle(Host* host) noexcept nogil:
    """What a socket does once it has let go of its lock: publish, and say whom to wake."""
    cdef Pipe* pipe = host.dirty
    cdef uint32_t what
    host.dirty = NULL
    if pipe == NULL:
        return 0
    what = pipe.dirty
    pipe.dirty = 0
    if what & DIRTY_OUT and not pipe.out.conflate and ypipe_flush(&pipe.out.q):
        what &= ~(<uint32_t> DIRTY_OUT)
    return what & (DIRTY_OUT | DIRTY_IN)


cdef class LinkBench:
    """Ends 0 and 1; end 0 writes with the given high-water marks."""

    cdef Pool* pool
    cdef Link* link
    cdef Host[2] hosts
    cdef atomic[int64_t] live

    def __cinit__(self, int64_t msgs=UNLIMITED, int64_t size=UNLIMITED, bint conflate=False):
        cdef Marks marks
        cdef int i
        marks.msgs = msgs
        marks.bytes = size
        marks.conflate = conflate
        self.pool = pool_new()
        self.link = link_new(self.pool, &self.live, &marks, &marks)
        if self.link == NULL:
            raise MemoryError
        memset(<void*> &self.hosts[0], 0, sizeof(self.hosts))
        for i in range(2):
            self.link.ends[i].id = i + 1
            self.link.ends[i].host = &self.hosts[i]

    def __dealloc__(self):
        self.close()
        self.close()
        if self.pool != NULL:
            pool_free(self.pool)

    def close(self):
        """One end lets go; the second call frees the link. (links alive, bodies alive)"""
        if self.link != NULL:
            last = self.link.refs.load() == 1
            link_unref(self.link)
            if last:
                self.link = NULL
        return self.live.load(), self.pool.live.load()

    def write(self, int end, list parts, bint always=False):
        """False: at a high-water mark, nothing moved."""
        cdef Msg[8] m
        cdef bytes body
        cdef size_t i, n = len(parts)
        cdef int rc
        for i in range(n):
            body = parts[i]
            if msg_init_copy(&m[i], self.pool, <const uint8_t*> PyBytes_AS_STRING(body), len(body)):
                raise MemoryError
            if i + 1 < n:
                m[i].flags |= MSG_MORE
        if always:
            rc = pipe_write_always(&self.link.ends[end], m, n)
        else:
            rc = pipe_write(&self.link.ends[end], m, n)
        if rc != MQ_OK:
            for i in range(n):
                msg_close(&m[i])
        if rc != MQ_OK and rc != MQ_FULL:
            raise MemoryError
        return rc == MQ_OK

    def has_room(self, int end, int64_t size=1):
        return pipe_has_room(&self.link.ends[end], size)

    def read(self, int end):
        """The parts of the next message, or None."""
        cdef MsgVec v
        cdef size_t i
        memset(&v, 0, sizeof(v))
        if pipe_read(&self.link.ends[end], &v) != MQ_OK:
            return None
        parts = [PyBytes_FromStringAndSize(<char*> msg_data(&v.at[i]), msg_size(&v.at[i]))
                 for i in range(v.n)]
        peers = {v.at[i].peer for i in range(v.n)}
        vec_fini(&v)
        if peers != {end + 1}:
            raise AssertionError(f"parts of the peers {peers}")
        return parts

    def settle(self, int end):
        """TOLD_READER and TOLD_WRITER: whom the end's socket has to wake."""
        cdef uint32_t what = _settle(&self.hosts[end])
        return (TOLD_READER if what & DIRTY_OUT else 0) | (TOLD_WRITER if what & DIRTY_IN else 0)

    def blocked(self, int end):
        """The end's writing has been refused and waits for room."""
        return self.link.ends[end].out.blocked.load() != 0

    def step(self, int end):
        """The reader at `end` publishes after so many messages."""
        return self.link.ends[end].inn.step

    def offered(self, int end):
        return self.link.ends[end].offered

    def conflated(self, int end):
        return self.link.ends[end].out_dropped[DROP_CONFLATED]


# -- two real threads ----------------------------------------------------------------------------

cdef struct Stress:
    Link* link
    Pool* pool
    Host[2] hosts
    sem_t[2] wake             # [0] the writer's, [1] the reader's
    uint64_t messages
    uint64_t random
    uint32_t burst            # the writer settles after 1..burst messages
    bint conflate
    # writer
    uint64_t full
    uint64_t lost_room
    int64_t over              # maximum of messages above the high-water mark
    # reader
    atomic[uint64_t] received
    uint64_t empty
    uint64_t lost_data
    uint64_t wrong
    uint64_t last


cdef bint _sleep(sem_t* sem) noexcept nogil:
    cdef timespec until
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &until)
    until.tv_sec += WAIT_S
    while sem_timedwait(sem, &until):
        clock_gettime(CLOCK_REALTIME, &now)
        if now.tv_sec > until.tv_sec:
            return False
    return True


cdef void _settle_and_wake(Stress* s, int end) noexcept nogil:
    cdef uint32_t what = _settle(&s.hosts[end])
    if what & DIRTY_OUT and end == 0:
        sem_post(&s.wake[1])
    if what & DIRTY_IN and end == 1:
        sem_post(&s.wake[0])


cdef inline uint64_t _random(Stress* s) noexcept nogil:
    s.random ^= s.random << 13
    s.random ^= s.random >> 7
    s.random ^= s.random << 17
    return s.random


cdef inline size_t _size_of(uint64_t number) noexcept nogil:
    return 8 if number % 5 else 8 + number % (BODY_MAX - 8)


cdef int _make(Stress* s, Msg* m, uint64_t number) noexcept nogil:
    cdef uint8_t[BODY_MAX] body
    cdef size_t size = _size_of(number)
    if size == 8:
        msg_init_inline(m, <const uint8_t*> &number, 8)
        return MQ_OK
    memset(&body[0], <int> (number & 0xFF), size)
    memcpy(&body[0], &number, 8)
    return msg_init_copy(m, s.pool, &body[0], size)


cdef void* _writer(void* argument) noexcept nogil:
    cdef Stress* s = <Stress*> argument
    cdef Pipe* pipe = &s.link.ends[0]
    cdef uint64_t number = 0
    cdef uint64_t left = 1
    cdef Msg m
    cdef int rc
    while number < s.messages:
        if _make(s, &m, number):
            return NULL
        rc = pipe_write(pipe, &m, 1)
        if rc == MQ_FULL:
            msg_close(&m)
            s.full += 1
            _settle_and_wake(s, 0)     # as a socket: publish before it sleeps
            if not _sleep(&s.wake[0]):
                s.lost_room += 1
                return NULL
            continue
        number += 1
        if <int64_t> (number - s.received.load()) - pipe.out.hwm_msgs > s.over:
            s.over = <int64_t> (number - s.received.load()) - pipe.out.hwm_msgs
        left -= 1
        if left == 0 or number == s.messages:
            _settle_and_wake(s, 0)
            left = 1 + _random(s) % s.burst
            if left == 1:
                sched_yield()
    return NULL


cdef void _check(Stress* s, Msg* m) noexcept nogil:
    cdef uint64_t number
    memcpy(&number, msg_data(m), 8)
    if s.conflate:
        s.wrong += number + 1 <= s.last and s.last != 0
    else:
        s.wrong += number != s.last
    if msg_size(m) != _size_of(number) or msg_data(m)[msg_size(m) - 1] != (
            number & 0xFF if msg_size(m) > 8 else msg_data(m)[7]):
        s.wrong += 1
    s.last = number + 1


cdef void* _reader(void* argument) noexcept nogil:
    cdef Stress* s = <Stress*> argument
    cdef MsgVec v
    memset(&v, 0, sizeof(v))
    while s.last < s.messages:
        if pipe_read(&s.link.ends[1], &v) == MQ_OK:
            _check(s, &v.at[0])
            vec_clear(&v)
            s.received.fetch_add(1)
            _settle_and_wake(s, 1)
            continue
        _settle_and_wake(s, 1)
        s.empty += 1
        if not _sleep(&s.wake[1]):
            s.lost_data += 1
            break
    vec_fini(&v)
    return NULL


def stress(uint64_t messages, int64_t msgs, int64_t size=UNLIMITED, *, bint conflate=False,
           uint32_t burst=8, uint64_t seed=1):
    """A writer and a reader, each a thread; a dictionary of what was counted."""
    cdef Stress s
    cdef Marks marks
    cdef atomic[int64_t] live
    cdef pthread_t[2] threads
    cdef int i
    memset(<void*> &s, 0, sizeof(s))
    live.store(0)
    marks.msgs = msgs
    marks.bytes = size
    marks.conflate = conflate
    s.pool = pool_new()
    s.link = link_new(s.pool, &live, &marks, &marks)
    s.messages = messages
    s.random = (seed + 1) * <uint64_t> 0x9E3779B97F4A7C15 | 1
    s.burst = burst
    s.conflate = conflate
    s.over = -messages
    for i in range(2):
        sem_init(&s.wake[i], 0, 0)
        s.link.ends[i].host = &s.hosts[i]
    with nogil:
        if pthread_create(&threads[0], NULL, _reader, &s) == 0:
            if pthread_create(&threads[1], NULL, _writer, &s) == 0:
                pthread_join(threads[1], NULL)
            pthread_join(threads[0], NULL)
    result = {
        "received": s.received.load(), "last": s.last, "wrong": s.wrong, "full": s.full,
        "empty": s.empty, "lost_room": s.lost_room, "lost_data": s.lost_data, "over": s.over,
        "offered": s.link.ends[0].offered,
        "conflated": s.link.ends[0].out_dropped[DROP_CONFLATED],
    }
    link_unref(s.link)
    link_unref(s.link)
    result["links"] = live.load()
    result["bodies"] = s.pool.live.load()
    for i in range(2):
        sem_destroy(&s.wake[i])
    pool_free(s.pool)
    return result
