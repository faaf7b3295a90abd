"""REP: takes a request, answers whoever asked. Peers: REQ, DEALER.

A request is an envelope (route words up to and including the first empty part) and a body. `recv`
gives both, the envelope flagged MSG_ENVELOPE, and remembers envelope and peer for a plain `send`;
the next `recv` replaces what is remembered. `send_to` answers any request: its parts start with the
envelope that `recv` gave. An answer never waits: if the peer is gone or at its mark it is dropped,
counted.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_MORE, Msg, MsgVec, msg_copy, msg_data, msg_size, vec_clear, vec_fini,
    vec_grow, vec_push,
)
from mqcore.base.status cimport MQ_DROPPED, MQ_FULL, MQ_NO_PEER, MQ_OK, MQ_STATE
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable, vec_cut,
)
from mqcore.protocols.routing.peers cimport (
    Peers, hash_number, peers_add, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.stub cimport close_all, no_event, no_option
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_RECV, PAT_SEND, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND, Pattern, PatternOps,
    plugin_new,
)
from mqcore.spi.pipe cimport (
    DROP_FULL, DROP_MALFORMED, DROP_PEER_GONE, Pipe, pipe_delivered, pipe_drop_in, pipe_drop_out,
    pipe_write,
)

cdef struct Rep:
    Pattern head
    FairQueue inn
    Peers numbers             # who can be answered, by Pipe.id
    uint32_t asker            # Pipe.id of the last request, 0: nothing to answer
    MsgVec envelope           # of the last request
    MsgVec held               # a request that a query has read already
    MsgVec wire               # scratch: envelope and answer


cdef int rep_init(Pattern* self) noexcept nogil:
    return MQ_OK


cdef void rep_fini(Pattern* self) noexcept nogil:
    cdef Rep* rep = <Rep*> self
    fq_fini(&rep.inn)
    peers_fini(&rep.numbers)
    vec_fini(&rep.envelope)
    vec_fini(&rep.held)
    vec_fini(&rep.wire)


cdef int rep_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Rep* rep = <Rep*> self
    cdef int rc = fq_attach(&rep.inn, pipe)
    if rc:
        return rc
    rc = peers_add(&rep.numbers, hash_number(pipe.id), pipe)
    if rc:
        fq_detach(&rep.inn, pipe)
    return rc


cdef void rep_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    peers_remove(&(<Rep*> self).numbers, hash_number(pipe.id), pipe)


cdef void rep_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    rep_hangup(self, pipe)
    fq_detach(&(<Rep*> self).inn, pipe)


cdef void rep_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Rep*> self).inn, pipe)


# -- requests --------------------------------------------------------------------------------------

cdef bint rep_mark_envelope(Msg* parts, size_t n) noexcept nogil:
    """Flags it; False if there is none or nothing behind it."""
    cdef size_t i, k
    for i in range(n):
        if msg_size(&parts[i]) == 0 and parts[i].flags & MSG_MORE:
            for k in range(i + 1):
                parts[k].flags |= MSG_ENVELOPE
            return True
    return False


cdef int rep_next(Rep* rep, MsgVec* out) noexcept nogil:
    """The next well-formed request, counted as delivered."""
    cdef size_t at = out.n
    cdef Pipe* p = NULL
    cdef int rc
    while True:
        rc = fq_read(&rep.inn, out, &p)
        if rc:
            return rc
        if rep_mark_envelope(out.at + at, out.n - at):
            pipe_delivered(p)
            return MQ_OK
        pipe_drop_in(p, DROP_MALFORMED)
        vec_cut(out, at)


cdef int rep_remember(Rep* rep, Msg* parts, size_t n) noexcept nogil:
    cdef size_t k = 0
    cdef Msg m
    vec_clear(&rep.envelope)
    rep.asker = 0
    while k < n and parts[k].flags & MSG_ENVELOPE:
        k += 1
    if k > rep.envelope.cap and vec_grow(&rep.envelope, k):
        return MQ_OK          # out of memory: only the plain answer is lost
    for k in range(k):
        msg_copy(&m, &parts[k])
        m.flags = MSG_MORE
        vec_push(&rep.envelope, &m)
    rep.asker = parts[0].peer
    return MQ_OK


cdef int rep_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Rep* rep = <Rep*> self
    cdef size_t at = out.n
    cdef size_t i
    cdef int rc = MQ_OK
    if rep.held.n == 0:
        rc = rep_next(rep, out)
    elif out.cap - at < rep.held.n:
        rc = vec_grow(out, at + rep.held.n)
    if rc:
        return rc
    for i in range(rep.held.n):
        vec_push(out, &rep.held.at[i])
    rep.held.n = 0
    return rep_remember(rep, out.at + at, out.n - at)


# -- answers ---------------------------------------------------------------------------------------

cdef int rep_write(Pipe* pipe, Msg* parts, size_t n) noexcept nogil:
    """MQ_OK, MQ_DROPPED (the parts are closed), MQ_NOMEM."""
    cdef int rc = pipe_write(pipe, parts, n)
    if rc != MQ_FULL:
        return rc
    pipe_drop_out(pipe, DROP_FULL)
    close_all(parts, n)
    return MQ_DROPPED


cdef int rep_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Rep* rep = <Rep*> self
    cdef Pipe* pipe
    cdef size_t i, front = rep.envelope.n
    cdef int rc
    if rep.asker == 0:
        return MQ_STATE
    pipe = peers_number(&rep.numbers, rep.asker)
    if pipe == NULL:
        rep.head.host.dropped[DROP_PEER_GONE] += 1
        close_all(parts, n)
        rc = MQ_DROPPED
    else:
        if rep.wire.cap < front + n:
            rc = vec_grow(&rep.wire, front + n)
            if rc:
                return rc
        for i in range(front):
            rep.wire.at[i] = rep.envelope.at[i]
        for i in range(n):
            rep.wire.at[front + i] = parts[i]
        rc = rep_write(pipe, rep.wire.at, front + n)
        if rc != MQ_OK and rc != MQ_DROPPED:
            return rc         # the handles are still where they were
        rep.envelope.n = 0    # moved
    rep.asker = 0
    return rc


cdef void rep_settle(Rep* rep, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    """An answer by send_to to the request that a plain send would answer: that is done too."""
    cdef size_t i
    if peer != rep.asker or n <= rep.envelope.n:
        return
    for i in range(rep.envelope.n):
        if msg_size(&parts[i]) != msg_size(&rep.envelope.at[i]) or memcmp(
                msg_data(&parts[i]), msg_data(&rep.envelope.at[i]), msg_size(&parts[i])) != 0:
            return
    rep.asker = 0


cdef int rep_send_to(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil:
    cdef Rep* rep = <Rep*> self
    cdef Pipe* pipe = peers_number(&rep.numbers, peer)
    cdef size_t i, k = 0
    cdef int rc
    rep_settle(rep, peer, parts, n)
    if pipe == NULL:
        rep.head.host.dropped[DROP_PEER_GONE] += 1
        return MQ_NO_PEER
    while k < n and parts[k].flags & MSG_ENVELOPE:
        parts[k].flags &= ~MSG_ENVELOPE & 0xff   # ours alone: the peer may be in this process
        k += 1
    rc = rep_write(pipe, parts, n)
    if rc != MQ_OK and rc != MQ_DROPPED:
        for i in range(k):
            parts[i].flags |= MSG_ENVELOPE
    return rc


cdef int64_t rep_query(Pattern* self, uint32_t what, const uint8_t* data,
                       size_t size) noexcept nogil:
    cdef Rep* rep = <Rep*> self
    if what == Q_CAN_SEND:
        return rep.asker != 0
    if what == Q_CAN_RECV:
        if rep.held.n == 0:
            rep_next(rep, &rep.held)
        return rep.held.n != 0
    return -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_EXCHANGE,
    size=sizeof(Rep),
    init=rep_init,
    fini=rep_fini,
    set_option=no_option,
    attach=rep_attach,
    detach=rep_detach,
    hangup=rep_hangup,
    readable=rep_readable,
    writable=no_event,
    send=rep_send,
    recv=rep_recv,
    send_to=rep_send_to,
    subscribe=NULL,
    abandon=NULL,
    query=rep_query,
)

pattern = plugin_new(&OPS, "rep", 4, "REP", 0x31, ("req", "dealer"), (),
                     "takes a request, answers whoever asked")
