"""shm: the message engine over two rings in shared memory. shm.py makes the connection,
shm_ring.pxd has the rings, shm.md the layout.

A message is its parts one after the other, each a word (size << 8 | flags) and the body, filled up
to whole words. A record of up to RECORD_WHOLE bytes is published whole, a message of up to
MESSAGE_WHOLE too; what is larger goes through the ring as a stream while the reader takes it out,
so a message may be larger than the ring. `write` then says MQ_AGAIN until the last byte is in.

The reader copies each body out, once, and looks at it only afterwards. Nothing in the shared memory
is believed (shm_ring.pxd); a peer that writes nonsense gets MQ_PROTOCOL, and nobody else notices.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from posix.mman cimport (
    MADV_DONTFORK, MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_NONE,
    PROT_READ, PROT_WRITE, madvise, mmap, munmap,
)

from mqcore.base.clock cimport now_ns
from mqcore.base.includes cimport cpu_pause
from mqcore.base.message cimport (
    MSG_CANCEL, MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, MSG_SUBSCRIBE, Msg, msg_close, msg_data,
    msg_init, msg_init_ref, msg_size,
)
from mqcore.base.slab cimport (
    Owner, heap_grow, heap_new, landing_take, owner_data, owner_release, owner_retain,
    slab_new,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.reactor.includes cimport close, getpid
from mqcore.reactor.wakeup cimport eventfd_signal
from mqcore.spi.message_engine cimport (
    ENGINE_STREAM, MESSAGE_ENGINE_ABI, MessageEngine, MessageEngineOps, NativeEngine, native_engine,
)
from mqcore.transports.shm_ring cimport (
    RingIn, RingOut, RingShared, ring_awaited, ring_block, ring_doze, ring_free, ring_get,
    ring_get_word, ring_glance, ring_held, ring_in_init, ring_out_init, ring_pad, ring_put,
    ring_put_word, ring_room, ring_rouse, ring_show, ring_unread,
)

from mqcore.errors import UsageError

cdef enum:
    PAGE = 4096               # header and control words; the rings' data follows
    RINGS_AT = 1024           # control words of the ring from the connecting side; then the other's
    RECORD_WHOLE = 4096       # bytes, the word in front included
    MESSAGE_WHOLE = 16 * 1024
    CHUNK = 64 * 1024         # of a large body, between two looks at the other side
    TURN = 1024 * 1024        # bytes that one call moves, about
    BODY_FIRST = 1024 * 1024  # memory for a large body until so much of it has come
    LAND_FROM_HERE = 16 * 1024  # each body is a copy of its own, so the smaller ones gain too
    SLICE_FROM = 8 * 1024     # fewer bytes than this waiting: small bodies get memory of their own
    SLICE_MOST = 128 * 1024   # larger bodies get memory of their own too
    SPIN_LOOKS = 8            # between two looks at the clock
    SPIN_LEAST = 2000         # ns; shorter does not pay
    SPIN_SKIP = 16            # waits for room without it after it did not pay; doubles
    SPIN_SKIP_MOST = 1024
    SLAB_FROM = 32 * 1024     # fewer bytes waiting: a slab of 64 KiB, else of 256 KiB

RING_LEAST = 64 << 10
RING_MOST = 1 << 30

cdef struct ShmEngine:
    MessageEngine base
    RingOut out
    RingIn inn
    void* fenced              # the mapping, between two pages that nobody may touch
    size_t fenced_size
    int owner                 # process
    # a large message under way out: parts before `part` are in the ring, and `put` bytes of it
    bint streaming
    size_t part
    uint64_t put
    int64_t spin              # ns that the next wait for room may take
    uint32_t spin_skip        # waits without, after that did not pay
    uint32_t spin_pause
    # a large body under way in
    Msg body
    bint busy
    bint mid_in               # the last part said MORE
    uint64_t size
    uint64_t got
    uint64_t room             # bytes of its memory
    uint64_t proven           # the largest body that came
    # small bodies
    Owner* slab
    uint64_t slab_used


cdef inline void _signal(ShmEngine* e) noexcept nogil:
    eventfd_signal(e.base.also)


cdef int _refuse(ShmEngine* e, const char* why) noexcept nogil:
    e.base.reason = why
    return MQ_PROTOCOL


cdef const char* BAD_POSITION = b"the peer wrote an impossible position into the shared memory"


# -- out -------------------------------------------------------------------------------------------

cdef int _flush(MessageEngine* self) noexcept nogil:
    cdef ShmEngine* e = <ShmEngine*> self
    if ring_show(&e.out):
        _signal(e)
    return MQ_OK


cdef int64_t _room(ShmEngine* e, uint64_t want) noexcept nogil:
    """ring_room, and an edge to come if it is less than `want`."""
    cdef int64_t room = ring_room(&e.out, want)
    if room >= <int64_t> want or room < 0:
        return room
    _flush(&e.base)           # the reader can only make room by what it sees
    room = _await_room(e, want)
    return room if room else ring_block(&e.out, want)


cdef int64_t _await_room(ShmEngine* e, uint64_t want) noexcept nogil:
    """A reader that is at it makes room sooner than we could fall asleep: look for it for some
    microseconds, and if that was in vain for half as long the next time, then seldom. 0: none."""
    cdef int64_t room, until
    cdef int i
    if e.spin_skip:
        e.spin_skip -= 1
        return 0
    until = now_ns() + e.spin
    while now_ns() < until:
        for i in range(SPIN_LOOKS):
            room = ring_room(&e.out, want)
            if room >= <int64_t> want or room < 0:
                e.spin = e.base.spin
                e.spin_pause = 0
                return room
            cpu_pause()
    e.spin //= 2
    if e.spin < SPIN_LEAST:
        e.spin = e.base.spin
        e.spin_pause = min(max(2 * e.spin_pause, <uint32_t> SPIN_SKIP), <uint32_t> SPIN_SKIP_MOST)
        e.spin_skip = e.spin_pause
    return 0


cdef int _short(ShmEngine* e, int64_t room) noexcept nogil:
    return MQ_AGAIN if room >= 0 else _refuse(e, BAD_POSITION)


cdef inline void _put_header(ShmEngine* e, Msg* m, uint64_t size) noexcept nogil:
    ring_put_word(&e.out, size << 8 | (m.flags & (MSG_MORE | MSG_CONTROL)))


cdef int _write(MessageEngine* self, Msg* parts, size_t n) noexcept nogil:
    cdef ShmEngine* e = <ShmEngine*> self
    cdef uint64_t total = 0
    cdef uint64_t size
    cdef int64_t room
    cdef size_t i
    cdef int rc
    if not e.streaming:
        for i in range(n):
            total += 8 + ring_pad(msg_size(&parts[i]))
        if total > MESSAGE_WHOLE:
            e.streaming = True
            e.part = 0
            e.put = 0
    if e.streaming:
        rc = _stream(e, parts, n)
        if rc:
            return rc
        e.streaming = False
    else:
        room = _room(e, total)
        if room < <int64_t> total:
            return _short(e, room)
        for i in range(n):
            size = msg_size(&parts[i])
            _put_header(e, &parts[i], size)
            ring_put(&e.out, msg_data(&parts[i]), size)
    for i in range(n):
        msg_close(&parts[i])
    return MQ_OK


cdef int _stream(ShmEngine* e, Msg* parts, size_t n) noexcept nogil:
    """Goes on with a message that is larger than what is published whole."""
    cdef uint64_t size, want, left
    cdef uint64_t budget = TURN
    cdef int64_t room
    cdef Msg* m
    while e.part < n:
        m = &parts[e.part]
        size = msg_size(m)
        left = size - e.put
        want = ring_pad(left) + 8
        room = _room(e, want if want <= RECORD_WHOLE else RECORD_WHOLE)
        if room < <int64_t> (want if want <= RECORD_WHOLE else RECORD_WHOLE):
            return _short(e, room)
        if e.put == 0:
            _put_header(e, m, size)
            room -= 8
        if left > <uint64_t> room:
            left = room
        if left > CHUNK:
            left = CHUNK
        ring_put(&e.out, msg_data(m) + e.put, left)
        e.put += left
        _flush(&e.base)       # the reader takes it out while we put more
        if e.put == size:
            e.part += 1
            e.put = 0
        elif budget < left:
            eventfd_signal(e.base.wake)  # it is others' turn: we come again
            return MQ_AGAIN
        else:
            budget -= left
    return MQ_OK


cdef int64_t _pending(MessageEngine* self) noexcept nogil:
    cdef int64_t unread = ring_unread(&(<ShmEngine*> self).out)
    return unread if unread > 0 else 0


# -- in --------------------------------------------------------------------------------------------

cdef int _check(ShmEngine* e, uint64_t flags, uint64_t size) noexcept nogil:
    cdef int64_t limit = e.base.max_message_size
    if flags & ~(<uint64_t> (MSG_MORE | MSG_CONTROL)):
        return _refuse(e, b"the peer sent a part with unknown flags")
    if flags & MSG_CONTROL and (e.mid_in or (flags != MSG_SUBSCRIBE and flags != MSG_CANCEL)):
        return _refuse(e, b"the peer sent a subscription in the middle of a message")
    if limit >= 0 and size > <uint64_t> limit:
        snprintf(e.base.reason_text, sizeof(e.base.reason_text),
                 b"the peer announced a part of %llu bytes, the limit is %lld",
                 <unsigned long long> size, <long long> limit)
        return _refuse(e, e.base.reason_text)
    return MQ_OK


cdef int _slice(ShmEngine* e, Msg* m, uint64_t size, uint64_t held) noexcept nogil:
    """Room for a body in a slab that others share."""
    if e.slab != NULL and e.slab.capacity - e.slab_used < size:
        owner_release(e.slab)
        e.slab = NULL
    if e.slab == NULL:
        e.slab = slab_new(e.base.pool, 1 if size + held < SLAB_FROM else 2)
        e.slab_used = 0
        if e.slab == NULL:
            return MQ_NOMEM
    owner_retain(e.slab)
    msg_init_ref(m, e.slab, owner_data(e.slab) + e.slab_used, size)
    e.slab_used = min(e.slab_used + ring_pad(size), <uint64_t> e.slab.capacity)
    return MQ_OK


cdef int _small(ShmEngine* e, Msg* m, uint64_t size, uint64_t held) noexcept nogil:
    """A body that is there whole."""
    cdef int rc = MQ_OK
    if size <= MSG_INLINE_MAX:
        msg_init(m)
        m.size8 = <uint8_t> size
        ring_get(&e.inn, &m.u.inl[0], size)
        return MQ_OK
    if e.slab != NULL or held >= SLICE_FROM:
        rc = _slice(e, m, size, held)
    else:
        rc = _own(e, m, size)
    if rc == MQ_OK:
        ring_get(&e.inn, m.u.ref.data, size)
    return rc


cdef int _own(ShmEngine* e, Msg* m, uint64_t size) noexcept nogil:
    """Memory for this body alone."""
    cdef Owner* owner = heap_new(e.base.pool, size)
    if owner == NULL:
        return MQ_NOMEM
    msg_init_ref(m, owner, owner_data(owner), size)
    return MQ_OK


cdef int _open(ShmEngine* e, uint64_t flags, uint64_t size, uint64_t held) noexcept nogil:
    """A large body begins: in a slab, in memory made ahead for it, or in a block that grows with
    what comes."""
    cdef Owner* owner = NULL
    cdef int rc = MQ_OK
    e.room = size
    if size >= LAND_FROM_HERE and e.base.landing != NULL:
        owner = landing_take(e.base.landing, size)
    if owner != NULL:
        msg_init_ref(&e.body, owner, owner.room, size)
    elif size <= SLICE_MOST:
        rc = _slice(e, &e.body, size, held)
    else:
        e.room = min(size, max(<uint64_t> BODY_FIRST, ring_pad(e.proven)))
        rc = _own(e, &e.body, e.room)
        e.body.u.ref.size = size
    if rc:
        return rc
    e.body.flags = <uint8_t> flags
    e.busy = True
    e.size = size
    e.got = 0
    return MQ_OK


cdef int _grow(ShmEngine* e) noexcept nogil:
    """The body's memory is full, the body is not: double it, never beyond the body's size."""
    cdef uint64_t room = e.room * 2 if e.size - e.room > e.room else e.size
    cdef Owner* owner = heap_grow(e.body.u.ref.owner, room)
    if owner == NULL:
        return MQ_NOMEM
    e.body.u.ref.owner = owner
    e.body.u.ref.data = owner_data(owner)
    e.room = room
    return MQ_OK


cdef int _more(ShmEngine* e, uint64_t held) noexcept nogil:
    """Take what there is of the body under way, at most a chunk."""
    cdef uint64_t take
    if e.got == e.room and _grow(e):
        return MQ_NOMEM
    take = min(min(e.room - e.got, held), <uint64_t> CHUNK)
    ring_get(&e.inn, e.body.u.ref.data + e.got, take)
    e.got += take
    return MQ_OK


cdef int _next(ShmEngine* e, Msg* out, size_t* n, uint64_t held) noexcept nogil:
    """The next record, or the next piece of a large one."""
    cdef uint64_t word, size, flags
    cdef int rc
    if e.busy:
        rc = _more(e, held)
        if rc == MQ_OK and e.got == e.size:
            e.proven = max(e.proven, e.size)
            out[n[0]] = e.body
            n[0] += 1
            e.busy = False
        return rc
    word = ring_get_word(&e.inn)
    held -= 8
    size = word >> 8
    flags = word & 0xff
    rc = _check(e, flags, size)
    if rc:
        return rc
    e.mid_in = flags & MSG_MORE
    if 8 + ring_pad(size) > RECORD_WHOLE:
        return _open(e, flags, size, held)
    if held < ring_pad(size):
        return _refuse(e, b"the peer published a part of a small record")
    rc = _small(e, &out[n[0]], size, held)
    if rc == MQ_OK:
        out[n[0]].flags = <uint8_t> flags
        n[0] += 1
    return rc


cdef inline void _give_back(ShmEngine* e) noexcept nogil:
    if ring_free(&e.inn):
        _signal(e)


cdef int64_t _held(ShmEngine* e) noexcept nogil:
    """ring_held, and an edge to come if it is 0."""
    cdef int64_t held = ring_held(&e.inn)
    if held:
        return held
    _give_back(e)
    held = ring_doze(&e.inn)
    if held == 0 and e.slab != NULL:
        owner_release(e.slab)  # an idle connection keeps none
        e.slab = NULL
    return held


cdef int _read(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef ShmEngine* e = <ShmEngine*> self
    cdef uint64_t until = e.inn.head + TURN
    cdef int64_t held
    cdef int rc = MQ_OK
    n[0] = 0
    while n[0] < cap and e.inn.head < until:
        held = _held(e)
        if held == 0:
            return MQ_AGAIN
        if held < 0:
            return _refuse(e, BAD_POSITION)
        rc = _next(e, out, n, held)
        if rc:
            return rc
        if e.inn.head - e.inn.freed >= (
                e.inn.size // 4 if ring_awaited(&e.inn) else min(e.inn.size // 4, CHUNK)):
            _give_back(e)
    return MQ_OK


cdef bint _peek(MessageEngine* self) noexcept nogil:
    cdef ShmEngine* e = <ShmEngine*> self
    ring_rouse(&e.inn)
    return ring_glance(&e.inn)


# -- life ------------------------------------------------------------------------------------------

cdef int _start(MessageEngine* self) noexcept nogil:
    return MQ_OK


cdef void _fini(MessageEngine* self) noexcept nogil:
    cdef ShmEngine* e = <ShmEngine*> self
    if e.busy:
        msg_close(&e.body)
    if e.slab != NULL:
        owner_release(e.slab)
    if e.owner == getpid():   # a forked child has no such mapping
        munmap(e.fenced, e.fenced_size)
    close(e.base.wake)
    close(e.base.also)
    free(e)


cdef MessageEngineOps OPS
OPS.abi = MESSAGE_ENGINE_ABI
OPS.flags = ENGINE_STREAM
OPS.start = _start
OPS.fini = _fini
OPS.read = _read
OPS.write = _write
OPS.flush = _flush
OPS.pending = _pending
OPS.peek = _peek


cdef uint8_t* _map(ShmEngine* e, int memory, size_t size) noexcept nogil:
    """The memory; NULL. A forked child does not have it."""
    cdef uint8_t* fenced
    e.fenced_size = size + 2 * PAGE
    e.fenced = mmap(NULL, e.fenced_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if e.fenced == MAP_FAILED:
        return NULL
    fenced = <uint8_t*> e.fenced
    if mmap(fenced + PAGE, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory,
            0) == MAP_FAILED:
        munmap(e.fenced, e.fenced_size)
        return NULL
    madvise(fenced, e.fenced_size, MADV_DONTFORK)
    return fenced + PAGE


def map_size(ring):
    """Bytes of the shared memory with two rings of `ring` bytes."""
    return PAGE + 2 * ring


def attach(int memory, uint64_t ring, bint connected, int wake, int peer,
           int64_t spin=0) -> NativeEngine:
    """An engine over the shared memory of descriptor `memory`, which stays the caller's; it has two
    rings of `ring` bytes and is sealed against shrinking: the caller has checked that. Takes the
    eventfds `wake`, ours, and `peer`, the other side's. A receive looks for `spin` ns before it
    sleeps. OSError: it cannot be mapped."""
    cdef ShmEngine* e
    cdef uint8_t* base
    cdef RingShared* shared
    cdef NativeEngine carrier
    if ring < RING_LEAST or ring > RING_MOST or ring & (ring - 1):
        raise UsageError(f"a ring has a power of two of bytes, {RING_LEAST} to {RING_MOST}, "
                         f"not {ring}")
    e = <ShmEngine*> calloc(1, sizeof(ShmEngine))
    if e == NULL:
        raise MemoryError()
    base = _map(e, memory, PAGE + 2 * ring)
    if base == NULL:
        free(e)
        raise OSError(f"the shared memory of {map_size(ring)} bytes could not be mapped")
    shared = <RingShared*> (base + RINGS_AT)
    ring_out_init(&e.out, &shared[0 if connected else 1],
                  base + PAGE + (0 if connected else ring), ring)
    ring_in_init(&e.inn, &shared[1 if connected else 0],
                 base + PAGE + (ring if connected else 0), ring)
    e.base.ops = &OPS
    e.base.wake = wake
    e.base.spin = spin
    e.spin = spin
    e.base.land_from = LAND_FROM_HERE
    e.base.also = peer        # wakes the peer
    e.owner = getpid()
    carrier = native_engine(&e.base)
    return carrier
