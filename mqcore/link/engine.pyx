"""The engine: see engine.pxd for the lease; this file runs it. What is done under it: session.pyx
and the pumps: stream.pyx, filtered.pyx, messages.pyx.
"""

from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.base.bytes cimport bytes_append, bytes_fini
from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport vec_fini
from mqcore.base.slab cimport Owner, heap_new, owner_data, owner_release
from mqcore.base.status cimport MQ_DONE, MQ_NOMEM, MQ_OK
from mqcore.base.widen cimport widen
from mqcore.link.filtered cimport filtered_pump
from mqcore.link.messages cimport messages_pump, messages_take
from mqcore.link.plane cimport plane_filters
from mqcore.link.session cimport (
    session_attach, session_drain, session_end, session_fail_as, session_want,
)
from mqcore.link.slots cimport slot_give, slot_take
from mqcore.link.stream cimport stream_pump, stream_shaken
from mqcore.reactor.includes cimport errno, sched_yield
from mqcore.reactor.io_thread cimport io_post, io_post_later, io_timer
from mqcore.spi.filter_ops cimport FILTER_GIL
from mqcore.spi.message_engine cimport ENGINE_STREAM
from mqcore.spi.pipe cimport (
    ASKED_CLOSE, ASKED_RESET, DIRTY_IN, DIRTY_OUT, DIRTY_RESET, FarOps,
)
from mqcore.wire.codec cimport CodecOps, batch_fini

cdef enum:
    DRAIN_NS = 1000000000     # how long a reset link waits for the peer's FIN


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
    e.media_fds[0] = -1
    e.media_fds[1] = -1
    if parts.media != NULL:
        e.media_fds[0] = parts.media.wake
        e.media_fds[1] = parts.media.also if parts.media.also > 0 else -1
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
    e.far_ops = &FAR
    e.codec = codec
    e.config = config[0]
    e.fd = fd
    e.hup = 0
    e.link = NULL
    e.pipe = NULL
    e.in_blocked = 0
    e.out_blocked = 0
    e.wants = 0
    _equip(e, parts, left)
    if e.posted:
        e.io = plane_filters(plane, io)
    e.in_size = 0
    e.in_parts = 0
    e.in_more = 0
    e.in_skip = 0
    e.ctl_sent = 0
    e.klass = 0
    e.pongs_seen = 0
    e.born = now_ns()
    e.heard = e.born
    e.said = e.born
    e.pinged = 0
    e.unwatched = 0
    memset(&e.up, 0, 3 * sizeof(ControlNote))
    e.up.fixed = e.asks.fixed = e.down.fixed = True
    if e.task.run == NULL:    # the last tenant's may be posted still
        e.task.run = _run_task
        e.arm.run = _arm_timer
        e.arm.arg = e
    e.tenant.fetch_add(1)
    e.state = ENGINE_NEW
    e.period.store(_period(e))
    e.word.store(0)           # facts that came meanwhile were the last tenant's
    plane.engines.fetch_add(1)
    watch.load.fetch_add(1)
    return e


cdef void engine_start(Engine* e) noexcept nogil:
    e.word.fetch_or(E_START)
    if e.plane.poller.add(e.watch.set, e.fd, e) < 0:
        e.unwatched = errno
    io_post(e.io, &e.arm)
    io_post(e.io, &e.task)


cdef void engine_release(Engine* e) noexcept nogil:
    # not beside the thread that wrote the DOWN note and is still inside
    _kick_here(e, E_RELEASE)


cdef int engine_judge(Engine* e, const Verdict* verdict) noexcept nogil:
    cdef Verdict* copy = <Verdict*> malloc(sizeof(Verdict))
    if copy == NULL:
        return MQ_NOMEM
    copy[0] = verdict[0]
    free(e.verdict.exchange(copy))
    engine_post(e, E_JUDGED)
    return MQ_OK


cdef void _judged(Engine* e) noexcept nogil:
    cdef Verdict* verdict = e.verdict.exchange(NULL)
    if verdict != NULL and e.state == ENGINE_HANDSHAKE and e.codec.asking:
        stream_shaken(e, e.codec.ops.judged(e.codec, verdict))
    free(verdict)


cdef void _release(Engine* e) noexcept nogil:
    cdef Plane* plane = e.plane
    free(e.verdict.exchange(NULL))
    e.codec.ops.fini(e.codec)
    bytes_fini(&e.codec.ctl)
    free(e.codec)
    e.codec = NULL
    batch_fini(&e.batch)
    bytes_fini(&e.wire)
    vec_fini(&e.held)
    e.tenant.fetch_add(1)     # its timer is nobody's
    e.state = ENGINE_FREE
    plane.engines.fetch_sub(1)
    slot_give(plane, e)


