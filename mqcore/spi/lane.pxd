"""A lane: one direction of a pipe, a ypipe with high-water marks in messages and bytes.

One thread at a time writes, one reads: the holder of the socket's lock at one end, the holder of
the engine's lease or of the other socket's lock at the other. A writer that finds it full sets
`blocked`, and the reader then reports space. A conflating lane keeps the newest message only.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libcpp.atomic cimport (
    atomic, memory_order_acq_rel, memory_order_acquire, memory_order_relaxed, memory_order_release,
    memory_order_seq_cst,
)

from mqcore.base.histogram cimport Stamps
from mqcore.base.message cimport Msg, msg_close
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport (
    YPipe, ypipe_check_read, ypipe_peek, ypipe_unwrite, ypipe_write,
)
from mqcore.base.yqueue cimport yqueue_pop

cdef struct Lane:
    YPipe q
    # the writer's cache line
    int64_t hwm_msgs          # INT64_MAX: no limit
    int64_t hwm_bytes
    int64_t w_msgs            # complete messages ever written (including control messages)
    int64_t w_bytes
    int64_t seen_msgs         # the writer's last reading of p_msgs and p_bytes
    int64_t seen_bytes
    Stamps* w_stamps          # NULL: nobody wants to know how long messages wait
    uint64_t pad0
    # the reader's cache line
    int64_t r_msgs
    int64_t r_bytes
    int64_t step              # publish after this many messages or bytes, and when empty
    int64_t step_bytes
    int64_t shown             # r_msgs and r_bytes when last published
    int64_t shown_bytes
    Stamps* r_stamps          # the same
    uint64_t pad1
    # shared
    atomic[int64_t] p_msgs
    atomic[int64_t] p_bytes
    atomic[uint32_t] blocked  # the writer waits for space
    uint32_t conflate         # one-slot lane: `latest` instead of q
    atomic[Msg*] latest


# -- the writer's side -----------------------------------------------------------------------------

cdef inline bint _lane_fits(Lane* lane, int64_t size) noexcept nogil:
    cdef int64_t waiting = lane.w_msgs - lane.seen_msgs
    if waiting <= 0:
        return True           # one message always fits, however large
    return waiting < lane.hwm_msgs and lane.w_bytes - lane.seen_bytes + size <= lane.hwm_bytes


cdef inline void _lane_look(Lane* lane) noexcept nogil:
    # SYNC: acquire: everything that the reader popped before it published
    lane.seen_bytes = lane.p_bytes.load(memory_order_acquire)
    lane.seen_msgs = lane.p_msgs.load(memory_order_acquire)


cdef inline bint lane_room(Lane* lane, int64_t size) noexcept nogil:
    """Writer. Whether a message of `size` bytes may be written now. If not, sets the lane's blocked
    flag, and the reader will report free space."""
    if lane.conflate or _lane_fits(lane, size):
        return True
    _lane_look(lane)
    if _lane_fits(lane, size):
        return True
    # Dekker: set the flag, then check again; the reader publishes, then checks
    lane.blocked.exchange(1)
    lane.seen_bytes = lane.p_bytes.load()
    lane.seen_msgs = lane.p_msgs.load()
    if _lane_fits(lane, size):
        lane.blocked.exchange(0)
        return True
    return False


cdef inline int lane_write(Lane* lane, const Msg* parts, size_t n,
                           int64_t size) noexcept nogil:
    """Writer. Moves a whole message in, without flushing and regardless of the high-water marks.
    MQ_OK, or MQ_NOMEM with nothing moved. Conflating lanes use lane_write_latest."""
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
    """Writer of a conflating lane. Moves one single-part message in and replaces an unread one."""
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


# -- the reader's side -----------------------------------------------------------------------------

cdef inline bint lane_show(Lane* lane) noexcept nogil:
    """Reader. Publish what was read. True: the writer was blocked and must be kicked."""
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
    """Reader. The next handle in place, or NULL: empty, and the reader counts as asleep. The caller
    calls lane_pop after it has moved the handle away."""
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
    """Reader. Whether enough was read since the last publication to publish again."""
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
