"""Two real threads on one ypipe, without Python: every message is checked, every wake-up counted.

The writer makes messages of one to four parts with consecutive numbers; it takes some back and
writes them again, flushes in batches of random size, and posts a semaphore when `flush` says that
the reader sleeps. The reader sleeps on the semaphore only when `read` says False. Then, by the
pipe's contract, posts == sleeps + 1 (the reader starts asleep), and no wait ever runs into its
limit. ThreadSanitizer runs this too; with `plant` the writer publishes by a plain store, which it
must find.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport usleep

from mqcore.base.clock cimport now_ns
from mqcore.base.includes cimport aligned_alloc
from mqcore.base.message cimport (
    MSG_MORE, Msg, msg_close, msg_data, msg_init_copy, msg_init_inline, msg_size,
)
from mqcore.base.slab cimport Pool, pool_free, pool_new
from mqcore.base.ypipe cimport (
    YPipe, ypipe_fini, ypipe_flush, ypipe_init, ypipe_read, ypipe_unwrite, ypipe_write,
)
from mqcore.testing.native.threads cimport (
    pthread_create, pthread_join, pthread_t, sched_yield, sem_destroy, sem_init, sem_post,
    sem_t, sem_timedwait,
)

cdef enum:
    LARGE = 200               # bytes of a part that does not fit its handle
    PAUSE_EVERY = 50000       # flushes; a lost wake-up takes `wait`, so there are few
    PAUSE_US = 1000

cdef struct Stress:
    YPipe pipe
    Pool* pool
    sem_t wake
    uint64_t parts            # how many to send
    uint32_t batch            # flush after 1..batch messages
    bint plain                # inline single parts only, nothing taken back: for measuring
    bint plant
    uint64_t wait_ns
    # writer
    uint64_t random
    uint64_t posts
    uint64_t flushes          # planted ones
    uint64_t unwritten
    uint64_t failed           # out of memory
    uint64_t pad[8]
    # reader
    uint64_t sleeps
    uint64_t received
    uint64_t wrong            # parts out of order, with a wrong body or a wrong flag
    uint64_t lost_wakeups


cdef inline uint64_t _random(Stress* s) noexcept nogil:
    """xorshift: the writer's alone."""
    s.random ^= s.random << 13
    s.random ^= s.random >> 7
    s.random ^= s.random << 17
    return s.random


cdef inline bint _flush_planted(Stress* s) noexcept nogil:
    """ypipe_flush with a typical mistake: plain accesses swap the word that both threads use. Now
    and then the writer pauses between the two, because on a busy machine the reader seldom runs
    just there."""
    cdef YPipe* p = &s.pipe
    cdef Msg** c = <Msg**> <void*> &p.c
    cdef Msg* old
    if p.w == p.f:
        return True
    old = c[0]
    s.flushes += 1
    if s.flushes % PAUSE_EVERY == 0:
        usleep(PAUSE_US)
    c[0] = p.f
    p.w = p.f
    return old != NULL


cdef inline void _publish(Stress* s) noexcept nogil:
    cdef bint awake = _flush_planted(s) if s.plant else ypipe_flush(&s.pipe)
    if not awake:
        s.posts += 1
        sem_post(&s.wake)


cdef inline bint _is_large(uint64_t number) noexcept nogil:
    return number % 7 == 3


cdef int _make(Stress* s, Msg* m, uint64_t number, bint more) noexcept nogil:
    """A part that the reader can check by its number alone. Status."""
    cdef uint8_t[LARGE] body
    cdef int rc
    if s.plain or not _is_large(number):
        msg_init_inline(m, <const uint8_t*> &number, 8)
    else:
        memset(&body[0], <int> (number & 0xFF), LARGE)
        memcpy(&body[0], &number, 8)
        rc = msg_init_copy(m, s.pool, &body[0], LARGE)
        if rc:
            return rc
    if more:
        m.flags |= MSG_MORE
    return 0


cdef bint _right(Stress* s, Msg* m, uint64_t number) noexcept nogil:
    cdef size_t size = LARGE if _is_large(number) and not s.plain else 8
    cdef uint64_t seen
    if msg_size(m) != size:
        return False
    memcpy(&seen, msg_data(m), 8)
    return seen == number and (size == 8 or msg_data(m)[LARGE - 1] == (number & 0xFF))


