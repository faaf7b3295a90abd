"""REQ: sends a request to one peer and waits for that peer's reply. Peers: REP, ROUTER.

Each context has its own requests; number 0 is the socket itself. Each has at most one request at a
time, and all share the same peers. A call can always continue: `abandon`, or the context's next
send (unless `strict`), abandons the request. The late reply of an abandoned request must then not
be taken for the reply of the next one.

A request's id and its envelope: routing/request.pxd.

The new link waits for the old one's FIN. A libzmq ROUTER without handover needs more: until it has
read all messages of the old link, it ignores a second link with the same routing id for ever, and
gives no sign of that. Use `correlate` for a REQ with a `routing_id` and such peers.

`resend`: the socket keeps a request until it is answered. When the time has passed, it sends the
request again with the same id, to a different peer if there is one, and at once when the link is
lost. Without a peer the request waits for the next one. The first reply counts, later ones are
late. So a replier may process a request twice. Default: 60 s for SP peers, never for ZMTP peers.

`patient` (for mqcore.zmq): the loss of a peer does not affect the application. As in libzmq, recv
keeps waiting for a reply that never comes, and a strict socket cannot send a new request. STATES
and TRANSITIONS have what each call and event does in each state.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport strcmp

from mqcore.base.histogram cimport histogram_add
from mqcore.base.message cimport (
    Msg, MsgVec, msg_close, msg_copy, msg_size, vec_clear, vec_fini, vec_grow, vec_push,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_GONE, MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_STATE
from mqcore.protocols.routing.asks cimport Ask, ask_join, ask_leave, ask_list, ask_unlist
from mqcore.protocols.routing.fair_queue cimport (
    fq_attach, fq_detach, fq_fini, fq_read, fq_readable,
)
from mqcore.protocols.routing.load_balance cimport (
    lb_attach, lb_can_send, lb_detach, lb_fini, lb_hangup, lb_heard, lb_init, lb_send,
    lb_set_option, lb_silence, lb_writable,
)
from mqcore.protocols.routing.peers cimport hash_number, peers_add, peers_fini, peers_remove
from mqcore.protocols.routing.request cimport (
    ANSWERED, ASKED, AUTOMATIC, IDLE, LEFT, MARK_NUMBERED, MARK_PLAIN, MARK_SP, WAITS, Req,
    ask_fini, ask_of, req_asker, req_done, req_end, req_free, req_front, req_keep, req_keeps,
    req_number, req_numbers,
)
from mqcore.protocols.routing.stub cimport probe
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_IDENTITY, PAT_RECV, PAT_SEND, PAT_WAITS, PAT_WORDS, PATTERN_ABI,
    Q_CAN_RECV, Q_CAN_SEND, Q_RESENT, Pattern, PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DIRTY_RESET, DROP_LATE, DROP_MALFORMED, DROP_UNEXPECTED, Pipe, host_alarm, host_chance,
    host_now, pipe_delivered, pipe_drop_in, pipe_touch,
)

cdef enum:                    # a query of REQ only, for mqcore/api/exchanges.py
    Q_NEXT_DONE = 64          # a context, not returned before, whose recv would not wait; 0: none

cdef int64_t RESEND_SP = 60000000000

# A state of a request, its number, what it means.
STATES = (
    ("IDLE", IDLE, "no request is outstanding"),
    ("ASKED", ASKED, "a peer has the request"),
    ("WAITS", WAITS, "to be sent again, but no peer can take it now"),
    ("ANSWERED", ANSWERED, "the reply is here; the application has not received it"),
    ("LEFT", LEFT, "the peer that had it is disconnected; the application has not been told"),
)

# In a state, a call or an event, the state that follows, what a call returns (MQ_*). "kept": a
# request that `resend` lets be sent again. "alone": no peer can take it now. What is not here does
# nothing. With `strict` a send is MQ_STATE unless the state is IDLE or LEFT; with `patient` LEFT is
# as ASKED. `tests/unit/protocols/test_transitions.py` drives a REQ through all of them.
TRANSITIONS = (
    ("IDLE", "send", "ASKED", "OK"),
    ("IDLE", "recv", "IDLE", "STATE"),
    ("ASKED", "send", "ASKED", "OK"),
    ("ASKED", "recv", "ASKED", "AGAIN"),
    ("ASKED", "abandon", "IDLE", ""),
    ("ASKED", "the reply comes", "ANSWERED", ""),
    ("ASKED", "its peer leaves", "LEFT", ""),
    ("ASKED", "its peer leaves, kept, alone", "WAITS", ""),
    ("ASKED", "its time is up, kept, alone", "WAITS", ""),
    ("WAITS", "send", "IDLE", "FULL"),       # AGAIN without any peer
    ("WAITS", "recv", "WAITS", "AGAIN"),
    ("WAITS", "abandon", "IDLE", ""),
    ("WAITS", "the reply comes", "ANSWERED", ""),
    ("WAITS", "a peer connects", "ASKED", ""),
    ("WAITS", "a peer has room", "ASKED", ""),
    ("ANSWERED", "send", "ASKED", "OK"),
    ("ANSWERED", "recv", "IDLE", "OK"),
    ("ANSWERED", "abandon", "IDLE", ""),
    ("LEFT", "send", "ASKED", "OK"),
    ("LEFT", "recv", "IDLE", "GONE"),
    ("LEFT", "abandon", "IDLE", ""),
)


cdef int req_init(Pattern* self) noexcept nogil:
    cdef Req* req = <Req*> self
    lb_init(&req.out)
    req.correlate = AUTOMATIC
    req.resend = AUTOMATIC
    req.id = <uint32_t> (host_chance(self.host) >> 32)
    return MQ_OK


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


# -- replies ---------------------------------------------------------------------------------------

cdef bint req_take(Req* req, Pipe* p) noexcept nogil:
    """Deliver the message in `inbox`, from p, to its request, or drop and count it."""
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
    if req.head.host.latencies != NULL and ask.asked:
        histogram_add(&req.head.host.latencies.round_trip,
                      host_now(req.head.host) - ask.asked, 1)
        ask.asked = 0
    req_done(req, ask, ANSWERED)
    ask_join(ask, p, False)
    req.inbox, ask.answer = ask.answer, req.inbox
    return True


cdef void req_pump(Req* req, Ask* ask) noexcept nogil:
    """Read until this request is answered (NULL: everything), or nothing is left."""
    cdef Pipe* p = NULL
    cdef int rc
    while ask == NULL or ask.state != ANSWERED:
        rc = fq_read(&req.inn, &req.inbox, &p)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK and not req_take(req, p):
            vec_clear(&req.inbox)


cdef bint req_shares(Req* req, Ask* ask) noexcept nogil:
    """Whether its link carries other outstanding requests, which must not lose their replies. The
    link may stay if all requests are numbered from now on: replies without a number are then
    ignored."""
    cdef Ask* other = <Ask*> ask.pipe.data
    if req.correlate != AUTOMATIC:
        return False
    while other != NULL:
        if other != ask and other.state == ASKED:
            return True
        other = other.pipe_next
    return False


cdef void req_give_up(Req* req, Ask* ask) noexcept nogil:
    """Abandon the outstanding request, including an MQ_GONE that was not yet returned."""
    if ask.state == ASKED or ask.state == WAITS:
        req_pump(req, ask)    # a reply that has already arrived saves the link
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

cdef int req_hand_out(Req* req, Ask* ask, size_t n) noexcept nogil:
    """Send `wire` to a peer and update the state. Returns as lb_send."""
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
        ask.due = host_now(req.head.host) + after
        ask_list(&req.due, ask)
        host_alarm(req.head.host, req.due.first.due)
    return MQ_OK


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
    # earlier messages cannot be the reply to a request that is not yet sent
    req_pump(req, NULL)
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
    elif self.host.latencies != NULL:
        ask.asked = host_now(req.head.host)
    return rc


cdef void req_abandon(Pattern* self) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask = ask_of(req, self.context)
    if ask != NULL:
        req_give_up(req, ask)


# -- requests sent again ---------------------------------------------------------------------------

cdef void req_put_back(Req* req, Ask* ask) noexcept nogil:
    """The peer will not answer: queue the request for another."""
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
    """A peer may be able to take a message now."""
    while req.waits.first != NULL and not req.head.host.closing:
        if not req_send_again(req, req.waits.first):
            return


cdef void req_alarm(Pattern* self, int64_t now) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef Ask* ask
    req_pump(req, NULL)       # replies may have arrived without a call
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
    req_pump(req, NULL)       # it may have replied before it disconnected
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
    while pipe.data != NULL:  # its replies that are not yet received
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
            return -1         # it could not wait for a peer either
        return lb_can_send(&req.out)
    if what == Q_CAN_RECV:    # not readable without a request
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
        ("correlate", "bool", None, "number the requests, so that abandoning one keeps its link"),
        ("strict", "bool", False, "refuse a second send before the reply"),
        ("probe", "bool", False, "send an empty message to each new peer before anything else"),
        ("resend", "seconds", None, "send an unanswered request again after this time, and at once "
                                    "if its link is lost; 0: never; None: after 60 s to SP peers"),
    ),
    "sends a request to one peer, waits for that peer's reply",
)
