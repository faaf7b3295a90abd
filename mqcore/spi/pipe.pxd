"""A pipe as a pattern sees it: one end of a two-way queue to one peer.

A pipe end belongs to one socket and is touched only under that socket's lock. Each direction is a
`Lane`: an ypipe with high-water marks in messages and bytes. On the other side of the lanes is an
engine (tcp, ipc) or the pipe end of another socket (inproc); a pattern cannot tell and need not.

What a pattern does with a pipe: `pipe_write`, `pipe_write_always`, `pipe_put`, `pipe_read`,
`pipe_drop_out`, `pipe_drop_in`. It never flushes and never wakes anybody: a written or read pipe is
put on the host's dirty list, and the socket does both once it has let go of the lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libcpp.atomic cimport (
    atomic, memory_order_acq_rel, memory_order_acquire, memory_order_relaxed, memory_order_release,
    memory_order_seq_cst,
)

from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, MsgVec, msg_close, msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.slab cimport Pool
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport (
    YPipe, ypipe_check_read, ypipe_peek, ypipe_unwrite, ypipe_write,
)
from mqcore.base.yqueue cimport yqueue_pop

# Why a message was dropped: a closed list, its names in `mqcore/spi/drop.py`, same order.
cdef enum:  # Drop
    DROP_FULL = 0             # a high-water mark was reached: the peer's where the pattern drops,
                              # the socket's own for what departed peers left unread
    DROP_NO_PEER = 1          # nobody to give it to, and the pattern does not wait
    DROP_PEER_GONE = 2        # queued for a peer that left, and nobody else may have it
    DROP_HALF_WRITTEN = 3     # the connection broke in the middle of it
    DROP_CLOSED = 4           # our socket closed and linger ended
    DROP_CONFLATED = 5        # a newer one replaced it (conflate)
    DROP_LATE = 6             # an answer to an abandoned request
    DROP_UNEXPECTED = 7       # a message that the pattern has no use for (data sent to PUSH or PUB)
    DROP_MALFORMED = 8        # without the envelope that the pattern needs
    DROP_UNSUBSCRIBED = 9     # arrived, but its topic is no longer wanted
    DROP_CANCELLED = 10       # the sender withdrew it (REQ abandoned before it was written)
    DROP_HOPS = 11            # passed more devices than max_hops
    DROP_UNSENDABLE = 12      # the transport can never carry it (larger than a datagram)
    DROP_UNTRANSLATABLE = 13  # the peer's wire has no way to say it
    DROP_REASONS = 14

cdef enum:
    EV_DROPPED = 3            # a PatternEvent: first of a run of drops; data: one byte, the reason

cdef enum Dirty:              # what the socket owes the far side once the lock is free
    DIRTY_OUT = 1             # handles written: flush, wake the reader if it slept
    DIRTY_IN = 2              # room made for a writer that was blocked
    DIRTY_RESET = 4           # the pattern wants the link closed and opened anew
    DIRTY_LISTED = 8
    DIRTY_HUNG = 16           # stays set: the peer has left, the pipe ends once it is read empty
    DIRTY_EMPTY = 32          # on the host's list of departed peers' pipes that were found empty

cdef enum:                    # Pipe.asked
    ASKED_CLOSE = 1           # the socket ends the connection
    ASKED_RESET = 2           # the pattern wants it closed and opened anew

cdef struct Lane:
    YPipe q
    # writer's line
    int64_t hwm_msgs          # INT64_MAX: no limit
    int64_t hwm_bytes
    int64_t w_msgs            # complete messages ever written (control ones too)
    int64_t w_bytes
    int64_t seen_msgs         # what the writer last saw of p_msgs, p_bytes
    int64_t seen_bytes
    uint64_t pad0[2]
    # reader's line
    int64_t r_msgs
    int64_t r_bytes
    int64_t step              # publish after so many messages or bytes, and when empty
    int64_t step_bytes
    int64_t shown             # r_msgs and r_bytes when last published
    int64_t shown_bytes
    uint64_t pad1[2]
    # shared
    atomic[int64_t] p_msgs
    atomic[int64_t] p_bytes
    atomic[uint32_t] blocked  # the writer waits for room
    uint32_t conflate         # one-slot lane: `latest` instead of q
    atomic[Msg*] latest

cdef struct Host              # the socket, as patterns see it: spi/pattern.pxd
cdef struct Pipe

cdef struct FarOps:
    # Called by the socket with the pipe's `far`. `far` outlives the pipe (engine slots are never
    # freed), or `counted` is set and the socket holds a reference of the link across the call.
    uint32_t counted
    # Never under the socket's lock, from the thread that held it; may make system calls.
    # what: bits of Dirty; DIRTY_OUT: messages were published while the far side slept; DIRTY_IN:
    # there is room where it was blocked; DIRTY_RESET: drop the connection, its session reopens.
    void (*kick)(void* far, uint32_t what) noexcept nogil
    # The same, but another thread does the work; may be called under the lock.
    void (*kick_later)(void* far, uint32_t what) noexcept nogil
    # Our end lets go of the pipe; the far side touches the socket no more once it has noticed.
    # Called by pipe_close, which marks the pipe first.
    void (*close)(void* far) noexcept nogil

cdef struct Pipe:
    Lane* out
    Lane* inn
    Host* host
    uint32_t id               # the peer's number in this socket, never 0; used again after 2^32
    uint32_t dirty            # bits of Dirty
    Pipe* dirty_next
    # -- the pattern's: places -1, the rest zero at attach ------------------------------------
    int32_t in_at             # place in the fair queue's list, -1: not there
    int32_t out_at            # place in the load balancer's or distributor's list
    int32_t prio              # 1 best .. 16
    uint32_t mark             # scratch bits of the pattern
    void* data                # the pattern's own
    # -- facts about the peer, fixed while attached -------------------------------------------
    const uint8_t* routing_id  # as announced by the peer; NULL if it gave none
    uint32_t routing_id_size
    uint32_t sp               # 1: by nanomsg's protocols: requests are numbered, several parts
                              # arrive joined, nobody says what he wants
    uint32_t owed             # requests that it has and has not answered; the pattern's own count
    uint32_t connected        # 1: our connect(), 0: came in through our bind()
    uint32_t unversioned      # 1: one that never says what it wants (ZMTP 1.0 before it has sent
                              # data, and where there is no handshake): it gets everything
    uint32_t dropping         # bit 1 << reason, out; 1 << (16 + reason), in: a run that was
                              # told of; the top bit is the pattern's
    # -- accounting, under the socket lock ------------------------------------------------------
    int64_t offered
    int64_t delivered
    int64_t out_dropped[14]
    int64_t in_dropped[14]
    # -- the socket's own -----------------------------------------------------------------------
    const FarOps* far_ops
    void* far                 # engine, or the other socket's Pipe
    void* sock
    void* link                # what both ends share and the last one frees
    uint32_t state
    atomic[uint32_t] events
    # What the socket asks of the connection, set under its lock. An engine that gets the note looks
    # here, so a note that comes late never ends the next connection in the same slot.
    atomic[uint32_t] asked
    # inproc: messages published to the far end, whose socket has another lock; of them conflated
    # away
    atomic[int64_t] passed
    atomic[int64_t] passed_conflated
    Pipe* ready_next
    Pipe* all_next
    Pipe* all_prev
    # departed peers: what this one left unread, as counted in Host.left_msgs and left_bytes
    int64_t left_msgs
    int64_t left_bytes
    Pipe* emptied_next

cdef struct Host:
    Pool* pool
    Pipe* dirty               # pipes touched since the lock was taken
    int64_t unmatched         # fan-out: messages that no peer wanted
    int64_t dropped[14]       # counted by the socket, not by a peer
    atomic[uint32_t] watched  # somebody reads events(): emit is worth its cost
    uint32_t max_hops         # devices that a message may have passed
    int64_t alarm             # ns: when PatternOps.alarm is wanted, 0: not; host_alarm sets it
    uint32_t pumping          # what `send` is given waited in the socket: nobody called
    uint32_t closing          # calls fail from now on: begin nothing new
    uint32_t without          # flags of PatternOps that an option has switched off, set_option's
    void (*emit)(Host* host, uint32_t what, Pipe* pipe, const uint8_t* data,
                 size_t size) noexcept nogil
    Pipe* emptied             # departed peers' pipes that were found empty: the socket ends them
    int64_t left_msgs         # left unread by all departed peers together
    int64_t left_bytes


cdef inline void host_alarm(Host* host, int64_t when) noexcept nogil:
    """Have the pattern's `alarm` called then, or earlier if it was wanted earlier."""
    if host.alarm == 0 or when < host.alarm:
        host.alarm = when


