"""A pipe as a pattern sees it: one end of a two-way queue to one peer.

A pipe end belongs to one socket and is used only under that socket's lock. Each direction is a
`Lane` (lane.pxd): a queue with high-water marks in messages and bytes. The other side of the lanes
is an engine (tcp, ipc) or the pipe end of another socket (inproc). A pattern does not see the
difference.

A pattern uses `pipe_write`, `pipe_write_always`, `pipe_put`, `pipe_read`, `pipe_drop_out` and
`pipe_drop_in`. It never flushes and never wakes a thread. A written or read pipe goes on the host's
dirty list, and the socket flushes and wakes once it has released the lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic

from mqcore.base.clock cimport now_ns
from mqcore.base.histogram cimport Latencies, stamps_put, stamps_take
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, MsgVec, msg_close, msg_size, vec_clear, vec_fini, vec_push,
)
from mqcore.base.slab cimport Pool
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport ypipe_peek
from mqcore.spi.lane cimport (
    Lane, lane_due, lane_front, lane_pop, lane_readable, lane_room, lane_show, lane_write,
    lane_write_latest,
)

# The reasons for dropping a message, a closed list. `mqcore/spi/drop.py` has their names in the
# same order.
cdef enum:  # Drop
    DROP_FULL = 0             # an HWM was reached: the peer's, if the pattern drops,
                              # or, in SUB, DISH and BUS, the socket's own for unread messages of
                              # departed peers
    DROP_NO_PEER = 1          # no peer to send it to, and the pattern does not wait
    DROP_PEER_GONE = 2        # queued for a peer that disconnected, and no other may get it
    DROP_HALF_WRITTEN = 3     # the connection broke in the middle of the message
    DROP_CLOSED = 4           # our socket closed and linger ended
    DROP_CONFLATED = 5        # a newer message replaced it (conflate)
    DROP_LATE = 6             # a reply to an abandoned request
    # a message that the pattern does not handle: data sent to PUSH or PUB, or by a refused peer
    DROP_UNEXPECTED = 7
    DROP_MALFORMED = 8        # without the envelope that the pattern requires
    DROP_UNSUBSCRIBED = 9     # arrived, but its topic was unsubscribed
    DROP_CANCELLED = 10       # the sender withdrew it (REQ abandoned before it was written)
    DROP_HOPS = 11            # passed more devices than max_hops
    DROP_UNSENDABLE = 12      # the transport can never carry it (larger than a datagram)
    DROP_UNTRANSLATABLE = 13  # the peer's protocol cannot represent it
    DROP_REASONS = 14

cdef enum:
    EV_DROPPED = 3            # a PatternEvent: first of a run of drops; data: one byte, the reason

cdef enum Dirty:              # what the socket must do for the far side after releasing the lock
    DIRTY_OUT = 1             # handles written: flush, and wake the reader if it slept
    DIRTY_IN = 2              # space was freed for a blocked writer
    DIRTY_RESET = 4           # the pattern wants the link closed and opened anew
    DIRTY_LISTED = 8
    DIRTY_HUNG = 16           # stays set: the peer has disconnected, the pipe ends once it is empty
    DIRTY_EMPTY = 32          # on the host's list of empty pipes of departed peers
    DIRTY_SHUT = 64           # another link has the peer's routing id: close it, read to its end

cdef enum:                    # Pipe.asked
    ASKED_CLOSE = 1           # the socket ends the connection
    ASKED_RESET = 2           # the pattern wants it closed and opened anew
    ASKED_SHUT = 4            # it wants it closed, and what the peer has sent read first

cdef struct Host              # the socket, as patterns see it: spi/pattern.pxd
cdef struct Pipe

cdef struct FarOps:
    # The socket calls these with the pipe's `far`. `far` outlives the pipe (engine slots are never
    # freed), or `counted` is set and the socket holds a reference of the link across the call.
    uint32_t counted
    # Called without the socket's lock, by the thread that held it; may make system calls.
    # what: bits of Dirty. DIRTY_OUT: messages were published while the far side slept. DIRTY_IN:
    # there is space where it was blocked. DIRTY_RESET: drop the connection; its session reopens.
    # DIRTY_SHUT: send nothing more, read to the peer's end.
    void (*kick)(void* far, uint32_t what) noexcept nogil
    # The same, but another thread does the work. May be called under the lock.
    void (*kick_later)(void* far, uint32_t what) noexcept nogil
    # This end releases the pipe. Once the far side has noticed, it no longer uses the socket.
    # pipe_close calls this after it has set Pipe.asked.
    void (*close)(void* far) noexcept nogil

cdef struct Pipe:
    Lane* out
    Lane* inn
    Host* host
    uint32_t id               # the peer's number in this socket, never 0; reused after 2^32
    uint32_t dirty            # bits of Dirty
    Pipe* dirty_next
    # -- the pattern's fields: at attach places are -1, the rest zero --------------------------
    int32_t in_at             # place in the fair queue's list, -1: not there
    int32_t out_at            # place in the load balancer's or distributor's list
    int32_t prio              # 1 best .. 16
    uint32_t mark             # scratch bits of the pattern
    void* data                # private to the pattern
    # -- facts about the peer, fixed while attached -------------------------------------------
    const uint8_t* routing_id  # as announced by the peer; NULL if it has none
    uint32_t routing_id_size
    uint32_t sp               # 1: an SP peer: requests are numbered, several parts arrive joined,
                              # and it announces no subscriptions
    uint32_t owed             # requests that the peer has not answered; counted by the pattern
    uint32_t connected        # 1: our connect(), 0: accepted by our bind()
    uint32_t unversioned      # 1: it announces no subscriptions (ZMTP 1.0 before it has sent data,
                              # and connections without a handshake): it gets everything
    uint32_t dropping         # bit 1 << reason: sending; 1 << (16 + reason): receiving: a run of
                              # drops that was reported; the top bit is the pattern's
    # -- counters, under the socket's lock ------------------------------------------------------
    int64_t offered
    int64_t delivered
    int64_t out_dropped[14]
    int64_t in_dropped[14]
    # -- private to the socket ------------------------------------------------------------------
    const FarOps* far_ops
    void* far                 # engine, or the other socket's Pipe
    void* sock
    void* link                # shared by both ends; the last one frees it
    uint32_t state
    atomic[uint32_t] events
    # Requests of the socket to the connection, set under its lock. The note only makes the engine
    # read this field, so a late note never ends the next connection in the same slot.
    atomic[uint32_t] asked
    # inproc: messages published to the far end, whose socket has another lock; how many of them
    # were conflated
    atomic[int64_t] passed
    atomic[int64_t] passed_conflated
    Pipe* ready_next
    Pipe* all_next
    Pipe* all_prev
    # Departed peers: this peer's unread messages, as counted in Host.left_msgs and left_bytes, or,
    # where they are never dropped, left_bytes as counted in Port.left_bytes (sock/departed.pxd).
    int64_t left_msgs
    int64_t left_bytes
    Pipe* emptied_next

cdef struct Host:
    Pool* pool
    Pipe* dirty               # pipes used since the lock was acquired
    int64_t unmatched         # fan-out: messages without a receiver
    int64_t dropped[14]       # not attributable to a peer
    atomic[uint32_t] watched  # a program reads events(), so emit is worth its cost
    uint32_t max_hops         # devices that a message may have passed
    int64_t alarm             # ns: when to call PatternOps.alarm, 0: never; set by host_alarm
    # the message for `send` waited in the socket: no caller waits for the result
    uint32_t pumping
    uint32_t closing          # calls fail from now on; start nothing new
    uint32_t without          # flags of PatternOps that set_option has switched off
    void (*emit)(Host* host, uint32_t what, Pipe* pipe, const uint8_t* data,
                 size_t size) noexcept nogil
    Pipe* emptied             # empty pipes of departed peers, which the socket ends
    int64_t left_msgs         # unread messages of all departed peers, where some may be dropped
    int64_t left_bytes
    Latencies* latencies      # NULL: not measured
    # of a context that a test runs in its own time (mqcore/testing/network); else NULL, 0
    const int64_t* virtual    # the time in ns
    uint64_t chance           # this socket's random number
    # Set by `init`, or NULL: whether a message with this first part is wanted. Messages of peers
    # that filter nothing (Pipe.sp, Pipe.unversioned) and are not wanted do not enter the pipe, so
    # they fill no HWM and conflate nothing. Called by any thread, without the socket's lock.
    bint (*wanted)(void* pattern, Msg* first) noexcept nogil


cdef inline int64_t host_now(Host* host) noexcept nogil:
    """The clock of a pattern: monotonic ns."""
    return host.virtual[0] if host.virtual != NULL else now_ns()


cdef inline uint64_t host_chance(Host* host) noexcept nogil:
    """A number that no other socket has, for numbering; nothing secret may depend on it."""
    if host.chance:
        return host.chance
    return (<uint64_t> now_ns() ^ <uint64_t> <size_t> host) * <uint64_t> 0x9e3779b97f4a7c15


cdef inline void host_alarm(Host* host, int64_t when) noexcept nogil:
    """Schedule the pattern's `alarm` for `when`, or earlier if it is already due earlier."""
    if host.alarm == 0 or when < host.alarm:
        host.alarm = when


