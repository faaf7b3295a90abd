"""What engines, other sockets and patterns report to a socket, whom it wakes: see events.pxd."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from mqcore.base.widen cimport widen
from mqcore.link.engine cimport Engine, PortOps
from mqcore.link.lease cimport E_HUP, E_IN, E_ROOM, E_WAKE, engine_kick
from mqcore.link.pipe cimport (
    EVENT_ATTACH, EVENT_LISTED, EVENT_READ, EVENT_SHUT, EVENT_TERM, EVENT_WRITE, Link,
)
from mqcore.link.plane cimport NOTE_PATTERN, plane_note
from mqcore.reactor.poller cimport READY_HUP, READY_IN, READY_OUT, Ready, is_bell
from mqcore.reactor.wakeup cimport eventfd_signal, futex_wake
from mqcore.sock.notify cimport notify_all
from mqcore.sock.sock cimport Sock, sock_post_serve, sock_serve
from mqcore.sock.watch cimport watch_wants
from mqcore.spi.pattern cimport EV_FAILED, PAT_SERVICE
from mqcore.spi.pipe cimport Host

cdef enum:
    EMITS_MOST = 1 << 16      # patterns' events of all sockets on their way to the control thread


cdef inline Sock* _of_host(Host* host) noexcept nogil:
    return <Sock*> (<char*> host - sizeof(Port))


cdef void _wake(Sock* s, bint one) noexcept nogil:
    """`one`: of followers that are all alike one is enough."""
    cdef uint32_t followers = s.followers.load()
    if s.lead_asleep.load() and s.lead_asleep.exchange(0):
        eventfd_signal(s.wake)
    if followers:
        # A follower that is not counted yet sees that `change` is another, and does not sleep.
        futex_wake(&s.change, 1 if one and s.takers.load() == followers else 0x7fffffff)
    # SYNC: seq_cst pair with arm(): a waiter arms, then checks `change`; our caller has
    # incremented `change`
    if s.armed.load():
        notify_all(s)


cdef void sock_changed(Sock* s) noexcept nogil:
    s.change.fetch_add(1)
    _wake(s, False)


cdef void sock_arrived(Sock* s) noexcept nogil:
    s.change.fetch_add(1)
    _wake(s, True)


cdef void sock_pass(Sock* s) noexcept nogil:
    if s.followers.load():
        futex_wake(&s.change, 1)


cdef inline bint _urgent(Sock* s, uint32_t what) noexcept nogil:
    """What must be acted on even if the application never calls. Reads s.ops.flags: an option may
    be changing s.flags under the lock."""
    return (what & (EVENT_ATTACH | EVENT_SHUT | EVENT_TERM)
            or (what & EVENT_READ and s.ops.flags & PAT_SERVICE)
            or (what & EVENT_WRITE and s.n_waiting.load()))


cdef bint _list(Sock* s, Pipe* pipe, uint32_t what) noexcept nogil:
    """Put the pipe on the ready stack; it may be freed afterwards. True: a thread must serve."""
    cdef bint urgent = _urgent(s, what)
    cdef Pipe* head
    if pipe.events.fetch_or(what | EVENT_LISTED) & EVENT_LISTED:
        # SYNC: seq_cst pair with the thread that has set LISTED and may not have pushed yet: it
        # pushes, then looks here; we say so, then drain
        if urgent:
            s.overtaken.exchange(1)
        return urgent
    (<Link*> pipe.link).refs.fetch_add(1)    # being listed holds it
    widen()
    head = s.ready.load()
    while True:
        pipe.ready_next = head
        if s.ready.compare_exchange_weak(head, pipe):
            break
    widen()
    return s.overtaken.load() and s.overtaken.exchange(0) or urgent


cdef void sock_event(Pipe* pipe, uint32_t what) noexcept nogil:
    """PortOps.event: any thread, no lock."""
    cdef Sock* s = <Sock*> pipe.sock
    if _list(s, pipe, what):
        sock_serve(s)
    if what == EVENT_READ:
        sock_arrived(s)
    else:
        sock_changed(s)


cdef void sock_event_later(Pipe* pipe, uint32_t what) noexcept nogil:
    cdef Sock* s = <Sock*> pipe.sock
    if _list(s, pipe, what):
        s.service.exchange(1)
    sock_post_serve(s)


cdef void sock_ended(Port* port) noexcept nogil:
    cdef Sock* s = <Sock*> port
    s.users.fetch_add(1)      # close() frees the socket when engines and users are both 0
    s.engines.fetch_sub(1)
    sock_changed(s)
    s.users.fetch_sub(1)


cdef void _emit(Host* host, uint32_t what, Pipe* pipe, const uint8_t* data,
                size_t size) noexcept nogil:
    cdef Sock* s = _of_host(host)
    # A peer can make a publisher emit as fast as it subscribes, and the control thread may wait for
    # the GIL meanwhile. What a pattern's own code did wrong is always told.
    if what != EV_FAILED and s.plane.pattern_notes.load() >= EMITS_MOST:
        s.unemitted += 1
        return
    plane_note(s.plane, NOTE_PATTERN, s.port.number, 0xffffffff, pipe.id if pipe != NULL else 0,
               <int32_t> what, 0, data, size)


cdef void sock_act(Sock* s, Ready* found, int n) noexcept nogil:
    """Every harvested edge is kicked before its harvester leaves."""
    cdef int i
    cdef uint32_t facts
    for i in range(n):
        if found[i].arg == NULL:
            continue          # the leader's wake-up, which was for us
        if is_bell(found[i].arg):
            engine_kick(<Engine*> (<size_t> found[i].arg & ~<size_t> 1), E_WAKE)
            continue
        facts = 0
        if found[i].what & READY_IN:
            facts |= E_IN
        if found[i].what & READY_OUT:
            facts |= E_ROOM
        if found[i].what & READY_HUP:
            facts |= E_HUP
        engine_kick(<Engine*> found[i].arg, facts)


cdef PortOps PORT
PORT.event = sock_event
PORT.ended = sock_ended
PORT.wants = watch_wants


cdef void events_init(Sock* s) noexcept nogil:
    s.port.ops = &PORT
    s.host.emit = _emit