cdef void _write_message(Stress* s, uint64_t first, uint64_t n) noexcept nogil:
    """Parts first .. first + n - 1, the last one completes the message; some are taken back
    first."""
    cdef uint64_t number = first
    cdef Msg m
    while number < first + n:
        if _make(s, &m, number, number + 1 < first + n) or \
                ypipe_write(&s.pipe, &m, number + 1 == first + n):
            s.failed += 1
            return
        number += 1
        if not s.plain and number < first + n and _random(s) % 16 == 0:
            if _random(s) % 2:
                _publish(s)
            while ypipe_unwrite(&s.pipe, &m):
                msg_close(&m)
                s.unwritten += 1
            number = first


cdef void* _writer(void* argument) noexcept nogil:
    cdef Stress* s = <Stress*> argument
    cdef uint64_t number = 0
    cdef uint64_t n
    cdef uint64_t left = 1
    while number < s.parts:
        n = 1 if s.plain else 1 + _random(s) % 4
        if n > s.parts - number:
            n = s.parts - number
        _write_message(s, number, n)
        number += n
        left -= 1
        if left == 0 or number == s.parts:
            _publish(s)
            left = s.batch if s.plain else 1 + _random(s) % s.batch
            if not s.plain and _random(s) % 64 == 0:
                sched_yield()
    return NULL


cdef bint _sleep(Stress* s) noexcept nogil:
    """False: no thread woke this one in time."""
    cdef timespec until
    clock_gettime(CLOCK_REALTIME, &until)
    until.tv_sec += <int64_t> (s.wait_ns // 1000000000)
    while sem_timedwait(&s.wake, &until):
        if _past(&until):
            return False
    return True


cdef bint _past(const timespec* until) noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    if now.tv_sec != until.tv_sec:
        return now.tv_sec > until.tv_sec
    return now.tv_nsec >= until.tv_nsec


cdef void* _reader(void* argument) noexcept nogil:
    cdef Stress* s = <Stress*> argument
    cdef Msg m
    if not _sleep(s):
        s.lost_wakeups += 1
        return NULL
    while s.received < s.parts:
        if ypipe_read(&s.pipe, &m):
            if not _right(s, &m, s.received):
                s.wrong += 1
            msg_close(&m)
            s.received += 1
            continue
        s.sleeps += 1
        if not _sleep(s):
            s.lost_wakeups += 1
            return NULL
    return NULL


def stress(uint64_t parts, *, uint64_t seed=1, uint32_t batch=16, bint plain=False,
           bint plant=False, double wait=10.0):
    """Run it; a dictionary of what was counted. Blocks without the GIL until both threads are
    done."""
    cdef pthread_t writer
    cdef pthread_t reader
    cdef int64_t started
    cdef Stress* s = <Stress*> aligned_alloc(64, (sizeof(Stress) + 63) & ~<size_t> 63)
    if s == NULL:
        raise MemoryError
    memset(<void*> s, 0, sizeof(Stress))
    s.pool = pool_new()
    if s.pool == NULL or ypipe_init(&s.pipe) or sem_init(&s.wake, 0, 0):
        raise MemoryError
    s.parts = parts
    s.random = (seed + 1) * <uint64_t> 0x9E3779B97F4A7C15
    s.random += s.random == 0     # xorshift stays at zero for ever
    s.batch = batch
    s.plain = plain
    s.plant = plant
    s.wait_ns = <uint64_t> (wait * 1e9)
    started = now_ns()
    with nogil:
        if pthread_create(&reader, NULL, _reader, s) == 0:
            if pthread_create(&writer, NULL, _writer, s) == 0:
                pthread_join(writer, NULL)
            pthread_join(reader, NULL)
        ypipe_fini(&s.pipe)
    result = {
        "seconds": (now_ns() - started) * 1e-9, "received": s.received, "wrong": s.wrong,
        "posts": s.posts, "sleeps": s.sleeps, "lost_wakeups": s.lost_wakeups,
        "unwritten": s.unwritten, "failed": s.failed, "live": s.pool.live.load(),
    }
    sem_destroy(&s.wake)
    pool_free(s.pool)
    free(s)
    return result
