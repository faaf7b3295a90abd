"""Two real threads on one ring of shared memory (transports/shm_ring.pxd), without Python.

Records of random size with consecutive numbers, every byte checked, every wake-up counted: both
ends sleep on semaphores, and only when the ring says that they may. ThreadSanitizer runs this too;
with `plant` the writer publishes by a plain store, which it must find.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from mqcore.base.includes cimport aligned_alloc
from mqcore.testing.native.threads cimport (
    pthread_create, pthread_join, pthread_t, sem_destroy, sem_init, sem_post, sem_t, sem_timedwait,
)
from mqcore.transports.shm_ring cimport (
    RingIn, RingOut, RingShared, ring_block, ring_doze, ring_free, ring_get, ring_get_word,
    ring_held, ring_in_init, ring_out_init, ring_pad, ring_put, ring_put_word, ring_room, ring_show,
)

cdef enum:
    LARGEST = 600             # bytes of a record's body

cdef struct Stress:
    RingOut out
    RingIn inn
    sem_t more                # the reader sleeps here
    sem_t room                # the writer
    uint64_t records
    uint64_t batch            # published after 1 to so many
    bint plant
    # writer
    uint64_t random
    uint64_t blocks
    uint64_t wakes_reader
    uint64_t pad[8]
    # reader
    uint64_t received
    uint64_t wrong
    uint64_t dozes
    uint64_t wakes_writer
    uint64_t lost             # waits that ran into their limit, broken positions


cdef inline uint64_t _random(Stress* s) noexcept nogil:
    s.random ^= s.random << 13
    s.random ^= s.random >> 7
    s.random ^= s.random << 17
    return s.random


cdef bint _sleep(sem_t* on) noexcept nogil:
    cdef timespec until
    clock_gettime(CLOCK_REALTIME, &until)
    until.tv_sec += 20
    return sem_timedwait(on, &until) == 0


cdef void _publish(Stress* s) noexcept nogil:
    if s.plant:               # with a typical mistake
        s.out.shown = s.out.tail
        (<uint64_t*> <void*> &s.out.shared.tail)[0] = s.out.tail
    elif ring_show(&s.out):
        s.wakes_reader += 1
        sem_post(&s.more)


cdef void* _writer(void* arg) noexcept nogil:
    cdef Stress* s = <Stress*> arg
    cdef uint8_t[LARGEST] body
    cdef uint64_t number, size
    cdef uint64_t until = 0
    cdef int64_t room
    for number in range(s.records):
        size = _random(s) % LARGEST
        memset(&body[0], <int> (number & 0xff), size)
        while True:
            room = ring_room(&s.out, ring_pad(size) + 8)
            if room >= <int64_t> (ring_pad(size) + 8):
                break
            _publish(s)
            room = ring_block(&s.out, ring_pad(size) + 8)
            if room >= <int64_t> (ring_pad(size) + 8):
                continue
            s.blocks += 1
            if room < 0 or (not s.plant and not _sleep(&s.room)):
                return NULL
        ring_put_word(&s.out, number << 16 | size)
        ring_put(&s.out, &body[0], size)
        if number >= until:
            _publish(s)
            until = number + _random(s) % s.batch
    _publish(s)
    return NULL


cdef void* _reader(void* arg) noexcept nogil:
    cdef Stress* s = <Stress*> arg
    cdef uint8_t[LARGEST] body
    cdef uint64_t word, size, i
    cdef int64_t held
    while s.received < s.records:
        held = ring_held(&s.inn)
        if held == 0:
            if ring_free(&s.inn):
                s.wakes_writer += 1
                sem_post(&s.room)
            held = ring_doze(&s.inn)
            if held == 0:
                s.dozes += 1
                if not s.plant and not _sleep(&s.more):
                    held = -1
                else:
                    continue
        if held < 0:
            s.lost += 1
            return NULL
        word = ring_get_word(&s.inn)
        size = word & 0xffff
        if word >> 16 != s.received or size >= LARGEST or held < <int64_t> (8 + ring_pad(size)):
            s.wrong += 1
            return NULL
        ring_get(&s.inn, &body[0], size)
        for i in range(size):
            if body[i] != (s.received & 0xff):
                s.wrong += 1
                break
        s.received += 1
        if s.inn.head - s.inn.freed >= s.inn.size // 4 and ring_free(&s.inn):
            s.wakes_writer += 1
            sem_post(&s.room)
    return NULL


def stress(uint64_t records, *, uint64_t seed=1, uint64_t batch=16, uint64_t ring=4096,
           bint plant=False):
    """Counts of both ends as a dict. A wait that lasts 20 s gives up ("lost")."""
    cdef Stress* s = <Stress*> aligned_alloc(64, (sizeof(Stress) + 63) // 64 * 64)
    cdef uint8_t* memory = <uint8_t*> aligned_alloc(4096, 4096 + ring)
    cdef pthread_t reader, writer
    if s == NULL or memory == NULL:
        raise MemoryError()
    memset(<void*> s, 0, sizeof(Stress))
    memset(memory, 0, 4096 + ring)
    ring_out_init(&s.out, <RingShared*> memory, memory + 4096, ring)
    ring_in_init(&s.inn, <RingShared*> memory, memory + 4096, ring)
    s.records = records
    s.batch = batch
    s.random = seed << 20 | 0x9e3779b9
    s.plant = plant
    sem_init(&s.more, 0, 0)
    sem_init(&s.room, 0, 0)
    with nogil:
        pthread_create(&reader, NULL, _reader, s)
        pthread_create(&writer, NULL, _writer, s)
        pthread_join(reader, NULL)
        pthread_join(writer, NULL)
    found = {"received": s.received, "wrong": s.wrong, "lost": s.lost, "blocks": s.blocks,
             "dozes": s.dozes, "wakes_reader": s.wakes_reader, "wakes_writer": s.wakes_writer}
    sem_destroy(&s.more)
    sem_destroy(&s.room)
    free(memory)
    free(s)
    return found
