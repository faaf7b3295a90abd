"""The engine's life: see engine.pxd. Who runs it, and what its holder does: lease.pyx."""

from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.base.bytes cimport bytes_append, bytes_fini
from mqcore.base.slab cimport Owner, heap_new, owner_data, owner_release
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.link.filtered cimport filtered_pump
from mqcore.link.includes cimport SHUT_WR, shutdown
from mqcore.link.lease cimport (
    E_ALL, E_HELD, E_JUDGED, E_RELEASE, E_START, E_TIMER, ENGINE_ACTIVE, ENGINE_NEW,
    engine_kick_here, engine_post, lease_give_up, lease_init, lease_run,
)
from mqcore.link.messages cimport messages_pump
from mqcore.link.plane cimport plane_filters
from mqcore.link.slots cimport slot_take
from mqcore.link.stream cimport stream_pump
from mqcore.link.patience cimport patience_period
from mqcore.reactor.includes cimport errno, sched_yield
from mqcore.reactor.io_thread cimport io_now, io_post, io_timer
from mqcore.spi.filter_ops cimport FILTER_GIL
from mqcore.spi.message_engine cimport MORE_FDS
from mqcore.wire.codec cimport CodecOps


# -- life ------------------------------------------------------------------------------------------

cdef Codec* _codec_new(Plane* plane, Port* port, const EngineConfig* config,
                       const EngineParts* parts) noexcept nogil:
    cdef const CodecOps* ops = parts.codec
    cdef Codec* codec = <Codec*> calloc(1, ops.size)
    if codec == NULL:
        return NULL
    codec.ops = ops
    codec.pool = plane.pool
    codec.landing = &port.landing
    codec.config = &port.shake
    codec.security = parts.security
    codec.max_message_size = config.max_message_size
    if (parts.n_peer_id and bytes_append(&codec.peer.routing_id, parts.peer_id, parts.n_peer_id)
            or ops.init(codec)):
        bytes_fini(&codec.peer.routing_id)
        free(codec)
        return NULL
    return codec


cdef void _media_fds(Engine* e) noexcept nogil:
    cdef int i
    cdef bint some = True
    for i in range(MORE_FDS + 2):
        e.media_fds[i] = -1
    if e.media == NULL:
        return
    e.media_fds[0] = e.media.wake
    e.media_fds[1] = e.media.also if e.media.also > 0 else -1
    for i in range(MORE_FDS):
        some = some and e.media.more[i] > 0
        if some:
            e.media_fds[i + 2] = e.media.more[i]


cdef void _equip(Engine* e, const EngineParts* parts, Owner* left) noexcept nogil:
    """What stands between the descriptor and the codec, and what came along with its handshake."""
    e.slab = left
    e.input.slab = left       # the slot's last engine may have died in the middle of its input
    e.input.pos = NULL
    e.input.end = NULL
    e.input.copy = True
    if left != NULL:
        memcpy(owner_data(left), parts.left, parts.n_left)
        e.input.pos = owner_data(left)
        e.input.end = e.input.pos + parts.n_left
    e.filter = parts.filter
    e.posted = parts.filter != NULL and parts.filter.ops.flags & FILTER_GIL
    e.filter_more = 0
    e.wire_sent = 0
    e.wire_mark = 0
    e.wire_plain = 0
    e.media = parts.media
    _media_fds(e)
    e.media_timer = -1
    e.media_due = 0
    e.media_untold = 0
    e.media_started = 0
    e.media_out = 1
    e.media_held = 0
    e.ended = 0
    e.pump = stream_pump()
    if e.filter != NULL:
        e.pump = filtered_pump()
    elif e.media != NULL:
        e.pump = messages_pump()


