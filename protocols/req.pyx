"""REQ: asks one peer, waits for that peer's answer. Peers: REP, ROUTER.

On the wire a request is [id, 4 bytes, only with `correlate`], an empty part, the body; the answer
looks the same. There is no state from which no call helps: a request is given up by `abandon` or by
the next send (unless `strict`). What must not happen is that its late answer is taken for the next
one's. With `correlate` the id tells them apart and the link stays. Without, the link that the
request went out on is closed and reopened (DIRTY_RESET), and nothing more is sent on the old one.

The new link waits for the old one's FIN. A ROUTER of libzmq without handover needs more: as long as
its application has not read the old link to the end, a second one with the same routing id is deaf
for ever, and nothing on the wire tells. A REQ with a `routing_id` should use `correlate` with those.

    state      send           recv                         abandon    the peer leaves
    IDLE       -> ASKED       MQ_STATE                     -          -
    ASKED      gives up,      the answer -> IDLE,          -> IDLE    -> LEFT
               -> ASKED       or MQ_AGAIN
    LEFT       -> ASKED       MQ_GONE -> IDLE              -> IDLE    -
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, strcmp

from mqcore.base.clock cimport now_ns
from mqcore.base.message cimport (
    MSG_MORE, Msg, MsgVec, msg_close, msg_data, msg_init, msg_init_inline, msg_size, vec_clear,
    vec_fini, vec_grow, vec_push,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_GONE, MQ_OK, MQ_STATE, MQ_UNSUPPORTED
from mqcore.protocols.routing.fair_queue cimport (
    FairQueue, fq_attach, fq_detach, fq_fini, fq_read, fq_readable,
)
from mqcore.protocols.routing.load_balance cimport (
    LoadBalance, lb_attach, lb_can_send, lb_detach, lb_fini, lb_hangup, lb_init, lb_send,
    lb_writable,
)
from mqcore.protocols.routing.stub cimport probe
from mqcore.spi.pattern cimport (
    PAT_EXCHANGE, PAT_IDENTITY, PAT_RECV, PAT_SEND, PAT_WAITS, PATTERN_ABI, Q_CAN_RECV, Q_CAN_SEND,
    Pattern,
    PatternOps, plugin_new,
)
from mqcore.spi.pipe cimport (
    DIRTY_RESET, DROP_LATE, DROP_MALFORMED, DROP_UNEXPECTED, Pipe, pipe_delivered, pipe_drop_in,
    pipe_touch,
)

cdef enum:
    IDLE = 0
    ASKED = 1                 # `owes` has the request; the answer may be in `answer` already
    LEFT = 2                  # the peer that had it is gone

cdef enum:                    # Pipe.mark
    MARK_ASKED = 1            # it was sent a request once: an answer too many is late, not strange

cdef struct Req:
    Pattern head
    LoadBalance out
    FairQueue inn
    int state
    Pipe* owes                # ASKED: who has the request; NULL: it has answered and left
    MsgVec answer             # the answer, read and not yet handed out: n != 0
    MsgVec wire               # scratch: the request as it goes out
    uint32_t id               # of the last request (correlate)
    bint correlate, strict, probe


cdef int req_init(Pattern* self) noexcept nogil:
    cdef Req* req = <Req*> self
    lb_init(&req.out)
    req.id = <uint32_t> (
        (<uint64_t> now_ns() ^ <uint64_t> <size_t> self) * <uint64_t> 0x9e3779b97f4a7c15 >> 32)
    return MQ_OK


cdef void req_fini(Pattern* self) noexcept nogil:
    cdef Req* req = <Req*> self
    lb_fini(&req.out)
    fq_fini(&req.inn)
    vec_fini(&req.answer)
    vec_fini(&req.wire)


cdef int req_set_option(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                        size_t size) noexcept nogil:
    cdef Req* req = <Req*> self
    if strcmp(name, "correlate") == 0:
        req.correlate = number != 0
    elif strcmp(name, "strict") == 0:
        req.strict = number != 0
    elif strcmp(name, "probe") == 0:
        req.probe = number != 0
    else:
        return MQ_UNSUPPORTED
    return MQ_OK


# -- answers ---------------------------------------------------------------------------------------

cdef size_t req_envelope(Req* req, Msg* parts, size_t n) noexcept nogil:
    """Parts in front of the body; 0: malformed."""
    if not req.correlate:
        return 1 if n >= 2 and msg_size(&parts[0]) == 0 else 0
    return 2 if n >= 3 and msg_size(&parts[0]) == 4 and msg_size(&parts[1]) == 0 else 0


cdef bint req_take(Req* req, Pipe* p) noexcept nogil:
    """Is what lies in `answer`, from p, the answer? Strips the envelope, or counts the drop."""
    cdef Msg* parts = req.answer.at
    cdef size_t front = req_envelope(req, parts, req.answer.n)
    cdef size_t i
    if front == 0:
        pipe_drop_in(p, DROP_MALFORMED)
        return False
    if req.state != ASKED or p != req.owes or (
            req.correlate and memcmp(msg_data(&parts[0]), &req.id, 4) != 0):
        pipe_drop_in(p, DROP_LATE if p.mark & MARK_ASKED else DROP_UNEXPECTED)
        return False
    for i in range(front):
        msg_close(&parts[i])
    for i in range(front, req.answer.n):
        parts[i - front] = parts[i]
    req.answer.n -= front
    pipe_delivered(p)
    return True


cdef void req_pump(Req* req) noexcept nogil:
    """Reads until the answer is there or nothing is left."""
    cdef Pipe* p = NULL
    cdef int rc
    while req.answer.n == 0:
        rc = fq_read(&req.inn, &req.answer, &p)
        if rc == MQ_AGAIN:
            return
        if rc == MQ_OK and not req_take(req, p):
            vec_clear(&req.answer)


cdef void req_forget(Req* req) noexcept nogil:
    """Gives up what is outstanding; MQ_GONE that nobody has heard yet included."""
    if req.state == ASKED:
        req_pump(req)         # an answer that is here already costs no link
        if req.answer.n:
            if req.owes != NULL:
                req.owes.delivered -= 1
                pipe_drop_in(req.owes, DROP_LATE)
            vec_clear(&req.answer)
        elif not req.correlate:
            pipe_touch(req.owes, DIRTY_RESET)
            lb_hangup(&req.out, req.owes)
    req.state = IDLE
    req.owes = NULL


cdef int req_recv(Pattern* self, MsgVec* out) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef size_t i
    if req.state == LEFT:
        req.state = IDLE
        return MQ_GONE
    if req.state == IDLE:
        return MQ_STATE
    req_pump(req)
    if req.answer.n == 0:
        return MQ_AGAIN
    if out.cap - out.n < req.answer.n:
        i = vec_grow(out, out.n + req.answer.n)
        if i:
            return <int> i
    for i in range(req.answer.n):
        vec_push(out, &req.answer.at[i])
    req.answer.n = 0
    req.state = IDLE
    req.owes = NULL
    return MQ_OK


# -- requests --------------------------------------------------------------------------------------

cdef int req_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef uint32_t id = req.id + 1
    cdef size_t front = 2 if req.correlate else 1
    cdef Pipe* taker = NULL
    cdef size_t i
    cdef int rc
    if req.state == ASKED and req.strict:
        return MQ_STATE
    if req.wire.cap < front + n:
        rc = vec_grow(&req.wire, front + n)
        if rc:
            return rc
    req_forget(req)
    req_pump(req)             # what is here now cannot be the answer to what is not yet sent
    if req.correlate:
        msg_init_inline(&req.wire.at[0], <const uint8_t*> &id, 4)
        req.wire.at[0].flags = MSG_MORE
    msg_init(&req.wire.at[front - 1])
    req.wire.at[front - 1].flags = MSG_MORE
    for i in range(n):
        req.wire.at[front + i] = parts[i]
    rc = lb_send(&req.out, req.wire.at, front + n, &taker)
    if rc == MQ_OK:
        req.id = id
        req.owes = taker
        req.state = ASKED
        taker.mark |= MARK_ASKED
    return rc


cdef void req_abandon(Pattern* self) noexcept nogil:
    req_forget(<Req*> self)


# -- peers -----------------------------------------------------------------------------------------

cdef int req_attach(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Req* req = <Req*> self
    cdef int rc = fq_attach(&req.inn, pipe)
    if rc:
        return rc
    rc = lb_attach(&req.out, pipe)
    if rc:
        fq_detach(&req.inn, pipe)
    elif req.probe:
        probe(pipe)
    return rc


cdef void req_hangup(Pattern* self, Pipe* pipe) noexcept nogil:
    cdef Req* req = <Req*> self
    lb_hangup(&req.out, pipe)
    if req.owes == pipe:
        fq_readable(&req.inn, pipe)
        req_pump(req)         # it may have answered before it left
        if req.answer.n == 0:
            req.state = LEFT
        req.owes = NULL


cdef void req_detach(Pattern* self, Pipe* pipe) noexcept nogil:
    req_hangup(self, pipe)
    lb_detach(&(<Req*> self).out, pipe)
    fq_detach(&(<Req*> self).inn, pipe)


cdef void req_readable(Pattern* self, Pipe* pipe) noexcept nogil:
    fq_readable(&(<Req*> self).inn, pipe)


cdef void req_writable(Pattern* self, Pipe* pipe) noexcept nogil:
    lb_writable(&(<Req*> self).out, pipe)


cdef int64_t req_query(Pattern* self, uint32_t what, const uint8_t* data,
                       size_t size) noexcept nogil:
    cdef Req* req = <Req*> self
    if what == Q_CAN_SEND:
        return lb_can_send(&req.out) and not (req.strict and req.state == ASKED)
    if what == Q_CAN_RECV:    # without a request there is nothing to wait for: not readable
        if req.state == ASKED:
            req_pump(req)
        return req.state == LEFT or req.answer.n != 0
    return -1


cdef PatternOps OPS = PatternOps(
    abi=PATTERN_ABI,
    flags=PAT_SEND | PAT_RECV | PAT_IDENTITY | PAT_EXCHANGE | PAT_WAITS,
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
)

pattern = plugin_new(
    &OPS, "req", 3, "REQ", 0x30, ("rep", "router"),
    (
        ("correlate", "bool", False, "number the requests, so that a given-up one costs no link"),
        ("strict", "bool", False, "a send before the answer is an error, not a new start"),
        ("probe", "bool", False, "send an empty message to each new peer before anything else"),
    ),
    "asks one peer, waits for that peer's answer",
)
