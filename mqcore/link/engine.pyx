"""The engine: see engine.pxd for the lease; this file runs it.

Reading: decode what is held, then read, until the kernel has no more, the pipe is at its mark, or
the turn is over (256 KiB). Writing: control bytes, then batches of what waits in the pipe, until
the kernel takes no more. All of it under the lease, on whatever thread holds it.
"""

from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport strlen

from mqcore.base.bytes cimport bytes_fini
from mqcore.base.clock cimport now_ns
from mqcore.base.includes cimport iovec, readv, writev
from mqcore.base.message cimport MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_size
from mqcore.base.slab cimport LAND_FROM, owner_data, owner_release, slab_new
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.base.widen cimport widen
from mqcore.base.ypipe cimport ypipe_flush, ypipe_unwrite, ypipe_write
from mqcore.link.includes cimport SHUT_WR, SIOCOUTQ, ioctl, shutdown, strerror
from mqcore.link.pipe cimport (
    EVENT_ATTACH, EVENT_READ, EVENT_TERM, EVENT_WRITE, link_name, link_new, link_unref,
)
from mqcore.link.plane cimport NOTE_DOWN, NOTE_UP, plane_note
from mqcore.link.slots cimport slot_give, slot_take
from mqcore.reactor.includes cimport EAGAIN, EINTR, close, errno, sched_yield
from mqcore.reactor.io_thread cimport io_post, io_timer
from mqcore.reactor.poller cimport READY_IN, READY_OUT
from mqcore.spi.pipe cimport (
    DIRTY_IN, DIRTY_OUT, DIRTY_RESET, FarOps, lane_read, lane_room, lane_show, lane_write_latest,
)
from mqcore.wire.batch cimport (
    batch_advance, batch_cut, batch_gather, batch_half_sent, batch_msgs_done, batch_unsent,
)
from mqcore.wire.codec cimport BATCH_IOV, CodecOps, batch_fini, batch_reset
from mqcore.wire.zmtp cimport zmtp_ops

cdef enum:
    TURN = 256 * 1024
    PARTS = 64                # decoded at a time
    SLICE_FROM = 8 * 1024     # fewer bytes than this in a slab: bodies are copied out of it
    FREE_PARTS = 1 << 20      # bytes of handles that a message may have beyond max_message_size
    DRAIN_NS = 1000000000     # how long a reset link waits for the peer's FIN


# -- life ------------------------------------------------------------------------------------------

cdef Codec* _codec_new(Plane* plane, Port* port, const EngineConfig* config) noexcept nogil:
    cdef const CodecOps* ops = zmtp_ops()
    cdef Codec* codec = <Codec*> calloc(1, ops.size)
    if codec == NULL:
        return NULL
    codec.ops = ops
    codec.pool = plane.pool
    codec.landing = &port.landing
    codec.config = &port.shake
    codec.max_message_size = config.max_message_size
    if ops.init(codec):
        free(codec)
        return NULL
    return codec


cdef Engine* engine_new(Plane* plane, IoThread* io, Watch* watch, Port* port, int fd,
                        const EngineConfig* config) noexcept nogil:
    cdef Codec* codec = _codec_new(plane, port, config)
    cdef Engine* e
    if codec == NULL:
        return NULL
    e = slot_take(plane)
    if e == NULL:
        codec.ops.fini(codec)
        free(codec)
        return NULL
    e.plane = plane
    e.io = io
    e.watch = watch
    e.port = port
    e.codec = codec
    e.config = config[0]
    e.fd = fd
    e.hup = 0
    e.link = NULL
    e.pipe = NULL
    e.in_blocked = 0
    e.out_blocked = 0
    e.wants = 0
    e.input.slab = NULL       # the slot's last engine may have died in the middle of its input
    e.input.pos = NULL
    e.input.end = NULL
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
    e.task.run = _run_task
    e.arm.run = _arm_timer
    e.arm.arg = e
    e.tenant.fetch_add(1)
    e.state = ENGINE_NEW
    e.period.store(_period(e))
    plane.engines.fetch_add(1)
    watch.load.fetch_add(1)
    return e