cdef inline void pipe_close(Pipe* p) noexcept nogil:
    """The socket lets go of the connection. Under the socket's lock."""
    p.asked.fetch_or(ASKED_CLOSE)
    p.far_ops.close(p.far)


cdef inline void pipe_ask_reset(Pipe* p) noexcept nogil:
    """Before the far side is kicked with DIRTY_RESET. Under the socket's lock."""
    p.asked.fetch_or(ASKED_RESET)


cdef inline void pipe_touch(Pipe* p, uint32_t what) noexcept nogil:
    if not p.dirty & DIRTY_LISTED:
        p.dirty_next = p.host.dirty
        p.host.dirty = p
        p.dirty |= DIRTY_LISTED
    p.dirty |= what


cdef inline void pipe_emptied(Pipe* p) noexcept nogil:
    """A departed peer's pipe is empty: the socket ends it before it lets go of the lock."""
    if not p.dirty & DIRTY_EMPTY:
        p.dirty |= DIRTY_EMPTY
        p.emptied_next = p.host.emptied
        p.host.emptied = p


# -- lanes: the writer's side --------------------------------------------------------------------

cdef inline bint _lane_fits(Lane* lane, int64_t size) noexcept nogil:
    cdef int64_t waiting = lane.w_msgs - lane.seen_msgs
    if waiting <= 0:
        return True           # one message always fits, however large
    return waiting < lane.hwm_msgs and lane.w_bytes - lane.seen_bytes + size <= lane.hwm_bytes


