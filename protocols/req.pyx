"""REQ: asks one peer, waits for that peer's answer. Peers: REP, ROUTER.

Each context asks for itself, the socket's own is number 0: one request at a time each, over the
same peers. There is no state from which no call helps: a request is given up by `abandon` or by the
context's next send (unless `strict`). What must not happen is that its late answer is taken for
the next one's.

On the wire a request is [id, 4 bytes, if it is numbered], an empty part, the body; the answer looks
the same, since whoever answers gives the envelope back. Ids are 32 bits in network order with the
top one set, counted up from anywhere. An id tells late answers apart, and the link stays. Numbered
are, all of them: the requests of contexts, and the socket's own once there is a context; requests
that may be sent again; where a peer is SP (its wire has no other form); with `correlate`. So what
is left without is the lone exchange on ZMTP: when that is given up, the link that it went out on is
closed and reopened (DIRTY_RESET), and nothing more is sent on the old one. If contexts began to ask
on that link meanwhile, it stays, and the socket numbers all its requests from then on.
`correlate=False` keeps it so for the socket's own requests on ZMTP, contexts or not.

The new link waits for the old one's FIN. A ROUTER of libzmq without handover needs more: as long as
its application has not read the old link to the end, a second one with the same routing id is deaf
for ever, and nothing on the wire tells. A REQ with a `routing_id` should use `correlate` with
those.

`resend`: a request is kept until it is answered, and sent again with the same id when its time has
passed, to others than the peer that was silent if there are any, and at once when its link dies; if
there is nobody it waits for the next peer, and nothing is reported. Whoever answers first has
answered; the others are late. So a provider may run a request twice. Not set: after 60 s to SP
peers, never to ZMTP's.

`patient` (for mqcore.zmq): a peer that leaves changes nothing for the application. As with libzmq,
recv goes on waiting for what will never come, and a strict socket cannot ask anew.

    state      send           recv                         abandon    time, or the peer leaves
    IDLE       -> ASKED       MQ_STATE                     -          -
    ASKED      gives up,      MQ_AGAIN; the answer         -> IDLE    resent: -> ASKED, WAITS
               -> ASKED       makes it ANSWERED                       else, peer gone: -> LEFT
    WAITS      as ASKED       as ASKED                     -> IDLE    a peer comes: -> ASKED
    ANSWERED   gives up,      the answer -> IDLE           -> IDLE    -
               -> ASKED
    LEFT       -> ASKED       MQ_GONE -> IDLE              -> IDLE    -
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strcmp

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_copy, msg_data, msg_init, msg_init_inline, msg_size,
    vec_clear, vec_fini, vec_grow, vec_push,
)
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_GONE, MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_STATE,
)
from mqcore.protocols.routing.asks cimport (
    Ask, AskList, ask_join, ask_leave, ask_list, ask_unlist,
)
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable,
)
from mqcore.protocols.routing.load_balance cimport (
    LoadBalance, lb_attach, lb_can_send, lb_detach, lb_fini, lb_hangup, lb_heard, lb_init, lb_send,
    lb_set_option, lb_silence, lb_writable,
)
from mqcore.protocols.routing.peers cimport (
    Peers, hash_number, peers_add, peers_fini, peers_number, peers_remove,
)
from mqcore.protocols.routing.stub cimport probe
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_IDENTITY, PAT_RECV, PAT_SEND, PAT_WAITS, PAT_WORDS, PATTERN_ABI,
    Q_CAN_RECV, Q_CAN_SEND, Q_RESENT, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DIRTY_RESET, DROP_LATE, DROP_MALFORMED, DROP_UNEXPECTED, Pipe, host_alarm, pipe_delivered,
    pipe_drop_in, pipe_touch,
)

cdef enum:                    # Ask.state
    IDLE = 0
    ASKED = 1                 # Ask.pipe has the request
    WAITS = 2                 # to be sent again, and nobody can take it now
    ANSWERED = 3              # and the answer not yet handed out
    LEFT = 4                  # the peer that had it is gone

cdef enum:                    # Pipe.mark: it was sent a request once, so that an answer too many is
    MARK_PLAIN = 1            # late, not strange
    MARK_NUMBERED = 2
    MARK_SP = 4               # counted in n_sp

cdef enum:                    # `correlate`, `resend`
    AUTOMATIC = -1

cdef enum:                    # a question of REQ's own, for mqcore/api/asking.py
    Q_NEXT_DONE = 64          # a context, not named before, whose recv would not wait; 0: none

cdef int64_t RESEND_SP = 60000000000

cdef struct Req:
    Pattern head
    LoadBalance out
    FairQueue inn
    Ask own                   # context 0
    Peers contexts            # the others by number, and requests under way by id: these tables
    Peers ids                 # know hashes only, what they hold are Asks
    AskList due               # may be sent again, the next first
    AskList waits             # must be, and nobody can take it now
    AskList done              # of contexts: answered, or the peer has left, and not yet named
    MsgVec inbox              # scratch: what was read last
    MsgVec wire               # scratch: the request as it goes out
    uint32_t id               # given last
    uint32_t n_sp             # SP peers
    int correlate
    int64_t resend            # ns
    int64_t resent
    bint strict, patient, probe
    bint unnumbered           # an unnumbered request was given up, and its link stays


cdef int req_init(Pattern* self) noexcept nogil:
    cdef Req* req = <Req*> self
    lb_init(&req.out)
    req.correlate = AUTOMATIC
    req.resend = AUTOMATIC
    req.id = <uint32_t> (
        (<uint64_t> now_ns() ^ <uint64_t> <size_t> self) * <uint64_t> 0x9e3779b97f4a7c15 >> 32)
    return MQ_OK


cdef void ask_fini(Ask* ask) noexcept nogil:
    vec_fini(&ask.answer)
    vec_fini(&ask.kept)


cdef void req_fini(Pattern* self) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef size_t i
    lb_fini(&req.out)
    fq_fini(&req.inn)
    ask_fini(&req.own)
    for i in range(req.contexts.cap):
        if req.contexts.at[i].pipe != NULL:
            ask_fini(<Ask*> req.contexts.at[i].pipe)
            free(req.contexts.at[i].pipe)
    peers_fini(&req.contexts)
    peers_fini(&req.ids)
    vec_fini(&req.inbox)
    vec_fini(&req.wire)


cdef int req_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                        size_t size) noexcept nogil:
    cdef Req* req = <Req*> self
    if strcmp(name, "correlate") == 0:
        req.correlate = <int> number
    elif strcmp(name, "resend") == 0:
        req.resend = number
    elif strcmp(name, "strict") == 0:
        req.strict = number != 0
    elif strcmp(name, "patient") == 0:
        req.patient = number != 0
    elif strcmp(name, "probe") == 0:
        req.probe = number != 0
    else:
        return lb_set_option(&req.out, self.host, name, number)
    return MQ_OK


# -- contexts --------------------------------------------------------------------------------------

cdef inline Ask* ask_of(Req* req, uint32_t context) noexcept nogil:
    return &req.own if context == 0 else <Ask*> peers_number(&req.contexts, context)


cdef int req_context(Pattern* self, uint32_t number, bint on) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask
    if not on:
        ask = ask_of(req, number)
        if ask != NULL:
            req_give_up(req, ask)
            peers_remove(&req.contexts, hash_number(number), <Pipe*> ask)
            ask_fini(ask)
            free(ask)
        return MQ_OK
    ask = <Ask*> calloc(1, sizeof(Ask))
    if ask == NULL:
        return MQ_NOMEM
    ask.context = number
    if peers_add(&req.contexts, hash_number(number), <Pipe*> ask):
        free(ask)
        return MQ_NOMEM
    return MQ_OK


cdef void req_end(Req* req, Ask* ask, uint32_t state) noexcept nogil:
    """Nothing is under way any more."""
    if ask.numbered:
        peers_remove(&req.ids, hash_number(ask.id), <Pipe*> ask)
    ask.numbered = False
    ask_leave(ask)
    ask_unlist(ask)
    vec_clear(&ask.kept)
    ask.state = state


cdef void req_done(Req* req, Ask* ask, uint32_t state) noexcept nogil:
    """ANSWERED or LEFT: what whoever waits has waited for."""
    req_end(req, ask, state)
    if ask.context:
        ask.due = 0
        ask_list(&req.done, ask)


# -- answers ---------------------------------------------------------------------------------------

cdef Ask* req_asker(Req* req, Pipe* p, Msg* parts, bint numbered) noexcept nogil:
    """Whose answer this is; NULL: nobody's."""
    cdef const uint8_t* at = msg_data(&parts[0])
    cdef Ask* ask = &req.own
    if not numbered:
        return ask if ask.state == ASKED and not ask.numbered and ask.pipe == p else NULL
    ask = <Ask*> peers_number(&req.ids, <uint32_t> at[0] << 24 | <uint32_t> at[1] << 16
                              | <uint32_t> at[2] << 8 | at[3])
    return ask if ask != NULL and (ask.pipe == p or ask.again) else NULL