cdef void engine_start(Engine* e) noexcept nogil:
    e.word.fetch_or(E_START)
    if e.plane.poller.add(e.watch.set, e.fd, e) < 0:
        e.word.fetch_or(E_TERM)
    io_post(e.io, &e.arm)
    io_post(e.io, &e.task)


cdef void engine_release(Engine* e) noexcept nogil:
    # not beside the thread that wrote the DOWN note and is still inside
    engine_kick(e, E_RELEASE)


cdef void _release(Engine* e) noexcept nogil:
    cdef Plane* plane = e.plane
    e.codec.ops.fini(e.codec)
    bytes_fini(&e.codec.ctl)
    free(e.codec)
    e.codec = NULL
    batch_fini(&e.batch)
    e.tenant.fetch_add(1)     # its timer is nobody's
    e.state = ENGINE_FREE
    plane.engines.fetch_sub(1)
    slot_give(plane, e)


cdef int64_t engine_pending(Engine* e) noexcept nogil:
    cdef int pending = 0
    cdef int tries
    for tries in range(100):
        if not e.word.fetch_or(E_HELD) & E_HELD:
            if e.fd >= 0 and ioctl(e.fd, SIOCOUTQ, &pending) < 0:
                pending = 0
            _run(e, 0xffffffff)  # lets go, and does what was noted meanwhile
            return pending
        sched_yield()
    return 1                  # its holder is busy: ask again


# -- the lease -------------------------------------------------------------------------------------

cdef void _run(Engine* e, uint32_t allowed) noexcept nogil:
    """Holds the lease on entry, not on return. Two rounds at most, then the I/O thread goes on."""
    cdef uint32_t notes, left, held
    cdef int rounds = 0
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
        if left or rounds >= 2:
            e.word.fetch_and(~(<uint32_t> E_HELD))  # first let go with the notes left, then post
            widen()
            io_post(e.io, &e.task)
            return


cdef void engine_kick(Engine* e, uint32_t facts) noexcept nogil:
    if not e.word.fetch_or(facts | E_HELD) & E_HELD:
        _run(e, 0xffffffff)


cdef void engine_kick_out(Engine* e) noexcept nogil:
    if not e.word.fetch_or(E_OUT | E_HELD) & E_HELD:
        _run(e, E_OUT)


cdef void engine_post(Engine* e, uint32_t facts) noexcept nogil:
    if not e.word.fetch_or(facts) & E_HELD:
        widen()
        io_post(e.io, &e.task)


cdef void _run_task(Task* task, IoThread* io) noexcept nogil:
    engine_kick(<Engine*> task, 0)


cdef inline void _rearm(Engine* e, uint32_t what) noexcept nogil:
    """The kernel has no more (READY_IN) or takes no more (READY_OUT): the next time is an edge."""
    if e.plane.poller.rearm != NULL:
        e.plane.poller.rearm(e.watch.set, e.fd, what)


cdef void _want(Engine* e) noexcept nogil:
    """Tell the socket whether our next edge can wait until a caller comes."""
    cdef bint wants = e.out_blocked or (e.state != ENGINE_ACTIVE and e.state != ENGINE_DEAD)
    if wants != e.wants:
        e.wants = wants
        e.port.ops.wants(e.port, 1 if wants else -1)