cdef inline void pipe_close(Pipe* p) noexcept nogil:
    """The socket releases the connection. Under the socket's lock."""
    p.asked.fetch_or(ASKED_CLOSE)
    p.far_ops.close(p.far)


cdef inline void pipe_ask(Pipe* p, uint32_t what) noexcept nogil:
    """Call before the far side is kicked with DIRTY_RESET or DIRTY_SHUT. Under the socket's
    lock."""
    p.asked.fetch_or(ASKED_RESET if what & DIRTY_RESET else ASKED_SHUT)


cdef inline void pipe_touch(Pipe* p, uint32_t what) noexcept nogil:
    if not p.dirty & DIRTY_LISTED:
        p.dirty_next = p.host.dirty
        p.host.dirty = p
        p.dirty |= DIRTY_LISTED
    p.dirty |= what


cdef inline void pipe_emptied(Pipe* p) noexcept nogil:
    """A departed peer's pipe is empty: the socket ends it before it releases the lock."""
    if not p.dirty & DIRTY_EMPTY:
        p.dirty |= DIRTY_EMPTY
        p.emptied_next = p.host.emptied
        p.host.emptied = p


# -- pipes: what patterns call -------------------------------------------------------------------

cdef inline void pipe_left(Pipe* p, int64_t size) noexcept nogil:
    """One message less is left of a departed peer."""
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
    """pipe_write_always for a caller that has checked for space and knows the size. It only reads
    the handles, so several pipes may get the same ones, with a reference for each."""
    cdef bint replaced = False
    cdef int rc
    if p.out.conflate:
        rc = lane_write_latest(p.out, parts, &replaced)   # multipart messages were refused before
    else:
        rc = lane_write(p.out, parts, n, size)
    if rc:
        return rc
    if not parts[0].flags & MSG_CONTROL:
        p.offered += 1
        if p.out.w_stamps != NULL:
            stamps_put(p.out.w_stamps, p.out.w_msgs)
    if replaced:
        p.out_dropped[DROP_CONFLATED] += 1
    pipe_touch(p, DIRTY_OUT)
    return MQ_OK


