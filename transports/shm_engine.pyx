"""shm: the message engine over two rings in shared memory. shm.py creates the connection,
shm_ring.pxd has the rings, shm.md the layout.

A message is the sequence of its parts. Each is a word (size << 8 | flags) and the body, padded to
whole words. Records of up to RECORD_WHOLE bytes and messages of up to MESSAGE_WHOLE are published
as a whole. A larger message is streamed through the ring while the reader empties it, so it may be
larger than the ring. `write` returns MQ_AGAIN until the last byte is in.

The reader copies each body out once and only then looks at it. It trusts nothing in the shared
memory (shm_ring.pxd). A peer that writes garbage gets MQ_PROTOCOL, and no other peer is affected.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from posix.mman cimport (
    MADV_DONTFORK, MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_NONE,
    PROT_READ, PROT_WRITE, madvise, mmap, munmap,
)

from mqcore.base.arena cimport arena_cut, arena_end
from mqcore.base.body cimport Body, body_begin, body_block, body_drop, body_room, body_take
from mqcore.base.clock cimport now_ns
from mqcore.base.includes cimport cpu_pause
from mqcore.base.message cimport (
    MSG_CANCEL, MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, MSG_SUBSCRIBE, Msg, msg_close, msg_data,
    msg_init, msg_init_ref, msg_size,
)
from mqcore.base.slab cimport Owner, heap_new, landing_take, owner_data
from mqcore.base.spin cimport SPIN_LOOKS, Spin, spin_failed, spin_paid, spin_time
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
    RECORD_WHOLE = 4096       # bytes, including the word before it
    MESSAGE_WHOLE = 16 * 1024
    CHUNK = 64 * 1024         # of a large body, between two checks of the other side
    TURN = 1024 * 1024        # bytes that one call moves, approximately
    LAND_FROM_HERE = 16 * 1024  # each body is a separate copy, so smaller ones profit, too
    SLICE_FROM = 8 * 1024     # if fewer bytes wait, small bodies get their own memory
    SLICE_MOST = 128 * 1024   # larger bodies get their own memory, too
    SLAB_FROM = 32 * 1024     # if fewer bytes wait, a slab of 64 KiB, else of 256 KiB

RING_LEAST = 64 << 10
RING_MOST = 1 << 30

cdef struct ShmEngine:
    MessageEngine base
    RingOut out
    RingIn inn
    void* fenced              # the mapping, between two inaccessible pages
    size_t fenced_size
    int owner                 # id of the owning process
    # a large message being sent: all parts before `part` are in the ring, and `put` bytes of it
    bint streaming
    size_t part
    uint64_t put
    Spin spin                 # of waits for space
    Body body                 # a large one being received
    bint mid_in               # the last part had the flag MORE
    Owner* arena              # small bodies


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
    """ring_room. If it is less than `want`, an edge will follow."""
    cdef int64_t room = ring_room(&e.out, want)
    if room >= <int64_t> want or room < 0:
        return room
    _flush(&e.base)           # the reader can only free what it sees
    room = _await_room(e, want)
    return room if room else ring_block(&e.out, want)


cdef int64_t _await_room(ShmEngine* e, uint64_t want) noexcept nogil:
    """An active reader frees space sooner than this thread could fall asleep, so spin for some
    microseconds. 0: no space."""
    cdef int64_t spin = spin_time(&e.spin, e.base.spin)
    cdef int64_t room, until
    cdef int i
    if spin == 0:
        return 0
    until = now_ns() + spin
    while now_ns() < until:
        for i in range(SPIN_LOOKS):
            room = ring_room(&e.out, want)
            if room >= <int64_t> want or room < 0:
                spin_paid(&e.spin, e.base.spin)
                return room
            cpu_pause()
    spin_failed(&e.spin)
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
    """Continue a message that is too large to publish as a whole."""
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
        _flush(&e.base)       # the reader empties it while we add more
        if e.put == size:
            e.part += 1
            e.put = 0
        elif budget < left:
            eventfd_signal(e.base.wake)  # let other engines run: this one is called again
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
    """Memory for a body in a shared slab."""
    return arena_cut(&e.arena, e.base.pool, 1 if size + held < SLAB_FROM else 2, size, m)


cdef int _small(ShmEngine* e, Msg* m, uint64_t size, uint64_t held) noexcept nogil:
    """A body that has arrived completely."""
    cdef int rc = MQ_OK
    if size <= MSG_INLINE_MAX:
        msg_init(m)
        m.size8 = <uint8_t> size
        ring_get(&e.inn, &m.u.inl[0], size)
        return MQ_OK
    if e.arena != NULL or held >= SLICE_FROM:
        rc = _slice(e, m, size, held)
    else:
        rc = _own(e, m, size)
    if rc == MQ_OK:
        ring_get(&e.inn, m.u.ref.data, size)
    return rc


cdef int _own(ShmEngine* e, Msg* m, uint64_t size) noexcept nogil:
    """Memory for this body only."""
    cdef Owner* owner = heap_new(e.base.pool, size)
    if owner == NULL:
        return MQ_NOMEM
    msg_init_ref(m, owner, owner_data(owner), size)
    return MQ_OK


cdef int _open(ShmEngine* e, uint64_t flags, uint64_t size, uint64_t held) noexcept nogil:
    """Begin a large body: in a slab, in memory prepared for it, or in a block that grows as data
    arrives."""
    cdef Owner* owner = NULL
    cdef Msg part
    cdef int rc = MQ_OK
    if size >= LAND_FROM_HERE and e.base.landing != NULL:
        owner = landing_take(e.base.landing, size)
    if owner != NULL:
        body_begin(&e.body, owner, owner.room, size, size)
    elif size <= SLICE_MOST:
        rc = _slice(e, &part, size, held)
        if rc == MQ_OK:
            body_begin(&e.body, part.u.ref.owner, part.u.ref.data, size, size)
    else:
        rc = body_block(&e.body, e.base.pool, size)
    e.body.part.flags = <uint8_t> flags
    return rc


cdef int _more(ShmEngine* e, uint64_t held) noexcept nogil:
    """Take the available bytes of the current body, at most a chunk."""
    cdef uint8_t* to = NULL
    cdef size_t take = 0
    if body_room(&e.body, &to, &take):
        return MQ_NOMEM
    take = min(min(<uint64_t> take, held), <uint64_t> CHUNK)
    ring_get(&e.inn, to, take)
    e.body.got += take
    return MQ_OK


cdef int _next(ShmEngine* e, Msg* out, size_t* n, uint64_t held) noexcept nogil:
    """Read the next record, or the next piece of a large one."""
    cdef uint64_t word, size, flags
    cdef int rc
    if e.body.busy:
        rc = _more(e, held)
        if rc == MQ_OK and e.body.got == e.body.size:
            body_take(&e.body, &out[n[0]])
            n[0] += 1
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
    """ring_held. If it is 0, an edge will follow."""
    cdef int64_t held = ring_held(&e.inn)
    if held:
        return held
    _give_back(e)
    held = ring_doze(&e.inn)
    if held == 0:
        arena_end(&e.arena)   # an idle connection keeps no slab
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
        self.under_way = e.body.got if e.body.busy else 0
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
    body_drop(&e.body)
    arena_end(&e.arena)
    if e.owner == getpid():   # a forked child does not inherit the mapping
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
    """Map the memory. NULL on failure. A forked child does not inherit it."""
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
    """Create an engine over the shared memory of descriptor `memory`, which the caller keeps. It
    has two rings of `ring` bytes and is sealed against shrinking; the caller has checked that.
    Takes over the eventfds `wake`, ours, and `peer`, the other side's. A receive spins for `spin`
    ns before it sleeps. OSError if the memory cannot be mapped."""
    cdef ShmEngine* e
    cdef uint8_t* base
    cdef RingShared* shared
    cdef NativeEngine carrier
    if ring < RING_LEAST or ring > RING_MOST or ring & (ring - 1):
        raise UsageError(f"the size of a ring must be a power of two, {RING_LEAST} to {RING_MOST}, "
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
    e.base.land_from = LAND_FROM_HERE
    e.base.also = peer        # wakes the peer
    e.owner = getpid()
    carrier = native_engine(&e.base)
    return carrier