cdef inline void _lane_look(Lane* lane) noexcept nogil:
    # SYNC: acquire: what the reader popped before it published
    lane.seen_bytes = lane.p_bytes.load(memory_order_acquire)
    lane.seen_msgs = lane.p_msgs.load(memory_order_acquire)


cdef inline bint lane_room(Lane* lane, int64_t size) noexcept nogil:
    """Writer. May a message of `size` bytes be written now? If not, the lane is marked blocked and
    the reader will say when there is room."""
    if lane.conflate or _lane_fits(lane, size):
        return True
    _lane_look(lane)
    if _lane_fits(lane, size):
        return True
    lane.blocked.exchange(1)  # Dekker: say so, then look again; the reader shows, then looks
    lane.seen_bytes = lane.p_bytes.load()
    lane.seen_msgs = lane.p_msgs.load()
    if _lane_fits(lane, size):
        lane.blocked.exchange(0)
        return True
    return False


cdef inline int lane_write(Lane* lane, const Msg* parts, size_t n,
                           int64_t size) noexcept nogil:
    """Writer. Moves a whole message in, unflushed and whatever the marks say. MQ_OK, or
    MQ_NOMEM with nothing moved. For conflating lanes there is lane_write_latest."""
    cdef size_t i
    cdef Msg undone
    for i in range(n):
        if ypipe_write(&lane.q, &parts[i], i == n - 1):
            while ypipe_unwrite(&lane.q, &undone):
                pass
            return MQ_NOMEM
    lane.w_msgs += 1
    lane.w_bytes += size
    return MQ_OK


cdef inline int lane_write_latest(Lane* lane, const Msg* part, bint* replaced) noexcept nogil:
    """Writer of a conflating lane. Moves one single-part message in; an unread one is replaced."""
    cdef Msg* node = <Msg*> malloc(sizeof(Msg))
    cdef Msg* old
    if node == NULL:
        return MQ_NOMEM
    node[0] = part[0]
    # SYNC: acq_rel: publishes the node, owns the old one
    old = lane.latest.exchange(node, memory_order_acq_rel)
    replaced[0] = old != NULL
    if old != NULL:
        msg_close(old)
        free(old)
    return MQ_OK


# -- lanes: the reader's side --------------------------------------------------------------------

cdef inline bint lane_show(Lane* lane) noexcept nogil:
    """Reader. Publish what was read. True: the writer was blocked and must be told of the room."""
    if lane.shown == lane.r_msgs:
        return False
    lane.shown = lane.r_msgs
    lane.shown_bytes = lane.r_bytes
    lane.p_bytes.exchange(lane.r_bytes)
    lane.p_msgs.exchange(lane.r_msgs)
    if lane.blocked.load() == 0:
        return False
    return lane.blocked.exchange(0) != 0