cdef inline int pipe_write(Pipe* p, Msg* parts, size_t n) noexcept nogil:
    """Moves a whole message (n handles, all but the last MSG_MORE) into the pipe. MQ_OK: taken.
    MQ_FULL: at an HWM, nothing moved, `writable` will follow. MQ_NOMEM: nothing
    moved."""
    cdef int64_t size = parts_size(parts, n)
    if not lane_room(p.out, size):
        return MQ_FULL
    return pipe_put(p, parts, n, size)


cdef inline int pipe_write_always(Pipe* p, Msg* parts, size_t n) noexcept nogil:
    """The same regardless of the HWMs, for subscriptions and other control messages."""
    return pipe_put(p, parts, n, parts_size(parts, n))


cdef inline bint pipe_has_room(Pipe* p, int64_t size) noexcept nogil:
    return lane_room(p.out, size)


cdef inline int pipe_read(Pipe* p, MsgVec* out) noexcept nogil:
    """Appends the parts of the next message to out and sets the peer's id in each. MQ_OK; MQ_AGAIN:
    empty, `readable` will follow when that changes; MQ_NOMEM: the message is lost and counted."""
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
    if lane.r_stamps != NULL:
        stamps_take(lane.r_stamps, lane.r_msgs)
    if lane_due(lane) and lane_show(lane):
        pipe_touch(p, DIRTY_IN)
    if p.dirty & DIRTY_HUNG:
        pipe_left(p, size)
    return rc


