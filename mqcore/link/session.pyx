"""The session: one peer from the moment it is there until its link has ended. See session.pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, strlen

from mqcore.base.histogram cimport stamps_put
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_size, vec_clear, vec_grow, vec_push,
)
from mqcore.base.slab cimport owner_release
from mqcore.base.status cimport MQ_NOMEM, MQ_OK, MQ_PROTOCOL
from mqcore.base.ypipe cimport ypipe_flush, ypipe_unwrite, ypipe_write
from mqcore.link.engine cimport DOWN_PEER, DOWN_PROTOCOL, DOWN_RESET, Port, port_next_peer
from mqcore.link.lease cimport (
    E_IN, E_OUT, ENGINE_ACTIVE, ENGINE_DEAD, ENGINE_DRAINING, ENGINE_READING,
)
from mqcore.link.includes cimport FIONREAD, SHUT_WR, ioctl, shutdown, strerror, strnlen
from mqcore.link.pipe cimport (
    EVENT_ATTACH, EVENT_READ, EVENT_SHUT, EVENT_TERM, Traffic, link_measure, link_name, link_new,
    link_unref,
)
from mqcore.link.plane cimport NOTE_DOWN, NOTE_PATTERN, NOTE_UP, Plane, plane_note, plane_tell
from mqcore.link.stream cimport stream_count_lost
from mqcore.reactor.includes cimport close, errno
from mqcore.reactor.io_thread cimport io_now
from mqcore.spi.message_engine cimport ENGINE_STREAM, MORE_FDS, MessageEngine
from mqcore.spi.lane cimport lane_read, lane_room, lane_write_latest
from mqcore.spi.pattern cimport EV_LOST
from mqcore.spi.pipe cimport Pipe
from mqcore.wire.batch cimport (
    batch_advance, batch_cut, batch_half_sent, batch_msgs_done, batch_unsent,
)
from mqcore.wire.codec cimport Codec, batch_reset

cdef enum:
    PARTS = 64                # decoded at a time
    LOST_MOST = 1 << 12       # reports of losses on their way to the control thread
    LOST_TEXT = 2 * 8 + 96    # two counts and MessageEngine.lost_from
    IN_KERNEL = 1 << 26       # bytes that the peer's kernel may still hold when we say that we end
    FREE_PARTS = 1 << 20      # bytes of handles that a message may have beyond max_message_size

cdef enum:                    # Engine.in_skip
    SKIP_MANY = 1             # several parts, for a lane that conflates
    SKIP_UNWANTED = 2


cdef const char* TOO_MUCH = b"the messages that peers have begun to send exceed max_unfinished"


cdef void session_want(Engine* e) noexcept nogil:
    """Tell the socket whether our next edge can wait until a caller comes."""
    cdef bint wants = e.out_blocked or (e.state != ENGINE_ACTIVE and e.state != ENGINE_DEAD)
    if wants != e.wants:
        e.wants = wants
        e.port.ops.wants(e.port, 1 if wants else -1)


cdef void _lose_chunk(Engine* e) noexcept nogil:
    """A chunk that a filter has changed is on its way: who knows which of its messages arrived."""
    cdef int64_t whole
    if e.wire_plain and e.wire_sent > e.wire_from:
        whole = -batch_msgs_done(&e.batch)
        batch_advance(&e.batch, e.wire_plain)
        whole += batch_msgs_done(&e.batch)
        e.link.traffic.half_out.fetch_add(whole)
    e.wire_plain = 0


cdef void _return_held(Engine* e) noexcept nogil:
    """The message that a message engine had no space for."""
    cdef size_t i
    if e.held.n and e.held.at[0].flags & MSG_CONTROL:
        vec_clear(&e.held)
    if e.held.n and vec_grow(&e.link.returned, e.link.returned.n + e.held.n):
        e.link.traffic.abandoned.fetch_add(1)    # no memory: it is lost
        vec_clear(&e.held)
    for i in range(e.held.n):
        vec_push(&e.link.returned, &e.held.at[i])
    e.held.n = 0


cdef void _let_go_of_parts(Engine* e) noexcept nogil:
    """Filters and message engine end before the descriptor is closed."""
    cdef Engine* me = e
    cdef int i
    if e.media != NULL:
        e.port.peeked.compare_exchange_strong(me, NULL)
        for i in range(MORE_FDS + 2):
            e.media_fds[i] = -1
        if e.media_timer >= 0:
            e.plane.poller.remove(e.watch.set, e.media_timer)
            close(e.media_timer)
            e.media_timer = -1
        if e.media_started and e.media.wake >= 0:
            e.plane.poller.remove(e.watch.set, e.media.wake)
        e.media.ops.fini(e.media)
        e.media = NULL
    if e.filter != NULL:
        e.filter.ops.fini(e.filter)
        e.filter = NULL
    e.wire.n = 0
    e.wire_sent = 0


cdef void _return_unsent(Engine* e) noexcept nogil:
    """What was not sent, in order, where the socket finds it: in the link and in the lane."""
    cdef Msg m
    cdef bint more, half
    e.returned = 1
    _lose_chunk(e)
    half = batch_half_sent(&e.batch, e.codec)
    if half:
        e.link.traffic.half_out.fetch_add(1)
    if batch_unsent(&e.batch, e.codec, &e.link.returned):    # no memory: they are lost
        e.link.traffic.abandoned.fetch_add(
            <int64_t> e.batch.n_msgs - batch_msgs_done(&e.batch)
            - (half and e.batch.done < e.batch.n_ends))
    _return_held(e)
    if e.media_started:
        session_tally(e)
        e.link.traffic.abandoned.fetch_add(e.media.held)
    if batch_cut(&e.batch, e.codec):         # the rest of a message whose beginning was sent
        while lane_read(e.out, &m):
            more = m.flags & MSG_MORE
            msg_close(&m)
            if not more:
                break


cdef void _let_go_of_pipe(Engine* e) noexcept nogil:
    """Give the pipe back to the socket with all that was not sent."""
    cdef Msg m
    cdef Pipe* pipe = e.pipe
    if pipe == NULL:
        return
    if e.left_bytes:          # before the socket counts the pipe (sock/departed.pyx)
        e.port.left.fetch_sub(1)
        e.port.left_bytes.fetch_sub(e.left_bytes)
        e.port.left_open.fetch_sub(1)
        e.left_bytes = 0
    while e.in_more and ypipe_unwrite(&e.inn.q, &m):   # half a message came: as if it never had
        msg_close(&m)
    session_publish(e)
    if not e.returned:
        _return_unsent(e)
    e.pipe = NULL
    e.port.ops.event(pipe, EVENT_TERM)
    link_unref(e.link)
    e.link = NULL


cdef void session_read_on(Engine* e, int code, const char* why) noexcept nogil:
    e.state = ENGINE_READING
    e.ends_as = code
    e.ends_why = why
    e.hup = 1                 # read until the kernel has no more: no further edge may come
    e.out_blocked = 0
    session_want(e)
    _ends_here(e)


cdef void _ends_here(Engine* e) noexcept nogil:
    e.born = io_now(e.io)
    e.spacious_since = 0
    e.queued = -1
    e.word.fetch_or(E_IN)


cdef void session_return(Engine* e) noexcept nogil:
    if e.returned:
        return
    _return_unsent(e)
    batch_reset(&e.batch)
    session_mute(e)
    e.port.ops.event(e.pipe, EVENT_SHUT)


cdef void session_mute(Engine* e) noexcept nogil:
    """Of what the codec or a filter would say in answer to what it reads, nothing leaves."""
    e.codec.ctl.n = 0
    e.codec.owed.n = 0
    e.ctl_sent = 0
    e.wire.n = 0
    e.wire_sent = 0


cdef void session_leave(Engine* e, int code, const char* why) noexcept nogil:
    cdef int left = 0
    e.pump.finish(e)
    ioctl(e.fd, FIONREAD, &left)
    e.arrived = e.read_until = e.link.traffic.bytes_in.load() + left
    if e.media == NULL or e.media.ops.flags & ENGINE_STREAM:
        shutdown(e.fd, SHUT_WR)
        e.read_until += IN_KERNEL       # the peer's end follows what its kernel has taken
    session_read_on(e, code, why)
    session_return(e)


cdef void session_drain(Engine* e) noexcept nogil:
    """A link that our side ends. It is over only when the peer has seen our FIN and sent its own:
    a ROUTER without handover would leave a second link with the same routing id deaf for ever."""
    e.behind = e.link.traffic.bytes_out.load() - e.message_end
    _let_go_of_pipe(e)
    e.pump.finish(e)
    shutdown(e.fd, SHUT_WR)
    e.state = ENGINE_DRAINING
    session_want(e)
    _ends_here(e)


cdef void session_end(Engine* e, int code, const char* text, uint32_t fatal) noexcept nogil:
    cdef int fd = e.fd
    cdef Port* port = e.port
    cdef Plane* plane = e.plane
    cdef uint32_t number = port.number
    if e.ends_as >= 0 and code == DOWN_PEER:
        code = e.ends_as
        text = e.ends_why
    if text != NULL:          # which may lie in a filter that ends here
        e.down.size = <uint32_t> min(strlen(text), sizeof(e.down_text))
        memcpy(e.down_text, text, e.down.size)
        e.down.text = e.down_text
    if e.state == ENGINE_DRAINING:
        code = e.ends_as if e.ends_as >= 0 else DOWN_RESET
    if code != DOWN_PEER and e.ends_as < 0 and e.state != ENGINE_READING:
        e.pump.finish(e)
    e.down.carried = e.link != NULL and e.link.traffic.read.load() > 0
    stream_count_lost(e)
    _let_go_of_pipe(e)
    if e.begun:
        port.begun.fetch_sub(e.begun)
        e.begun = 0
    e.state = ENGINE_DEAD
    e.out_blocked = 0
    session_want(e)
    plane.poller.remove(e.watch.set, fd)
    e.watch.load.fetch_sub(1)
    e.io.load.fetch_sub(1)
    _let_go_of_parts(e)
    e.fd = -1
    close(fd)
    if e.slab != NULL:
        owner_release(e.slab)
        e.slab = NULL
    batch_reset(&e.batch)
    # after this note the control thread may release the slot; after `ended` the socket may go
    port.ops.ended(port)
    e.down.fatal = fatal
    plane_tell(plane, &e.down, NOTE_DOWN, number, e.slot, 0, code)


cdef void session_fail(Engine* e, const char* doing) noexcept nogil:
    session_fail_as(e, doing, errno)


cdef void session_fail_as(Engine* e, const char* doing, int number) noexcept nogil:
    cdef char[160] text
    snprintf(text, sizeof(text), b"%s: %s", doing, strerror(number))
    session_end(e, DOWN_PEER, text, 0)


cdef void _lost(Engine* e) noexcept nogil:
    """Count what a source lost, and report it. The control thread may be late: where too many
    reports wait, the next one includes this loss, without its source."""
    cdef char[LOST_TEXT] text
    cdef size_t size = strnlen(e.media.lost_from, sizeof(e.media.lost_from))
    cdef int64_t[2] numbers
    e.link.traffic.lost.fetch_add(e.media.lost)
    if e.plane.pattern_notes.load() >= LOST_MOST:
        e.media_untold += e.media.lost
    else:
        numbers[0] = e.media.lost
        numbers[1] = e.media_untold
        e.media_untold = 0
        memcpy(text, numbers, sizeof(numbers))
        memcpy(text + sizeof(numbers), e.media.lost_from, size)
        plane_note(e.plane, NOTE_PATTERN, e.port.number, e.slot, e.pipe.id, EV_LOST, 0, text,
                   sizeof(numbers) + size)
    e.media.lost = 0


cdef void _reports(Engine* e) noexcept nogil:
    """What a message engine reports now and then."""
    cdef MessageEngine* m = e.media
    cdef Traffic* t = &e.link.traffic
    if m.refused:
        t.written.fetch_sub(m.refused)
        t.unsendable.fetch_add(m.refused)
        m.refused = 0
    if m.missed:
        t.read.fetch_add(m.missed)
        t.missed_in.fetch_add(m.missed)
        m.missed = 0
    if m.malformed:
        t.read.fetch_add(m.malformed)
        t.malformed_in.fetch_add(m.malformed)
        m.malformed = 0
    if m.bounced:
        t.bounced.fetch_add(m.bounced)
        m.bounced = 0
    if m.lost:
        _lost(e)


cdef void session_tally(Engine* e) noexcept nogil:
    cdef MessageEngine* m = e.media
    if m.held != e.media_held:
        e.link.traffic.written.fetch_add(e.media_held - m.held)
        e.media_held = m.held
    if m.refused | m.missed | m.malformed | m.bounced | m.lost:
        _reports(e)


cdef void session_tally_codec(Engine* e) noexcept nogil:
    cdef Codec* codec = e.codec
    cdef Traffic* t = &e.link.traffic
    if codec.late:
        t.read.fetch_add(codec.late)
        t.late_in.fetch_add(codec.late)
        codec.late = 0
    if codec.untranslated:
        t.untranslated.fetch_add(codec.untranslated)
        codec.untranslated = 0


cdef void session_publish(Engine* e) noexcept nogil:
    if not e.inn.conflate and not ypipe_flush(&e.inn.q):
        e.port.ops.event(e.pipe, EVENT_READ)


cdef void _put_latest(Engine* e, Msg* m) noexcept nogil:
    """A conflating lane: the newest single-part message; multipart cannot be conflated."""
    cdef bint replaced = False
    if m.flags & MSG_MORE or e.in_skip:
        if not e.in_skip:
            e.link.traffic.read.fetch_add(1)
            e.link.traffic.malformed_in.fetch_add(1)
        e.in_skip = SKIP_MANY if m.flags & MSG_MORE else 0
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
    """The codec limits each part, and this limits the whole message, because the HWMs
    only count complete ones. Even empty parts cost a handle each; a few are free."""
    cdef int64_t limit = e.config.max_message_size
    if limit < 0:
        return False
    if e.codec.ops.joins:     # a hop's part is a byte longer than its word
        limit += e.in_parts
    return e.in_size > limit or e.in_parts * <int64_t> sizeof(Msg) - FREE_PARTS > limit


cdef bint _sifted(Engine* e, Msg* m) noexcept nogil:
    """Discard a part of a message that is not wanted. False: the part is wanted."""
    if e.in_skip == SKIP_MANY or e.in_more:      # in the middle of a message
        return False
    if not e.in_skip:
        if e.port.wanted(e.port.pattern, m):
            return False
        e.link.traffic.read.fetch_add(1)
        e.link.traffic.unwanted_in.fetch_add(1)
    e.in_skip = SKIP_UNWANTED if m.flags & MSG_MORE else 0
    msg_close(m)
    return True


cdef int session_put(Engine* e, Msg* parts, size_t n) noexcept nogil:
    """Moves decoded parts into the lane; published by _publish."""
    cdef size_t i = 0
    cdef int64_t messages = 0
    cdef bint more
    cdef int rc = MQ_OK
    while i < n:
        if e.filters and not parts[i].flags & MSG_CONTROL and _sifted(e, &parts[i]):
            i += 1
            continue
        if e.inn.conflate and not parts[i].flags & MSG_CONTROL:
            _put_latest(e, &parts[i])
            i += 1
            continue
        more = parts[i].flags & MSG_MORE
        e.in_size += <int64_t> msg_size(&parts[i])
        e.in_parts += 1
        if _too_large(e):
            rc = MQ_PROTOCOL
            break
        if ypipe_write(&e.inn.q, &parts[i], not more):
            rc = MQ_NOMEM
            break
        e.in_more = more
        if not more:
            messages += not parts[i].flags & MSG_CONTROL
            e.inn.w_msgs += 1
            e.inn.w_bytes += e.in_size
            if e.inn.w_stamps != NULL and not parts[i].flags & MSG_CONTROL:
                stamps_put(e.inn.w_stamps, e.inn.w_msgs)
            e.in_size = 0
            e.in_parts = 0
        i += 1
    if messages:              # what came whole before it counts, however this ends
        e.link.traffic.read.fetch_add(messages)
    while i < n:
        msg_close(&parts[i])
        i += 1
    return rc


cdef bint session_count(Engine* e, int64_t begun) noexcept nogil:
    cdef int64_t more = begun - e.begun
    cdef int64_t all_ = e.port.begun.fetch_add(more) + more
    e.begun = begun
    # one alone is bounded by max_message_size
    if more <= 0 or all_ == begun or all_ <= e.port.most_begun.load():
        return True
    session_end(e, DOWN_PROTOCOL, TOO_MUCH, 0)
    return False


cdef void session_left(Engine* e) noexcept nogil:
    # blocked: the lane is full, and it is not only another engine's turn
    if e.state not in (ENGINE_ACTIVE, ENGINE_READING) or not e.inn.blocked.load():
        return
    e.left_bytes = (e.inn.w_bytes - e.inn.seen_bytes
                    + (e.inn.w_msgs - e.inn.seen_msgs) * <int64_t> sizeof(Msg))
    e.port.left.fetch_add(1)
    e.port.left_bytes.fetch_add(e.left_bytes)
    e.port.left_open.fetch_add(1)


cdef size_t session_room(Engine* e) noexcept nogil:
    """The number of parts to decode now. 0: at an HWM, the socket will kick the
    engine."""
    cdef int64_t room
    if e.inn.conflate:
        return PARTS
    if not lane_room(e.inn, 1):
        return 0
    room = e.inn.hwm_msgs - (e.inn.w_msgs - e.inn.seen_msgs)
    if room < 1:
        room = 1
    return <size_t> room if room < PARTS else PARTS


cdef bint session_attach(Engine* e) noexcept nogil:
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
    e.link.since = io_now(e.io)
    e.link.engine = e.slot
    if e.port.latencies != NULL:
        link_measure(e.link, 0, &e.port.latencies.sent)
        link_measure(e.link, 1, &e.port.latencies.received)
    pipe = &e.link.ends[0]
    pipe.id = port_next_peer(e.port)
    pipe.prio = e.config.prio
    pipe.connected = e.config.connected
    pipe.sp = codec.peer.major == 0 and e.media == NULL
    pipe.unversioned = codec.peer.major <= 1 or (
        e.media != NULL and not e.media.ops.flags & ENGINE_STREAM)
    e.filters = e.port.wanted != NULL and (pipe.sp or pipe.unversioned)
    pipe.far_ops = e.far_ops
    pipe.far = e
    pipe.sock = e.port
    e.pipe = pipe
    e.inn = pipe.inn
    e.out = pipe.out
    e.state = ENGINE_ACTIVE
    session_want(e)
    plane_tell(e.plane, &e.up, NOTE_UP, e.port.number, e.slot, pipe.id, 0)
    e.port.ops.event(pipe, EVENT_ATTACH)
    e.word.fetch_or(E_OUT)
    return True
