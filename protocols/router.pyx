"""ROUTER: addresses each peer by its routing id. Peers: REQ, DEALER, ROUTER.

`recv` prepends the sender's id (flags MSG_ROUTING_ID | MSG_MORE) and `send` removes it; it is never
transmitted. A peer that announces no id gets five bytes: 00 and a 31-bit counter with a random
start (the form of a hop, `routing/words`). If two peers announce the same id, the newer one takes
it and the older one's link is closed (`handover`), or the newer one is refused. Messages that a
replaced or disconnected peer has sent are still read, to its end.

A peer with two links to us would take the id from itself for ever, each time that the closed link
reconnects. So no id is taken over twice within HOLD. A link that comes meanwhile is a second one:
its messages are read as those of the id, and it gets the id when the first one ends.

A message from an SP peer with more words
than `max_hops` is in a loop: it is dropped and counted. ROUTER is REP's raw form.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport strcmp

from mqcore.base.message cimport (
    Msg, MsgVec, msg_close, msg_copy, msg_data, msg_init, msg_size, vec_push,
)
from mqcore.base.status cimport (
    MQ_DROPPED, MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_fini, fq_read, fq_readable, fq_waiting, pipe_skip, vec_cut,
)
from mqcore.protocols.routing.names cimport (
    MARK_SECOND, Name, Names, name_free, name_new, name_of, named_write, names_enter, names_find,
    names_fini, names_init, names_leave, names_number, names_pass_on, names_unname,
)
from mqcore.protocols.routing.ring cimport ring_front
from mqcore.protocols.routing.stub cimport no_event, probe, tell_refused
from mqcore.protocols.routing.words cimport envelope_ahead, envelope_of
from mqcore.spi.pattern cimport (
    PAT_ADDRESSES, PAT_IDENTITY, PAT_RECV, PAT_SEND, PAT_WORDS, PATTERN_ABI, Q_CAN_RECV,
    Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DIRTY_SHUT, DROP_HOPS, Pipe, host_now, pipe_delivered, pipe_drop_in, pipe_touch,
)

cdef enum:
    HOLD = 5000000000         # ns in which an id that was taken over stays where it is

cdef struct Router:
    Pattern head
    FairQueue inn
    Names names
    bint mandatory, handover, probe


cdef int router_init(Pattern* self) noexcept nogil:
    cdef Router* r = <Router*> self
    names_init(&r.names, self.host)
    r.mandatory = True
    r.handover = True
    return MQ_OK


cdef void router_fini(Pattern* self) noexcept nogil:
    cdef Router* r = <Router*> self
    fq_fini(&r.inn)
    names_fini(&r.names)


cdef int router_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                           size_t size) noexcept nogil:
    cdef Router* r = <Router*> self
    if strcmp(name, "mandatory") == 0:
        r.mandatory = number != 0
    elif strcmp(name, "handover") == 0:
        r.handover = number != 0
    elif strcmp(name, "probe") == 0:
        r.probe = number != 0
    else:
        return MQ_UNSUPPORTED
    return MQ_OK


# -- peers -----------------------------------------------------------------------------------------

cdef void _compare(Pipe* pipe, Name* name, Pipe* older) noexcept nogil:
    """Does the newer one take the id, or is it a second link?"""
    cdef int64_t now = host_now(pipe.host)
    cdef int64_t taken = name_of(older).taken
    if taken and now - taken < HOLD:
        pipe.mark |= MARK_SECOND
    else:
        name.taken = now


cdef int router_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Router* r = <Router*> self
    cdef Name* name = name_new(&r.names, pipe)
    cdef Pipe* older
    cdef int rc
    if name == NULL:
        return MQ_NOMEM
    older = names_find(&r.names, msg_data(&name.id), msg_size(&name.id))
    if older != NULL and not r.handover:
        tell_refused(pipe, "its routing id is in use", 24)
        rc = MQ_STATE
    else:
        if older != NULL:
            _compare(pipe, name, older)
        rc = names_enter(&r.names, &r.inn, pipe, name)
    if rc:
        name_free(name)
        return rc
    if pipe.mark & MARK_SECOND:
        tell_refused(pipe, "it is a second link, and gets its routing id when the first ends", 64)
    elif older != NULL:
        names_unname(&r.names, older)
        pipe_touch(older, DIRTY_SHUT)
        tell_refused(older, "a newer peer took its routing id", 32)
    if r.probe:
        probe(pipe)
    return MQ_OK


cdef void router_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Router* r = <Router*> self
    names_unname(&r.names, pipe)
    names_pass_on(&r.names, pipe)


cdef void router_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Router* r = <Router*> self
    names_leave(&r.names, &r.inn, pipe)


cdef void router_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Router*> self).inn, pipe)


# -- messages --------------------------------------------------------------------------------------

cdef int router_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Router* r = <Router*> self
    cdef int rc
    if n < 2:
        return MQ_INVALID
    rc = named_write(r.head.host, names_find(&r.names, msg_data(&parts[0]), msg_size(&parts[0])),
                     parts + 1, n - 1, r.mandatory)
    if rc == MQ_OK or rc == MQ_DROPPED:
        msg_close(&parts[0])
    return rc


cdef int router_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Router* r = <Router*> self
    return named_write(r.head.host, names_number(&r.names, peer), parts, n, r.mandatory)


cdef int router_next(Router* r, MsgVec* out) noexcept nogil:
    """The next message after its sender's id, counted as delivered."""
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef Msg id
    cdef int rc
    msg_init(&id)
    rc = vec_push(out, &id)   # reserve its place; the sender is known once the message is read
    if rc:
        return rc
    while True:
        rc = fq_read(&r.inn, out, &p)
        if rc:
            vec_cut(out, at)
            return rc
        if not p.sp or envelope_of(out.at + at + 1, out.n - at - 1) <= r.head.host.max_hops + 1:
            break
        pipe_drop_in(p, DROP_HOPS)
        vec_cut(out, at + 1)
    msg_copy(&out.at[at], &name_of(p).id)
    pipe_delivered(p)
    return MQ_OK


cdef int router_recv(Pattern* self, MsgVec* out) noexcept nogil:
    return router_next(<Router*> self, out)


cdef bint router_waiting(Router* r) noexcept nogil:
    cdef Pipe* p
    while fq_waiting(&r.inn):            # the next pipe stays in front
        p = ring_front(&r.inn.ring)
        if not p.sp or envelope_ahead(p) <= r.head.host.max_hops + 1:
            return True       # only SP's envelopes have a hop limit
        pipe_skip(p)
        pipe_drop_in(p, DROP_HOPS)
    return False


cdef int64_t router_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil:
    if what == Q_CAN_SEND:    # only the message names its receiver
        return 1
    return router_waiting(<Router*> self) if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_IDENTITY | PAT_ADDRESSES | PAT_WORDS,
    size=sizeof(Router),
    init=router_init,
    fini=router_fini,
    set_option=router_set_option,
    attach=router_attach,
    detach=router_detach,
    hangup=router_hangup,
    readable=router_readable,
    writable=no_event,
    send=router_send,
    recv=router_recv,
    send_to=router_send_to,
    subscribe=NULL,
    abandon=NULL,
    query=router_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "router", 6, "ROUTER", 0x31, ("req", "dealer", "router"),
    (
        ("mandatory", "bool", True,
         "raise for an unknown or full peer instead of dropping (stream: wait for a full one)"),
        ("handover", "bool", True, "a newer peer takes over the routing id of an older one"),
        ("probe", "bool", False, "send an empty message to each new peer before anything else"),
    ),
    "addresses each peer by its routing id",
)