cdef Engine* engine_new(Plane* plane, IoThread* io, Watch* watch, Port* port, int fd,
                        const EngineConfig* config, const EngineParts* parts) noexcept nogil:
    cdef Codec* codec = _codec_new(plane, port, config, parts)
    cdef Owner* left = NULL
    cdef Engine* e = NULL
    if codec == NULL:
        return NULL
    if parts.n_left:
        left = heap_new(plane.pool, parts.n_left)
    if not parts.n_left or left != NULL:
        e = slot_take(plane)
    if e == NULL:
        codec.ops.fini(codec)
        free(codec)
        if left != NULL:
            owner_release(left)
        return NULL
    while e.word.fetch_or(E_HELD) & E_HELD:
        # another thread still holds the lease for a stale event of the previous connection; it
        # finds nothing and releases it
        sched_yield()
    e.plane = plane
    e.io = io
    e.watch = watch
    e.port = port
    lease_init(e)
    e.codec = codec
    e.config = config[0]
    e.fd = fd
    e.hup = 0
    e.link = NULL
    e.pipe = NULL
    e.in_blocked = 0
    e.left_bytes = 0
    e.out_blocked = 0
    e.ends_as = -1
    e.read_until = INT64_MAX
    e.arrived = e.caught_up = e.leaves = 0
    e.returned = 0
    e.wants = 0
    _equip(e, parts, left)
    if e.posted:
        e.io = plane_filters(plane, io)
    e.in_size = 0
    e.in_parts = 0
    e.begun = 0
    e.in_more = 0
    e.in_skip = 0
    e.filters = False
    e.ctl_sent = 0
    e.klass = 0
    e.low_water = 1           # SO_RCVLOWAT of a new descriptor
    e.burst = 0
    e.pongs_seen = 0
    e.born = io_now(e.io)
    e.heard = e.deaf = e.born
    e.pinged = e.ping_came = e.born
    e.asked = 0
    e.ping_gap = 0x7FFFFFFFFFFFFFFF
    e.looked = e.born
    e.queued = e.taken = 0
    e.unsaid = 0
    e.pings_seen = e.pings_sent = 0
    e.unwatched = 0
    e.message_end = e.behind = 0
    e.resets = False
    memset(&e.up, 0, 3 * sizeof(ControlNote))
    e.up.fixed = e.asks.fixed = e.down.fixed = True
    if e.arm.run == NULL:     # the last tenant's may be posted still
        e.arm.run = _arm_timer
        e.arm.arg = e
    e.tenant.fetch_add(1)
    e.state = ENGINE_NEW
    e.period.store(patience_period(e))
    e.word.store(0)           # facts that came meanwhile were the last tenant's
    plane.engines.fetch_add(1)
    watch.load.fetch_add(1)
    e.io.load.fetch_add(1)
    return e


cdef void engine_start(Engine* e) noexcept nogil:
    e.word.fetch_or(E_START)
    if e.plane.poller.add(e.watch.set, e.fd, e) < 0:
        e.unwatched = errno
    io_post(e.io, &e.arm)
    io_post(e.io, &e.task)


cdef void engine_release(Engine* e) noexcept nogil:
    # not beside the thread that wrote the DOWN note and is still inside
    engine_kick_here(e, E_RELEASE)


cdef int engine_judge(Engine* e, const Verdict* verdict) noexcept nogil:
    cdef Verdict* copy = <Verdict*> malloc(sizeof(Verdict))
    if copy == NULL:
        return MQ_NOMEM
    copy[0] = verdict[0]
    free(e.verdict.exchange(copy))
    engine_post(e, E_JUDGED)
    return MQ_OK


cdef void _say_end(Engine* e) noexcept nogil:
    """All is written: the FIN follows at once. The peer's kernel delays the acknowledgement of data
    that it expects an answer to, and the peer's own FIN acknowledges all."""
    if (e.state == ENGINE_ACTIVE and e.ends_as < 0 and e.media == NULL and e.batch.total == 0
            and e.wire_sent == e.wire.n):
        e.pump.finish(e)
        e.ends_as = DOWN_CLOSED
        e.ends_why = NULL
        shutdown(e.fd, SHUT_WR)


cdef int64_t engine_pending(Engine* e, bint last) noexcept nogil:
    cdef int64_t pending = 0
    cdef int tries
    for tries in range(100):
        if not e.word.fetch_or(E_HELD) & E_HELD:
            if last and e.fd >= 0 and not e.posted:
                _say_end(e)
            if e.fd >= 0:
                pending = e.pump.pending(e)
            if e.posted:
                lease_give_up(e)
            else:
                lease_run(e, E_ALL)  # lets go, and does what was noted meanwhile
            return pending
        sched_yield()
    return 1                  # its holder is busy: ask again


# -- time ------------------------------------------------------------------------------------------

cdef void _arm_timer(Task* task, IoThread* io) noexcept nogil:
    cdef Engine* e = <Engine*> task.arg
    io_timer(io, io_now(io) + e.period.load(), _fire, e, e.tenant.load())


cdef void _fire(void* arg, uint64_t tag, IoThread* io) noexcept nogil:
    """The timer of one tenant of the slot; a later one has its own."""
    cdef Engine* e = <Engine*> arg
    if e.tenant.load() != tag:
        return
    engine_kick_here(e, E_TIMER)
    if e.tenant.load() == tag:
        io_timer(io, io_now(io) + e.period.load(), _fire, e, tag)