cdef inline Msg* lane_front(Lane* lane) noexcept nogil:
    """Reader. The next handle where it lies, or NULL: empty, reader asleep. Whoever has moved it
    away calls lane_pop."""
    if not lane.conflate:
        return ypipe_peek(&lane.q)
    # SYNC: acq_rel: owns the node with its body
    return lane.latest.exchange(NULL, memory_order_acq_rel)


cdef inline void lane_pop(Lane* lane, Msg* front) noexcept nogil:
    if lane.conflate:
        free(front)
    else:
        yqueue_pop(&lane.q.q)


cdef inline bint lane_due(Lane* lane) noexcept nogil:
    """Reader. So much was read since it was last published that the writer should hear of it."""
    return (lane.r_msgs - lane.shown >= lane.step
            or lane.r_bytes - lane.shown_bytes >= lane.step_bytes)


cdef inline bint lane_read(Lane* lane, Msg* out) noexcept nogil:
    """Reader. One handle; the caller counts (`r_msgs`, `r_bytes`). False: empty, reader asleep."""
    cdef Msg* front = lane_front(lane)
    if front == NULL:
        return False
    out[0] = front[0]
    lane_pop(lane, front)
    return True


cdef inline bint lane_readable(Lane* lane) noexcept nogil:
    if not lane.conflate:
        return ypipe_check_read(&lane.q)
    return lane.latest.load(memory_order_acquire) != NULL  # SYNC: acquire: sees the node's body


# -- pipes: what patterns call -------------------------------------------------------------------

cdef inline void pipe_left(Pipe* p, int64_t size) noexcept nogil:
    """A departed peer has left one message fewer."""
    if p.left_msgs > 0:
        if size > p.left_bytes:
            size = p.left_bytes
        p.left_msgs -= 1
        p.left_bytes -= size
        p.host.left_msgs -= 1
        p.host.left_bytes -= size
    if not lane_readable(p.inn):
        pipe_emptied(p)


cdef inline int64_t parts_size(const Msg* parts, size_t n) noexcept nogil:
    cdef int64_t size = 0
    cdef size_t i
    for i in range(n):
        size += <int64_t> msg_size(&parts[i])
    return size


cdef inline int pipe_put(Pipe* p, const Msg* parts, size_t n, int64_t size) noexcept nogil:
    """pipe_write_always for who has asked for room and knows the size. The handles are only read:
    with a reference for each pipe, many may be given the same ones."""
    cdef bint replaced = False
    cdef int rc
    if p.out.conflate:
        rc = lane_write_latest(p.out, parts, &replaced)   # multipart is refused before it gets here
    else:
        rc = lane_write(p.out, parts, n, size)
    if rc:
        return rc
    if not parts[0].flags & MSG_CONTROL:
        p.offered += 1
    if replaced:
        p.out_dropped[DROP_CONFLATED] += 1
    pipe_touch(p, DIRTY_OUT)
    return MQ_OK


cdef inline int pipe_write(Pipe* p, Msg* parts, size_t n) noexcept nogil:
    """Moves a whole message (n handles, all but the last MSG_MORE) into the pipe. MQ_OK: taken;
    MQ_FULL: at a mark, nothing moved, `writable` will be called; MQ_NOMEM: nothing moved."""
    cdef int64_t size = parts_size(parts, n)
    if not lane_room(p.out, size):
        return MQ_FULL
    return pipe_put(p, parts, n, size)


cdef inline int pipe_write_always(Pipe* p, Msg* parts, size_t n) noexcept nogil:
    """The same whatever the marks say: for subscriptions and other control messages."""
    return pipe_put(p, parts, n, parts_size(parts, n))


cdef inline bint pipe_has_room(Pipe* p, int64_t size) noexcept nogil:
    return lane_room(p.out, size)


cdef inline int pipe_read(Pipe* p, MsgVec* out) noexcept nogil:
    """Appends the parts of the next message to out, each marked with the peer's id. MQ_OK, MQ_AGAIN
    (empty: `readable` will be called when that changes), MQ_NOMEM (the message is lost,
    counted)."""
    cdef Lane* lane = p.inn
    cdef Msg* m = lane_front(lane)
    cdef int64_t size = 0
    cdef bint more = True
    cdef int rc = MQ_OK
    if m == NULL:
        if lane_show(lane):
            pipe_touch(p, DIRTY_IN)
        if p.dirty & DIRTY_HUNG:
            pipe_emptied(p)
        return MQ_AGAIN
    while True:
        m.peer = p.id
        size += <int64_t> msg_size(m)
        more = m.flags & MSG_MORE
        if rc == MQ_OK:
            rc = vec_push(out, m)
        if rc != MQ_OK:
            msg_close(m)
        lane_pop(lane, m)
        if not more:
            break
        m = lane_front(lane)
        if m == NULL:
            break
    lane.r_msgs += 1
    lane.r_bytes += size
    if lane_due(lane) and lane_show(lane):
        pipe_touch(p, DIRTY_IN)
    if p.dirty & DIRTY_HUNG:
        pipe_left(p, size)
    return rc


