"""The pattern's alarm: see alarm.pxd."""

from libc.stdint cimport int64_t, uint64_t

from mqcore.base.widen cimport widen
from mqcore.reactor.io_thread cimport io_now, io_timer, io_untimer
from mqcore.sock.sock cimport sock_serve


cdef bint alarm_want(Sock* s) noexcept nogil:
    """Under the lock: the pattern wants another time than the I/O thread knows. True: post the
    task."""
    s.alarm = s.host.alarm
    if s.alarm == 0 or s.closing.load():
        return False
    s.alarm_when.store(s.alarm)
    return alarm_hold(s)


cdef bint alarm_hold(Sock* s) noexcept nogil:
    if s.alarm_posted.exchange(1):
        return False          # under way, and it has not looked yet
    s.users.fetch_add(1)
    return True


cdef void alarm_set(Task* task, IoThread* io) noexcept nogil:
    cdef Sock* s = <Sock*> task.arg
    s.alarm_posted.exchange(0)
    widen()
    if s.alarm_timer:
        io_untimer(io, s)
        s.alarm_timer = False
        s.users.fetch_sub(1)
    if not s.closing.load():
        s.users.fetch_add(1)
        s.alarm_timer = True
        if io_timer(io, s.alarm_when.load(), _fire, s, 0):
            _fire(s, 0, io)   # out of memory: early is better than never
    s.users.fetch_sub(1)


cdef void _fire(void* arg, uint64_t tag, IoThread* io) noexcept nogil:
    cdef Sock* s = <Sock*> arg
    s.alarm_timer = False
    s.rung.store(1)
    sock_serve(s)
    s.users.fetch_sub(1)


cdef void alarm_ring(Sock* s) noexcept nogil:
    """Under the lock."""
    cdef int64_t now = io_now(s.plane.ios[0])
    s.rung.exchange(0)
    s.alarm = 0               # no call handles it any more: sock_leave schedules the next one
    if s.host.alarm == 0 or s.host.alarm > now or s.closing.load():
        return
    s.host.alarm = 0
    s.ops.alarm(s.pattern, now)
    s.alarmed = True