cdef int64_t engine_pending(Engine* e) noexcept nogil:
    cdef int64_t pending = 0
    cdef int tries
    for tries in range(100):
        if not e.word.fetch_or(E_HELD) & E_HELD:
            if e.fd >= 0:
                pending = e.pump.pending(e)
            if e.posted:
                _let_go(e, False)
            else:
                _run(e, 0xffffffff)  # lets go, and does what was noted meanwhile
            return pending
        sched_yield()
    return 1                  # its holder is busy: ask again


# -- the lease -------------------------------------------------------------------------------------

cdef void _run(Engine* e, uint32_t allowed) noexcept nogil:
    """Holds the lease on entry, not on return. Two rounds at most, then the I/O thread goes on."""
    cdef uint32_t notes, left, held
    cdef int rounds = 0
    e.turned = 0
    while True:
        notes = e.word.fetch_and(E_HELD) & ~(<uint32_t> E_HELD)
        left = notes & ~allowed
        if left:
            e.word.fetch_or(left)
        _step(e, notes & allowed)
        held = E_HELD
        widen()
        if not left and e.word.compare_exchange_strong(held, 0):
            return
        rounds += 1
        if left or rounds >= 2 or e.turned:
            _let_go(e, not left or e.turned)
            return


cdef void _let_go(Engine* e, bint turned) noexcept nogil:
    """First let go with the notes left, then post. The slot may have another tenant by then.
    `turned`: this engine has had its turn, and others go first."""
    cdef IoThread* io = e.io
    e.word.fetch_and(~(<uint32_t> E_HELD))
    widen()
    if turned:
        io_post_later(io, &e.task)
    else:
        io_post(io, &e.task)


cdef void _kick_here(Engine* e, uint32_t facts) noexcept nogil:
    if not e.word.fetch_or(facts | E_HELD) & E_HELD:
        _run(e, 0xffffffff)


cdef void engine_kick(Engine* e, uint32_t facts) noexcept nogil:
    if e.posted:
        engine_post(e, facts)
    else:
        _kick_here(e, facts)


cdef bint engine_peek(Engine* e, Port* port) noexcept nogil:
    cdef bint found = False
    if e.word.fetch_or(E_HELD) & E_HELD:
        return False          # its holder sees to it
    if (e.port == port and e.state == ENGINE_ACTIVE and e.media_started and not e.in_blocked
            and e.media.ops.peek(e.media)):
        e.word.fetch_or(E_WAKE)
        found = True
    _run(e, 0xffffffff)
    return found


cdef void engine_kick_out(Engine* e) noexcept nogil:
    if e.posted:
        engine_post(e, E_OUT)
    elif not e.word.fetch_or(E_OUT | E_HELD) & E_HELD:
        _run(e, E_OUT)


cdef void engine_post(Engine* e, uint32_t facts) noexcept nogil:
    if not e.word.fetch_or(facts) & E_HELD:
        widen()
        io_post(e.io, &e.task)


cdef void _run_task(Task* task, IoThread* io) noexcept nogil:
    _kick_here(<Engine*> task, 0)


cdef void _step(Engine* e, uint32_t notes) noexcept nogil:
    if notes & E_RELEASE and e.state == ENGINE_DEAD:
        _release(e)
        return
    if notes & E_START and e.state == ENGINE_NEW:
        e.state = ENGINE_HANDSHAKE
        session_want(e)
    if e.state == ENGINE_FREE or e.state == ENGINE_DEAD or e.state == ENGINE_NEW:
        return                # NEW: a fact that was meant for the slot's last tenant
    if notes & E_TERM or notes & E_ASKED and _asked(e, ASKED_CLOSE):
        session_end(e, DOWN_CLOSED, NULL, 0)
        return
    if e.unwatched:
        session_fail_as(e, b"the connection cannot be watched", e.unwatched)
        return
    if notes & E_HUP:
        e.hup = 1
        notes |= E_IN
    if notes & E_START and not _begin(e):
        session_end(e, DOWN_MEMORY, b"out of memory", 0)
        return
    if notes & E_ASKED and _asked(e, ASKED_RESET):
        session_drain(e)
    if notes & E_TIMER and e.port.looped.load():
        notes |= E_IN | E_WAKE
    if notes & E_WAKE and e.media != NULL:
        e.out_blocked = 0
        session_want(e)
    if notes & E_JUDGED:
        _judged(e)
    if notes & (E_IN | E_START) and e.state != ENGINE_DEAD:
        e.pump.read(e)
    if notes & E_WAKE and e.media != NULL:
        messages_take(e)
    if notes & E_TIMER and e.state != ENGINE_DEAD:
        _look_at_clock(e)     # after what was to be heard
    if notes & E_ROOM:
        e.out_blocked = 0
        session_want(e)
    if e.out_blocked or (e.state != ENGINE_HANDSHAKE and e.state != ENGINE_ACTIVE):
        return
    if (notes & (E_OUT | E_ROOM | E_START | E_WAKE) or e.codec.ctl.n or e.codec.owed.n
            or e.wire.n):
        e.pump.write(e)


