"""What departed peers leave unread: see departed.pxd."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free

from mqcore.base.message cimport MSG_CONTROL, MSG_MORE, Msg, msg_close, msg_size
from mqcore.base.ypipe cimport ypipe_check_read
from mqcore.base.yqueue cimport YCursor, yqueue_after, yqueue_first
from mqcore.link.engine cimport port_crowded
from mqcore.link.plane cimport NOTE_ROOM, ControlNote, note_new, plane_tell
from mqcore.spi.pattern cimport PAT_EXCHANGE, PAT_FANOUT
from mqcore.spi.lane cimport Lane, lane_read, lane_readable
from mqcore.spi.pipe cimport DIRTY_HUNG, DROP_FULL, pipe_drop_in, pipe_emptied


cdef inline bint _drops(Sock* s) noexcept nogil:
    """Whether the pattern's peers drop at an HWM instead of waiting: it subscribes, or it is a BUS.
    A surveyor's answers come from peers that wait."""
    cdef uint32_t kind = s.ops.flags & (<uint32_t> PAT_FANOUT | PAT_EXCHANGE)
    return s.ops.subscribe != NULL or kind == PAT_FANOUT


cdef void departed_count(Sock* s, Pipe* pipe) noexcept nogil:
    pipe.dirty |= DIRTY_HUNG
    if _drops(s) or not lane_readable(pipe.inn):
        return
    _measure_left(pipe, sizeof(Msg))
    pipe.left_msgs = 0
    s.port.left.fetch_add(1)
    s.port.left_bytes.fetch_add(pipe.left_bytes)


cdef void departed_keep(Sock* s, Pipe* pipe) noexcept nogil:
    departed_count(s, pipe)
    if _drops(s):
        _measure_left(pipe, 0)
        _drop_excess(s, pipe)
    if not lane_readable(pipe.inn):
        pipe_emptied(pipe)


cdef void _drop_excess(Sock* s, Pipe* pipe) noexcept nogil:
    cdef int64_t size
    while pipe.left_msgs and not _left_fits(s, pipe):
        size = _drop_oldest(s, pipe)
        pipe.left_msgs -= 1
        pipe.left_bytes -= size if size < pipe.left_bytes else pipe.left_bytes
    s.host.left_msgs += pipe.left_msgs
    s.host.left_bytes += pipe.left_bytes


cdef bint _left_fits(Sock* s, Pipe* pipe) noexcept nogil:
    cdef int64_t before = s.host.left_msgs
    if before == 0:
        # its own queue's HWMs limit it; for inproc, those of both ends together
        return True
    return (before + pipe.left_msgs <= s.port.recv.msgs
            and s.host.left_bytes + pipe.left_bytes <= s.port.recv.bytes)


cdef void _measure_left(Pipe* pipe, int64_t each) noexcept nogil:
    """What is published, `each` bytes more for a handle. At the other end of an inproc link a
    thread may be writing still."""
    cdef Lane* lane = pipe.inn
    cdef YCursor at
    cdef Msg* m
    cdef Msg* end
    pipe.left_msgs = pipe.left_bytes = 0
    if lane.conflate:
        pipe.left_msgs = lane_readable(lane)
        pipe.left_bytes = each        # the writer may still replace the message
        return
    if not ypipe_check_read(&lane.q):
        return
    end = lane.q.c.load()
    m = yqueue_first(&lane.q.q, &at)
    while m != end:
        pipe.left_bytes += <int64_t> msg_size(m) + each
        pipe.left_msgs += not m.flags & MSG_MORE
        m = yqueue_after(&at)


cdef int64_t _drop_oldest(Sock* s, Pipe* pipe) noexcept nogil:
    """Its size."""
    cdef int64_t size = 0
    cdef Msg m
    while lane_read(pipe.inn, &m):
        size += <int64_t> msg_size(&m)
        msg_close(&m)
        if not m.flags & MSG_MORE:
            if not m.flags & MSG_CONTROL:
                pipe_drop_in(pipe, DROP_FULL)
                s.left_dropped += 1
            break
    return size


cdef void departed_forget(Pipe* pipe) noexcept nogil:
    cdef Sock* s = <Sock*> pipe.sock
    if not pipe.dirty & DIRTY_HUNG:
        return
    if _drops(s):
        s.host.left_msgs -= pipe.left_msgs
        s.host.left_bytes -= pipe.left_bytes
    elif pipe.left_bytes:
        s.port.left.fetch_sub(1)
        s.port.left_bytes.fetch_sub(pipe.left_bytes)
    pipe.left_msgs = pipe.left_bytes = 0


cdef void departed_room(Sock* s) noexcept nogil:
    cdef ControlNote* note
    if s.room.load() == NULL or port_crowded(&s.port):
        return
    note = s.room.exchange(NULL)
    if note != NULL:
        plane_tell(s.plane, note, NOTE_ROOM, s.port.number, 0xffffffff, 0, 0)


cdef bint departed_full(Sock* s) noexcept nogil:
    cdef ControlNote* note
    if not port_crowded(&s.port):
        return False
    note = note_new()
    if note == NULL:
        return False          # nothing could end the wait
    # SYNC: seq_cst pair with departed_room: it uncounts a pipe, then looks for the note; we leave
    # the note, then look at the count. Others may wait for the note, too, so it stays.
    free(s.room.exchange(note))
    return port_crowded(&s.port)


cdef void drop_unread(Pipe* pipe, uint32_t reason) noexcept nogil:
    cdef Msg m
    while lane_read(pipe.inn, &m):
        if not m.flags & (MSG_CONTROL | MSG_MORE):
            pipe.in_dropped[reason] += 1
        msg_close(&m)


cdef void discard(Pipe* pipe, uint32_t reason) noexcept nogil:
    drop_unread(pipe, reason)
    departed_forget(pipe)
    pipe_emptied(pipe)
