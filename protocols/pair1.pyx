"""PAIR1: like PAIR, and each message counts the links that it has passed. Peer: PAIR1.

Exactly one peer, unless `poly`. With `poly` any number: a received message identifies its sender
(`Msg.peer`), `send` sends to the longest-connected peer and `send_to` to the named one. In that
mode no send waits for a peer at its HWM. The message is dropped and counted instead, so
that a slow peer does not delay the others. Unsent messages of a lost peer go to no other peer.

The count is `Msg.hops` of the first part. A message starts at 0, and the codec writes one more.
Within a process, where no codec runs, the receiver adds it. A message that has passed more than
`max_hops` links is dropped and counted, which ends loops of devices. With `raw` a sent message
keeps its count.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport strcmp

from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_DROPPED, MQ_FULL, MQ_INVALID, MQ_NO_PEER, MQ_OK, MQ_STATE, MQ_UNSUPPORTED,
)
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable,
)
from mqcore.protocols.routing.peers cimport (
    Peers, hash_number, peers_add, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.ring cimport ring_drop, ring_front
from mqcore.protocols.routing.stub cimport close_all, no_event, tell_refused
from mqcore.spi.pattern cimport (
    PAT_EXCLUSIVE, PAT_HOPS, PAT_RECV, PAT_REROUTE, PAT_SEND, PAT_WAITS, PATTERN_ABI, Q_CAN_RECV,
    Q_CAN_SEND, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_HOPS, Pipe, pipe_delivered, pipe_drop_in, pipe_drop_out, pipe_has_room,
    pipe_look, pipe_skip, pipe_write,
)

cdef struct Pair1:
    Pattern head
    FairQueue inn
    Peers peers               # by Pipe.id: peers that can be written to
    Pipe* first               # the longest-connected of them
    bint poly, raw


cdef int pair1_init(Pattern* self) noexcept nogil:
    return MQ_OK


cdef void pair1_fini(Pattern* self) noexcept nogil:
    fq_fini(&(<Pair1*> self).inn)
    peers_fini(&(<Pair1*> self).peers)


cdef int pair1_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                          size_t size) noexcept nogil:
    cdef Pair1* pair = <Pair1*> self
    if strcmp(name, "raw") == 0:
        pair.raw = number != 0
    elif strcmp(name, "poly") == 0:
        if number == 0 and pair.peers.n > 1:
            return MQ_INVALID
        pair.poly = number != 0
        self.host.without = PAT_EXCLUSIVE | PAT_REROUTE if pair.poly else 0
    else:
        return MQ_UNSUPPORTED
    return MQ_OK


# -- peers -----------------------------------------------------------------------------------------

cdef int pair1_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Pair1* pair = <Pair1*> self
    cdef int rc
    if pair.first != NULL and not pair.poly:
        tell_refused(pipe, "this pair has its peer", 22)
        return MQ_STATE
    rc = fq_attach(&pair.inn, pipe)
    if rc:
        return rc
    rc = peers_add(&pair.peers, hash_number(pipe.id), pipe)
    if rc:
        fq_detach(&pair.inn, pipe)
    elif pair.first == NULL:
        pair.first = pipe
    return rc


cdef void pair1_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Pair1* pair = <Pair1*> self
    cdef Pipe* p
    cdef size_t i
    peers_remove(&pair.peers, hash_number(pipe.id), pipe)
    if pair.first != pipe:
        return
    pair.first = NULL
    for i in range(pair.peers.cap):       # numbers only grow, so the lowest is the oldest
        p = pair.peers.at[i].pipe
        if p != NULL and (pair.first == NULL or p.id < pair.first.id):
            pair.first = p


cdef void pair1_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    pair1_hangup(self, pipe)
    fq_detach(&(<Pair1*> self).inn, pipe)


cdef void pair1_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Pair1*> self).inn, pipe)


# -- messages --------------------------------------------------------------------------------------

cdef int pair1_write(Pair1* pair, Pipe* pipe, Msg* parts, size_t n) noexcept nogil:
    cdef uint8_t hops = parts[0].hops
    cdef int rc
    if not pair.raw:
        parts[0].hops = 0
    rc = pipe_write(pipe, parts, n)
    if rc == MQ_OK:
        return rc
    parts[0].hops = hops
    if rc != MQ_FULL or not pair.poly:
        return rc
    pipe_drop_out(pipe, DROP_FULL)
    close_all(parts, n)
    return MQ_DROPPED


cdef int pair1_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Pair1* pair = <Pair1*> self
    return MQ_AGAIN if pair.first == NULL else pair1_write(pair, pair.first, parts, n)


cdef int pair1_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Pair1* pair = <Pair1*> self
    cdef Pipe* pipe = peers_number(&pair.peers, peer)
    return MQ_NO_PEER if pipe == NULL else pair1_write(pair, pipe, parts, n)


cdef inline int pair1_hops(Pipe* p, Msg* m) noexcept nogil:
    """The number of links that a message of this pipe has passed."""
    return m.hops if p.sp else m.hops + 1


cdef bint pair1_waiting(Pair1* pair) noexcept nogil:
    """Whether there is a message. Drops messages that have passed too many links."""
    cdef Pipe* p
    cdef Msg* m
    while True:
        p = ring_front(&pair.inn.ring)
        if p == NULL:
            return False
        m = pipe_look(p)
        if m == NULL:
            ring_drop(&pair.inn.ring)
        elif pair1_hops(p, m) <= <int> pair.head.host.max_hops:
            return True
        else:
            pipe_skip(p)
            pipe_drop_in(p, DROP_HOPS)


cdef int pair1_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Pair1* pair = <Pair1*> self
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef int rc
    if not pair1_waiting(pair):
        return MQ_AGAIN
    rc = fq_read(&pair.inn, out, &p)
    if rc == MQ_OK:
        out.at[at].hops = <uint8_t> pair1_hops(p, &out.at[at])
        pipe_delivered(p)
    return rc


cdef int64_t pair1_query(Pattern* self, uint32_t what, const uint8_t* data,
                         size_t size) noexcept nogil:
    cdef Pair1* pair = <Pair1*> self
    if what == Q_CAN_SEND:
        return pair.first != NULL and (pair.poly or pipe_has_room(pair.first, 0))
    return pair1_waiting(pair) if what == Q_CAN_RECV else -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_WAITS | PAT_REROUTE | PAT_EXCLUSIVE | PAT_HOPS,
    size=sizeof(Pair1),
    init=pair1_init,
    fini=pair1_fini,
    set_option=pair1_set_option,
    attach=pair1_attach,
    detach=pair1_detach,
    hangup=pair1_hangup,
    readable=pair1_readable,
    writable=no_event,
    send=pair1_send,
    recv=pair1_recv,
    send_to=pair1_send_to,
    subscribe=NULL,
    abandon=NULL,
    query=pair1_query,
    context=NULL,
    alarm=NULL,
)

pattern = plugin_new(
    &OPS, "pair1", -1, "", 0x11, ("pair1",),
    (
        ("poly", "bool", False, "any number of peers; send_to() names one"),
        ("raw", "bool", False, "a forwarded message keeps its hop count"),
    ),
    "exactly one peer, both ways, and messages count the links they pass",
)