cdef bint req_take(Req* req, Pipe* p) noexcept nogil:
    """What lies in `inbox`, from p: to the one who asked, or a counted drop."""
    cdef Msg* parts = req.inbox.at
    cdef size_t n = req.inbox.n
    cdef bint numbered = n >= 3 and msg_size(&parts[0]) == 4 and msg_size(&parts[1]) == 0
    cdef uint32_t mark = MARK_NUMBERED if numbered else MARK_PLAIN
    cdef size_t front = 2 if numbered else 1
    cdef size_t i
    cdef Ask* ask
    lb_heard(&req.out, p)
    if (not numbered and (n < 2 or msg_size(&parts[0]) != 0)
            or not p.mark & mark and p.mark & (MARK_PLAIN | MARK_NUMBERED)):
        pipe_drop_in(p, DROP_MALFORMED)
        return False
    ask = req_asker(req, p, parts, numbered) if p.mark & mark else NULL
    if ask == NULL:
        pipe_drop_in(p, DROP_LATE if p.mark & mark else DROP_UNEXPECTED)
        return False
    for i in range(front):
        msg_close(&parts[i])
    for i in range(front, n):
        parts[i - front] = parts[i]
    req.inbox.n -= front
    pipe_delivered(p)
    req_done(req, ask, ANSWERED)
    ask_join(ask, p, False)
    req.inbox, ask.answer = ask.answer, req.inbox
    return True