cdef void _step(Engine* e, uint32_t notes) noexcept nogil:
    if notes & E_RELEASE and e.state == ENGINE_DEAD:
        _release(e)
        return
    if notes & E_START and e.state == ENGINE_NEW:
        e.state = ENGINE_HANDSHAKE
        _want(e)
    if e.state == ENGINE_FREE or e.state == ENGINE_DEAD or e.state == ENGINE_NEW:
        return                # NEW: a fact that was meant for the slot's last tenant
    if notes & E_TERM:
        _die(e, DOWN_CLOSED, NULL, 0)
        return
    if notes & E_HUP:
        e.hup = 1
        notes |= E_IN
    if notes & E_START and e.codec.ops.start(e.codec, not e.config.connected):
        _die(e, DOWN_MEMORY, b"out of memory", 0)
        return
    if notes & E_RESET and e.state == ENGINE_ACTIVE:
        _drain(e)
    if notes & E_TIMER and e.port.looped.load():
        notes |= E_IN
    if notes & (E_IN | E_START):
        _read(e)
    if notes & E_TIMER and e.state != ENGINE_DEAD:
        _look_at_clock(e)     # after what was to be heard
    if notes & E_ROOM:
        e.out_blocked = 0
        _want(e)
    if e.out_blocked or (e.state != ENGINE_HANDSHAKE and e.state != ENGINE_ACTIVE):
        return
    if notes & (E_OUT | E_ROOM | E_START) or e.codec.ctl.n:
        _write(e)


# -- the end ---------------------------------------------------------------------------------------

cdef void _let_go_of_pipe(Engine* e) noexcept nogil:
    """Give the pipe back to the socket with all that was not sent, in order."""
    cdef Msg m
    cdef bint more
    cdef Pipe* pipe = e.pipe
    if pipe == NULL:
        return
    while e.in_more and ypipe_unwrite(&e.inn.q, &m):   # half a message came: as if it never had
        msg_close(&m)
    _publish(e)
    if batch_half_sent(&e.batch, e.codec):
        e.link.traffic.half_out.fetch_add(1)
    batch_unsent(&e.batch, e.codec, &e.link.returned)
    if batch_cut(&e.batch, e.codec):         # the rest of a message whose head is on the wire
        while lane_read(e.out, &m):
            more = m.flags & MSG_MORE
            msg_close(&m)
            if not more:
                break
    e.pipe = NULL
    e.port.ops.event(pipe, EVENT_TERM)
    link_unref(e.link)
    e.link = NULL


cdef void _drain(Engine* e) noexcept nogil:
    """The pattern wants a new link. Ours ends only when the peer has seen our FIN and sent its own:
    a ROUTER without handover would leave a second link with the same routing id deaf for ever."""
    _let_go_of_pipe(e)
    shutdown(e.fd, SHUT_WR)
    e.state = ENGINE_DRAINING
    _want(e)
    e.born = now_ns()
    e.word.fetch_or(E_IN)


cdef void _die(Engine* e, int code, const char* text, uint32_t fatal) noexcept nogil:
    cdef int fd = e.fd
    cdef Port* port = e.port
    cdef Plane* plane = e.plane
    cdef uint32_t number = port.number
    if e.state == ENGINE_DRAINING:
        code = DOWN_RESET
    _let_go_of_pipe(e)
    e.state = ENGINE_DEAD
    e.out_blocked = 0
    _want(e)
    plane.poller.remove(e.watch.set, fd)
    e.watch.load.fetch_sub(1)
    e.fd = -1
    close(fd)
    if e.slab != NULL:
        owner_release(e.slab)
        e.slab = NULL
    batch_reset(&e.batch)
    # after this note the control thread may release the slot; after `ended` the socket may go
    port.ops.ended(port)
    plane_note(plane, NOTE_DOWN, number, e.slot, 0, code, fatal, text,
               strlen(text) if text != NULL else 0)


