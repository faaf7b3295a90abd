"""ROUTER: each peer by its routing id. Peers: REQ, DEALER, ROUTER.

`recv` puts the sender's id in front (flags MSG_ROUTING_ID | MSG_MORE), `send` takes it away again;
it never travels. A peer that announces no id gets five bytes: 00 and a 31-bit counter with a random
start (the form of a hop, `routing/words`). If two peers announce the same id, the newer one takes
it and the older one's link is closed (`handover`), or the newer one is refused. What a replaced or
vanished peer had sent is still read. What comes from an SP peer with more words than `max_hops` has
gone astray: dropped, counted. ROUTER is REP's raw form.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, strcmp

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    MSG_MORE, MSG_ROUTING_ID, Msg, MsgVec, msg_close, msg_copy, msg_data, msg_init, msg_init_copy,
    msg_size, vec_fini, vec_push,
)
from mqcore.base.status cimport (
    MQ_DROPPED, MQ_FULL, MQ_INVALID, MQ_NO_PEER, MQ_NOMEM, MQ_OK, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable, fq_waiting, vec_cut,
)
from mqcore.protocols.routing.peers cimport (
    Peers, hash_bytes, hash_number, peers_add, peers_find, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.ring cimport MARK_GONE, ring_front
from mqcore.protocols.routing.stub cimport close_all, no_event, probe, tell_refused, vec_move
from mqcore.protocols.routing.words cimport HOP_MASK, envelope_of, word_put
from mqcore.spi.pattern cimport (
    PAT_ADDRESSES, PAT_IDENTITY, PAT_RECV, PAT_SEND, PAT_WORDS, PATTERN_ABI, Q_CAN_RECV,
    Q_CAN_SEND, Pattern,
    PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DIRTY_RESET, DROP_FULL, DROP_HOPS, DROP_NO_PEER, Pipe, pipe_delivered, pipe_drop_in,
    pipe_drop_out, pipe_touch, pipe_write,
)

cdef struct Name:             # Pipe.data
    Msg id                    # as recv hands it out
    uint64_t hash

cdef struct Router:
    Pattern head
    FairQueue inn
    Peers names               # by routing id: who is written to under it
    Peers numbers             # by Pipe.id: all that are attached
    uint64_t seed
    uint32_t next_id
    bint mandatory, handover, probe
    MsgVec held               # a message of an SP peer that a query has read already


cdef int router_init(Pattern* self) noexcept nogil:
    cdef Router* r = <Router*> self
    # the same table at the same nanosecond is not to be had twice; nothing secret hangs on it
    r.seed = <uint64_t> now_ns() ^ (<uint64_t> <size_t> self << 20)
    r.seed *= <uint64_t> 0x9e3779b97f4a7c15
    r.next_id = <uint32_t> (r.seed >> 32)
    r.mandatory = True
    r.handover = True
    return MQ_OK


cdef void router_fini(Pattern* self) noexcept nogil:
    cdef Router* r = <Router*> self
    fq_fini(&r.inn)
    peers_fini(&r.names)
    peers_fini(&r.numbers)
    vec_fini(&r.held)


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


# -- ids -------------------------------------------------------------------------------------------

cdef Pipe* router_by_name(Router* r, const uint8_t* id, size_t size, uint64_t hash) noexcept nogil:
    cdef size_t step = 0
    cdef Pipe* p
    cdef Msg* name
    while True:
        p = peers_find(&r.names, hash, &step)
        if p == NULL:
            return NULL
        name = &(<Name*> p.data).id
        if msg_size(name) == size and memcmp(msg_data(name), id, size) == 0:
            return p


cdef void router_make_id(Router* r, uint8_t* id) noexcept nogil:
    """The next free one. Peers may announce ids that look like ours."""
    while True:
        r.next_id += 1
        id[0] = 0
        word_put(id + 1, r.next_id & HOP_MASK)
        if router_by_name(r, id, 5, hash_bytes(id, 5, r.seed)) == NULL:
            return


cdef Name* router_name(Router* r, Pipe* pipe) noexcept nogil:
    cdef uint8_t[5] made
    cdef const uint8_t* id = pipe.routing_id
    cdef size_t size = pipe.routing_id_size
    cdef Name* name = <Name*> calloc(1, sizeof(Name))
    if name == NULL:
        return NULL
    if id == NULL or size == 0:
        router_make_id(r, &made[0])
        id = &made[0]
        size = 5
    if msg_init_copy(&name.id, pipe.host.pool, id, size):
        free(name)
        return NULL
    name.id.flags = MSG_ROUTING_ID | MSG_MORE
    name.id.peer = pipe.id
    name.hash = hash_bytes(id, size, r.seed)
    return name


cdef void router_unname(Router* r, Pipe* pipe) noexcept nogil:
    """It is written to no more, under no name; twice does nothing."""
    if not pipe.mark & MARK_GONE:
        pipe.mark |= MARK_GONE
        peers_remove(&r.names, (<Name*> pipe.data).hash, pipe)


# -- peers -----------------------------------------------------------------------------------------

cdef int router_enter(Router* r, Pipe* pipe, Name* name) noexcept nogil:
    """Into both tables and the queue, or into none."""
    cdef int rc = fq_attach(&r.inn, pipe)
    if rc:
        return rc
    rc = peers_add(&r.numbers, hash_number(pipe.id), pipe)
    if rc == MQ_OK:
        rc = peers_add(&r.names, name.hash, pipe)
        if rc:
            peers_remove(&r.numbers, hash_number(pipe.id), pipe)
    if rc:
        fq_detach(&r.inn, pipe)
    return rc


cdef int router_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Router* r = <Router*> self
    cdef Name* name = router_name(r, pipe)
    cdef Pipe* older
    cdef int rc
    if name == NULL:
        return MQ_NOMEM
    older = router_by_name(r, msg_data(&name.id), msg_size(&name.id), name.hash)
    if older != NULL and not r.handover:
        tell_refused(pipe, "its routing id is in use", 24)
        rc = MQ_STATE
    else:
        rc = router_enter(r, pipe, name)
    if rc:
        msg_close(&name.id)
        free(name)
        return rc
    pipe.data = name
    if older != NULL:
        router_unname(r, older)
        pipe_touch(older, DIRTY_RESET)
        tell_refused(older, "a newer peer took its routing id", 32)
    if r.probe:
        probe(pipe)
    return MQ_OK


cdef void router_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    router_unname(<Router*> self, pipe)


cdef void router_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Router* r = <Router*> self
    cdef Name* name = <Name*> pipe.data
    router_unname(r, pipe)
    peers_remove(&r.numbers, hash_number(pipe.id), pipe)
    fq_detach(&r.inn, pipe)
    msg_close(&name.id)
    free(name)
    pipe.data = NULL


cdef void router_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Router*> self).inn, pipe)


# -- messages --------------------------------------------------------------------------------------

cdef int router_write(Router* r, Pipe* pipe, Msg* parts, size_t n) noexcept nogil:
    """MQ_OK, MQ_DROPPED (the parts are closed), or what send returns."""
    cdef int rc
    if pipe == NULL or pipe.mark & MARK_GONE:
        if r.mandatory:
            return MQ_NO_PEER
        r.head.host.dropped[DROP_NO_PEER] += 1
    else:
        rc = pipe_write(pipe, parts, n)
        if rc != MQ_FULL or r.mandatory:
            return rc
        pipe_drop_out(pipe, DROP_FULL)
    close_all(parts, n)
    return MQ_DROPPED


cdef int router_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Router* r = <Router*> self
    cdef const uint8_t* id = msg_data(&parts[0])
    cdef size_t size = msg_size(&parts[0])
    cdef Pipe* pipe
    cdef int rc
    if n < 2:
        return MQ_INVALID
    pipe = router_by_name(r, id, size, hash_bytes(id, size, r.seed))
    rc = router_write(r, pipe, parts + 1, n - 1)
    if rc == MQ_OK or rc == MQ_DROPPED:
        msg_close(&parts[0])
    return rc


cdef int router_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Router* r = <Router*> self
    return router_write(r, peers_number(&r.numbers, peer), parts, n)


cdef int router_next(Router* r, MsgVec* out) noexcept nogil:
    """The next message behind its sender's id, counted as delivered."""
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef Msg id
    cdef int rc
    msg_init(&id)
    rc = vec_push(out, &id)   # its place; whose id it is shows with the message
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
    msg_copy(&out.at[at], &(<Name*> p.data).id)
    pipe_delivered(p)
    return MQ_OK


cdef int router_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Router* r = <Router*> self
    return vec_move(&r.held, out) if r.held.n else router_next(r, out)


cdef bint router_waiting(Router* r) noexcept nogil:
    if r.held.n or not fq_waiting(&r.inn):
        return r.held.n != 0
    # fq_waiting has left whose turn it is in front; only SP's envelopes may have come too far
    return not ring_front(&r.inn.ring).sp or router_next(r, &r.held) == MQ_OK


cdef int64_t router_query(Pattern* self, uint32_t what, const uint8_t* data,
                          size_t size) noexcept nogil:
    if what == Q_CAN_SEND:    # to whom is known only with the message
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
        ("mandatory", "bool", True, "an unknown or full peer is the sender's error, not a drop"),
        ("handover", "bool", True, "a newer peer takes over the routing id of an older one"),
        ("probe", "bool", False, "send an empty message to each new peer before anything else"),
    ),
    "each peer by its routing id",
)