cdef void req_pump(Req* req, Ask* ask) noexcept nogil:
    """Reads until this one is answered (NULL: all there is), or nothing is left."""
    cdef Pipe* p = NULL
    cdef int rc
    while ask == NULL or ask.state != ANSWERED:
        rc = fq_read(&req.inn, &req.inbox, &p)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK and not req_take(req, p):
            vec_clear(&req.inbox)


cdef bint req_shares(Req* req, Ask* ask) noexcept nogil:
    """Other requests are under way on its link, which must not lose their answers. The link may
    stay if all requests are numbered from now on: then no answer without a number is wanted."""
    cdef Ask* other = <Ask*> ask.pipe.data
    if req.correlate != AUTOMATIC:
        return False
    while other != NULL:
        if other != ask and other.state == ASKED:
            return True
        other = other.pipe_next
    return False


cdef void req_give_up(Req* req, Ask* ask) noexcept nogil:
    """Gives up what is outstanding; MQ_GONE that nobody has heard yet included."""
    if ask.state == ASKED or ask.state == WAITS:
        req_pump(req, ask)    # an answer that is here already costs no link
    if ask.state == ANSWERED:
        if ask.pipe != NULL:
            ask.pipe.delivered -= 1
            pipe_drop_in(ask.pipe, DROP_LATE)
        vec_clear(&ask.answer)
    elif ask.state == ASKED and not ask.numbered and req_shares(req, ask):
        req.unnumbered = True
    elif ask.state == ASKED and not ask.numbered:
        pipe_touch(ask.pipe, DIRTY_RESET)
        lb_hangup(&req.out, ask.pipe)
    req_end(req, ask, IDLE)


cdef int req_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask = ask_of(req, self.context)
    cdef size_t i
    if ask == NULL or ask.state == IDLE:
        return MQ_STATE
    if ask.state == LEFT:
        if req.patient:
            return MQ_AGAIN
        req_end(req, ask, IDLE)
        return MQ_GONE
    req_pump(req, ask)
    if ask.state != ANSWERED:
        return MQ_AGAIN
    if out.cap - out.n < ask.answer.n:
        i = vec_grow(out, out.n + ask.answer.n)
        if i:
            return <int> i
    for i in range(ask.answer.n):
        vec_push(out, &ask.answer.at[i])
    ask.answer.n = 0
    req_end(req, ask, IDLE)
    return MQ_OK


# -- requests --------------------------------------------------------------------------------------