cdef inline void pipe_delivered(Pipe* p) noexcept nogil:
    """The pattern hands a message of this pipe to the application."""
    p.delivered += 1


cdef inline void _pipe_tell_drop(Pipe* p, uint32_t reason, uint32_t shift) noexcept nogil:
    """The first of a run only. A run of DROP_FULL going out ends when there is room again, any
    other with the peer."""
    cdef uint8_t data = <uint8_t> reason
    cdef uint32_t bit = <uint32_t> 1 << (reason + shift)
    if not p.dropping & bit and p.host.watched.load():
        p.dropping |= bit
        p.host.emit(p.host, EV_DROPPED, p, &data, 1)


cdef inline void pipe_drop_in(Pipe* p, uint32_t reason) noexcept nogil:
    """The pattern threw away a message that it had read from this pipe."""
    p.in_dropped[reason] += 1
    _pipe_tell_drop(p, reason, 16)


cdef inline void pipe_drop_out(Pipe* p, uint32_t reason) noexcept nogil:
    """The pattern did not write a message meant for this pipe: offered and dropped."""
    p.offered += 1
    p.out_dropped[reason] += 1
    _pipe_tell_drop(p, reason, 0)


# -- pipes: reading where control handles mean nothing --------------------------------------------

cdef inline void vec_cut(MsgVec* v, size_t n) noexcept nogil:
    """Closes the handles from n on."""
    while v.n > n:
        v.n -= 1
        msg_close(&v.at[v.n])


cdef inline void wash(Msg* parts, size_t n) noexcept nogil:
    """Envelope and routing-id flags are this side's: a peer in this process may have forwarded a
    message with its own still on."""
    cdef size_t i
    for i in range(n):
        parts[i].flags &= MSG_MORE


cdef inline int pipe_take(Pipe* p, MsgVec* out) noexcept nogil:
    """The next message of one pipe, uncounted, control skipped. MQ_OK, MQ_AGAIN, MQ_NOMEM (the
    message is gone, counted)."""
    cdef size_t n = out.n
    cdef int rc
    while True:
        rc = pipe_read(p, out)
        if rc == MQ_AGAIN:
            return rc
        if rc == MQ_NOMEM:
            vec_cut(out, n)
            pipe_drop_in(p, DROP_FULL)
            return rc
        if not out.at[n].flags & MSG_CONTROL:
            wash(out.at + n, out.n - n)
            return MQ_OK
        vec_cut(out, n)


cdef inline void pipe_skip(Pipe* p) noexcept nogil:
    """Reads one message and closes it, uncounted."""
    cdef MsgVec v
    v.at = NULL
    v.n = 0
    v.cap = 0
    pipe_read(p, &v)          # out of memory closes it as well
    vec_fini(&v)


cdef inline Msg* pipe_look(Pipe* p) noexcept nogil:
    """The next message's first part in place, control skipped; NULL: none, `readable` will come.
    Not for lanes that conflate."""
    cdef Msg* m
    while True:
        m = ypipe_peek(&p.inn.q)
        if m == NULL:
            if lane_show(p.inn):
                pipe_touch(p, DIRTY_IN)
            if p.dirty & DIRTY_HUNG:
                pipe_emptied(p)
            return NULL
        if not m.flags & MSG_CONTROL:
            return m
        pipe_skip(p)


cdef inline bint pipe_has_message(Pipe* p) noexcept nogil:
    """Would pipe_take give one? If not, `readable` will be called when that changes."""
    return lane_readable(p.inn) if p.inn.conflate else pipe_look(p) != NULL


cdef inline void pipe_discard(Pipe* p, MsgVec* scratch, uint32_t reason) noexcept nogil:
    """Reads the pipe empty and counts every message as dropped."""
    cdef int rc
    while True:
        rc = pipe_take(p, scratch)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK:
            pipe_drop_in(p, reason)
        vec_clear(scratch)
