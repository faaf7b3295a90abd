"""A request of REQ: the states it goes through, its id, and its envelope on the wire.

A request is sent as [id of 4 bytes, if it is numbered], an empty part, the body. The reply has the
same form, because the replier returns the envelope. Ids are 32 bits in network order with the top
bit set, counted up from a random start. With an id, a late reply is recognized and the link stays.
These requests are numbered: those of contexts, and the socket's own once it has a context; requests
that may be sent again; requests to SP peers, whose protocol has no other form; all with
`correlate`. Only a lone exchange over ZMTP has no number. When it is abandoned, the link that
carried it is closed and reopened (DIRTY_RESET), and nothing more is sent on the old link. If
contexts have sent requests on that link meanwhile, it stays open, and the socket numbers all its
requests from then on. With `correlate=False` the socket's own requests over ZMTP never have
numbers.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_copy, msg_data, msg_init, msg_init_inline, vec_clear, vec_fini,
    vec_grow, vec_push,
)
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.protocols.routing.asks cimport Ask, AskList, ask_leave, ask_list, ask_unlist
from mqcore.protocols.routing.fair_queue cimport FairQueue
from mqcore.protocols.routing.load_balance cimport LoadBalance
from mqcore.protocols.routing.peers cimport (
    Peers, hash_number, peers_add, peers_number, peers_remove,
)
from mqcore.spi.pattern cimport Pattern
from mqcore.spi.pipe cimport Pipe

cdef enum:                    # Ask.state
    IDLE = 0
    ASKED = 1                 # Ask.pipe has the request
    WAITS = 2                 # to be sent again, but no peer can take it now
    ANSWERED = 3              # answered, and the reply not yet received by the application
    LEFT = 4                  # the peer that had it is disconnected

cdef enum:                    # Pipe.mark: it was sent a request once, so that an extra reply is
    MARK_PLAIN = 1            # late rather than unexpected
    MARK_NUMBERED = 2
    MARK_SP = 4               # counted in n_sp

cdef enum:                    # `correlate`, `resend`
    AUTOMATIC = -1

cdef struct Req:
    Pattern head
    LoadBalance out
    FairQueue inn
    Ask own                   # context 0
    Peers contexts            # the others by number, and outstanding requests by id: these tables
    Peers ids                 # only use hashes; their values are Asks
    AskList due               # may be sent again, ordered by time
    AskList waits             # must be sent again, but no peer can take it now
    AskList done              # of contexts: answered, or the peer was lost, and not yet returned
    MsgVec inbox              # scratch: the message read last
    MsgVec wire               # scratch: the request as sent
    uint32_t id               # the last one used
    uint32_t n_sp             # SP peers
    int correlate
    int64_t resend            # ns
    int64_t resent
    bint strict, patient, probe
    bint unnumbered           # an unnumbered request was abandoned, and its link stays


cdef inline void ask_fini(Ask* ask) noexcept nogil:
    vec_fini(&ask.answer)
    vec_fini(&ask.kept)


cdef inline Ask* ask_of(Req* req, uint32_t context) noexcept nogil:
    return &req.own if context == 0 else <Ask*> peers_number(&req.contexts, context)


cdef inline void req_end(Req* req, Ask* ask, uint32_t state) noexcept nogil:
    """The context has no outstanding request any more."""
    if ask.numbered:
        peers_remove(&req.ids, hash_number(ask.id), <Pipe*> ask)
    ask.numbered = False
    ask_leave(ask)
    ask_unlist(ask)
    vec_clear(&ask.kept)
    ask.state = state


cdef inline void req_done(Req* req, Ask* ask, uint32_t state) noexcept nogil:
    """ANSWERED or LEFT: the waiting caller can continue."""
    req_end(req, ask, state)
    if ask.context:
        ask.due = 0
        ask_list(&req.done, ask)


cdef inline bint req_free(Req* req, Ask* ask) noexcept nogil:
    """Whether no request is outstanding."""
    return ask.state == IDLE or (ask.state == LEFT and not req.patient)


cdef inline bint req_keeps(Req* req) noexcept nogil:
    """Whether a request sent now may have to be sent again. Its receiver is not known yet."""
    return req.resend > 0 or req.resend == AUTOMATIC and req.n_sp > 0


cdef inline bint req_numbers(Req* req, uint32_t context) noexcept nogil:
    if context or req.n_sp or req.unnumbered or req_keeps(req):
        return True
    return req.contexts.n > 0 if req.correlate == AUTOMATIC else req.correlate != 0


cdef inline int req_number(Req* req, Ask* ask) noexcept nogil:
    """Find an id that no other outstanding request has."""
    while True:
        req.id = req.id + 1 | <uint32_t> 0x80000000
        if peers_number(&req.ids, req.id) == NULL:
            break
    if peers_add(&req.ids, hash_number(req.id), <Pipe*> ask):
        return MQ_NOMEM
    ask.id = req.id
    ask.numbered = True
    return MQ_OK


cdef inline int req_keep(Ask* ask, Msg* parts, size_t n) noexcept nogil:
    cdef Msg copy
    cdef size_t i
    if ask.kept.cap < n and vec_grow(&ask.kept, n):
        return MQ_NOMEM
    for i in range(n):
        msg_copy(&copy, &parts[i])
        vec_push(&ask.kept, &copy)
    return MQ_OK


cdef inline size_t req_front(Req* req, Ask* ask) noexcept nogil:
    """Write the envelope to `wire`. Returns the number of parts."""
    cdef size_t front = 0
    cdef uint8_t[4] id
    if ask.numbered:
        id[0] = <uint8_t> (ask.id >> 24)
        id[1] = <uint8_t> (ask.id >> 16)
        id[2] = <uint8_t> (ask.id >> 8)
        id[3] = <uint8_t> ask.id
        msg_init_inline(&req.wire.at[0], id, 4)
        req.wire.at[0].flags = MSG_MORE
        front = 1
    msg_init(&req.wire.at[front])
    req.wire.at[front].flags = MSG_MORE
    return front + 1


cdef inline Ask* req_asker(Req* req, Pipe* p, Msg* parts, bint numbered) noexcept nogil:
    """The request of this reply; NULL: none."""
    cdef const uint8_t* at = msg_data(&parts[0])
    cdef Ask* ask = &req.own
    if not numbered:
        return ask if ask.state == ASKED and not ask.numbered and ask.pipe == p else NULL
    ask = <Ask*> peers_number(&req.ids, <uint32_t> at[0] << 24 | <uint32_t> at[1] << 16
                              | <uint32_t> at[2] << 8 | at[3])
    return ask if ask != NULL and (ask.pipe == p or ask.again) else NULL
