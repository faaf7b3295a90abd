"""The socket of the data plane: see sock.pxd. Order in this file: life, lock, sending, receiving:
what happens with the lock held on the way of a message. Beside it: events.pyx (what others report),
calls.pyx (other calls), pipes.pyx, batching.pyx, and wait.pyx and watch.pyx for waiting."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from mqcore.base.clock cimport now_ns
from mqcore.base.histogram cimport Latencies
from mqcore.base.message cimport MSG_MORE, msg_close, msg_size, vec_fini
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_CLOSED, MQ_DROPPED, MQ_FAILED, MQ_FULL, MQ_INVALID, MQ_OK, MQ_STATE,
    MQ_UNSUPPORTED,
)
from mqcore.base.widen cimport widen
from mqcore.base.slab cimport LAND_FROM
from mqcore.base.ypipe cimport ypipe_flush
from mqcore.link.pipe cimport PIPE_ATTACHED, PIPE_SHUT, Link, link_hold, link_let_go, link_unref
from mqcore.reactor.io_thread cimport IoThread, io_post
from mqcore.reactor.wakeup cimport futex_wait, futex_wake
from mqcore.sock.alarm cimport alarm_ring, alarm_set, alarm_want
from mqcore.sock.batching cimport batch_begin, batch_begins, batch_follows, batch_init, batch_took
from mqcore.sock.events cimport events_init, sock_changed
from mqcore.sock.gil cimport gil_let_go, gil_take_back
from mqcore.sock.notify cimport notify_used
from mqcore.sock.counters cimport show_passed
from mqcore.sock.pipes cimport drain, forget_waiting_of, pump, reap, wait_in_line, waits_of
from mqcore.sock.watch cimport WATCH_LED, watch_beside, watch_close
from mqcore.spi.pattern cimport PAT_EXCHANGE, PAT_SINGLE, PAT_WAITS
from mqcore.spi.pipe cimport (
    DIRTY_EMPTY, DIRTY_HUNG, DIRTY_IN, DIRTY_OUT, DIRTY_RESET, DIRTY_SHUT, DROP_CANCELLED,
    DROP_FULL, EV_DROPPED, FarOps, pipe_ask,
)

cdef enum:
    KICKS = 16
    INLINE_FANOUT = 4         # more engines than this to one send: the I/O thread writes
    SERVE_ROUNDS = 2          # what comes up beside a caller so often is left to an I/O thread
    # after this many messages taken while no thread watches, the I/O thread watches
    UNLED_MAX = 64

cdef struct Kick:
    const FarOps* ops
    void* far
    Link* link                # held across the call if the far side is counted
    Pipe* pipe
    uint32_t what


# -- life ------------------------------------------------------------------------------------------

cdef Sock* sock_new(Plane* plane, const PatternOps* ops, uint32_t number) noexcept nogil:
    cdef Sock* s = <Sock*> calloc(1, sizeof(Sock))
    cdef int i
    if s == NULL:
        return NULL
    s.pattern = <Pattern*> calloc(1, ops.size)
    if s.pattern == NULL:
        free(s)
        return NULL
    events_init(s)
    s.port.landing.least.store(LAND_FROM)
    s.port.number = number
    s.plane = plane
    s.ops = ops
    s.flags = ops.flags
    s.host.pool = plane.pool
    if plane.stepped:
        s.host.virtual = &plane.ios[0].virtual
        s.host.chance = (plane.chance + number) * <uint64_t> 0x9e3779b97f4a7c15 | 1
    s.pattern.ops = ops
    s.pattern.host = &s.host
    s.wake = -1
    if plane.histograms:
        s.port.latencies = <Latencies*> calloc(1, sizeof(Latencies))
        s.host.latencies = s.port.latencies
    batch_init(s)
    s.alarm_task.run = alarm_set
    s.alarm_task.arg = s
    s.serve_task.run = _serve_task
    s.serve_task.arg = s
    for i in range(NOTIFIERS):
        s.notifiers[i].fd = NOTIFIER_FREE
    if plane.histograms and s.port.latencies == NULL or ops.init(s.pattern):
        free(s.port.latencies)
        free(s.pattern)
        free(s)
        return NULL
    s.port.wanted = s.host.wanted
    s.port.pattern = s.pattern
    plane.socks.fetch_add(1)
    return s


cdef void sock_free(Sock* s) noexcept nogil:
    cdef Ended* ended
    watch_close(s)
    s.ops.fini(s.pattern)
    free(s.pattern)
    free(s.port.latencies)
    free(s.room.load())
    vec_fini(&s.waiting)
    while s.ended != NULL:
        ended = s.ended
        s.ended = ended.next
        free(ended)
    s.plane.socks.fetch_sub(1)
    free(s)


# -- the lock --------------------------------------------------------------------------------------

cdef void _lock_slow(Sock* s) noexcept nogil:
    cdef void* gil
    cdef int spin
    for spin in range(50):
        if s.lock.load() == 0 and s.lock.exchange(1) == 0:
            return
    while s.lock.exchange(2):
        # the holder of the lock may wait for the GIL, if the pattern is written in Python
        gil = gil_let_go()
        futex_wait(&s.lock, 2, -1)
        gil_take_back(gil)


cdef inline bint _try_lock(Sock* s) noexcept nogil:
    cdef uint32_t free_ = 0
    return s.lock.compare_exchange_strong(free_, 1)


cdef inline void _lock(Sock* s) noexcept nogil:
    if not _try_lock(s):
        _lock_slow(s)


cdef inline void _unlock(Sock* s) noexcept nogil:
    if s.lock.exchange(0) == 2:
        futex_wake(&s.lock, 1)


cdef void sock_enter(Sock* s) noexcept nogil:
    _lock(s)
    if s.ready.load() != NULL:
        drain(s)


cdef bint sock_try_enter(Sock* s) noexcept nogil:
    if not _try_lock(s):
        return False
    if s.ready.load() != NULL:
        drain(s)
    return True


cdef int _collect(Sock* s, Kick* kicks) noexcept nogil:
    """Under the lock: publish what was written and collect whom to notify. Those that do not fit
    are notified now, by another thread."""
    cdef Pipe* pipe = s.host.dirty
    cdef Pipe* following
    cdef Link* link
    cdef uint32_t what
    cdef int n = 0
    s.host.dirty = NULL
    s.owed = 0
    s.unwritten = 0
    if s.due.load():
        s.due.store(0)
    while pipe != NULL:
        following = pipe.dirty_next
        what = pipe.dirty & (<uint32_t> DIRTY_OUT | DIRTY_IN | DIRTY_RESET | DIRTY_SHUT)
        pipe.dirty &= <uint32_t> DIRTY_HUNG | DIRTY_EMPTY
        if what & DIRTY_OUT and pipe.far_ops.counted:
            show_passed(pipe)
        if what & DIRTY_OUT and not pipe.out.conflate and ypipe_flush(&pipe.out.q):
            what &= ~(<uint32_t> DIRTY_OUT)
        if what and (pipe.state == PIPE_ATTACHED or pipe.state == PIPE_SHUT):
            if what & (DIRTY_RESET | DIRTY_SHUT):
                pipe_ask(pipe, what)
            if n < KICKS:
                link = <Link*> pipe.link
                kicks[n].ops = pipe.far_ops
                kicks[n].far = pipe.far
                kicks[n].what = what
                kicks[n].link = NULL
                if pipe.far_ops.counted:
                    link.refs.fetch_add(1)
                    link_hold(link, pipe)
                    kicks[n].link = link
                    kicks[n].pipe = pipe
                n += 1
            else:
                pipe.far_ops.kick_later(pipe.far, what)
        pipe = following
    return n


cdef void _perform(Sock* s, Kick* kicks, int n) noexcept nogil:
    """Without the lock."""
    cdef int i
    for i in range(n):
        if n > INLINE_FANOUT and not kicks[i].ops.counted:
            kicks[i].ops.kick_later(kicks[i].far, kicks[i].what)
        else:
            kicks[i].ops.kick(kicks[i].far, kicks[i].what)
        if kicks[i].link != NULL:
            link_let_go(kicks[i].link, kicks[i].pipe)
            link_unref(kicks[i].link)


cdef void sock_leave(Sock* s, bint flush) noexcept nogil:
    cdef Kick[KICKS] kicks
    cdef int n = 0
    cdef int rounds = 0
    cdef bint alarm, alarmed
    while True:
        # Draining may have queued messages again. A peer that reported space before that saw an
        # empty line and did not ask to be served: drain once more.
        if s.n_waiting.load() and s.ready.load() != NULL:
            drain(s)
        if s.host.emptied != NULL:
            reap(s)
        if s.host.dirty != NULL and (flush or not s.batching or s.due.load()):
            n = _collect(s, kicks)
        alarm = s.host.alarm != s.alarm and alarm_want(s)
        alarmed = s.alarmed
        s.alarmed = False
        _unlock(s)
        widen()
        if n:
            _perform(s, kicks, n)
            n = 0
        if alarm:
            io_post(s.plane.ios[0], &s.alarm_task)
        if alarmed:
            sock_changed(s)
        # SYNC: seq_cst pair with _serve: it says "service", then tries the lock; we unlock, then
        # look
        if not s.service.load():
            return
        if rounds == SERVE_ROUNDS:
            sock_post_serve(s)
            return
        if not _try_lock(s):
            return
        rounds += 1
        _served(s)


cdef void _served(Sock* s) noexcept nogil:
    """Under the lock: what could not wait."""
    s.service.exchange(0)
    if s.ready.load() != NULL:
        drain(s)
    if s.rung.load():
        alarm_ring(s)


cdef void sock_serve(Sock* s) noexcept nogil:
    """Something must be handled even if the application makes no call. If a thread holds the lock,
    that thread handles it."""
    s.service.exchange(1)
    widen()
    if _try_lock(s):
        _served(s)
        sock_leave(s, False)


cdef void sock_post_serve(Sock* s) noexcept nogil:
    """An I/O thread serves; the task under way holds the socket."""
    if not s.serve_posted.exchange(1):
        s.users.fetch_add(1)
        io_post(s.plane.ios[0], &s.serve_task)


cdef void _serve_task(Task* task, IoThread* io) noexcept nogil:
    cdef Sock* s = <Sock*> task.arg
    s.serve_posted.exchange(0)
    if s.service.load():
        sock_serve(s)
    sock_changed(s)
    s.users.fetch_sub(1)


# -- sending ---------------------------------------------------------------------------------------

cdef inline void _used(Sock* s) noexcept nogil:
    """A call sent or received, which may change what the next one may do (REQ and REP take turns):
    a poller between two polls looks at the socket again."""
    if s.armed.load() & s.rings.load():
        notify_used(s)


cdef int _or_drop_new(Sock* s, int rc, Msg* parts, size_t n) noexcept nogil:
    """on_full="drop_new": a message that no queue has space for is counted and discarded."""
    cdef uint8_t reason = DROP_FULL
    cdef size_t i
    if rc != MQ_FULL:
        s.dropping = False
        return rc
    for i in range(n):
        msg_close(&parts[i])
    s.host.dropped[DROP_FULL] += 1
    if not s.dropping and s.host.watched.load():
        s.dropping = True     # told once; the run ends with the next message that is taken
        s.host.emit(&s.host, EV_DROPPED, NULL, &reason, 1)
    return MQ_DROPPED


cdef int _send(Sock* s, Msg* parts, size_t n) noexcept nogil:
    """Under the lock, with the user's rule for full peers. MQ_OK: taken, or dropped and counted."""
    cdef int rc = _route(s, parts, n)
    if s.on_full == FULL_DROP_NEW:
        rc = _or_drop_new(s, rc, parts, n)
    if rc == MQ_DROPPED:
        rc = MQ_OK
    if rc == MQ_OK:
        s.sent += 1
    return rc