cdef bint req_keeps(Req* req) noexcept nogil:
    """May what is sent now have to be sent again? Who takes it is not known yet."""
    return req.resend > 0 or req.resend == AUTOMATIC and req.n_sp > 0


cdef bint req_numbers(Req* req, uint32_t context) noexcept nogil:
    if context or req.n_sp or req.unnumbered or req_keeps(req):
        return True
    return req.contexts.n > 0 if req.correlate == AUTOMATIC else req.correlate != 0


cdef int req_number(Req* req, Ask* ask) noexcept nogil:
    """An id that no other request under way has."""
    while True:
        req.id = req.id + 1 | <uint32_t> 0x80000000
        if peers_number(&req.ids, req.id) == NULL:
            break
    if peers_add(&req.ids, hash_number(req.id), <Pipe*> ask):
        return MQ_NOMEM
    ask.id = req.id
    ask.numbered = True
    return MQ_OK


cdef int req_keep(Ask* ask, Msg* parts, size_t n) noexcept nogil:
    cdef Msg copy
    cdef size_t i
    if ask.kept.cap < n and vec_grow(&ask.kept, n):
        return MQ_NOMEM
    for i in range(n):
        msg_copy(&copy, &parts[i])
        vec_push(&ask.kept, &copy)
    return MQ_OK


cdef size_t req_front(Req* req, Ask* ask) noexcept nogil:
    """The envelope, into `wire`. How many parts."""
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


cdef int req_hand_out(Req* req, Ask* ask, size_t n) noexcept nogil:
    """`wire` to a peer, and what follows from who takes it. As lb_send."""
    cdef Pipe* taker = NULL
    cdef int64_t after
    cdef int rc = lb_send(&req.out, req.wire.at, n, &taker)
    if rc != MQ_OK:
        return rc
    taker.mark |= MARK_NUMBERED if ask.numbered else MARK_PLAIN
    ask.state = ASKED
    ask_join(ask, taker, True)
    after = req.resend if req.resend != AUTOMATIC else RESEND_SP if taker.sp else 0
    if after == 0:
        vec_clear(&ask.kept)
    elif ask.kept.n:
        ask.due = now_ns() + after
        ask_list(&req.due, ask)
        host_alarm(req.head.host, req.due.first.due)
    return MQ_OK


cdef inline bint req_free(Req* req, Ask* ask) noexcept nogil:
    """No request is under way."""
    return ask.state == IDLE or (ask.state == LEFT and not req.patient)


cdef int req_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask = ask_of(req, parts[0].peer)
    cdef size_t front, i
    cdef int rc
    if ask == NULL:
        return MQ_INVALID
    if req.strict and not req_free(req, ask):
        return MQ_STATE
    if req.wire.cap < n + 2:
        rc = vec_grow(&req.wire, n + 2)
        if rc:
            return rc
    req_give_up(req, ask)
    req_pump(req, NULL)       # what is here now cannot be the answer to what is not yet sent
    ask.again = False
    rc = req_number(req, ask) if req_numbers(req, ask.context) else MQ_OK
    if rc == MQ_OK and req_keeps(req):
        rc = req_keep(ask, parts, n)
    if rc == MQ_OK:
        front = req_front(req, ask)
        for i in range(n):
            req.wire.at[front + i] = parts[i]
        rc = req_hand_out(req, ask, front + n)
    if rc != MQ_OK:
        req_end(req, ask, IDLE)
    return rc


cdef void req_abandon(Pattern* self) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask = ask_of(req, self.context)
    if ask != NULL:
        req_give_up(req, ask)


# -- requests sent again ---------------------------------------------------------------------------

cdef void req_put_back(Req* req, Ask* ask) noexcept nogil:
    """Who has it will not answer: it waits for another."""
    ask_leave(ask)
    ask_unlist(ask)
    ask.state = WAITS
    ask.again = True
    ask_list(&req.waits, ask)


cdef bint req_send_again(Req* req, Ask* ask) noexcept nogil:
    cdef size_t n = ask.kept.n
    cdef size_t front, i
    if req.wire.cap < n + 2 and vec_grow(&req.wire, n + 2):
        return False
    front = req_front(req, ask)
    for i in range(n):
        msg_copy(&req.wire.at[front + i], &ask.kept.at[i])
    ask_unlist(ask)
    if req_hand_out(req, ask, front + n) == MQ_OK:
        req.resent += 1
        return True
    for i in range(n):
        msg_close(&req.wire.at[front + i])
    ask_list(&req.waits, ask)
    return False


