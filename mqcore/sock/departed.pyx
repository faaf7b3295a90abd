"""What departed peers leave unread: see departed.pxd."""

from libc.stdint cimport int64_t, uint32_t

from mqcore.base.message cimport MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_size
from mqcore.base.ypipe cimport ypipe_check_read
from mqcore.base.yqueue cimport YCursor, yqueue_after, yqueue_first
from mqcore.spi.pattern cimport PAT_RAW
from mqcore.spi.lane cimport Lane, lane_read, lane_readable
from mqcore.spi.pipe cimport DIRTY_HUNG, DROP_FULL, pipe_drop_in, pipe_emptied


cdef void departed_keep(Sock* s, Pipe* pipe) noexcept nogil:
    cdef int64_t size
    _measure_left(pipe)
    while pipe.left_msgs and not _left_fits(s, pipe):
        if s.flags & PAT_RAW:            # a stream of bytes with a hole in it is worth nothing
            discard(pipe, DROP_FULL)
            return
        size = _drop_oldest(pipe)
        pipe.left_msgs -= 1
        pipe.left_bytes -= size if size < pipe.left_bytes else pipe.left_bytes
    s.host.left_msgs += pipe.left_msgs
    s.host.left_bytes += pipe.left_bytes
    pipe.dirty |= DIRTY_HUNG
    if not lane_readable(pipe.inn):
        pipe_emptied(pipe)


cdef bint _left_fits(Sock* s, Pipe* pipe) noexcept nogil:
    cdef int64_t before = s.host.left_msgs
    if before == 0:
        # its own queue's HWMs limit it; for inproc, those of both ends together
        return True
    return (before + pipe.left_msgs <= s.port.recv.msgs
            and s.host.left_bytes + pipe.left_bytes <= s.port.recv.bytes)


cdef void _measure_left(Pipe* pipe) noexcept nogil:
    """What is published. At the other end of an inproc link a thread may be writing still."""
    cdef Lane* lane = pipe.inn
    cdef YCursor at
    cdef Msg* m
    cdef Msg* end
    pipe.left_msgs = pipe.left_bytes = 0
    if lane.conflate:
        pipe.left_msgs = lane_readable(lane)
        return
    if not ypipe_check_read(&lane.q):
        return
    end = lane.q.c.load()
    m = yqueue_first(&lane.q.q, &at)
    while m != end:
        pipe.left_bytes += <int64_t> msg_size(m)
        pipe.left_msgs += not m.flags & MSG_MORE
        m = yqueue_after(&at)


cdef int64_t _drop_oldest(Pipe* pipe) noexcept nogil:
    """Its size."""
    cdef int64_t size = 0
    cdef Msg m
    while lane_read(pipe.inn, &m):
        size += <int64_t> msg_size(&m)
        msg_close(&m)
        if not m.flags & MSG_MORE:
            if not m.flags & MSG_CONTROL:
                pipe_drop_in(pipe, DROP_FULL)
            break
    return size


cdef void departed_forget(Pipe* pipe) noexcept nogil:
    if pipe.dirty & DIRTY_HUNG:
        pipe.host.left_msgs -= pipe.left_msgs
        pipe.host.left_bytes -= pipe.left_bytes
    pipe.left_msgs = pipe.left_bytes = 0


cdef void discard(Pipe* pipe, uint32_t reason) noexcept nogil:
    cdef Msg m
    while lane_read(pipe.inn, &m):
        if not m.flags & (MSG_CONTROL | MSG_MORE):
            pipe.in_dropped[reason] += 1
        msg_close(&m)
    departed_forget(pipe)
    pipe_emptied(pipe)