cdef int _route(Sock* s, Msg* parts, size_t n) noexcept nogil:
    """To the pattern, or in line for the first peer."""
    cdef int rc
    if s.closing.load():
        return MQ_CLOSED
    if n > 1 and s.flags & PAT_SINGLE:
        return MQ_INVALID
    if s.n_waiting.load():
        if s.flags & PAT_EXCHANGE:       # a new request replaces one that no peer has taken yet
            if waits_of(s, parts[0].peer):
                if s.strict:
                    return MQ_STATE
                forget_waiting_of(s, parts[0].peer, DROP_CANCELLED)
        else:
            pump(s)
            if s.n_waiting.load():
                return wait_in_line(s, parts, n)
    rc = s.ops.send(s.pattern, parts, n)
    if rc == MQ_AGAIN and s.flags & PAT_WAITS and s.connects.load() and not s.immediate:
        rc = wait_in_line(s, parts, n)
    return rc


cdef int sock_send(Sock* s, Msg* parts, size_t n) noexcept nogil:
    cdef int rc
    cdef int64_t size = 0
    cdef int64_t before
    cdef size_t i
    cdef bint flush = True
    cdef uint32_t burst
    sock_enter(s)
    if s.batching:
        for i in range(n):
            size += <int64_t> msg_size(&parts[i]) + 8
    rc = _send(s, parts, n)
    if s.batching:
        if rc == MQ_OK:
            flush = batch_took(s, size)
        sock_leave(s, flush)
        _used(s)
        return rc
    if s.host.dirty == NULL or not s.watching.load():
        sock_leave(s, True)
        _used(s)
        return rc
    before = now_ns()
    burst = s.burst.load() + 1 if batch_follows(s, before) else 0
    sock_leave(s, True)
    s.last_write.store(now_ns())
    s.burst.store(burst)
    if batch_begins(s, burst):
        batch_begin(s)
    _used(s)
    return rc