cdef void req_serve_waiting(Req* req) noexcept nogil:
    """Somebody may take a message now."""
    while req.waits.first != NULL and not req.head.host.closing:
        if not req_send_again(req, req.waits.first):
            return


cdef void req_alarm(Pattern* self, int64_t now) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask
    req_pump(req, NULL)       # some answers may have come while nobody called
    while req.due.first != NULL and req.due.first.due <= now:
        ask = req.due.first
        lb_silence(&req.out, ask.pipe)
        req_put_back(req, ask)
    req_serve_waiting(req)
    if req.due.first != NULL:
        host_alarm(req.head.host, req.due.first.due)


# -- peers -----------------------------------------------------------------------------------------

cdef int req_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef int rc = fq_attach(&req.inn, pipe)
    if rc:
        return rc
    rc = lb_attach(&req.out, pipe)
    if rc:
        fq_detach(&req.inn, pipe)
        return rc
    if pipe.sp:
        pipe.mark |= MARK_SP
        req.n_sp += 1
    if req.probe:
        probe(pipe)
    req_serve_waiting(req)
    return MQ_OK


cdef void req_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask
    cdef Ask* following
    lb_hangup(&req.out, pipe)
    if pipe.mark & MARK_SP:
        pipe.mark &= ~<uint32_t> MARK_SP
        req.n_sp -= 1
    if pipe.data == NULL:
        return
    fq_readable(&req.inn, pipe)
    req_pump(req, NULL)       # it may have answered before it left
    ask = <Ask*> pipe.data
    while ask != NULL:
        following = ask.pipe_next
        if ask.state == ASKED:
            if ask.kept.n and not req.head.host.closing:
                req_put_back(req, ask)
            else:
                req_done(req, ask, LEFT)
        ask = following
    req_serve_waiting(req)


cdef void req_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    req_hangup(self, pipe)
    while pipe.data != NULL:  # answers of it that nobody has taken yet
        ask_leave(<Ask*> pipe.data)
    lb_detach(&(<Req*> self).out, pipe)
    fq_detach(&(<Req*> self).inn, pipe)


cdef void req_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Req*> self).inn, pipe)


cdef void req_writable(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_writable(&(<Req*> self).out, pipe)
    req_serve_waiting(<Req*> self)


cdef int64_t req_query(Pattern* self, uint32_t what, const uint8_t* data,
                       size_t size) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask = ask_of(req, self.context)
    if what == Q_RESENT:
        return req.resent
    if what == Q_NEXT_DONE:
        req_pump(req, NULL)
        ask = req.done.first
        if ask == NULL:
            return 0
        ask_unlist(ask)
        return ask.context
    if ask == NULL:
        return 0
    if what == Q_CAN_SEND:
        if req.strict and not req_free(req, ask):
            return -1         # nor could it wait in line for a peer
        return lb_can_send(&req.out)
    if what == Q_CAN_RECV:    # without a request there is nothing to wait for: not readable
        if ask.state == ASKED or ask.state == WAITS:
            req_pump(req, ask)
        return ask.state == ANSWERED or (ask.state == LEFT and not req.patient)
    return -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_IDENTITY | PAT_EXCHANGE | PAT_WAITS | PAT_WORDS,
    size=sizeof(Req),
    init=req_init,
    fini=req_fini,
    set_option=req_set_option,
    attach=req_attach,
    detach=req_detach,
    hangup=req_hangup,
    readable=req_readable,
    writable=req_writable,
    send=req_send,
    recv=req_recv,
    send_to=NULL,
    subscribe=NULL,
    abandon=req_abandon,
    query=req_query,
    context=req_context,
    alarm=req_alarm,
)

pattern = plugin_new(
    &OPS, "req", 3, "REQ", 0x30, ("rep", "router"),
    (
        ("correlate", "bool", None, "number the requests, so that a given-up one costs no link"),
        ("strict", "bool", False, "a send before the answer is an error, not a new start"),
        ("probe", "bool", False, "send an empty message to each new peer before anything else"),
        ("resend", "seconds", None, "a request not answered for so long goes out again, at once if "
                                    "its link dies; 0: never; None: after 60 s to SP peers"),
    ),
    "asks one peer, waits for that peer's answer",
)
