"""SUB: messages whose first part starts with a topic that we subscribed to. Peers: PUB, XPUB.

Publishers filter; what arrives all the same (a topic given up while the message was on its way, a
publisher that does not filter) is filtered again here and counted. Publishers are read in turn.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg, MsgVec, msg_data, msg_size, vec_fini, vec_grow, vec_push
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable, pipe_look, pipe_skip, vec_cut,
)
from mqcore.protocols.routing.interest cimport (
    Interest, interest_attach, interest_fini, interest_hangup, interest_set,
)
from mqcore.protocols.routing.ring cimport ring_drop, ring_front
from mqcore.protocols.routing.stub cimport no_event, no_option, no_send
from mqcore.protocols.routing.topics cimport Walk, walk_next, walk_start
from mqcore.spi.pattern cimport (
    PAT_CONFLATE, PAT_RECV, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Q_TOPICS, Pattern, PatternOps,
    plugin_new,
)
from mqcore.spi.pipe cimport DROP_UNSUBSCRIBED, Pipe, pipe_delivered, pipe_drop_in

cdef struct Sub:
    Pattern head
    FairQueue inn
    Interest it
    MsgVec held               # from a conflating lane: read by a query, it cannot be looked at


cdef int sub_init(Pattern* self) noexcept nogil:
    return MQ_OK


cdef void sub_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Sub*> self).inn)
    interest_fini(&(<Sub*> self).it)
    vec_fini(&(<Sub*> self).held)


cdef int sub_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    cdef int rc = fq_attach(&sub.inn, pipe)
    if rc:
        return rc
    rc = interest_attach(&sub.it, pipe)
    if rc:
        fq_detach(&sub.inn, pipe)
    return rc


cdef void sub_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<Sub*> self).it, pipe)


cdef void sub_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    interest_hangup(&(<Sub*> self).it, pipe)
    fq_detach(&(<Sub*> self).inn, pipe)


cdef void sub_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Sub*> self).inn, pipe)


cdef inline bint sub_wants(Sub* sub, Msg* first) noexcept nogil:
    cdef Walk w
    walk_start(&w, &sub.it.topics, msg_data(first), msg_size(first))
    return walk_next(&w) != 0


cdef int sub_next(Sub* sub, MsgVec* out) noexcept nogil:
    """The next message that is wanted, counted as delivered."""
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef int rc
    while True:
        rc = fq_read(&sub.inn, out, &p)
        if rc:
            return rc
        if sub_wants(sub, &out.at[at]):
            pipe_delivered(p)
            return MQ_OK
        pipe_drop_in(p, DROP_UNSUBSCRIBED)
        vec_cut(out, at)


cdef int sub_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Sub* sub = <Sub*> self
    cdef size_t i
    if sub.held.n == 0:
        return sub_next(sub, out)
    if out.cap - out.n < sub.held.n and vec_grow(out, out.n + sub.held.n):
        return MQ_NOMEM
    for i in range(sub.held.n):
        vec_push(out, &sub.held.at[i])
    sub.held.n = 0
    return MQ_OK


cdef bint sub_can_recv(Sub* sub) noexcept nogil:
    """Drops what is not wanted, so that the answer is exact."""
    cdef Pipe* p
    cdef Msg* m
    while sub.held.n == 0:
        p = ring_front(&sub.inn.ring)
        if p == NULL:
            return False
        if p.inn.conflate:
            sub_next(sub, &sub.held)
            return sub.held.n != 0
        m = pipe_look(p)
        if m == NULL:
            ring_drop(&sub.inn.ring)
        elif sub_wants(sub, m):
            return True
        else:
            pipe_skip(p)
            pipe_drop_in(p, DROP_UNSUBSCRIBED)
    return True


cdef int sub_subscribe(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil:
    return interest_set(&(<Sub*> self).it, topic, size, on != 0)


cdef int64_t sub_query(Pattern* self, uint32_t what, const uint8_t* data,
                       size_t size) noexcept nogil:
    if what == Q_CAN_RECV:
        return sub_can_recv(<Sub*> self)
    if what == Q_TOPICS:
        return <int64_t> (<Sub*> self).it.topics.n
    return 0 if what == Q_CAN_SEND else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_RECV | PAT_CONFLATE,
    size=sizeof(Sub),
    init=sub_init,
    fini=sub_fini,
    set_option=no_option,
    attach=sub_attach,
    detach=sub_detach,
    hangup=sub_hangup,
    readable=sub_readable,
    writable=no_event,
    send=no_send,
    recv=sub_recv,
    send_to=NULL,
    subscribe=sub_subscribe,
    abandon=NULL,
    query=sub_query,
)

pattern = plugin_new(&OPS, "sub", 2, "SUB", 0x21, ("pub", "xpub"), (),
                     "messages whose first part starts with a topic that we subscribed to")