cdef bint _begin(Engine* e) noexcept nogil:
    """The wire's handshake; a message engine without a stream has none, and some wires are past it
    before the peer's first byte."""
    cdef size_t used = 0
    if e.media != NULL and not e.media.ops.flags & ENGINE_STREAM:
        return session_attach(e)
    if e.codec.ops.start(e.codec, not e.config.connected) != MQ_OK:
        return False
    if e.codec.ops.feed(e.codec, NULL, 0, &used) != MQ_DONE:
        return True
    if not session_attach(e):
        return False
    e.link.traffic.bytes_in.fetch_add(e.input.end - e.input.pos)  # came along with filters' ones
    return True


# -- time ------------------------------------------------------------------------------------------

cdef int64_t _period(Engine* e) noexcept nogil:
    """How often this engine looks at the clock."""
    cdef int64_t period = 1000000000
    if e.state == ENGINE_HANDSHAKE or e.state == ENGINE_NEW:
        if e.config.grace and not e.config.connected:
            return e.config.grace
        if e.config.handshake_timeout and e.config.handshake_timeout < period:
            period = e.config.handshake_timeout
    if e.config.heartbeat and e.config.heartbeat < period:
        period = e.config.heartbeat
    return period if period > 1000000 else 1000000


cdef void _arm_timer(Task* task, IoThread* io) noexcept nogil:
    cdef Engine* e = <Engine*> task.arg
    io_timer(io, now_ns() + e.period.load(), _fire, e, e.tenant.load())


cdef void _fire(void* arg, uint64_t tag, IoThread* io) noexcept nogil:
    """The timer of one tenant of the slot; a later one has its own."""
    cdef Engine* e = <Engine*> arg
    if e.tenant.load() != tag:
        return
    _kick_here(e, E_TIMER)
    if e.tenant.load() == tag:
        io_timer(io, now_ns() + e.period.load(), _fire, e, tag)


cdef void _look_at_clock(Engine* e) noexcept nogil:
    _clock(e)
    if e.state != ENGINE_DEAD:
        e.period.store(_period(e))


cdef void _clock(Engine* e) noexcept nogil:
    cdef int64_t now = now_ns()
    cdef int64_t silent = now - e.heard
    cdef char[160] text
    if e.state == ENGINE_DRAINING:
        if now - e.born >= DRAIN_NS:
            session_end(e, DOWN_RESET, NULL, 0)
    elif e.state == ENGINE_HANDSHAKE:
        if e.config.handshake_timeout and now - e.born >= e.config.handshake_timeout:
            snprintf(text, sizeof(text), b"the handshake was not complete after %.3g s",
                     <double> (now - e.born) / 1e9)
            session_end(e, DOWN_TIMEOUT, text, 0)
        elif e.config.grace and not e.config.connected and now - e.born >= e.config.grace:
            e.config.grace = 0
            if e.codec.ops.start(e.codec, False) == MQ_OK:
                e.word.fetch_or(E_OUT)
    elif e.codec.peer_ttl and silent > <int64_t> e.codec.peer_ttl * 1000000:
        session_end(e, DOWN_TIMEOUT,
                    b"the peer was silent for longer than the time to live it announced", 0)
    elif e.config.heartbeat and e.codec.peer.major >= 3:
        if e.config.heartbeat_timeout and silent >= e.config.heartbeat_timeout + e.config.heartbeat:
            snprintf(text, sizeof(text), b"nothing was heard from the peer for %.3g s",
                     <double> silent / 1e9)
            session_end(e, DOWN_TIMEOUT, text, 0)
        elif silent >= e.config.heartbeat and now - e.pinged >= e.config.heartbeat:
            e.pinged = now
            e.codec.ops.ping(e.codec, <uint32_t> (e.config.heartbeat_ttl // 1000000))


# -- the far side of a pipe, called by the socket --------------------------------------------------

cdef bint _asked(Engine* e, uint32_t what) noexcept nogil:
    """Has the socket asked this of the connection that the slot holds now?"""
    return e.pipe != NULL and e.pipe.asked.load() & what


cdef void _kick(void* far, uint32_t what) noexcept nogil:
    cdef Engine* e = <Engine*> far
    if what & DIRTY_RESET:
        engine_post(e, E_ASKED)
    elif what & DIRTY_IN:
        engine_post(e, E_IN)  # reading is not the caller's work
    if what & DIRTY_OUT:
        engine_kick_out(e)


cdef void _kick_later(void* far, uint32_t what) noexcept nogil:
    engine_post(<Engine*> far, (E_OUT if what & DIRTY_OUT else 0) | (E_IN if what & DIRTY_IN else 0)
                | (E_ASKED if what & DIRTY_RESET else 0))


cdef void _close(void* far) noexcept nogil:
    engine_post(<Engine*> far, E_ASKED)


cdef FarOps FAR
FAR.kick = _kick
FAR.kick_later = _kick_later
FAR.close = _close