cdef void _die_errno(Engine* e, const char* doing) noexcept nogil:
    cdef char[160] text
    cdef int number = errno
    snprintf(text, sizeof(text), b"%s: %s", doing, strerror(number))
    _die(e, DOWN_PEER, text, 0)


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
    engine_kick(e, E_TIMER)
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
            _die(e, DOWN_RESET, NULL, 0)
    elif e.state == ENGINE_HANDSHAKE:
        if e.config.handshake_timeout and now - e.born >= e.config.handshake_timeout:
            snprintf(text, sizeof(text), b"the handshake was not complete after %.3g s",
                     <double> (now - e.born) / 1e9)
            _die(e, DOWN_TIMEOUT, text, 0)
        elif e.config.grace and not e.config.connected and now - e.born >= e.config.grace:
            e.config.grace = 0
            if e.codec.ops.start(e.codec, False) == MQ_OK:
                e.word.fetch_or(E_OUT)
    elif e.codec.peer_ttl and silent > <int64_t> e.codec.peer_ttl * 1000000:
        _die(e, DOWN_TIMEOUT, b"the peer was silent for longer than the time to live it announced",
             0)
    elif e.config.heartbeat and e.codec.peer.major >= 3:
        if e.config.heartbeat_timeout and silent >= e.config.heartbeat_timeout + e.config.heartbeat:
            snprintf(text, sizeof(text), b"nothing was heard from the peer for %.3g s",
                     <double> silent / 1e9)
            _die(e, DOWN_TIMEOUT, text, 0)
        elif silent >= e.config.heartbeat and now - e.pinged >= e.config.heartbeat:
            e.pinged = now
            e.codec.ops.ping(e.codec, <uint32_t> (e.config.heartbeat_ttl // 1000000))


# -- in --------------------------------------------------------------------------------------------

cdef void _publish(Engine* e) noexcept nogil:
    if not e.inn.conflate and not ypipe_flush(&e.inn.q):
        e.port.ops.event(e.pipe, EVENT_READ)


cdef void _put_latest(Engine* e, Msg* m) noexcept nogil:
    """A conflating lane: the newest single-part message; multipart cannot be conflated."""
    cdef bint replaced = False
    if m.flags & MSG_MORE or e.in_skip:
        if not e.in_skip:
            e.link.traffic.read.fetch_add(1)
            e.link.traffic.malformed_in.fetch_add(1)
        e.in_skip = m.flags & MSG_MORE
        msg_close(m)
        return
    e.link.traffic.read.fetch_add(1)
    if lane_write_latest(e.inn, m, &replaced):
        msg_close(m)
        e.link.traffic.malformed_in.fetch_add(1)
        return
    if replaced:
        e.link.traffic.conflated_in.fetch_add(1)
    else:
        e.port.ops.event(e.pipe, EVENT_READ)


cdef inline bint _too_large(Engine* e) noexcept nogil:
    """The codec bounds each part, this the whole message: nothing else would, as the marks count
    complete ones. Parts cost a handle each even if they are empty; a few are free."""
    cdef int64_t limit = e.config.max_message_size
    if limit < 0:
        return False
    return e.in_size > limit or e.in_parts * <int64_t> sizeof(Msg) - FREE_PARTS > limit


cdef int _put(Engine* e, Msg* parts, size_t n) noexcept nogil:
    """Moves decoded parts into the lane; published by _publish."""
    cdef size_t i
    cdef int64_t messages = 0
    cdef bint more
    for i in range(n):
        if e.inn.conflate and not parts[i].flags & MSG_CONTROL:
            _put_latest(e, &parts[i])
            continue
        more = parts[i].flags & MSG_MORE
        e.in_size += <int64_t> msg_size(&parts[i])
        e.in_parts += 1
        if _too_large(e):
            while i < n:
                msg_close(&parts[i])
                i += 1
            return MQ_PROTOCOL
        if not more and not parts[i].flags & MSG_CONTROL:
            messages += 1
        if ypipe_write(&e.inn.q, &parts[i], not more):
            while i < n:
                msg_close(&parts[i])
                i += 1
            return MQ_NOMEM
        e.in_more = more
        if not more:
            e.inn.w_msgs += 1
            e.inn.w_bytes += e.in_size
            e.in_size = 0
            e.in_parts = 0
    if messages:
        e.link.traffic.read.fetch_add(messages)
    return MQ_OK


cdef size_t _room(Engine* e) noexcept nogil:
    """How many parts may be decoded now; 0: at a mark, the socket will kick us."""
    cdef int64_t room
    if e.inn.conflate:
        return PARTS
    if not lane_room(e.inn, 1):
        return 0
    room = e.inn.hwm_msgs - (e.inn.w_msgs - e.inn.seen_msgs)
    if room < 1:
        room = 1
    return <size_t> room if room < PARTS else PARTS


cdef const char* TOO_LARGE = b"a message in parts is larger than max_message_size"


cdef int _decode(Engine* e) noexcept nogil:
    """Everything held -> messages. MQ_NEED_DATA: all used. MQ_OK: stopped at a mark. Else dead."""
    cdef Msg[PARTS] parts
    cdef size_t n, room
    cdef int rc = MQ_OK
    cdef int put = MQ_OK
    while rc == MQ_OK:
        room = _room(e)
        if room == 0:
            e.in_blocked = 1
            break
        n = 0
        rc = e.codec.ops.decode(e.codec, &e.input, parts, room, &n)
        put = _put(e, parts, n)
        if put:
            rc = put
    _publish(e)
    if rc == MQ_OK or rc == MQ_NEED_DATA:
        if e.codec.pongs != e.pongs_seen:
            e.pongs_seen = e.codec.pongs
            e.link.traffic.rtt.store(now_ns() - e.pinged)
        return rc
    if rc == MQ_PROTOCOL:
        _die(e, DOWN_PROTOCOL, TOO_LARGE if put == MQ_PROTOCOL else e.codec.reason, 1)
    else:
        _die(e, DOWN_MEMORY, b"out of memory while reading", 0)
    return rc


cdef int _shake(Engine* e) noexcept nogil:
    """Handshake input. MQ_NEED_DATA, MQ_OK (done, the rest is traffic), or dead."""
    cdef size_t used = 0
    cdef int rc = e.codec.ops.feed(e.codec, e.input.pos, e.input.end - e.input.pos, &used)
    e.input.pos += used
    if rc == MQ_NEED_DATA:
        return rc
    if rc != MQ_DONE:
        # let the peer have our last words (an ERROR command, say), as far as the kernel takes them
        _write(e)
        if e.state != ENGINE_DEAD:
            _die(e, DOWN_HANDSHAKE, e.codec.reason, 1)
        return MQ_PROTOCOL
    if not _attach(e):
        _die(e, DOWN_MEMORY, b"out of memory", 0)
        return MQ_NOMEM
    e.link.traffic.bytes_in.fetch_add(e.input.end - e.input.pos)  # came along with the handshake
    return MQ_OK


cdef bint _attach(Engine* e) noexcept nogil:
    """A peer is there: make its pipe and show it to the socket."""
    cdef Pipe* pipe
    cdef Codec* codec = e.codec
    e.link = link_new(e.plane.pool, &e.plane.links, &e.port.send, &e.port.recv)
    if e.link == NULL:
        return False
    if link_name(e.link, 0, codec.peer.routing_id.at, <uint32_t> codec.peer.routing_id.n):
        link_unref(e.link)
        link_unref(e.link)
        e.link = NULL
        return False
    e.link.since = now_ns()
    e.link.engine = e.slot
    pipe = &e.link.ends[0]
    pipe.id = e.port.next_peer.fetch_add(1) + 1
    pipe.prio = e.config.prio
    pipe.connected = e.config.connected
    pipe.unversioned = codec.peer.major == 1
    pipe.far_ops = &FAR
    pipe.far = e
    pipe.sock = e.port
    e.pipe = pipe
    e.inn = pipe.inn
    e.out = pipe.out
    e.state = ENGINE_ACTIVE
    _want(e)
    plane_note(e.plane, NOTE_UP, e.port.number, e.slot, pipe.id, 0, 0, NULL, 0)
    e.port.ops.event(pipe, EVENT_ATTACH)
    e.word.fetch_or(E_OUT)
    return True


cdef bint _want_slab(Engine* e, uint32_t klass) noexcept nogil:
    """A slab to read into: the one at hand if nobody else holds a slice of it."""
    if e.slab != NULL and (e.slab.refs.load() != 1 or e.slab.klass != klass):
        owner_release(e.slab)
        e.slab = NULL
    if e.slab == NULL:
        e.slab = slab_new(e.plane.pool, klass)
        if e.slab == NULL:
            _die(e, DOWN_MEMORY, b"out of memory", 0)
            return False
    return True


cdef void _spare_slab(Engine* e) noexcept nogil:
    """Nothing is held: an idle connection keeps no slab."""
    if e.slab != NULL and e.input.pos == e.input.end:
        owner_release(e.slab)
        e.slab = NULL
        e.input.pos = NULL
        e.input.end = NULL


cdef int _use(Engine* e) noexcept nogil:
    """Act on the bytes held. True: go on reading."""
    cdef int rc
    if e.state == ENGINE_HANDSHAKE:
        rc = _shake(e)
        if rc != MQ_OK:
            return rc == MQ_NEED_DATA
    if e.state == ENGINE_DRAINING:
        e.input.pos = e.input.end
        return True
    return e.state == ENGINE_ACTIVE and _decode(e) == MQ_NEED_DATA


cdef void _fill(Engine* e, size_t n) noexcept nogil:
    """n bytes were read into the slab."""
    e.input.slab = e.slab
    e.input.pos = owner_data(e.slab)
    e.input.end = e.input.pos + n
    e.input.copy = n < SLICE_FROM


cdef void _adapt(Engine* e, size_t n) noexcept nogil:
    """The next slab's class, after a read of n bytes into this one."""
    if n == e.slab.capacity and e.klass < 2:
        e.klass += 1          # reads fill it
    elif n < e.slab.capacity // 16 and e.klass > 0:
        e.klass -= 1


cdef bint _target(Engine* e, iovec* iov) noexcept nogil:
    """Where the next bytes go: iov[0] the rest of a body under way, iov[1] a slab. Only a large
    body is read together with what follows, and that is little, since the next one is cut off too
    and copied out of the slab. False: the engine died."""
    cdef uint8_t* at = NULL
    cdef size_t room = 0
    cdef uint64_t size = 0
    if e.state == ENGINE_ACTIVE and e.codec.ops.direct(e.codec, &at, &room, &size):
        _die(e, DOWN_MEMORY, b"out of memory", 0)
        return False
    iov[0].iov_base = at
    iov[0].iov_len = room
    iov[1].iov_base = NULL    # the kernel looks at it even where the length is 0
    iov[1].iov_len = 0
    if room and size < LAND_FROM:
        return True
    if not _want_slab(e, 0 if room else e.klass):
        return False
    iov[1].iov_base = owner_data(e.slab)
    iov[1].iov_len = e.slab.capacity
    return True


cdef void _read(Engine* e) noexcept nogil:
    cdef iovec[2] iov
    cdef size_t budget = TURN
    cdef size_t room
    cdef ssize_t n
    if e.input.pos != e.input.end or e.in_blocked:
        e.in_blocked = 0
        if not _use(e):       # what is held comes first: no poller announces it
            return
    while True:
        if not _target(e, iov):
            return
        room = iov[0].iov_len
        n = readv(e.fd, &iov[0 if room else 1], 2 if room else 1)
        if n <= 0:
            if n < 0 and errno == EINTR:
                continue
            if n < 0 and errno == EAGAIN:
                _spare_slab(e)
                _rearm(e, READY_IN)
            elif n == 0:
                _die(e, DOWN_PEER, b"the peer closed the connection", 0)
            else:
                _die_errno(e, b"the connection broke")
            return
        e.heard = now_ns()
        if e.link != NULL:
            e.link.traffic.reads.fetch_add(1)
            e.link.traffic.bytes_in.fetch_add(n)
        if room:
            e.codec.ops.filled(e.codec, min(room, <size_t> n))
        else:
            _adapt(e, n)
        if <size_t> n > room:
            _fill(e, n - room)
        if not _use(e):
            return
        if <size_t> n < room + iov[1].iov_len and not e.hup:
            _spare_slab(e)
            _rearm(e, READY_IN)
            return            # short read: the kernel has no more, the next byte gives an edge
        if budget < <size_t> n:
            e.word.fetch_or(E_IN)
            return            # others' turn; the note brings us back
        budget -= n


# -- out -------------------------------------------------------------------------------------------

cdef bint _encode(Engine* e) noexcept nogil:
    """Fill an empty batch from the pipe. False: nothing there."""
    cdef int64_t msgs = 0, body = 0
    cdef Msg m
    cdef bint done = False
    if e.state != ENGINE_ACTIVE:
        return False
    if e.out.conflate:
        if not lane_read(e.out, &m):
            return False
        e.codec.ops.encode_one(e.codec, &e.batch, &m, &done)
        if not done:
            msg_close(&m)
        return done
    if e.codec.ops.encode(e.codec, &e.batch, &e.out.q, &msgs, &body):
        _die(e, DOWN_MEMORY, b"out of memory while writing", 0)
        return False
    e.out.r_msgs += msgs
    e.out.r_bytes += body
    if lane_show(e.out):
        e.port.ops.event(e.pipe, EVENT_WRITE)
    return e.batch.total > 0


cdef int _gather(Engine* e, iovec* iov) noexcept nogil:
    """Control bytes first, but never in the middle of a batch."""
    cdef int n = 0
    cdef size_t ctl = e.codec.ctl.n - e.ctl_sent
    if ctl and e.batch.sent == 0:
        iov[0].iov_base = e.codec.ctl.at + e.ctl_sent
        iov[0].iov_len = ctl
        n = 1
    return n + batch_gather(&e.batch, iov + n, BATCH_IOV)


cdef void _advance(Engine* e, size_t n) noexcept nogil:
    """The kernel took n bytes of what _gather offered."""
    cdef size_t ctl = e.codec.ctl.n - e.ctl_sent
    cdef int64_t written
    if ctl and e.batch.sent == 0:
        if n < ctl:
            e.ctl_sent += n
            return
        n -= ctl
        e.codec.ctl.n = 0
        e.ctl_sent = 0
    written = -batch_msgs_done(&e.batch)
    batch_advance(&e.batch, n)
    written += batch_msgs_done(&e.batch)
    if written:
        e.link.traffic.written.fetch_add(written)
    if e.batch.sent == e.batch.total:
        batch_reset(&e.batch)


cdef void _write(Engine* e) noexcept nogil:
    cdef iovec[BATCH_IOV + 1] iov
    cdef size_t budget = TURN
    cdef ssize_t n
    cdef int parts
    while True:
        if e.batch.total == 0:
            _encode(e)
            if e.state == ENGINE_DEAD:
                return
        parts = _gather(e, iov)
        if parts == 0:
            return
        n = writev(e.fd, iov, parts)
        if n < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN:
                e.out_blocked = 1
                _want(e)
                _rearm(e, READY_OUT)
            else:
                _die_errno(e, b"the connection broke")
            return
        if e.link != NULL:
            e.link.traffic.writes.fetch_add(1)
            e.link.traffic.bytes_out.fetch_add(n)
        e.said = now_ns()
        _advance(e, n)
        if budget < <size_t> n:
            e.word.fetch_or(E_OUT)
            return
        budget -= n


# -- the far side of a pipe, called by the socket --------------------------------------------------

cdef void _kick(void* far, uint32_t what) noexcept nogil:
    cdef Engine* e = <Engine*> far
    if what & DIRTY_RESET:
        engine_post(e, E_RESET)
    elif what & DIRTY_IN:
        engine_post(e, E_IN)  # reading is not the caller's work
    if what & DIRTY_OUT:
        engine_kick_out(e)


cdef void _kick_later(void* far, uint32_t what) noexcept nogil:
    engine_post(<Engine*> far, (E_OUT if what & DIRTY_OUT else 0) | (E_IN if what & DIRTY_IN else 0)
                | (E_RESET if what & DIRTY_RESET else 0))


cdef void _close(void* far) noexcept nogil:
    engine_post(<Engine*> far, E_TERM)


cdef FarOps FAR
FAR.kick = _kick
FAR.kick_later = _kick_later
FAR.close = _close
