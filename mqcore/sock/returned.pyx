"""What a peer has not been sent: see returned.pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from mqcore.base.message cimport (
    MSG_CONTROL, MSG_MORE, Msg, MsgVec, msg_close, msg_size, vec_fini, vec_grow, vec_push,
)
from mqcore.base.status cimport MQ_OK
from mqcore.base.ypipe cimport ypipe_flush
from mqcore.link.pipe cimport Link
from mqcore.sock.sock cimport CLOSING_ALL
from mqcore.spi.lane cimport lane_read
from mqcore.spi.pattern cimport PAT_REROUTE
from mqcore.spi.pipe cimport DIRTY_OUT, DROP_CLOSED, DROP_PEER_GONE

cdef size_t LOST = <size_t> -1           # _keep_back: of no message in the vector


cdef void take_back(Sock* s, Pipe* pipe) noexcept nogil:
    cdef Link* link = <Link*> pipe.link
    cdef MsgVec back
    cdef MsgVec old
    cdef Msg m
    cdef size_t i
    cdef size_t start = 0            # in back, of the message under way
    cdef bint reroute = s.flags & PAT_REROUTE and s.closing.load() != CLOSING_ALL
    memset(&back, 0, sizeof(MsgVec))
    if not pipe.far_ops.counted:     # inproc: what lies in the lane is the peer's already
        _undirty_out(pipe)
        for i in range(link.returned.n):
            _keep_back(s, pipe, &back, &start, &link.returned.at[i], reroute)
        link.returned.n = 0
        while lane_read(pipe.out, &m):
            _keep_back(s, pipe, &back, &start, &m, reroute)
    if s.waiting.n > s.waiting_at and vec_grow(&back, back.n + s.waiting.n - s.waiting_at):
        _forget_back(s, pipe, &back)
    if back.n == 0:
        vec_fini(&back)
        return
    old = s.waiting
    for i in range(s.waiting_at, old.n):
        vec_push(&back, &old.at[i])
    old.n = 0
    vec_fini(&old)
    s.waiting = back
    s.waiting_at = 0


cdef void _forget_back(Sock* s, Pipe* pipe, MsgVec* back) noexcept nogil:
    """Out of memory for returning these to the front of the line: they are lost and counted."""
    cdef size_t i
    for i in range(back.n):
        s.waiting_bytes -= <int64_t> msg_size(&back.at[i])
        if not back.at[i].flags & MSG_MORE:
            s.n_waiting.fetch_sub(1)
            pipe.offered += 1
            pipe.out_dropped[DROP_PEER_GONE] += 1
        msg_close(&back.at[i])
    back.n = 0


cdef void _undirty_out(Pipe* pipe) noexcept nogil:
    if not pipe.out.conflate:
        ypipe_flush(&pipe.out.q)     # both ends are ours now
    pipe.dirty &= ~(<uint32_t> DIRTY_OUT)


cdef void _keep_back(Sock* s, Pipe* pipe, MsgVec* back, size_t* start, Msg* m,
                     bint reroute) noexcept nogil:
    cdef bint last = not m.flags & MSG_MORE
    if m.flags & MSG_CONTROL:
        msg_close(m)
        return
    if reroute and start[0] != LOST and vec_push(back, m) == MQ_OK:
        s.waiting_bytes += <int64_t> msg_size(m)
        if last:
            pipe.offered -= 1
            s.n_waiting.fetch_add(1)
            start[0] = back.n
        return
    while start[0] < back.n:             # no memory: nothing of this message is kept
        back.n -= 1
        s.waiting_bytes -= <int64_t> msg_size(&back.at[back.n])
        msg_close(&back.at[back.n])
    msg_close(m)
    start[0] = LOST
    if last:
        start[0] = back.n
        pipe.out_dropped[DROP_CLOSED if s.closing.load() else DROP_PEER_GONE] += 1
