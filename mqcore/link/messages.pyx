"""The pump of a message engine: whole messages between its operations and the lanes.

Where the descriptor carries a stream as well, the handshake and the heartbeats go through
stream.pyx on it; its end is not the end of the session before the last message has been taken.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from mqcore.base.histogram cimport stamps_take
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_size, vec_clear, vec_push,
)
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_GONE, MQ_NOMEM, MQ_OK, MQ_PROTOCOL, MQ_UNSUPPORTED,
)
from mqcore.base.clock cimport now_ns
from mqcore.link.engine cimport DOWN_MEMORY, DOWN_PEER, DOWN_PROTOCOL, Engine, PumpOps
from mqcore.link.includes cimport (
    CLOCK_MONOTONIC, TFD_CLOEXEC, TFD_NONBLOCK, itimerspec, timerfd_create, timerfd_settime,
)
from mqcore.link.lease cimport E_OUT, E_WAKE, ENGINE_ACTIVE, ENGINE_READING
from mqcore.link.pipe cimport EVENT_WRITE
from mqcore.link.session cimport (
    session_begun, session_end, session_publish, session_put, session_read_on, session_room,
    session_tally, session_want,
)
from mqcore.link.stream cimport stream_pending, stream_read, stream_write
from mqcore.reactor.includes cimport close
from mqcore.reactor.io_thread cimport io_now
from mqcore.reactor.wakeup cimport eventfd_signal
from mqcore.spi.message_engine cimport ENGINE_SET, ENGINE_STREAM
from mqcore.spi.lane cimport lane_read, lane_show
from mqcore.spi.pipe cimport parts_size

cdef enum:
    TURN = 256 * 1024
    PARTS = 64                # taken at a time

cdef const char* TOO_LARGE = b"a message is larger than max_message_size"
cdef const char* CLOSED = b"the peer closed the connection"


cdef void _watch_out(Engine* e, bint on) noexcept nogil:
    """A datagram socket becomes writable after each datagram that has left: only where there was
    none are they wanted."""
    if e.media_out == <uint32_t> on or e.media.ops.flags & ENGINE_STREAM:
        return
    e.media_out = on
    e.plane.poller.watch_out(e.watch.set, e.fd, e, on)


cdef bint _start(Engine* e) noexcept nogil:
    """Once, when the peer is there."""
    cdef int rc
    if e.media_started:
        return True
    e.media.fd = e.fd
    e.media.pool = e.plane.pool
    e.media.landing = &e.port.landing
    if 0 < e.media.land_from < e.port.landing.least.load():
        e.port.landing.least.store(e.media.land_from)
    e.media.max_message_size = e.config.max_message_size
    e.media.connected = e.config.connected
    rc = e.media.ops.start(e.media)
    if rc == MQ_OK and e.media.wake >= 0 and e.plane.poller.add(
            e.watch.set, e.media.wake, <void*> (<size_t> e | 1)) < 0:
        rc = MQ_NOMEM
    if rc:
        _over(e, rc)
        return False
    e.media_started = 1
    _watch_out(e, False)
    if e.media.ops.peek != NULL and e.media.spin > 0:
        e.port.spin.store(e.media.spin)
        e.port.peeked.store(e)
    return True


cdef bint _timer(Engine* e) noexcept nogil:
    """The descriptor that rings when the engine has asked for it, made when it first asks. False:
    there is none to be had."""
    if e.media_timer >= 0:
        return True
    e.media_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)
    if e.media_timer < 0:
        return False
    if e.plane.poller.add(e.watch.set, e.media_timer, <void*> (<size_t> e | 1)) == 0:
        return True
    close(e.media_timer)
    e.media_timer = -1
    return False


cdef bint _alarm(Engine* e) noexcept nogil:
    """The engine wants to be called again at a time. A timer in the socket's set reaches whichever
    thread watches it; one that rings too early costs a call that finds nothing. False: the session
    has ended."""
    cdef int64_t now = now_ns()
    cdef int64_t due = now + max(e.media.again, 1)
    cdef itimerspec when
    e.media.again = 0
    if now < e.media_due <= due:
        return True
    if not _timer(e):
        session_end(e, DOWN_MEMORY, b"no descriptor is left for a message engine's timer", 0)
        return False
    memset(&when, 0, sizeof(when))
    when.it_value.tv_sec = (due - now) // 1000000000
    when.it_value.tv_nsec = (due - now) % 1000000000
    timerfd_settime(e.media_timer, 0, &when, NULL)
    e.media_due = due
    return True


cdef void _over(Engine* e, int rc) noexcept nogil:
    if rc == MQ_NOMEM:
        session_end(e, DOWN_MEMORY, b"out of memory in a message engine", 0)
    elif rc == MQ_GONE:
        session_end(e, DOWN_PEER, e.media.reason if e.media.reason != NULL else CLOSED, 0)
    else:
        session_end(e, DOWN_PROTOCOL, e.media.reason, 1)


# -- in --------------------------------------------------------------------------------------------

cdef int _put(Engine* e, Msg* parts, size_t n, int64_t* bytes) noexcept nogil:
    """Into the lane. MQ_OK, or the session has ended."""
    cdef int rc
    bytes[0] = parts_size(parts, n)
    e.heard = io_now(e.io)
    e.link.traffic.bytes_in.fetch_add(bytes[0])
    rc = session_put(e, parts, n)
    if rc == MQ_PROTOCOL:
        session_end(e, DOWN_PROTOCOL, TOO_LARGE, 1)
    elif rc:
        session_end(e, DOWN_MEMORY, b"out of memory while reading", 0)
    return rc


cdef void messages_take(Engine* e) noexcept nogil:
    cdef Msg[PARTS] parts
    cdef int64_t budget = TURN
    cdef int64_t bytes
    cdef size_t n, room
    cdef int rc = MQ_OK
    if e.state not in (ENGINE_ACTIVE, ENGINE_READING) or not _start(e):
        return
    e.in_blocked = 0
    while rc == MQ_OK:
        room = session_room(e)
        if room == 0:
            e.in_blocked = 1
            session_publish(e)
            return
        if budget < 0:
            if e.media.wake >= 0 and not e.media.ops.flags & ENGINE_SET:
                eventfd_signal(e.media.wake)
            else:
                e.word.fetch_or(E_WAKE)
            session_publish(e)
            e.in_blocked = 1  # there is more
            return            # others' turn; the edge or the note brings us back
        n = 0
        bytes = 0
        rc = e.media.ops.read(e.media, parts, room if room < PARTS else PARTS, &n)
        session_tally(e)
        if n and _put(e, parts, n, &bytes) or not session_begun(e, e.media.under_way):
            return
        budget -= bytes + 64
    session_publish(e)
    if e.media.again and not _alarm(e):
        return
    if rc != MQ_AGAIN:
        _over(e, rc)
    elif e.ended:
        session_end(e, DOWN_PEER, CLOSED, 0)


cdef void _read(Engine* e) noexcept nogil:
    if e.media.ops.flags & ENGINE_STREAM and not e.ended:
        stream_read(e)
    messages_take(e)


# -- out -------------------------------------------------------------------------------------------

cdef bint _hold(Engine* e) noexcept nogil:
    """The next message of the lane. False: there is none, or no memory for it."""
    cdef Msg m
    cdef bint more = True
    while more and lane_read(e.out, &m):
        more = m.flags & MSG_MORE
        e.out.r_bytes += <int64_t> msg_size(&m)
        if vec_push(&e.held, &m):
            msg_close(&m)
            session_end(e, DOWN_MEMORY, b"out of memory while writing", 0)
            return False
    if e.held.n == 0:
        return False
    e.out.r_msgs += 1
    if e.out.r_stamps != NULL:
        stamps_take(e.out.r_stamps, e.out.r_msgs)
    return True


cdef int _give(Engine* e, int64_t* size) noexcept nogil:
    """Pass the pending message to the engine. MQ_OK: the engine owns it."""
    cdef bint control = e.held.at[0].flags & MSG_CONTROL
    cdef int rc
    size[0] = parts_size(e.held.at, e.held.n)
    rc = e.media.ops.write(e.media, e.held.at, e.held.n)
    if rc == MQ_OK:
        e.held.n = 0
        e.link.traffic.bytes_out.fetch_add(size[0])
        if not control:
            e.link.traffic.written.fetch_add(1)
    elif rc == MQ_UNSUPPORTED:
        vec_clear(&e.held)
        if not control:
            e.link.traffic.unsendable.fetch_add(1)
        rc = MQ_OK
    return rc


cdef int _give_all(Engine* e) noexcept nogil:
    """Messages until there is none, or no space, or the turn is over. Ended: MQ_GONE or worse."""
    cdef int64_t budget = TURN
    cdef int64_t size = 0
    cdef int rc = MQ_OK
    while rc == MQ_OK and (e.held.n or _hold(e)):
        if budget < 0:
            e.word.fetch_or(E_OUT)
            break
        rc = _give(e, &size)
        budget -= size + 64
    return rc


cdef void _write(Engine* e) noexcept nogil:
    cdef int rc
    cdef int flushed = MQ_OK
    if e.media.ops.flags & ENGINE_STREAM:
        stream_write(e)       # the handshake, later heartbeats
    if e.state != ENGINE_ACTIVE or not e.media_started or e.ended:
        return
    rc = _give_all(e)
    if e.state != ENGINE_ACTIVE:
        return
    if e.media.ops.flush != NULL:
        flushed = e.media.ops.flush(e.media)
    session_tally(e)
    if lane_show(e.out):
        e.port.ops.event(e.pipe, EVENT_WRITE)
    if rc == MQ_AGAIN or flushed == MQ_AGAIN:
        e.out_blocked = 1
        session_want(e)
        if e.media.again:
            _alarm(e)         # it is not the descriptor that has no space
        else:
            _watch_out(e, True)
    elif rc == MQ_GONE or flushed == MQ_GONE:
        e.ended = 1           # what it wrote before is still to be read
        session_read_on(e, -1, NULL)
        e.word.fetch_or(E_WAKE)
    elif rc:
        _over(e, rc)
    else:
        if e.media.again:
            _alarm(e)
        _watch_out(e, False)


# -- the end ---------------------------------------------------------------------------------------

cdef int64_t _pending(Engine* e) noexcept nogil:
    cdef int64_t bytes
    if e.media.ops.pending != NULL:
        bytes = e.media.ops.pending(e.media) if e.media_started else 0
        if e.media.again:
            _alarm(e)
        return bytes
    return 0 if e.media.ops.flags & ENGINE_STREAM else stream_pending(e)


cdef void _finish(Engine* e) noexcept nogil:
    if e.media_started and e.media.ops.finish != NULL:
        e.media.ops.finish(e.media)


cdef PumpOps PUMP
PUMP.read = _read
PUMP.write = _write
PUMP.pending = _pending
PUMP.finish = _finish


cdef const PumpOps* messages_pump() noexcept nogil:
    return &PUMP
