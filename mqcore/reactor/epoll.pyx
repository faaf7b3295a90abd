"""epoll behind the poller's table: edge-triggered, nested. See poller.pxd.

Descriptors are registered once with IN | OUT | RDHUP | ET (eventfds: IN | ET) and never modified;
only the nesting of a socket's set in its I/O thread's set is switched.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from posix.signal cimport sigset_t
from posix.time cimport timespec

from mqcore.reactor.includes cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLET, EPOLLHUP,
    EPOLLIN,
    EPOLLOUT, EPOLLRDHUP, EINTR, close, epoll_create1, epoll_ctl, epoll_event, epoll_pwait,
    epoll_pwait2, errno,
)
from mqcore.reactor.poller cimport READY_HUP, READY_IN, READY_OUT, PollerOps, Ready, is_bell

cdef enum:
    HARVEST = 64
    MS = 1000000
    LONGEST = 2000000000      # ms: what an int of milliseconds holds, about 23 days

cdef struct EpollSet:
    int fd


cdef void* _open() noexcept nogil:
    cdef EpollSet* s = <EpollSet*> malloc(sizeof(EpollSet))
    if s == NULL:
        return NULL
    s.fd = epoll_create1(EPOLL_CLOEXEC)
    if s.fd < 0:
        free(s)
        return NULL
    return s


cdef void _close(void* set) noexcept nogil:
    close((<EpollSet*> set).fd)
    free(set)


cdef int _add(void* set, int fd, void* arg) noexcept nogil:
    cdef epoll_event ev
    ev.events = EPOLLIN | EPOLLET
    if not is_bell(arg):      # reading an eventfd is an edge for its writers: a wake-up for nothing
        ev.events |= EPOLLOUT | EPOLLRDHUP
    ev.data.ptr = arg
    return epoll_ctl((<EpollSet*> set).fd, EPOLL_CTL_ADD, fd, &ev)


cdef void _watch_out(void* set, int fd, void* arg, bint on) noexcept nogil:
    cdef epoll_event ev
    ev.events = EPOLLIN | EPOLLRDHUP | EPOLLET
    if on:
        ev.events |= EPOLLOUT
    ev.data.ptr = arg
    epoll_ctl((<EpollSet*> set).fd, EPOLL_CTL_MOD, fd, &ev)


cdef void _remove(void* set, int fd) noexcept nogil:
    cdef epoll_event ev
    ev.events = 0
    epoll_ctl((<EpollSet*> set).fd, EPOLL_CTL_DEL, fd, &ev)


cdef int _add_set(void* set, void* child, void* arg) noexcept nogil:
    cdef epoll_event ev
    ev.events = EPOLLIN
    ev.data.ptr = arg
    return epoll_ctl((<EpollSet*> set).fd, EPOLL_CTL_ADD, (<EpollSet*> child).fd, &ev)


cdef void _arm_set(void* set, void* child, void* arg, bint on) noexcept nogil:
    cdef epoll_event ev
    ev.events = EPOLLIN if on else 0
    ev.data.ptr = arg
    epoll_ctl((<EpollSet*> set).fd, EPOLL_CTL_MOD, (<EpollSet*> child).fd, &ev)


cdef int _sleep(int set, epoll_event* found, int cap, int64_t timeout,
                const sigset_t* mask) noexcept nogil:
    """Wait for `timeout` ns, -1 for ever. Fractions of a millisecond need a newer kernel; an older
    one rounds up."""
    cdef timespec t
    cdef int n
    if timeout > 0 and timeout % MS:
        t.tv_sec = timeout // 1000000000
        t.tv_nsec = timeout % 1000000000
        n = epoll_pwait2(set, found, cap, &t, mask)
        if n >= 0 or errno == EINTR:
            return n
    if timeout > <int64_t> LONGEST * MS:
        timeout = <int64_t> LONGEST * MS
    return epoll_pwait(set, found, cap,
                       <int> ((timeout + MS - 1) // MS) if timeout >= 0 else -1, mask)


cdef int _wait(void* set, Ready* out, int cap, int64_t timeout,
               const sigset_t* mask) noexcept nogil:
    cdef epoll_event[HARVEST] found
    cdef int n
    cdef int i
    cdef uint32_t events, what
    n = _sleep((<EpollSet*> set).fd, found, cap if cap < HARVEST else HARVEST, timeout, mask)
    for i in range(n):
        events = found[i].events
        out[i].arg = found[i].data.ptr
        what = 0
        if events & EPOLLIN:
            what |= READY_IN
        if events & EPOLLOUT:
            what |= READY_OUT
        if events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            what |= READY_HUP
        out[i].what = what
    return n


cdef int _descriptor(void* set) noexcept nogil:
    return (<EpollSet*> set).fd


cdef PollerOps OPS
OPS.abi = 1
OPS.name = b"epoll"
OPS.open = _open
OPS.close = _close
OPS.add = _add
OPS.remove = _remove
OPS.add_set = _add_set
OPS.arm_set = _arm_set
OPS.wait = _wait
OPS.watch_out = _watch_out
OPS.descriptor = _descriptor


cdef const PollerOps* epoll_ops() noexcept nogil:
    return &OPS