cdef int sock_send_many(Sock* s, MsgVec* v, size_t start, size_t* done,
                        size_t* count) noexcept nogil:
    cdef size_t n
    cdef int rc = MQ_OK
    count[0] = 0
    sock_enter(s)
    while start < v.n:
        n = 1
        while v.at[start + n - 1].flags & MSG_MORE:
            n += 1
        rc = _send(s, &v.at[start], n)
        if rc != MQ_OK:
            break
        count[0] += 1
        start += n
    done[0] = start
    sock_leave(s, True)       # one write for all of them
    _used(s)
    return rc


cdef int sock_send_to(Sock* s, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef int rc = MQ_UNSUPPORTED
    sock_enter(s)
    if s.closing.load():
        rc = MQ_CLOSED
    elif n > 1 and s.flags & PAT_SINGLE:
        rc = MQ_INVALID
    elif s.ops.send_to != NULL:
        rc = s.ops.send_to(s.pattern, peer, parts, n)
        if s.on_full == FULL_DROP_NEW:
            rc = _or_drop_new(s, rc, parts, n)
    if rc == MQ_OK or rc == MQ_DROPPED:
        s.sent += 1
        rc = MQ_OK
    sock_leave(s, True)
    _used(s)
    return rc


# -- receiving -------------------------------------------------------------------------------------

cdef int _recv(Sock* s, MsgVec* out) noexcept nogil:
    cdef int rc
    if s.closing.load():
        return MQ_CLOSED
    rc = s.ops.recv(s.pattern, out)
    if rc == MQ_OK:
        s.received += 1
    elif (rc == MQ_STATE and s.n_waiting.load() and s.flags & PAT_EXCHANGE
            and waits_of(s, s.pattern.context)):
        rc = MQ_AGAIN         # the request still waits for its first peer
    return rc


cdef inline bint _unled(Sock* s, size_t taken) noexcept nogil:
    """Under the lock. A thread that works off a backlog does not lead, and peers outside the
    backlog would wait for the tick that notices. True: call watch_beside after releasing the
    lock."""
    cdef uint32_t epoch
    if s.watch_state.load() != WATCH_LED:
        return False
    epoch = s.epoch.load()
    if s.unled_epoch != epoch:
        s.unled_epoch = epoch
        s.unled = 0
    s.unled += <uint32_t> taken
    if s.unled < UNLED_MAX:
        return False
    s.unled = 0
    return True


cdef int sock_recv(Sock* s, MsgVec* out) noexcept nogil:
    cdef bint unled
    cdef int rc
    sock_enter(s)
    rc = _recv(s, out)
    unled = rc == MQ_OK and _unled(s, 1)
    sock_leave(s, rc != MQ_OK)
    if unled:
        watch_beside(s)
    _used(s)
    return rc


cdef int sock_recv_as(Sock* s, uint32_t context, MsgVec* out) noexcept nogil:
    cdef bint unled
    cdef int rc
    sock_enter(s)
    s.pattern.context = context
    rc = _recv(s, out)
    s.pattern.context = 0
    unled = rc == MQ_OK and _unled(s, 1)
    sock_leave(s, rc != MQ_OK)
    if unled:
        watch_beside(s)
    _used(s)
    return rc


cdef int sock_recv_many(Sock* s, MsgVec* out, size_t max, int64_t max_bytes,
                        size_t* count) noexcept nogil:
    cdef int rc = MQ_OK
    cdef int64_t bytes_ = 0
    cdef size_t before
    cdef bint unled
    count[0] = 0
    sock_enter(s)
    while count[0] < max and bytes_ < max_bytes:
        before = out.n
        rc = _recv(s, out)
        if rc != MQ_OK:
            break
        count[0] += 1
        while before < out.n:
            bytes_ += <int64_t> msg_size(&out.at[before])
            before += 1
    unled = _unled(s, count[0])
    sock_leave(s, rc != MQ_OK)
    if unled:
        watch_beside(s)
    _used(s)
    return MQ_OK if count[0] and rc != MQ_FAILED else rc
