"""inproc: two sockets of one context, two ends of one link, no codec and no engine.

What one end owes the other is an event on the other's ready stack. Each end holds the other's
socket while it is attached, and each kick under way does, so an event never meets a socket that has
been freed; a socket that closes waits for these, not for the other end to read what it was sent.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

from mqcore.base.clock cimport now_ns
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.link.engine cimport Port, port_next_peer
from mqcore.link.pipe cimport (
    EVENT_ATTACH, EVENT_READ, EVENT_TERM, EVENT_WRITE, Link, Marks, link_announced, link_name,
    link_measure, link_new, link_unref,
)
from mqcore.sock.events cimport sock_ended, sock_event, sock_event_later
from mqcore.sock.sock cimport Sock
from mqcore.spi.pipe cimport DIRTY_IN, DIRTY_OUT, DIRTY_RESET, DIRTY_SHUT, FarOps, Pipe


cdef inline uint32_t _events_of(uint32_t what) noexcept nogil:
    return (EVENT_READ if what & DIRTY_OUT else 0) | (EVENT_WRITE if what & DIRTY_IN else 0)


cdef void _far_kick(void* far, uint32_t what) noexcept nogil:
    cdef Pipe* other = <Pipe*> far
    cdef uint32_t events = _events_of(what)
    if what & (DIRTY_RESET | DIRTY_SHUT):
        _far_close(far)
    elif events:
        sock_event(other, events)


cdef void _far_kick_later(void* far, uint32_t what) noexcept nogil:
    """Under the lock of the socket at this end: the other one runs on an I/O thread."""
    cdef Pipe* other = <Pipe*> far
    cdef uint32_t events = _events_of(what)
    if what & (DIRTY_RESET | DIRTY_SHUT):
        _far_close(far)
    elif events:
        sock_event_later(other, events)


cdef void _far_close(void* far) noexcept nogil:
    """No engine is between them: end both ends."""
    cdef Pipe* other = <Pipe*> far
    sock_event_later(<Pipe*> other.far, EVENT_TERM)
    sock_event_later(other, EVENT_TERM)


cdef void _let_go(void* owner) noexcept nogil:
    sock_ended(<Port*> owner)


cdef FarOps INPROC
INPROC.counted = 1
INPROC.kick = _far_kick
INPROC.kick_later = _far_kick_later
INPROC.close = _far_close


cdef int64_t _add(int64_t a, int64_t b) noexcept nogil:
    return a + b if a < (<int64_t> 1 << 62) and b < (<int64_t> 1 << 62) else <int64_t> 1 << 62


cdef int sock_join(Sock* a, Sock* b, uint32_t* id_a, uint32_t* id_b,
                   int32_t prio_a, int32_t prio_b) noexcept nogil:
    """a connects to b. The one queue per direction holds what both HWMs allow
    together."""
    cdef Marks forth, back
    cdef Link* link
    forth.msgs = _add(a.port.send.msgs, b.port.recv.msgs)
    forth.bytes = _add(a.port.send.bytes, b.port.recv.bytes)
    forth.conflate = a.port.send.conflate or b.port.recv.conflate
    back.msgs = _add(b.port.send.msgs, a.port.recv.msgs)
    back.bytes = _add(b.port.send.bytes, a.port.recv.bytes)
    back.conflate = b.port.send.conflate or a.port.recv.conflate
    link = link_new(a.plane.pool, &a.plane.links, &forth, &back)
    if link == NULL:
        return MQ_NOMEM
    link.since = now_ns()
    link.engine = 0xffffffff
    if a.port.latencies != NULL:
        link_measure(link, 0, &b.port.latencies.received)
        link_measure(link, 1, &a.port.latencies.received)
    link.owners[0] = &a.port
    link.owners[1] = &b.port
    link.let_go = _let_go
    link.holds[0].store(1)
    link.holds[1].store(1)
    if (link_announced(link)
            or link_name(link, 0, b.port.shake.routing_id,
                         <uint32_t> b.port.shake.routing_id_size)
            or link_name(link, 1, a.port.shake.routing_id,
                         <uint32_t> a.port.shake.routing_id_size)):
        link_unref(link)
        link_unref(link)
        return MQ_NOMEM
    a.engines.fetch_add(1)
    b.engines.fetch_add(1)
    _end(&link.ends[0], &link.ends[1], a, prio_a, 1)
    _end(&link.ends[1], &link.ends[0], b, prio_b, 0)
    id_a[0] = link.ends[0].id
    id_b[0] = link.ends[1].id
    # both ends exist before either socket can touch them; one that refuses ends both at once
    link.refs.fetch_add(1)
    sock_event(&link.ends[0], EVENT_ATTACH)
    sock_event(&link.ends[1], EVENT_ATTACH)
    link_unref(link)
    return MQ_OK


cdef void _end(Pipe* pipe, Pipe* other, Sock* s, int32_t prio,
               uint32_t connected) noexcept nogil:
    pipe.id = port_next_peer(&s.port)
    pipe.sock = &s.port
    pipe.far_ops = &INPROC
    pipe.far = other
    pipe.prio = prio
    pipe.connected = connected