cdef inline void pipe_delivered(Pipe* p) noexcept nogil:
    """The pattern delivers a message of this pipe to the application."""
    p.delivered += 1


cdef inline void _pipe_tell_drop(Pipe* p, uint32_t reason, uint32_t shift) noexcept nogil:
    """Report the first drop of a run. A run of DROP_FULL when sending ends when there is space
    again, any other run with the peer."""
    cdef uint8_t data = <uint8_t> reason
    cdef uint32_t bit = <uint32_t> 1 << (reason + shift)
    if not p.dropping & bit and p.host.watched.load():
        p.dropping |= bit
        p.host.emit(p.host, EV_DROPPED, p, &data, 1)


cdef inline void pipe_drop_in(Pipe* p, uint32_t reason) noexcept nogil:
    """The pattern discarded a message that it had read from this pipe."""
    p.in_dropped[reason] += 1
    _pipe_tell_drop(p, reason, 16)


cdef inline void pipe_drop_out(Pipe* p, uint32_t reason) noexcept nogil:
    """The pattern did not write a message meant for this pipe: count it as offered and dropped."""
    p.offered += 1
    p.out_dropped[reason] += 1
    _pipe_tell_drop(p, reason, 0)


# -- pipes: reading for patterns that ignore control handles -------------------------------------

cdef inline void vec_cut(MsgVec* v, size_t n) noexcept nogil:
    """Closes the handles from index n on."""
    while v.n > n:
        v.n -= 1
        msg_close(&v.at[v.n])


cdef inline void wash(Msg* parts, size_t n) noexcept nogil:
    """Clears envelope and routing-id flags, which are local: a peer in this process may have
    forwarded a message with its own flags."""
    cdef size_t i
    for i in range(n):
        parts[i].flags &= MSG_MORE


cdef inline int pipe_take(Pipe* p, MsgVec* out) noexcept nogil:
    """The next message of one pipe, not counted, control messages skipped. MQ_OK, MQ_AGAIN,
    MQ_NOMEM (the message is lost and counted)."""
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
    """Reads one message and closes it, not counted."""
    cdef MsgVec v
    v.at = NULL
    v.n = 0
    v.cap = 0
    pipe_read(p, &v)          # also closes it when out of memory
    vec_fini(&v)


cdef inline Msg* pipe_look(Pipe* p) noexcept nogil:
    """The first part of the next message in place, control messages skipped. NULL: none, `readable`
    will follow. Not for conflating lanes."""
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
    """Whether pipe_take would return a message. If not, `readable` will follow when that
    changes."""
    return lane_readable(p.inn) if p.inn.conflate else pipe_look(p) != NULL


cdef inline void pipe_discard(Pipe* p, MsgVec* scratch, uint32_t reason) noexcept nogil:
    """Empties the pipe and counts every message as dropped."""
    cdef int rc
    while True:
        rc = pipe_take(p, scratch)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK:
            pipe_drop_in(p, reason)
        vec_clear(scratch)
